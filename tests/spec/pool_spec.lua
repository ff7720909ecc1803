local core = require "sandbox_runner.core"
local fake = require "spec.support.fake"
local pool = require "sandbox_runner.pool"

local loop = core.loop

--- A pool over sandboxes that are mere tables. p.made lists all, p.delay is how
-- long a start takes, p.fail an error that every start ends with.
local function new(config)
  local p = { made = {}, log = {} }
  for key, value in pairs { size = 1, max = 3, idle_seconds = 1, warm = "first-use" } do
    if config[key] == nil then config[key] = value end
  end
  p.pool = pool.new(config, function(kind)
    if p.delay then loop.sleep(p.delay) end
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
    fake.eventually(function() return self:open() == n end, n .. " sandboxes", 3)
    loop.sleep(60)
    assert.equal(n, self:open())
  end
  return p
end

local PYTHON = { name = "python/r", signature = "sha256:1" }
local CPP = { name = "cpp/r", signature = "sha256:2" }

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
    p.delay = 50
    p.pool:stock(PYTHON)
    loop.sleep(10)
    assert.is_nil(p.pool:take { name = "python/r", signature = "sha256:9" })
    fake.eventually(function() return #p.made == 2 end, "both starts", 3)
    loop.sleep(20)
    assert.equal(1, p:open())
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
    fake.eventually(function() return p:open() == 1 end, "the shrinking", 4)
    p.pool:close()
  end))

  it("gives up after a failure and tries again at the next use", fake.task(function()
    local p = new {}
    p.fail = "no engine"
    assert.is_nil(p.pool:take(PYTHON))
    loop.sleep(100)
    assert.equal(0, #p.made)
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
    p.delay = 30
    p.pool:stock(CPP)
    loop.sleep(5)
    p.pool:close()
    loop.sleep(80)
    assert.equal(0, p:open())
    assert.is_nil(p.pool:take(PYTHON))
  end))
end)
