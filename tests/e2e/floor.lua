--- What the engine must say of a live sandbox, field by field.
--
-- An expected value is a plain value, a table (compared deeply) or a function
-- (value) -> whether it is right. Every field that is not expected must say
-- nothing: a field that a newer engine adds and uses is a fault.
local client = require "e2e.client"

local json = client.json
local floor = {}

-- An absent, null, empty, false or zero value says nothing; so does a list or an
-- object of such values.
local function is_nothing(value)
  if value == nil or value == json.null or value == "" or value == 0 or value == false then return true end
  if type(value) ~= "table" then return false end
  for _, element in pairs(value) do
    if not is_nothing(element) then return false end
  end
  return true
end

-- The names of both tables.
local function all_keys(a, b)
  local keys = {}
  for key in pairs(a) do keys[key] = true end
  for key in pairs(b) do keys[key] = true end
  return keys
end

local function compare(add, expected, got, path)
  if expected == nil then
    if not is_nothing(got) then add(("%s is %s, and nothing is expected"):format(path, json.encode(got))) end
  elseif type(expected) == "function" then
    if not expected(got) then add(("%s is %s"):format(path, got == nil and "absent" or json.encode(got))) end
  elseif type(expected) == "table" then
    if type(got) ~= "table" then return add(("%s is %s, not a table"):format(path, tostring(got))) end
    for key in pairs(all_keys(expected, got)) do
      compare(add, expected[key], got[key], ("%s.%s"):format(path, key))
    end
  elseif expected ~= got then
    add(("%s is %s, not %s"):format(path, tostring(got), tostring(expected)))
  end
end

-- A list with these words in any order, each perhaps with a prefix.
local function words(list, prefix)
  local wanted = {}
  for i, word in ipairs(list) do wanted[i] = word end
  table.sort(wanted)
  return function(got)
    if type(got) ~= "table" then return false end
    local found = {}
    for i, word in ipairs(got) do found[i] = prefix and word:gsub("^" .. prefix, "") or word end
    table.sort(found)
    return table.concat(wanted, " ") == table.concat(found, " ")
  end
end

-- A list with at least these words: engines add more of their own.
local function includes(list)
  return function(got)
    local text = type(got) == "table" and json.encode(got) or ""
    for _, word in ipairs(list) do
      if not text:find('"' .. word .. '"', 1, true) then return false end
    end
    return true
  end
end

local function matches(pattern)
  return function(got) return type(got) == "string" and got:find(pattern) ~= nil end
end

--- "rw,size=5" -> { rw = true, size = "5" }
function floor.options_of(text)
  local set = {}
  for word in tostring(text):gmatch "[^,]+" do
    local name, value = word:match "^([^=]+)=(.*)$"
    set[name or word] = value or true
  end
  return set
end

local function is_program_uid(text)
  local uid = math.tointeger(text)
  return uid ~= nil and uid >= 60600 and uid < 61184
end

local function tmpfs(size, exec, more)
  local expected = { rw = true, nosuid = true, nodev = true, [exec] = true, size = tostring(size),
    nr_inodes = "4096" }
  for name, value in pairs(more) do expected[name] = value end
  return function(text)
    local good = true
    compare(function() good = false end, expected, floor.options_of(text), "")
    return good
  end
end

-- The working folder belongs to the program, or to uid 0 when it holds what was compiled.
local function scratch(stage)
  local common = tmpfs(stage.scratch, "exec", stage.writable
    and { mode = "0700", uid = is_program_uid, gid = is_program_uid } or { mode = "0755", uid = "0", gid = "0" })
  return function(text)
    local options = floor.options_of(text)
    return common(text) and options.uid == options.gid
  end
end

local function ulimits(stage)
  local expected = { core = 0, nofile = 1024, fsize = stage.file_size, memlock = 65536, sigpending = 1024 }
  return function(list)
    local found = {}
    for _, limit in ipairs(list) do
      if type(limit) ~= "table" or limit.Soft ~= limit.Hard or found[limit.Name] then return false end
      found[limit.Name] = limit.Hard
    end
    for name in pairs(all_keys(expected, found)) do
      if expected[name] ~= found[name] then return false end
    end
    return true
  end
end

