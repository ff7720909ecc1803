-- The tasks extension over real stdio: what takes long is answered with a
-- handle, and asked for, answered and ended by its id.
local client = require "e2e.client"
local modern = require "e2e.modern"
local sandboxes = require "e2e.sandboxes"

local json = client.json
local TASKS, CAPABILITIES = modern.TASKS, modern.CAPABILITIES
local python, sleeping, code_of, text_of = modern.python, modern.sleeping, modern.code_of, modern.text_of

-- The capabilities of a client that knows tasks and can be asked.
local CAN = { [CAPABILITIES] = { elicitation = {}, extensions = { [TASKS] = {} } } }
local CANNOT_ASK = { [CAPABILITIES] = { extensions = { [TASKS] = {} } } }
local CANNOT_WAIT = { [CAPABILITIES] = { elicitation = {} } }

local INIT = [[
  pool.size = 0
  tasks.after_seconds = 0.3
  local nothing = { type = "object", properties = {} }
  local function form(message)
    return { method = "elicitation/create", params = { mode = "form", message = message,
      requestedSchema = { type = "object", properties = { yes = { type = "boolean" } } } } }
  end
  tool "confirm" { description = "Asks whether", input = nothing, task = "always",
    handler = function(_, ctx)
      local first = ctx.ask { sure = form "Sure?" }.sure
      local second = ctx.ask { sure = form "Really?" }.sure
      return first.action .. ", " .. second.action
    end }
  tool "both" { description = "Asks for two things", input = nothing, task = "always",
    handler = function(_, ctx)
      local answers = ctx.ask { a = form "A?", b = form "B?" }
      return answers.a.action .. ", " .. answers.b.action
    end }
  tool "ask_first" { description = "Asks, then works", input = nothing, task = "slow",
    handler = function(_, ctx)
      local answer = ctx.ask { sure = form "Sure?" }.sure
      ctx.sleep(1000)
      return "worked: " .. answer.action
    end }
  tool "fails" { description = "Fails as a tool", input = nothing, task = "always",
    handler = function(_, ctx) ctx.sleep(100) return nil, "no luck" end }
  tool "breaks" { description = "Fails as a protocol", input = nothing, task = "always",
    handler = function(_, ctx) ctx.protocol_error(-32602, "bad luck", { why = "luck" }) end }
  tool "throws" { description = "Throws", input = nothing, task = "always", handler = function() error "secret" end }
  tool "steps" { description = "Says where it is", input = nothing, task = "always",
    handler = function(_, ctx)
      for step = 1, 20 do
        ctx.progress(step, 20, "step " .. step)
        ctx.log("error", "noise")
        ctx.sleep(100)
      end
      return "done"
    end }
]]

local function init_with(more) return INIT .. "\n" .. more end

local function start(server, name, arguments, meta)
  local answer = modern.ask_tool(server, name, arguments, meta or CAN)
  assert.equal("task", answer.result and answer.result.resultType, json.encode(answer))
  return answer.result.taskId, answer.result
end

local function get(server, id, meta) return modern.ask(server, "tasks/get", { taskId = id }, meta or CAN) end

-- The task once it has a status of those named, or another end.
local function state(server, id, wanted, seconds)
  local found
  client.eventually((seconds or 10) * client.slow, function()
    found = get(server, id).result
    return found.status == wanted or ("completed failed cancelled"):find(found.status)
  end)
  assert.equal(wanted, found.status, json.encode(found))
  return found
end

local function update(server, id, responses, meta)
  return modern.ask(server, "tasks/update", { taskId = id, inputResponses = responses }, meta or CAN)
end

-- An acknowledgement says nothing of the task.
local function assert_ack(answer)
  assert.equal("complete", answer.result and answer.result.resultType, json.encode(answer))
  for name in pairs(answer.result) do assert.is_true(name == "resultType" or name == "_meta", name) end
end

local function is_time(text)
  return type(text) == "string" and text:find("^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%d%.?%d*Z$")
end

local function assert_handle(task)
  assert.is_truthy(is_time(task.createdAt), task.createdAt)
  assert.is_truthy(is_time(task.lastUpdatedAt), task.lastUpdatedAt)
  assert.is_true(task.createdAt <= task.lastUpdatedAt)
  assert.is_true(math.type(task.ttlMs) == "integer" and task.ttlMs > 0)
  assert.is_true(math.type(task.pollIntervalMs) == "integer" and task.pollIntervalMs > 0)
  for _, name in ipairs { "task", "ttl", "pollInterval", "requestState", "content" } do
    assert.is_nil(task[name], name)
  end
