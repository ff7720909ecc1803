local core = require "sandbox_runner.core"
local fake = require "spec.support.fake"

local loop, sys = core.loop, core.sys
local MODULES = os.getenv("SR_MODULE_DIR") or sys.exe():match("^(.*)/[^/]*$")

--- Runs text as a script of its own in this program, or in the stock interpreter. Returns the output
-- and whether it ended well. before: shell words in front, after: behind.
local function script(text, stock, before, after)
  local folder <close> = setmetatable({ fake.temporary_folder() }, { __close = function(f)
    os.execute(("rm -rf '%s'"):format(f[1]))
  end })
  fake.write(folder[1] .. "/s.lua", text)
  local program = stock and ("lua5.4 -e 'package.cpath=[[%s/?.so]]' '%s/s.lua'"):format(MODULES, folder[1])
    or ("'%s' --script '%s/s.lua'"):format(sys.exe(), folder[1])
  local pipe = assert(io.popen(("%s %s %s 2>&1"):format(before or "", program, after or "")))
  local out = pipe:read("a")
  return out, pipe:close() == true
end

-- Shell words that turn an output into a pipe which stays open and which nobody reads.
local function on_fifo(redirection)
  local path = os.tmpname()
  os.remove(path)
  assert(os.execute(("mkfifo '%s'"):format(path)))
  return ("3<>'%s' %s'%s'; s=$?; rm '%s'; (exit $s)"):format(path, redirection, path, path)
end

