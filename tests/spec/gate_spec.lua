local core = require "sandbox_runner.core"
local fake = require "spec.support.fake"
local gate_of = require "sandbox_runner.gate"

local loop = core.loop

describe("gate", function()
  it("lets its number in and keeps the order of the others", fake.task(function()
    local gate, order = gate_of.new(2), {}
    local function visit(name)
      return fake.start_task(function()
        assert(gate:enter())
        order[#order + 1] = name
        loop.sleep(20)
        gate:leave()
      end)
    end
    local visits = {}
    for i = 1, 6 do visits[i] = visit(i) end
    fake.eventually(function() return #gate.queue == 4 end)
    assert.equal(2, gate.inside)
    for i = 1, 6 do assert.is_true((visits[i]:wait())) end
    assert.same({ 1, 2, 3, 4, 5, 6 }, order)
    assert.equal(0, gate.inside)
    assert.equal(0, #gate.queue)
  end))

  it("refuses who would be one too many in the queue", fake.task(function()
    local gate = gate_of.new(1, 1)
    assert(gate:enter())
    local waiter = fake.start_task(function() return gate:enter() end)
    fake.eventually(function() return #gate.queue == 1 end)
    local ok, why = gate:enter()
    assert.is_nil(ok)
    assert.equal("unavailable", why.code)
    assert.matches("1", why.message)
    gate:leave()
    local _, entered = waiter:wait()
    assert.is_true(entered)
    assert.equal(1, gate.inside) -- handed on, not freed and taken
    gate:leave()
    assert.equal(0, gate.inside)
  end))

  it("of a queue of none refuses at once", fake.task(function()
    local gate = gate_of.new(1, 0)
    assert(gate:enter())
    assert.is_nil((gate:enter()))
  end))

  it("lets a cancelled waiter go", fake.task(function()
    local gate = gate_of.new(1)
    assert(gate:enter())
    local first = fake.start_task(function() return gate:enter() end)
    local second = fake.start_task(function() return gate:enter() end)
    fake.eventually(function() return #gate.queue == 2 end)
    first.task:cancel("no")
    local ok, why = first:wait()
    assert.is_false(ok)
    assert.equal("cancelled", why.code)
    assert.equal(1, #gate.queue)
    gate:leave()
    local _, entered = second:wait()
    assert.is_true(entered)
    gate:leave()
    assert.equal(0, gate.inside)
  end))

  it("passes the place on when the one who got it is cancelled at that moment", fake.task(function()
    local gate = gate_of.new(1)
    assert(gate:enter())
    local first = fake.start_task(function() return gate:enter() end)
    local second = fake.start_task(function() return gate:enter() end)
    fake.eventually(function() return #gate.queue == 2 end)
    gate:leave()
    first.task:cancel("no") -- its event is set, but it has not run
    assert.is_false((first:wait()))
    local _, entered = second:wait()
    assert.is_true(entered)
    assert.equal(1, gate.inside)
    gate:leave()
    assert.equal(0, gate.inside)
  end))

  it("tells waiters their place while they wait", fake.task(function()
    local gate, places = gate_of.new(1), {}
    assert(gate:enter())
    local first = fake.start_task(function() return gate:enter() end)
    fake.eventually(function() return #gate.queue == 1 end)
    local second = fake.start_task(function()
      return gate:enter(function(place) places[#places + 1] = place end)
    end)
    fake.eventually(function() return #places == 1 end)
    gate:leave()
    first:wait()
    fake.eventually(function() return #places == 2 end)
    gate:leave()
    second:wait()
    assert.same({ 2, 1 }, places)
  end))
end)
