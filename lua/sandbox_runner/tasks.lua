--- The tasks extension (io.modelcontextprotocol/tasks) of revision 2026-07-28.
--
-- A call that takes long is answered with a handle. Its work goes on without the
-- request: the client asks for its state, its input requests and its result by
-- tasks/get, answers by tasks/update and ends it by tasks/cancel.
local core = require "sandbox_runner.core"
local call = require "sandbox_runner.call"
local defer = require "sandbox_runner.defer"
local legacy = require "sandbox_runner.legacy"
local rpc = require "sandbox_runner.rpc"
local schema = require "sandbox_runner.schema"

local json, loop = core.json, core.loop

local tasks = {}

--- The extension as capabilities name it.
tasks.EXTENSION = "io.modelcontextprotocol/tasks"

local Store = {}
Store.__index = Store

local POLL_MS = 500
local MAX_BYTES = 64 << 20  -- of all results that wait to be fetched
local MAX_RESULT = 7 << 20  -- of one: it has to fit an answer
local MAX_MESSAGE = 500
local MAX_LISTENERS = 16    -- of one task: each is sent the whole result
local ENDED = { completed = true, failed = true, cancelled = true }

local BUSY = "Busy: %d tasks are at work, the most that this server takes (tasks.max). "
  .. "Try again when some of them have ended."
local UNKNOWN = "there is no task %s: results are kept for %g seconds after the end, fewer when there are many"
local TOO_LARGE = "the result takes %d bytes, more than is kept for a task (%d); ask for less at a time"
local ABANDONED = "nobody asked for this task for %g seconds while it waited for answers"

--- Whether the client of this request has declared the extension.
function tasks.declared(req)
  local extensions = req.client.capabilities.extensions
  return rpc.is_object(extensions) and rpc.is_object(extensions[tasks.EXTENSION])
end

--- What a method returns to a client that has not declared the extension.
function tasks.undeclared()
  return nil, rpc.MISSING_CAPABILITY,
    ("this needs a client that declares the extension %q in its capabilities"):format(tasks.EXTENSION),
    { requiredCapabilities = { extensions = { [tasks.EXTENSION] = {} } } }
end

local function iso(seconds)
  local whole = math.floor(seconds)
  return os.date("!%Y-%m-%dT%H:%M:%S", whole) .. (".%03dZ"):format(math.floor((seconds - whole) * 1000))
end

-- The handle, as of now. Work that goes on ends later, so what is left of its
-- time to live is at least what a result has.
local function handle(self, task)
  local lived_ms = (task.ended_ms or self.now_ms()) - task.created_ms
  return { taskId = task.id, status = task.status, statusMessage = task.message, createdAt = iso(task.created),
    lastUpdatedAt = iso(task.updated), ttlMs = math.floor(lived_ms) + self.keep_ms, pollIntervalMs = POLL_MS }
end

-- The handle and what belongs to its status (DetailedTask).
local function details(self, task)
  local out = handle(self, task)
  out.result, out.error = task.result, task.failure
  if task.status == "input_required" then
    out.inputRequests = {}
    for key, asked in pairs(task.asked) do out.inputRequests[key] = asked.request end
  end
  return out
end

local function set_status(self, task, status, message)
  task.status, task.message, task.updated = status, message, self.wall()
  for listener in pairs(task.listeners) do listener(details(self, task)) end
end

local function set_message(self, task, message)
  task.message = core.text.cut(core.text.repair(tostring(message)), MAX_MESSAGE)
  task.updated = self.wall()
end

-- Ended tasks stand in the order of their ends in self.ended, from first to last.

local function drop(self, at)
  local task = self.ended[at]
  self.ended[at] = false
  self.tasks[task.id] = nil
  self.count, self.bytes = self.count - 1, self.bytes - task.bytes
  self.held[task.client] = self.held[task.client] > 1 and self.held[task.client] - 1 or nil
  while self.ended[self.first] == false do
    self.ended[self.first] = nil
    self.first = self.first + 1
  end
end

