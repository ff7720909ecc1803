-- Sessions of HTTP clients: who is found, who ends, and who makes room for whom.
local sessions = require "sandbox_runner.sessions"

describe("sessions", function()
  local now, all, closed
  local function entry(client)
    local e = { client = client or "a" }
    function e.close(reason) closed[#closed + 1] = { e, reason } end
    return e
  end
  before_each(function()
    now, closed = 0, {}
    all = sessions.new { max = 2, idle_ms = 1000, now_ms = function() return now end }
  end)

  it("have ids that nobody guesses, of visible ASCII", function()
    local id = all:add(entry())
    assert.matches("^%x+$", id)
    assert.is_true(#id * 4 >= 128)
    assert.are_not.equal(id, all:add(entry()))
  end)

  it("are found by their own client only", function()
    local mine = entry "a"
    local id = all:add(mine)
    assert.equal(mine, all:find(id, "a"))
    assert.is_nil(all:find(id, "b"))
    assert.is_nil(all:find("other", "a"))
    assert.is_nil(all:find(nil, "a"))
  end)

  it("end when idle, but not while something is open", function()
    local idle, busy = entry(), entry()
    all:add(idle)
    local id = all:add(busy)
    local leave = all:enter(busy)
    now = 1001
    all:expire()
    assert.equal(1, #closed)
    assert.equal(idle, closed[1][1])
    leave()
    now = 2001
    all:expire()
    assert.equal(busy, all:find(id, "a"))
    now = 3002
    all:expire()
    assert.equal(0, all.count)
  end)

  it("make room: the longest idle goes first, then the longest that only listens, never one at work", function()
    local first, second, third, fourth = entry(), entry(), entry(), entry()
    local id = all:add(first)
    now = 1
    all:add(second)
    now = 2
    all:find(id, "a")
    all:add(third)
    assert.equal(second, closed[1][1])
    all:enter(first, true)
    all:enter(third)
    assert.truthy(all:add(fourth))
    assert.equal(first, closed[2][1])
    all:enter(fourth, true)
    all:enter(fourth)
    assert.is_nil(all:add(entry()))
    assert.equal(2, all.count)
  end)

  it("make room at the cost of the client that has the most", function()
    all.max = 4
    local first = entry "a"
    local id = all:add(first) -- the longest idle of all
    for i = 1, 6 do
      now = i
      assert.truthy(all:add(entry "b"))
    end
    assert.truthy(all:add(entry "c"))
    assert.equal(first, all.entries[id])
    assert.equal(4, #closed)
    for i, one in ipairs(closed) do assert.same({ "b", i }, { one[1].client, one[1].last_ms }) end
  end)

  it("make room for their own client when others have no more", function()
    all.max = 4
    for i, client in ipairs { "b", "b", "a", "a" } do
      now = i
      all:add(entry(client))
    end
    all:add(entry "a")
    assert.same({ "a", 3 }, { closed[1][1].client, closed[1][1].last_ms })
    all:add(entry "c") -- of two that have the same, the longest idle
    assert.same({ "b", 1 }, { closed[2][1].client, closed[2][1].last_ms })
  end)

  it("that are idle stay while a client with more has some that only listen", function()
    all.max = 3
    local idle = entry "a"
    local id = all:add(idle)
    for i = 1, 2 do
      now = i
      local listening = entry "b"
      all:add(listening)
      all:enter(listening, true)
    end
    all:add(entry "c")
    assert.equal(idle, all.entries[id])
    assert.same({ "b", 1 }, { closed[1][1].client, closed[1][1].last_ms })
  end)

  it("of others do not end for a client that has more, be its own all at work", function()
    all.max = 3
    for _ = 1, 2 do
      local busy = entry "b"
      all:add(busy)
      all:enter(busy)
    end
    local mine = entry "a"
    local id = all:add(mine)
    assert.is_nil(all:add(entry "b"))
    assert.equal(mine, all.entries[id])
    assert.truthy(all:add(entry "c")) -- one each: somebody has to go
    assert.equal(mine, closed[1][1])
  end)

  it("count what is open once, however often that is said to end", function()
    local one = entry()
    all:add(one)
    local leave, stays = all:enter(one, true), all:enter(one)
    assert.is_true(leave())
    assert.is_false(leave())
    assert.same({ 1, 0 }, { one.busy, one.streams })
    assert.is_true(stays())
    assert.same({ 0, 0 }, { one.busy, one.streams })
  end)

  it("end once", function()
    local one = entry()
    all:add(one)
    all:remove(one, "x")
    all:remove(one, "y")
    all:close_all "z"
    assert.same({ one, "x" }, closed[1])
    assert.equal(1, #closed)
    assert.equal(0, all.count)
  end)
end)
