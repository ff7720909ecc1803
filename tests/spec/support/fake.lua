--- Starts and drives fake_engine.lua, and runs spec bodies as tasks.

local core = require "sandbox_runner.core"

local loop = core.loop
local M = {}
local Fake = {}
Fake.__index = Fake

local HERE = debug.getinfo(1, "S").source:match("^@(.*)/support/[^/]*$")

function M.temporary_folder()
  local path = os.tmpname()
  os.remove(path)
  assert(core.sys.mkdir_p(path, 448))
  return path
end

function M.write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
end

function M.read(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read("a")
  file:close()
  return text
end

--- Lua source of plain data.
local function source(value)
  if type(value) ~= "table" then return ("%q"):format(value) end
  local parts = {}
  for k, v in pairs(value) do parts[#parts + 1] = ("[%q] = %s"):format(k, source(v)) end
  return "{ " .. table.concat(parts, ", ") .. " }"
end

--- Runs fn in a task; a failed assertion reaches busted. Waits for what fn spawned as
-- long as fn does.
function M.task(fn)
  return function()
    local ok, why
    loop.run(function() ok, why = pcall(fn) end)
    if not ok then error(why, 0) end
  end
end

--- Awaits a condition; fails after `seconds` (default 30: the machine may be busy).
function M.eventually(condition, what, seconds)
  local deadline = loop.now_ms() + (seconds or 30) * 1000
  while not condition() do
    if loop.now_ms() > deadline then error("never happened: " .. (what or "?"), 2) end
    loop.sleep(5)
  end
end

--- Runs functions side by side and waits for all; the first error is thrown.
function M.together(...)
  local failure
  local left = select("#", ...)
  for _, fn in ipairs { ... } do
    loop.spawn(function()
      local ok, why = pcall(fn)
      if not ok then failure = failure or why end
      left = left - 1
    end)
  end
  while left > 0 do loop.sleep(5) end
  if failure then error(failure, 0) end
end

--- Gives a local of a module another value by way of the functions that use it: waits
-- of many seconds would make the specs slow. fn: any function that leads there.
function M.set_local(fn, name, value)
  local seen, found = {}, false
  local function visit(f)
    if seen[f] then return end
    seen[f] = true
    for i = 1, 255 do
      local upvalue, content = debug.getupvalue(f, i)
      if not upvalue then break end
      if upvalue == name then
        debug.setupvalue(f, i, value)
        found = true
      elseif type(content) == "function" and debug.getinfo(content, "S").what == "Lua" then
        visit(content)
      end
    end
  end
  visit(fn)
  assert(found, "no local " .. name)
end

--- The error value of a task that was cancelled, or what it returned:
-- handle:wait() -> ok, value, why.
function M.start_task(fn, ...)
  local handle = {}
  local args = table.pack(...)
  handle.task = loop.spawn(function()
    handle.result = table.pack(pcall(fn, table.unpack(args, 1, args.n)))
  end)
  function handle:wait()
    M.eventually(function() return self.result end, "the task's end", 60)
    return table.unpack(self.result, 1, self.result.n)
  end
  return handle
end

--- A running fake engine with this script.
function M.start(script)
  local self = setmetatable({ folder = M.temporary_folder(), script = script or {} }, Fake)
  self.address = "unix://" .. self.folder .. "/engine.sock"
  self:boot()
  return self
end

function Fake:write_script()
  M.write(self.folder .. "/script.new", "return " .. source(self.script))
  os.rename(self.folder .. "/script.new", self.folder .. "/script.lua")
end

--- Changes how it behaves from the next request on.
function Fake:set(changes)
  for k, v in pairs(changes) do self.script[k] = v end
  self:write_script()
end

function Fake:boot()
  self:write_script()
  os.remove(self.folder .. "/engine.sock")
  os.execute(("lua5.4 '%s/fake_engine.lua' '%s' </dev/null >>'%s/log' 2>&1 & echo $! >'%s/pid'")
    :format(HERE, self.folder, self.folder, self.folder))
  local ok, why = pcall(M.eventually, function() return core.sys.stat(self.folder .. "/engine.sock") end,
    "the fake engine's start")
  if not ok then error(("%s; its log: %s"):format(why, M.read(self.folder .. "/log") or ""), 2) end
end

--- Ends the process as a crash would.
function Fake:crash()
  os.execute("kill -9 " .. M.read(self.folder .. "/pid"))
  os.remove(self.folder .. "/engine.sock")
end

function Fake:stop()
  local log = M.read(self.folder .. "/log")
  os.execute(("kill %s 2>/dev/null; rm -rf '%s'"):format(M.read(self.folder .. "/pid"), self.folder))
  assert(log == "", log)
end

Fake.__close = Fake.stop

--- Lines of the record as {verb, name, body}.
function Fake:record()
  local list = {}
  for line in (M.read(self.folder .. "/verbs") or ""):gmatch "[^\n]+" do
    local verb, name, body = line:match "^([^\t]*)\t([^\t]*)\t?(.*)$"
    list[#list + 1] = { verb = verb, name = name, body = body }
  end
  return list
end

--- The verbs in order, as one text; those of the filter are left out.
function Fake:verbs(filter)
  local list = {}
  for _, entry in ipairs(self:record()) do
    if not (filter and filter[entry.verb]) then list[#list + 1] = entry.verb end
  end
  return table.concat(list, " ")
end

function Fake:count(verb)
  local n = 0
  for _, entry in ipairs(self:record()) do
    if entry.verb == verb then n = n + 1 end
  end
  return n
end

return M
