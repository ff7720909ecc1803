-- How a server ends: its client goes, a signal comes, it is killed. Whatever
-- happens, no sandbox stays, and the end comes soon.
local client = require "e2e.client"
local sandboxes = require "e2e.sandboxes"

local SLEEP = { language = "python", timeout_seconds = 30,
  code = "import time\nprint('up', flush=True)\ntime.sleep(25)" }
local LIMIT_MS = 1500 * client.slow

-- A server with `count` programs that sleep; their ids.
local function busy(count, options)
  local server = client.start(options)
  local ids = {}
  for i = 1, count do ids[i] = server:post("run_code", SLEEP) end
  sandboxes.wait_for(server, count)
  client.sleep(0.3) -- for the programs to be at sleep
  return server, ids
end

local function assert_gone(instance, seconds)
  if sandboxes.gone_after(instance, seconds * client.slow) then return end
  local left = {}
  for _, container in ipairs(sandboxes.of(instance)) do
    left[#left + 1] = ("%s: %s, %s"):format(container.Names[1], container.State, container.Status)
  end
  error("still there: " .. table.concat(left, "; "), 2)
end

describe("the end of input", function()
  it("ends an idle server at once", function()
    local server = client.start()
    local status, took = server:close()
    assert.equal(0, status)
    assert.is_true(took < 300 * client.slow, took .. " ms")
  end)

  it("ends a server that was never spoken to", function()
    local server = client.start { mute = true }
    assert.equal(0, (server:close()))
  end)

  it("ends runs, removes their sandboxes and exits with 0", function()
    local server = busy(3)
    local instance = server:instance()
    local status, took = server:close()
    assert.equal(0, status)
    assert.is_true(took < LIMIT_MS, took .. " ms")
    assert_gone(instance, 2)
  end)

  it("lets runs that end within a second answer", function()
    local server = client.start()
    server:run("python", "print(0)") -- so that the engine is known
    local id = server:post("run_code", { language = "python", code = "import time; time.sleep(0.3); print('made it')" })
    local status = server:finish()
    assert.equal(0, status)
    assert.equal("made it\n", server.answers[id].result.structuredContent.stdout)
    server:close()
  end)

  it("ends runs that have only just been asked for", function()
    local server = client.start()
    local instance = server:instance()
    for _ = 1, 6 do server:post("run_code", SLEEP) end
    local status, took = server:close()
    assert.equal(0, status)
    assert.is_true(took < LIMIT_MS, took .. " ms")
    assert_gone(instance, 3)
  end)

  it("ends a compiler, too", function()
    local server = client.start()
    local instance = server:instance()
    server:post("run_code", { language = "cpp", code = "#include <bits/stdc++.h>\n#include <regex>\n"
      .. "int main() { return std::regex_match(std::string(), std::regex(\"(a|b)*\")); }" })
    sandboxes.wait_for(server, 1)
    assert.equal(0, (server:close()))
    assert_gone(instance, 2)
  end)

  it("serves the last line although it has no end", function()
    local server = client.start()
    server:write '{"jsonrpc":"2.0","id":"last","method":"ping"}'
    local status = server:finish()
    assert.equal(0, status)
    assert.same({}, server.answers.last.result)
    server:close()
  end)
end)

describe("a signal", function()
  for _, name in ipairs { "TERM", "INT", "HUP" } do
    it(name .. " ends runs, removes their sandboxes and exits with 0", function()
      local server = busy(2)
      local instance = server:instance()
      local started = client.now_ms()
      server:signal(name)
      assert.is_true(client.eventually(5, function() return not server:alive() end))
      local took = client.now_ms() - started
      assert.is_true(took < LIMIT_MS, took .. " ms")
      assert_gone(instance, 2)
      assert.equal(0, (server:close()))
    end)
  end

  it("ends an idle server at once", function()
    local server = client.start()
    local started = client.now_ms()
    server:signal "TERM"
    assert.is_true(client.eventually(2, function() return not server:alive() end))
    assert.is_true(client.now_ms() - started < 500 * client.slow)
    assert.equal(0, (server:close()))
  end)
end)

describe("a client that vanishes", function()
  it("ends the server when only its stdout is closed", function()
    local server = busy(1)
    local instance, pid = server:instance(), server:pid()
    server.output:close()
    server.output = nil
    server:request("ping") -- its answer has nowhere to go
    assert.is_true(client.eventually(3 * client.slow, function() return not server:alive() end))
    assert_gone(instance, 2)
    assert.is_nil(client.read_file("/proc/" .. pid .. "/stat"))
    assert.equal(0, (server:close()))
  end)

  it("ends the server when both ends are closed", function()
    local server = busy(2)
    local instance = server:instance()
    server.output:close()
    server.output = nil
    local status, took = server:close()
    assert.equal(0, status)
    assert.is_true(took < LIMIT_MS + 500, took .. " ms")
    assert_gone(instance, 2)
  end)
end)

describe("a server that is killed", function()
  it("leaves sandboxes that end by themselves within a few seconds", function()
    local server = busy(3)
    local instance = server:instance()
    server:signal "KILL"
    assert_gone(instance, 4)
    assert.equal(137, (server:close()))
  end)

  it("leaves nothing that a stopped process 1 could keep", function()
    local server = client.start()
    local instance = server:instance()
    server:post("run_code", { language = "python", timeout_seconds = 30, code = [[
import os, signal, time
for s in range(1, 65):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
for _ in range(20):
    if os.fork() == 0:
        os.setsid()
        break
try: os.kill(1, signal.SIGSTOP)
except OSError: pass
time.sleep(60)]] })
    sandboxes.wait_for(server, 1)
    client.sleep(0.5)
    server:signal "KILL"
    assert_gone(instance, 4)
    server:close()
  end)

  it("in the middle of launches leaves nothing that the next one does not remove", function()
    local state = client.folder()
    for i = 1, 5 do
      local server = client.start { state = state }
      local instance = server:instance()
      for _ = 1, 6 do server:post("run_code", SLEEP) end
      client.sleep(0.03 * i)
      server:signal "KILL"
      server:close()
      client.sleep(0.5) -- what the engine had begun is finished
      local next_one = client.start { state = state }
      assert_gone(instance, 8)
      assert.equal(0, (next_one:close()))
    end
    client.remove(state)
  end)

  it("has its lock file removed by the next one", function()
    local state = client.folder()
    local server = client.start { state = state }
    local old = server:instance()
    server:signal "KILL"
    server:close()
    -- A young one stays: the engine may still be making what its owner died over.
    local path = ("%s/sandbox-runner/instances/%s.lock"):format(state, old)
    assert(os.execute("touch -d '2 minutes ago' " .. client.quote(path)))
    server = client.start { state = state }
    assert.is_true(client.eventually(3, function() return client.read_file(path) == nil end))
    assert.equal(0, (server:close()))
    client.remove(state)
  end)
end)
