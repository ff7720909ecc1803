-- Faults that MCP servers were seen to have in the field, in what is said to them and
-- how: each is a case with an id, as those of tests/e2e/cases are, and ids are not
-- given twice.
local client = require "e2e.client"
local core = require "sandbox_runner.core"
local http = require "e2e.http_client"
local sandboxes = require "e2e.sandboxes"

local json = client.json

-- Ids and tokens that get lost, rounded or taken for none, as they stand in a message.
local IDS = { "0", "-5", '""', '"abc"', "9007199254740993" }
local UP = "import time; print('up', flush=True); time.sleep(%g); print('slept')"

-- A parent of the server that alone holds the other end of its stdin.
local PARENT = [[
exec 3> >(echo $BASHPID >"$XDG_STATE_HOME/server"; exec "$0" "$@")
while IFS= read -r line; do printf '%s\n' "$line" >&3; done]]

local function python(code, seconds) return { language = "python", code = code, timeout_seconds = seconds } end

local function sleeping(seconds, limit) return python(UP:format(seconds), limit or 30) end

local function call_text(id, arguments, meta)
  return ('{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"run_code","arguments":%s%s}}'):format(
    id, arguments, meta and ',"_meta":' .. meta or "")
end

local function stdout_of(answer) return answer.result.structuredContent.stdout end

