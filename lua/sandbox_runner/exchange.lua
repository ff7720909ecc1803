--- One POST that waits for its answer: JSON as long as nothing precedes it, a
-- stream of events from the first message that does.
local events = require "sandbox_runner.event_stream"

local M = {}
local Exchange = {}
Exchange.__index = Exchange

local JSON = "application/json"

local function with(headers, more)
  local out = {}
  for name, value in pairs(headers) do out[name] = value end
  for name, value in pairs(more or {}) do out[name] = value end
  return out
end

--- options: request (core.httpd), json, events (whether the client takes them),
-- status = function(answer) -> HTTP status, headers = function() -> further
-- headers or nil, channel = function() -> a channel of event_stream.lua that
-- outlives the connection, or nil; elsewhere = function(text) for messages that a
-- client without events cannot get here, false: nor there; unanswered = function() -> HTTP status
-- when there is nothing to say; over = function(), called once at the end; now_ms.
function M.new(options)
  local self = setmetatable({ last_ms = options.now_ms() }, Exchange)
  for name, value in pairs(options) do self[name] = value end
  return self
end

-- Begins the stream of events. Returns false when that makes no sense any more.
local function begin(self)
  if self.stream then return true end
  if self.gone or self.answered then return false end
  self.stream = self.request:stream(200, with(events.HEADERS, self.headers()))
  if not self.stream then
    self.gone = true
    return false
  end
  self.outlives = self.channel and self.channel()
  if self.outlives then self.outlives:attach(self.stream, 0) end
  return true
end

-- Returns whether it is on its way.
local function write(self, text)
  self.last_ms = self.now_ms()
  if self.outlives then return self.outlives:push(text) end
  return self.stream:write(events.event(text)) ~= nil
end

--- A message that precedes the answer. Returns false when it cannot reach the
-- client, neither now nor when that comes back for it.
function Exchange:send(text)
  if self.answered then return false end
  if not self.events then return self.elsewhere(text) end
  return begin(self) and write(self, text)
end

local function respond(self, text, answer)
  if not text then return self.request:respond(self.unanswered(), with(self.headers() or {}), "") end
  self.request:respond(self.status(answer), with({ ["Content-Type"] = JSON }, self.headers()), text)
end

local function finish_stream(self, text)
  if self.outlives then return self.outlives:finish(text) end
  if text then self.stream:write(events.event(text)) end
  self.stream:close()
end

--- The answer; text nil: there is none.
function Exchange:reply(text, answer)
  if self.answered then return end
  if text and not self.json then begin(self) end
  self.answered = true
  self.over()
  if self.stream then
    finish_stream(self, text)
  else -- also to a client that has gone, as it seems: it may only have ended its own side
    respond(self, text, answer)
  end
end

--- Nothing was written for quiet_ms: shows that the connection lives.
function Exchange:keep_alive(now_ms, quiet_ms)
  if self.answered or now_ms - self.last_ms < quiet_ms then return end
  self.last_ms = now_ms
  if not self.events or not begin(self) then return end
  if self.outlives then self.outlives:comment() else self.stream:write(events.COMMENT) end
end

--- The client has closed the connection.
function Exchange:leave()
  self.gone = true
  if self.outlives then self.outlives:leave(self.stream) end
end

--- What the MCP core sends with.
function Exchange:sink()
  return {
    send = function(text) return self:send(text) end,
    reply = function(text, answer) self:reply(text, answer) end,
    detach = self.channel and self.events and function(ms)
      if begin(self) and self.outlives then self.outlives:detach(ms) end
    end or nil,
  }
end

return M