describe("loop", function()
  it("runs tasks side by side", fake.task(function()
    local order = {}
    local function sleeper(ms, name)
      loop.sleep(ms)
      order[#order + 1] = name
    end
    loop.spawn(sleeper, 300, "c")
    loop.spawn(sleeper, 100, "a")
    loop.spawn(sleeper, 200, "b")
    fake.eventually(function() return #order == 3 end)
    assert.same({ "a", "b", "c" }, order)
  end))

  it("hands arguments to a task, many too", fake.task(function()
    local got
    loop.spawn(function(...) got = table.pack(...) end, 1, nil, "x", nil)
    loop.sleep(1)
    assert.same({ 1, nil, "x", nil, n = 4 }, got)
    local many = {}
    for i = 1, 200 do many[i] = i end
    loop.spawn(function(...) got = select("#", ...) end, table.unpack(many))
    loop.sleep(1)
    assert.equal(200, got)
  end))

  it("starts a task in a later turn", fake.task(function()
    local started = false
    loop.spawn(function() started = true end)
    assert.is_false(started)
    loop.sleep(0)
    loop.sleep(0)
    assert.is_true(started)
  end))

  it("wakes all who wait for an event, with its value, and keeps it", fake.task(function()
    local ev, got = loop.event(), {}
    for i = 1, 3 do loop.spawn(function() got[i] = ev:wait() end) end
    loop.sleep(5)
    assert.is_false(ev:is_set())
    ev:set("v")
    ev:set("later") -- the first wins
    loop.sleep(5)
    assert.same({ "v", "v", "v" }, got)
    assert.equal("v", ev:wait(0))
    local plain = loop.event()
    plain:set()
    assert.is_true(plain:wait())
    local no = loop.event()
    no:set(false)
    assert.is_false(no:wait())
  end))

  it("gives up waiting in time", fake.task(function()
    local ev = loop.event()
    local start = loop.now_ms()
    local value, why = ev:wait(30)
    assert.is_nil(value)
    assert.equal("timeout", why.code)
    local took = loop.now_ms() - start
    assert.is_true(took >= 25 and took < 30000)
    ev:set(1)
    assert.equal(1, ev:wait(30))
  end))

  it("cancels with a thrown error, once; the cleanup may wait", fake.task(function()
    local steps = {}
    local task = loop.spawn(function()
      local _ <close> = setmetatable({}, { __close = function()
        steps[#steps + 1] = "cleaning"
        loop.sleep(10)
        steps[#steps + 1] = "clean"
      end })
      local ok, why = pcall(loop.sleep, 60000)
      steps[#steps + 1] = tostring(ok) .. " " .. why.code .. " " .. why.message
      error(why)
    end)
    loop.sleep(5)
    task:cancel("enough")
    task:cancel("again")
    fake.eventually(function() return task:done() end)
    assert.same({ "false cancelled enough", "cleaning", "clean" }, steps)
    assert.is_true(task:done())
    task:cancel("too late")
  end))

  it("cancels a task before its first step", fake.task(function()
    local reached
    local task = loop.spawn(function()
      loop.sleep(0)
      reached = true
    end)
    task:cancel("no")
    loop.sleep(10)
    assert.is_nil(reached)
    assert.is_true(task:done())
  end))

  it("cancels at the very moment of success", fake.task(function()
    local ev, outcome = loop.event(), nil
    local task = loop.spawn(function() outcome = table.pack(pcall(function() return ev:wait() end)) end)
    loop.sleep(1)
    ev:set("value")
    task:cancel("no")
    loop.sleep(5)
    assert.is_false(outcome[1])
    assert.equal("cancelled", outcome[2].code)
  end))

  it("refuses nonsense", fake.task(function()
    assert.has_error(function() loop.sleep(-1) end)
    assert.has_error(function() loop.sleep(0 / 0) end)
    assert.has_error(function() loop.sleep(1e300) end)
    assert.has_error(function() loop.spawn(5) end)
    assert.has_error(function() loop.event():wait(0 / 0) end)
    local ok, why = pcall(loop.run, function() end)
    assert.is_false(ok)
    assert.matches("inside a task", why)
  end))

  it("says that waiting needs a task", function()
    local ok, why = pcall(loop.sleep, 1)
    assert.is_false(ok)
    assert.matches("outside a task", why)
    ok, why = coroutine.resume(coroutine.create(function() loop.sleep(1) end))
    assert.is_false(ok)
    assert.matches("outside a task", why)
  end)

  it("frees what tasks leave behind", fake.task(function()
    collectgarbage()
    collectgarbage()
    local before = collectgarbage("count")
    for _ = 1, 50 do
      for _ = 1, 20 do
        local task = loop.spawn(function()
          local ev = loop.event()
          ev:wait(10000)
        end)
        loop.spawn(function()
          loop.sleep(0)
          task:cancel("no")
        end)
      end
      loop.sleep(2)
    end
    loop.sleep(20)
    collectgarbage()
    collectgarbage()
    assert.is_true(collectgarbage("count") - before < 100)
  end))

  it("stops a task that never waits, pcall or not, and goes on", function()
    local out, ok = script [[
      local loop = require("sandbox_runner.core").loop
      loop.run(function()
        local task = loop.spawn(function() while true do pcall(function() while true do end end) end end)
        while not task:done() do loop.sleep(1) end
        print("still here")
      end)]]
    assert.is_true(ok, out)
    assert.matches("without waiting", out)
    assert.matches("still here", out)
  end)

  it("lets a task that it stops give back what it holds, waiting included", function()
    local out, ok = script [[
      local loop = require("sandbox_runner.core").loop
      local function holder(name, wait)
        return setmetatable({}, { __close = function()
          if wait then loop.sleep(1) end
          print("gave back " .. name)
        end })
      end
      loop.run(function()
        local task = loop.spawn(function()
          local outer <close> = holder("outer", true)
          pcall(function()
            local inner <close> = holder("inner")
            while true do end
          end)
          while true do end
        end)
        while not task:done() do loop.sleep(1) end
        local rounds = 0
        task = loop.spawn(function()
          while true do
            pcall(function()
              local inner <close> = holder("again", true)
              rounds = rounds + 1
              while true do end
            end)
          end
        end)
        while not task:done() do loop.sleep(1) end
        print("rounds " .. rounds)
      end)]]
    assert.is_true(ok, out)
    assert.matches("gave back inner\n.*gave back outer\n", out)
    assert.matches("gave back again\n", out)
    assert.matches("rounds 6\n", out)
  end)

  it("does not take a process that was stopped for a task that runs away", function()
    local out, ok = script [[
      local loop = require("sandbox_runner.core").loop
      loop.run(function()
        local last, clock, stopped = loop.now_ms(), os.clock(), false
        os.execute("(kill -STOP $PPID; sleep 2.5; kill -CONT $PPID) &") -- perhaps before it returns
        while not stopped and os.clock() - clock < 1.5 do
          local now = loop.now_ms()
          stopped, last = now - last > 1500, now
        end
        while os.clock() - clock < 0.3 do end -- and goes on working
        assert(stopped, "it was not stopped")
        print("went on")
      end)]]
    assert.equal("went on\n", out)
    assert.is_true(ok)
  end)

  it("refuses to wait where a coroutine cannot, and forgets that wait", fake.task(function()
    local ok, why = pcall(table.sort, { 3, 1, 2 }, function() return loop.sleep(50) end)
    assert.is_false(ok)
    assert.matches("cannot wait", why)
    local start = loop.now_ms()
    loop.sleep(500)
    assert.is_true(loop.now_ms() - start >= 500)
    local ev = loop.event()
    ok, why = pcall(string.gsub, "x", "x", function() ev:wait(10) end)
    assert.is_false(ok)
    assert.matches("cannot wait", why)
    ev:set(1)
    assert.is_false((xpcall(error, function() loop.sleep(1) end)))
    assert.equal(1, ev:wait())
    local started = coroutine.wrap(function() return pcall(loop.run, print) end)
    ok, why = started()
    assert.is_false(ok)
    assert.matches("inside a task", why)
  end))

  it("tells of a task that fails and of one that yields by hand", function()
    local out, ok = script [[
      local loop = require("sandbox_runner.core").loop
      loop.run(function()
        loop.spawn(function() error("my mistake") end)
        loop.spawn(function() error({ code = "cancelled" }) end)
        loop.spawn(function() coroutine.yield(1) end)
        loop.sleep(5)
        print("fine")
      end)]]
    assert.is_true(ok, out)
    assert.matches("a task failed: .*my mistake", out)
    assert.matches("coroutine.yield", out)
    assert.not_matches("cancelled", out)
    assert.matches("fine", out)
  end)

  it("ends cleanly with tasks that still wait", function()
    local out, ok = script [[
      local core = require "sandbox_runner.core"
      core.loop.run(function()
        core.loop.spawn(function() core.loop.sleep(60000) end)
        core.loop.spawn(function() core.loop.event():wait() end)
        core.loop.spawn(function() core.loop.wait_signal() end)
        core.loop.spawn(function() core.docker.open("unix:///nowhere"):ping() end)
        core.loop.spawn(function() core.stdio.read_line(100) end)
        core.loop.sleep(10)
      end)
      print("end")]]
    assert.equal("end\n", out)
    assert.is_true(ok)
  end)

  it("delivers signals to the one who waits", function()
    local out, ok = script [[
      local core = require "sandbox_runner.core"
      core.loop.run(function()
        core.loop.spawn(function()
          core.loop.sleep(20)
          assert(not pcall(core.loop.wait_signal))
          os.execute("kill -TERM $PPID")
        end)
        print(core.loop.wait_signal())
        core.loop.spawn(function() os.execute("kill -HUP $PPID") end)
        print(core.loop.wait_signal())
      end)]]
    assert.equal("15\n1\n", out)
    assert.is_true(ok)
  end)
end)

describe("stdio", function()
  local READ = [[
    local core = require "sandbox_runner.core"
    core.loop.run(function()
      repeat
        local line, why = core.stdio.read_line(10)
        core.stdio.write(("%s %s\n"):format(line, why and why.code or ""))
      until line == false
      core.stdio.flush(1000)
    end)]]

  it("reads lines, the last one without its newline, and the end", function()
    assert.equal("one \n two  \nthree \nfalse \n", (script(READ, false, "printf 'one\\n two \\r\\nthree' |")))
    assert.equal("false \n", (script(READ, false, nil, "</dev/null")))
    assert.equal(" \n \nfalse \n", (script(READ, false, "printf '\\n\\n' |")))
  end)

  it("skips a line that is too long and goes on", function()
    assert.equal("1234567890 \nnil too_large\nok \nfalse \n",
      (script(READ, false, "printf '1234567890\\n12345678901\\nok\\n' |")))
    assert.equal("nil too_large\nfalse \n", (script(READ, false, "printf '12345678901' |")))
    local out = script(READ, false, "{ head -c 30000000 /dev/zero | tr '\\0' x; printf '\\nok\\n'; } |")
    assert.equal("nil too_large\nok \nfalse \n", out)
  end)

  it("reads a file and a terminal-less void alike", function()
    local path = os.tmpname()
    fake.write(path, "a\nb")
    assert.equal("a \nb \nfalse \n", (script(READ, false, nil, ("<'%s'"):format(path))))
    os.remove(path)
    assert.equal("false \n", (script(READ, false, nil, "<&-")))
  end)

  it("notices that nobody reads any more", function()
    local folder = fake.temporary_folder()
    fake.write(folder .. "/s.lua", [[
      local core = require "sandbox_runner.core"
      core.loop.run(function()
        core.loop.sleep(100)
        for _ = 1, 100 do core.stdio.write(("x"):rep(10000) .. "\n") end
        local line
        repeat line = core.stdio.read_line(10) until line == false
        io.stderr:write(tostring(core.stdio.flush(1000)), "\n")
      end)]])
    os.execute(("mkfifo '%s/in'"):format(folder))
    -- Once without input, once with a line that is too long still in the pipe. The input stays open.
    for _, input in ipairs { "true", "printf 12345678901234567890 >&3" } do
      os.execute(("exec 3<>'%s/in'; %s; { timeout 60 '%s' --script '%s/s.lua' <'%s/in' 2>'%s/err'; } | true")
        :format(folder, input, sys.exe(), folder, folder, folder))
      assert.equal("false\n", fake.read(folder .. "/err"))
    end
    os.execute(("rm -rf '%s'"):format(folder))
  end)

  it("keeps a large answer for a slow reader whole", function()
    local out = script([[
      local core = require "sandbox_runner.core"
      core.loop.run(function()
        for i = 1, 200 do core.stdio.write(("%05d"):format(i) .. ("x"):rep(9994) .. "\n") end
        assert(core.stdio.flush(60000))
      end)]], false, nil, "| { sleep 0.3; md5sum; }")
    local parts = {}
    for i = 1, 200 do parts[i] = ("%05d"):format(i) .. ("x"):rep(9994) .. "\n" end
    local path = os.tmpname()
    fake.write(path, table.concat(parts))
    local pipe = assert(io.popen("md5sum <" .. path))
    assert.equal(pipe:read("a"), out)
    pipe:close()
    os.remove(path)
  end)

  it("forgets a reader that could not wait", function()
    local path, mark = os.tmpname(), os.tmpname()
    os.remove(mark)
    local await = ("n=0; until [ -e '%s' ] || [ $n -gt 1000 ]; do n=$((n+1)); sleep 0.05; done"):format(mark)
    local out = script(([[
      local core = require "sandbox_runner.core"
      core.loop.run(function()
        for _ = 1, 2 do
          assert(not pcall(string.gsub, "x", "x", function() core.stdio.read_line(100) end))
          core.stdio.write(("x"):rep(100000))
          assert(not pcall(string.gsub, "x", "x", function() core.stdio.flush(1000) end))
          for _ = 1, 3 do collectgarbage() end
        end
        io.open(%q, "w"):close() -- now there is input, and a reader
        io.stderr:write(core.stdio.read_line(100), "\n")
        assert(core.stdio.flush(60000))
        io.stderr:write(tostring(core.stdio.read_line(100)))
      end)]]):format(mark), false, "{ " .. await .. "; echo line; } | {",
      ("2>'%s' | { %s; cat >/dev/null; }; cat '%s'; }"):format(path, await, path))
    os.remove(path)
    os.remove(mark)
    assert.equal("line\nfalse", out)
  end)

  it("moves a long answer in time that grows with its length only", function()
    local out = script([[
      local core = require "sandbox_runner.core"
      core.loop.run(function()
        core.stdio.write(("x"):rep(30000000))
        assert(core.stdio.flush(60000))
        io.stderr:write(os.clock() < 4 and "quick" or os.clock())
      end)]], false, "{", "| cat >/dev/null; }")
    assert.equal("quick", out)
  end)

  it("flush gives up in time", function()
    local out = script([[
      local core = require "sandbox_runner.core"
      core.loop.run(function()
        core.stdio.write(("x"):rep(1000000))
        local ok, why = core.stdio.flush(50)
        io.stderr:write(tostring(ok), " ", why.code)
        os.exit(0, false)
      end)]], false, "{", on_fifo ">" .. "; }")
    assert.equal("nil timeout", out)
  end)
end)

describe("the module in the stock interpreter", function()
  it("loads and works", function()
    local out, ok = script([[
      local core = require "sandbox_runner.core"
      assert(type(core.version) == "string")
      assert(core.json.encode { a = core.json.array { 1, "x" } } == '{"a":[1,"x"]}')
      assert(core.json.decode('{"n":[1,2]}').n[2] == 2)
      assert(core.text.repair("a\xff") == "a\u{FFFD}")
      local path = os.tmpname()
      os.remove(path)
      local db = assert(core.history.open(path))
      db:close()
      os.execute("rm -f " .. path .. "*")
      local woke
      core.loop.run(function()
        core.loop.spawn(function() core.loop.sleep(5); woke = true end)
        core.loop.sleep(20)
        local _, why = core.docker.open("unix:///nowhere.sock"):ping()
        assert(why.code == "unavailable")
      end)
      assert(woke)
      print("works")]], true)
    assert.equal("works\n", out)
    assert.is_true(ok)
  end)
end)

describe("sys", function()
  it("lists, locks, makes folders and says what is wrong", function()
    local folder = fake.temporary_folder()
    assert(sys.mkdir_p(folder .. "/a/b/c"))
    assert(sys.mkdir_p(folder .. "/a/b/c"))
    assert.equal(448, sys.stat(folder .. "/a/b").mode)
    for _, name in ipairs { "z", "y", ".hidden" } do fake.write(folder .. "/a/b/c/" .. name, "") end
    assert.same({ ".hidden", "y", "z" }, sys.list(folder .. "/a/b/c"))
    assert.same({}, sys.list(sys.mkdir_p(folder .. "/empty") and folder .. "/empty"))
    local none, why = sys.list(folder .. "/nothing")
    assert.is_nil(none)
    assert.equal("not_found", why.code)
    none, why = sys.mkdir_p(folder .. "/a/b/c/z/d")
    assert.is_nil(none)
    assert.equal("not_found", why.code)
    local lock = assert(sys.lock(folder .. "/l"))
    none, why = sys.lock(folder .. "/l")
    assert.is_nil(none)
    assert.equal("conflict", why.code)
    lock:close()
    lock:close()
    do
      local again <close> = assert(sys.lock(folder .. "/l"))
      assert.is_truthy(again)
    end
    assert.is_truthy(sys.lock(folder .. "/l"))
    os.execute(("ln -s l '%s/link'"):format(folder))
    assert.is_nil((sys.lock(folder .. "/link"))) -- never through a link
    os.execute(("rm -rf '%s'"):format(folder))
  end)

  it("makes random names and digests", function()
    local seen = {}
    for _ = 1, 100 do
      local name = sys.random_hex(8)
      assert.matches("^%x+$", name)
      assert.equal(16, #name)
      assert.is_nil(seen[name])
      seen[name] = true
    end
    assert.equal("cbf29ce484222325", sys.digest(""))
    assert.equal("af63dc4c8601ec8c", sys.digest("a"))
    assert.has_error(function() sys.random_hex(0) end)
    assert.has_error(function() sys.random_hex(65) end)
  end)

  it("logs one line, cut, and never blocks", function()
    local out = script [[
      local sys = require("sandbox_runner.core").sys
      sys.log("short")
      sys.log(("x"):rep(100000))]]
    assert.matches("^sandbox%-runner: short\nsandbox%-runner: x+\n$", out)
    assert.is_true(#out < 5000)
    assert.equal("0\n", (script([[
      local sys = require("sandbox_runner.core").sys
      for _ = 1, 1000 do sys.log(("x"):rep(1000)) end]], false, "{ timeout 60", on_fifo "2>" .. "; echo $?; }")))
  end)
end)
