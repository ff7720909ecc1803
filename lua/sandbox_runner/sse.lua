--- HTTP with server-sent events, the transport of 2024-11-05: one stream per
-- session, and a second path to which the client posts. Deprecated; clients that
-- know no other still use it.
local events = require "sandbox_runner.event_stream"
local rpc = require "sandbox_runner.rpc"
local sessions = require "sandbox_runner.sessions"

local M = {}
local Endpoint = {}
Endpoint.__index = Endpoint

local REFUSED = { bad = true, blank = true, ignored = true }

--- The endpoint. front: see http.lua.
function M.new(front)
  return setmetatable({ front = front, sessions = sessions.new { max = front.config.http.sessions,
    idle_ms = math.huge, now_ms = front.now_ms } }, Endpoint)
end

-- The session of a stream; what it is told and answered goes there. entry.stream is
-- absent when it has ended, although its client may still read what was written.
local function new_entry(self, client)
  local entry = { client = client, last_ms = self.front.now_ms() }
  function entry.send(text)
    if not entry.stream then return false end
    entry.written_ms = self.front.now_ms()
    return entry.stream:write(events.event(text)) ~= nil
  end
  entry.core = self.front.server:session { client = client, notify = entry.send }
  function entry.close(reason)
    local stream = entry.stream
    entry.stream = nil
    entry.core:close(reason)
    if stream then stream:close() end
  end
  return entry
end

local function keep_alive(entry)
  return { keep_alive = function(_, now_ms, quiet_ms)
    if not entry.stream or now_ms - entry.written_ms < quiet_ms then return end
    entry.written_ms = now_ms
    entry.stream:write(events.COMMENT)
  end }
end

--- GET /sse: the stream, which is the session.
function Endpoint:get(request, client)
  local release <close> = self.front:listener(request, client)
  if not release then return end
  local entry = new_entry(self, client)
  if not self.sessions:add(entry) then return self.front:refuse_session(request) end
  self.sessions:enter(entry, true)
  entry.stream, entry.written_ms = request:stream(200, events.HEADERS), self.front.now_ms()
  if entry.stream then
    entry.stream:write(events.event("/messages/?session_id=" .. entry.id, nil, "endpoint"))
    local watched = keep_alive(entry)
    self.front:watch(watched)
    request:wait_gone()
    self.front:unwatch(watched)
  end
  self.sessions:remove(entry, "the client has gone")
end

-- What the client may still do: its entry, or nil when it was refused here.
local function find(self, request, client, id)
  local entry = self.sessions:find(id, client)
  if entry then return entry end
  local text = id and "there is no such session (any more); open a new stream with GET /sse"
    or "session_id is missing in the query; the stream of GET /sse names it in its first event"
  self.front:refuse(request, id and 404 or 400, rpc.INVALID_REQUEST, text)
end

--- POST /messages/: one message; what it is answered comes on the stream.
function Endpoint:post(request, client, query)
  local id = query.session_id
  local text = find(self, request, client, id) and self.front:json_body(request)
  local entry = text and find(self, request, client, id) -- it may have ended while the body came
  if not entry then return end
  local message = rpc.parse(text, entry.core:has_batches())
  if REFUSED[message.kind] then
    return self.front:refuse(request, 400, message.code or rpc.INVALID_REQUEST,
      message.message or "the body must be one JSON-RPC message", { id = message.id })
  end
  request:respond(202, {}, "")
  local leave = self.sessions:enter(entry)
  entry.core:dispatch(message, { send = entry.send, reply = function(answer)
    if leave() and answer then entry.send(answer) end
  end })
end

function Endpoint:close(reason)
  self.sessions:close_all(reason)
end

return M
