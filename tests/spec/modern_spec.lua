local core = require "sandbox_runner.core"
local peer = require "spec.support.peer"

local PREFIX = "io.modelcontextprotocol/"

local INIT = [[
tool "echo" { description = "says it again",
  input = { type = "object", properties = { text = { type = "string" } } },
  handler = function(arguments) return arguments.text or "" end }
tool "greet" { description = "asks for a name", input = { type = "object", properties = {} },
  handler = function(_, ctx)
    local answer = ctx.elicit { message = "Who?", requestedSchema = { type = "object", properties = {} } }
    return "hello " .. tostring(answer.content.name)
  end }
tool "count" { description = "remembers", input = { type = "object", properties = {} },
  handler = function(_, ctx)
    local seen = ctx.state and ctx.state.seen or 0
    local question = { go = { method = "elicitation/create", params = { message = "On?" } } }
    if seen < 2 then ctx.ask(question, { seen = seen + 1 }) end
    return "seen " .. seen
  end }
tool "both" { description = "asks twice", input = { type = "object", properties = {} },
  handler = function(_, ctx)
    local first = ctx.elicit { message = "First?" }
    local second = ctx.elicit { message = "Second?" }
    return first.content.x .. second.content.x
  end }
tool "slow" { description = "waits", input = { type = "object", properties = {} },
  handler = function(_, ctx) ctx.log("info", "begun") ctx.sleep(60000) return "late" end }
tool "odd" { description = "answers oddly", input = { type = "object", properties = {} },
  handler = function() return { content = {}, _meta = "x" } end }
tool "refuse" { description = "refuses", input = { type = "object", properties = {} },
  handler = function(_, ctx) ctx.protocol_error("a", "b") end }
tool "chatty" { description = "says much", input = { type = "object", properties = {} },
  handler = function(_, ctx) for _ = 1, 3000 do ctx.log("info", ("x"):rep(1000)) end return "done" end }
tool "steps" { description = "tells steps", input = { type = "object", properties = {} },
  handler = function(_, ctx)
    ctx.progress(5, 10, "half")
    ctx.progress(2, 10)
    ctx.sleep(20)
    ctx.progress(6, 10)
    return "done"
  end }
tool "wrong" { description = "tells nonsense", input = { type = "object", properties = {} },
  handler = function(_, ctx) ctx.progress(1, "ten") end }
tool "change" { description = "changes a list", input = { type = "object", properties = {} },
  handler = function(_, ctx) ctx.changed "tools" ctx.updated "history://runs" return "done" end }
]]

local ELICIT = { [PREFIX .. "clientCapabilities"] = { elicitation = {} } }

local function code_of(answer) return answer.error and answer.error.code end

local function call(p, name, meta, more)
  local params = { name = name, arguments = {} }
  for key, value in pairs(more or {}) do params[key] = value end
  return p.modern("tools/call", params, meta)
end

