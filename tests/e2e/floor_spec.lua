-- The floor of the isolation: every field of a live sandbox as the engine tells
-- it, and what a program finds inside.
local client = require "e2e.client"
local sandboxes = require "e2e.sandboxes"

local json = client.json

-- An absent, null, empty or zero value all say "nothing".
local function is_nothing(value)
  return value == nil or value == json.null or value == "" or value == 0 or value == false
    or (type(value) == "table" and next(value) == nil)
end

local NOTHING = {}

-- The host configuration of a run with the default limits.
local FLOOR = {
  AutoRemove = true, NetworkMode = "none", IpcMode = "private", CgroupnsMode = "private", ReadonlyRootfs = true,
  CpuShares = 128, OomScoreAdj = 500, Runtime = "runc",
  PidMode = NOTHING, UTSMode = NOTHING, UsernsMode = NOTHING, Privileged = NOTHING, PublishAllPorts = NOTHING,
  Init = NOTHING, OomKillDisable = NOTHING, Binds = NOTHING, VolumesFrom = NOTHING, Devices = NOTHING,
  DeviceCgroupRules = NOTHING, DeviceRequests = NOTHING, GroupAdd = NOTHING, ExtraHosts = NOTHING, Links = NOTHING,
  PortBindings = NOTHING, DnsOptions = NOTHING, DnsSearch = NOTHING, Cgroup = NOTHING, CgroupParent = NOTHING,
  CpusetCpus = NOTHING, Sysctls = NOTHING,
}

local function ulimits(open_files, file_size)
  return { core = 0, nofile = open_files, fsize = file_size, memlock = 65536, sigpending = 1024 }
end

local MB = 1024 * 1024
local RUN = { Memory = 256 * MB, MemorySwap = 256 * MB, NanoCpus = 500000000, PidsLimit = 128,
  ulimits = ulimits(1024, 256 * MB), scratch = 64 * MB, tmp = 64 * MB, shm = 16 * MB }
local COMPILE = { Memory = 1024 * MB, MemorySwap = 1024 * MB, NanoCpus = 1000000000, PidsLimit = 128,
  ulimits = ulimits(1024, 512 * MB), scratch = 128 * MB, tmp = 256 * MB, shm = 16 * MB }

-- "rw,size=5" -> { rw = true, size = "5" }
local function options_of(text)
  local set = {}
  for word in text:gmatch "[^,]+" do
    local name, value = word:match "^([^=]+)=(.*)$"
    set[name or word] = value or true
  end
  return set
end

local function check_tmpfs(mounts, stage, scratch_of)
  local function check(path, size, exec)
    local options = options_of(mounts[path])
    assert.is_true(options.nosuid and options.nodev and options.rw, path)
    assert.is_true(options[exec], path)
    assert.is_nil(options[exec == "exec" and "noexec" or "exec"], path)
    assert.equal(tostring(size), options.size, path)
    assert.equal("4096", options.nr_inodes, path)
    return options
  end
  assert.equal("1777", check("/tmp", stage.tmp, "noexec").mode)
  assert.equal("1777", check("/dev/shm", stage.shm, "noexec").mode)
  local scratch = check("/scratch", stage.scratch, "exec")
  local uid = tonumber(scratch.uid)
  assert.equal(scratch.uid, scratch.gid)
  if scratch_of == "program" then
    assert.is_true(uid >= 60600 and uid < 61184, scratch.uid)
    assert.equal("0700", scratch.mode)
  else
    assert.equal(0, uid)
    assert.equal("0755", scratch.mode)
  end
  local count = 0
  for _ in pairs(mounts) do count = count + 1 end
  assert.equal(3, count)
end

