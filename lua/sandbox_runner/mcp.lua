--- The MCP server without a transport: one server, and a session for each
-- client that it talks to.
--
-- Every message finds its era by itself (a process or connection is never tied
-- to one): legacy.lua and modern.lua hold what the eras do not share, features.lua
-- what they do. A method is a function(req) that returns a result, or nil, code,
-- text, data, or call.DEFERRED; a req is made in new_request below.
local core = require "sandbox_runner.core"
local call = require "sandbox_runner.call"
local defer = require "sandbox_runner.defer"
local features = require "sandbox_runner.features"
local legacy = require "sandbox_runner.legacy"
local modern = require "sandbox_runner.modern"
local request = require "sandbox_runner.request"
local rpc = require "sandbox_runner.rpc"
local schema = require "sandbox_runner.schema"
local state = require "sandbox_runner.state"

local mcp = {}

local MAX_MALFORMED = 20      -- then silence: two broken peers must not feed each other
local MAX_ANSWER = 8 << 20    -- bytes; clients end a connection over lines of 10 MiB
local MAX_SUBSCRIPTIONS = 1000
local ASK_MS = 300000         -- a person may be behind the client's answer
local TOO_LARGE = "the answers of this batch are too large for one line; send the calls one by one"
local ONE_TOO_LARGE = "the answer takes %d bytes, more than clients read (%d); ask for less at a time"
local NUL_TEXT = "An argument contains a NUL character (U+0000); send it without."
local UNPRINTABLE = "the answer cannot be written as JSON"

local INFO = { title = "SandboxRunner",
  description = "Runs code snippets in disposable, locked-down containers" }

local Server, Session, Request = {}, {}, {}
Server.__index, Session.__index, Request.__index = Server, Session, Request

--- Which rules a message falls under: "modern" or "legacy" (MCP.md has the table
-- of the specification: the envelope decides, nothing else).
function mcp.era(message)
  if message.kind ~= "request" then return "legacy" end
  if modern.claimed_version(message.params) ~= nil then return "modern" end
  return modern.methods[message.method] and "modern" or "legacy"
end

--- Answers with a result in the form of the request's revision.
function Request:answer(result)
  local era = self.era == "modern" and modern or legacy
  self.reply(rpc.result(self.message.id, era.decorate(self, result)))
end

--- Answers for a fault of ours, which is logged with its trace.
function Request:fail(trace)
  local failure = self.server:internal_error(self.message.method, trace)
  self.reply(rpc.error(self.message.id, failure.code, failure.message))
end

