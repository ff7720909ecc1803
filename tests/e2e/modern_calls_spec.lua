-- Calls in revision 2026-07-28 over real stdio: progress, cancelling, log notes,
-- and input that a call needs on its way.
local client = require "e2e.client"
local modern = require "e2e.modern"
local sandboxes = require "e2e.sandboxes"

local json = client.json
local CAPABILITIES, LEVEL, SERVER_INFO = modern.CAPABILITIES, modern.LEVEL, modern.SERVER_INFO
local envelope, post_tool, ask_tool = modern.envelope, modern.post_tool, modern.ask_tool
local sleeping, code_of, text_of = modern.sleeping, modern.code_of, modern.text_of

-- Own tools that do what a test asks them to.
local INIT = [[
  local nothing = { type = "object", properties = {} }
  tool "noisy" { description = "Says things of every weight", input = nothing,
    handler = function(_, ctx)
      for _, level in ipairs { "debug", "info", "warning", "error" } do ctx.log(level, "at " .. level) end
      return "said"
    end }
  tool "greet" { description = "Asks for a name", input = nothing,
    handler = function(_, ctx)
      local answer = ctx.ask({ name = { method = "elicitation/create", params = { mode = "form", message = "Who?",
        requestedSchema = { type = "object", properties = { name = { type = "string" } } } } } })
      return "Hello, " .. tostring(answer.name.content and answer.name.content.name)
    end }
  tool "count" { description = "Counts rounds in its state", input = { type = "object",
      properties = { goal = { type = "integer" } } },
    handler = function(arguments, ctx)
      local step = (ctx.state or 0) + 1
      if step > (arguments.goal or 1) then return "counted to " .. step - 1 end
      ctx.ask({ ["step" .. step] = { method = "elicitation/create", params = { mode = "form", message = "go on?",
        requestedSchema = { type = "object", properties = {} } } } }, step)
      return "skipped"
    end }
  tool "hoard" { description = "Keeps too much", input = nothing,
    handler = function(_, ctx)
      return ctx.ask({ name = { method = "elicitation/create", params = { mode = "form", message = "Who?",
        requestedSchema = { type = "object", properties = {} } } } }, ("x"):rep(100000))
    end }
]]

-- Nothing may have been said since: the next message is the ping's answer.
local function assert_silence(server)
  local before = server.count
  server:ping()
  assert.equal(before + 1, server.count)
end

local function assert_modern(answer)
  assert.is_table(answer.result, json.encode(answer))
  assert.equal("complete", answer.result.resultType)
  assert.equal("sandbox-runner", answer.result._meta[SERVER_INFO].name)
  assert.is_string(answer.result._meta[SERVER_INFO].version)
  return answer.result
end

