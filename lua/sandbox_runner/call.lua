--- One request that takes time: a task of its own, what its body may do
-- meanwhile (the context), and its end, whatever that is.
local core = require "sandbox_runner.core"
local defer = require "sandbox_runner.defer"
local legacy = require "sandbox_runner.legacy"
local rpc = require "sandbox_runner.rpc"
local schema = require "sandbox_runner.schema"

local call = {}

--- What a method returns whose answer comes later.
call.DEFERRED = {}

local REPORT_GAP_MS = 100    -- between two progress notes that the runner makes
local PROGRESS_GAP_MS = 10   -- ... and that a handler of init.lua makes
-- In flight at once; runs have a narrower gate of their own.
local MAX_CALLS, MAX_OF_CLIENT, MAX_BYTES = 4000, 1000, 64 << 20
local MAX_LISTENERS, MAX_LISTENERS_OF_CLIENT = 1000, 500
local MAX_LOG = 1 << 20      -- bytes of notes in one call; more are dropped
local STATE_SECONDS = 600    -- how long a client may take to answer an input request
local CAN_ASK = { ["tools/call"] = true, ["prompts/get"] = true, ["resources/read"] = true }

local function throw(code, message, data)
  if math.type(code) ~= "integer" or type(message) ~= "string" then
    error("protocol_error: an error has a whole number and a text", 2)
  end
  error({ rpc = { code = code, message = message, data = data } }, 0)
end

local function progress_token(message)
  if message.progress_token then return message.progress_token end
  local meta = message.params._meta
  local token = rpc.is_object(meta) and meta.progressToken
  if type(token) == "string" or math.type(token) == "integer" then return token end
end

local function is_live(state)
  return not state.finished and not state.cancelled
end

local function send_progress(req, value, total, message)
  local params = { progressToken = req.call.token, progress = value, total = total }
  for _, name in ipairs(req.rules.progress) do params[name] = name == "message" and message or nil end
  req.sink.send(core.json.encode(rpc.notification("notifications/progress", params)))
end

-- Whether a note may go out now, and if so the time of the last one is now.
local function is_due(req, gap)
  local state, now = req.call, req.server.now_ms()
  if not is_live(state) or now - state.last_ms < gap then return false end
  state.last_ms = now
  return true
end

-- Progress is the time since the call began, so it only ever grows; what the
-- runner says about its stage becomes the message and the expected end.
local function reporter(req)
  local state = req.call
  return function(message, elapsed, total)
    if not is_due(req, REPORT_GAP_MS) then return end
    local passed = math.floor(req.server.now_ms() - state.started_ms) / 1000
    state.last = math.max(passed, 0.001, state.last + 0.001)
    local goal
    if total and total > 0 then
      goal = math.max(state.last, math.floor((state.last + total - (elapsed or 0)) * 100) / 100)
    end
    send_progress(req, state.last, goal, message)
  end
end

local function is_finite(value)
  return type(value) == "number" and value == value and math.abs(value) ~= math.huge
end

local function progress_sender(req)
  local state = req.call
  return function(done, total, message)
    if not is_finite(done) then error("progress: done must be a number, got " .. schema.show(done), 2) end
    if total ~= nil and not is_finite(total) then error("progress: total must be a number or nil", 2) end
    if message ~= nil and type(message) ~= "string" then error("progress: message must be a string or nil", 2) end
    if not state.token or done <= state.last then return end
    local is_last = done == total and not state.complete
    if not is_due(req, is_last and 0 or PROGRESS_GAP_MS) then return end
    state.last, state.complete = done, done == total
    send_progress(req, done, total, message)
  end
end

local function log_sender(req)
  local bytes = 0
  return function(level, data, logger)
    local rank, wanted = legacy.level_rank[level], req.log_level
    if not rank then error("unknown log level " .. schema.show(level), 2) end
    if data == nil then error("log: there is no data; give a text or a table", 2) end
    if not req.rules.modern then wanted = req.session.log_level end
    if not wanted or rank < legacy.level_rank[wanted] or bytes > MAX_LOG or not is_live(req.call) then return end
    local text = core.json.encode(rpc.notification("notifications/message",
      { level = level, logger = logger, data = data }))
    bytes = bytes + #text
    if bytes <= MAX_LOG then req.sink.send(text) end
  end
end

local function require_capability(req)
  return function(name)
    if req.client.capabilities[name] then return end
    local text = ("this needs a client with the capability %q"):format(name)
    if not req.rules.modern then throw(rpc.INVALID_REQUEST, text) end
    throw(rpc.MISSING_CAPABILITY, text, { requiredCapabilities = { [name] = {} } })
  end
