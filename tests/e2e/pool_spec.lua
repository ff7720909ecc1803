-- Sandboxes started ahead: the same answers as from fresh ones, only sooner.
local check = require "e2e.check"
local client = require "e2e.client"
local sandboxes = require "e2e.sandboxes"

local POOL = "pool.size = 1\npool.max = 2\npool.idle_seconds = 300\n"

-- Programs whose outcome depends on how the interpreter was started.
local PROGRAMS = {
  { "argv, __file__ and __name__", "import sys, os\nprint(sys.argv, __file__, __name__, os.path.isfile(__file__))" },
  { "path, flags and folders", "import sys, os\nprint(sys.path[0], sys.flags, os.getcwd(), sorted(os.listdir('.')))" },
  { "the environment", "import os\nprint(sorted(os.environ.items()))" },
  { "a traceback with its source lines", "def f():\n    return 1 / 0\n\nprint('before')\nf()\n" },
  { "a syntax error", "print('never closed'\n" },
  { "no newline at the end", "print('x', end='')" },
  { "a byte order mark", "\xef\xbb\xbfprint('bom')" },
  { "Windows line ends", "if True:\r\n\r\n    print('crlf')\r\n" },
  { "an encoding cookie", "# -*- coding: utf-8 -*-\nprint('\xc3\xa9')\n" },
  { "inspect.getsource", "import inspect\ndef f():\n    return 41 + 1\nprint(inspect.getsource(f))" },
  { "multiprocessing by fork and by spawn", [[
import multiprocessing as mp
def double(x):
    return 2 * x
if __name__ == '__main__':
    for method in ('fork', 'spawn'):
        with mp.get_context(method).Pool(2) as pool:
            print(method, pool.map(double, [1, 2, 3]))
]] },
  { "the end of standard input", "import sys\nprint(repr(sys.stdin.read()))\ninput()" },
  { "an exit code", "import sys\nprint('partial')\nsys.exit(3)" },
  { "os._exit", "import os\nos.write(1, b'x')\nos._exit(250)" },
  { "a signal", "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)" },
  { "its parent and children", "import os\nprint(os.getpid() > 1, os.getppid(), os.getsid(0) == os.getpid())" },
  { "open descriptors", "import os\nprint(sorted(os.listdir('/proc/self/fd'))[:3])" },
  { "a source larger than a pipe", "#" .. ("a"):rep(150000) .. "\nprint('large')\n" },
  { "a source that imports itself",
    "import sys\nsys.path.insert(0, '/scratch')\nif __name__ == '__main__':\n    import snippet\nprint(__name__)" },
}

local WITH = POOL .. "limits.code_bytes = 200000\n"
local WITHOUT = client.no_pool .. "\nlimits.code_bytes = 200000\n"

--- Waits until a sandbox stands ready: it is there and its interpreter waits.
local function ready(server)
  sandboxes.wait_for(server, 1)
  os.execute("sleep 0.4")
end

