--- A counting gate with a queue that is fair between clients.
--
-- Each client waits in a line of its own, first come, first served; the lines
-- are served in turn, one place each. A client with fifty runs in the queue thus
-- delays another's by one run, not by fifty.

local core = require "sandbox_runner.core"
local defer = require "sandbox_runner.defer"
local fault = require "sandbox_runner.fault"

local loop = core.loop
local M = {}
local Gate = {}
Gate.__index = Gate

local TICK_MS = 1000
local NOBODY = "" -- the client of those that name none

-- Doubly linked: a waiter that is cancelled leaves from the middle at once.
local function push(list, item)
  item.list, item.prev, item.next = list, list.last, nil
  if list.last then list.last.next = item else list.first = item end
  list.last, list.size = item, list.size + 1
end

local function remove(item)
  local list = item.list
  if item.prev then item.prev.next = item.next else list.first = item.next end
  if item.next then item.next.prev = item.prev else list.last = item.prev end
  item.list, item.prev, item.next = nil, nil, nil
  list.size = list.size - 1
end

--- size: how many may be inside; bound: how many may wait (nil = any number).
-- gate.inside and gate.waiting tell how many do, gate.stats.refused how many
-- were refused so far.
function M.new(size, bound)
  return setmetatable({ size = size, bound = bound, inside = 0, waiting = 0, stats = { refused = 0 },
    lines = {}, turns = { size = 0 }, idle_queue = {} }, Gate)
end

local function join(gate, client)
  local line = gate.lines[client]
  if not line then
    line = { client = client, size = 0 }
    gate.lines[client] = line
    push(gate.turns, line)
  end
  local ticket = { event = loop.event(), at = line.last and line.last.at + 1 or 1 }
  push(line, ticket)
  gate.waiting = gate.waiting + 1
  return ticket
end

local function quit(gate, ticket)
  local line = ticket.list
  line.gaps = line.gaps or ticket ~= line.first and ticket ~= line.last
  remove(ticket)
  gate.waiting = gate.waiting - 1
  if line.size > 0 then return end
  remove(line)
  gate.lines[line.client] = nil
end

local function next_ticket(gate)
  local line = gate.turns.first
  if not line then return nil end
  local ticket = line.first
  remove(line)
  push(gate.turns, line)
  quit(gate, ticket)
  return ticket
end

-- From 1 for the first of its line.
local function place_in_line(ticket)
  local line = ticket.list
  if line.gaps then
    local at, each = 0, line.first
    while each do
      at = at + 1
      each.at, each = at, each.next
    end
    line.gaps = false
  end
  return ticket.at - line.first.at + 1
end

-- In the order in which all waiters would be called now, from 1: as many of each
-- other line are called before as this one has in front of it, and one more of those
-- whose turn is sooner.
local function position(gate, ticket)
  local place = place_in_line(ticket)
  local ahead, most = place, place
  local line = gate.turns.first
  while line do
    if line == ticket.list then
      most = place - 1
    else
      ahead = ahead + math.min(line.size, most)
    end
    line = line.next
  end
  return ahead
end

local function longest_line(gate)
  local longest = gate.turns.first
  local line = longest
  while line do
    if line.size > longest.size then longest = line end
    line = line.next
  end
  return longest
end

-- Makes room in a full queue at the expense of the longest line. Returns whether
-- it did.
local function displace(gate, client)
  local own, longest = gate.lines[client], longest_line(gate)
  if not longest or longest.size <= (own and own.size or 0) + 1 then return false end
  local ticket = longest.last
  quit(gate, ticket)
  ticket.displaced = true
  ticket.event:set()
  return true
end

local function refuse(gate)
  gate.stats.refused = gate.stats.refused + 1
  return fault.complete("unavailable", ("Busy: runs going on: %d, waiting: %d. Try again in a few seconds.")
    :format(gate.inside, gate.waiting))
end

--- Awaits entrance. on_wait(position), if given, is called once a second; the
-- position is 1 for the waiter that is called next. client: a string that names
-- whoever waits (nil: all that give none are one).
-- Returns true, or nil, err (code "unavailable") when the queue is full. The bound
-- counts the waiters of all clients, and one client alone may use all of it. When
-- it is reached, a newcomer whose line is shorter than the longest by two or more
-- takes the place of the last in that line, who gets the error; nobody else does.
-- A cancelled waiter leaves the queue. Every entrance needs one leave().
function Gate:enter(on_wait, client)
  if self.inside < self.size then
    self.inside = self.inside + 1
    return true
  end
  client = client or NOBODY
  if self.bound and self.waiting >= self.bound and not displace(self, client) then return refuse(self) end
  local ticket = join(self, client)
  local guard <close> = defer(function(_, failure)
    if ticket.list then quit(self, ticket) elseif failure and not ticket.displaced then self:leave() end
  end)
  repeat -- it may have been called in the same moment as the second passed
    if on_wait and ticket.list then on_wait(position(self, ticket)) end
  until ticket.event:wait(on_wait and TICK_MS or nil)
  if ticket.displaced then return refuse(self) end
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

--- Gives the place to the next in turn, or to one that waits for idleness.
function Gate:leave()
  local ticket = next_ticket(self)
  local event = ticket and ticket.event or self.inside == 1 and table.remove(self.idle_queue, 1)
  if event then event:set() else self.inside = self.inside - 1 end
end

return M
