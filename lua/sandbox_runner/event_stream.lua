--- Server-sent events (HTML Living Standard, 9.2), and streams of them that
-- outlive their connection (MCP 2025-11-25, "Resumability and Redelivery").
--
-- A channel numbers its events and keeps them for a while, delivered or not: that
-- a byte was written does not mean that it arrived. All channels of a store share
-- one limit, so that no client can make the server keep more.
local M = {}

M.KEEP_MS, M.MAX_BYTES, M.MAX_EVENTS = 300000, 16 << 20, 10000
local RETRY_MS = 1000 -- after which a client that lost its connection comes again

--- Headers of a response that is a stream of events. X-Accel-Buffering: a proxy
-- that gathers events would hold them back.
M.HEADERS = { ["Content-Type"] = "text/event-stream", ["Cache-Control"] = "no-cache, no-transform",
  ["X-Accel-Buffering"] = "no" }

--- A line that clients skip: it keeps the connection from being taken for dead.
M.COMMENT = ": keep-alive\n\n"

--- One event. text: one line (encoded JSON); id: optional; name: "message" by default.
function M.event(text, id, name)
  return ("event: %s\n%sdata: %s\n\n"):format(name or "message", id and "id: " .. id .. "\n" or "", text)
end

local Store, Channel = {}, {}
Store.__index, Channel.__index = Store, Channel

--- now_ms: the clock. A store is swept by calling expire from time to time.
function M.store(now_ms)
  return setmetatable({ now_ms = now_ms, queue = {}, first = 1, last = 0, bytes = 0 }, Store)
end

local function drop_first(self)
  local event = self.queue[self.first]
  self.queue[self.first] = nil
  self.first = self.first + 1
  self.bytes = self.bytes - #event.text
  event.channel.dropped = event.number
  event.channel.kept[event.number] = nil
end

local function keep(self, channel, text)
  local event = { channel = channel, number = channel.count, text = text, since_ms = self.now_ms() }
  self.last = self.last + 1
  self.queue[self.last] = event
  self.bytes = self.bytes + #text
  channel.kept[event.number] = text
  while self.bytes > M.MAX_BYTES or self.last - self.first >= M.MAX_EVENTS do drop_first(self) end
end

--- Forgets events that are older than KEEP_MS.
function Store:expire()
  local oldest = self.now_ms() - M.KEEP_MS
  while self.first <= self.last and self.queue[self.first].since_ms < oldest do drop_first(self) end
end

function Store:is_empty() return self.first > self.last end

--- A channel. name: a number, unique among those of its session. primed: whether
-- every connection begins with an event without data, which gives the client an
-- id to come back with; clients before 2025-11-25 cannot read that.
function Store:channel(name, primed)
  return setmetatable({ store = self, name = name, primed = primed, resumable = false, count = 0, dropped = 0,
    kept = {} }, Channel)
end

--- The channel's name and the number in an event's id, or nil.
function M.parse_id(id)
  local name, number = id:match "^(%d+)-(%d+)$"
  if name and #name < 16 and #number < 16 then return math.tointeger(name), math.tointeger(number) end
end

local function id_of(self, number)
  return ("%d-%d"):format(self.name, number)
end

-- Returns whether there is a connection that takes it.
local function write(self, text)
  if self.live and not self.live:write(text) then self.live = nil end
  return self.live ~= nil
end

-- Who has been sent an id can come back for what follows it.
local function write_event(self, text)
  local written = write(self, text)
  self.resumable = self.resumable or written
  return written
end

--- Sends an event, now or when the client comes back. Returns false when neither
-- can be.
function Channel:push(text)
  if self.finished then return false end
  self.count = self.count + 1
  keep(self.store, self, text)
  local written = write_event(self, M.event(text, id_of(self, self.count)))
  return written or self.resumable and self.kept[self.count] ~= nil
end

local function close_live(self)
  local stream = self.live
  self.live = nil
  if stream then stream:close() end
end

--- The last event (nil: there is none); the stream ends after it.
function Channel:finish(text)
  if text then self:push(text) end
  self.finished = true
  close_live(self)
end

--- Whether nothing is left that a client could come back for.
function Channel:is_over()
  return self.finished and next(self.kept) == nil
end

--- Goes on over this connection after event number `after` (0: from the start);
-- one that is still there ends. What was dropped meanwhile is left out.
function Channel:attach(stream, after)
  close_live(self)
  self.live = stream
  if self.primed then write_event(self, ("id: %s\nretry: %d\ndata: \n\n"):format(id_of(self, after), RETRY_MS)) end
  for number = math.max(after, self.dropped) + 1, self.count do
    write_event(self, M.event(self.kept[number], id_of(self, number)))
  end
  if self.finished then close_live(self) end
end

--- This connection has gone.
function Channel:leave(stream)
  if self.live == stream then self.live = nil end
end

--- Ends the connection; the client is to come back after ms milliseconds. One that
-- has no id to come back with stays.
function Channel:detach(ms)
  if not self.resumable then return end
  write(self, ("retry: %d\n\n"):format(math.floor(ms)))
  close_live(self)
end

--- Keeps the connection alive.
function Channel:comment()
  write(self, M.COMMENT)
end

return M