-- Whether the text of a result says the same as its structured form.
local function assert_agree(result)
  assert.equal(1, #result.content)
  assert.equal("text", result.content[1].type)
  local value = assert(json.decode(result.content[1].text))
  assert.equal(json.encode(result.structuredContent), json.encode(value))
end

describe("a client on stdio", function()
  local server
  setup(function() server = client.start { seconds = 120, init = client.no_pool } end)
  teardown(function() assert.equal(0, (server:close())) end)

  -- The answer to a message, and its line; notifications before it are kept.
  local function answer_of(text)
    server:send(text)
    local message, line
    repeat message, line = server:read() until not message or message.method == nil
    server.answers[message.id] = nil
    return message, line
  end

  it("F001 writes its source in escapes, a character outside the basic plane as a pair", function()
    local code = [[\u0073 = '\ud83d\ude00'\nprint(len(s), s.encode('utf-8'), s, '\u00e9\/')\u000a]]
    local answer, line = answer_of(call_text(1001, ('{"language":"python","code":"%s"}'):format(code)))
    assert.equal("1 b'\\xf0\\x9f\\x98\\x80' 😀 é/\n", stdout_of(answer))
    assert.is_truthy(utf8.len(line))
  end)

  it("F002 cuts a pair in two: told so under its id", function()
    for _, half in ipairs { "\\ud83d", "\\ude00", "\\ude00\\ud83d", "\\ud83dx" } do
      local answer = answer_of(call_text(1002, ('{"language":"python","code":"print(1) # %s"}'):format(half)))
      assert.equal(-32700, answer.error.code)
      assert.equal(1002, answer.id)
      server:ping()
    end
  end)

  it("F003 has its calls answered under their ids", function()
    for _, id in ipairs(IDS) do
      local answer, line = answer_of(call_text(id, '{"language":"python","code":"print(1)"}'))
      assert.equal("1\n", stdout_of(answer))
      assert.is_truthy(line:find('"id":' .. id, 1, true), line)
    end
  end)

  it("F004 hears of the progress under its tokens", function()
    for _, token in ipairs(IDS) do
      server:send(call_text(1004, '{"language":"python","code":"print(1)"}', ('{"progressToken":%s}'):format(token)))
      local message, line = server:read()
      assert.equal("notifications/progress", message.method)
      assert.is_truthy(line:find('"progressToken":' .. token, 1, true), line)
      server:wait(1004)
    end
  end)

  it("F005 cancels calls under such ids", function()
    for _, id in ipairs(IDS) do server:send(call_text(id, json.encode(sleeping(25)))) end
    sandboxes.wait_for(server, #IDS)
    for _, id in ipairs(IDS) do
      server:send(('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}'):format(id))
    end
    assert.is_truthy(sandboxes.gone_after(server:instance(), 10))
    server:ping()
    for _, id in ipairs(IDS) do assert.is_nil(server.answers[json.decode(id)], id) end
  end)

  it("F006 reads the same in the text of an answer and in its structure", function()
    for _, arguments in ipairs { python "print('\\x00\\x1b\\u2028 é')", python "1/0",
      { language = "cpp", code = "int main() { return 3 }" } } do
      assert_agree(server:call("run_code", arguments))
    end
    assert_agree(server:call("list_supported_languages", {}))
    assert_agree(server:call("get_execution_history", {}))
  end)

  it("F007 calls a language by any name that is listed", function()
    for _, entry in ipairs(server:call("list_supported_languages", {}).structuredContent.result) do
      for _, name in ipairs(entry.aliases) do
        local result = assert(server:run(name, entry.language == "cpp" and "int main() {}" or "pass"))
        assert.same({ "success", entry.language }, { result.status, result.language })
      end
    end
  end)
end)

describe("a client that is in a hurry", function()
  it("F008 calls run_code in its first line: told how to begin, and nothing runs", function()
    local server = client.start { mute = true, init = client.no_pool }
    local answer = server:ask(call_text('"first"', '{"language":"python","code":"print(1)"}'))
    assert.equal("first", answer.id)
    assert.equal(-32602, answer.error.code)
    assert.matches("initialize", answer.error.message)
    server:initialize()
    assert.equal(0, #server:history())
    assert.equal("1\n", assert(server:run("python", "print(1)")).stdout)
    assert.equal(0, (server:close()))
  end)

  it("F009 writes the whole session at once, and then closes", function()
    local server = client.start { mute = true }
    local lines = { json.encode(http.initialize()), '{"jsonrpc":"2.0","method":"notifications/initialized"}' }
    for id = 1, 5 do lines[#lines + 1] = json.encode(http.request("tools/list", nil, id)) end
    server:write(table.concat(lines, "\n") .. "\n")
    assert.equal(0, (server:finish()))
    for id = 0, 5 do assert.is_table(server.answers[id] and server.answers[id].result, "no answer to " .. id) end
    server:close()
  end)
end)

describe("a client that vanishes during a run", function()
  local SOON = 10 * client.slow

  it("F010 by closing its end of stdout, and nothing else", function()
    local server = client.start { init = client.no_pool }
    local instance = server:instance()
    server:begin(sleeping(25))
    server.output:close()
    server.output = nil
    local alone = client.eventually(SOON, function() return not server:alive() end)
    assert.is_true(alone, "it lives on")
    assert.is_truthy(sandboxes.gone_after(instance, SOON))
    assert.equal(0, (server:close()))
  end)

  it("F011 by SIGKILL, its pipes with it", function()
    local server = client.start { program = "/bin/bash", args = { "-c", PARENT, client.program() } }
    local instance = server:instance()
    local pid = assert(tonumber(client.read_file(server.folder .. "/server")))
    server:begin(sleeping(25))
    server:signal "KILL"
    server.output:close()
    server.output = nil
    assert.is_true(client.eventually(SOON, function() return not core.sys.stat("/proc/" .. pid) end), "it lives on")
    assert.is_truthy(sandboxes.gone_after(instance, SOON))
    assert.equal(137, (server:close()))
  end)
end)

describe("a client over HTTP", function()
  local server
  setup(function() server = http.start { init = client.no_pool .. "\nlimits.concurrency = 4" } end)
  teardown(function() assert.equal(0, (server:close())) end)

  local function modern_run(code, seconds)
    return server:modern_open("tools/call", { name = "run_code", arguments = python(code, seconds) })
  end

  it("F012 waits for no other one, nor for its own calls", function()
    local one, two = server:session(), server:session()
    local slow = { one:open(http.run(UP:format(25), 1, nil, 30)), modern_run(UP:format(25), 30) }
    sandboxes.wait_for(server.process, 2)
    client.within(2000 * client.slow, function()
      local started = client.now_ms()
      for _, session in ipairs { one, two } do
        assert.equal("quick\n", stdout_of(session:post(http.run("print('quick')", 2)).json))
      end
      assert.equal("quick\n", stdout_of(modern_run("print('quick')"):response().json))
      return client.now_ms() - started
    end)
    one:delete()
    for _, connection in ipairs(slow) do connection:close() end
  end)

  it("F013 is answered while its event stream is open", function()
    local session = server:session()
    local stream, status = session:listen()
    assert.equal(200, status)
    local old = server:connect()
    old:request("GET", "/sse", { Accept = "text/event-stream" })
    assert.equal(200, (old:head()))
    client.within(1000 * client.slow, function()
      local started = client.now_ms()
      assert.equal(3, #session:post(http.request "tools/list").json.result.tools)
      assert.equal(3, #server:modern("tools/list", {}).json.result.tools)
      return client.now_ms() - started
    end)
    stream:close()
    old:close()
  end)

  it("F014 has its ids back as they were", function()
    local session = server:session()
    for _, id in ipairs(IDS) do
      for _, text in ipairs { ('{"jsonrpc":"2.0","id":%s,"method":"ping"}'):format(id),
        ('{"jsonrpc":"2.0","id":%s,"method":"nonsense"}'):format(id),
        ('{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"list_supported_languages"}}'):format(id) } do
        local response = session:post(text)
        assert.equal(200, response.status)
        assert.is_truthy(response.body:find('"id":' .. id, 1, true), response.body)
      end
    end
  end)

  it("F015 sends many requests in one write", function()
    local session, connection, parts = server:session(), server:connect(), {}
    local headers = {}
    for name, value in pairs(http.headers(session:headers { Host = "localhost" })) do
      headers[#headers + 1] = name .. ": " .. value .. "\r\n"
    end
    for i = 1, 5 do
      local text = json.encode(http.request("ping", nil, i))
      parts[i] = ("POST /mcp HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n%s"):format(table.concat(headers), #text, text)
    end
    connection:write(table.concat(parts))
    for i = 1, 5 do assert.equal(i, connection:response().json.id) end
    connection:close()
  end)

  it("F016 writes byte by byte", function()
    local session, connection = server:session(), server:connect()
    local text = json.encode(http.run("print(1)", "bytes"))
    connection:request("POST", "/mcp", http.headers(session:headers { ["Content-Length"] = tostring(#text) }))
    for i = 1, #text do connection:write(text:sub(i, i)) end
    local response = connection:response()
    assert.equal("bytes", response.json.id)
    assert.equal("1\n", stdout_of(response.json))
    connection:close()
  end)

  it("F017 calls with a broken shape or bad values: an error for those, an answer for these", function()
    local session = server:session()
    for _, params in ipairs { "{}", '{"name":7}', '{"name":"run_code","arguments":[]}',
      '{"name":"run_code","arguments":"text"}' } do
      local text = ('{"jsonrpc":"2.0","id":17,"method":"tools/call","params":%s}'):format(params)
      local response = session:post(text)
      assert.equal(-32602, response.json.error.code, params)
      assert.equal(17, response.json.id)
    end
    local refused = session:post(http.run("#" .. ("a"):rep(300000), "long")).json
    assert.equal("long", refused.id)
    assert.is_true(refused.result.isError)
    assert.matches("51200", refused.result.content[1].text)
  end)

  it("F018 calls a tool before initialize: told so, and nothing runs", function()
    local response = server:post(http.run("print('early')", 18))
    assert.equal(400, response.status)
    assert.equal(18, response.json.id)
    local rows = server:session():post(http.call "get_execution_history").json.result.structuredContent.result
    for _, row in ipairs(rows) do assert.not_equal("print('early')", row.code_snippet) end
  end)

  it("F019 cancels one of three", function()
    local session, connections = server:session(), {}
    for i = 1, 3 do connections[i] = session:open(http.run(UP:format(i == 2 and 25 or 1), i, nil, 30)) end
    sandboxes.wait_for(server.process, 3)
    session:post { jsonrpc = "2.0", method = "notifications/cancelled", params = { requestId = 2 } }
    assert.equal(202, connections[2]:response().status)
    for _, i in ipairs { 1, 3 } do assert.equal("up\nslept\n", stdout_of(connections[i]:response().json)) end
  end)

  it("F020 has the host and the kind of its request checked before anything else", function()
    local session = server:session()
    assert.equal(403, session:post(http.run "print(1)", { Host = "evil.example" }).status)
    assert.equal(406, session:post(http.run "print(1)", { Accept = "image/png" }).status)
    assert.equal(415, session:post(http.run "print(1)", { ["Content-Type"] = "text/plain" }).status)
    assert.equal(400, session:post(http.run "print(1)", { ["MCP-Protocol-Version"] = "nonsense" }).status)
    assert.equal(400, session:post(json.encode(http.run "print(1)"):sub(1, -2)).status)
    assert.equal(200, session:post(http.run "print(1)").status)
  end)
end)

describe("a client over HTTP that leaves during a run", function()
  local server
  setup(function() server = http.start { init = client.no_pool .. "\nlimits.concurrency = 1" } end)
  teardown(function() assert.equal(0, (server:close())) end)

  local function history(session)
    return session:post(http.call "get_execution_history").json.result.structuredContent.result
  end

  it("F021 frees its place at once in the newest revision", function()
    local session = server:session()
    client.within(3000 * client.slow, function()
      local connection = server:modern_open("tools/call", { name = "run_code", arguments = sleeping(25) })
      sandboxes.wait_for(server.process, 1)
      connection:close()
      local result = session:post(http.run("print('next')")).json.result.structuredContent
      assert.equal("next\n", result.stdout)
      return result.timings.queue_ms
    end)
    assert.equal("cancelled", history(session)[2].status)
  end)

  it("F022 frees it at the time limit in the older ones", function()
    local session = server:session()
    local connection = session:open(http.run(UP:format(25), "left", nil, 1))
    sandboxes.wait_for(server.process, 1)
    connection:close()
    local result = session:post(http.run("print('next')")).json.result.structuredContent
    assert.equal("next\n", result.stdout)
    assert.is_true(result.timings.queue_ms < 15000 * client.slow, result.timings.queue_ms .. " ms")
    assert.equal("timeout", history(session)[2].status)
    assert.is_truthy(sandboxes.gone_after(server.process:instance(), 3 * client.slow))
  end)
end)
