--- What the figures were taken on: a figure without its machine says nothing.

local core = require "sandbox_runner.core"
local engine = require "sandbox_runner.engine"
local settings = require "sandbox_runner.settings"

local M = {}

local function read(path)
  local file <close> = io.open(path)
  return file and file:read("a") or ""
end

--- Load of the last minute: on a busy machine every figure is too high.
function M.load()
  return tonumber(read("/proc/loadavg"):match("^[%d.]+"))
end

local function hardware()
  local cpu = read("/proc/cpuinfo")
  return {
    cpu = cpu:match("model name%s*:%s*([^\n]+)") or cpu:match("CPU part%s*:%s*([^\n]+)") or "unknown",
    cores = core.sys.cpus(),
    memory_bytes = (tonumber(read("/proc/meminfo"):match("MemTotal:%s*(%d+)")) or 0) * 1024,
    kernel = read("/proc/sys/kernel/osrelease"):match("[^\n]+"),
    system = read("/etc/os-release"):match('PRETTY_NAME="([^"]+)"'),
  }
end

local function ask_engine(found)
  local e = engine.new { config = settings.defaults(), log = core.sys.log, agent = "" }
  local docker = assert(e:connect())
  local info = core.json.decode(assert(docker:info()))
  found.address = e.address
  found.engine = { version = info.ServerVersion, system = info.OperatingSystem, storage = info.Driver,
    runtime = info.DefaultRuntime, cgroup = info.CgroupVersion, driver = info.CgroupDriver }
  found.images = {}
  for _, name in ipairs(settings.defaults().language_order) do
    local image = e:image(settings.defaults().languages[name].images)
    found.images[name] = image and image.name
  end
end

--- Returns the machine's facts, and the engine's address.
function M.describe()
  local found, trouble = {}, nil
  core.loop.run(function()
    local ok, why = xpcall(ask_engine, function(e) return type(e) == "table" and e.message or e end, found)
    if not ok then trouble = why end
  end)
  if trouble then error(trouble, 0) end
  local machine = hardware()
  machine.engine, machine.images = found.engine, found.images
  return machine, found.address
end

--- Three lines for people.
function M.text(m)
  local images = {}
  for name, image in pairs(m.images) do images[#images + 1] = ("%s %s"):format(name, image) end
  table.sort(images)
  return ("machine: %s, %d cores, %.1f GB; %s, Linux %s\nengine:  %s (%s, %s, cgroup v%s)\nimages:  %s"):format(
    m.cpu, m.cores, m.memory_bytes / 1e9, m.system or "?", m.kernel, m.engine.version, m.engine.storage,
    m.engine.runtime, m.engine.cgroup or "?", table.concat(images, ", "))
end

return M
