local core = require "sandbox_runner.core"
local engine_of = require "sandbox_runner.engine"
local fake = require "spec.support.fake"
local health = require "sandbox_runner.health"
local run = require "sandbox_runner.run"
local settings = require "sandbox_runner.settings"

local loop = core.loop

--- A server as far as health looks, over a fake engine of this script.
local function bench(script)
  script.images = { ["python:3.12-slim"] = true }
  script.has_agent = true
  local b = { fake = fake.start(script) }
  local config = assert(settings.parse(("engine.address = %q\npool.size = 1"):format(b.fake.address)))
  fake.write(b.fake.folder .. "/agent", "agent's bytes")
  b.engine = engine_of.new { config = config, log = function() end, agent = b.fake.folder .. "/agent",
    state = b.fake.folder .. "/state" }
  b.runner = run.new(config, b.engine, function() end)
  b.request = { language = config.languages.python, code = "1", timeout_ms = 5000, timeout_seconds = 5 }
  return setmetatable(b, { __close = function()
    b.runner:close()
    b.engine:wait_gone(5000)
    b.engine:close()
    b.fake:stop()
  end })
end

local INFO = { body = '{"ServerVersion":"20.10.24+dfsg1","SystemTime":"2026-11-30T10:00:00.5Z"}' }

local function timed(fn, ...)
  local started = loop.now_ms()
  local report, healthy = fn(...)
  return loop.now_ms() - started, report, healthy
end

describe("the health of the server", function()
  it("is good when the engine answers", fake.task(function()
    local b <close> = bench { info = INFO }
    local report, healthy = health.report(b)
    assert.is_true(healthy)
    assert.equal("ok", report.status)
    assert.equal(core.version, report.version)
    assert.equal(0, report.uptime_seconds)
    assert.same({ reachable = true, version = "20.10.24+dfsg1", api = "1.41" }, report.engine)
    assert.same({ in_flight = 0, queued = 0 }, report.runs)
    assert.matches('"pool":[]', core.json.encode(report), 1, true)
  end))

  it("tells what goes on", fake.task(function()
    local b <close> = bench { info = INFO, agent = { { "sleep", 1 }, { "exit" } } }
    local handle = fake.start_task(function() return b.runner:run(b.request, {}) end)
    fake.eventually(function() return b.fake:count "frame S" >= 1 end)
    assert.same({ in_flight = 1, queued = 0 }, health.report(b).runs)
    handle:wait()
    fake.eventually(function()
      local pool = health.report(b).pool
      return pool[1] and pool[1].ready == 1
    end, "a sandbox that stands ready")
    local item = health.report(b).pool[1]
    assert.same({ language = "python", stage = "run", ready = 1 }, item)
  end))

  it("asks the engine once a second at most, whoever asks", fake.task(function()
    local b <close> = bench { info = INFO, ping = { delay = 0.1 } }
    local asks = {}
    for i = 1, 20 do
      asks[i] = function() assert.is_true(select(2, health.report(b))) end
    end
    fake.together(table.unpack(asks))
    local pings = b.fake:count "ping"
    assert.is_true(pings <= 2, pings) -- one that connects, one that asks
    for _ = 1, 20 do assert.is_true(select(2, health.report(b))) end
    assert.equal(pings, b.fake:count "ping")
    loop.sleep(1000)
    health.report(b)
    assert.equal(pings + 1, b.fake:count "ping")
    assert.equal(1, b.fake:count "info")
  end))

  it("is bad when there is no engine, with the reason, and good when it is back", fake.task(function()
    local b <close> = bench { info = INFO }
    assert.is_true(select(2, health.report(b)))
    b.fake:crash()
    loop.sleep(1000)
    local report, healthy = health.report(b)
    assert.is_false(healthy)
    assert.equal("unavailable", report.status)
    assert.is_false(report.engine.reachable)
    assert.is_nil(report.engine.version)
    assert.is_truthy(report.engine.error)
    loop.sleep(1000)
    assert.matches("No container engine can be used. Tried unix://", health.report(b).engine.error, 1, true)
    b.fake:set { info = { body = '{"ServerVersion":"29.0"}' } }
    b.fake:boot()
    loop.sleep(1000)
    assert.equal("29.0", health.report(b).engine.version)
  end))

  it("is bad after a second when the engine does not answer, and holds up nothing", fake.task(function()
    local b <close> = bench { info = INFO, ping = { {}, {}, { stall = true } } }
    assert.is_true(select(2, health.report(b)))
    loop.sleep(1000)
    local ticks = 0
    local ticker = fake.start_task(function()
      for _ = 1, 18 do
        loop.sleep(50)
        ticks = ticks + 1
      end
    end)
    local took, report, healthy = timed(health.report, b)
    assert.is_false(healthy)
    assert.equal("The container engine does not answer.", report.engine.error)
    assert.is_true(took >= 900 and took < 1900, took)
    assert.is_true(ticks >= 12, ticks)
    ticker:wait()
  end))

  it("does not wait again for an answer that is overdue", fake.task(function()
    local b <close> = bench { info = INFO, ping = { stall = true } } -- the connection takes two seconds to fail
    local took = timed(health.report, b)
    assert.is_true(took >= 900 and took < 1900, took)
    loop.sleep(200)
    local again, _, healthy = timed(health.report, b)
    assert.is_true(again < 500, again)
    assert.is_false(healthy)
    assert.equal(1, b.fake:count "ping")
  end))

  it("is known before the engine has told its version", fake.task(function()
    local b <close> = bench { info = { stall = true } }
    local took, report, healthy = timed(health.report, b)
    assert.is_true(took >= 900 and took < 1900, took)
    assert.is_true(healthy)
    assert.same({ reachable = true, api = "1.41" }, report.engine)
  end))
end)