local function host_config(stage)
  return {
    AutoRemove = true, NetworkMode = "none", IpcMode = "private", CgroupnsMode = "private",
    ReadonlyRootfs = true, CpuShares = 128, OomScoreAdj = 500, Runtime = "runc",
    Memory = stage.memory, MemorySwap = stage.memory, NanoCpus = stage.nano_cpus, PidsLimit = 128,
    CapDrop = { "ALL" }, CapAdd = words({ "SETUID", "SETGID", "KILL" }, "CAP_"),
    SecurityOpt = { "no-new-privileges" },
    LogConfig = { Type = "none" }, RestartPolicy = { Name = "no" },
    Dns = { "127.0.0.1" }, Ulimits = ulimits(stage),
    ShmSize = 64 << 20, -- the engine's default, for the /dev/shm that the one below covers
    Tmpfs = {
      ["/scratch"] = scratch(stage),
      ["/tmp"] = tmpfs(stage.tmp, "noexec", { mode = "1777" }),
      ["/dev/shm"] = tmpfs(stage.shm, "noexec", { mode = "1777" }),
    },
    Mounts = { { Type = "volume", Source = matches "^sandbox%-runner%-agent%-%x+$", Target = "/.sandbox",
      ReadOnly = true, VolumeOptions = { NoCopy = true } } },
    MaskedPaths = includes { "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/scsi",
      "/sys/firmware" },
    ReadonlyPaths = includes { "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger" },
  }
end

-- ahead: it was started ahead, so it carries no run's name and a late deadline.
local function labels(instance, image, ahead)
  local all = {}
  for name, value in pairs(is_nothing(image.Labels) and {} or image.Labels) do all[name] = value end
  all["sandbox-runner"], all["sandbox-runner.instance"] = "1", instance
  all["sandbox-runner.run"] = matches(ahead and "^pool%-%x+$" or "^%x+$")
  all["sandbox-runner.deadline"] = function(text)
    local left = (math.tointeger(text) or 0) - os.time()
    return left > 0 and left < (ahead and 7500 or 200)
  end
  return all
end

local function config(instance, image, ahead)
  return {
    Hostname = "sandbox", User = "0:0", WorkingDir = "/scratch", Entrypoint = { "/.sandbox/agent" },
    AttachStdin = true, AttachStdout = true, AttachStderr = true, OpenStdin = true, StdinOnce = true,
    NetworkDisabled = true, Healthcheck = { Test = { "NONE" } }, Image = matches "^sha256:%x+$",
    -- What the engine adds of the image; only the agent sees the environment.
    Env = image.Env, StopSignal = image.StopSignal, Shell = image.Shell,
    Labels = labels(instance, image, ahead),
  }
end

local MB = 1 << 20
floor.RUN = { memory = 256 * MB, nano_cpus = 500000000, file_size = 256 * MB, scratch = 64 * MB,
  tmp = 64 * MB, shm = 16 * MB, writable = true }
floor.COMPILE = { memory = 1024 * MB, nano_cpus = 1000000000, file_size = 512 * MB, scratch = 128 * MB,
  tmp = 256 * MB, shm = 16 * MB, writable = true }
floor.RUN_COMPILED = { memory = 256 * MB, nano_cpus = 500000000, file_size = 256 * MB, scratch = 64 * MB,
  tmp = 64 * MB, shm = 16 * MB, writable = false }

--- What is wrong with a container: a list of texts. container: as inspect tells
-- it; stage: one of the above; instance: of the server; image: the Config of its
-- image; ahead: whether it still waits in the pool.
function floor.faults(container, stage, instance, image, ahead)
  local faults = {}
  local function add(text) faults[#faults + 1] = text end
  compare(add, host_config(stage), container.HostConfig, "HostConfig")
  compare(add, config(instance, image, ahead), container.Config, "Config")
  compare(add, { { Type = "volume", Name = container.HostConfig.Mounts[1].Source, Source = matches "^/",
    Destination = "/.sandbox", Driver = "local", Mode = function() return true end } }, container.Mounts, "Mounts")
  for name in pairs(container.NetworkSettings.Networks) do
    if name ~= "none" then add("it is in the network " .. name) end
  end
  if not is_nothing(container.NetworkSettings.Ports) then add "it has ports" end
  if container.AppArmorProfile == "unconfined" then add "AppArmor is off" end
  return faults
end

return floor