describe("a run in a sandbox started ahead", function()
  local pooled, plain

  setup(function()
    pooled, plain = client.start { init = WITH, seconds = 240 }, client.start { init = WITHOUT, seconds = 240 }
    pooled:run("python", "pass")
  end)
  teardown(function()
    pooled:close()
    plain:close()
  end)

  for _, program in ipairs(PROGRAMS) do
    it("says the same about " .. program[1], function()
      ready(pooled)
      local ahead, fresh = pooled:run("python", program[2]), plain:run("python", program[2])
      for _, field in ipairs { "status", "reason", "exit_code", "signal", "stdout", "stderr" } do
        assert.same(fresh[field], ahead[field])
      end
    end)
  end

  it("does not count the time and the CPU of the start", function()
    local function least_cpu(server)
      local least = math.huge
      for _ = 1, 5 do
        ready(pooled)
        least = math.min(least, server:run("python", "pass").cpu_ms)
      end
      return least
    end
    assert.is_true(least_cpu(pooled) < least_cpu(plain) / 2)
    ready(pooled)
    os.execute("sleep 3")
    local result = pooled:run("python", "import time\ntime.sleep(0.2)")
    assert.is_true(result.duration_ms >= 200 and result.duration_ms < 3000, result.duration_ms)
  end)

  it("has its own time limit and keeps what was printed", function()
    ready(pooled)
    local result = pooled:run("python", "import time\nprint('start')\ntime.sleep(20)", 1)
    assert.equal("timeout", result.status)
    assert.equal("start\n", result.stdout)
    assert.is_true(result.duration_ms < 10000, result.duration_ms)
  end)

  it("is answered sooner", function()
    local function best(server)
      local least = math.huge
      for _ = 1, 7 do
        ready(pooled)
        local started = client.now_ms()
        server:run("python", "print(1)")
        least = math.min(least, client.now_ms() - started)
      end
      return least
    end
    local ahead, fresh = best(pooled), best(plain)
    assert.is_true(ahead < fresh / 2, ("%.1f and %.1f ms"):format(ahead, fresh))
  end)

  it("survives the loss of what was ready", function()
    ready(pooled)
    for _, container in ipairs(sandboxes.of(pooled:instance())) do
      sandboxes.ask(function(docker) return docker:kill(container.Id) end)
    end
    assert.equal("well\n", pooled:run("python", "print('well')").stdout)
    ready(pooled)
    for _, container in ipairs(sandboxes.of(pooled:instance())) do
      sandboxes.ask(function(docker) return docker:kill(container.Id) end)
    end
    os.execute("sleep 0.5")
    assert.equal("well\n", pooled:run("python", "print('well')").stdout)
  end)

  it("answers fifty at once, each right", function()
    local ids = {}
    for i = 1, 50 do
      ids[i] = pooled:post("run_code", { language = "python", code = ("print(%d)"):format(i) })
    end
    for i = 1, 50 do
      assert.equal(i .. "\n", pooled:wait(ids[i]).result.structuredContent.stdout)
    end
    assert.is_true(client.eventually(60, function() return #sandboxes.of(pooled:instance()) <= 2 end))
  end)
end)

-- The same programs and right values that fresh sandboxes are measured by.
describe("a program in a sandbox started ahead", function()
  local server

  setup(function()
    server = client.start { init = POOL, seconds = 300 }
    server:run("python", "pass")
  end)
  teardown(function() server:close() end)

  for _, group in ipairs(require "e2e.cases.runs") do
    for i = 2, #group do
      local case = group[i]
      if case.py then
        it("gives the right answer: " .. case[1], function()
          sandboxes.wait_for(server, 1)
          assert.is_nil(check.verdict(server, case, check.run_all(server, { case }, 1)[case]))
        end)
      end
    end
  end
end)

describe("a compiled program", function()
  local SOURCE = "#include <cstdio>\nint main() { std::puts(\"made\"); return 4; }\n"
  local server

  before_each(function() server = client.start { init = POOL } end)
  after_each(function() server:close() end)

  it("is kept: the same source skips the compiler, another does not", function()
    local first = server:run("cpp", SOURCE)
    assert.is_nil(first.cached)
    local second = server:run("cpp", SOURCE)
    assert.is_true(second.cached)
    assert.equal(0, second.timings.compile_ms)
    for _, field in ipairs { "status", "exit_code", "stdout", "stderr" } do assert.same(first[field], second[field]) end
    assert.is_nil(server:run("cpp", SOURCE .. "\n").cached)
  end)

  it("that failed is compiled again", function()
    for _ = 1, 2 do
      local result = server:run("cpp", "int main() { return x; }")
      assert.equal("compile_error", result.status)
      assert.is_nil(result.cached)
    end
  end)

  it("is compiled once for equal requests at once", function()
    local ids, cached = {}, 0
    for i = 1, 4 do ids[i] = server:post("run_code", { language = "cpp", code = SOURCE .. "// together\n" }) end
    for i = 1, 4 do
      local result = server:wait(ids[i]).result.structuredContent
      assert.equal("made\n", result.stdout)
      if result.cached then cached = cached + 1 end
    end
    assert.equal(3, cached)
  end)
end)

describe("the pool of a server", function()
  it("is empty before the first use, or filled at the start, as the settings say", function()
    local lazy, eager = client.start { init = POOL }, client.start { init = POOL .. 'pool.warm = "start"\n' }
    sandboxes.wait_for(eager, 3) -- python, and both stages of cpp
    assert.equal(0, #sandboxes.of(lazy:instance()))
    assert.equal("warm\n", eager:run("python", "print('warm')").stdout)
    lazy:close()
    eager:close()
  end)

  it("goes with the server, and with one that is killed", function()
    for _, ending in ipairs { "finish", "kill" } do
      local server = client.start { init = POOL }
      server:run("python", "pass")
      ready(server)
      local instance = server:instance()
      if ending == "kill" then server:signal "KILL" end
      server:close()
      assert.is_truthy(sandboxes.gone_after(instance, 30))
    end
  end)
end)
