--- Sandboxes started ahead. Each is used once and thrown away like any other.
--
-- A shelf holds those of one kind: same language, stage, image and limits. It
-- is stocked at the first use (or at the start), grows while runs find it empty
-- and shrinks when nothing is asked of it. The pool never fails a run: what is
-- not there, or has died meanwhile, is simply not handed out.

local core = require "sandbox_runner.core"
local defer = require "sandbox_runner.defer"

local loop = core.loop
local M = {}
local Pool = {}
Pool.__index = Pool

local MAX_AGE_MS = 3600 * 1000
local RETRY_MS = 5000 -- after a start that failed
-- A replacement is started when the run that took the sandbox is over, or this
-- much later: the start costs a fifth of a second of CPU, which a short run
-- would have to share.
local YIELD_MS = 40

--- config: the pool section of the settings. start(kind) awaits a sandbox that
-- is ready to be used | nil, err; kind is what the runner made it of. log.
-- pool.stats counts how often a sandbox was there (hits) and how often not.
function M.new(config, start, log)
  return setmetatable({ config = config, start = start, log = log, shelves = {}, closed = false,
    stats = { hits = 0, misses = 0 } }, Pool)
end

--- Whether anything is ever started ahead.
function Pool:is_on()
  return self.config.size > 0 and not self.closed
end

local function close_all(shelf)
  for _, item in ipairs(shelf.ready) do item.container:close() end
  shelf.ready = {}
end

--- The shelf for a kind { name, signature, ... }. A changed signature (another
-- image, other limits) empties the old one.
local function shelf_of(self, kind)
  local shelf = self.shelves[kind.name]
  if shelf and shelf.kind.signature == kind.signature then return shelf end
  if shelf then
    close_all(shelf)
    shelf.retired = true
  end
  shelf = { kind = kind, ready = {}, starting = 0, target = self.config.size, used_ms = loop.now_ms() }
  self.shelves[kind.name] = shelf
  return shelf
end

local function is_wanted(self, shelf)
  return not self.closed and not shelf.retired and #shelf.ready + shelf.starting < shelf.target
end

local function start_one(self, shelf)
  shelf.starting = shelf.starting + 1
  local container, why = self.start(shelf.kind)
  shelf.starting = shelf.starting - 1
  if not container then
    self.log(("pool: no %s sandbox started ahead: %s"):format(shelf.kind.name, why.message), "debug")
    return false
  end
  if self.closed or shelf.retired then
    container:close()
  else
    table.insert(shelf.ready, { container = container, made_ms = loop.now_ms() })
  end
  return true
end

--- Fills the shelf, one after the other; after a failure it pauses, and gives
-- up until the next use.
local function refill(self, shelf)
  if shelf.filling then return end
  shelf.filling = true
  loop.spawn(function()
    local guard <close> = defer(function() shelf.filling = false end)
    while is_wanted(self, shelf) do
      if not start_one(self, shelf) then
        loop.sleep(RETRY_MS)
        return
      end
    end
  end)
end

--- Takes the surplus away when the shelf was not used for a while.
local function watch_idle(self, shelf)
  if shelf.watched then return end
  shelf.watched = true
  loop.spawn(function()
    local idle_ms = self.config.idle_seconds * 1000
    while not self.closed and not shelf.retired and shelf.target > self.config.size do
      local rest = shelf.used_ms + idle_ms - loop.now_ms()
      if rest > 0 then
        loop.sleep(rest)
      else
        shelf.target = self.config.size
        while #shelf.ready > shelf.target do table.remove(shelf.ready).container:close() end
      end
    end
    shelf.watched = false
  end)
end

local function take_living(shelf)
  while #shelf.ready > 0 do
    local item = table.remove(shelf.ready, 1)
    if item.container:is_ready() and loop.now_ms() - item.made_ms < MAX_AGE_MS then return item.container end
    item.container:close()
  end
  return nil
end

--- A sandbox of this kind, ready to be used, or nil; the taker closes it.
function Pool:take(kind)
  if not self:is_on() then return nil end
  local shelf = shelf_of(self, kind)
  shelf.used_ms = loop.now_ms()
  local container = take_living(shelf)
  local name = container and "hits" or "misses"
  self.stats[name] = self.stats[name] + 1
  if not container and shelf.stocked then
    shelf.target = math.min(shelf.target + 1, self.config.max)
    watch_idle(self, shelf)
  end
  shelf.stocked = true
  loop.spawn(function()
    if container then container.gone:wait(YIELD_MS) end
    refill(self, shelf)
  end)
  return container
end

--- Stocks the shelf of a kind ahead of its first use.
function Pool:stock(kind)
  if not self:is_on() then return end
  local shelf = shelf_of(self, kind)
  shelf.stocked = true
  refill(self, shelf)
end

--- How many sandboxes stand ready: name of their kind -> number.
function Pool:ready()
  local counts = {}
  for name, shelf in pairs(self.shelves) do counts[name] = #shelf.ready end
  return counts
end

--- Throws all away and starts no more.
function Pool:close()
  self.closed = true
  for _, shelf in pairs(self.shelves) do close_all(shelf) end
end

return M
