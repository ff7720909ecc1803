-- Revision 2026-07-28 over real stdio: every message carries its own envelope,
-- beside the older revisions in one process.
local client = require "e2e.client"
local modern = require "e2e.modern"

local json = client.json
local VERSION, CAPABILITIES, INFO = modern.VERSION, modern.CAPABILITIES, modern.INFO
local SUBSCRIPTION, SERVER_INFO = modern.SUBSCRIPTION, modern.SERVER_INFO
local REVISION, TASKS = modern.REVISION, modern.TASKS
local envelope, post, ask, post_tool, ask_tool = modern.envelope, modern.post, modern.ask, modern.post_tool,
  modern.ask_tool
local python, sleeping, code_of, text_of = modern.python, modern.sleeping, modern.code_of, modern.text_of

-- Own tools that do what a test asks them to.
local INIT = [[
  local nothing = { type = "object", properties = {} }
  tool "noisy" { description = "Says things of every weight", input = nothing,
    handler = function(_, ctx)
      for _, level in ipairs { "debug", "info", "warning", "error" } do ctx.log(level, "at " .. level) end
      return "said"
    end }
  tool "change" { description = "Says that things have changed", input = { type = "object",
      properties = { kind = { type = "string" }, uri = { type = "string" } } },
    handler = function(arguments, ctx)
      if arguments.kind then ctx.changed(arguments.kind) end
      if arguments.uri then ctx.updated(arguments.uri) end
      return "changed"
    end }
  resource "test://one" { name = "one", read = function() return { text = "1" } end }
]]

-- Nothing may have been said since: the next message is the ping's answer.
local function assert_silence(server)
  local before = server.count
  server:ping()
  assert.equal(before + 1, server.count)
end

local function is_count(value) return math.type(value) == "integer" and value >= 0 end

local function assert_modern(answer)
  assert.is_table(answer.result, json.encode(answer))
  assert.equal("complete", answer.result.resultType)
  assert.equal("sandbox-runner", answer.result._meta[SERVER_INFO].name)
  assert.is_string(answer.result._meta[SERVER_INFO].version)
  return answer.result
end

local function assert_legacy(answer)
  assert.is_table(answer.result, json.encode(answer))
  for _, name in ipairs { "resultType", "ttlMs", "cacheScope" } do assert.is_nil(answer.result[name], name) end
  assert.is_nil(answer.result._meta and answer.result._meta[SERVER_INFO])
  return answer.result
end

describe("server/discover", function()
  it("may be the first message, and says all that a client needs", function()
    modern.with({ mute = true }, function(server)
      local result = assert_modern(server:wait(post(server, "server/discover", nil, nil, "server-discover-probe-1")))
      assert.same({ REVISION }, { table.unpack(result.supportedVersions) })
      assert.is_table(result.capabilities.tools)
      assert.is_table(result.capabilities.extensions[TASKS])
      assert.is_nil(result.capabilities.tasks)
      assert.is_string(result.instructions)
      assert.is_true(is_count(result.ttlMs))
      assert.is_true(result.cacheScope == "public" or result.cacheScope == "private")
    end)
  end)

  it("is answered without a container engine", function()
    modern.with({ mute = true, init = 'engine.address = "unix:///nonexistent/engine.sock"' }, function(server)
      assert_modern(ask(server, "server/discover"))
      assert.is_true(assert_modern(ask_tool(server, "run_code", python "print(1)")).isError)
    end)
  end)

  it("leaves a server that ends as soon as its client goes", function()
    local server = client.start { mute = true }
    post(server, "server/discover", nil, nil, "probe")
    local status, took = server:finish()
    assert.equal(0, status)
    assert.is_true(took < 1000 * client.slow, took .. " ms")
    assert.is_table(server.answers.probe.result)
    server:close()
  end)

  it("advertises what is served", function()
    modern.with({ mute = true, init = INIT }, function(server)
      local capabilities = ask(server, "server/discover").result.capabilities
      for name, methods in pairs { tools = { "tools/list" }, prompts = { "prompts/list" },
        resources = { "resources/list", "resources/templates/list" } } do
        for _, method in ipairs(methods) do
          local answer = ask(server, method)
          if capabilities[name] then assert_modern(answer) else assert.equal(-32601, code_of(answer)) end
        end
      end
    end)
  end)
end)