end

-- Revision 2026-07-28 has no requests to the client: the answer of this request
-- says what is wanted, and the client sends it again with the answers. The handler
-- then begins anew, and finds all that were given so far.
local function ask_modern(ctx, requests, wanted_state)
  local answers, complete = {}, true
  for key in pairs(requests) do
    answers[key] = ctx.answers[key]
    complete = complete and rpc.is_object(answers[key])
  end
  if complete then return answers end
  error({ input_required = { requests = requests, state = wanted_state } }, 0)
end

local function asker(req, ctx)
  return function(requests, wanted_state)
    for _, request in pairs(requests) do
      local needed = legacy.capability_for(request.method)
      if needed then ctx.require(needed) end
    end
    if req.rules.modern then return ask_modern(ctx, requests, wanted_state) end
    return legacy.ask(req, requests, throw)
  end
end

--- What a body may use; see the fields below. overrides replaces some (a task
-- asks and reports in its own way).
--   server, req, client {key, capabilities, info}
--   report(message, elapsed_s, total_s): how far a run is; nil without a token
--   progress(done, total, message): the same in numbers of the caller's; done grows
--   log(level, data, logger): a note to the client, if it wants that level
--   ask(requests, state) -> answers: requests = { key = { method, params } }
--   elicit, sample (params) and roots () -> result: one such request
--   require(capability): throws unless the client has it
--   answers, state: what the client brought back (revision 2026-07-28)
--   protocol_error(code, message, data): ends the call with this error
--   changed(kind), updated(uri): tells the clients that listen
--   sleep(ms), detach(ms)
function call.context(req, overrides)
  local ctx
  ctx = { server = req.server, req = req, client = req.client, answers = req.answers or {}, state = req.state,
    report = req.call.token and reporter(req) or nil, progress = progress_sender(req), log = log_sender(req),
    require = require_capability(req), protocol_error = throw, sleep = core.loop.sleep,
    changed = function(kind) req.server.catalog:changed(kind) end,
    updated = function(uri) req.server.catalog:updated(uri) end,
    detach = function(ms) if req.sink.detach then req.sink.detach(ms) end end }
  ctx.ask = asker(req, ctx)
  local asked = 0
  local function one(method)
    return function(params)
      asked = asked + 1 -- the same question has the same key when the handler begins anew
      local key = "answer-" .. asked
      return ctx.ask({ [key] = { method = method, params = params } })[key]
    end
  end
  ctx.elicit, ctx.sample, ctx.roots = one "elicitation/create", one "sampling/createMessage", one "roots/list"
  for key, value in pairs(overrides or {}) do ctx[key] = value end
  return ctx
end

local function trace_of(thrown)
  if type(thrown) == "table" and (thrown.code == "cancelled" or thrown.rpc or thrown.input_required) then
    return thrown
  end
  return debug.traceback(tostring(thrown), 2)
end

--- Runs body(ctx). Returns what became of it, a table with one of: result;
-- error {code, message, data}; cancelled = true; input_required {requests, state}.
function call.protect(body, ctx)
  local ok, result, code, text, data = xpcall(body, trace_of, ctx)
  if ok and result ~= nil then return { result = result } end
  if ok then return { error = { code = code, message = text, data = data } } end
  if type(result) == "string" then
    return { error = ctx.server:internal_error(ctx.req.message.method, result) }
  elseif result.rpc then
    return { error = result.rpc }
  elseif result.input_required then
    return { input_required = result.input_required }
  end
  return { cancelled = true }
end

-- What a sealed state is bound to: a state of one request is of no use to another.
local function bound_text(req)
  local params = req.message.params
  return core.json.encode(core.json.array { req.message.method, tostring(params.name or params.uri),
    params.arguments or {}, tostring(req.client.key) })
end

-- What the next round has to know: the handler's state, and the answers of
-- earlier rounds, which the client does not send again.
local function kept_state(req, wanted)
  local answers = {}
  for key, answer in pairs(req.answers or {}) do
    if rpc.is_object(answer) and not wanted.requests[key] then answers[key] = answer end
  end
  if wanted.state == nil and not next(answers) then return nil end
  return req.server.state:seal({ state = wanted.state, answers = answers }, bound_text(req), STATE_SECONDS)
end

local function input_required(req, wanted)
  if not CAN_ASK[req.message.method] then
    return nil, { code = rpc.INTERNAL_ERROR, message = req.message.method .. " cannot ask for input" }
  end
  local ok, state = pcall(kept_state, req, wanted)
  if not ok then return nil, req.server:internal_error(req.message.method, state) end
  return { resultType = "input_required", inputRequests = next(wanted.requests) and wanted.requests or nil,
    requestState = state }
