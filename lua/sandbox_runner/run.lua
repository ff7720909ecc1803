--- One run from request to result: compile where the language needs it, then run.

local cache = require "sandbox_runner.cache"
local core = require "sandbox_runner.core"
local defer = require "sandbox_runner.defer"
local fault = require "sandbox_runner.fault"
local gate = require "sandbox_runner.gate"
local histogram = require "sandbox_runner.histogram"
local languages = require "sandbox_runner.languages"
local pool = require "sandbox_runner.pool"
local result = require "sandbox_runner.result"
local sandbox = require "sandbox_runner.sandbox"
local sweep = require "sandbox_runner.sweep"

local loop, sys = core.loop, core.sys
local M = {}
local Runner = {}
Runner.__index = Runner

-- The agent keeps the deadline; this much later the server does so from outside.
local GRACE_MS = 1500
local TICK_MS = 1000
local REMOVAL_WAIT_MS = 2000
-- Starts that go on side by side: more only makes each slower on the engine.
local STARTS = 4
local SIGKILL = 9
-- Most runs wait for something, and each is throttled: more than CPUs may go on.
local RUNS_PER_CPU = 16
local ARTIFACTS = 128 << 20 -- bytes of large compiled programs on their way
local SMALL_ARTIFACT = 1 << 20 -- below, a program does not count
-- A sandbox of the pool that is lost this soon had died while it waited.
local STALE_MS = 500
-- How long a sandbox may wait in the pool; pool.lua replaces it long before.
local AHEAD_MS = 2 * 3600 * 1000
-- Seconds: from a warm run to the longest time limit one meets.
local DURATIONS = { 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60 }

--- The whole environment of a program; a language may add to it. HOME and
-- TMPDIR point to the one place that is writable in every stage. LeakSanitizer
-- needs ptrace, which a sandbox does not have: without the option each clean
-- program built with ASan would fail.
local ENVIRONMENT = {
  PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
  HOME = "/tmp", TMPDIR = "/tmp", USER = "sandbox", LOGNAME = "sandbox",
  LANG = "C.UTF-8", ASAN_OPTIONS = "detect_leaks=0",
}

local function copy(t)
  local out = {}
  for name, value in pairs(t) do out[name] = value end
  return out
end