describe("the envelope", function()
  local server
  setup(function() server = client.start { mute = true, seconds = 120, init = INIT } end)
  teardown(function() server:close() end)

  it("has to be there for the methods of this revision", function()
    for _, method in ipairs { "server/discover", "subscriptions/listen" } do
      for _, params in ipairs { "{}", "null", '{"_meta":{}}', '{"_meta":null}', '{"_meta":{"x":1}}' } do
        local answer = server:ask(('{"jsonrpc":"2.0","id":1,"method":"%s","params":%s}'):format(method, params))
        assert.equal(-32602, code_of(answer), method .. params)
        assert.equal(1, answer.id)
      end
      assert.equal(-32602, code_of(server:ask(('{"jsonrpc":"2.0","id":1,"method":"%s"}'):format(method))))
    end
  end)

  it("has to be whole", function()
    for _, meta in ipairs { { [CAPABILITIES] = json.null }, { [CAPABILITIES] = "x" }, { [CAPABILITIES] = json.array() },
      { [CAPABILITIES] = 1 }, { [VERSION] = json.null }, { [VERSION] = 20260728 }, { [VERSION] = json.array {} },
      { [INFO] = "e2e" } } do
      for _, method in ipairs { "server/discover", "tools/list", "tools/call" } do
        assert.equal(-32602, code_of(ask(server, method, { name = "noisy" }, meta)), json.encode(meta))
      end
    end
    local id = server:request("tools/list", { _meta = { [VERSION] = REVISION } })
    local answer = server:wait(id)
    assert.equal(-32602, code_of(answer))
    assert.matches(CAPABILITIES, answer.error.message, 1, true)
  end)

  it("needs no clientInfo, and may hold more", function()
    local id = server:request("tools/list", { _meta = { [VERSION] = REVISION, [CAPABILITIES] = {} } })
    assert_modern(server:wait(id))
    assert_modern(ask(server, "tools/list", { unknown = { 1 } }, { progressToken = 1, ["com.example/x"] = json.null,
      traceparent = "00-0af7651916cd43dd8448eb211c80319c-00" }))
  end)

  it("of another revision gets the list of those that are served", function()
    local discovered = {}
    for _, version in ipairs(ask(server, "server/discover").result.supportedVersions) do discovered[version] = true end
    local function refused(version)
      for _, method in ipairs { "server/discover", "tools/list", "tools/call" } do
        local answer = ask(server, method, { name = "noisy" }, { [VERSION] = version })
        assert.equal(-32022, code_of(answer), version)
        assert.equal(version, answer.error.data.requested)
        assert.is_true(#answer.error.data.supported > 0)
        for _, known in ipairs(answer.error.data.supported) do assert.is_true(discovered[known], known) end
      end
    end
    local others = { "1900-01-01", "2099-01-01", "2025-11-25", "2025-03-26", "2024-11-05", "x", "2026-07-28 " }
    for _, version in ipairs(others) do refused(version) end
    server:initialize()
    for _, version in ipairs(others) do refused(version) end
    assert_modern(ask(server, "tools/list"))
  end)

  it("keeps the id as it came", function()
    for _, id in ipairs { "0", "-5", '"abc"', '""', '"1"', "9007199254740993", '"\\u00e9"' } do
      local message, line = server:ask(('{"jsonrpc":"2.0","id":%s,"method":"tools/list","params":{"_meta":%s}}')
        :format(id, json.encode(envelope())))
      assert_modern(message)
      assert.is_truthy(line:find('"id":' .. id, 1, true), line:sub(1, 200))
    end
  end)

  it("in malformed messages is refused as those are", function()
    local meta = json.encode(envelope())
    for text, code in pairs {
      ['{"jsonrpc":"2.0","id":null,"method":"tools/list","params":{"_meta":%s}}'] = -32600,
      ['{"jsonrpc":"2.0","id":1.5,"method":"tools/list","params":{"_meta":%s}}'] = -32600,
      ['{"jsonrpc":"1.0","id":1,"method":"tools/list","params":{"_meta":%s}}'] = -32600,
      ['{"jsonrpc":"2.0","id":1,"method":7,"params":{"_meta":%s}}'] = -32600,
      ['{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[{"_meta":%s}]}'] = -32602,
      ['[{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":%s}}]'] = -32600,
      ['{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":%s}}}'] = -32700,
      ['{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"a\\u0000b","_meta":%s}}'] = -32602,
      ['{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x","_meta":%s}}'] = -32602,
      ['{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"x":' .. ("["):rep(100) .. ("]"):rep(100)
        .. ',"_meta":%s}}'] = -32700,
    } do
      assert.equal(code, code_of(server:ask((text:gsub("%%s", (meta:gsub("%%", "%%%%")))))), text)
    end
    assert_silence(server)
  end)

  it("does not make a notification something to answer", function()
    for _, method in ipairs { "notifications/initialized", "notifications/cancelled", "notifications/x", "tools/list",
      "server/discover" } do
      server:notify(method, { _meta = envelope() })
      server:notify(method, { _meta = envelope { [VERSION] = "1900-01-01" } })
    end
    assert_silence(server)
  end)

  it("in a giant message is no reason to fail", function()
    local answer = ask(server, "tools/list", { padding = ("a"):rep(3 << 20) })
    assert_modern(answer)
    assert.equal(-32600, code_of(ask(server, "tools/list", { padding = ("a"):rep(5 << 20) })))
  end)
end)

describe("methods that this revision has not", function()
  local server
  setup(function() server = client.start { seconds = 60 } end)
  teardown(function() server:close() end)

  for _, method in ipairs { "initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe",
    "notifications/initialized", "tasks/list", "tasks/result", "roots/list", "sampling/createMessage",
    "elicitation/create", "nonsense", "", "__index" } do
    it(("are refused: %q"):format(method), function()
      local params = { protocolVersion = "2025-11-25", capabilities = {}, clientInfo = { name = "x", version = "1" },
        level = "info", uri = "test://one", taskId = "x" }
      local tasks = { [CAPABILITIES] = { extensions = { [TASKS] = {} } } }
      assert.equal(-32601, code_of(ask(server, method, params, tasks)))
      assert.same({}, server:ask('{"jsonrpc":"2.0","id":1,"method":"ping"}').result)
    end)
  end

  it("do not end the session of the other revisions", function()
    assert_legacy(server:wait(server:request("tools/list")))
  end)
end)

describe("results", function()
  local server
  setup(function() server = client.start { mute = true, seconds = 60, init = INIT } end)
  teardown(function() server:close() end)

  it("that can be kept say for how long, and by whom", function()
    local scopes = {}
    for _, method in ipairs { "server/discover", "tools/list", "prompts/list", "resources/list",
      "resources/templates/list" } do
      local result = assert_modern(ask(server, method))
      assert.is_true(is_count(result.ttlMs), method)
      scopes[method] = result.cacheScope
      assert.is_true(result.cacheScope == "public" or result.cacheScope == "private", method)
      assert.equal(scopes[method], ask(server, method).result.cacheScope)
    end
    local result = assert_modern(ask(server, "resources/read", { uri = "test://one" }))
    assert.is_true(is_count(result.ttlMs))
    assert.equal("1", result.contents[1].text)
  end)

  it("of calls are no such thing", function()
    local result = assert_modern(ask_tool(server, "run_code", python "print(6 * 7)"))
    assert.equal("42\n", result.structuredContent.stdout)
    assert.is_false(result.isError)
    assert.is_nil(result.ttlMs)
    assert.is_nil(result.cacheScope)
    assert.same(result.structuredContent, json.decode(result.content[1].text))
  end)

  it("of calls with bad values are answers, too", function()
    for _, arguments in ipairs { {}, { language = "python" }, { language = "klingon", code = "x" } } do
      local result = assert_modern(ask_tool(server, "run_code", arguments))
      assert.is_true(result.isError)
      assert.is_nil(result.structuredContent)
    end
    assert.equal(-32602, code_of(ask_tool(server, "nonsense")))
    assert.equal(-32602, code_of(ask(server, "tools/call")))
  end)

  it("do not depend on what was said before", function()
    local function list()
      local result = ask(server, "tools/list").result
      return json.encode(result)
    end
    local before = list()
    for _, version in ipairs { "2024-11-05", "2025-03-26", "2025-11-25" } do
      server:initialize(version)
      assert.equal(before, list())
    end
    assert.is_table(json.decode(before).tools[1].outputSchema)
  end)

  it("for resources that do not exist are errors, each era's own", function()
    local answer = ask(server, "resources/read", { uri = "test://none" })
    assert.equal(-32602, code_of(answer))
    assert.equal("test://none", answer.error.data.uri)
    server:initialize()
    assert.equal(-32002, code_of(server:wait(server:request("resources/read", { uri = "test://none" }))))
  end)
end)

describe("a message finds its era by itself:", function()
  local server
  before_each(function() server = client.start { mute = true, init = INIT } end)
  after_each(function() server:close() end)

  it("one with an envelope is modern, whatever was before", function()
    assert_modern(ask(server, "tools/list"))
    server:initialize()
    assert_modern(ask(server, "tools/list"))
    server:ask "{oops"
    assert_modern(ask(server, "tools/list"))
    server:initialize "2025-03-26"
    assert_modern(ask(server, "tools/list"))
  end)

  it("initialize without one begins the legacy session, after modern messages, too", function()
    assert_modern(ask(server, "server/discover"))
    assert_modern(ask_tool(server, "noisy"))
    local result = assert_legacy(server:initialize "2024-11-05")
    assert.equal("2024-11-05", result.protocolVersion)
    assert_legacy(server:wait(server:request("tools/list")))
    assert.equal("2025-11-25", assert_legacy(server:initialize(REVISION)).protocolVersion)
  end)

  it("server/discover and subscriptions/listen without one are malformed, after initialize, too", function()
    for _ = 1, 2 do
      for _, method in ipairs { "server/discover", "subscriptions/listen" } do
        assert.equal(-32602, code_of(server:wait(server:request(method, { notifications = {} }))))
      end
      server:initialize()
    end
  end)

  it("anything else without one is legacy after initialize", function()
    server:initialize "2025-03-26"
    assert_modern(ask(server, "tools/list"))
    local tools = assert_legacy(server:wait(server:request("tools/list"))).tools
    assert.is_nil(tools[1].outputSchema)
    assert.is_table(tools[1].annotations)
    local call = assert_legacy(server:wait(server:post("list_supported_languages", {})))
    assert.is_nil(call.structuredContent)
    assert_legacy(server:wait(server:post("list_supported_languages", {}, { progressToken = 1 })))
  end)

  it("anything else without one before initialize is told both ways in", function()
    for _ = 1, 2 do
      for _, method in ipairs { "tools/list", "tools/call", "resources/list" } do
        local answer = server:wait(server:request(method, { name = "noisy" }))
        assert.equal(-32602, code_of(answer))
        assert.matches("initialize", answer.error.message)
        assert.matches(REVISION, answer.error.message, 1, true)
      end
      assert.equal(-32601, code_of(server:wait(server:request "nonsense")))
      assert.same({}, server:wait(server:request "ping").result)
      assert_modern(ask(server, "tools/list")) -- which is no handshake
    end
  end)

  it("and both go on side by side", function()
    server:initialize()
    local new, old = {}, {}
    for i = 1, 20 do
      new[i] = post_tool(server, "list_supported_languages")
      old[i] = server:post("list_supported_languages", {})
    end
    for i = 1, 20 do
      assert_modern(server:wait(new[i]))
      assert_legacy(server:wait(old[i]))
    end
    local one, two = post_tool(server, "run_code", sleeping(0.5)), server:post("run_code", sleeping(0.5))
    assert.equal("slept\n", assert_legacy(server:wait(two)).structuredContent.stdout)
    assert.equal("slept\n", assert_modern(server:wait(one)).structuredContent.stdout)
  end)

  it("while a result that is {} stays {} for the older ones", function()
    server:initialize()
    assert_modern(ask(server, "tools/list"))
    assert.same({}, server:wait(server:request "ping").result)
    assert.same({}, server:wait(server:request("logging/setLevel", { level = "info" })).result)
  end)
end)

describe("subscriptions/listen", function()
  local server
  before_each(function() server = client.start { mute = true, init = INIT } end)
  after_each(function() server:close() end)

  local function listen(notifications, id)
    local sent = post(server, "subscriptions/listen", { notifications = notifications }, nil, id)
    local first = server:other()
    assert.equal("notifications/subscriptions/acknowledged", first.method)
    assert.equal(sent, first.params._meta[SUBSCRIPTION])
    return sent, first.params.notifications
  end

  local function change(arguments) assert.equal("changed", text_of(ask_tool(server, "change", arguments))) end

  it("is acknowledged first, with what is honoured", function()
    local id, honoured = listen { toolsListChanged = true, resourceSubscriptions = { "test://one" },
      promptsListChanged = false, unknown = true }
    assert.same({ toolsListChanged = true, resourceSubscriptions = { "test://one" } },
      { toolsListChanged = honoured.toolsListChanged,
        resourceSubscriptions = { table.unpack(honoured.resourceSubscriptions) } })
    assert.is_falsy(honoured.promptsListChanged)
    assert.is_nil(honoured.unknown)
    assert.is_nil(server.answers[id])
    assert.same({}, (select(2, listen {})))
  end)

  it("keeps the type of its id", function()
    listen({}, "a")
    listen({}, "7")
    listen({}, 7)
    listen({}, 0)
    assert.equal(-32600, code_of(server:wait(post(server, "subscriptions/listen", { notifications = {} }, nil, 7))))
  end)

  it("tells of what was asked for, of nothing else, and in its name", function()
    local id = listen({ toolsListChanged = true, resourceSubscriptions = { "test://one" } }, "mine")
    for _, arguments in ipairs { { kind = "prompts" }, { kind = "resources" }, { uri = "test://other" } } do
      change(arguments)
    end
    assert.equal(0, #server.others)
    change { kind = "tools" }
    local message = server:other()
    assert.equal("notifications/tools/list_changed", message.method)
    assert.equal(id, message.params._meta[SUBSCRIPTION])
    change { uri = "test://one" }
    message = server:other()
    assert.equal("notifications/resources/updated", message.method)
    assert.equal("test://one", message.params.uri)
    assert.equal(id, message.params._meta[SUBSCRIPTION])
  end)

  it("may be there more than once", function()
    local tools = listen { toolsListChanged = true }
    local prompts = listen { toolsListChanged = true, promptsListChanged = true }
    change { kind = "prompts" }
    local message = server:other()
    assert.equal(prompts, message.params._meta[SUBSCRIPTION])
    change { kind = "tools" }
    local seen = {}
    for _ = 1, 2 do seen[server:other().params._meta[SUBSCRIPTION]] = true end
    assert.same({ [tools] = true, [prompts] = true }, seen)
  end)

  it("ends without an answer when the client cancels it", function()
    local id = listen { toolsListChanged = true }
    local other = listen { toolsListChanged = true }
    server:cancel(id)
    change { kind = "tools" }
    assert.equal(other, server:other().params._meta[SUBSCRIPTION])
    server:cancel(other)
    change { kind = "tools" }
    assert_silence(server)
    assert.is_nil(server.answers[id])
    assert.equal(0, #server.others)
  end)

  it("ends with an answer when the server does, which waits for nobody", function()
    local id, other = listen { toolsListChanged = true }, listen({}, "two")
    local status, took = server:finish()
    assert.equal(0, status)
    assert.is_true(took < 1000 * client.slow, took .. " ms")
    for _, sent in ipairs { id, other } do
      assert.equal("complete", server.answers[sent].result.resultType)
      assert.equal(sent, server.answers[sent].result._meta[SUBSCRIPTION])
    end
  end)

  it("refuses a filter that is none", function()
    for _, notifications in ipairs { json.null, json.array {}, "x", 1, { toolsListChanged = 1 },
      { toolsListChanged = "yes" }, { resourceSubscriptions = "test://one" }, { resourceSubscriptions = { 1 } },
      { resourceSubscriptions = { a = 1 } } } do
      local answer = ask(server, "subscriptions/listen", { notifications = notifications })
      assert.equal(-32602, code_of(answer), json.encode(notifications))
    end
    assert.equal(-32602, code_of(ask(server, "subscriptions/listen")))
    assert_silence(server)
  end)
end)
