local core = require "sandbox_runner.core"
local fake = require "spec.support.fake"
local peer = require "spec.support.peer"
local tasks = require "sandbox_runner.tasks"

local json, loop = core.json, core.loop
local CAPABILITIES, EXTENSION = "io.modelcontextprotocol/clientCapabilities", "io.modelcontextprotocol/tasks"
local CAN = { [CAPABILITIES] = { elicitation = {}, extensions = { [EXTENSION] = {} } } }

local function text_result(text) return { content = json.array { { type = "text", text = text } } } end

-- A client of a server whose method test/run calls a body as a tool would: slow,
-- or whatever p.kind says. settings: those of tasks, with short times.
local function new(settings, options)
  local p = peer.new("", options)
  p.kind = "slow"
  if not p.server.tasks then
    local config = { after_seconds = 0.05, keep_seconds = 5, max = 10 }
    for name, value in pairs(settings or {}) do config[name] = value end
    p.server.tasks = tasks.new { config = { tasks = config }, spawn = loop.spawn, now_ms = loop.now_ms,
      wall = loop.wall }
    p.server.tasks.methods["test/run"] = function(req) return p.store:call(req, { task = p.kind }, p.body) end
  end
  p.store = p.server.tasks

  -- Calls a body; returns the answer's result, or all of it when it is an error.
  function p.run(body, meta, params)
    p.body = body
    local answer = p.modern("test/run", params, meta or CAN)
    return answer.result or answer
  end
  function p.method(name, params) return p.modern("tasks/" .. name, params, CAN) end
  function p.get(id) return p.method("get", { taskId = id }).result end
  function p.state(id, status)
    fake.eventually(function() return p.get(id).status == status end, status)
    return p.get(id)
  end
  -- A body that waits until p.go() and then returns what that was given.
  function p.waiting()
    local event = loop.event()
    p.go = function(value) event:set(value) end
    return function() return event:wait() end
  end
  return p
end

local function test(settings, fn)
  return fake.task(function() fn(new(settings)) end)
end

local function form(message) return { method = "elicitation/create", params = { message = message } } end

local function code_of(answer) return answer.error and answer.error.code end