local function environment(entry)
  local all, list = copy(ENVIRONMENT), {}
  for name, value in pairs(entry.env or {}) do all[name] = value end
  for name, value in pairs(all) do list[#list + 1] = name .. "=" .. value end
  table.sort(list)
  return list
end

local function spec_for(self, stage)
  local l = stage.limits
  return {
    image = stage.image.id, volumes = stage.image.volumes, agent_volume = stage.agent_volume,
    runtime = self.config.engine.runtime, instance = self.engine.owner.instance, run = stage.run_id,
    memory = l.memory, nano_cpus = math.floor(l.cpus * 1e9 + 0.5), pids = l.pids,
    open_files = l.open_files, file_size = l.file_size, files = l.files,
    scratch = l.scratch, tmp = l.tmp, shm = l.shm, scratch_writable = stage.writable,
    deadline = math.floor(loop.wall() + stage.wall_ms / 1000 + 60),
  }
end

--- The start failed for want of the agent (its volume was emptied, or another
-- server is filling it right now), the image went away meanwhile, or the engine
-- was restarted. Nothing of the program has run yet, so trying again is safe.
local function may_retry(why)
  if why.complete or why.code == "timeout" then return false end
  return why.at ~= nil or why.code == "not_found" or why.code == "conflict" or why.code == "unavailable"
end

--- The engine's own words, put into a sentence for whoever asked for the run.
local function explained(why)
  if why.complete then return nil, why end
  if why.code ~= "timeout" then
    return fault.complete(why.code, "The container engine could not make a sandbox: " .. why.message)
  elseif why.at == "ready" then
    return fault.complete("timeout", "The sandbox was started but did not answer in time. Try again; the machine may "
      .. "be very busy.")
  end
  return fault.complete("timeout", "The container engine did not answer in time. Try again; if it stays so, look at "
    .. "the engine's log.")
end

--- What a launch needs beforehand. Returns the connection | nil, err.
local function prepare(self, stage, refill)
  local engine = self.engine
  local docker, why = engine:connect()
  if not docker then return nil, why end
  stage.image, why = engine:image(stage.entry.images)
  if not stage.image then return nil, why end
  stage.agent_volume, why = engine:agent(docker, stage.image, refill)
  if not stage.agent_volume then return nil, why end
  return docker
end

--- One attempt. Returns a launched sandbox, with the agent waiting | nil, err.
local function launch_once(self, stage, attempt)
  local docker, why = prepare(self, stage, attempt > 1)
  if not docker then return nil, why end
  local name = ("sandbox-runner-%s-%s%d"):format(stage.run_id, stage.kind, attempt)
  local container
  container, why = sandbox.new(self.engine, docker, name)
  if not container then return nil, why end
  local launched
  local guard <close> = defer(function() if not launched then container:close() end end)
  launched, why = container:launch(spec_for(self, stage))
  if not launched then return nil, why end
  self.engine.stats.starts = self.engine.stats.starts + 1
  return container
end

local function launch(self, stage)
  local container, why
  for attempt = 1, 3 do
    container, why = launch_once(self, stage, attempt)
    if container then return container end
    self.engine:note(why)
    if not may_retry(why) then break end
  end
  return explained(why)
end

--- Who waits, for the gates; ctx as of Runner:run.
local function client_of(ctx)
  return ctx.client and ctx.client.key
end

local function launch_in_turn(self, stage, ctx)
  local ok, why = self.starts:enter(nil, client_of(ctx))
  if not ok then return nil, why end
  local guard <close> = defer(function() self.starts:leave() end)
  return launch(self, stage)
end

--- The kernel's backstop, somewhat above what the run may take.
local function cpu_seconds(self, stage, held)
  local ms = held and self.config.limits.max_timeout_seconds * 1000 or stage.wall_ms
  return ms // 1000 * math.max(1, math.ceil(stage.limits.cpus)) + 2
end

--- held: the name of the source when the program starts before it is there.
local function start_order(self, stage, uid, held)
  local output = self.config.limits.output_bytes
  return {
    argv = stage.argv, env = environment(stage.entry), cwd = "/scratch", uid = uid,
    wall_ms = stage.wall_ms, cpu_seconds = cpu_seconds(self, stage, held),
    stdout_cap = output, stderr_cap = output, held = held,
    want = stage.want and { stage.want } or nil, want_max = stage.want and stage.limits.artifact or 0,
  }
end

--- Whether the program may be started before its source is there.
local function can_be_held(stage)
  return stage.kind == "r" and stage.entry.prestart and not stage.entry.compile
end

--- What the pool knows a stage by: sandboxes of one image and one set of limits.
-- The pool keeps it, so it holds nothing of the request: neither source nor
-- program. Returns it | nil, err.
local function pool_kind(self, stage)
  local image, why = self.engine:image(stage.entry.images)
  if not image then return nil, why end
  return { name = stage.entry.name .. "/" .. stage.kind, signature = image.id, stage = {
    kind = stage.kind, entry = stage.entry, limits = stage.pool_limits or stage.limits, argv = stage.argv,
    writable = stage.writable } }
end

--- Starts a sandbox for the pool; see pool.lua.
local function start_ahead(self, kind)
  local stage = copy(kind.stage)
  stage.run_id, stage.wall_ms = "pool-" .. sys.random_hex(8), AHEAD_MS
  self.starts:enter_idle()
  local guard <close> = defer(function() self.starts:leave() end)
  local container, why = launch(self, stage)
  if not container then return nil, why end
  container.image, container.pooled = stage.image, true
  if not can_be_held(stage) then return container end
  local ok
  ok, why = container.box:start(start_order(self, stage, container.uid, stage.entry.file))
  if ok then return container end
  container:close()
  return nil, why
end

--- Waits for the report; tells the caller once a second how far it is.
local function await_report(stage, box, ctx)
  local started = loop.now_ms()
  local last = stage.wall_ms + GRACE_MS
  while true do
    local elapsed = loop.now_ms() - started
    if elapsed >= last then return fault.new("timeout", "the agent did not report in time") end
    local ok, why = box:wait("done", math.ceil(math.min(TICK_MS, last - elapsed)))
    if ok or why.code ~= "timeout" then return ok, why end
    if ctx.report then
      ctx.report(stage.doing, (loop.now_ms() - started) / 1000, stage.wall_ms / 1000)
    end
  end
end

--- Whether the engine saw the kernel kill something in this sandbox for memory.
-- For the sandboxes whose agent cannot see its control group, or was killed itself.
local function engine_saw_oom(stage, container)
  local now = sweep.engine_now(container.docker)
  local since = now - math.ceil((loop.now_ms() - stage.started_ms) / 1000) - 5
  local text = container.docker:events(container.name, math.floor(since), math.floor(now))
  return text ~= nil and text:find('"oom"', 1, true) ~= nil
end

--- What became of a sandbox that ended without a report. Returns an outcome | nil, err.
local function diagnose(self, stage, container, why)
  local wall_ms = loop.now_ms() - stage.started_ms
  if why.code == "timeout" then return { finish = "wall", code = 0, oom = false, wall_ms = wall_ms } end
  if engine_saw_oom(stage, container) then
    return { finish = "signal", code = SIGKILL, oom = true, wall_ms = wall_ms }
  end
  self.engine:note(why)
  self.log(("run %s: sandbox lost: %s %s"):format(stage.run_id, why.message, container:words()))
  return fault.complete("unavailable", "The sandbox was lost before the program ended (the engine stopped, or "
    .. "somebody removed it). Nothing is known about the program's end; run it again.")
end

--- Adds what the box holds to a report or diagnosis.
local function complete(stage, box, report)
  report.stdout, report.stderr = box:output()
  report.stdout_bytes = report.stdout_bytes or #report.stdout
  report.stderr_bytes = report.stderr_bytes or #report.stderr
  report.limits = { timeout_ms = stage.wall_ms, memory = stage.limits.memory, cpus = stage.limits.cpus }
  if stage.want and report.finish == "exit" and report.code == 0 then
    report.artifact, report.artifact_missing = box:artifact(1)
  end
  return report
end

local function reported(stage, container)
  local report, why = container.box:report()
  if not report then
    return fault.complete("invalid", "The program could not be started: " .. why.message .. ".")
  end
  if report.held then return fault.new("conflict", "the interpreter ended before its script was there") end
  if report.finish == "signal" and report.code == SIGKILL and not report.oom then
    report.oom = engine_saw_oom(stage, container)
  end
  return report
end

--- Hands the files and the start order over. Returns true | nil, err.
local function give_orders(self, stage, container, ctx)
  local box = container.box
  for _, file in ipairs(stage.files) do
    local put, why = box:put_file(file.path, file.mode, file.data)
    if not put then return nil, why end
  end
  stage.started_ms = loop.now_ms()
  local ok, why
  if container.pooled and can_be_held(stage) then
    local output = self.config.limits.output_bytes
    ok, why = box:go(stage.wall_ms, output, output)
  else
    ok, why = box:start(start_order(self, stage, container.uid))
  end
  if not ok then return nil, why end
  ctx.started = true
  if ctx.report then ctx.report(stage.doing, 0, stage.wall_ms / 1000) end
  return true
end

--- Runs the stage in this sandbox, which is closed afterwards. Returns a stage
-- outcome (see result.lua) | nil, err.
local function use(self, stage, container, ctx)
  local guard <close> = defer(function(_, failure)
    container:close()
    -- A cancelled run keeps its place until its sandbox does not need it any more.
    if failure then container.gone:wait(REMOVAL_WAIT_MS) end
  end)
  local report
  local ok, why = give_orders(self, stage, container, ctx)
  if not ok then return nil, why end
  ok, why = await_report(stage, container.box, ctx)
  if ok then
    container:over()
    report, why = reported(stage, container)
  else
    report, why = diagnose(self, stage, container, why)
  end
  if not report then return nil, why end
  complete(stage, container.box, report)
  if report.finish ~= "exit" then -- a killed run is answered when it is really gone
    container:close()
    container.gone:wait(REMOVAL_WAIT_MS)
  end
  return report
end

--- Whether a waiting sandbox can be given the limits of this request: an
-- interpreter that has begun keeps the CPU seconds it was started with.
local function can_be_adjusted(stage)
  local cpus = stage.own_limits.cpus
  return not (cpus and can_be_held(stage) and math.ceil(cpus) > math.max(1, math.ceil(stage.pool_limits.cpus)))
end

--- A sandbox of the pool for this stage, or nil[, err].
local function take(self, stage)
  if not self.pool:is_on() or (stage.own_limits and not can_be_adjusted(stage)) then return nil end
  local kind, why = pool_kind(self, stage)
  if not kind then return nil, why end
  local container = self.pool:take(kind)
  if not container or not stage.own_limits then return container end
  local ok
  local guard <close> = defer(function() if not ok then container:close() end end)
  ok, why = container:limit(stage.own_limits)
  if ok then return container end
  self.log(("run %s: the limits of a waiting sandbox could not be changed: %s"):format(stage.run_id, why.message),
    "debug")
  return nil
end

--- Whether a sandbox of the pool that failed had died while it waited, as far as
-- one can tell: a loss in the middle of a run would meet a fresh one, too.
local function was_stale(stage)
  return stage.started_ms == nil or loop.now_ms() - stage.started_ms < STALE_MS
end

--- Runs one stage in a sandbox of its own. stage: {kind="c"|"r", entry, limits,
-- wall_ms, argv, files={{path, mode, data}}, want=path or nil, writable, doing,
-- run_id, own_limits = those of this request alone (in limits, too) or nil, and
-- pool_limits = limits without them}. Returns a stage outcome | nil, err. A sandbox of the pool that turns
-- out to be dead is replaced by a fresh one: what ran in it left no trace.
function Runner:stage(stage, ctx)
  local container, why = take(self, stage)
  if container then
    stage.image = container.image
    local report, trouble = use(self, stage, container, ctx)
    if report or not was_stale(stage) then return report, trouble end
  elseif why and why.complete then
    return nil, why -- no engine, no image: a fresh one would not come either
  end
  container, why = launch_in_turn(self, stage, ctx)
  if not container then return nil, why end
  return use(self, stage, container, ctx)
end

local function compile_stage(self, request, run_id)
  local entry = request.language
  local limits = languages.compile_limits(self.config, entry)
  return {
    kind = "c", entry = entry, run_id = run_id, limits = limits, argv = entry.compile, want = entry.artifact,
    wall_ms = math.floor(limits.timeout_seconds * 1000), writable = true, doing = "compiling",
    files = { { path = entry.file, mode = 420, data = request.code } },
  }
end

--- An artifact comes back to a scratch folder that the program cannot write to.
local function run_stage(self, request, run_id, artifact)
  local entry = request.language
  local file = artifact and { path = entry.artifact, mode = 493, data = artifact }
    or { path = entry.file, mode = 420, data = request.code }
  local own = request.limits
  return {
    kind = "r", entry = entry, run_id = run_id, limits = languages.run_limits(self.config, entry, own),
    own_limits = own, pool_limits = languages.run_limits(self.config, entry), argv = entry.run,
    wall_ms = request.timeout_ms, writable = artifact == nil, doing = "running", files = { file },
  }
end

--- Everything that the compiler's output depends on.
local function cache_key(stage, image, code)
  local entry, limits = stage.entry, {}
  for name, value in pairs(stage.limits) do limits[#limits + 1] = name .. "=" .. tostring(value) end
  table.sort(limits)
  return table.concat({ image.id, entry.name, entry.file, entry.artifact, table.concat(stage.argv, "\0"),
    table.concat(environment(entry), "\0"), table.concat(limits, "\0"), code }, "\0\0")
end

local function compiled(outcome)
  return outcome.compile.finish == "exit" and outcome.compile.code == 0 and outcome.compile.artifact ~= nil
end

--- The compiler's part, from the cache where the same was compiled before.
-- Returns true (the program may run, artifact), false (it failed) | nil, err.
local function compile(self, request, ctx, outcome)
  local stage = compile_stage(self, request, outcome.run_id)
  local image, why = self.engine:image(stage.entry.images)
  if not image then return nil, why end
  local made, artifact
  made, why, outcome.cached = self.cache:get(cache_key(stage, image, request.code), function()
    return self:stage(stage, ctx)
  end)
  if not made then return nil, why end
  outcome.image = image.name
  outcome.compile = copy(made)
  if outcome.cached then outcome.compile.wall_ms = 0 end
  if not compiled(outcome) then return false end
  artifact, outcome.compile.artifact = outcome.compile.artifact, nil
  return true, artifact
end

--- Lets so many compiled programs of unusual size exist in this server at once:
-- each is here in full while it goes from one sandbox to the other. Returns a
-- function that gives the place up; calling it again does nothing.
local function enter_compile(self, ctx)
  self.compiles:enter(nil, client_of(ctx))
  return function()
    if self then self.compiles:leave() end
    self = nil
  end
end

local function execute(self, request, ctx, outcome)
  local leave = request.language.compile and enter_compile(self, ctx) or function() end
  local guard <close> = defer(leave)
  local artifact, why
  if request.language.compile then
    local ok, answer = compile(self, request, ctx, outcome)
    if ok == nil then return nil, answer end
    if not ok then return outcome end
    artifact = answer
    if #artifact <= SMALL_ARTIFACT then leave() end
  end
  local stage = run_stage(self, request, outcome.run_id, artifact)
  outcome.run, why = self:stage(stage, ctx)
  if not outcome.run then return nil, why end
  outcome.image = stage.image.name
  return outcome
end

--- Counts a run that was let in. reason: that of its result, or "failed" (none
-- could be had), or "cancelled". seconds: from its place to its result.
local function count(self, language, reason, seconds)
  local entry = self.stats.languages[language]
  if not entry then
    entry = { reasons = {}, seconds = histogram.new(DURATIONS) }
    self.stats.languages[language] = entry
  end
  entry.reasons[reason] = (entry.reasons[reason] or 0) + 1
  if reason ~= "failed" and reason ~= "cancelled" then histogram.observe(entry.seconds, seconds) end
end

--- config: settings; engine: see engine.lua; log: function(text).
-- runner.stats counts: languages[name] = { reasons = {reason = number}, seconds =
-- histogram }, denied = requests that the policy refused (Runner:note_denied).
function M.new(config, engine, log)
  local self = setmetatable({
    config = config, engine = engine, log = log, started_ms = loop.now_ms(), started = loop.wall(),
    stats = { languages = {}, denied = 0 },
    gate = gate.new(config.limits.concurrency or RUNS_PER_CPU * sys.cpus(), config.limits.queue),
    starts = gate.new(STARTS),
    compiles = gate.new(math.max(2, ARTIFACTS // config.compile.artifact)),
    cache = cache.new(config.compile.cache),
  }, Runner)
  self.pool = pool.new(config.pool, function(kind) return start_ahead(self, kind) end, log)
  return self
end

--- Starts sandboxes of every language ahead, when the settings want that.
function Runner:warm()
  if self.config.pool.warm ~= "start" then return end
  for _, name in ipairs(self.config.language_order) do
    local request = { language = self.config.languages[name], code = "", timeout_ms = AHEAD_MS }
    local artifact = request.language.compile and ""
    for _, stage in ipairs { run_stage(self, request, "", artifact),
      artifact and compile_stage(self, request, "") or nil } do
      local kind = pool_kind(self, stage)
      if kind then self.pool:stock(kind) end
    end
  end
end

--- Ends the pool: its sandboxes go, no more are started.
function Runner:close()
  self.pool:close()
end

--- Which of the images a run would use now: its name, or nil (none, no engine).
function Runner:image_in_use(images)
  local image = self.engine:image(images)
  return image and image.name
end

--- What stands ready in the pool: a sorted array of { language, stage = "compile"
-- or "run", ready = number }.
function Runner:ready()
  local list = {}
  for name, number in pairs(self.pool:ready()) do
    local language, kind = name:match "^(.*)/(%a)$"
    list[#list + 1] = { language = language, stage = kind == "c" and "compile" or "run", ready = number }
  end
  table.sort(list, function(a, b) return a.language .. "/" .. a.stage < b.language .. "/" .. b.stage end)
  return list
end

--- Counts a request that the policy refused before it came here.
function Runner:note_denied()
  self.stats.denied = self.stats.denied + 1
end

local function enter(self, ctx)
  return self.gate:enter(ctx.report and function(position)
    ctx.report(("queued, position %d"):format(position), 0, 0)
  end, client_of(ctx))
end

--- Runs a checked request (request.lua). ctx.report(message, elapsed_s, total_s),
-- if given, is told what happens; ctx.client.key, if given, names the client for
-- the queue. Sets ctx.started when something of the request has begun to run.
-- Returns a result (result.lua) | nil, err: it could not be run at all. Throws
-- when the task is cancelled.
function Runner:run(request, ctx)
  local asked = loop.now_ms()
  local ok, why = enter(self, ctx)
  if not ok then return nil, why end
  local entered = loop.now_ms()
  local answer, outcome
  local guard <close> = defer(function(_, failure)
    self.gate:leave()
    local cancelled = type(failure) == "table" and failure.code == "cancelled"
    count(self, request.language.name, answer and answer.reason or cancelled and "cancelled" or "failed",
      (loop.now_ms() - entered) / 1000)
  end)
  outcome, why = execute(self, request, ctx, { run_id = sys.random_hex(8), queue_ms = entered - asked })
  if not outcome then return nil, why end
  answer = result.build(self.config, request, outcome)
  return answer
end

return M