end

-- What a handler returned may be nothing that can be sent.
local function answer_with(req, result)
  local ok, trace = xpcall(req.answer, debug.traceback, req, result)
  if not ok then req:fail(trace) end
end

-- The end of a call, whatever it was; only here it leaves the tables.
local function finish(req, outcome)
  local state, session, server = req.call, req.session, req.server
  local result, failure = outcome.result, outcome.error
  if outcome.input_required then result, failure = input_required(req, outcome.input_required) end
  state.finished = true
  if session.calls[req.message.key] == req then session.calls[req.message.key] = nil end
  server.running[req] = nil
  server.call_bytes = server.call_bytes - req.message.bytes
  if state.cancelled or outcome.cancelled then
    req.reply(nil)
  elseif failure then
    req.reply(rpc.error(req.message.id, failure.code, failure.message, failure.data))
  else
    answer_with(req, result)
  end
  if server:in_flight() == 0 then server.on_idle() end
end

local function open_state(req, sealed)
  if sealed == nil then return {} end
  if type(sealed) ~= "string" then return nil, "requestState must be a string" end
  return req.server.state:open(sealed, bound_text(req))
end

-- What the client brought back from an input request: true, or nil, why.
local function take_answers(req)
  if not req.rules.modern then return true end
  local params = req.message.params
  local answers = rpc.optional(params.inputResponses)
  if answers ~= nil and not rpc.is_object(answers) then return nil, "inputResponses must be an object" end
  local kept, why = open_state(req, rpc.optional(params.requestState))
  if not kept then return nil, why end
  req.state, req.answers = kept.state, kept.answers or {}
  for key, answer in pairs(answers or {}) do req.answers[key] = answer end
  return true
end

-- Why no more can be taken, or nil.
local function refuse_more(req, background)
  local all, own = 0, 0
  for other in pairs(req.server.running) do
    if other.call.background == background then
      all = all + 1
      if other.client.key == req.client.key then own = own + 1 end
    end
  end
  if background then
    if all < MAX_LISTENERS and own < MAX_LISTENERS_OF_CLIENT then return nil end
    return ("%d listen already; end some of them."):format(own)
  end
  if own >= MAX_OF_CLIENT or all >= MAX_CALLS then
    return ("%d calls are in flight; wait for some of them."):format(own)
  elseif req.server.call_bytes + req.message.bytes > MAX_BYTES and all > 0 then
    return "The calls in flight hold too much data; wait for some of them."
  end
end

--- A tool result that tells the model why there is none.
function call.refusal(text)
  return { content = core.json.array { { type = "text", text = text } }, isError = true }
end

local function begin(req, body, background)
  local text = refuse_more(req, background)
  if text and req.message.method == "tools/call" then
    return call.refusal(text)
  elseif text then
    return nil, rpc.INTERNAL_ERROR, text
  end
  local taken, why = take_answers(req)
  if not taken then return nil, rpc.INVALID_PARAMS, why end
  req.call = { started_ms = req.server.now_ms(), token = progress_token(req.message),
    last = -math.huge, last_ms = -math.huge, background = background }
  req.session.calls[req.message.key], req.server.running[req] = req, true
  req.server.call_bytes = req.server.call_bytes + req.message.bytes
  req.call.task = req.server.spawn(function()
    finish(req, req.call.cancelled and { cancelled = true } or call.protect(body, call.context(req)))
  end)
  return call.DEFERRED
end

--- Runs body(ctx) in a task of its own and answers with what it returns: a
-- result, or nil, code, text, data. Return what this returns from a method.
function call.start(req, body)
  return begin(req, body, false)
end

--- A call that lasts until the client ends it or the server stops:
-- subscribe() begins it and returns a function that ends it. final: the result
-- when the server stops. What the request brought is not kept meanwhile.
function call.listen(req, subscribe, final)
  local message, over = req.message, core.loop.event()
  req.message = { kind = message.kind, id = message.id, key = message.key, method = message.method, bytes = 0,
    params = {} }
  req.client = { key = req.client.key, capabilities = {} }
  req.stop_listening = function() over:set() end
  return begin(req, function()
    local guard <close> = defer(subscribe())
    over:wait()
    return final
  end, true)
end

--- Ends a call without an answer.
function call.cancel(req, reason)
  req.call.cancelled = true
  if req.call.task then req.call.task:cancel(reason) end
end

return call
