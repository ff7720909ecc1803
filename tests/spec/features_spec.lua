local catalog = require "sandbox_runner.catalog"
local core = require "sandbox_runner.core"
local fake = require "spec.support.fake"
local history = require "sandbox_runner.history"
local legacy = require "sandbox_runner.legacy"
local mcp = require "sandbox_runner.mcp"
local modern = require "sandbox_runner.modern"
local schema = require "sandbox_runner.schema"
local settings = require "sandbox_runner.settings"

local null, json = core.json.null, core.json

local RESULT = { status = "error", reason = "exit", exit_code = 1, stdout = "", stderr = "boom", stdout_bytes = 0,
  stderr_bytes = 4, truncated = false, language = "python", duration_ms = 1, run_id = "00000000000000ab", timings = {} }

local MODERN = { ["io.modelcontextprotocol/protocolVersion"] = "2026-07-28",
  ["io.modelcontextprotocol/clientCapabilities"] = { extensions = { ["io.modelcontextprotocol/tasks"] = {} } } }

-- A server with the real catalog, history and session, whose runner answers RESULT
-- at once. options: init (text), version (of the handshake; false: none), tasks.
local Peer = {}
Peer.__index = Peer

local function new(options)
  options = options or {}
  local self = setmetatable({ folder = fake.temporary_folder(), logged = {}, last_id = 0, answers = {} }, Peer)
  local config = assert(settings.parse(("history.file = %q\n%s"):format(self.folder .. "/h.db", options.init or "")))
  local function log(text) self.logged[#self.logged + 1] = text end
  self.catalog = catalog.new(config)
  self.server = mcp.server { config = config, catalog = self.catalog, log = log, tasks = options.tasks,
    history = history.open(config, log), spawn = core.loop.spawn, now_ms = core.loop.now_ms,
    runner = { run = function() return json.decode(json.encode(RESULT)) end, image_in_use = function() return "i" end,
      note_denied = function() end } }
  self.session = self.server:session { client = "stdio" }
  self.version = options.version
  if options.version == nil then self.version = "2025-11-25" end
  if self.version then
    self:ask("initialize", { protocolVersion = self.version, capabilities = {},
      clientInfo = { name = "t", version = "1" } })
  end
  return self
end

-- The answer to a request.
function Peer:ask(method, params)
  self.last_id = self.last_id + 1
  local id = self.last_id
  self.session:handle(json.encode { jsonrpc = "2.0", id = id, method = method, params = params }, {
    send = function() end, reply = function(text) self.answers[id] = assert(json.decode(text)) end })
  fake.eventually(function() return self.answers[id] end, "an answer to " .. method)
  return self.answers[id]
end

function Peer:result(method, params)
  local answer = self:ask(method, params)
  return answer.result or error(json.encode(answer.error), 2)
end

function Peer:refused(method, params)
  local answer = self:ask(method, params)
  local failure = answer.error or error("answered: " .. json.encode(answer.result), 2)
  return failure.code, failure.message, failure.data
end

function Peer:call(name, arguments)
  return self:result("tools/call", { name = name, arguments = arguments })
end

function Peer:close()
  self.server.history:close()
  os.execute(("rm -rf '%s'"):format(self.folder))
end

-- Runs fn(peer) in a task.
local function with(options, fn)
  return fake.task(function()
    local peer = new(options)
    local ok, why = pcall(fn, peer)
    peer:close()
    if not ok then error(why, 0) end
  end)
end

local LISTS = { ["tools/list"] = "tools", ["resources/list"] = "resources",
  ["resources/templates/list"] = "resourceTemplates", ["prompts/list"] = "prompts" }

describe("a list", function()
  it("has one page", with({}, function(peer)
    for method, member in pairs(LISTS) do
      local result = peer:result(method, { cursor = null, other = 1 })
      assert.same({ member }, schema.keys(result))
      assert.is_true(#result[member] > 0)
      for _, cursor in ipairs { "", "x", 1 } do
        local code, text = peer:refused(method, { cursor = cursor })
        assert.equal(-32602, code)
        assert.matches("has one page", text)
      end
    end
  end))

  local RICH = [[
    tool "t" { title = "T", description = "d", meta = { a = 1 }, icons = { { src = "https://x.example/i.png" } },
      annotations = { readOnlyHint = true }, output = { type = "object", properties = {} }, handler = print }
    resource "x:1" { title = "R", description = "d", mime_type = "text/plain", text = "", meta = { a = 1 },
      annotations = { priority = 1 }, icons = { { src = "https://x.example/i.png" } } }
    prompt "p" { title = "P", description = "d", icons = { { src = "https://x.example/i.png" } }, meta = { a = 1 },
      messages = print }]]

  it("has the fields of the revision, and none is null", fake.task(function()
    local versions = schema.keys(legacy.versions)
    versions[#versions + 1] = "2026-07-28"
    for _, version in ipairs(versions) do
      local peer = new { init = RICH, version = version ~= "2026-07-28" and version }
      local rules = peer.version and legacy.versions[version] or modern.rules
      local params = not peer.version and { _meta = MODERN } or nil
      local first = { tools = { "description", "inputSchema", "name" },
        prompts = { "arguments", "description", "name" }, resources = { "description", "mimeType", "name", "uri" } }
      local more = { tools = rules.tool, prompts = rules.prompt, resources = rules.resource }
      for method, member in pairs { ["tools/list"] = "tools", ["prompts/list"] = "prompts",
        ["resources/list"] = "resources" } do
        local list = peer:result(method, params)[member]
        local want = { table.unpack(first[member]) }
        table.move(more[member], 1, #more[member], #want + 1, want)
        table.sort(want)
        assert.same(want, schema.keys(list[#list]), version .. " " .. method)
        for _, entry in ipairs(list) do
          for _, value in pairs(entry) do assert.are_not.equal(null, value) end
        end
      end
      peer:close()
    end
  end))

  -- A list is in every conversation of a model; four bytes are about one token.
  it("of tools stays below 1500 tokens", with({}, function(peer)
    local bytes = #json.encode(peer:result("tools/list"))
    assert.is_true(bytes / 4 < 1500, bytes)
  end))

  it("is encoded once", with({}, function(peer)
    local made = 0
    local published = peer.catalog.published
    peer.catalog.published = function(self, kind, method, rules, make)
      return published(self, kind, method, rules, function() made = made + 1 return make() end)
    end
    for _ = 1, 3 do peer:result("tools/list") end
    assert.equal(1, made)
    peer.catalog:changed "tools"
    peer:result("tools/list")
    assert.equal(2, made)
  end))
end)

local TOOLS = [[
tool "text" { description = "d", handler = function() return "hello" end }
tool "number" { description = "d", handler = function() return 7 end }
tool "table" { description = "d", handler = function() return { a = { 1 }, b = {} } end }
tool "list" { description = "d", handler = function() return { 1, 2 } end }
tool "refuses" { description = "d", handler = function() return nil, "No such city; name another." end }
tool "silent" { description = "d", handler = function() end }
tool "throws" { description = "d", handler = function() error "broken" end }
tool "fails" { description = "d", handler = function() local x return x.y end }
tool "whole" { description = "d", handler = function() return { content = { { type = "text", text = "a" } },
  structuredContent = { a = 1 }, isError = true, _meta = { m = 1 } } end }
tool "marked" { description = "d", handler = function(_, ctx) return ctx.json.array {} end }
tool "object_content" { description = "d", handler = function() return { content = { a = 1 } } end }
tool "empty" { description = "d", handler = function() return { content = {} } end }
tool "odd_block" { description = "d", handler = function() return { content = { { type = "video" } } } end }
tool "function" { description = "d", handler = function() return { f = function() end } end }
tool "typed" { description = "d", input = { type = "object", properties = {
    count = { type = "integer", minimum = 1, maximum = 9 }, unit = { type = "string", default = "m" } },
    required = { "count" }, additionalProperties = false },
  output = { type = "object", properties = { list = { type = "array", items = { type = "string" } } },
    required = { "list" } },
  handler = function(arguments)
    local list = {}
    for i = 2, arguments.count do list[#list + 1] = arguments.unit end
    if arguments.count == 8 then list = { 8 } end
    if arguments.count == 9 then return "nine" end
    return { list = list }
  end }
tool "protocol" { description = "d", handler = function(_, ctx) ctx.protocol_error(-5, "mine", { x = 1 }) end }
tool "context" { description = "d", handler = function(arguments, ctx)
  local names = {}
  for name in pairs(ctx) do names[#names + 1] = name end
  table.sort(names)
  return { names = names, client = ctx.client.key, languages = #ctx.languages(), history = #assert(ctx.history(5)) }
end }
tool "greedy" { description = "d", handler = function(_, ctx) return { rows = ctx.history(100000) } end }
tool "runs" { description = "d", handler = function(_, ctx)
  local refused, text = ctx.run { language = "python", code = " " }
  return { refused = refused or "nothing", text = text, reason = ctx.run({ language = "py", code = "x" }).reason,
    decoded = ctx.json.decode "[1]", list = ctx.json.array {} }
end }
]]

describe("tools/call", function()
  it("refuses what is no call", with({ init = TOOLS }, function(peer)
    for _, case in ipairs { { {}, "name must be a string" }, { { name = 1 }, "name must be a string" },
      { { name = "nope" }, 'unknown tool "nope"; known are run_code, ' },
      { { name = "text", arguments = json.array {} }, "arguments must be an object" },
      { { name = "text", arguments = "x" }, "arguments must be an object" } } do
      local code, message = peer:refused("tools/call", case[1])
      assert.equal(-32602, code)
      assert.matches(case[2], message, 1, true)
    end
  end))

  it("makes a result of what a handler returns", with({ init = TOOLS }, function(peer)
    local function same(name, want) assert.same(want, peer:call(name, null), name) end
    local function text(value) return { { type = "text", text = value } } end
    same("text", { content = text "hello", isError = false })
    same("number", { content = text "7", isError = false })
    same("table", { content = text '{"a":[1],"b":{}}', structuredContent = { a = { 1 }, b = {} }, isError = false })
    same("refuses", { content = text "No such city; name another.", isError = true })
    same("silent", { content = text "The tool silent gave no answer.", isError = true })
    same("whole", { content = text "a", structuredContent = { a = 1 }, isError = true, _meta = { m = 1 } })
    same("list", { content = text "[1,2]", isError = false })
    same("marked", { content = text "[]", isError = false })
    same("object_content", { content = text '{"content":{"a":1}}', structuredContent = { content = { a = 1 } },
      isError = false })
    same("empty", { content = {}, isError = false })
    assert.matches('"content":[]', json.encode(peer:call("empty", {})), 1, true)
  end))

  it("leaves out what the revision does not know", with({ init = TOOLS, version = "2024-11-05" }, function(peer)
    assert.same({ "content", "isError" }, schema.keys(peer:call("whole", {})))
    assert.same({ "content", "isError" }, schema.keys(peer:call("table", {})))
  end))

  it("keeps a handler's faults to the log", with({ init = TOOLS }, function(peer)
    for name, why in pairs { throws = "init.lua:%d+: broken", fails = "attempt to index a nil value",
      odd_block = 'content%[1%] must have a type: .*; got "video"' } do
      local code, message = peer:refused("tools/call", { name = name })
      assert.equal(-32603, code)
      assert.matches("^internal error %(id %x+%)", message)
      assert.matches(why, table.remove(peer.logged))
    end
    assert.equal(-32603, (peer:refused("tools/call", { name = "function" })))
    local code, message, data = peer:refused("tools/call", { name = "protocol" })
    assert.same({ -5, "mine", { x = 1 } }, { code, message, data })
  end))

  it("sends no result that clients drop, but tells the log what is wrong with it", with({ init = [[
    tool "returns" { description = "d", input = { type = "object", properties = { lua = { type = "string" } } },
      handler = function(arguments, ctx)
        local null, array = ctx.json.null, ctx.json.array
        local whole = { structured_text = { structuredContent = "a" }, structured_list = { structuredContent = { 1 } },
          structured_none = { structuredContent = array {} }, structured_null = { structuredContent = null },
          meta = { _meta = "m" }, meta_list = { _meta = { "m" } }, error_text = { isError = "yes" },
          error_null = { isError = null }, text = { content = { { type = "text" } } },
          data = { content = { { type = "text", text = "" }, { type = "image", data = 1, mimeType = "a/b" } } },
          link = { content = { { type = "resource_link", uri = "x:1" } } },
          resource = { content = { { type = "resource" } } }, fine = { structuredContent = {}, isError = false } }
        local value = whole[arguments.lua]
        value.content = value.content or {}
        return value
      end }]] }, function(peer)
    for name, why in pairs { structured_text = 'structuredContent must be an object, got "a"',
      structured_list = "structuredContent must be an object, got a list",
      structured_none = "structuredContent must be an object, got a list",
      structured_null = "structuredContent must be an object, got null",
      meta = '_meta must be an object, got "m"', meta_list = "_meta must be an object, got a list",
      error_text = 'isError must be true or false, got "yes"', error_null = "isError must be true or false, got null",
      text = "content[1].text must be a text, got nothing", data = "content[2].data must be a text, got 1",
      link = "content[1].name must be a text, got nothing",
      resource = "content[1].resource must be an object with a uri, got nothing" } do
      assert.equal(-32603, (peer:refused("tools/call", { name = "returns", arguments = { lua = name } })), name)
      assert.matches("tool returns: " .. why, table.remove(peer.logged), 1, true)
    end
    assert.same({ content = {}, structuredContent = {}, isError = false }, peer:call("returns", { lua = "fine" }))
  end))

  it("holds an error's structured answer against the schema, if there is one", with({ init = [[
    tool "t" { description = "d", input = { type = "object", properties = { n = {} } },
      output = { type = "object", properties = { n = { type = "integer" } }, required = { "n" } },
      handler = function(arguments)
        return { content = {}, isError = true, structuredContent = arguments.n and { n = arguments.n } }
      end }]] }, function(peer)
    assert.same({ content = {}, isError = true }, peer:call("t", {}))
    assert.same({ n = 1 }, peer:call("t", { n = 1 }).structuredContent)
    assert.equal(-32603, (peer:refused("tools/call", { name = "t", arguments = { n = "x" } })))
  end))

  it("checks arguments, and fills in defaults", with({ init = TOOLS }, function(peer)
    assert.same({ list = { "m", "m" } }, peer:call("typed", { count = 3 }).structuredContent)
    assert.same({ list = { "k" } }, peer:call("typed", { count = "2", unit = "k" }).structuredContent)
    assert.same({ list = { "m" } }, peer:call("typed", { count = 2, unit = null }).structuredContent)
    for text, arguments in pairs { ["count is missing."] = {}, ["count must be a whole number from 1 to 9, got 10."] =
      { count = 10 }, ['unknown argument "cuont"; did you mean "count"?'] = { count = 1, cuont = 1 } } do
      local result = peer:call("typed", arguments)
      assert.same({ true, text }, { result.isError, result.content[1].text })
      assert.is_nil(result.structuredContent)
    end
    assert.matches('unknown argument "x"', peer:call("text", { x = 1 }).content[1].text)
  end))

  it("sends an answer that is as its schema says, or none", with({ init = TOOLS }, function(peer)
    local result = peer:call("typed", { count = 1 })
    assert.equal('{"list":[]}', result.content[1].text)
    assert.equal('{"list":[]}', json.encode(result.structuredContent))
    for count, why in pairs { [8] = "list%[1%] must be a string, got 8", [9] = "it must be a table, got \"nine\"" } do
      assert.equal(-32603, (peer:refused("tools/call", { name = "typed", arguments = { count = count } })))
      assert.matches('tool "typed" returned what its output does not allow: ' .. why, table.remove(peer.logged))
    end
  end))

  it("gives handlers a context of their own", with({ init = TOOLS }, function(peer)
    peer:call("run_code", { language = "python", code = "x" })
    local seen = peer:call("context", {}).structuredContent
    assert.same({ "answers", "ask", "base64", "changed", "client", "detach", "elicit", "history", "json", "languages",
      "log", "progress", "protocol_error", "require", "roots", "run", "sample", "sleep", "updated" },
      { table.unpack(seen.names) })
    assert.same({ "stdio", 2, 1 }, { seen.client, seen.languages, seen.history })
    assert.equal(-32603, (peer:refused("tools/call", { name = "greedy" })))
    assert.matches("init.lua:%d+: ctx.history takes a whole number from 1 to 1000, got 100000", peer.logged[1])
  end))

  it("lets handlers run programs, which are recorded", with({ init = TOOLS }, function(peer)
    local updates = {}
    peer.catalog:listen(function(kind, uri) updates[#updates + 1] = kind .. " " .. uri end)
    local seen = peer:call("runs", {}).structuredContent
    assert.same({ "nothing", "code is empty; send the source of a whole program.", "exit", { 1 } },
      { seen.refused, seen.text, seen.reason, seen.decoded })
    assert.same({ "updated history://runs" }, updates)
    assert.equal(1, #peer:call("get_execution_history", {}).structuredContent.result)
  end))

  it("goes by way of a task where client, tool and server have that", fake.task(function()
    local called = {}
    local store = { methods = {}, in_flight = function() return 0 end, cancel_all = function() end,
      call = function(_, req, tool, body)
        called[#called + 1] = tool.name
        return require("sandbox_runner.call").start(req, body)
      end }
    local init = [[tool "slow" { description = "d", task = "slow", handler = function() return "a" end }
      tool "fast" { description = "d", handler = function() return "b" end }]]
    local peer = new { init = init, tasks = store, version = false }
    for _, name in ipairs { "slow", "fast" } do
      peer:result("tools/call", { name = name, _meta = MODERN })
      peer:result("tools/call", { name = name, _meta = { ["io.modelcontextprotocol/protocolVersion"] = "2026-07-28",
        ["io.modelcontextprotocol/clientCapabilities"] = {} } })
    end
    peer:result("tools/call", { name = "run_code", arguments = { language = "py", code = "x" }, _meta = MODERN })
    peer:close()
    assert.same({ "slow", "run_code" }, called)
    peer = new { init = init, tasks = store }
    peer:result("tools/call", { name = "slow" })
    peer:close()
    assert.equal(2, #called)
  end))
end)

local RESOURCES = [[
resource "x:text" { text = "one", mime_type = "text/plain" }
resource "x:many" { read = function(uri)
  return { { text = "a" }, { blob = "AAE=", mime_type = "image/png", uri = "x:b" } }
end }
resource "x:plain" { read = function() return "short" end }
resource "x:gone" { read = function() end }
resource "x:odd" { read = function() return { text = "a", blob = "b" } end }
resource "x:none" { read = function() return {} end }
resource "x:meta" { read = function() return { text = "a", _meta = { "m" } } end }
resource_template "x:at/{day}" { mime_type = "a/b",
  complete = { day = function(value, ctx) return { value .. "!", ctx.arguments.other or "?", ctx.client.key } end },
  read = function(uri, variables) return { text = uri .. " " .. variables.day } end }
]]

describe("resources/read", function()
  it("answers with the contents", with({ init = RESOURCES }, function(peer)
    local function read(uri) return peer:result("resources/read", { uri = uri }).contents end
    assert.same({ { uri = "x:text", mimeType = "text/plain", text = "one" } }, read "x:text")
    assert.same({ { uri = "x:many", text = "a" }, { uri = "x:b", mimeType = "image/png", blob = "AAE=" } },
      read "x:many")
    assert.same({ { uri = "x:plain", text = "short" } }, read "x:plain")
    assert.same({ { uri = "x:at/mon%20day", mimeType = "a/b", text = "x:at/mon%20day mon day" } },
      read "x:at/mon%20day")
  end))

  it("says that there is none, each revision with its code", fake.task(function()
    for version, want in pairs { ["2025-11-25"] = -32002, ["2024-11-05"] = -32002, ["2026-07-28"] = -32602 } do
      local peer = new { init = RESOURCES, version = version ~= "2026-07-28" and version }
      for _, uri in ipairs { "x:gone", "x:nothing", "history://runs/7", "history://runs/nope" } do
        local code, message, data = peer:refused("resources/read",
          { uri = uri, _meta = not peer.version and MODERN or nil })
        assert.same({ want, ('there is no resource "%s"'):format(uri), { uri = uri } }, { code, message, data })
      end
      peer:close()
    end
  end))

  it("refuses an address that is none, and a handler that gives nonsense", with({ init = RESOURCES }, function(peer)
    assert.equal(-32602, (peer:refused("resources/read", {})))
    assert.equal(-32602, (peer:refused("resources/read", { uri = 1 })))
    for _, uri in ipairs { "x:odd", "x:none" } do
      assert.equal(-32603, (peer:refused("resources/read", { uri = uri })))
      assert.matches("read must give { text = ... } or { blob = base64 }", table.remove(peer.logged), 1, true)
    end
    assert.equal(-32603, (peer:refused("resources/read", { uri = "x:meta" })))
    assert.matches("resource x:meta: _meta must be an object, got a list", peer.logged[1], 1, true)
  end))

  it("shows runs, all and one", with({ init = "history.preview_characters = 16" }, function(peer)
    peer:call("run_code", { language = "python", code = "print('a program that is long')" })
    peer:call("run_code", { language = "python", code = "print(2)" })
    local function read(uri) return json.decode(peer:result("resources/read", { uri = uri }).contents[1].text) end
    local runs = read "history://runs".runs
    assert.same({ 2, 1 }, { runs[1].id, runs[2].id })
    local run = read "history://runs/1"
    assert.same({ 1, "print('a program", true, "error", "exit", 1, 4, 10 }, { run.id, run.code_snippet, run.code_cut,
      run.status, run.reason, run.exit_code, run.stderr_size, run.timeout_seconds })
    assert.same({ 2 }, { read("history://runs/" .. RESULT.run_id).id })
    assert.is_nil(read("history://runs/2").code_cut)
  end))

  it("tells when the record cannot be read", with({}, function(peer)
    core.sys.mkdir_p(peer.folder .. "/h.db", 448)
    for _, uri in ipairs { "history://runs", "history://runs/1" } do
      local code, message = peer:refused("resources/read", { uri = uri })
      assert.equal(-32603, code)
      assert.matches("^The history is off: ", message)
    end
  end))
end)

local PROMPTS = [[
prompt "greet" { description = "Greets",
  arguments = { { name = "who", description = "Whom to greet.", required = true }, { name = "how" } },
  complete = { who = { "Ada", "Alan", "Barbara" } },
  messages = function(arguments, ctx)
    if arguments.who == "nobody" then return nil, "there is nobody to greet" end
    return (arguments.how or "Hello") .. ", " .. arguments.who
  end }
prompt "talk" { messages = function() return { { content = "q" }, { role = "assistant", content = "a" },
  { role = "user", content = { type = "image", data = "AA==", mimeType = "image/png" } } } end }
prompt "odd" { messages = function() return { { role = "system", content = "x" } } end }
prompt "mute" { messages = function() return {} end }
]]

describe("prompts/get", function()
  it("answers with messages", with({ init = PROMPTS }, function(peer)
    local function text(role, value) return { role = role, content = { type = "text", text = value } } end
    assert.same({ description = "Greets", messages = { text("user", "Hello, Ada") } },
      peer:result("prompts/get", { name = "greet", arguments = { who = "Ada", how = null } }))
    assert.same({ messages = { text("user", "q"), text("assistant", "a"),
      { role = "user", content = { type = "image", data = "AA==", mimeType = "image/png" } } } },
      peer:result("prompts/get", { name = "talk" }))
  end))

  it("refuses what does not fit", with({ init = PROMPTS }, function(peer)
    for _, case in ipairs { { {}, "name must be a string" }, { { name = "nope" }, 'unknown prompt "nope"' },
      { { name = "greet" }, 'the argument "who" is missing (Whom to greet)' },
      { { name = "greet", arguments = { who = null } }, 'the argument "who" is missing' },
      { { name = "greet", arguments = { who = 1 } }, "who must be a string, got 1" },
      { { name = "greet", arguments = json.array { "a" } }, "arguments must be an object" },
      { { name = "greet", arguments = { who = "a", hows = "b" } }, 'unknown argument "hows"; did you mean "how"?' },
      { { name = "greet", arguments = { who = "nobody" } }, "there is nobody to greet" } } do
      local code, message = peer:refused("prompts/get", case[1])
      assert.equal(-32602, code)
      assert.matches(case[2], message, 1, true)
    end
    for _, name in ipairs { "odd", "mute" } do
      assert.equal(-32603, (peer:refused("prompts/get", { name = name })))
    end
  end))

  it("helps with a program, in the limits of its language", with({ init = [[
    limits.max_timeout_seconds = 44
    language "lua" { description = "Lua 5.4", aliases = { "luajit" }, images = { "i" }, file = "f", run = { "lua" },
      limits = { memory = "512m", timeout_seconds = 33 } }]] }, function(peer)
    local function get(language)
      return "prompts/get", { name = "run_program", arguments = { language = language, task = "2 + 2?" } }
    end
    local text = peer:result(get "LuaJIT").messages[1].content.text
    for _, part in ipairs { "in lua (Lua 5.4)", "\n2 + 2?\n", "33 s (timeout_seconds up to 44) and 512m of memory" } do
      assert.matches(part, text, 1, true)
    end
    local code, message = peer:refused(get "C")
    assert.equal(-32602, code)
    assert.matches('unknown language "C"; known are lua', message)
  end))

  it("helps with a failed run, whose entry it holds", with({}, function(peer)
    peer:call("run_code", { language = "python", code = "1/0" })
    for _, id in ipairs { "1", RESULT.run_id } do
      local messages = peer:result("prompts/get", { name = "fix_failed_run", arguments = { run_id = id } }).messages
      assert.matches('language "python"', messages[1].content.text)
      local resource = messages[2].content.resource
      assert.equal("history://runs/" .. RESULT.run_id, resource.uri)
      assert.equal("1/0", json.decode(resource.text).code_snippet)
      assert.same(peer:result("resources/read", { uri = resource.uri }).contents[1].text, resource.text)
    end
    local code, message = peer:refused("prompts/get", { name = "fix_failed_run", arguments = { run_id = "9" } })
    assert.equal(-32602, code)
    assert.matches('no run "9" in the record', message)
  end))
end)

describe("completion/complete", function()
  local function complete(peer, ref, name, value, arguments)
    return peer:result("completion/complete", { ref = ref, argument = { name = name, value = value },
      context = arguments and { arguments = arguments } }).completion
  end
  local function prompt(name) return { type = "ref/prompt", name = name } end
  local function template(uri) return { type = "ref/resource", uri = uri } end

  it("offers languages", with({}, function(peer)
    assert.same({ values = { "python", "cpp" }, total = 2, hasMore = false },
      complete(peer, prompt "run_program", "language", ""))
    assert.same({ "python" }, { table.unpack(complete(peer, prompt "run_program", "language", "Py").values) })
    assert.same({ values = {}, total = 0, hasMore = false }, complete(peer, prompt "run_program", "language", "x"))
    assert.same({ values = {}, total = 0, hasMore = false }, complete(peer, prompt "run_program", "task", ""))
  end))

  it("offers runs, for a failed run those that failed", with({}, function(peer)
    local request = { language = { name = "python" }, code = "x", timeout_seconds = 1 }
    for i = 1, 120 do
      peer.server.history:record(request, { status = i % 2 == 0 and "success" or "error", reason = "exit",
        run_id = ("%016x"):format(i), duration_ms = 1 })
    end
    local found = complete(peer, template "history://runs/{id}", "id", "")
    assert.same({ 100, 100, false, ("%016x"):format(120) },
      { #found.values, found.total, found.hasMore, found.values[1] })
    found = complete(peer, prompt "fix_failed_run", "run_id", "")
    assert.same({ 50, ("%016x"):format(119) }, { #found.values, found.values[1] })
    assert.equal(1, #complete(peer, prompt "fix_failed_run", "run_id", ("%016x"):format(119)).values)
  end))

  it("takes lists and functions of init.lua", with({ init = PROMPTS .. RESOURCES }, function(peer)
    assert.same({ "Ada", "Alan" }, { table.unpack(complete(peer, prompt "greet", "who", "a").values) })
    assert.same({ "Mo!", "tue", "stdio" }, { table.unpack(complete(peer, template "x:at/{day}", "day", "Mo",
      { other = "tue" }).values) })
    assert.same({ "!", "?", "stdio" }, { table.unpack(complete(peer, template "x:at/{day}", "day", "").values) })
  end))

  it("offers a hundred at most and says how many there are", with({ init = [[
    local list = {}
    for i = 1, 150 do list[i] = "v" .. i end
    prompt "many" { arguments = { { name = "a" } }, complete = { a = list }, messages = print }]] }, function(peer)
    local found = complete(peer, prompt "many", "a", "v")
    assert.same({ 100, 150, true }, { #found.values, found.total, found.hasMore })
  end))

  it("refuses what is not there", with({ init = PROMPTS .. RESOURCES }, function(peer)
    local argument = { name = "who", value = "" }
    for _, case in ipairs { { {}, "ref must be an object" }, { { ref = { type = "x" } }, "ref.type must be" },
      { { ref = prompt "nope", argument = argument }, 'unknown prompt "nope"' },
      { { ref = prompt(nil), argument = argument }, "unknown prompt nothing" },
      { { ref = template "nope:{a}", argument = argument }, 'unknown resource template "nope:{a}"' },
      { { ref = prompt "greet" }, "argument must be an object with name and value" },
      { { ref = prompt "greet", argument = { name = "who", value = 1 } }, "argument must be an object" },
      { { ref = prompt "greet", argument = { name = "hwo", value = "" } }, 'unknown argument "hwo"' } } do
      local code, message = peer:refused("completion/complete", case[1])
      assert.equal(-32602, code)
      assert.matches(case[2], message, 1, true)
    end
  end))
end)