describe("a call of a slow tool", function()
  it("is answered plainly when it ends in time", test({}, function(p)
    local result = p.run(function() return text_result "quick" end)
    assert.equal("complete", result.resultType)
    assert.equal("quick", result.content[1].text)
    assert.is_nil(result.taskId)
    result = p.run(function() loop.sleep(10) return text_result "soon" end)
    assert.equal("soon", result.content[1].text)
    assert.equal(0, p.store:in_flight())
    assert.equal(0, p.store.count)
  end))

  it("is answered plainly with its error, too", test({}, function(p)
    local answer = p.run(function() return nil, -32602, "bad", { x = 1 } end)
    assert.same({ code = -32602, message = "bad", data = { x = 1 } }, answer.error)
    answer = p.run(function() error "broken" end)
    assert.equal(-32603, code_of(answer))
    assert.matches("broken", p.log[1])
    answer = p.run(function(ctx) ctx.protocol_error(-32602, "worse") end)
    assert.equal("worse", answer.error.message)
  end))

  it("becomes a task when it does not", test({}, function(p)
    local started = loop.now_ms()
    local result = p.run(p.waiting())
    assert.is_true(loop.now_ms() - started >= 45)
    assert.equal("task", result.resultType)
    assert.equal("working", result.status)
    assert.matches("^%x+$", result.taskId)
    assert.equal(32, #result.taskId)
    assert.matches("^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%d%.%d%d%dZ$", result.createdAt)
    assert.equal("integer", math.type(result.ttlMs))
    assert.equal("integer", math.type(result.pollIntervalMs))
    assert.is_nil(result.result)
    assert.equal(1, p.store:in_flight())
    p.go(text_result "late")
    local done = p.state(result.taskId, "completed")
    assert.equal("late", done.result.content[1].text)
    assert.equal("complete", done.resultType)
    assert.equal("complete", done.result.resultType)
    assert.equal(result.createdAt, done.createdAt)
    assert.is_true(done.lastUpdatedAt >= done.createdAt)
    assert.equal(0, p.store:in_flight())
  end))

  it("becomes one at once when no time is allowed, but for what ends without waiting", test({ after_seconds = 0 },
    function(p)
      assert.equal("at once", p.run(function() return text_result "at once" end).content[1].text)
      assert.equal("task", p.run(function() loop.sleep(30) return text_result "x" end).resultType)
    end))

  it("is ended by its request until then", test({ after_seconds = 30 }, function(p)
    local ended
    p.body = function()
      local guard <close> = setmetatable({}, { __close = function() ended = true end })
      loop.sleep(60000)
    end
    p.send { id = "mine", method = "test/run", params = { _meta = {
      ["io.modelcontextprotocol/protocolVersion"] = "2026-07-28", [CAPABILITIES] = CAN[CAPABILITIES] } } }
    fake.eventually(function() return p.store:in_flight() == 1 end)
    p.send { method = "notifications/cancelled", params = { requestId = "mine" } }
    fake.eventually(function() return ended and p.server:in_flight() == 0 end)
    assert.same({}, p.sent)
  end))

  it("is not afterwards", test({}, function(p)
    local result = p.run(p.waiting(), CAN)
    local id = p.sent[#p.sent].id
    p.send { method = "notifications/cancelled", params = { requestId = id } }
    p.session:close()
    loop.sleep(20)
    p.go(text_result "still here")
    local other = new(nil, { server = p.server })
    assert.equal("still here", other.state(result.taskId, "completed").result.content[1].text)
  end))

  it("sends progress until then, and tells it in the task's state afterwards", test({}, function(p)
    local go = loop.event()
    local result = p.run(function(ctx)
      ctx.progress(1, 4, "early")
      loop.sleep(100)
      ctx.progress(2, 4, "later")
      ctx.log("error", "noise")
      go:wait()
      ctx.progress(3, 4)
      loop.sleep(50)
      ctx.report("running", 1, 2)
      loop.sleep(50)
      ctx.progress(4, 4, ("x"):rep(498) .. "\u{20AC}\xff")
      loop.sleep(50)
      return text_result "done"
    end, { [CAPABILITIES] = CAN[CAPABILITIES], progressToken = 7, ["io.modelcontextprotocol/logLevel"] = "debug" })
    assert.equal("notifications/progress", p.sent[1].method)
    assert.equal("early", p.sent[1].params.message)
    fake.eventually(function() return p.get(result.taskId).statusMessage == "later" end)
    go:set()
    fake.eventually(function() return p.get(result.taskId).statusMessage == "3 of 4" end)
    fake.eventually(function() return p.get(result.taskId).statusMessage == "running" end)
    fake.eventually(function() return p.get(result.taskId).statusMessage == ("x"):rep(498) end)
    assert.is_nil(p.state(result.taskId, "completed").statusMessage)
    local notes = 0
    for _, message in ipairs(p.sent) do notes = notes + (message.method and 1 or 0) end
    assert.equal(1, notes)
  end))
end)

describe("a call of a tool that is always a task", function()
  it("is answered before it works", test({ after_seconds = 30 }, function(p)
    p.kind = "always"
    local result = p.run(function() return text_result "x" end)
    assert.equal("task", result.resultType)
    assert.equal("working", result.status)
    assert.equal("x", p.state(result.taskId, "completed").result.content[1].text)
  end))
end)

describe("a task", function()
  it("whose result is an error is completed", test({}, function(p)
    p.kind = "always"
    local result = p.run(function()
      local out = text_result "no"
      out.isError = true
      return out
    end)
    assert.is_true(p.state(result.taskId, "completed").result.isError)
  end))

  it("whose call is an error, or breaks, has failed", test({}, function(p)
    p.kind = "always"
    local done = p.state(p.run(function() return nil, -32602, "bad", { x = 1 } end).taskId, "failed")
    assert.same({ code = -32602, message = "bad", data = { x = 1 } }, done.error)
    assert.equal("bad", done.statusMessage)
    assert.is_nil(done.result)
    done = p.state(p.run(function() error "broken" end).taskId, "failed")
    assert.equal(-32603, done.error.code)
    assert.is_nil(done.error.message:find("broken", 1, true))
    done = p.state(p.run(function() return { content = print } end).taskId, "failed")
    assert.equal(-32603, done.error.code)
    done = p.state(p.run(function() return nil, -32602, "bad", { x = print } end).taskId, "failed")
    assert.same({ code = -32602, message = "bad" }, done.error)
    assert.equal(2, #p.log)
  end))

  it("whose work computes too long without waiting has failed", test({}, function(p)
    p.kind = "always"
    local result = p.run(function() while true do end end)
    assert.equal(-32603, p.state(result.taskId, "failed").error.code)
    assert.equal(0, p.store:in_flight())
  end))

  it("is ended by tasks/cancel, once", test({}, function(p)
    local ended
    local result = p.run(function()
      local guard <close> = setmetatable({}, { __close = function() loop.sleep(30) ended = true end })
      loop.sleep(60000)
    end)
    for _ = 1, 2 do
      local answer = p.method("cancel", { taskId = result.taskId })
      assert.equal("complete", answer.result.resultType)
      assert.is_nil(answer.result.taskId)
    end
    local now = p.get(result.taskId)
    assert.equal("cancelled", now.status)
    assert.equal("cancelled by the client", now.statusMessage)
    assert.equal(1, p.store:in_flight()) -- it cleans up
    fake.eventually(function() return ended end)
    fake.eventually(function() return p.store:in_flight() == 0 end)
    assert.equal("cancelled", p.get(result.taskId).status)
    assert.is_nil(p.get(result.taskId).result)
  end))

  it("stays cancelled whatever its work makes of that", test({}, function(p)
    local result = p.run(function(ctx)
      pcall(loop.sleep, 60000)
      ctx.progress(1, 2, "going on")
      local ok, why = pcall(ctx.ask, { q = form "?" })
      return text_result(tostring(ok) .. tostring(type(why) == "table" and why.code))
    end)
    p.method("cancel", { taskId = result.taskId })
    fake.eventually(function() return p.store:in_flight() == 0 end)
    local now = p.get(result.taskId)
    assert.same({ "cancelled", "cancelled by the client" }, { now.status, now.statusMessage })
    assert.is_nil(now.result)
  end))

  it("that was cancelled before it began does not begin", test({}, function(p)
    local began
    local reply = p.sink.reply
    p.sink.reply = function(...)
      p.store:cancel_all("too early")
      reply(...)
    end
    p.kind = "always"
    local id = p.run(function() began = true return text_result "x" end).taskId
    p.sink.reply = reply
    assert.equal("too early", p.state(id, "cancelled").statusMessage)
    fake.eventually(function() return p.store:in_flight() == 0 end)
    assert.is_nil(began)
  end))
end)

describe("input within a task", function()
  local function ask(p, ...)
    local rounds = { ... }
    p.kind = "always"
    return p.run(function(ctx)
      local said = {}
      for _, requests in ipairs(rounds) do
        local answers = ctx.ask(requests)
        local names = {}
        for name in pairs(answers) do names[#names + 1] = name end
        table.sort(names)
        for _, name in ipairs(names) do said[#said + 1] = name .. "=" .. answers[name].action end
      end
      return text_result(table.concat(said, " "))
    end).taskId
  end
  local function answer(p, id, responses)
    return p.method("update", { taskId = id, inputResponses = responses })
  end

  it("is asked for in the state, and answered by tasks/update", test({}, function(p)
    local id = ask(p, { a = form "A?", b = form "B?" })
    local now = p.state(id, "input_required")
    assert.same({ a = form "A?", b = form "B?" }, now.inputRequests)
    assert.is_string(now.statusMessage)
    assert.equal("complete", answer(p, id, { a = { action = "accept" }, z = { action = "x" } }).result.resultType)
    now = p.get(id)
    assert.same({ "input_required", { b = form "B?" } }, { now.status, now.inputRequests })
    answer(p, id, { a = { action = "too late" }, b = { action = "decline" } })
    local done = p.state(id, "completed")
    assert.equal("a=accept b=decline", done.result.content[1].text)
    assert.is_nil(done.inputRequests)
    assert.is_nil(done.statusMessage)
    assert.is_table(answer(p, id, { a = { action = "accept" } }).result)
  end))

  it("never has the same key twice", test({}, function(p)
    local id = ask(p, { a = form "1" }, { a = form "2", ["a-2"] = form "3" }, { a = form "4" })
    local seen = {}
    for _, count in ipairs { 1, 2, 1 } do
      fake.eventually(function() return p.get(id).status == "input_required" end)
      local responses, n = {}, 0
      for key, request in pairs(p.get(id).inputRequests) do
        assert.is_nil(seen[key])
        seen[key] = true
        responses[key] = { action = request.params.message }
        n = n + 1
      end
      assert.equal(count, n)
      answer(p, id, responses)
    end
    assert.equal("a=1 a=2 a-2=3 a=4", p.state(id, "completed").result.content[1].text)
  end))

  it("of no questions is no wait", test({}, function(p)
    assert.equal("", p.state(ask(p, {}), "completed").result.content[1].text)
  end))

  it("is not asked for when the request brought it", test({}, function(p)
    p.kind = "always"
    local id = p.run(function(ctx)
      local first = ctx.ask { a = form "1", b = form "2" }
      return text_result(first.a.action .. first.b.action .. ctx.ask({ a = form "3" }).a.action)
    end, CAN, { inputResponses = { a = { action = "x" }, b = "no object" } }).taskId
    assert.same({ b = form "2" }, p.state(id, "input_required").inputRequests)
    answer(p, id, { b = { action = "y" } })
    fake.eventually(function() return (p.get(id).inputRequests or {})["a-2"] end)
    answer(p, id, { ["a-2"] = { action = "z" } })
    assert.equal("xyz", p.state(id, "completed").result.content[1].text)
  end))

  it("must be made of objects", test({}, function(p)
    local id = ask(p, { a = form "A?", b = form "B?" })
    p.state(id, "input_required")
    for _, bad in ipairs { 1, "x", json.null, json.array {}, { a = 1 }, { a = { action = "accept" }, b = "x" },
      { a = json.array {} } } do
      assert.equal(-32602, code_of(answer(p, id, bad)))
    end
    assert.equal(-32602, code_of(p.method("update", { taskId = id })))
    assert.is_table(p.get(id).inputRequests.a)
  end))

  it("is not asked of a client that cannot give it", test({}, function(p)
    p.kind = "always"
    local result = p.run(function(ctx) return ctx.ask { q = { method = "sampling/createMessage", params = {} } } end)
    local done = p.state(result.taskId, "failed")
    assert.equal(-32021, done.error.code)
    assert.same({ sampling = {} }, done.error.data.requiredCapabilities)
  end))

  it("is asked by elicit, too", test({}, function(p)
    p.kind = "always"
    local id = p.run(function(ctx) return text_result(ctx.elicit { message = "?" }.action) end).taskId
    local key, request = next(p.state(id, "input_required").inputRequests)
    assert.equal("elicitation/create", request.method)
    answer(p, id, { [key] = { action = "accept" } })
    assert.equal("accept", p.state(id, "completed").result.content[1].text)
  end))

  it("ends the task when nobody asks for it any more", test({ keep_seconds = 0.5 }, function(p)
    local id = ask(p, { a = form "A?" })
    for _ = 1, 7 do
      loop.sleep(100)
      assert.equal("input_required", p.get(id).status)
    end
    loop.sleep(550)
    local now = p.get(id)
    assert.equal("cancelled", now.status)
    assert.matches("0.5 seconds", now.statusMessage, 1, true)
    assert.equal(0, p.store:in_flight())
  end))

  it("is not asked for any more once the work goes on without it", test({ keep_seconds = 0.3 }, function(p)
    p.kind = "always"
    local id = p.run(function(ctx)
      pcall(ctx.ask, { a = form "A?" })
      loop.sleep(100)
      return text_result "without"
    end).taskId
    loop.sleep(350)
    local now = p.get(id)
    assert.equal("working", now.status)
    assert.is_nil(now.inputRequests)
    assert.equal("without", p.state(id, "completed").result.content[1].text)
  end))

  it("is dropped with the task", test({}, function(p)
    local id = ask(p, { a = form "A?" })
    p.state(id, "input_required")
    p.method("cancel", { taskId = id })
    assert.is_nil(p.get(id).inputRequests)
    fake.eventually(function() return p.store:in_flight() == 0 end)
    assert.equal("cancelled", p.get(id).status)
  end))

  it("may be asked for by several coroutines of one task", test({}, function(p)
    p.kind = "always"
    local id = p.run(function(ctx)
      local done, first = loop.event(), nil
      loop.spawn(function() first = ctx.ask { a = form "1" }.a.action done:set() end)
      loop.sleep(20)
      local second = ctx.ask { b = form "2" }.b.action
      done:wait()
      return text_result(first .. second)
    end).taskId
    fake.eventually(function() return (p.get(id).inputRequests or {}).b end)
    answer(p, id, { b = { action = "y" } })
    assert.equal("input_required", p.get(id).status)
    answer(p, id, { a = { action = "x" } })
    assert.equal("xy", p.state(id, "completed").result.content[1].text)
  end))
end)

describe("tasks/get, update and cancel", function()
  it("know no other id", test({}, function(p)
    local id = p.run(p.waiting()).taskId
    local others = { "", "x", id .. "0", id:sub(1, -2), 5, json.null, json.array {}, true, "__index" }
    for at = 1, #id do others[#others + 1] = id:sub(1, at - 1) .. "x" .. id:sub(at + 1) end
    for _, name in ipairs { "get", "update", "cancel" } do
      for _, other in ipairs(others) do
        assert.equal(-32602, code_of(p.method(name, { taskId = other, inputResponses = {} })))
      end
      assert.equal(-32602, code_of(p.method(name)))
    end
    p.go(text_result "x")
  end))

  it("are for clients that have declared the extension", test({}, function(p)
    local id = p.run(p.waiting()).taskId
    for _, name in ipairs { "get", "update", "cancel" } do
      for _, capabilities in ipairs { {}, { extensions = {} }, { extensions = json.null }, { extensions = "x" },
        { extensions = { [EXTENSION] = json.null } }, { tasks = {} } } do
        local answer = p.modern("tasks/" .. name, { taskId = id }, { [CAPABILITIES] = capabilities })
        assert.equal(-32021, code_of(answer))
        assert.same({ extensions = { [EXTENSION] = {} } }, answer.error.data.requiredCapabilities)
      end
    end
    p.go(text_result "x")
  end))

  it("are all there is", test({}, function(p)
    for _, name in ipairs { "list", "result" } do assert.equal(-32601, code_of(p.method(name, { taskId = "x" }))) end
  end))

  it("see a client's own tasks only", test({}, function(p)
    local other = new(nil, { server = p.server, client = "somebody else" })
    local id = p.run(p.waiting()).taskId
    for _, name in ipairs { "get", "update", "cancel" } do
      assert.equal(-32602, code_of(other.method(name, { taskId = id, inputResponses = {} })))
    end
    assert.same({}, { table.unpack((p.store:listen("somebody else", { id }, function() end))) })
    assert.equal("working", p.get(id).status)
    p.go(text_result "x")
  end))
end)

describe("results", function()
  it("are kept for a time after the end, and then go by themselves", test({ keep_seconds = 0.4 }, function(p)
    local id = p.run(p.waiting()).taskId
    loop.sleep(500)
    assert.equal("working", p.get(id).status) -- work does not expire
    assert.is_true(p.get(id).ttlMs >= 900)
    p.go(text_result "x")
    local ttl = p.state(id, "completed").ttlMs
    loop.sleep(100)
    assert.equal(ttl, p.get(id).ttlMs)
    fake.eventually(function() return p.store.count == 0 end)
    assert.equal(-32602, code_of(p.method("get", { taskId = id })))
    assert.equal(0, p.store.bytes)
    assert.is_nil(next(p.store.tasks))
    assert.is_nil(next(p.store.ended))
  end))

  it("make room for others, the oldest first", test({ max = 3 }, function(p)
    p.kind = "always"
    local ids = {}
    for i = 1, 5 do
      ids[i] = p.run(function() return text_result(tostring(i)) end).taskId
      p.state(ids[i], "completed")
    end
    for i = 1, 2 do assert.equal(-32602, code_of(p.method("get", { taskId = ids[i] }))) end
    for i = 3, 5 do assert.equal(tostring(i), p.get(ids[i]).result.content[1].text) end
    assert.equal(3, p.store.count)
  end))

  it("make room at the cost of the client that has most", test({ max = 4 }, function(p)
    local other = new({}, { server = p.server, client = "other" })
    p.kind, p.body = "always", function() return text_result "theirs" end
    local theirs = other.modern("test/run", nil, CAN).result.taskId
    for i = 1, 6 do p.state(p.run(function() return text_result(tostring(i)) end).taskId, "completed") end
    assert.equal("theirs", other.get(theirs).result.content[1].text)
    assert.equal(4, p.store.count)
    assert.same({ other = 1, spec = 3 }, p.store.held)
  end))

  it("do not make room for more work than tasks.max", test({ max = 2 }, function(p)
    local go = {}
    local first = p.run(p.waiting()).taskId
    go[1] = p.go
    local second = p.run(p.waiting()).taskId
    go[2] = p.go
    for _, kind in ipairs { "slow", "always" } do
      p.kind = kind
      local refused = p.run(function() return text_result "x" end)
      assert.is_true(refused.isError)
      assert.equal("complete", refused.resultType)
      assert.matches("Busy: 2 tasks", refused.content[1].text)
    end
    go[1](text_result "1")
    p.state(first, "completed")
    local third = p.run(function() return text_result "3" end).taskId
    assert.equal(-32602, code_of(p.method("get", { taskId = first })))
    assert.equal("working", p.get(second).status)
    assert.equal("3", p.state(third, "completed").result.content[1].text)
    go[2](text_result "2")
  end))

  it("take a bounded amount of memory", test({ max = 100 }, function(p)
    p.kind = "always"
    local text = ("x"):rep(6 << 20)
    local ids = {}
    for i = 1, 12 do
      ids[i] = p.run(function() return text_result(text) end).taskId
      fake.eventually(function() return p.store:in_flight() == 0 end)
    end
    assert.is_true(p.store.bytes <= 64 << 20 and p.store.bytes > 54 << 20, p.store.bytes)
    assert.equal(10, p.store.count)
    assert.equal(-32602, code_of(p.method("get", { taskId = ids[2] })))
    assert.equal(#text, #p.get(ids[3]).result.content[1].text)
    local id = p.run(function() return text_result(text:rep(2)) end).taskId
    local done = p.state(id, "failed")
    assert.equal(-32603, done.error.code)
    assert.matches("more than is kept", done.error.message)
    assert.equal(11, p.store.count)
  end))
end)

describe("a store", function()
  it("tells who listens of every change of status", test({}, function(p)
    p.kind = "always"
    local id = p.run(function(ctx)
      loop.sleep(20)
      return text_result(ctx.ask { q = form "?" }.q.action)
    end).taskId
    local heard = {}
    local function hear(params) heard[#heard + 1] = json.decode(json.encode(params)) end
    local honoured, stop = p.store:listen("spec", { id, "unknown", id }, hear)
    assert.same({ id }, { table.unpack(honoured) })
    assert.equal(json.array_mt, getmetatable(honoured))
    p.state(id, "input_required")
    p.method("update", { taskId = id, inputResponses = { q = { action = "accept" } } })
    p.state(id, "completed")
    local statuses = {}
    for i, state in ipairs(heard) do
      statuses[i] = state.status
      assert.equal(id, state.taskId)
      assert.is_nil(state.resultType)
    end
    assert.same({ "input_required", "working", "completed" }, statuses)
    assert.same(form "?", heard[1].inputRequests.q)
    assert.equal("accept", heard[3].result.content[1].text)
    stop()
    local other = p.run(function() loop.sleep(10) return text_result "x" end).taskId
    select(2, p.store:listen("spec", { other }, hear))()
    p.state(other, "completed")
    assert.equal(3, #heard)
  end))

  it("can end all of its work", test({ after_seconds = 30 }, function(p)
    local ended = 0
    local function body()
      local guard <close> = setmetatable({}, { __close = function() ended = ended + 1 end })
      loop.sleep(60000)
    end
    p.kind = "always"
    local id = p.run(body).taskId
    p.kind, p.body = "slow", body
    loop.spawn(function() p.modern("test/run", {}, CAN) end)
    fake.eventually(function() return p.store:in_flight() == 2 end)
    loop.sleep(10)
    p.store:cancel_all("the server stops")
    fake.eventually(function() return p.store:in_flight() == 0 end)
    assert.equal(2, ended)
    assert.equal("cancelled", p.get(id).status)
    assert.equal("the server stops", p.get(id).statusMessage)
    p.store:cancel_all()
  end))

  it("tells the server when the last work has ended", test({}, function(p)
    local idle = 0
    p.server.on_idle = function() idle = idle + 1 end
    local id = p.run(p.waiting()).taskId
    local before = idle
    assert.equal(1, p.server:in_flight())
    p.go(text_result "x")
    fake.eventually(function() return idle > before end)
    p.state(id, "completed")
  end))
end)
