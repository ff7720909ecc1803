local core = require "sandbox_runner.core"
local engine_of = require "sandbox_runner.engine"
local fake = require "spec.support.fake"
local run = require "sandbox_runner.run"
local sandbox = require "sandbox_runner.sandbox"
local settings = require "sandbox_runner.settings"

local loop, sys = core.loop, core.sys

-- The waits of a removal, shortened.
local close = getmetatable(sandbox.new({ take_uid = function() return 1 end, active = 0 }, nil, "x")).close
fake.set_local(close, "GONE_MS", 500)
fake.set_local(close, "LADDER_MS", { 100, 200, 300 })

-- Questions that are asked once and say nothing about the life of a sandbox.
local QUESTIONS = { ping = true, info = true, image = true, volume = true, create_volume = true,
  put_archive = true, frame = true, ["frame F"] = true, ["frame D"] = true, ["frame S"] = true,
  ["frame K"] = true, events = true, inspect = true }

--- A fake engine with this script, an engine and a runner for it.
local function bench(script, init)
  script.images = script.images or { ["python:3.12-slim"] = true, ["gcc:14"] = true }
  if script.has_agent == nil then script.has_agent = true end
  local b = { fake = fake.start(script), log = {} }
  local config = assert(settings.parse(("engine.address = %q\npool.size = 0\n%s"):format(b.fake.address, init or "")))
  b.config, b.agent = config, b.fake.folder .. "/agent"
  fake.write(b.agent, "agent's bytes")
  local function log(text) b.log[#b.log + 1] = text end
  b.engine = engine_of.new { config = config, log = log, agent = b.agent, state = b.fake.folder .. "/state" }
  b.runner = run.new(config, b.engine, log)
  function b:request(changes)
    local r = { language = self.config.languages.python, code = "print(1)", timeout_ms = 1000, timeout_seconds = 1 }
    for k, v in pairs(changes or {}) do r[k] = v end
    return r
  end
  function b:run(changes, ctx) return self.runner:run(self:request(changes), ctx or {}) end
  --- Waits for every removal and checks that nothing is left taken.
  function b:settled(seconds)
    fake.eventually(function() return self.engine.active == 0 end, "the removal", seconds or 40)
    assert.equal(0, self.runner.gate.inside)
    assert.equal(0, self.runner.starts.inside)
    assert.is_nil(next(self.engine.uids))
    assert.is_nil(next(self.engine.leaked))
  end
  return setmetatable(b, { __close = function()
    b.engine:close()
    b.fake:stop()
  end })
end

local function names_of(record, verb)
  local list = {}
  for _, entry in ipairs(record) do
    if entry.verb == verb then list[#list + 1] = entry.name end
  end
  return list
end

describe("a run", function()
  it("creates, attaches, starts, and lets the sandbox end by itself", fake.task(function()
    local b <close> = bench { agent = { { "out", "hi\n" }, { "err", "warn" },
      { "exit", code = 3, out = 3, err = 4, cpu_us = 2000, wall_us = 5000 } } }
    local result = assert(b:run())
    assert.equal("error", result.status)
    assert.equal(3, result.exit_code)
    assert.equal("hi\n", result.stdout)
    assert.equal("warn", result.stderr)
    assert.equal(3, result.stdout_bytes)
    assert.equal(2, result.cpu_ms)
    assert.equal("python:3.12-slim", result.image)
    b:settled()
    assert.equal("create attach start wait", b.fake:verbs(QUESTIONS))
    assert.equal(0, #b.log)
  end))

  it("leaves nothing of the request with the pool", fake.task(function()
    local b <close> = bench {}
    local kinds = {}
    b.runner.pool = { is_on = function() return true end, take = function(_, kind) kinds[#kinds + 1] = kind end }
    assert(b:run())
    b:settled()
    assert.equal("python/r", kinds[1].name)
    for name, value in pairs(kinds[1].stage) do
      assert.is_truthy(name == "kind" or name == "entry" or name == "limits" or name == "argv" or name == "writable",
        name .. " = " .. tostring(value))
    end
  end))

  it("tells once what the engine warns of", fake.task(function()
    local b <close> = bench { create_text = '{"Id":"x","Warnings":["No swap limit support"]}' }
    assert(b:run())
    assert(b:run())
    b:settled()
    assert.equal(1, #b.log)
    assert.matches("the engine warns: No swap limit support", b.log[1], 1, true)
  end))

  it("sends the code as a file and the order with the sandbox's own uid", fake.task(function()
    local b <close> = bench {}
    assert(b:run { code = "print('some code')" })
    local record = b.fake:record()
    local body, order, data
    for _, entry in ipairs(record) do
      if entry.verb == "create" then body = core.json.decode(entry.body) end
      if entry.verb == "frame S" then order = entry.name end
      if entry.verb == "frame D" then data = entry.name end
    end
    assert.equal("print('some code')", data)
    assert.matches("snippet.py", order, 1, true)
    assert.matches("PATH=/usr/local/sbin", order, 1, true)
    assert.equal("sha256:python:3.12-slim", body.Image)
    assert.equal(b.engine.owner.instance, body.Labels["sandbox-runner.instance"])
    assert.equal(256 << 20, body.HostConfig.Memory)
    assert.equal(true, body.HostConfig.ReadonlyRootfs)
    local deadline = tonumber(body.Labels["sandbox-runner.deadline"])
    assert.is_true(deadline > os.time() + 50 and deadline < os.time() + 80)
    b:settled()
  end))

  it("compiles in one sandbox and runs in another", fake.task(function()
    local b <close> = bench { agent = {
      { { "out", "compiling" }, { "artifact", "program", "ELF" }, { "exit" } },
      { { "out", "ran" }, { "exit" } } } }
    local cpp = b.config.languages.cpp
    b.fake:set { agent = {
      { { "artifact", cpp.artifact, "ELF" }, { "exit" } }, { { "out", "ran" }, { "exit" } } } }
    local result = assert(b:run { language = cpp })
    assert.equal("success", result.status)
    assert.equal("ran", result.stdout)
    b:settled()
    assert.equal(2, b.fake:count "create")
    local names = names_of(b.fake:record(), "create")
    assert.matches("%-c1$", names[1])
    assert.matches("%-r1$", names[2])
    local sent = names_of(b.fake:record(), "frame D")
    assert.equal("ELF", sent[2])
  end))

  it("of a compilation that fails needs no second sandbox", fake.task(function()
    local b <close> = bench { agent = { { "err", "error: no" }, { "missing", "program", 0 }, { "exit", code = 1 } } }
    local cpp = b.config.languages.cpp
    b.fake:set { agent = { { "err", "error: no" }, { "missing", cpp.artifact, 0 }, { "exit", code = 1 } } }
    local result = assert(b:run { language = cpp })
    assert.equal("compile", result.reason)
    b:settled()
    assert.equal(1, b.fake:count "create")
  end))

  it("fills the agent's volume once when it is not there", fake.task(function()
    local b <close> = bench { has_agent = false }
    assert(b:run())
    assert(b:run())
    b:settled()
    local record = b.fake:record()
    assert.equal(1, #names_of(record, "create_volume"))
    assert.equal(1, #names_of(record, "put_archive"))
    local fillers = 0
    for _, name in ipairs(names_of(record, "create")) do
      if name:match "filler" then fillers = fillers + 1 end
    end
    assert.equal(1, fillers)
    assert.equal(1, #names_of(record, "remove")) -- the filler
  end))

  it("fills the volume once although several runs come at once", fake.task(function()
    local b <close> = bench { has_agent = false, put_archive = { delay = 0.05 } }
    local function one() assert(b:run()) end
    fake.together(one, one, one, one)
    b:settled()
    assert.equal(1, b.fake:count "put_archive")
  end))

  it("reports a program that cannot be started", fake.task(function()
    local b <close> = bench { agent = { { "failure", "exec: No such file" } } }
    local result, why = b:run()
    assert.is_nil(result)
    assert.matches("No such file", why.message, 1, true)
    b:settled()
  end))

  it("that was killed is answered when the sandbox is gone", fake.task(function()
    local b <close> = bench { agent = { { "exit", finish = "wall" } } }
    local result = assert(b:run())
    assert.equal("timeout", result.status)
    assert.equal(0, b.engine.active)
    b:settled()
  end))

  it("tells what it does", fake.task(function()
    local b <close> = bench { agent = { { "sleep", 1.2 }, { "exit" } } }
    local told = {}
    local function report(message, _, total) told[#told + 1] = { message, total } end
    assert(b:run({ timeout_ms = 3000 }, { report = report }))
    assert.is_true(#told >= 2)
    assert.same({ "running", 3 }, told[1])
    b:settled()
  end))

  it("waits its turn by client, and is told its place", fake.task(function()
    local b <close> = bench({ agent = { { "sleep", 0.1 }, { "exit" } } }, "limits.concurrency = 1")
    local order, told = {}, nil
    local function start(key, report)
      return fake.start_task(function()
        assert(b:run({}, { client = { key = key }, report = report }))
        order[#order + 1] = key
      end)
    end
    local waits = {}
    for i = 1, 4 do waits[i] = start "A" end
    fake.eventually(function() return b.runner.gate.waiting == 3 end)
    waits[5] = start("B", function(message) told = told or message end)
    for _, handle in ipairs(waits) do handle:wait() end
    assert.equal("queued, position 2", told)
    assert.same({ "A", "A", "B", "A", "A" }, order)
    b:settled()
  end))
end)

describe("a run that cannot be made", function()
  it("names the images that are not there", fake.task(function()
    local b <close> = bench { images = {} }
    local result, why = b:run()
    assert.is_nil(result)
    assert.equal("not_found", why.code)
    assert.matches("python:3.12-slim", why.message, 1, true)
    assert.matches("--get-images", why.message, 1, true)
    assert.equal(0, b.fake:count "create")
    b:settled()
  end))

  it("gives the engine's words when creating fails", fake.task(function()
    local b <close> = bench { create = { status = 500, message = "disk is full" } }
    local result, why = b:run()
    assert.is_nil(result)
    assert.matches("disk is full", why.message, 1, true)
    b:settled()
    assert.equal("create", b.fake:verbs(QUESTIONS))
  end))

  it("removes the container when attaching fails", fake.task(function()
    local b <close> = bench { attach = { status = 500, message = "no attach" } }
    local result, why = b:run()
    assert.is_nil(result)
    assert.matches("no attach", why.message, 1, true)
    b:settled()
    assert.equal("create attach remove", b.fake:verbs(QUESTIONS))
  end))

  it("refills and starts again when the agent is missing", fake.task(function()
    local b <close> = bench { start = { { status = 400, message = "exec: /.sandbox/agent: not found" }, {} } }
    local result = assert(b:run())
    assert.equal("success", result.status)
    b:settled()
    local record = b.fake:record()
    assert.equal(1, #names_of(record, "put_archive"))
    local starts = names_of(record, "start")
    assert.equal(2, #starts)
    assert.matches("%-r1$", starts[1])
    assert.matches("%-r2$", starts[2])
  end))

  it("gives up after three starts and leaves nothing behind", fake.task(function()
    local b <close> = bench { start = { status = 500, message = "runtime trouble" } }
    local result, why = b:run()
    assert.is_nil(result)
    assert.matches("runtime trouble", why.message, 1, true)
    b:settled()
    assert.equal(3, b.fake:count "start")
  end))

  it("says so when the answers of the engine are no JSON", fake.task(function()
    local b <close> = bench { image = { body = "no JSON" } }
    local result, why = b:run()
    assert.is_nil(result)
    assert.equal("protocol", why.code)
    b:settled()
  end))
end)

describe("a run that is lost", function()
  it("without a word of the kernel is an error that says so", fake.task(function()
    local b <close> = bench { agent = { { "out", "half" }, { "words", "oh\27[31m no" }, { "cut" } },
      events_text = '{"Action":"die"}\n' }
    local result, why = b:run()
    assert.is_nil(result)
    assert.equal("unavailable", why.code)
    assert.matches("lost", why.message, 1, true)
    b:settled()
    assert.matches("oh\\x1b%[31m no", b.log[1])
    assert.equal(1, b.fake:count "events")
  end))

  it("with SIGKILL is out of memory when the engine saw it and the agent did not", fake.task(function()
    local b <close> = bench { agent = { { "exit", finish = "signal", code = 9 } }, events_text = '{"Action":"oom"}\n' }
    local result = assert(b:run())
    assert.equal("oom", result.reason)
    b.fake:set { events_text = "" }
    result = assert(b:run())
    assert.equal("signal", result.reason)
    assert.equal("SIGKILL", result.signal)
    b:settled()
  end))

  it("with an oom event is out of memory", fake.task(function()
    local b <close> = bench { agent = { { "out", "half" }, { "cut" } }, events_text = '{"Action":"oom"}\n' }
    local result = assert(b:run())
    assert.equal("error", result.status)
    assert.equal("oom", result.reason)
    assert.is_true(result.oom_killed)
    assert.equal("half", result.stdout)
    b:settled()
  end))

  it("because the agent breaks the protocol is an error too", fake.task(function()
    local b <close> = bench { agent = { { "raw", "\1\0\0\0\0\0\0\5?\0\0\0\0" }, { "silent" } } }
    local result, why = b:run()
    assert.is_nil(result)
    assert.equal("unavailable", why.code)
    b:settled()
  end))

  it("to a silent agent ends at the outer deadline with what was printed", fake.task(function()
    local b <close> = bench { agent = { { "out", "before" }, { "stubborn" } } }
    local start = loop.now_ms()
    local result = assert(b:run())
    assert.equal("timeout", result.status)
    assert.equal("before", result.stdout)
    assert.is_true(loop.now_ms() - start < 30000) -- and not never
    b:settled()
    assert.matches("kill", b.fake:verbs(QUESTIONS), 1, true)
  end))
end)

describe("a run that is cancelled", function()
  local function cancelled_when(b, condition)
    local handle = fake.start_task(function() return b:run() end)
    fake.eventually(function() return condition(b) end, "the moment to cancel")
    handle.task:cancel("not wanted")
    local ok, why = handle:wait()
    assert.is_false(ok)
    assert.equal("cancelled", why.code)
  end

  it("while creating is removed after the creation", fake.task(function()
    local b <close> = bench { create = { delay = 1 } }
    cancelled_when(b, function() return b.fake:count "create" == 1 end)
    b:settled()
    assert.equal("create remove", b.fake:verbs(QUESTIONS))
  end))

  it("while starting is removed after the start", fake.task(function()
    local b <close> = bench { start = { delay = 1 }, agent = { { "silent" } } }
    cancelled_when(b, function() return b.fake:count "start" == 1 end)
    b:settled()
    assert.matches("^create attach start", b.fake:verbs(QUESTIONS))
    assert.equal(0, b.fake:count "frame S")
  end))

  it("while running ends with its stream", fake.task(function()
    local b <close> = bench { agent = { { "out", "x" }, { "silent" } } }
    cancelled_when(b, function() return b.fake:count "frame S" == 1 end)
    b:settled()
    assert.equal("create attach start wait", b.fake:verbs(QUESTIONS)) -- its agent ends with the stream
  end))

  it("keeps its place until its sandbox is gone", fake.task(function()
    local b <close> = bench({ agent = { { { "stubborn" } }, { { "exit" } } } }, "limits.concurrency = 1")
    local first = fake.start_task(function() return b:run { timeout_ms = 20000 } end)
    fake.eventually(function() return b.fake:count "frame S" == 1 end)
    local second = fake.start_task(function() return b:run() end)
    fake.eventually(function() return b.runner.gate.waiting == 1 end)
    first.task:cancel("no")
    assert.is_true((second:wait()))
    b:settled()
    assert.matches("^create attach start wait update kill wait create ", b.fake:verbs(QUESTIONS))
  end))

  it("while running is killed when its agent does not end", fake.task(function()
    local b <close> = bench { agent = { { "out", "x" }, { "stubborn" } } }
    cancelled_when(b, function() return b.fake:count "frame S" == 1 end)
    b:settled()
    assert.equal("create attach start wait update kill wait", b.fake:verbs(QUESTIONS))
  end))

  it("while the volume is being filled leaves no filler", fake.task(function()
    local b <close> = bench { has_agent = false, put_archive = { delay = 1 } }
    cancelled_when(b, function() return b.fake:count "put_archive" == 1 end)
    fake.eventually(function() return b.fake:count "remove" == 1 end, "the filler's removal")
    b:settled()
  end))

  it("while waiting for its turn gives its place away", fake.task(function()
    local b <close> = bench({ agent = { { "sleep", 1.5 }, { "exit" } } }, "limits.concurrency = 1")
    local first = fake.start_task(function() return b:run { timeout_ms = 20000 } end)
    fake.eventually(function() return b.runner.gate.inside == 1 end)
    local second = fake.start_task(function() return b:run { timeout_ms = 20000 } end)
    fake.eventually(function() return b.runner.gate.waiting == 1 end)
    second.task:cancel("no")
    assert.is_false((second:wait()))
    assert.equal(0, b.runner.gate.waiting)
    local ok, result = first:wait()
    assert.is_true(ok)
    assert.equal("success", result.status)
    b:settled()
    assert.equal(1, b.fake:count "create")
  end))
end)

describe("the removal of a sandbox", function()
  local stubborn = { { "stubborn" } }

  it("goes on until the engine has done it", fake.task(function()
    fake.together(function()
      local b <close> = bench { agent = stubborn, unkillable = true,
        remove = { { status = 409, message = "removal in progress" }, { status = 404 } } }
      assert(b:run())
      b:settled()
      assert.equal(2, b.fake:count "remove")
    end, function()
      local b <close> = bench { agent = stubborn, wait = { status = 404 } }
      assert(b:run())
      b:settled()
      assert.equal(0, b.fake:count "kill") -- it was gone already
    end, function()
      local b <close> = bench { agent = stubborn, kill = { status = 500 }, remove = { { status = 500 }, {} } }
      assert(b:run())
      b:settled()
      assert.equal(2, b.fake:count "remove")
    end)
  end))

  it("that failed is tried again later, and then frees the uid", fake.task(function()
    local b <close> = bench { agent = stubborn, unkillable = true, remove = { status = 500, message = "device busy" } }
    assert(b:run())
    fake.eventually(function() return b.engine.active == 0 end, "the end of the removal", 60)
    assert.is_not_nil(next(b.engine.leaked))
    b.engine:retry_leaked()
    assert.is_not_nil(next(b.engine.leaked))
    b.fake:set { remove = false }
    b.engine:retry_leaked()
    b:settled()
  end))

  it("that never succeeds keeps the uid and says so", fake.task(function()
    local b <close> = bench { agent = stubborn, unkillable = true, remove = { status = 500, message = "device busy" } }
    assert(b:run())
    fake.eventually(function() return b.engine.active == 0 end, "the end of the removal", 60)
    local name = next(b.engine.leaked)
    assert.matches("^sandbox%-runner%-%x+%-r1$", name)
    assert.is_not_nil(next(b.engine.uids))
    assert.equal(3, b.fake:count "remove")
    assert.matches(name .. " could not be removed (device busy); this is tried again", b.log[#b.log], 1, true)
    assert.equal(0, b.runner.gate.inside)
  end))

  it("is not forgotten when the answer to the creation was lost", fake.task(function()
    local b <close> = bench { create = { { done = true, cut = true }, {} } }
    assert(b:run())
    b:settled()
    assert.matches("%-r1 ", table.concat(names_of(b.fake:record(), "remove"), " ") .. " ")
  end))

  it("of one that was never made ends quietly", fake.task(function()
    local b <close> = bench { create = { cut = true } }
    local result, why = b:run()
    assert.is_nil(result)
    assert.equal("unavailable", why.code)
    b:settled()
    assert.equal(0, #b.log)
  end))
end)

describe("an engine", function()
  it("that accepts and never answers is a clear error in time", fake.task(function()
    fake.together(function()
      local b <close> = bench { ping = { stall = true } }
      local start = loop.now_ms()
      local result, why = b:run()
      assert.is_nil(result)
      assert.equal("unavailable", why.code)
      assert.matches("Tried unix://", why.message, 1, true)
      assert.is_true(loop.now_ms() - start < 30000)
      b:settled()
    end, function()
      local b <close> = bench { image = { stall = true } }
      local result, why = b:run()
      assert.is_nil(result)
      assert.equal("timeout", why.code)
      assert.matches("did not answer in time", why.message, 1, true)
      b:settled()
    end, function() -- not even to a kill
      local b <close> = bench { agent = { { "stubborn" } }, wait = { stall = true }, kill = { stall = true } }
      assert(b:run())
      b:settled()
    end)
  end))

  it("that is not there is named with the remedy", fake.task(function()
    local b <close> = bench {}
    b.fake:crash()
    local result, why = b:run()
    assert.is_nil(result)
    assert.equal("unavailable", why.code)
    assert.matches("make engine", why.message, 1, true)
    b:settled()
  end))

  it("that is too old is refused", fake.task(function()
    local b <close> = bench { api = "1.40" }
    local result, why = b:run()
    assert.is_nil(result)
    assert.matches("20.10", why.message, 1, true)
    b:settled()
  end))

  it("that was restarted serves the next run", fake.task(function()
    local b <close> = bench {}
    assert(b:run())
    b:settled()
    b.fake:crash()
    b.fake:boot()
    local result = assert(b:run())
    assert.equal("success", result.status)
    b:settled()
  end))

  it("that dies under a run costs that run and no other", fake.task(function()
    local b <close> = bench { agent = { { "silent" } } }
    local handle = fake.start_task(function() return b:run { timeout_ms = 20000 } end)
    fake.eventually(function() return b.fake:count "frame S" == 1 end)
    b.fake:crash()
    local ok, result, why = handle:wait()
    assert.is_true(ok)
    assert.is_nil(result)
    assert.equal("unavailable", why.code)
    b.fake:set { agent = { { "exit" } } }
    b.fake:boot()
    assert(b:run())
    fake.eventually(function() return b.engine.active == 0 end, "the end of the removals", 60)
    assert.is_nil(next(b.engine.uids)) -- the new engine does not know the old sandbox
  end))

  it("gets no more starts at once than are good for it", fake.task(function()
    local b <close> = bench { start = { delay = 0.1 } }
    local runs = {}
    for i = 1, 12 do runs[i] = function() assert(b:run()) end end
    fake.together(table.unpack(runs))
    b:settled()
    assert.equal(12, b.fake:count "create")
  end))

  it("of a full house is asked nothing", fake.task(function()
    local b <close> = bench({ agent = { { "sleep", 1 }, { "exit" } } }, "limits.concurrency = 1\nlimits.queue = 1")
    local first = fake.start_task(function() return b:run { timeout_ms = 20000 } end)
    fake.eventually(function() return b.runner.gate.inside == 1 end)
    local second = fake.start_task(function() return b:run { timeout_ms = 20000 } end)
    fake.eventually(function() return b.runner.gate.waiting == 1 end)
    local result, why = b:run()
    assert.is_nil(result)
    assert.equal("unavailable", why.code)
    assert.is_true((first:wait()) and (second:wait()))
    b:settled()
    assert.equal(2, b.fake:count "create")
  end))

  it("never gets the same uid twice at a time", fake.task(function()
    local b <close> = bench {}
    local seen = {}
    for _ = 1, 584 do
      local uid = assert(b.engine:take_uid())
      assert.is_nil(seen[uid])
      assert.is_true(uid >= 60600 and uid < 61184)
      seen[uid] = true
    end
    assert.is_nil(b.engine:take_uid())
    b.engine.uids[60700] = nil
    assert.equal(60700, b.engine:take_uid())
    local result, why = b:run()
    assert.is_nil(result)
    assert.matches("[Tt]oo many sandboxes", why.message)
    b.engine.uids = {}
    b:settled()
  end))

  it("whose agent's file is missing says so", fake.task(function()
    local b <close> = bench {}
    os.remove(b.agent)
    local result, why = b:run()
    assert.is_nil(result)
    assert.matches("install again", why.message, 1, true)
    assert.is_truthy(sys.stat(b.fake.folder))
    b:settled()
  end))
end)