-- The place of the oldest among those of the client that has the most: nobody
-- pushes out the results of others.
local function most_dispensable(self)
  local most = 0
  for _, number in pairs(self.held) do most = math.max(most, number) end
  for at = self.first, self.last do
    local task = self.ended[at]
    if task and self.held[task.client] == most then return at end
  end
end

local function make_room(self)
  while self.first <= self.last and (self.count > self.max or self.bytes > MAX_BYTES) do
    drop(self, most_dispensable(self))
  end
end

-- A task of its own drops what has expired, as long as there is anything ended.
local function watch_expiry(self)
  if self.watching then return end
  self.watching = true
  self.spawn(function()
    while self.first <= self.last do
      local left = self.ended[self.first].ended_ms + self.keep_ms - self.now_ms()
      if left <= 0 then drop(self, self.first) else loop.sleep(math.ceil(left)) end
    end
    self.watching = false
  end)
end

local function end_as(self, task, status, message)
  task.ended_ms = self.now_ms()
  self.last = self.last + 1
  self.ended[self.last] = task
  self.held[task.client] = (self.held[task.client] or 0) + 1
  self.bytes = self.bytes + task.bytes
  set_status(self, task, status, message)
  make_room(self)
  watch_expiry(self)
end

-- A value as it is sent, and how many bytes that takes; nil, why: it cannot be.
local function encoded(value)
  local ok, out = pcall(json.encoded, value)
  if not ok then return nil, out end
  return out, #json.encode(out)
end

local function settle_result(self, task, result)
  if result.resultType == nil then result.resultType = "complete" end
  local text, bytes = encoded(result)
  local failure
  if not text then
    failure = task.server:internal_error("the result of a task", bytes)
  elseif bytes > MAX_RESULT then
    failure = { code = rpc.INTERNAL_ERROR, message = TOO_LARGE:format(bytes, MAX_RESULT) }
  end
  if failure then
    task.failure = failure
    return end_as(self, task, "failed", failure.message)
  end
  task.result, task.bytes = text, bytes
  end_as(self, task, "completed")
end

local function settle(self, task, outcome)
  if outcome.result then return settle_result(self, task, outcome.result) end
  if outcome.cancelled then return end_as(self, task, "cancelled", task.reason) end
  local failure = outcome.error or { code = rpc.INTERNAL_ERROR, message = "a task asks by ctx.ask alone" }
  if not encoded(failure.data) then failure = { code = failure.code, message = failure.message } end
  task.failure = failure
  end_as(self, task, "failed", failure.message)
end

-- The end of the work, whatever it was; only here it leaves the tables.
local function finish(self, task, outcome)
  self.jobs[task], self.working, task.work = nil, self.working - 1, nil
  if task.id and not ENDED[task.status] then settle(self, task, outcome) end
  task.outcome = not task.id and outcome or nil
  task.over:set()
  if task.server:in_flight() == 0 then task.server.on_idle() end
end

-- A key is used once in the life of a task, so that an answer has one meaning.
local function fresh_key(task, key)
  local fresh, n = key, 1
  while task.keys[fresh] do
    n = n + 1
    fresh = ("%s-%d"):format(key, n)
  end
  task.keys[fresh] = true
  return fresh
end

local function wait_for_answers(self, task, ask)
  task.polled_ms = self.now_ms()
  while ask.missing > 0 do
    local left = task.polled_ms + self.keep_ms - self.now_ms()
    if left <= 0 then
      task.reason = ABANDONED:format(self.keep_ms / 1000)
      error({ code = "cancelled", message = task.reason }, 0)
    end
    ask.answered:wait(left)
  end
end

local function resume_work(self, task)
  if task.status == "input_required" and not next(task.asked) then set_status(self, task, "working") end
end