describe("the envelope", function()
  it("decides the revision, message by message", peer.run(INIT, function(p)
    assert.equal("2026-07-28", p.modern("server/discover").result.supportedVersions[1])
    assert.equal("2025-11-25", p.initialize().result.protocolVersion)
    assert.equal("complete", p.modern("tools/list").result.resultType)
    assert.is_nil(p.ask("tools/list").result.resultType)
    assert.same({}, p.ask("ping").result)
    assert.equal(-32601, code_of(p.modern("ping")))
  end))

  it("must be whole", peer.run(INIT, function(p)
    assert.equal(-32602, code_of(p.ask("server/discover")))
    assert.equal(-32602, code_of(p.ask("subscriptions/listen", {})))
    for _, bad in ipairs { { [PREFIX .. "protocolVersion"] = 7 }, { [PREFIX .. "clientCapabilities"] = "x" },
      { [PREFIX .. "clientInfo"] = "me" }, { [PREFIX .. "logLevel"] = "loud" } } do
      assert.equal(-32602, code_of(p.modern("tools/list", nil, bad)))
    end
    p.send { id = 9, method = "tools/list", params = { _meta = { [PREFIX .. "protocolVersion"] = "2026-07-28" } } }
    assert.equal(-32602, code_of(p.sent[#p.sent]))
  end))

  it("names a revision that is served", peer.run(INIT, function(p)
    for _, version in ipairs { "2025-11-25", "2099-01-01", "" } do
      local answer = p.modern("tools/list", nil, { [PREFIX .. "protocolVersion"] = version })
      assert.equal(-32022, code_of(answer))
      assert.equal(version, answer.error.data.requested)
      assert.equal("2026-07-28", answer.error.data.supported[1])
    end
  end))

  it("removes what the revision has no longer", peer.run(INIT, function(p)
    p.initialize()
    for _, method in ipairs { "initialize", "ping", "logging/setLevel", "resources/subscribe",
      "resources/unsubscribe", "notifications/initialized", "tasks/list", "nonsense" } do
      assert.equal(-32601, code_of(p.modern(method)), method)
    end
  end))
end)

describe("a result", function()
  it("says that it is complete, from whom, and how long it holds", peer.run(INIT, function(p)
    for _, method in ipairs { "server/discover", "tools/list", "prompts/list", "resources/list",
      "resources/templates/list" } do
      local result = p.modern(method).result
      assert.equal("complete", result.resultType)
      assert.equal("integer", math.type(result.ttlMs))
      assert.truthy(result.cacheScope == "public" or result.cacheScope == "private")
      assert.equal("sandbox-runner", result._meta[PREFIX .. "serverInfo"].name)
    end
    local result = call(p, "echo", nil, { arguments = { text = "hi" } }).result
    assert.equal("hi", result.content[1].text)
    assert.equal("complete", result.resultType)
    assert.is_nil(result.ttlMs)
  end))
end)

describe("input that a handler asks for", function()
  it("is asked by the answer and brought back by the next request", peer.run(INIT, function(p)
    local first = call(p, "greet", ELICIT).result
    assert.equal("input_required", first.resultType)
    local key, request = next(first.inputRequests)
    assert.equal("elicitation/create", request.method)
    local answers = { [key] = { action = "accept", content = { name = "Ann" } } }
    assert.equal("hello Ann", call(p, "greet", ELICIT, { inputResponses = answers }).result.content[1].text)
    assert.equal("input_required", call(p, "greet", ELICIT, { inputResponses = { other = {} } }).result.resultType)
    assert.equal("input_required", call(p, "greet", ELICIT, { inputResponses = { [key] = 7 } }).result.resultType)
    assert.equal(-32602, code_of(call(p, "greet", ELICIT, { inputResponses = "x" })))
  end))

  it("is kept from round to round", peer.run(INIT, function(p)
    local more, texts = {}, {}
    for round = 1, 2 do
      local result = call(p, "both", ELICIT, more).result
      local key, asked = next(result.inputRequests)
      texts[round] = asked.params.message
      assert.is_nil(next(result.inputRequests, key))
      more = { requestState = result.requestState, inputResponses = { [key] = { content = { x = "r" .. round } } } }
    end
    assert.same({ "First?", "Second?" }, texts)
    assert.equal("r1r2", call(p, "both", ELICIT, more).result.content[1].text)
    more.requestState = nil
    assert.equal("First?", select(2, next(call(p, "both", ELICIT, more).result.inputRequests)).params.message)
  end))

  it("needs a client that can", peer.run(INIT, function(p)
    local answer = call(p, "greet")
    assert.equal(-32021, code_of(answer))
    assert.same({ elicitation = {} }, answer.error.data.requiredCapabilities)
  end))

  it("comes with a state that nobody else can make", peer.run(INIT, function(p)
    local state = call(p, "count", ELICIT).result.requestState
    local given = { inputResponses = { other = {} }, requestState = state }
    local second = call(p, "count", ELICIT, given).result
    given.requestState = second.requestState
    assert.equal("seen 2", call(p, "count", ELICIT, given).result.content[1].text)
    for _, bad in ipairs { state .. "x", state:sub(2), "", 7, ("A"):rep(100000) } do
      assert.equal(-32602, code_of(call(p, "count", ELICIT, { requestState = bad })))
    end
    assert.equal(-32602, code_of(call(p, "greet", ELICIT, { requestState = state })))
  end))

  it("is asked of a legacy client by a request of the server's", peer.run(INIT, function(p)
    p.initialize("2025-11-25", { elicitation = {} })
    p.send { id = 1, method = "tools/call", params = { name = "greet" } }
    local request = p.await(function(m) return m.method == "elicitation/create" end)
    assert.equal("Who?", request.params.message)
    p.send { id = "server-77", result = { action = "accept", content = { name = "Eve" } } }
    p.send { id = request.id, result = { action = "accept", content = { name = "Bob" } } }
    local answer = p.await(function(m) return m.id == 1 end)
    assert.equal("hello Bob", answer.result.content[1].text)
  end))

  it("is given up when the client cannot be reached", peer.run(INIT, function(p)
    p.initialize("2025-11-25", { elicitation = {} })
    p.sink.send = function() return false end
    local answer = p.ask("tools/call", { name = "greet" })
    assert.equal(-32603, code_of(answer))
    assert.matches("cannot be asked", answer.error.message)
  end))

  it("is taken back when the call is cancelled", peer.run(INIT, function(p)
    p.initialize("2025-11-25", { elicitation = {} })
    p.send { id = 1, method = "tools/call", params = { name = "greet" } }
    local question = p.await(function(m) return m.method == "elicitation/create" end)
    p.send { method = "notifications/cancelled", params = { requestId = 1 } }
    local note = p.await(function(m) return m.method == "notifications/cancelled" end)
    assert.equal(question.id, note.params.requestId)
  end))

  it("is not asked of a legacy client that cannot, and its refusal is an error", peer.run(INIT, function(p)
    p.initialize()
    assert.equal(-32600, code_of(p.ask("tools/call", { name = "greet" })))
    p.initialize("2025-11-25", { elicitation = {} })
    p.send { id = 1, method = "tools/call", params = { name = "greet" } }
    local request = p.await(function(m) return m.method == "elicitation/create" end)
    p.send { id = request.id, error = { code = -1, message = "no" } }
    assert.equal(-32603, code_of(p.await(function(m) return m.id == 1 end)))
  end))
end)

describe("a handler", function()
  it("that answers what cannot be sent is an error in every era, and the call ends", peer.run(INIT, function(p)
    assert.equal(-32603, code_of(call(p, "odd")))
    p.initialize()
    assert.equal(-32603, code_of(p.ask("tools/call", { name = "odd" })))
    assert.equal(0, p.server:in_flight())
    assert.equal(0, p.server.call_bytes)
  end))

  it("that makes an error of nothing, or says too much, is kept in bounds", peer.run(INIT, function(p)
    assert.equal(-32603, code_of(call(p, "refuse")))
    assert.matches("a whole number and a text", p.log[1])
    call(p, "chatty", { [PREFIX .. "logLevel"] = "debug" })
    assert.is_true(#p.sent < 1100 and #p.sent > 800, #p.sent)
  end))

  it("tells progress that only grows, in numbers", peer.run(INIT, function(p)
    p.modern("tools/call", { name = "steps", arguments = {} }, { progressToken = 7 })
    local seen = {}
    for _, message in ipairs(p.sent) do
      if message.method == "notifications/progress" then seen[#seen + 1] = message.params.progress end
    end
    assert.same({ 5, 6 }, seen)
    assert.equal(-32603, code_of(call(p, "wrong")))
    assert.matches("total must be a number", p.log[1])
  end))
end)

describe("what a client sends", function()
  it("is not kept in any size", peer.run(INIT, function(p)
    local answer = p.initialize("2025-11-25", { experimental = { x = ("x"):rep(70000) } })
    assert.equal(-32602, code_of(answer))
    assert.matches("at most 65536", answer.error.message)
    local uris = core.json.array {}
    for i = 1, 1000 do uris[i] = ("x"):rep(100) end
    answer = p.modern("subscriptions/listen", { notifications = { resourceSubscriptions = uris } })
    assert.equal(-32602, code_of(answer))
    p.send { id = 5, method = "subscriptions/listen", params = { junk = ("x"):rep(100000), notifications = {},
      _meta = { [PREFIX .. "protocolVersion"] = "2026-07-28", [PREFIX .. "clientCapabilities"] = {} } } }
    assert.is_nil(next(next(p.server.running).message.params))
    p.server:stop_listening()
    p.await(function(message) return message.id == 5 end)
  end))

  it("with a NUL is refused as what it is", peer.run(INIT, function(p)
    p.initialize()
    local nul = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%s}'
    for _, params in ipairs { '{"name":"echo\\u0000"}', '{"name":"echo","arguments":["\\u0000"]}' } do
      p.session:handle(nul:format(params), p.sink)
      assert.equal(-32602, code_of(p.sent[#p.sent]))
    end
    p.session:handle(nul:format '{"name":"echo","arguments":{"text":"a\\u0000"}}', p.sink)
    assert.matches("NUL", p.sent[#p.sent].result.content[1].text)
  end))
end)

describe("logging", function()
  it("goes only to the request that asked for it", peer.run(INIT, function(p)
    local notes = function(message) return message.method == "notifications/message" end
    p.send { id = 1, method = "tools/call", params = { name = "slow", arguments = {}, _meta = {
      [PREFIX .. "protocolVersion"] = "2026-07-28", [PREFIX .. "clientCapabilities"] = {} } } }
    core.loop.sleep(20)
    assert.equal(0, #p.sent)
    p.send { id = 2, method = "tools/call", params = { name = "slow", arguments = {}, _meta = {
      [PREFIX .. "protocolVersion"] = "2026-07-28", [PREFIX .. "clientCapabilities"] = {},
      [PREFIX .. "logLevel"] = "info" } } }
    assert.equal("begun", p.await(notes).params.data)
    p.server:cancel_all()
    core.loop.sleep(20)
    assert.equal(1, #p.sent)
    assert.equal(0, p.server:in_flight())
  end))
end)

describe("subscriptions/listen", function()
  it("is acknowledged first, sends what was asked for, and ends with the server", peer.run(INIT, function(p)
    local id, from = 41, #p.sent + 1
    p.send { id = id, method = "subscriptions/listen", params = {
      notifications = { toolsListChanged = true, resourceSubscriptions = core.json.array { "history://runs" } },
      _meta = { [PREFIX .. "protocolVersion"] = "2026-07-28", [PREFIX .. "clientCapabilities"] = {} } } }
    local first = p.await(function() return true end, from)
    assert.equal("notifications/subscriptions/acknowledged", first.method)
    assert.is_true(first.params.notifications.toolsListChanged)
    assert.is_nil(first.params.notifications.promptsListChanged)
    assert.equal(0, p.server:in_flight())
    call(p, "change")
    local changed = p.await(function(m) return m.method == "notifications/tools/list_changed" end)
    local updated = p.await(function(m) return m.method == "notifications/resources/updated" end)
    for _, message in ipairs { first, changed, updated } do
      assert.equal(id, message.params._meta[PREFIX .. "subscriptionId"])
    end
    p.server:stop_listening()
    local last = p.await(function(m) return m.id == id end)
    assert.equal("complete", last.result.resultType)
    assert.equal(id, last.result._meta[PREFIX .. "subscriptionId"])
    local before = #p.sent
    p.server.catalog:changed "tools"
    assert.equal(before, #p.sent)
  end))

  it("refuses a filter that is none", peer.run(INIT, function(p)
    for _, bad in ipairs { { toolsListChanged = 1 }, { resourceSubscriptions = "x" },
      { resourceSubscriptions = core.json.array { 7 } } } do
      assert.equal(-32602, code_of(p.modern("subscriptions/listen", { notifications = bad })))
    end
    assert.equal(-32602, code_of(p.modern("subscriptions/listen")))
  end))

  it("has its place in legacy sessions taken by unasked messages", peer.run(INIT, function(p)
    p.initialize()
    p.ask("resources/subscribe", { uri = "history://runs" })
    p.ask("tools/call", { name = "change" })
    p.await(function(m) return m.method == "notifications/tools/list_changed" end)
    p.await(function(m) return m.method == "notifications/resources/updated" end)
    p.ask("resources/unsubscribe", { uri = "history://runs" })
    local from = #p.sent + 1
    p.ask("tools/call", { name = "change" })
    for i = from, #p.sent do assert.not_equal("notifications/resources/updated", p.sent[i].method) end
    assert.equal(-32002, code_of(p.ask("resources/subscribe", { uri = "nowhere://x" })))
  end))
end)