end

describe("a run as a task", function()
  local server
  before_each(function() server = modern.start { init = INIT } end)
  after_each(function() server:close() end)

  it("is a plain call when it ends soon", function()
    local patient = client.start { mute = true, init = "tasks.after_seconds = 20" }
    local answer = modern.ask_tool(patient, "run_code", python "print(6 * 7)", CAN)
    patient:close()
    assert.equal("complete", answer.result.resultType)
    assert.equal("42\n", answer.result.structuredContent.stdout)
    assert.is_nil(answer.result.taskId)
  end)

  it("is answered with a handle when it does not, and then asked for", function()
    local started = client.now_ms()
    local id, task = start(server, "run_code", sleeping(2))
    assert.is_true(client.now_ms() - started < 1500 * client.slow)
    assert_handle(task)
    assert.equal("working", task.status)
    assert.is_nil(task.result)
    local now = get(server, id).result
    assert.equal("complete", now.resultType)
    assert.same({ id, "working", task.createdAt }, { now.taskId, now.status, now.createdAt })
    assert.is_nil(now.result)
    local done = state(server, id, "completed")
    assert_handle(done)
    assert.is_nil(done.error)
    assert.is_nil(done.inputRequests)
    assert.equal("slept\n", done.result.structuredContent.stdout)
    assert.is_false(done.result.isError)
    assert.same(done.result, state(server, id, "completed").result)
    assert.equal(1, #modern.ask_tool(server, "get_execution_history").result.structuredContent.result)
  end)

  it("is a call like any other for a client that knows no tasks", function()
    for _, meta in ipairs { CANNOT_WAIT, { [CAPABILITIES] = {} }, { [CAPABILITIES] = { extensions = {} } },
      { [CAPABILITIES] = { tasks = {} } }, { [CAPABILITIES] = { extensions = { [TASKS] = json.null } } } } do
      local answer = modern.ask_tool(server, "run_code", sleeping(1), meta)
      assert.equal("complete", answer.result.resultType)
      assert.equal("slept\n", answer.result.structuredContent.stdout)
    end
    server:initialize()
    assert.equal("slept\n", server:run("python", sleeping(1).code).stdout)
  end)

  it("says in its state how far it is, and nowhere else", function()
    local id = server:wait(modern.post_tool(server, "run_code", sleeping(3),
      { [CAPABILITIES] = CAN[CAPABILITIES], progressToken = "t" })).result.taskId
    local notes = #server.others
    local message
    assert.is_truthy(client.eventually(5, function()
      message = get(server, id).result.statusMessage
      return message
    end))
    state(server, id, "completed")
    assert.equal(notes, #server.others)
  end)

  it("outlives notifications/cancelled once it is a task", function()
    local answer = modern.post_tool(server, "run_code", sleeping(2), CAN)
    local id = server:wait(answer).result.taskId
    server:cancel(answer)
    server:cancel(id)
    assert.equal("slept\n", state(server, id, "completed").result.structuredContent.stdout)
  end)

  it("does not before that", function()
    local patient = modern.start { init = "pool.size = 0\ntasks.after_seconds = 30" }
    local id = modern.post_tool(patient, "run_code", sleeping(20), CAN)
    sandboxes.wait_for(patient, 1)
    patient:cancel(id)
    local gone = sandboxes.gone_after(patient:instance(), 5)
    assert.is_true(gone and gone < 1 * client.slow, tostring(gone))
    patient:ping()
    assert.is_nil(patient.answers[id])
    assert.equal(0, (patient:close()))
  end)

  it("is ended by tasks/cancel, its sandbox with it", function()
    local id = start(server, "run_code", sleeping(20))
    sandboxes.wait_for(server, 1)
    assert_ack(modern.ask(server, "tasks/cancel", { taskId = id }, CAN))
    local gone = sandboxes.gone_after(server:instance(), 5)
    assert.is_true(gone and gone < 1 * client.slow, tostring(gone))
    local task = state(server, id, "cancelled")
    assert.is_nil(task.result)
    assert.is_nil(task.error)
    assert_ack(modern.ask(server, "tasks/cancel", { taskId = id }, CAN))
    local rows = modern.ask_tool(server, "get_execution_history").result.structuredContent.result
    assert.equal("cancelled", rows[1].status)
  end)

  it("that has ended stays so when it is cancelled", function()
    local id = start(server, "run_code", sleeping(0.6))
    state(server, id, "completed")
    assert_ack(modern.ask(server, "tasks/cancel", { taskId = id }, CAN))
    assert.equal("slept\n", state(server, id, "completed").result.structuredContent.stdout)
  end)

  it("ends with the server, which waits for nobody", function()
    for _ = 1, 3 do start(server, "run_code", sleeping(25)) end
    sandboxes.wait_for(server, 3)
    local instance = server:instance()
    local status, took = server:finish()
    assert.equal(0, status)
    assert.is_true(took < 1500 * client.slow, took .. " ms")
    assert.is_truthy(sandboxes.gone_after(instance, 2 * client.slow))
  end)
end)

describe("task ids", function()
  local server
  setup(function() server = client.start { mute = true, seconds = 120, init = INIT } end)
  teardown(function() server:close() end)

  it("cannot be guessed", function()
    local seen = {}
    for _ = 1, 20 do
      local id = start(server, "steps")
      assert.matches("^%x+$", id)
      assert.is_true(#id >= 32)
      assert.is_nil(seen[id])
      seen[id] = true
      modern.ask(server, "tasks/cancel", { taskId = id }, CAN)
    end
  end)

  it("that are none are refused", function()
    local id = start(server, "steps")
    local others = { "", "x", id .. "0", id:sub(1, -2), id:upper() ~= id and id:upper() or "X", " " .. id, id .. "\n" }
    for at = 1, #id do
      local digit = id:sub(at, at) == "0" and "1" or "0"
      others[#others + 1] = id:sub(1, at - 1) .. digit .. id:sub(at + 1)
    end
    for _, other in ipairs { 1, true, json.null, json.array {}, { id = id } } do others[#others + 1] = other end
    for _, method in ipairs { "tasks/get", "tasks/update", "tasks/cancel" } do
      for _, other in ipairs(others) do
        local answer = modern.ask(server, method, { taskId = other, inputResponses = {} }, CAN)
        assert.equal(-32602, code_of(answer), method .. json.encode(other))
      end
      assert.equal(-32602, code_of(modern.ask(server, method, nil, CAN)))
    end
    assert.equal("working", get(server, id).result.status)
  end)

  it("are of no use to a client that has not declared the extension", function()
    local id = start(server, "steps")
    for _, method in ipairs { "tasks/get", "tasks/update", "tasks/cancel" } do
      for _, known in ipairs { id, "gate-test" } do
        local answer = modern.ask(server, method, { taskId = known, inputResponses = {} }, CANNOT_WAIT)
        assert.equal(-32021, code_of(answer), method)
        assert.same({}, answer.error.data.requiredCapabilities.extensions[TASKS])
      end
    end
    assert.equal("working", get(server, id).result.status)
  end)

  it("are of no use to the older revisions", function()
    server:initialize()
    for _, method in ipairs { "tasks/get", "tasks/update", "tasks/cancel", "tasks/list", "tasks/result" } do
      assert.equal(-32601, code_of(server:wait(server:request(method, { taskId = "x" }))))
    end
  end)
end)

describe("a tool that is always a task", function()
  local server
  setup(function() server = client.start { mute = true, seconds = 120, init = INIT } end)
  teardown(function() server:close() end)

  it("is refused to a client that knows none", function()
    local answer = modern.ask_tool(server, "fails", nil, CANNOT_WAIT)
    assert.equal(-32021, code_of(answer))
    assert.same({}, answer.error.data.requiredCapabilities.extensions[TASKS])
  end)

  it("whose result is an error is completed", function()
    local done = state(server, start(server, "fails"), "completed")
    assert.is_true(done.result.isError)
    assert.equal("no luck", done.result.content[1].text)
  end)

  it("whose call is an error has failed", function()
    local done = state(server, start(server, "breaks"), "failed")
    assert.same({ code = -32602, message = "bad luck", data = { why = "luck" } }, done.error)
    assert.equal("bad luck", done.statusMessage)
    assert.is_nil(done.result)
    done = state(server, start(server, "throws"), "failed")
    assert.equal(-32603, done.error.code)
    assert.is_nil(done.error.message:find("secret", 1, true))
    assert.matches("secret", server:stderr())
  end)

  it("tells its progress in its state", function()
    local before = #server.others
    local id = start(server, "steps", nil, { [CAPABILITIES] = CAN[CAPABILITIES], progressToken = 1,
      [modern.LEVEL] = "debug" })
    local seen = {}
    client.eventually(10 * client.slow, function()
      local now = get(server, id).result
      if now.statusMessage then seen[now.statusMessage] = true end
      return now.status ~= "working"
    end)
    local count = 0
    for message in pairs(seen) do
      assert.matches("^step %d+$", message)
      count = count + 1
    end
    assert.is_true(count >= 2, count .. " messages")
    assert.equal(before, #server.others)
  end)

  it("asks by its state, with a key for every question", function()
    local id = start(server, "confirm")
    local now = state(server, id, "input_required")
    local key, request = next(now.inputRequests)
    assert.is_nil(next(now.inputRequests, key))
    assert.equal("elicitation/create", request.method)
    assert.equal("Sure?", request.params.message)
    assert_ack(update(server, id, { ["unknown-key"] = { action = "accept" } }))
    assert.is_table(state(server, id, "input_required").inputRequests[key])
    assert_ack(update(server, id, { [key] = { action = "accept", content = { yes = true } } }))
    local second
    assert.is_truthy(client.eventually(5, function()
      local requests = get(server, id).result.inputRequests
      second = requests and next(requests)
      return second
    end))
    assert.not_equal(key, second)
    assert_ack(update(server, id, { [key] = { action = "cancel" } }))
    assert_ack(update(server, id, { [second] = { action = "decline" } }))
    assert.equal("accept, decline", text_of({ result = state(server, id, "completed").result }))
  end)

  it("takes the answers one by one", function()
    local id = start(server, "both")
    local requests = state(server, id, "input_required").inputRequests
    assert.same({ "A?", "B?" }, { requests.a.params.message, requests.b.params.message })
    assert_ack(update(server, id, { a = { action = "accept" } }))
    local now = get(server, id).result
    assert.equal("input_required", now.status)
    assert.is_nil(now.inputRequests.a)
    assert.is_table(now.inputRequests.b)
    assert_ack(update(server, id, { b = { action = "decline" } }))
    assert.equal("accept, decline", state(server, id, "completed").result.content[1].text)
    assert_ack(update(server, id, { b = { action = "accept" } }))
  end)

  it("takes no answer that is none", function()
    local id = start(server, "both")
    state(server, id, "input_required")
    for _, responses in ipairs { json.array {}, "x", 1, json.null, { a = 5 }, { a = "x" }, { a = json.null },
      { a = { action = "accept" }, b = json.array { 1 } } } do
      assert.equal(-32602, code_of(update(server, id, responses)), json.encode(responses))
    end
    local requests = state(server, id, "input_required").inputRequests
    assert.is_true(requests.a ~= nil and requests.b ~= nil)
    modern.ask(server, "tasks/cancel", { taskId = id }, CAN)
    assert.is_nil(state(server, id, "cancelled").inputRequests)
  end)

  it("does not ask a client that cannot be asked", function()
    local done = state(server, start(server, "confirm", nil, CANNOT_ASK), "failed")
    assert.equal(-32021, done.error.code)
    assert.is_table(done.error.data.requiredCapabilities.elicitation)
  end)

  it("but one that asks before it becomes a task asks by its answer", function()
    local result = modern.ask_tool(server, "ask_first", nil, CAN).result
    assert.equal("input_required", result.resultType)
    assert.is_nil(result.taskId)
    local answer = modern.ask_tool(server, "ask_first", nil, CAN, { inputResponses = { sure = { action = "accept" } } })
    assert.equal("task", answer.result.resultType)
    assert.is_nil(answer.result.inputRequests)
    assert.is_nil(answer.result.requestState)
    assert.equal("worked: accept", state(server, answer.result.taskId, "completed").result.content[1].text)
  end)

  it("heeds no hint of the 2025-11-25 experiment", function()
    local answer = modern.ask_tool(server, "list_supported_languages", nil, CAN, { task = { ttl = 60000 } })
    assert.equal("complete", answer.result.resultType)
  end)
end)

describe("a subscription to tasks", function()
  local server
  before_each(function() server = modern.start { init = INIT } end)
  after_each(function() server:close() end)

  local function listen(ids, meta)
    return modern.post(server, "subscriptions/listen", { notifications = { taskIds = ids } }, meta or CAN)
  end

  it("tells of every change of their status", function()
    local id = start(server, "confirm")
    local key = next(state(server, id, "input_required").inputRequests)
    local subscription = listen { id, "unknown" }
    local first = server:other()
    assert.equal("notifications/subscriptions/acknowledged", first.method)
    assert.same({ id }, { table.unpack(first.params.notifications.taskIds) })
    assert_ack(update(server, id, { [key] = { action = "accept" } }))
    local statuses = {}
    repeat
      local note = server:other()
      assert.equal("notifications/tasks", note.method)
      assert.equal(subscription, note.params._meta[modern.SUBSCRIPTION])
      assert.equal(id, note.params.taskId)
      assert_handle(note.params)
      statuses[#statuses + 1] = note.params.status
      local second = note.params.inputRequests and next(note.params.inputRequests)
      if second then assert_ack(update(server, id, { [second] = { action = "decline" } })) end
    until note.params.status == "completed"
    assert.same({ "working", "input_required", "working", "completed" }, statuses)
    assert.equal("completed", get(server, id).result.status)
    server:cancel(subscription)
    local other = start(server, "fails")
    state(server, other, "completed")
    assert.equal(0, #server.others)
  end)

  it("needs the extension, and ids", function()
    local answer = server:wait(listen({ "x" }, CANNOT_WAIT))
    assert.equal(-32021, code_of(answer))
    assert.same({}, answer.error.data.requiredCapabilities.extensions[TASKS])
    for _, ids in ipairs { "x", 1, { 1 }, { a = "x" } } do
      assert.equal(-32602, code_of(server:wait(listen(ids))), json.encode(ids))
    end
  end)
end)

describe("tasks are kept", function()
  it("for tasks.keep_seconds after their end, no less", function()
    modern.with({ mute = true, init = init_with "tasks.keep_seconds = 2" }, function(server)
      local id = start(server, "run_code", sleeping(2.5)) -- longer than it is kept
      state(server, id, "completed")
      client.sleep(1)
      assert.equal("completed", get(server, id).result.status)
      client.sleep(1.5)
      local answer = get(server, id)
      assert.equal(-32602, code_of(answer))
      assert.matches("kept", answer.error.message)
    end)
  end)

  it("while somebody asks for them when they wait for an answer", function()
    modern.with({ mute = true, init = init_with "tasks.keep_seconds = 2" }, function(server)
      local id = start(server, "confirm")
      for _ = 1, 4 do
        client.sleep(0.7)
        assert.equal("input_required", get(server, id).result.status)
      end
      client.sleep(2.5)
      assert.equal("cancelled", get(server, id).result.status)
    end)
  end)

  it("up to tasks.max; then the oldest that has ended goes, and no work begins when all work", function()
    modern.with({ mute = true, init = init_with "tasks.max = 2" }, function(server)
      local ids = {}
      for i = 1, 3 do
        ids[i] = start(server, "fails")
        state(server, ids[i], "completed")
      end
      assert.equal(-32602, code_of(get(server, ids[1])))
      assert.equal("completed", get(server, ids[3]).result.status)
      for i = 1, 2 do ids[i] = start(server, "confirm") end
      assert.equal(-32602, code_of(get(server, ids[3])))
      for _, name in ipairs { "confirm", "run_code" } do
        local answer = modern.ask_tool(server, name, python "print(1)", CAN)
        assert.equal("complete", answer.result.resultType)
        assert.is_true(answer.result.isError)
        assert.matches("tasks.max", answer.result.content[1].text, 1, true)
      end
      modern.ask(server, "tasks/cancel", { taskId = ids[1] }, CAN)
      state(server, ids[1], "cancelled")
      ids[1] = start(server, "confirm")
      for i = 1, 2 do assert.equal("input_required", state(server, ids[i], "input_required").status) end
    end)
  end)
end)