local function ask_in_task(self, task, ctx, requests)
  local ask, waiting = { missing = 0, answers = {}, answered = loop.event() }, {}
  for key, request in pairs(requests) do
    local needed = legacy.capability_for(request.method)
    if needed then ctx.require(needed) end
    local fresh = fresh_key(task, key)
    if fresh == key and rpc.is_object(ctx.answers[key]) then -- answered before this was a task
      ask.answers[key] = ctx.answers[key]
    else
      waiting[fresh] = { ask = ask, key = key, request = json.encoded(request) }
      ask.missing = ask.missing + 1
    end
  end
  if ENDED[task.status] then error({ code = "cancelled", message = task.message }, 0) end
  if ask.missing == 0 then return ask.answers end
  local guard <close> = defer(function()
    for key in pairs(waiting) do task.asked[key] = nil end
    resume_work(self, task)
  end)
  for key, asked in pairs(waiting) do task.asked[key] = asked end
  set_status(self, task, "input_required", "waiting for the answers to its input requests")
  wait_for_answers(self, task, ask)
  return ask.answers
end

-- While the call is not a task yet, its context is the request's.
local function work_context(self, req, request_ctx, task)
  local ctx
  local function say(message)
    if message and not ENDED[task.status] then set_message(self, task, message) end
  end
  ctx = call.context(req, {
    ask = function(requests, state)
      if not task.id then return request_ctx.ask(requests, state) end
      return ask_in_task(self, task, ctx, requests)
    end,
    report = function(message, elapsed, total)
      if task.id then return say(message) end
      if request_ctx.report then request_ctx.report(message, elapsed, total) end
    end,
    progress = function(done, total, message)
      if not task.id then return request_ctx.progress(done, total, message) end
      say(message or total and ("%g of %g"):format(done, total) or ("%g"):format(done))
    end,
    detach = function(ms)
      if not task.id then request_ctx.detach(ms) end
    end,
  })
  return ctx
end

local function start(self, req, body, request_ctx)
  local task = { client = req.client.key, server = req.server, status = "working", bytes = 0, asked = {}, keys = {},
    listeners = {}, listening = 0, over = loop.event() }
  self.jobs[task], self.working = true, self.working + 1
  local ctx = work_context(self, req, request_ctx, task)
  task.work = self.spawn(function()
    local outcome = { cancelled = true }
    local guard <close> = defer(function() finish(self, task, outcome) end)
    if not task.stopped then outcome = call.protect(body, ctx) end
  end)
  return task
end

local function stop(task, reason)
  task.stopped, task.reason = true, reason
  if task.work then task.work:cancel(reason) end
end

-- From here on the work is the task's, whatever becomes of the request.
local function publish(self, task)
  task.id, task.created, task.created_ms = core.sys.random_hex(16), self.wall(), self.now_ms()
  task.updated = task.created
  self.tasks[task.id] = task
  self.count = self.count + 1
  make_room(self)
  local out = handle(self, task)
  out.resultType = "task"
  return out
end

-- The outcome of work that ended before it became a task, as that of its request.
local function plain(request_ctx, outcome)
  local failure, wanted = outcome.error, outcome.input_required
  if outcome.result then return outcome.result end
  if failure then return nil, failure.code, failure.message, failure.data end
  if wanted then return request_ctx.ask(wanted.requests, wanted.state) end
  error({ code = "cancelled", message = "cancelled" }, 0)
end

--- Serves a call of a tool with task = "slow" or "always" for a client that has
-- declared the extension: what tools/call is to return. body(ctx) -> result | nil,
-- code, text, data; see call.lua. "slow": a call that ends within
-- tasks.after_seconds is answered as if there were no tasks.
function Store:call(req, tool, body)
  return call.start(req, function(request_ctx)
    if self.working >= self.max then return call.refusal(BUSY:format(self.working)) end
    local task = start(self, req, body, request_ctx)
    if tool.task ~= "always" then
      local guard <close> = defer(function(_, failure)
        if failure then stop(task, type(failure) == "table" and failure.message or "the request has ended") end
      end)
      task.over:wait(self.after_ms)
      if self.stopping then task.over:wait() end -- nobody could ask for it any more
      if task.outcome then return plain(request_ctx, task.outcome) end
    end
    return publish(self, task)
  end)
end