describe("a modern run", function()
  local server
  before_each(function() server = modern.start { init = client.no_pool } end)
  after_each(function() server:close() end)

  it("tells how far it is to who asks for that", function()
    for _, token in ipairs { "a token", 7 } do
      local id = post_tool(server, "run_code", sleeping(2.5), { progressToken = token })
      local answer = server:wait(id)
      assert.equal("slept\n", assert_modern(answer).structuredContent.stdout)
      local last, notes = 0, #server.others
      assert.is_true(notes >= 2, notes .. " notes")
      for _ = 1, notes do
        local note = server:other()
        assert.equal("notifications/progress", note.method)
        assert.equal(token, note.params.progressToken)
        assert.is_true(note.params.progress > last)
        last = note.params.progress
      end
    end
    assert_silence(server)
    ask_tool(server, "run_code", sleeping(1.5))
    assert.equal(0, #server.others)
  end)

  it("is ended by notifications/cancelled, and not answered", function()
    for _, id in ipairs { 4711, "run" } do
      server:request("tools/call", { name = "run_code", arguments = sleeping(20), _meta = envelope() }, id)
      sandboxes.wait_for(server, 1)
      server:notify("notifications/cancelled", { requestId = id, _meta = envelope() })
      local gone = sandboxes.gone_after(server:instance(), 5)
      assert.is_true(gone and gone < 1 * client.slow, tostring(gone))
      assert_silence(server)
      assert.is_nil(server.answers[id])
    end
  end)

  it("keeps its id to itself while it goes on", function()
    server:request("tools/call", { name = "run_code", arguments = sleeping(1), _meta = envelope() }, 500)
    local answer = server:ask(('{"jsonrpc":"2.0","id":500,"method":"tools/list","params":{"_meta":%s}}')
      :format(json.encode(envelope())))
    assert.equal(-32600, code_of(answer))
    assert.equal("slept\n", server:wait(500).result.structuredContent.stdout)
  end)
end)

describe("log notes", function()
  local server
  setup(function() server = client.start { mute = true, init = INIT } end)
  teardown(function() server:close() end)

  local function notes_of(more)
    assert.equal("said", text_of(ask_tool(server, "noisy", nil, more)))
    local levels = {}
    while #server.others > 0 do
      local note = server:other()
      assert.equal("notifications/message", note.method)
      assert.equal("at " .. note.params.level, note.params.data)
      levels[#levels + 1] = note.params.level
    end
    return levels
  end

  it("come for the requests that ask for them, from their level on", function()
    assert.same({}, notes_of())
    assert.same({ "debug", "info", "warning", "error" }, notes_of { [LEVEL] = "debug" })
    assert.same({ "warning", "error" }, notes_of { [LEVEL] = "notice" })
    assert.same({ "error" }, notes_of { [LEVEL] = "error" })
    assert.same({}, notes_of { [LEVEL] = "emergency" })
    assert.same({}, notes_of())
  end)

  it("of unknown levels are refused", function()
    for _, level in ipairs { "loud", "", 1, json.null, json.array {} } do
      assert.equal(-32602, code_of(ask_tool(server, "noisy", nil, { [LEVEL] = level })), json.encode(level))
    end
  end)

  it("do not heed the level of the legacy session", function()
    server:initialize()
    assert.same({}, server:wait(server:request("logging/setLevel", { level = "debug" })).result)
    assert.same({}, notes_of())
  end)
end)

describe("a call that needs input", function()
  local CAN = { [CAPABILITIES] = { elicitation = {} } }
  local server
  setup(function() server = client.start { mute = true, seconds = 120, init = INIT } end)
  teardown(function() server:close() end)

  local function first(name, arguments)
    local result = ask_tool(server, name, arguments, CAN).result
    assert.equal("input_required", result.resultType)
    assert.equal("sandbox-runner", result._meta[SERVER_INFO].name)
    assert.is_nil(result.content)
    return result
  end

  local function again(name, arguments, responses, state)
    return ask_tool(server, name, arguments, CAN, { inputResponses = responses, requestState = state })
  end

  it("is answered with the requests, and goes on with the answers", function()
    local result = first "greet"
    assert.equal("elicitation/create", result.inputRequests.name.method)
    assert.equal("Who?", result.inputRequests.name.params.message)
    assert.is_nil(result.requestState)
    local answer = again("greet", nil, { name = { action = "accept", content = { name = "Ada" } }, more = { x = 1 } })
    assert.equal("Hello, Ada", text_of(answer))
    assert_modern(answer)
  end)

  it("asks again when an answer is missing or none", function()
    for _, responses in ipairs { {}, { other = { action = "accept" } }, { name = 5 }, { name = "x" },
      { name = json.null } } do
      local result = again("greet", nil, responses).result
      assert.equal("input_required", result.resultType)
      assert.equal("Who?", result.inputRequests.name.params.message)
    end
    for _, responses in ipairs { json.array {}, "x", 5 } do
      assert.equal(-32602, code_of(again("greet", nil, responses)))
    end
  end)

  it("is refused to a client that cannot give it", function()
    local answer = ask_tool(server, "greet")
    assert.equal(-32021, code_of(answer))
    assert.is_table(answer.error.data.requiredCapabilities.elicitation)
  end)

  it("finds its state again", function()
    local state
    for step = 1, 3 do
      local result = again("count", { goal = 3 }, nil, state).result
      assert.equal("input_required", result.resultType)
      assert.is_table(result.inputRequests["step" .. step])
      state = result.requestState
    end
    assert.equal("counted to 3", text_of(again("count", { goal = 3 }, {}, state)))
  end)

  it("takes no state that was not its own", function()
    local state = first("count", { goal = 2 }).requestState
    for at = 1, #state, 7 do
      local byte = state:sub(at, at) == "A" and "B" or "A"
      assert.equal(-32602, code_of(again("count", { goal = 2 }, {}, state:sub(1, at - 1) .. byte .. state:sub(at + 1))))
    end
    for _, other in ipairs { "", "x", state .. "0", state:sub(1, -2), ("A"):rep(100000), 5, json.array {} } do
      assert.equal(-32602, code_of(again("count", { goal = 2 }, {}, other)), json.encode(other):sub(1, 100))
    end
    assert.equal(-32602, code_of(again("count", { goal = 3 }, {}, state)))
    assert.equal(-32602, code_of(again("greet", { goal = 2 }, {}, state)))
    local other = client.start { mute = true, init = INIT }
    assert.equal(-32602, code_of(ask_tool(other, "count", { goal = 2 }, CAN, { requestState = state })))
    other:close()
    assert.is_table(again("count", { goal = 2 }, {}, state).result.inputRequests.step2)
  end)

  it("keeps no more state than can be sent", function()
    local answer = again("hoard", nil, {})
    assert.equal(-32603, code_of(answer))
    assert.matches("keep less in it", server:stderr())
    assert_modern(ask_tool(server, "noisy"))
  end)
end)
