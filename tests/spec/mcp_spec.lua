local catalog = require "sandbox_runner.catalog"
local core = require "sandbox_runner.core"
local mcp = require "sandbox_runner.mcp"
local schema = require "sandbox_runner.schema"
local settings = require "sandbox_runner.settings"

local config = settings.defaults()

local RESULT = { status = "success", reason = "exit", exit_code = 0, stdout = "1\n", stderr = "", stdout_bytes = 2,
  stderr_bytes = 0, truncated = false, language = "python", duration_ms = 1, timings = {} }

-- A session whose tasks are coroutines that the test resumes, and whose runner
-- waits once: task:resume() lets it go on.
local function new(run)
  local s = { sent = {}, tasks = {}, logged = {}, now = 1000 }
  local function spawn(fn)
    local task = { co = coroutine.create(fn) }
    function task:resume(...) assert(coroutine.resume(self.co, ...)) end
    function task:cancel() if coroutine.status(self.co) ~= "dead" then self:resume "cancel" end end
    s.tasks[#s.tasks + 1] = task
    task:resume()
    return task
  end
  local runner = { run = run or function(_, _, ctx)
    s.ctx = ctx
    if coroutine.yield() == "cancel" then error({ code = "cancelled", message = "x" }, 0) end
    local out = {}
    for key, value in pairs(RESULT) do out[key] = value end
    return out
  end, image_in_use = function() end }
  s.server = mcp.server { config = config, catalog = catalog.new(config), runner = runner, spawn = spawn,
    history = { record = function() end, recent = function() return core.json.array {} end },
    now_ms = function() return s.now end, log = function(text) s.logged[#s.logged + 1] = text end }
  local function send(text) s.sent[#s.sent + 1] = text end
  s.sink = { send = send, reply = function(text) if text then send(text) end end }
  s.session = s.server:session { client = "stdio", notify = send }
  -- Hands a text over; returns the answers that came at once, decoded.
  function s.ask(text)
    local before = #s.sent
    s.session:handle(text, s.sink)
    local out = {}
    for i = before + 1, #s.sent do out[#out + 1] = assert(core.json.decode(s.sent[i])) end
    return out[1], #out
  end
  function s.last() return core.json.decode(s.sent[#s.sent]) end
  return s
end

local function message(method, params, id)
  return ('{"jsonrpc":"2.0","id":%s,"method":"%s"%s}'):format(id or 1, method,
    params and ',"params":' .. params or "")
end

local function initialize(version)
  return message("initialize", ('{"protocolVersion":"%s","capabilities":{},"clientInfo":{"name":"t","version":"1"}}')
    :format(version or "2025-11-25"))
end

local function ready(version, run)
  local s = new(run)
  s.ask(initialize(version))
  return s
end

local function call(arguments, id, meta, name)
  return message("tools/call", ('{"name":"%s","arguments":%s%s}'):format(name or "run_code",
    arguments or '{"language":"python","code":"print(1)"}', meta and ',"_meta":' .. meta or ""), id)
end

local function code_of(answer) return answer and answer.error and answer.error.code end

describe("initialize", function()
  it("answers the revision it was offered, and the newest to any other", function()
    for offered, answered in pairs { ["2024-11-05"] = "2024-11-05", ["2025-03-26"] = "2025-03-26",
      ["2025-06-18"] = "2025-06-18", ["2025-11-25"] = "2025-11-25", ["2024-10-07"] = "2025-11-25",
      ["2026-07-28"] = "2025-11-25", ["nonsense"] = "2025-11-25", ["__index"] = "2025-11-25" } do
      local answer = new().ask(initialize(offered))
      assert.equal(answered, answer.result.protocolVersion)
      assert.same({ listChanged = true }, answer.result.capabilities.tools)
      assert.equal(answered == "2024-11-05", answer.result.capabilities.completions == nil)
      assert.equal("sandbox-runner", answer.result.serverInfo.name)
    end
  end)

  it("sends the fields of the revision, and an object for an empty capability", function()
    local s = new()
    s.ask(initialize "2024-11-05")
    assert.truthy(s.sent[1]:find('"logging":{}', 1, true))
    assert.same({ "name", "version" }, schema.keys(s.last().result.serverInfo))
    s.ask(initialize "2025-06-18")
    assert.same({ "name", "title", "version" }, schema.keys(s.last().result.serverInfo))
  end)

  it("needs its parameters", function()
    for _, params in ipairs { "{}", '{"protocolVersion":1,"capabilities":{},"clientInfo":{"name":"a","version":"b"}}',
      '{"protocolVersion":"2025-11-25","capabilities":[],"clientInfo":{"name":"a","version":"b"}}',
      '{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a"}}' } do
      assert.equal(-32602, code_of(new().ask(message("initialize", params))))
    end
  end)

  it("may come again, with the same rules", function()
    local s = ready "2024-11-05"
    assert.equal("2025-06-18", s.ask(initialize "2025-06-18").result.protocolVersion)
    assert.truthy(s.ask(message "tools/list").result.tools[1].outputSchema)
  end)
end)

describe("before initialize", function()
  it("ping is answered, the rest refused by name, unknown methods as such", function()
    local s = new()
    s.ask(message "ping")
    assert.equal('{"id":1,"jsonrpc":"2.0","result":{}}', s.sent[1])
    for _, text in ipairs { call(), message "tools/list", message "resources/list" } do
      local answer = s.ask(text)
      assert.equal(-32602, code_of(answer))
      assert.matches("send initialize first", answer.error.message)
    end
    assert.equal(-32602, code_of(s.ask(message("server/discover", nil, '"server-discover-probe-1"'))))
    assert.equal(-32601, code_of(s.ask(message "nonsense")))
    assert.equal("2025-11-25", s.ask(initialize()).result.protocolVersion)
  end)
end)

describe("tools/list", function()
  it("has the fields of the revision", function()
    local want = { ["2024-11-05"] = { "description", "inputSchema", "name" },
      ["2025-03-26"] = { "annotations", "description", "inputSchema", "name" },
      ["2025-06-18"] = { "annotations", "description", "inputSchema", "name", "outputSchema", "title" },
      ["2025-11-25"] = { "annotations", "description", "inputSchema", "name", "outputSchema", "title" } }
    for version, fields in pairs(want) do
      local answer = ready(version).ask(message("tools/list", "{}"))
      assert.same({ "tools" }, schema.keys(answer.result))
      assert.equal(3, #answer.result.tools)
      for _, tool in ipairs(answer.result.tools) do assert.same(fields, schema.keys(tool)) end
    end
  end)

  it("has one page", function()
    local s = ready()
    assert.equal(-32602, code_of(s.ask(message("tools/list", '{"cursor":""}'))))
    assert.equal(-32602, code_of(s.ask(message("tools/list", '{"cursor":"x"}'))))
    assert.truthy(s.ask(message("tools/list", '{"cursor":null,"_meta":{}}')).result)
    assert.truthy(s.ask(message("tools/list", "null")).result)
  end)

  it("has other lists beside it, with an entry each", function()
    local s = ready()
    for method, member in pairs { ["resources/list"] = "resources",
      ["resources/templates/list"] = "resourceTemplates", ["prompts/list"] = "prompts" } do
      assert.is_true(#s.ask(message(method)).result[member] > 0)
    end
  end)
end)

describe("tools/call", function()
  it("answers with structure and the same JSON as text", function()
    local s = ready()
    assert.is_nil(s.ask(call(nil, '"a"')))
    assert.equal(1, s.server:in_flight())
    s.tasks[1]:resume()
    local answer = s.last()
    assert.equal("a", answer.id)
    assert.is_false(answer.result.isError)
    assert.same(answer.result.structuredContent, core.json.decode(answer.result.content[1].text))
    assert.equal("1\n", answer.result.structuredContent.stdout)
    assert.equal(0, s.server:in_flight())
  end)

  it("keeps new fields from old revisions", function()
    for version, has in pairs { ["2024-11-05"] = false, ["2025-03-26"] = false, ["2025-06-18"] = true } do
      local s = ready(version)
      s.ask(call("{}", 2, nil, "list_supported_languages"))
      assert.equal(has, s.last().result.structuredContent ~= nil)
      assert.equal(2, #core.json.decode(s.last().result.content[1].text).result)
    end
  end)

  it("wraps lists, empty ones too", function()
    local s = ready()
    s.ask('{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"get_execution_history"}}')
    assert.truthy(s.sent[2]:find('"structuredContent":{"result":[]}', 1, true))
    s.ask(call("null", 4, nil, "get_execution_history"))
    assert.is_false(s.last().result.isError)
  end)

  it("refuses a broken shape by -32602", function()
    local s = ready()
    for _, params in ipairs { "{}", "[]", '{"name":7}', '{"name":"run_code","arguments":[]}',
      '{"name":"run_code","arguments":"text"}', '{"name":"run_code","arguments":[1]}', '{"name":"nope"}',
      '{"name":"__index"}' } do
      assert.equal(-32602, code_of(s.ask(message("tools/call", params))), params)
    end
    assert.equal(-32602, code_of(s.ask(message "tools/call")))
  end)

  it("answers bad values as a text for the model, without structure", function()
    local s = ready()
    s.ask(call('{"language":"rust","code":"x"}'))
    local answer = s.last().result
    assert.is_true(answer.isError)
    assert.is_nil(answer.structuredContent)
    assert.matches("Unknown language", answer.content[1].text)
    s.ask(call '{"language":"python","code":"a\\u0000b"}')
    assert.is_true(s.last().result.isError)
    assert.matches("NUL character", s.last().result.content[1].text)
    assert.equal(-32602, code_of(s.ask(message("ping", '{"x":"\\u0000"}'))))
  end)

  it("runs calls side by side and serves other requests meanwhile", function()
    local s = ready()
    s.ask(call(nil, 10))
    s.ask(call(nil, 11))
    assert.same({}, s.ask(message("ping", nil, 12)).result)
    s.tasks[2]:resume()
    assert.equal(11, s.last().id)
    s.tasks[1]:resume()
    assert.equal(10, s.last().id)
  end)

  it("refuses an id that is still in flight, and takes it afterwards", function()
    local s = ready()
    s.ask(call(nil, 10))
    assert.equal(-32600, code_of(s.ask(call(nil, 10))))
    assert.equal(-32600, code_of(s.ask(message("ping", nil, 10))))
    assert.is_nil(s.ask(call(nil, '"10"')))
    s.tasks[1]:resume()
    assert.is_nil(s.ask(call(nil, 10)))
  end)

  it("answers with an error what is too large for a client, or cannot be written", function()
    local text, number = ("x"):rep(5 << 20), 1
    local s = ready(nil, function()
      local out = {}
      for key, value in pairs(RESULT) do out[key] = value end
      out.stdout, out.duration_ms = text, number
      return out
    end)
    assert.equal(-32603, code_of(s.ask(call(nil, 1))))
    assert.matches("ask for less", s.last().error.message)
    text, number = "", 0 / 0
    assert.equal(-32603, code_of(s.ask(call(nil, '"two"'))))
    assert.equal("two", s.last().id)
  end)

  it("turns our own faults into a short error and a log entry with the trace", function()
    local s = ready(nil, function() error "secret detail" end)
    local answer = s.ask(call())
    assert.equal(-32603, code_of(answer))
    assert.is_nil(answer.error.message:find "secret")
    local id = answer.error.message:match "id (%x+)"
    assert.truthy(s.logged[1]:find(id, 1, true))
    assert.matches("secret detail.*traceback", s.logged[1])
  end)
end)

describe("cancelling", function()
  local function cancelled(id)
    return ('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s,"reason":"r"}}'):format(id)
  end

  it("ends the call; nothing is sent for it any more", function()
    local s = ready()
    s.ask(call(nil, 3, '{"progressToken":"t"}'))
    local _, n = s.ask(cancelled "3")
    assert.equal(0, n)
    assert.equal(0, s.server:in_flight())
    s.now = 9000
    s.ctx.report("late", 1, 10)
    assert.equal(1, #s.sent)
    assert.same({}, s.ask(message "ping").result)
  end)

  it("compares ids by type and value", function()
    local s = ready()
    s.ask(call(nil, "9007199254740993"))
    for _, id in ipairs { '"9007199254740993"', "9007199254740992", "null", "{}", "4" } do s.ask(cancelled(id)) end
    s.ask '{"jsonrpc":"2.0","method":"notifications/cancelled"}'
    s.ask '{"jsonrpc":"2.0","method":"notifications/cancelled","params":[]}'
    assert.equal(1, s.server:in_flight())
    s.ask(cancelled "9007199254740993")
    assert.equal(0, s.server:in_flight())
    assert.equal(1, #s.sent)
  end)

  it("one of many leaves the others", function()
    local s = ready()
    for id = 1, 3 do s.ask(call(nil, id)) end
    s.ask(cancelled "2")
    s.tasks[1]:resume()
    s.tasks[3]:resume()
    assert.equal(3, #s.sent)
    assert.equal(3, s.last().id)
  end)

  it("all at the end answers none; after close nothing is sent or taken", function()
    local s = ready()
    s.ask(call(nil, 1))
    s.ask(call(nil, 2))
    s.server:cancel_all "end"
    assert.equal(0, s.server:in_flight())
    assert.equal(1, #s.sent)
    s.session:close()
    s.ask(message "ping")
    assert.equal(1, #s.sent)
  end)
end)

describe("progress", function()
  it("is sent with the token, strictly increasing, not too often, not after the answer", function()
    local s = ready()
    s.ask(call(nil, 3, '{"progressToken":7}'))
    local progress = s.ctx.report
    progress("queued", 0, 0)
    progress("too soon", 0, 10)
    s.now = s.now + 1500
    progress("running", 1, 10)
    s.now = s.now + 99
    progress("too soon", 1.1, 10)
    s.now = s.now + 1
    progress("running", 1.1, 10)
    s.tasks[1]:resume()
    s.now = s.now + 5000
    progress("late", 2, 10)
    local last, count = 0, 0
    for i = 2, #s.sent - 1 do
      local note = core.json.decode(s.sent[i])
      assert.equal("notifications/progress", note.method)
      assert.equal(7, note.params.progressToken)
      assert.is_true(note.params.progress > last)
      assert.is_true(note.params.total == nil or note.params.total >= note.params.progress)
      last, count = note.params.progress, count + 1
    end
    assert.equal(3, count)
    assert.equal(3, s.last().id)
  end)

  it("is not offered without a usable token", function()
    for _, meta in ipairs { "{}", '{"progressToken":null}', '{"progressToken":1.5}', '{"progressToken":{}}', "[]" } do
      local s = ready()
      s.ask(call(nil, 3, meta))
      assert.is_nil(s.ctx.report)
    end
  end)

  it("has no message in the first revision", function()
    local s = ready "2024-11-05"
    s.ask(call(nil, 3, '{"progressToken":"t"}'))
    s.ctx.report("running", 1, 10)
    assert.same({ "progress", "progressToken", "total" }, schema.keys(s.last().params))
  end)
end)

describe("malformed input", function()
  it("is answered, and the session goes on", function()
    local s = ready()
    assert.equal(-32700, code_of(s.ask "{"))
    assert.is_nil(s.sent[2]:find('"id"', 1, true))
    assert.equal(-32600, code_of(s.ask "42"))
    assert.equal(-32600, code_of(s.ask(message("ping", nil, "null"))))
    assert.same({}, s.ask(message "ping").result)
  end)

  it("gets silence for notifications, responses and blank lines", function()
    local s = ready()
    for _, text in ipairs { "", " ", '{"jsonrpc":"2.0","method":"nonsense"}',
      '{"jsonrpc":"2.0","method":"initialized"}',
      '{"jsonrpc":"2.0","method":"notifications/initialized"}', '{"jsonrpc":"2.0","id":1,"result":{}}',
      '{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}', '{"jsonrpc":"2.0","method":"tools/list"}' } do
      local _, n = s.ask(text)
      assert.equal(0, n, text)
    end
  end)

  it("is ignored after 20 in a row, until something sensible comes", function()
    local s = ready()
    for _ = 1, 50 do s.ask "{" end
    assert.equal(21, #s.sent)
    s.ask(message "ping")
    s.ask "{"
    assert.equal(23, #s.sent)
  end)

  it("that was too long is refused, with its id where it is known", function()
    local s = ready()
    s.session:oversized(4194304, "5", s.sink)
    assert.equal(5, s.last().id)
    assert.equal(-32600, code_of(s.last()))
    s.session:oversized(4194304, nil, s.sink)
    assert.is_nil(s.last().id)
  end)
end)

describe("batches", function()
  it("are refused by every revision but one", function()
    for _, version in ipairs { "2024-11-05", "2025-06-18", "2025-11-25" } do
      local answer, n = ready(version).ask("[" .. message "ping" .. "," .. message("ping", nil, 2) .. "]")
      assert.equal(1, n)
      assert.equal(-32600, code_of(answer))
      assert.is_nil(answer.id)
    end
    assert.equal(-32600, code_of(new().ask("[" .. message "ping" .. "]")))
  end)

  it("of 2025-03-26 are answered together when the last call has ended", function()
    local s = ready "2025-03-26"
    s.ask("[" .. table.concat({ message("ping", nil, "9007199254740993"), call(nil, 2),
      '{"jsonrpc":"2.0","method":"notifications/x"}', "7" }, ",") .. "]")
    assert.equal(1, #s.sent)
    s.tasks[1]:resume()
    assert.equal(2, #s.sent)
    assert.equal(3, #s.last())
    assert.truthy(s.sent[2]:find('"id":9007199254740993', 1, true))
    assert.equal(-32600, code_of(s.last()[2]))
    assert.equal(2, s.last()[3].id)
  end)

  it("keep ids that no double holds, in a long one too where it can", function()
    local s = ready "2025-03-26"
    s.ask("[" .. message("ping", nil, "9007199254740993") .. "," .. message("ping", nil, '"x"') .. "]")
    assert.truthy(s.sent[2]:find('"id":9007199254740993', 1, true))
    local long = message("ping", ('{"x":"%s"}'):format(("y"):rep(70000)), "7")
    s.ask("[" .. long .. "," .. message("ping", nil, "9007199254740993") .. "]")
    assert.equal(7, s.last()[1].id)
    assert.equal(-32600, code_of(s.last()[2]))
  end)

  it("whose answers are too large for one line get errors in their place", function()
    local s = ready("2025-03-26", function()
      local out = {}
      for key, value in pairs(RESULT) do out[key] = value end
      out.stdout = ("x"):rep(1500000)
      return out
    end)
    local calls = {}
    for i = 1, 6 do calls[i] = call(nil, i) end
    s.ask("[" .. table.concat(calls, ",") .. "]")
    local answers = s.last()
    assert.equal(6, #answers)
    assert.truthy(answers[1].result)
    assert.equal(-32603, code_of(answers[6]))
    assert.equal(6, answers[6].id)
  end)

  it("of notifications get nothing, empty ones and initialize inside an error", function()
    local s = ready "2025-03-26"
    local _, n = s.ask '[{"jsonrpc":"2.0","method":"x"},{"jsonrpc":"2.0","method":"y"}]'
    assert.equal(0, n)
    assert.equal(-32600, code_of(s.ask "[]"))
    local answer = s.ask("[" .. initialize() .. "]")
    assert.equal(-32600, code_of(answer[1]))
  end)

  it("with a cancelled call are answered without it", function()
    local s = ready "2025-03-26"
    s.ask("[" .. message("ping", nil, 1) .. "," .. call(nil, 2) .. "]")
    s.server:cancel_all()
    assert.equal(1, #s.last())
  end)
end)

describe("output", function()
  it("is one line without raw control characters or line separators", function()
    local s = ready(nil, function()
      local out = {}
      for key, value in pairs(RESULT) do out[key] = value end
      out.stdout = "a\nb\27\127\194\133\226\128\168\226\128\169"
      return out
    end)
    s.ask(call())
    assert.is_nil(s.sent[2]:find "[%c\127]")
    assert.is_nil(s.sent[2]:find("\226\128\168", 1, true))
    assert.equal("a\nb\27\127\194\133\226\128\168\226\128\169", s.last().result.structuredContent.stdout)
  end)
end)

describe("a batch", function()
  local function opened()
    local s = new()
    s.ask(initialize "2025-03-26")
    return s
  end

  it("of too many messages is refused as a whole", function()
    local s = opened()
    local pings = {}
    for i = 1, 101 do pings[i] = message("ping", "{}", i) end
    assert.equal(-32600, code_of(s.ask("[" .. table.concat(pings, ",") .. "]")))
    pings[101] = nil
    s.ask("[" .. table.concat(pings, ",") .. "]")
    assert.equal(100, #core.json.decode(s.sent[#s.sent]))
  end)

  it("that the revision does not have is not even read when it is long", function()
    local s = new()
    s.ask(initialize "2025-11-25")
    assert.equal(-32600, code_of(s.ask("[" .. ("["):rep(70000))))
    assert.equal(-32700, code_of(s.ask("[1,")))
  end)
end)
