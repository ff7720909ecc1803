--- Compiled programs, so that the same source again skips the compiler.
--
-- The key is everything that the outcome depends on, kept as it is: a digest
-- could collide, and then somebody would get another's program.

local core = require "sandbox_runner.core"
local defer = require "sandbox_runner.defer"

local loop = core.loop
local M = {}
local Cache = {}
Cache.__index = Cache

--- bytes: how much keys and programs may take together; 0 = keep nothing.
-- cache.bytes tells how much they do; cache.stats counts the outcomes that were
-- made here (misses) and those that were there or were just being made (hits).
function M.new(bytes)
  return setmetatable({ limit = bytes, bytes = 0, entries = {}, clock = 0, pending = {},
    stats = { hits = 0, misses = 0 } }, Cache)
end

local function size_of(key, value)
  return #key + #value.artifact + #(value.stdout or "") + #(value.stderr or "")
end

local function oldest(self)
  local found
  for key, entry in pairs(self.entries) do
    if not found or entry.used < self.entries[found].used then found = key end
  end
  return found
end

local function drop(self, key)
  self.bytes = self.bytes - size_of(key, self.entries[key].value)
  self.entries[key] = nil
end

local function keep(self, key, value)
  local size = size_of(key, value)
  if size > self.limit or self.entries[key] then return end
  while self.bytes + size > self.limit do drop(self, oldest(self)) end
  self.clock = self.clock + 1
  self.entries[key] = { value = value, used = self.clock }
  self.bytes = self.bytes + size
end

local function find(self, key)
  local entry = self.entries[key]
  if not entry then return nil end
  self.clock = self.clock + 1
  entry.used = self.clock
  return entry.value
end

-- What make() returns; an outcome is counted, trouble that prevented one is not.
local function make_one(self, make)
  local value, why = make()
  if value then self.stats.misses = self.stats.misses + 1 end
  return value, why, false
end

local function found(self, value, was_program)
  self.stats.hits = self.stats.hits + 1
  return value, nil, was_program
end

-- Makes the value while others with the same key wait for it.
local function make_for_all(self, key, make)
  local done, value = loop.event(), nil
  self.pending[key] = done
  local guard <close> = defer(function() -- cancelled or thrown, too
    self.pending[key] = nil
    done:set { value = value }
  end)
  local why
  value, why = make_one(self, make)
  if value and value.artifact then keep(self, key, value) end
  return value, why, false
end

--- The value for key: kept, made by another task right now (an outcome without a
-- program is shared, too), or made by make(). make returns a value | nil, err; a
-- value with an `artifact` (string) is kept. Returns value | nil, err and whether
-- a program was there already.
function Cache:get(key, make)
  local value = find(self, key)
  if value then return found(self, value, true) end
  local pending = self.pending[key]
  if not pending then return make_for_all(self, key, make) end
  value = pending:wait().value
  if value then return found(self, value, value.artifact ~= nil) end
  return make_one(self, make) -- the other one failed or was cancelled: no more waiting in line
end

return M
