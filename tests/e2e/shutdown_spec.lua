-- How a server ends: its client goes, a signal comes, it is killed. Whatever
-- happens, no sandbox stays, and the end comes soon.
local client = require "e2e.client"
local sandboxes = require "e2e.sandboxes"

local SLEEP = { language = "python", timeout_seconds = 30,
  code = "import time\nprint('up', flush=True)\ntime.sleep(29)" }
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

-- Fails when a sandbox is left in the end. A program would go on for longer than that.
local function assert_gone(instance)
  if sandboxes.gone_after(instance, 20) then return end
  local left = {}
  for _, container in ipairs(sandboxes.of(instance)) do
    left[#left + 1] = ("%s: %s, %s"):format(container.Names[1], container.State, container.Status)
  end
  error("still there: " .. table.concat(left, "; "), 2)
end

describe("the end of input", function()
  it("ends an idle server at once", function()
    client.within(300 * client.slow, function()
      local status, took = client.start():close()
      assert.equal(0, status)
      return took
    end)
  end)

  it("ends a server that was never spoken to", function()
    local server = client.start { mute = true }
    assert.equal(0, (server:close()))
  end)

  it("ends runs, removes their sandboxes and exits with 0", function()
    client.within(LIMIT_MS, function()
      local server = busy(3)
      local instance = server:instance()
      local status, took = server:close()
      assert.equal(0, status)
      assert_gone(instance)
      return took
    end)
  end)

  it("lets runs that end within a second answer", function()
    local answer
    for _ = 1, 5 do -- on a busy machine it may take longer
      local server = client.start()
      local id = server:begin { language = "python", code = "import time; time.sleep(0.3); print('made it')" }
      assert.equal(0, (server:finish()))
      answer = server.answers[id]
      server:close()
      if answer then break end
    end
    assert.equal("made it\n", answer and answer.result.structuredContent.stdout)
  end)

  it("ends runs that have only just been asked for", function()
    client.within(LIMIT_MS, function()
      local server = client.start()
      local instance = server:instance()
      for _ = 1, 6 do server:post("run_code", SLEEP) end
      local status, took = server:close()
      assert.equal(0, status)
      assert_gone(instance)
      return took
    end)
  end)

  it("ends a compiler, too", function()
    local server = client.start()
    local instance = server:instance()
    server:begin({ language = "cpp", code = client.slow_cpp }, "compiling")
    assert.equal(0, (server:close()))
    assert_gone(instance)
  end)

  it("is seen although the client has left 8 MB of answers unread", function()
    client.within(LIMIT_MS, function()
      local server = client.start()
      server:request("tools/list")
      local _, line = server:read()
      -- What is not read any more still fits into the pipe.
      for _ = 1, math.ceil(8.5 * 1024 * 1024 / #line) do server:request("tools/list") end
      client.sleep(0.3)
      local started = client.now_ms()
      local _, kind = server.input:close()
      local took = client.now_ms() - started
      server.input = nil
      server.output:close()
      server.output = nil
      server:close()
      assert.equal("exit", kind)
      return took
    end)
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
  -- Milliseconds until the signal has ended the server.
  local function ended_by(server, name)
    local started = client.now_ms()
    server:signal(name)
    assert.is_true(client.eventually(20, function() return not server:alive() end))
    return client.now_ms() - started
  end

  for _, name in ipairs { "TERM", "INT", "HUP" } do
    it(name .. " ends runs, removes their sandboxes and exits with 0", function()
      client.within(LIMIT_MS, function()
        local server = busy(2)
        local instance = server:instance()
        local took = ended_by(server, name)
        assert_gone(instance)
        assert.equal(0, (server:close()))
        return took
      end)
    end)
  end

  it("ends an idle server at once", function()
    client.within(500 * client.slow, function()
      local server = client.start()
      local took = ended_by(server, "TERM")
      assert.equal(0, (server:close()))
      return took
    end)
  end)
end)

describe("a client that vanishes", function()
  it("ends the server when only its stdout is closed", function()
    local server = busy(1)
    local instance, pid = server:instance(), server:pid()
    server.output:close()
    server.output = nil
    server:request("ping") -- its answer has nowhere to go
    assert.is_true(client.eventually(15, function() return not server:alive() end))
    assert_gone(instance)
    assert.is_nil(client.read_file("/proc/" .. pid .. "/stat"))
    assert.equal(0, (server:close()))
  end)

  it("ends the server when both ends are closed", function()
    client.within(LIMIT_MS + 500, function()
      local server = busy(2)
      local instance = server:instance()
      server.output:close()
      server.output = nil
      local status, took = server:close()
      assert.equal(0, status)
      assert_gone(instance)
      return took
    end)
  end)
end)

describe("a server that is killed", function()
  -- No pool: a sandbox that is being made at that moment is for the next server to remove.
  it("leaves sandboxes that end by themselves within a few seconds", function()
    local server = busy(3, { init = client.no_pool })
    local instance = server:instance()
    server:signal "KILL"
    assert_gone(instance)
    assert.equal(137, (server:close()))
  end)

  it("leaves nothing that a stopped process 1 could keep", function()
    local server = client.start { init = client.no_pool }
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
    assert_gone(instance)
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
      local gone
      for _ = 1, 5 do -- until the engine has finished what it had begun
        client.sleep(0.5)
        local next_one = client.start { state = state }
        gone = sandboxes.gone_after(instance, 8)
        assert.equal(0, (next_one:close()))
        if gone then break end
      end
      assert.is_truthy(gone)
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
    assert.is_true(client.eventually(20, function() return client.read_file(path) == nil end))
    assert.equal(0, (server:close()))
    client.remove(state)
  end)
end)
