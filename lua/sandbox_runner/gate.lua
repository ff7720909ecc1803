--- A counting gate with a first-come, first-served queue.

local core = require "sandbox_runner.core"
local defer = require "sandbox_runner.defer"
local fault = require "sandbox_runner.fault"

local loop = core.loop
local M = {}
local Gate = {}
Gate.__index = Gate

--- size: how many may be inside; bound: how many may wait (nil = any number).
function M.new(size, bound)
  return setmetatable({ size = size, bound = bound, inside = 0, queue = {}, idle_queue = {} }, Gate)
end

local function position(gate, ticket)
  for i, t in ipairs(gate.queue) do
    if t == ticket then return i end
  end
  return nil
end

--- Awaits entrance. on_wait(position), if given, is called once a second.
-- Returns true, or nil, err (code "unavailable") when the queue is full. A
-- cancelled waiter leaves the queue. Every entrance needs one leave().
function Gate:enter(on_wait)
  if self.inside < self.size then
    self.inside = self.inside + 1
    return true
  end
  if self.bound and #self.queue >= self.bound then
    return fault.complete("unavailable", ("Busy: runs going on: %d, waiting: %d. Try again in a few seconds.")
      :format(self.inside, #self.queue))
  end
  local ticket = loop.event()
  self.queue[#self.queue + 1] = ticket
  local guard <close> = defer(function(_, failure)
    local at = failure and position(self, ticket)
    if at then table.remove(self.queue, at) elseif failure then self:leave() end
  end)
  repeat
    local at = position(self, ticket) -- nil: called up in the same moment as the second passed
    if on_wait and at then on_wait(at) end
  until ticket:wait(1000)
  return true
end

--- Awaits a moment when nobody is inside: for work that nobody waits for.
-- Needs one leave(), too.
function Gate:enter_idle()
  if self.inside > 0 then
    local ticket = loop.event()
    self.idle_queue[#self.idle_queue + 1] = ticket
    ticket:wait()
  else
    self.inside = 1
  end
end

--- Gives the place to the first in the queue, or to one that waits for idleness.
function Gate:leave()
  local first = table.remove(self.queue, 1) or self.inside == 1 and table.remove(self.idle_queue, 1)
  if first then first:set() else self.inside = self.inside - 1 end
end

return M
