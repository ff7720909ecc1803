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
    fake.eventually(function() return gate.waiting == 4 end)
    assert.equal(2, gate.inside)
    for i = 1, 6 do assert.is_true((visits[i]:wait())) end
    assert.same({ 1, 2, 3, 4, 5, 6 }, order)
    assert.equal(0, gate.inside)
    assert.equal(0, gate.waiting)
  end))

  it("refuses who would be one too many in the queue", fake.task(function()
    local gate = gate_of.new(1, 1)
    assert(gate:enter())
    local waiter = fake.start_task(function() return gate:enter() end)
    fake.eventually(function() return gate.waiting == 1 end)
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
    fake.eventually(function() return gate.waiting == 2 end)
    first.task:cancel("no")
    local ok, why = first:wait()
    assert.is_false(ok)
    assert.equal("cancelled", why.code)
    assert.equal(1, gate.waiting)
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
    fake.eventually(function() return gate.waiting == 2 end)
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
    fake.eventually(function() return gate.waiting == 1 end)
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

--- A gate of one place that is taken, and those who wait at it. line.wait(name,
-- client) begins to wait; line.order are the names in the order of their entrance,
-- line.refused those that were turned away. Each entrance is left at once.
local function line_at(bound)
  local line = { gate = gate_of.new(1, bound), order = {}, refused = {}, waits = {}, places = {} }
  assert(line.gate:enter())
  function line.wait(name, client)
    line.waits[name] = fake.start_task(function()
      local ok, why = line.gate:enter(function(place) line.places[name] = place end, client)
      if not ok then
        line.refused[#line.refused + 1] = name
        return nil, why
      end
      line.order[#line.order + 1] = name
      line.gate:leave()
      return true
    end)
    loop.sleep(0) -- begun before the next one
  end
  function line.let_all_in()
    line.gate:leave()
    fake.eventually(function() return line.gate.inside == 0 end, "the end of the queue")
    assert.equal(0, line.gate.waiting)
    assert.is_nil(next(line.gate.lines))
  end
  return line
end

local function names(letter, n)
  local list = {}
  for i = 1, n do list[i] = letter .. i end
  return list
end

describe("a gate with several clients", function()
  it("lets them in by turns, each in its own order", fake.task(function()
    local line = line_at()
    for _, name in ipairs(names("a", 4)) do line.wait(name, "A") end
    for _, name in ipairs(names("b", 2)) do line.wait(name, "B") end
    line.wait("c1", "C")
    line.let_all_in()
    assert.same({ "a1", "b1", "c1", "a2", "b2", "a3", "a4" }, line.order)
  end))

  it("has one that comes behind fifty of another wait for one of them", fake.task(function()
    local line = line_at()
    for _, name in ipairs(names("a", 50)) do line.wait(name, "A") end
    line.wait("b", "B")
    assert.equal(2, line.places.b)
    line.let_all_in()
    assert.equal("b", line.order[2])
  end))

  it("takes those that give no name for one", fake.task(function()
    local line = line_at()
    for _, name in ipairs(names("n", 3)) do line.wait(name) end
    line.wait("a", "A")
    line.let_all_in()
    assert.same({ "n1", "a", "n2", "n3" }, line.order)
  end))

  it("lets one client alone use the whole queue", fake.task(function()
    local line = line_at(5)
    for _, name in ipairs(names("a", 6)) do line.wait(name, "A") end
    assert.same({ "a6" }, line.refused)
    assert.equal(1, line.gate.stats.refused)
    line.let_all_in()
    assert.same(names("a", 5), line.order)
  end))

  it("makes room for another in the full queue, at the end of the longest line", fake.task(function()
    local line = line_at(4)
    for _, name in ipairs(names("a", 4)) do line.wait(name, "A") end
    line.wait("b1", "B")
    local _, entered, why = line.waits.a4:wait()
    assert.is_nil(entered)
    assert.equal("unavailable", why.code)
    assert.matches("^Busy: .*Try again", why.message)
    line.wait("b2", "B")
    line.wait("b3", "B") -- would be longer than A's
    line.wait("c1", "C")
    line.wait("a5", "A") -- A has one left, the longest two
    assert.same({ "a4", "a3", "b3", "a2", "a5" }, line.refused)
    assert.equal(4, line.gate.waiting)
    assert.equal(5, line.gate.stats.refused)
    line.let_all_in()
  end))

  it("turns nobody away who has been called up already", fake.task(function()
    local line = line_at(1)
    line.wait("a1", "A")
    line.gate:leave() -- a1 is called up and has not run yet
    local ok = fake.start_task(function() return line.gate:enter(nil, "B") end)
    local _, entered = ok:wait()
    assert.is_true(entered)
    assert.same({ "a1" }, line.order)
    line.gate:leave()
  end))

  it("counts right when one that is turned away is cancelled at that moment", fake.task(function()
    local line = line_at(2)
    line.wait("a1", "A")
    line.wait("a2", "A")
    fake.start_task(function()
      assert(line.gate:enter(function() line.waits.a2.task:cancel("no") end, "B"))
      line.gate:leave()
    end)
    assert.is_false((line.waits.a2:wait()))
    assert.equal(1, line.gate.inside)
    line.let_all_in()
  end))

  it("forgets clients that wait no more", fake.task(function()
    local line = line_at()
    for _, name in ipairs(names("a", 3)) do line.wait(name, "A") end
    line.wait("b1", "B")
    line.waits.b1.task:cancel("no")
    line.waits.a2.task:cancel("no")
    line.waits.b1:wait()
    line.waits.a2:wait()
    assert.is_nil(line.gate.lines.B)
    line.let_all_in()
    assert.same({ "a1", "a3" }, line.order)
  end))

  it("predicts the order, whatever came and went", fake.task(function()
    local lines = {}
    for n = 1, 40 do
      local line, waiting = line_at(math.random(4, 30)), {}
      lines[n] = line
      for i = 1, 60 do
        local name = "w" .. i
        line.wait(name, "client" .. math.random(5))
        waiting[i] = name
        if i % 4 == 0 then line.waits[waiting[math.random(i)]].task:cancel("no") end
      end
    end
    loop.sleep(20)
    for _, line in ipairs(lines) do line.places = {} end
    loop.sleep(1100) -- everybody is told once more
    for _, line in ipairs(lines) do
      local predicted = {}
      for name, place in pairs(line.places) do predicted[place] = name end
      assert.is_true(line.gate.waiting > 0)
      assert.equal(line.gate.waiting, #predicted)
      line.let_all_in()
      assert.same(predicted, line.order)
    end
  end))
end)
