local cache_of = require "sandbox_runner.cache"
local core = require "sandbox_runner.core"
local fake = require "spec.support.fake"

local loop = core.loop

local function program(size) return { artifact = ("x"):rep(size), code = 0 } end

describe("the compile cache", function()
  it("makes once and hands out again", fake.task(function()
    local cache, calls = cache_of.new(1000), 0
    local function make()
      calls = calls + 1
      return program(10)
    end
    local first, _, was_there = cache:get("key", make)
    assert.is_false(was_there)
    local second
    second, _, was_there = cache:get("key", make)
    assert.is_true(was_there)
    assert.equal(first, second)
    assert.equal(1, calls)
  end))

  it("keeps no failure and no outcome without a program", fake.task(function()
    local cache, calls = cache_of.new(1000), 0
    for _ = 1, 2 do
      local value, why = cache:get("a", function()
        calls = calls + 1
        return nil, { code = "unavailable", message = "gone" }
      end)
      assert.is_nil(value)
      assert.equal("gone", why.message)
      assert.equal(1, cache:get("b", function() return { code = 1 } end).code)
    end
    assert.equal(2, calls)
    assert.equal(0, cache.bytes)
  end))

  it("stays within its bytes; the least recently used goes first", fake.task(function()
    local cache = cache_of.new(100)
    cache:get("a", function() return program(39) end)
    cache:get("b", function() return program(39) end)
    cache:get("a", error)
    cache:get("c", function() return program(39) end)
    assert.equal(80, cache.bytes)
    assert.is_not_nil(cache.entries.a)
    assert.is_nil(cache.entries.b)
    cache:get("large", function() return program(200) end)
    assert.equal(80, cache.bytes)
  end))

  it("lets equal requests wait for the one that is made", fake.task(function()
    local cache, calls, shared = cache_of.new(1000), 0, 0
    local function make()
      calls = calls + 1
      loop.sleep(30)
      return program(5)
    end
    local tasks = {}
    for i = 1, 5 do
      tasks[i] = fake.start_task(function()
        local _, _, was_there = cache:get("key", make)
        if was_there then shared = shared + 1 end
      end)
    end
    for i = 1, 5 do tasks[i]:wait() end
    assert.equal(1, calls)
    assert.equal(4, shared)
  end))

  it("shares an outcome without a program with those that wait, and keeps it not", fake.task(function()
    local cache, calls = cache_of.new(1000), 0
    local function make()
      calls = calls + 1
      loop.sleep(30)
      return { code = 1 }
    end
    local tasks = {}
    for i = 1, 4 do tasks[i] = fake.start_task(function() return cache:get("key", make) end) end
    for i = 1, 4 do
      local _, value = tasks[i]:wait()
      assert.equal(1, value.code)
    end
    assert.equal(1, calls)
    cache:get("key", make)
    assert.equal(2, calls)
  end))

  it("counts compilations that took place, and those that were spared", fake.task(function()
    local cache = cache_of.new(1000)
    local function failing()
      loop.sleep(30)
      return { code = 1 }
    end
    local tasks = {}
    for i = 1, 4 do tasks[i] = fake.start_task(function() return cache:get("bad", failing) end) end
    for i = 1, 4 do tasks[i]:wait() end
    assert.same({ hits = 3, misses = 1 }, cache.stats)
    cache:get("good", function() return program(5) end)
    cache:get("good", error)
    assert.same({ hits = 4, misses = 2 }, cache.stats)
    cache:get("none", function() return nil, { code = "unavailable", message = "no engine" } end)
    assert.same({ hits = 4, misses = 2 }, cache.stats)
  end))

  it("counts what the compiler said", fake.task(function()
    local cache = cache_of.new(1000)
    cache:get("k", function() return { artifact = "x", stdout = ("o"):rep(10), stderr = ("e"):rep(100) } end)
    assert.equal(112, cache.bytes)
  end))

  it("makes again for the others when the first is cancelled", fake.task(function()
    local cache, calls, asked, made = cache_of.new(1000), 0, 0, loop.event()
    local function make()
      calls = calls + 1
      made:wait()
      return program(5)
    end
    local function ask()
      asked = asked + 1
      return cache:get("key", make)
    end
    local first = fake.start_task(ask)
    fake.eventually(function() return calls == 1 end)
    local second = fake.start_task(ask)
    fake.eventually(function() return asked == 2 end)
    first.task:cancel("no more")
    fake.eventually(function() return calls == 2 end)
    made:set()
    local ok, value = second:wait()
    assert.is_true(ok)
    assert.equal(5, #value.artifact)
    assert.equal(2, calls)
  end))
end)