-- The task that a request names; or nil, code, text, data.
local function find(self, req)
  if not tasks.declared(req) then return tasks.undeclared() end
  local id = req.message.params.taskId
  if type(id) ~= "string" then return nil, rpc.INVALID_PARAMS, req.message.method .. ": taskId must be a string" end
  local task = self.tasks[id]
  if not task or task.client ~= req.client.key then
    return nil, rpc.INVALID_PARAMS, UNKNOWN:format(schema.show(id), self.keep_ms / 1000)
  end
  task.polled_ms = self.now_ms()
  return task
end

local METHODS = {}

METHODS["tasks/get"] = function(self, req)
  local task, code, text, data = find(self, req)
  if not task then return nil, code, text, data end
  return details(self, task)
end

local function take_answer(task, key, answer)
  local asked = task.asked[key]
  if not asked then return end
  task.asked[key] = nil
  asked.ask.answers[asked.key] = answer
  asked.ask.missing = asked.ask.missing - 1
  if asked.ask.missing == 0 then asked.ask.answered:set() end
end

METHODS["tasks/update"] = function(self, req)
  local task, code, text, data = find(self, req)
  if not task then return nil, code, text, data end
  local answers = req.message.params.inputResponses
  if not rpc.is_object(answers) then
    return nil, rpc.INVALID_PARAMS, "tasks/update: inputResponses must be an object"
  end
  for key, answer in pairs(answers) do
    if task.asked[key] and not rpc.is_object(answer) then
      return nil, rpc.INVALID_PARAMS, ("tasks/update: the answer to %s must be an object"):format(schema.show(key))
    end
  end
  for key, answer in pairs(answers) do take_answer(task, key, answer) end
  resume_work(self, task)
  return {}
end

local function cancel(self, task, reason)
  if task.id and ENDED[task.status] then return end
  if task.id then end_as(self, task, "cancelled", reason) end
  stop(task, reason)
end

METHODS["tasks/cancel"] = function(self, req)
  local task, code, text, data = find(self, req)
  if not task then return nil, code, text, data end
  cancel(self, task, "cancelled by the client")
  return {}
end

--- Follows tasks for a subscription: send(params) at every change of status, with
-- the params of notifications/tasks, a new table each. Ids that are not the client's
-- tasks, or that 16 follow already, are left out. Returns the ids that are followed and a function that ends it.
function Store:listen(client, ids, send)
  local followed, honoured = {}, json.array {}
  local function listener(state) send(state) end
  for _, id in ipairs(ids) do
    local task = self.tasks[id]
    if task and task.client == client and not task.listeners[listener] and task.listening < MAX_LISTENERS then
      task.listeners[listener], task.listening = true, task.listening + 1
      followed[#followed + 1], honoured[#honoured + 1] = task, id
    end
  end
  return honoured, function()
    for _, task in ipairs(followed) do task.listeners[listener], task.listening = nil, task.listening - 1 end
  end
end

--- How many tasks have work that has not ended, cancelled work included.
function Store:in_flight() return self.working end

--- Cancels all work; reason: one line, for the clients that still ask. With
-- published_only calls that are no tasks yet go on, and will not become any.
function Store:cancel_all(reason, published_only)
  local jobs = {}
  self.stopping = true
  for task in pairs(self.jobs) do
    if task.id or not published_only then jobs[#jobs + 1] = task end
  end
  for _, task in ipairs(jobs) do cancel(self, task, reason or "the server stops") end
end

--- A store of tasks. options: config (tasks = { after_seconds, keep_seconds, max }),
-- spawn(fn) -> task, now_ms() monotonic, wall() Unix seconds. store.methods are
-- tasks/get, tasks/update and tasks/cancel as methods of mcp.lua.
function tasks.new(options)
  local wanted = options.config.tasks
  local store = setmetatable({ after_ms = wanted.after_seconds * 1000, keep_ms = math.ceil(wanted.keep_seconds * 1000),
    max = wanted.max, tasks = {}, count = 0, jobs = {}, working = 0, ended = {}, held = {}, first = 1, last = 0,
    bytes = 0, methods = {}, spawn = options.spawn, now_ms = options.now_ms, wall = options.wall }, Store)
  for name, method in pairs(METHODS) do
    store.methods[name] = function(req) return method(store, req) end
  end
  return store
end

return tasks