local function check_host(host, stage, scratch_of)
  for name, value in pairs(FLOOR) do
    if value == NOTHING then
      assert.is_true(is_nothing(host[name]), name)
    else
      assert.equal(value, host[name], name)
    end
  end
  for _, name in ipairs { "Memory", "MemorySwap", "NanoCpus", "PidsLimit" } do
    assert.equal(stage[name], host[name], name)
  end
  assert.same({ "ALL" }, { table.unpack(host.CapDrop) })
  local added = {}
  for _, name in ipairs(host.CapAdd) do added[name:gsub("^CAP_", "")] = true end
  assert.same({ SETUID = true, SETGID = true, KILL = true }, added)
  local options = {}
  for _, option in ipairs(host.SecurityOpt) do options[option:match "^[^=:]+"] = option end
  assert.is_truthy(options["no-new-privileges"])
  for _, option in pairs(options) do assert.is_nil(option:find("unconfined", 1, true)) end
  assert.equal("none", host.LogConfig.Type)
  assert.equal("no", host.RestartPolicy.Name)
  assert.same({ "127.0.0.1" }, { table.unpack(host.Dns) })
  local limits = {}
  for _, limit in ipairs(host.Ulimits) do
    assert.equal(limit.Soft, limit.Hard, limit.Name)
    limits[limit.Name] = limit.Hard
  end
  assert.same(stage.ulimits, limits)
  for _, path in ipairs { "/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware" } do
    assert.is_truthy(json.encode(host.MaskedPaths):find('"' .. path .. '"', 1, true), path)
  end
  check_tmpfs(host.Tmpfs, stage, scratch_of)
  assert.equal(1, #host.Mounts)
  local mount = host.Mounts[1]
  assert.same({ "volume", "/.sandbox", true }, { mount.Type, mount.Target, mount.ReadOnly })
  assert.matches("^sandbox%-runner%-agent%-", mount.Source)
end

local function check_container(container, server, stage, scratch_of)
  local config = container.Config
  assert.same({ "/.sandbox/agent" }, { table.unpack(config.Entrypoint) })
  assert.same({ "0:0", "/scratch", "sandbox" }, { config.User, config.WorkingDir, config.Hostname })
  for _, name in ipairs { "Cmd", "Volumes", "ExposedPorts", "Domainname", "Tty", "OnBuild" } do
    assert.is_true(is_nothing(config[name]), name)
  end
  for _, name in ipairs { "OpenStdin", "StdinOnce", "AttachStdin", "AttachStdout", "AttachStderr" } do
    assert.is_true(config[name], name)
  end
  assert.equal("NONE", config.Healthcheck.Test[1])
  assert.matches("^sha256:", config.Image)
  local labels = config.Labels
  assert.equal("1", labels["sandbox-runner"])
  assert.equal(server:instance(), labels["sandbox-runner.instance"])
  assert.matches("^%x+$", labels["sandbox-runner.run"])
  local left = tonumber(labels["sandbox-runner.deadline"]) - os.time()
  assert.is_true(left > 0 and left < 200, left .. " s")
  assert.is_true(is_nothing(container.NetworkSettings.Networks) or container.NetworkSettings.Networks.none ~= nil)
  assert.equal(1, #container.Mounts)
  assert.is_false(container.Mounts[1].RW)
  check_host(container.HostConfig, stage, scratch_of)
end

describe("a live sandbox", function()
  local server
  before_each(function() server = client.start() end)
  after_each(function() server:close() end)

  -- The one sandbox of a kind that is there while the code runs.
  local function live(language, code, suffix)
    server:post("run_code", { language = language, code = code })
    local found
    client.eventually(10 * client.slow, function()
      for _, container in ipairs(sandboxes.of(server:instance())) do
        if container.State == "running" and container.Names[1]:find(suffix) then found = container end
      end
      return found
    end)
    return sandboxes.inspect(assert(found, "no sandbox " .. suffix).Id)
  end

  it("of a script has every field of the floor", function()
    check_container(live("python", "import time; time.sleep(8)", "%-r1$"), server, RUN, "program")
  end)

  it("of a compiler has every field of the floor", function()
    local code = "#include <bits/stdc++.h>\n#include <regex>\nint main() { std::regex r(\"a\"); }"
    check_container(live("cpp", code, "%-c1$"), server, COMPILE, "program")
  end)

  it("of a compiled program has every field of the floor, and a scratch folder to read", function()
    local code = "#include <unistd.h>\nint main() { sleep(8); }"
    check_container(live("cpp", code, "%-r1$"), server, RUN, "agent")
  end)

  it("has a user of its own", function()
    local uids = {}
    for i = 1, 3 do
      server:post("run_code", { language = "python", code = "import time; time.sleep(8)" })
      sandboxes.wait_for(server, i)
    end
    for _, container in ipairs(sandboxes.of(server:instance())) do
      local uid = options_of(sandboxes.inspect(container.Id).HostConfig.Tmpfs["/scratch"]).uid
      assert.is_nil(uids[uid], "shared: " .. uid)
      uids[uid] = true
    end
  end)
end)

describe("a program inside", function()
  local server
  setup(function() server = client.start() end)
  teardown(function() server:close() end)

  local function stdout_of(code, language)
    local result = assert(server:run(language or "python", code))
    assert.equal("success", result.status, result.stderr)
    return result.stdout
  end

  it("is nobody, with no capability and no way to gain one", function()
    local status = stdout_of "print(open('/proc/self/status').read())"
    local uids = { status:match "Uid:%s+(%d+)%s+(%d+)%s+(%d+)%s+(%d+)" }
    local gids = { status:match "Gid:%s+(%d+)%s+(%d+)%s+(%d+)%s+(%d+)" }
    for i = 1, 4 do
      assert.equal(uids[1], uids[i])
      assert.equal(uids[1], gids[i])
    end
    assert.is_true(tonumber(uids[1]) >= 60600 and tonumber(uids[1]) < 61184)
    assert.matches("Groups:%s*\n", status)
    for _, name in ipairs { "CapInh", "CapPrm", "CapEff", "CapAmb" } do
      assert.matches(name .. ":%s+0000000000000000\n", status)
    end
    -- The agent's three stay in the bounding set: dropping them from it would need
    -- a fourth, and no_new_privs leaves the set nothing to bound.
    assert.equal(0, tonumber(status:match "CapBnd:%s+(%x+)", 16) & ~0xe0)
    assert.matches("NoNewPrivs:%s+1\n", status)
    assert.matches("Seccomp:%s+2\n", status)
  end)

  it("gets the constant environment and nothing of the server's", function()
    local other = client.start { env = { SECRET_CANARY = "leak", HTTP_PROXY = "http://x", LD_PRELOAD_X = "x" } }
    local result = assert(other:run("python", "import os\nfor k in sorted(os.environ): print(k, os.environ[k])"))
    other:close()
    local expected = { "ASAN_OPTIONS detect_leaks=0", "HOME /tmp", "LANG C.UTF-8", "LOGNAME sandbox",
      "PATH /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONUNBUFFERED 1", "TMPDIR /tmp",
      "USER sandbox" }
    assert.equal(table.concat(expected, "\n") .. "\n", (result.stdout:gsub("LC_CTYPE [^\n]*\n", "")))
  end)

  it("has three open files, and they are its own pipes", function()
    local out = stdout_of [[
import os
for f in sorted(os.listdir('/proc/self/fd'), key=int)[:3]: print(f, os.readlink('/proc/self/fd/' + f).split(':')[0])
print(len(os.listdir('/proc/self/fd')))]]
    assert.matches("^0 /dev/null\n1 pipe\n2 pipe\n", out)
    assert.equal("4", out:match "(%d+)\n$") -- the fourth is the listing itself
  end)

  it("leads a session of its own and is not process 1", function()
    assert.equal("True True\n", stdout_of "import os; print(os.getpid() > 1, os.getsid(0) == os.getpid())")
  end)

  it("sees no process but process 1 and its own", function()
    local out = stdout_of "import os; print([p for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()])"
    assert.equal("['1']\n", out)
  end)

  it("has a read-only root, and mounts without set-uid and devices", function()
    local mounts = stdout_of "print(open('/proc/self/mounts').read())"
    assert.matches("%S+ / %S+ ro[, ]", mounts)
    for path, exec in pairs { ["/tmp"] = true, ["/dev/shm"] = true, ["/scratch"] = false } do
      local options = options_of(assert(mounts:match(" " .. path .. " tmpfs (%S+)"), path))
      assert.is_true(options.nosuid and options.nodev, path)
      assert.equal(exec, options.noexec == true, path)
    end
    assert.is_truthy(options_of(assert(mounts:match " /%.sandbox %S+ (%S+)")).ro)
  end)

  it("finds only its source in the scratch folder", function()
    assert.equal("['snippet.py']\n", stdout_of "import os; print(os.listdir('/scratch'))")
    assert.equal("/scratch/a.out\n", stdout_of([[
#include <filesystem>
#include <iostream>
int main() {
    for (auto &f : std::filesystem::directory_iterator("/scratch")) std::cout << f.path().string() << "\n";
}]], "cpp"))
  end)

  it("cannot write beside a compiled program, nor change it", function()
    local out = stdout_of([[
#include <cstdio>
#include <unistd.h>
int main() {
    std::puts(std::fopen("/scratch/x", "w") ? "BREACH" : "HELD");
    std::puts(std::fopen("/scratch/a.out", "a") ? "BREACH" : "HELD");
    std::puts(unlink("/scratch/a.out") == 0 ? "BREACH" : "HELD");
    std::puts(std::fopen("/tmp/x", "w") ? "fine" : "no room");
}]], "cpp")
    assert.equal("HELD\nHELD\nHELD\nfine\n", out)
  end)

  it("shares nothing with the next one", function()
    assert.equal("written\n", stdout_of [[
for p in ('/tmp/mark', '/scratch/mark', '/dev/shm/mark'): open(p, 'w').write('x')
print('written')]])
    assert.equal("[]\n", stdout_of [[
import os
print([p for p in ('/tmp/mark', '/scratch/mark', '/dev/shm/mark') if os.path.exists(p)])]])
  end)

  it("is held to its share of the CPU", function()
    local result = assert(server:run("python", "while True: pass", 2))
    assert.equal("timeout", result.status)
    assert.is_true(result.cpu_ms < 2000 * 0.5 * 1.25, result.cpu_ms .. " ms of CPU")
    assert.is_true(result.cpu_ms > 300, result.cpu_ms .. " ms of CPU")
  end)

  it("is measured: peak memory and time", function()
    local result = assert(server:run("python", "b = b'x' * 100_000_000\nimport time; time.sleep(0.3)"))
    assert.is_true(result.peak_memory_bytes > 100e6 and result.peak_memory_bytes < 150e6, result.peak_memory_bytes)
    assert.is_true(result.duration_ms >= 300 and result.duration_ms < 3000 * client.slow)
    assert.is_true(result.timings.run_ms <= result.duration_ms)
  end)
end)
