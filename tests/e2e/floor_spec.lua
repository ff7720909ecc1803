-- The floor of the isolation: every field of a live sandbox as the engine tells
-- it, and what a program finds inside.
local client = require "e2e.client"
local floor = require "e2e.floor"
local sandboxes = require "e2e.sandboxes"

local json = client.json
local options_of = floor.options_of

local SLEEPER = "import time; time.sleep(25)" -- until the test has seen enough

describe("a live sandbox", function()
  local server
  before_each(function() server = client.start { init = client.no_pool } end)
  after_each(function() server:close() end)

  -- The one sandbox of a kind that is there while the code runs.
  local function live(language, code, suffix)
    server:post("run_code", { language = language, code = code, timeout_seconds = 30 })
    local found
    client.eventually(60, function()
      for _, container in ipairs(sandboxes.of(server:instance())) do
        if container.State == "running" and container.Names[1]:find(suffix) then found = container end
      end
      return found
    end)
    return sandboxes.inspect(assert(found, "no sandbox " .. suffix).Id)
  end

  local function faults_of(container, stage)
    local image = sandboxes.image(container.Config.Image).Config
    return floor.faults(container, stage, server:instance(), image)
  end

  it("of a script has every field of the floor, and no other", function()
    assert.same({}, faults_of(live("python", SLEEPER, "%-r1$"), floor.RUN))
  end)

  -- The check of the check.
  it("would be seen to differ in any field", function()
    local container = live("python", SLEEPER, "%-r1$")
    local function assert_seen(where, name, value)
      local old = where[name]
      where[name] = value
      assert.is_true(#faults_of(container, floor.RUN) > 0, ("%s = %s"):format(name, json.encode(value)))
      where[name] = old
    end
    for _, where in ipairs { container.HostConfig, container.Config } do
      local names = {}
      for name in pairs(where) do names[#names + 1] = name end
      assert.is_true(#names > 15)
      for _, name in ipairs(names) do
        if name ~= "Mounts" and name ~= "Image" then assert_seen(where, name, json.array { "something" }) end
      end
      assert_seen(where, "AFieldOfTheFuture", true)
    end
    assert_seen(container.HostConfig.Ulimits, #container.HostConfig.Ulimits + 1,
      { Name = "nproc", Soft = 5, Hard = 5 })
    assert_seen(container.HostConfig.Mounts, 2, { Type = "bind", Source = "/", Target = "/host" })
    assert_seen(container.HostConfig.Mounts[1], "ReadOnly", false)
    assert_seen(container.HostConfig.Tmpfs, "/more", "rw,exec")
    assert_seen(container.HostConfig.Tmpfs, "/tmp", container.HostConfig.Tmpfs["/tmp"]:gsub("noexec", "exec"))
    assert_seen(container.HostConfig.CapAdd, 4, "SYS_ADMIN")
    assert_seen(container.HostConfig.SecurityOpt, 2, "seccomp=unconfined")
    assert_seen(container.NetworkSettings.Networks, "bridge", {})
    assert_seen(container.Mounts[1], "RW", true)
  end)

  it("of a compiler has every field of the floor, and no other", function()
    assert.same({}, faults_of(live("cpp", client.slow_cpp, "%-c1$"), floor.COMPILE))
  end)

  it("of a compiled program has every field of the floor, and a scratch folder to read", function()
    local code = "#include <unistd.h>\nint main() { sleep(25); }"
    assert.same({}, faults_of(live("cpp", code, "%-r1$"), floor.RUN_COMPILED))
  end)

  it("that waits in the pool has every field of the floor, and no other", function()
    local pooled = client.start()
    pooled:run("python", "pass")
    local waiting
    client.eventually(60, function()
      for _, container in ipairs(sandboxes.of(pooled:instance())) do
        if container.State == "running" and container.Names[1]:find("-pool-", 1, true) then waiting = container end
      end
      return waiting
    end)
    local container = sandboxes.inspect(assert(waiting, "none was started ahead").Id)
    local image = sandboxes.image(container.Config.Image).Config
    local faults = floor.faults(container, floor.RUN, pooled:instance(), image, true)
    assert.equal(0, (pooled:close()))
    assert.same({}, faults)
  end)

  it("has a user of its own", function()
    local uids = {}
    for i = 1, 3 do
      server:post("run_code", { language = "python", code = SLEEPER, timeout_seconds = 30 })
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
    local result = assert(server:run("python", "while True: pass", 4))
    assert.equal("timeout", result.status)
    assert.is_true(result.cpu_ms < 4000 * 0.5 * 1.25, result.cpu_ms .. " ms of CPU")
    -- What it gets beside other work is little, but it is measured.
    assert.is_true(result.cpu_ms > 50, result.cpu_ms .. " ms of CPU")
  end)

  it("is measured: peak memory and time", function()
    local result = assert(server:run("python", "b = b'x' * 100_000_000\nimport time; time.sleep(0.3)"))
    assert.is_true(result.peak_memory_bytes > 100e6 and result.peak_memory_bytes < 150e6, result.peak_memory_bytes)
    assert.is_true(result.duration_ms >= 300 and result.duration_ms < 10000, result.duration_ms)
    assert.is_true(result.timings.run_ms <= result.duration_ms)
  end)
end)
