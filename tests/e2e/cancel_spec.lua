-- Runs side by side: none waits for another, each can be cancelled, and says
-- how far it is when it is asked to.
local client = require "e2e.client"
local sandboxes = require "e2e.sandboxes"

local json = client.json

local function python(code, seconds)
  return { language = "python", code = code, timeout_seconds = seconds }
end

local function sleeping(seconds) return python(("import time; time.sleep(%g); print('slept')"):format(seconds), 30) end

local function stdout_of(answer) return answer.result.structuredContent.stdout end

describe("runs side by side", function()
  it("do not wait for each other", function()
    local server = client.start()
    local slow = server:begin(sleeping(6))
    assert.equal("quick\n", assert(server:run("python", "print('quick')")).stdout)
    assert.is_nil(server.answers[slow])
    assert.equal("slept\n", stdout_of(server:wait(slow)))
    assert.equal(0, (server:close()))
  end)

  it("leave a ping to be answered within 5 ms while 20 sleep", function()
    local server = client.start()
    local ids = {}
    for i = 1, 20 do ids[i] = server:post("run_code", sleeping(25)) end
    sandboxes.wait_for(server, 20)
    client.sleep(1) -- let the engine come to rest: the figure is the server's
    client.within(5 * client.slow, function()
      local times = {}
      for i = 1, 20 do
        times[i] = server:ping()
        client.sleep(0.02)
      end
      table.sort(times)
      return times[10]
    end)
    for _, id in ipairs(ids) do assert.is_nil(server.answers[id]) end
    assert.equal(0, (server:close()))
  end)

  it("are all answered when 50 are asked for at once", function()
    local server = client.start { seconds = 120, init = client.no_pool }
    local instance = server:instance()
    local ids = {}
    local code = "import time\nb = b'x' * 50_000_000\ntime.sleep(1)\nprint(%d)"
    for i = 1, 50 do ids[i] = server:post("run_code", python(code:format(i), 10)) end
    for i, id in ipairs(ids) do
      local result = server:wait(id).result
      assert.is_falsy(result.isError, result.content[1].text)
      assert.equal(i .. "\n", result.structuredContent.stdout)
      assert.equal("success", result.structuredContent.status)
    end
    assert.is_truthy(sandboxes.gone_after(instance, 20))
    assert.equal(0, (server:close()))
  end)

  it("wait their turn, and waiting is no run time", function()
    local server = client.start { init = "limits.concurrency = 2\nlimits.queue = 3" }
    local ids = {}
    -- The last one waits for longer than its time limit.
    for i = 1, 7 do ids[i] = server:post("run_code", python("import time; time.sleep(1.6); print('in turn')", 3)) end
    local ran, busy, longest = 0, 0, 0
    for _, id in ipairs(ids) do
      local result = server:wait(id).result
      if result.isError then
        busy = busy + 1
        assert.matches("[Tt]ry again", result.content[1].text)
      else
        ran = ran + 1
        assert.equal("success", result.structuredContent.status)
        longest = math.max(longest, result.structuredContent.timings.queue_ms)
      end
    end
    assert.same({ 5, 2 }, { ran, busy })
    assert.is_true(longest > 3000, longest .. " ms")
    assert.equal(5, #server:history(10))
    assert.equal(0, (server:close()))
  end)

  it("do not pay for their start out of their time limit", function()
    local server = client.start()
    local ids = {}
    for i = 1, 30 do ids[i] = server:post("run_code", python("print(1)", 3)) end
    for _, id in ipairs(ids) do assert.equal("1\n", stdout_of(server:wait(id))) end
    assert.equal(0, (server:close()))
  end)

  it("have left nothing when the answer of a time-out arrives", function()
    local server = client.start { init = client.no_pool }
    for _ = 1, 5 do
      local started = client.now_ms()
      local result = assert(server:run("python", "import time; time.sleep(30)", 1))
      local waited_in_vain = client.now_ms() - started > 3000 -- 1 s limit, 2 s for the removal
      local left = #sandboxes.of(server:instance())
      assert.is_true(left == 0 or waited_in_vain, left .. " left")
      assert.equal("timeout", result.status)
    end
    assert.equal(0, (server:close()))
  end)

  it("of 30 in a row and two servers at once never collide", function()
    local one, two = client.start(), client.start()
    for _ = 1, 15 do
      local a = one:post("run_code", python("print('one')"))
      local b = two:post("run_code", python("print('two')"))
      assert.equal("one\n", stdout_of(one:wait(a)))
      assert.equal("two\n", stdout_of(two:wait(b)))
    end
    assert.equal(0, (one:close()))
    assert.equal(0, (two:close()))
  end)
end)

describe("cancelling", function()
  local server
  before_each(function() server = client.start { init = client.no_pool } end)
  after_each(function() server:close() end)

  local function assert_not_answered(id)
    server:ping()
    assert.is_nil(server.answers[id])
  end

  it("removes the sandbox within a second, answers nothing, and is recorded", function()
    local id, tries
    client.within(1000 * client.slow, function()
      id, tries = server:begin(sleeping(25)), (tries or 0) + 1
      server:cancel(id, "as a test")
      return (sandboxes.gone_after(server:instance(), 20) or 60) * 1000
    end)
    assert_not_answered(id)
    local rows = server:history(10)
    assert.equal(tries, #rows)
    assert.equal("cancelled", rows[1].status)
    assert.equal(json.null, rows[1].exit_code)
    client.sleep(0.3)
    assert_not_answered(id)
  end)

  it("one of three leaves the others alone", function()
    local ids = {}
    for i = 1, 3 do ids[i] = server:post("run_code", sleeping(6)) end
    sandboxes.wait_for(server, 3)
    server:cancel(ids[2])
    assert.equal("slept\n", stdout_of(server:wait(ids[1])))
    assert.equal("slept\n", stdout_of(server:wait(ids[3])))
    assert_not_answered(ids[2])
  end)

  it("works in every moment of a run", function()
    for i = 0, 12 do
      local id = server:post("run_code", sleeping(29))
      client.sleep(i * 0.02)
      server:cancel(id)
    end
    server:ping()
    assert.is_truthy(sandboxes.gone_after(server:instance(), 20))
    for id = 2, server.last_id do assert.is_nil(server.answers[id]) end
    assert.equal("well\n", assert(server:run("python", "print('well')")).stdout)
  end)

  it("works while a run waits for its turn", function()
    local narrow = client.start { init = "limits.concurrency = 1" }
    local first = narrow:begin(sleeping(4))
    local second = narrow:post("run_code", sleeping(1))
    local third = narrow:post("run_code", python("print('third')"))
    narrow:ping()
    narrow:cancel(second)
    assert.equal("slept\n", stdout_of(narrow:wait(first)))
    assert.equal("third\n", stdout_of(narrow:wait(third)))
    assert.is_nil(narrow.answers[second])
    assert.equal(2, #narrow:history(10))
    assert.equal(0, (narrow:close()))
  end)

  it("works while the compiler runs", function()
    local id
    client.within(2000 * client.slow, function()
      id = server:begin({ language = "cpp", code = client.slow_cpp }, "compiling")
      server:cancel(id)
      return (sandboxes.gone_after(server:instance(), 20) or 60) * 1000
    end)
    assert_not_answered(id)
  end)

  it("what has ended, what never was, or what is no call is passed over", function()
    local id = server:post("run_code", python("print(1)"))
    assert.equal("1\n", stdout_of(server:wait(id)))
    for _, other in ipairs { id, 999, "x", "" } do server:cancel(other) end
    server:notify("notifications/cancelled", {})
    server:notify("notifications/cancelled", { requestId = json.null })
    assert_not_answered(id)
  end)

  it("takes ids by their type", function()
    server:request("tools/call", { name = "run_code", arguments = sleeping(1) }, 77)
    server:cancel "77"
    assert.equal("slept\n", stdout_of(server:wait(77)))
    server:request("tools/call", { name = "run_code", arguments = sleeping(29) }, "78")
    sandboxes.wait_for(server, 1)
    server:cancel(78)
    server:cancel "78"
    assert.is_truthy(sandboxes.gone_after(server:instance(), 20))
    assert_not_answered("78")
  end)

  it("frees the id for another call", function()
    server:request("tools/call", { name = "run_code", arguments = sleeping(20) }, 88)
    client.sleep(0.3)
    server:cancel(88)
    server:request("tools/call", { name = "run_code", arguments = python("print('again')") }, 88)
    assert.equal("again\n", stdout_of(server:wait(88)))
  end)
end)

describe("progress", function()
  local server
  before_each(function() server = client.start() end)
  after_each(function() server:close() end)

  local function progress_of(arguments, token)
    local id = server:post("run_code", arguments, token ~= nil and { progressToken = token } or nil)
    local answer = server:wait(id)
    local before = server.count
    server:ping()
    assert.equal(before + 1, server.count, "progress after the answer")
    local seen = server.others
    server.others = {}
    return seen, answer
  end

  it("comes once a second, grows, and ends before the answer", function()
    for _, token in ipairs { "tok", 0, 42 } do
      local started = client.now_ms()
      local seen = progress_of(sleeping(2.5), token)
      local seconds = (client.now_ms() - started) / 1000
      assert.is_true(#seen >= 2 and #seen <= seconds + 5, #seen .. " messages")
      local last = -1
      for _, message in ipairs(seen) do
        assert.equal("notifications/progress", message.method)
        assert.equal(token, message.params.progressToken)
        assert.is_true(message.params.progress > last)
        assert.is_true(message.params.total == nil or message.params.total >= message.params.progress)
        assert.is_string(message.params.message)
        last = message.params.progress
      end
    end
  end)

  it("is not sent to who did not ask, or asked with a broken token", function()
    assert.equal(0, #progress_of(sleeping(1.5)))
    assert.equal(0, #progress_of(sleeping(1.5), json.null))
    assert.equal(0, #progress_of(sleeping(1.5), { x = 1 }))
  end)

  it("names the compiler", function()
    local seen = progress_of({ language = "cpp", code = "#include <bits/stdc++.h>\nint main() {}" }, "c")
    local words = {}
    for _, message in ipairs(seen) do words[message.params.message] = true end
    assert.is_true(words.compiling and words.running, json.encode(words))
  end)
end)

describe("a flood", function()
  it("of 1 GB costs the server no memory, and every byte is counted", function()
    local server = client.start { seconds = 120, init = "limits.max_timeout_seconds = 60\nlimits.cpus = 2" }
    local function resident()
      local status = client.read_file("/proc/" .. server:pid() .. "/status")
      return tonumber(status:match("VmRSS:%s+(%d+)")), tonumber(status:match("VmHWM:%s+(%d+)"))
    end
    server:run("python", "import sys; sys.stdout.write('x' * 200000)") -- what a run costs, once
    local before = resident()
    local result = assert(server:run("python", [[
import os
block = b'y' * 1_000_000
for _ in range(1000):
    at = 0
    while at < len(block): at += os.write(1, block[at:])]], 60))
    local after, peak = resident()
    assert.equal("success", result.status)
    assert.equal(1000000000, result.stdout_bytes)
    assert.is_true(result.truncated)
    assert.is_true(#result.stdout <= 102400 + 64)
    server:close()
    if client.slow > 1 then return end -- the sanitizers keep freed memory
    assert.is_true(after - before < 1024, ("grew by %d kB"):format(after - before))
    assert.is_true(peak - before < 2048, ("peak %d kB above"):format(peak - before))
  end)
end)
