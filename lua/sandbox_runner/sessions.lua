--- Sessions of HTTP clients by their ids: bounded in number, gone when idle.
--
-- An entry is what the transport keeps of a client. Its `busy` counts requests
-- and streams that are open; `streams` those of them that only listen.
local core = require "sandbox_runner.core"

local M = {}
local Sessions = {}
Sessions.__index = Sessions

local ID_BYTES = 24 -- twice what nobody can guess

--- options: max (entries), idle_ms, now_ms.
function M.new(options)
  return setmetatable({ max = options.max, idle_ms = options.idle_ms, now_ms = options.now_ms, count = 0,
    entries = {} }, Sessions)
end

local function is_idle(entry) return entry.busy == 0 end
local function is_at_work(entry) return entry.busy > entry.streams end

-- Client -> how many entries it has, a newcomer of this client included.
local function holdings(self, client)
  local held = { [client] = 1 }
  for _, entry in pairs(self.entries) do held[entry.client] = (held[entry.client] or 0) + 1 end
  return held
end

-- Whether entry a is to end rather than b: that of the client that has more, an
-- idle one, the one that was used the longest ago.
local function goes_first(a, b, held)
  if held[a.client] ~= held[b.client] then return held[a.client] > held[b.client] end
  if is_idle(a) ~= is_idle(b) then return is_idle(a) end
  return a.last_ms < b.last_ms
end

-- Who makes room for a newcomer of this client, or nil. Nobody ends an entry of a
-- client that has fewer.
local function find_victim(self, client)
  local held, found = holdings(self, client), nil
  for _, entry in pairs(self.entries) do
    local may_go = not is_at_work(entry) and held[entry.client] >= held[client]
    if may_go and (not found or goes_first(entry, found, held)) then found = entry end
  end
  return found
end

--- Takes an entry in: { client, close = function(reason) }. When there are too
-- many, one of the client that has the most ends: the one that has been idle the
-- longest, else one that only listens. Returns the id, or nil: there is none that
-- may end.
function Sessions:add(entry)
  if self.count >= self.max then
    local victim = find_victim(self, entry.client)
    if not victim then return nil end
    self:remove(victim, "too many sessions")
  end
  entry.id, entry.busy, entry.streams = core.sys.random_hex(ID_BYTES), 0, 0
  entry.last_ms = self.now_ms()
  self.entries[entry.id] = entry
  self.count = self.count + 1
  return entry.id
end

--- The entry of this id, as long as it belongs to the client; it counts as used.
function Sessions:find(id, client)
  local entry = id and self.entries[id]
  if not entry or entry.client ~= client then return nil end
  entry.last_ms = self.now_ms()
  return entry
end

--- Notes that a request (or with listening: a stream without one) is open.
-- Returns the function to call at its end, which counts once and returns whether
-- it did.
function Sessions:enter(entry, listening)
  local streams = listening and 1 or 0
  local left = false
  entry.busy, entry.streams = entry.busy + 1, entry.streams + streams
  return function()
    if left then return false end
    left = true
    entry.busy, entry.streams = entry.busy - 1, entry.streams - streams
    entry.last_ms = self.now_ms()
    return true
  end
end

--- Ends an entry; harmless when it has ended.
function Sessions:remove(entry, reason)
  if self.entries[entry.id] ~= entry then return end
  self.entries[entry.id] = nil
  self.count = self.count - 1
  entry.close(reason)
end

--- Ends the entries that have been idle for too long.
function Sessions:expire()
  local limit = self.now_ms() - self.idle_ms
  for _, entry in pairs(self.entries) do
    if is_idle(entry) and entry.last_ms < limit then self:remove(entry, "idle for too long") end
  end
end

function Sessions:close_all(reason)
  for _, entry in pairs(self.entries) do self:remove(entry, reason) end
end

return M
