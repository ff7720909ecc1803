local core = require "sandbox_runner.core"
local fake = require "spec.support.fake"
local pool = require "sandbox_runner.pool"
local run = require "sandbox_runner.run"
local settings = require "sandbox_runner.settings"

local loop = core.loop

--- A pool over sandboxes that are mere tables. p.made lists all, p.held is an
-- event that starts wait for (p.begun counts them), p.fail an error that every
-- start ends with.
local function new(config)
  local p = { made = {}, log = {}, begun = 0 }
  for key, value in pairs { size = 1, max = 3, idle_seconds = 2, warm = "first-use" } do
    if config[key] == nil then config[key] = value end
  end
  p.pool = pool.new(config, function(kind)
    p.begun = p.begun + 1
    if p.held then p.held:wait() end
    if p.fail then return nil, { code = "unavailable", message = p.fail } end
    local container = { kind = kind, gone = loop.event(), alive = true }
    function container:is_ready() return self.alive and not self.closed end
    function container:close()
      self.closed = true
      self.gone:set()
    end
    p.made[#p.made + 1] = container
    return container
  end, function(text) p.log[#p.log + 1] = text end)
  function p:open()
    local n = 0
    for _, container in ipairs(self.made) do
      if not container.closed then n = n + 1 end
    end
    return n
  end
  function p:eventually_open(n)
    fake.eventually(function() return self:open() == n end, n .. " sandboxes")
    loop.sleep(60)
    assert.equal(n, self:open())
  end
  return p
end

local PYTHON = { name = "python/r", signature = "sha256:1" }
local CPP = { name = "cpp/r", signature = "sha256:2" }

describe("a waiting sandbox", function()
  it("is not lost when its run is cancelled while its limits are changed", fake.task(function()
    local engine = { image = function() return { id = "sha256:1" } end, note = function() end }
    local runner = run.new(assert(settings.parse "pool.size = 1"), engine, function() end)
    local asked, closed = nil, false
    runner.pool = { is_on = function() return true end, take = function()
      return { limit = function(_, limits) asked = limits loop.sleep(5000) end, close = function() closed = true end }
    end }
    local handle = fake.start_task(function()
      return runner:run({ language = runner.config.languages.python, code = "1", timeout_ms = 1000,
        limits = { memory = 1 << 28 } }, {})
    end)
    fake.eventually(function() return asked end, "the change")
    handle.task:cancel "not wanted"
    assert.is_false((handle:wait()))
    assert.is_true(closed)
    assert.equal(1 << 28, asked.memory)
  end))
end)

describe("the pool", function()
  it("has nothing at the first use and one at the next, each used once", fake.task(function()
    local p = new {}
    assert.is_nil(p.pool:take(PYTHON))
    p:eventually_open(1)
    local first = assert(p.pool:take(PYTHON))
    assert.equal(p.made[1], first)
    first:close()
    p:eventually_open(1)
    local second = assert(p.pool:take(PYTHON))
    assert.not_equal(first, second)
    p.pool:close()
  end))

  it("keeps kinds apart", fake.task(function()
    local p = new {}
    p.pool:take(PYTHON)
    p:eventually_open(1)
    assert.is_nil(p.pool:take(CPP))
    p:eventually_open(2)
    assert.equal(PYTHON, p.pool:take(PYTHON).kind)
    assert.equal(CPP, p.pool:take(CPP).kind)
    p.pool:close()
  end))

  it("replaces what is taken while it is in use, a moment later", fake.task(function()
    local p = new {}
    p.pool:take(PYTHON)
    p:eventually_open(1)
    local taken = p.pool:take(PYTHON)
    assert.equal(1, #p.made) -- not at once: the start would take CPU from the run
    p:eventually_open(2)
    taken:close()
    p.pool:close()
  end))

  it("drops the dead unseen", fake.task(function()
    local p = new { size = 2 }
    p.pool:stock(PYTHON)
    p:eventually_open(2)
    p.made[1].alive = false
    assert.equal(p.made[2], p.pool:take(PYTHON))
    assert.is_true(p.made[1].closed)
    p.pool:close()
  end))

  it("throws away what was made for another image or other limits", fake.task(function()
    local p = new {}
    p.pool:stock(PYTHON)
    p:eventually_open(1)
    assert.is_nil(p.pool:take { name = "python/r", signature = "sha256:9" })
    assert.is_true(p.made[1].closed)
    p:eventually_open(1)
    assert.equal("sha256:9", p.made[2].kind.signature)
    p.pool:close()
  end))

  it("throws away what was still being started for them", fake.task(function()
    local p = new {}
    p.held = loop.event()
    p.pool:stock(PYTHON)
    fake.eventually(function() return p.begun == 1 end, "the first start")
    assert.is_nil(p.pool:take { name = "python/r", signature = "sha256:9" })
    p.held:set()
    fake.eventually(function() return #p.made == 2 end, "both starts")
    p:eventually_open(1)
    p.pool:close()
  end))

  it("grows while runs find it empty, up to max, and shrinks when they end", fake.task(function()
    local p = new {}
    p.pool:take(PYTHON)
    p:eventually_open(1)
    for _ = 1, 6 do
      local container = p.pool:take(PYTHON)
      if container then container:close() end
    end
    p:eventually_open(3)
    fake.eventually(function() return p:open() == 1 end, "the shrinking")
    p.pool:close()
  end))

  it("gives up after a failure and tries again at the next use", fake.task(function()
    local p = new {}
    p.fail = "no engine"
    assert.is_nil(p.pool:take(PYTHON))
    fake.eventually(function() return p.begun == 1 end, "the try")
    loop.sleep(100)
    assert.same({ 1, 0 }, { p.begun, #p.made })
    p.pool:close()
  end))

  it("of size 0 starts nothing", fake.task(function()
    local p = new { size = 0, max = 0 }
    assert.is_false(p.pool:is_on())
    assert.is_nil(p.pool:take(PYTHON))
    p.pool:stock(PYTHON)
    loop.sleep(80)
    assert.equal(0, #p.made)
  end))

  it("ends with everything in it, what is being started included", fake.task(function()
    local p = new { size = 2 }
    p.pool:stock(PYTHON)
    p:eventually_open(2)
    p.held = loop.event()
    p.pool:stock(CPP)
    fake.eventually(function() return p.begun == 3 end, "the start")
    p.pool:close()
    p.held:set()
    fake.eventually(function() return #p.made == 3 end, "its end")
    p:eventually_open(0)
    assert.is_nil(p.pool:take(PYTHON))
  end))
end)
