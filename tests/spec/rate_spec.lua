local rate_of = require "sandbox_runner.rate"

--- A limit with a clock that the test moves: clock.ms.
local function new(per_minute)
  local clock = { ms = 1e6 }
  return rate_of.new(per_minute, function() return clock.ms end), clock
end

local function take_all(rate, client)
  local n = 0
  while rate:take(client) do n = n + 1 end
  return n
end

describe("the rate limit", function()
  it("allows a minute's runs at once and then one after the other", function()
    local rate, clock = new(30)
    assert.equal(30, take_all(rate, "a"))
    local ok, seconds = rate:take("a")
    assert.is_nil(ok)
    assert.equal(2, seconds)
    clock.ms = clock.ms + 1999
    assert.is_nil((rate:take("a")))
    clock.ms = clock.ms + 1
    assert.is_true((rate:take("a")))
    assert.is_nil((rate:take("a")))
  end)

  it("is kept by who waits as long as told", function()
    for _, per_minute in ipairs { 1, 7, 59, 60, 61, 1000, 100000 } do
      local rate, clock = new(per_minute)
      assert.equal(per_minute, take_all(rate, "a"))
      for _ = 1, 50 do
        clock.ms = clock.ms + 13
        local ok, seconds = rate:take("a")
        if not ok then
          assert.equal("integer", math.type(seconds))
          clock.ms = clock.ms + seconds * 1000
          assert.is_true((rate:take("a")), per_minute .. " a minute")
        end
      end
    end
  end)

  it("is never exceeded for long", function()
    local rate, clock = new(60)
    local n = 0
    for _ = 1, 600000, 7 do
      clock.ms = clock.ms + 7
      if rate:take("a") then n = n + 1 end
    end
    assert.is_true(n >= 659 and n <= 660, n) -- ten minutes, and the first burst
  end)

  it("does not save up more than a minute's runs", function()
    local rate, clock = new(5)
    rate:take("a")
    clock.ms = clock.ms + 3600 * 1000
    assert.equal(5, take_all(rate, "a"))
  end)

  it("holds for each client by itself", function()
    local rate = new(3)
    assert.equal(3, take_all(rate, "a"))
    assert.equal(3, take_all(rate, "b"))
    assert.equal(2, rate.stats.refused)
  end)

  it("is not forgotten within the minute, and then nothing is left to remember", function()
    local rate, clock = new(2)
    assert.equal(2, take_all(rate, "a"))
    clock.ms = clock.ms + 29000 -- a little before the next one
    for _ = 1, 3 do rate:take("other") end
    assert.is_nil((rate:take("a")))
    for i = 1, 10 do
      clock.ms = clock.ms + 61000
      rate:take("c" .. i)
    end
    local n = 0
    for _, generation in ipairs { rate.current, rate.previous } do
      for _ in pairs(generation) do n = n + 1 end
    end
    assert.is_true(n <= 2, n)
  end)

  it("keeps a client in mind over the change of generations", function()
    local rate, clock = new(1)
    rate:take("x")
    clock.ms = clock.ms + 59000
    assert.is_true((rate:take("a")))
    clock.ms = clock.ms + 2000 -- "b" begins a generation, "a" is in the one before
    assert.is_true((rate:take("b")))
    local ok, seconds = rate:take("a")
    assert.is_nil(ok)
    assert.equal(58, seconds)
  end)

  it("keeps one in mind that never paused when another comes after a long time", function()
    local rate, clock = new(1)
    for _ = 1, 500 do
      clock.ms = clock.ms + 1000
      rate:take("a")
    end
    clock.ms = clock.ms + 1000
    rate:take("b")
    local n = take_all(rate, "a")
    clock.ms = clock.ms + 1000
    assert.is_true(n + take_all(rate, "a") <= 1)
  end)

  it("takes back what was not used, and never more than it gave", function()
    local rate = new(3)
    rate:give_back("a")
    rate:take("a")
    for _ = 1, 5 do rate:give_back("a") end
    assert.equal(3, take_all(rate, "a"))
    rate:give_back("a")
    assert.equal(1, take_all(rate, "a"))
  end)

  it("takes something back from one of the generation before, too", function()
    local rate, clock = new(3)
    clock.ms = clock.ms + 50000
    assert.equal(3, take_all(rate, "a"))
    clock.ms = clock.ms + 10000
    assert.is_true((rate:take("b"))) -- begins a generation
    rate:give_back("a")
    assert.equal(1, take_all(rate, "a"))
    local _, seconds = rate:take("a")
    assert.equal(10, seconds)
  end)

  it("remembers a bounded number of clients", function()
    local rate = new(1)
    for i = 1, 30000 do assert.is_true((rate:take("client " .. i))) end
    assert.is_nil((rate:take("client 30000"))) -- the latest are known
    local n = 0
    for _, generation in ipairs { rate.current, rate.previous } do
      for _ in pairs(generation) do n = n + 1 end
    end
    assert.is_true(n <= 10000, n)
  end)

  it("tells how long to wait", function()
    local rate = new(20)
    assert.equal("Too many runs: each client may begin 20 a minute here. Wait 3 seconds, then send it again; nothing "
      .. "was run.", rate:refusal(3))
    assert.matches("Wait 1 second, ", rate:refusal(1), 1, true)
  end)
end)
