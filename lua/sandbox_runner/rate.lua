--- How many runs a client may begin: a token bucket for each client.

local M = {}
local Rate = {}
Rate.__index = Rate

local MINUTE_MS = 60000
-- Clients that are remembered in one generation; there are two of them.
local MAX_CLIENTS = 5000

--- per_minute: as many runs may begin at once after a pause, and then one every
-- 60 / per_minute seconds. now_ms: a monotonic clock. rate.stats.refused counts.
function M.new(per_minute, now_ms)
  return setmetatable({ per_minute = per_minute, now_ms = now_ms, stats = { refused = 0 },
    current = {}, previous = {}, clients = 0, since_ms = now_ms() }, Rate)
end

-- A bucket that was not touched for a minute is full again, so forgetting it
-- changes nothing: of what is in the older generation nothing was, as what is used
-- moves to the newer one. When more clients come than are remembered, it goes
-- sooner, and those in it are treated as new.
local function renew(self, now)
  if now - self.since_ms < MINUTE_MS and self.clients < MAX_CLIENTS then return end
  self.previous, self.current, self.clients, self.since_ms = self.current, {}, 0, now
end

local function bucket_of(self, client, now)
  local bucket = self.current[client]
  if bucket then return bucket end
  renew(self, now)
  bucket = self.previous[client] or { tokens = self.per_minute, at_ms = now }
  self.current[client], self.clients = bucket, self.clients + 1
  return bucket
end

--- Takes one run from the client's bucket. client: a string. Returns true, or nil
-- and the whole seconds after which there is one again.
function Rate:take(client)
  local now, each_ms = self.now_ms(), MINUTE_MS / self.per_minute
  local bucket = bucket_of(self, client, now)
  bucket.tokens = math.min(self.per_minute, bucket.tokens + (now - bucket.at_ms) / each_ms)
  bucket.at_ms = now
  if bucket.tokens < 1 - 1e-9 then
    self.stats.refused = self.stats.refused + 1
    return nil, math.max(1, math.ceil((1 - bucket.tokens) * each_ms / 1000 - 1e-6))
  end
  bucket.tokens = bucket.tokens - 1
  return true
end

--- Takes back what take(client) took: the run did not begin.
function Rate:give_back(client)
  local bucket = self.current[client] or self.previous[client] -- forgotten: it is full
  if bucket then bucket.tokens = bucket.tokens + 1 end
end

--- What a model is told that has to wait so many seconds.
function Rate:refusal(seconds)
  return ("Too many runs: each client may begin %d a minute here. Wait %d second%s, then send it again; nothing was "
    .. "run."):format(self.per_minute, seconds, seconds == 1 and "" or "s")
end

return M