-- The text of an answer that a client can take; what cannot be encoded is a fault
-- of a handler.
local function encoded(server, answer)
  local ok, text = pcall(core.json.encode, answer)
  if ok and #text <= MAX_ANSWER then return text, answer end
  if ok then
    answer = rpc.error(answer.id, rpc.INTERNAL_ERROR, ONE_TOO_LARGE:format(#text, MAX_ANSWER))
    return core.json.encode(answer), answer
  end
  local failure = server:internal_error("an answer", text)
  answer = rpc.error(answer.id, failure.code, UNPRINTABLE .. "; " .. failure.message)
  return core.json.encode(answer), answer
end

-- Everything a method may need: session, server, message, era, rules (the field
-- sets of the revision), client {key, capabilities, info}, log_level, sink, and
-- reply(answer or nil), to be called once.
local function new_request(session, message, sink)
  local era = mcp.era(message)
  local req = { session = session, server = session.server, message = message, sink = sink, era = era,
    rules = era == "modern" and modern.rules or session.rules or legacy.versions[legacy.NEWEST],
    client = { key = session.client, capabilities = session.capabilities, info = session.client_info } }
  req.reply = function(answer)
    if req.replied then return end
    req.replied = true
    local metrics = session.server.metrics
    if metrics then metrics:request(message.method, era, answer and answer.error == nil) end
    if not answer or session.closed then return sink.reply(nil) end
    sink.reply(encoded(session.server, answer))
  end
  return setmetatable(req, Request)
end

local function method_of(req)
  return req.server:method(req.era, req.message.method)
end

local function refuse_envelope(req)
  local code, text, data = modern.refuse_version(req.message.params)
  if code then return code, text, data end
  if not method_of(req) then
    return rpc.METHOD_NOT_FOUND, ("unknown method %s in revision %s"):format(schema.show(req.message.method),
      modern.versions[1])
  end
  code, text = modern.refuse(req)
  if code then return code, text end
  req.client.capabilities, req.client.info, req.log_level = modern.client_of(req)
end

-- Why a request is not served at all: code, text, data; or nil.
local function refuse_request(req)
  local session, message = req.session, req.message
  if session.calls[message.key] then
    return rpc.INVALID_REQUEST, "a call with this id is still in flight"
  end
  local code, text, data
  if req.era == "modern" then
    code, text, data = refuse_envelope(req)
  elseif not method_of(req) then
    code, text = rpc.METHOD_NOT_FOUND, "unknown method " .. schema.show(message.method)
  else
    code, text = legacy.refuse(req)
  end
  if code then return code, text, data end
  if message.nul and message.method ~= "tools/call" then
    return rpc.INVALID_PARAMS, "a string contains a NUL character (U+0000)"
  end
end

-- A sound call with a NUL in it is for the model to mend, not for its host.
local function is_nul_call(req)
  local params = req.message.params
  local arguments = rpc.optional(params.arguments)
  return req.message.nul and req.server.catalog:tool(params.name) ~= nil
    and (arguments == nil or rpc.is_object(arguments))
end

local function serve(req)
  local code, text, data = refuse_request(req)
  local result
  if not code and is_nul_call(req) then
    result = call.refusal(req.message.params.name == "run_code" and request.NUL_TEXT or NUL_TEXT)
  elseif not code then
    result, code, text, data = method_of(req)(req)
  end
  if result == call.DEFERRED then return end
  if result == nil then return req.reply(rpc.error(req.message.id, code, text, data)) end
  req:answer(result)
end

-- A request is answered whatever happens to us.
local function dispatch_request(session, message, sink)
  local req = new_request(session, message, sink)
  local ok, trace = xpcall(serve, debug.traceback, req)
  if not ok then req:fail(trace) end
end

--- Takes the outcome of the legacy handshake.
function Session:initialize(version, params)
  self.version, self.rules = version, legacy.versions[version]
  self.capabilities, self.client_info = params.capabilities, params.clientInfo
  self.log_level = self.log_level or "info"
  self.server.sessions[self] = true
end

--- Whether arrays of messages are served: a property of one revision.
function Session:has_batches()
  return self.rules ~= nil and self.rules.batches == true
end

--- Begins (subscribed = true) or ends (nil) telling of updates of a resource.
-- Returns false when there are too many.
function Session:subscribe(uri, subscribed)
  if subscribed and not self.subscriptions[uri] then
    if self.subscription_count >= MAX_SUBSCRIPTIONS then return false end
    self.subscription_count = self.subscription_count + 1
  elseif not subscribed and self.subscriptions[uri] then
    self.subscription_count = self.subscription_count - 1
  end
  self.subscriptions[uri] = subscribed
  return true
end

--- Sends a request to the client on a sink and awaits its response: {key,
-- result} or {error}.
function Session:ask_client(sink, method, params)
  self.asked = self.asked + 1
  local id = "server-" .. self.asked
  local answered, key, response = core.loop.event(), rpc.key(id), nil
  self.pending[key] = answered
  local guard <close> = defer(function()
    self.pending[key] = nil
    if response then return end
    sink.send(core.json.encode(rpc.notification("notifications/cancelled", { requestId = id })))
  end)
  if sink.send(core.json.encode { jsonrpc = "2.0", id = id, method = method, params = params }) == false then
    response = { error = { message = "it cannot be asked over this connection" } }
  else
    response = answered:wait(ASK_MS)
  end
  return response or { error = { message = "no answer in time" } }
end

local function take_response(session, message)
  local pending = message.key and session.pending[message.key]
  if pending then pending:set(message) end
end

local function take_notification(session, message)
  if message.method ~= "notifications/cancelled" then return end
  local key = rpc.cancelled_key(message)
  local req = key and session.calls[key]
  if not req then return end
  session.calls[key] = nil
  call.cancel(req, "cancelled by the client")
end

local function refuse_batch(session, message)
  if not session:has_batches() then
    return "batches exist in revision 2025-03-26 only; send one message a line"
  elseif message.count == 0 then
    return "an empty batch"
  elseif message.count > rpc.MAX_BATCH then
    return ("a batch may hold %d messages"):format(rpc.MAX_BATCH)
  end
end

local dispatch_one

-- Answers of a batch go out together, when the last is there. They are kept as
-- text: what is too large for one line is refused at once, not held.
local function dispatch_batch(session, items, sink)
  local answers, missing, bytes = {}, #items, 0
  local function reply(text, answer)
    missing = missing - 1
    if text and bytes + #text > MAX_ANSWER then
      text = core.json.encode(rpc.error(answer.id, rpc.INTERNAL_ERROR, TOO_LARGE))
    end
    if text then
      bytes = bytes + #text
      answers[#answers + 1] = text
    end
    if missing > 0 then return end
    sink.reply(#answers > 0 and not session.closed and "[" .. table.concat(answers, ",") .. "]" or nil)
  end
  for _, item in ipairs(items) do
    if item.kind == "request" and item.method == "initialize" then
      item = { kind = "bad", code = rpc.INVALID_REQUEST, id = item.id,
        message = "initialize must not be in a batch" }
    end
    dispatch_one(session, item, { send = sink.send, reply = reply })
  end
end

local function answer_bad(message, sink)
  local answer = rpc.error(message.id, message.code, message.message)
  sink.reply(core.json.encode(answer), answer)
end

function dispatch_one(session, message, sink)
  if message.kind == "request" then return dispatch_request(session, message, sink) end
  if message.kind == "bad" then return answer_bad(message, sink) end
  if message.kind == "notification" then take_notification(session, message) end
  if message.kind == "response" then take_response(session, message) end
  sink.reply(nil)
end

local function count_malformed(session, message)
  if message.kind == "bad" and message.code ~= rpc.INVALID_PARAMS then
    session.malformed = session.malformed + 1
  elseif message.kind ~= "blank" then
    session.malformed = 0
  end
  return session.malformed <= MAX_MALFORMED
end

--- Takes one message that rpc.parse has read. Never throws for what is in it.
-- sink: send(text) for messages that precede the answer and belong to it, false
-- when they cannot reach the client; reply(text, answer), called exactly once: text nil when nothing is to be
-- answered, answer the table behind the text (nil for a batch).
function Session:dispatch(message, sink)
  if self.closed then return sink.reply(nil) end
  if message.kind == "batch" then
    local why = refuse_batch(self, message)
    if not why then return dispatch_batch(self, message.items, sink) end
    message = { kind = "bad", code = rpc.INVALID_REQUEST, message = why }
  end
  if not count_malformed(self, message) then return sink.reply(nil) end
  dispatch_one(self, message, sink)
end

--- Takes one message as text: a line without its end, or a body.
function Session:handle(text, sink)
  if self.closed then return sink.reply(nil) end
  self:dispatch(rpc.parse(text, self:has_batches()), sink)
end

--- Answers for a message that was longer than `limit` bytes and thrown away;
-- token is its raw id where that could be read.
function Session:oversized(limit, token, sink)
  self:dispatch({ kind = "bad", code = rpc.INVALID_REQUEST, id = token,
    message = ("a message may be %d bytes long at most"):format(limit) }, sink)
end

--- Ends the session: its calls are cancelled, nothing more is sent or taken.
function Session:close(reason)
  self.closed = true
  self.server.sessions[self] = nil
  for req in pairs(self.server.running) do
    if req.session == self then call.cancel(req, reason or "the session ends") end
  end
end

--- serverInfo with the optional members of a revision.
function Server.info(_, names)
  local info = { name = "sandbox-runner", version = core.version }
  for _, name in ipairs(names) do info[name] = INFO[name] end
  return info
end

--- The method of this name in an era, or nil.
function Server:method(era, name)
  if era == "legacy" then return legacy.methods[name] or features.methods[name] end
  return modern.methods[name] or features.methods[name] or (self.tasks and self.tasks.methods[name])
end

--- Logs a fault of ours and returns the error that the client gets.
function Server:internal_error(what, trace)
  local id = core.sys.random_hex(4)
  self.log(("internal error %s in %s: %s"):format(id, what, tostring(trace)), "error")
  return { code = rpc.INTERNAL_ERROR,
    message = ("internal error (id %s); the server's log has the details"):format(id) }
end

--- How many calls have not ended, cancelled ones that still clean up and tasks
-- included; listening is none.
function Server:in_flight()
  local n = self.tasks and self.tasks:in_flight() or 0
  for req in pairs(self.running) do
    if not req.call.background then n = n + 1 end
  end
  return n
end

--- The server is about to stop: who listens is told that it is over.
function Server:stop_listening()
  for req in pairs(self.running) do
    if req.stop_listening then req.stop_listening() end
  end
end

--- Cancels every call and task; none of them is answered any more.
function Server:cancel_all(reason)
  for req in pairs(self.running) do call.cancel(req, reason or "the server stops") end
  if self.tasks then self.tasks:cancel_all(reason) end
end

-- What legacy clients are told unasked.
local function announce(server, kind, uri)
  for session in pairs(server.sessions) do
    if session.notify and kind ~= "updated" then
      session.notify(core.json.encode(rpc.notification(("notifications/%s/list_changed"):format(kind))))
    elseif session.notify and session.subscriptions[uri] then
      session.notify(core.json.encode(rpc.notification("notifications/resources/updated", { uri = uri })))
    end
  end
end

--- A session with one client. options.client: its key, for fairness, rate limits
-- and ownership of tasks. options.notify(text): how it gets messages that answer
-- nothing; nil: it cannot.
function Server:session(options)
  return setmetatable({ server = self, client = options.client, notify = options.notify, calls = {}, pending = {},
    subscriptions = {}, subscription_count = 0, capabilities = {}, malformed = 0, asked = 0, closed = false }, Session)
end

--- A server. options: config, catalog, runner, history, log(text, level),
-- spawn(fn) -> task with task:cancel(reason), now_ms() monotonic; optional:
-- tasks, rate, metrics, instructions (text), on_idle().
function mcp.server(options)
  local server = { running = {}, call_bytes = 0,
    sessions = {}, on_idle = function() end, state = state.new(core.sys.random_hex(32)) }
  for _, name in ipairs { "config", "catalog", "runner", "history", "log", "spawn", "now_ms" } do
    server[name] = assert(options[name], name .. " is missing")
  end
  for _, name in ipairs { "tasks", "rate", "metrics", "instructions", "on_idle" } do
    server[name] = options[name] or server[name]
  end
  server.catalog:listen(function(kind, uri) announce(server, kind, uri) end)
  return setmetatable(server, Server)
end

return mcp
