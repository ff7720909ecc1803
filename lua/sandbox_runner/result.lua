--- The answer of run_code: one verdict from what the sandbox reported.
--
-- cpu_ms and peak_memory_bytes describe the program, or the compiler when the
-- program was never started. Absent fields are omitted; exit_code is always
-- there, and null when the program did not end by itself.
local core = require "sandbox_runner.core"
local languages = require "sandbox_runner.languages"
local schema = require "sandbox_runner.schema"

local result = {}

local MARKER = "\n\n[... OUTPUT TRUNCATED ...]"

-- Linux, the numbers of x86-64 and arm64.
local SIGNALS = { "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE",
  "SIGKILL", "SIGUSR1", "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGSTKFLT",
  "SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGXCPU", "SIGXFSZ",
  "SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO", "SIGPWR", "SIGSYS" }

local SIGNAL_HINTS = {
  SIGSEGV = "Segmentation fault: the program used memory that is not its own; look for bad "
    .. "pointers, indexes out of range or endless recursion.",
  SIGABRT = "The program aborted itself: a failed assert, std::abort or an uncaught C++ exception; "
    .. "see stderr.",
  SIGFPE = "Arithmetic fault, most often an integer division by zero.",
  SIGBUS = "Bus error: memory was used that the system could not provide, perhaps a full /dev/shm.",
  SIGILL = "The program ran into an invalid instruction, often a C++ function without a return.",
  SIGXCPU = "The program used up its CPU time.",
  SIGXFSZ = "The program wrote a file larger than the limit.",
  SIGSYS = "The program made a system call that the sandbox forbids.",
  SIGKILL = "The program was killed by SIGKILL, but not for its memory: most likely it killed itself.",
  SIGPIPE = "The program wrote to a pipe that nobody reads any more.",
}

local REASONS = { "exit", "signal", "timeout", "oom", "compile", "compile_timeout", "compile_oom" }

local function count(doc) return schema.integer { min = 0, doc = doc } end
local function optional(node) node.optional = true return node end

local SCHEMA = schema.record {
  status = schema.enum({ "success", "error", "timeout", "compile_error" },
    { doc = "success means exit code 0." }),
  reason = schema.enum(REASONS, { doc = "How the run ended." }),
  exit_code = schema.nullable(schema.integer { doc = "Exit code of the program, or of the compiler "
    .. "for compile_error; 128 + n for signal n; null when stopped by the time limit." }),
  signal = schema.string { optional = true, doc = "Name of the signal that ended it." },
  hint = schema.string { optional = true, doc = "What to do about it." },
  stdout = schema.string { doc = "What the program printed." },
  stderr = schema.string { doc = "Its error output, or the compiler's for compile_error." },
  stdout_bytes = count "Bytes printed, cut ones included.",
  stderr_bytes = count "Bytes printed to stderr, cut ones included.",
  truncated = schema.boolean { doc = "True when stdout or stderr was cut." },
  compile_output = schema.string { optional = true, doc = "What the compiler said." },
  oom_killed = schema.boolean { optional = true,
    doc = "True when a process of the run was killed for exceeding the memory limit." },
  cached = schema.boolean { optional = true, doc = "True when the compiler was skipped: same source, "
    .. "flags and image as before." },
  language = schema.string {},
  image = schema.string { optional = true },
  run_id = schema.string { optional = true },
  duration_ms = schema.number { min = 0, doc = "Compile and run, waiting excluded." },
  cpu_ms = optional(schema.number { min = 0 }),
  peak_memory_bytes = optional(count()),
  timings = schema.record({ queue_ms = optional(schema.number { min = 0 }),
    compile_ms = optional(schema.number { min = 0 }),
    run_ms = optional(schema.number { min = 0 }) }, { doc = "Where the time went." }),
  warnings = schema.array(schema.string {}, { optional = true, doc = "Trouble beside the run." }),
}

--- The output schema of run_code, as a node.
function result.schema() return SCHEMA end

local function rounded(ms)
  if not ms then return nil end
  return math.max(0, math.floor(ms * 100 + 0.5) / 100)
end

-- Without the first bytes of a character that the capture cut through.
local function without_partial(bytes)
  local at = #bytes
  while at > math.max(0, #bytes - 4) do
    local b = bytes:byte(at)
    if b < 0x80 then return bytes end
    if b >= 0xC0 then
      local need = b >= 0xF0 and 4 or b >= 0xE0 and 3 or 2
      return #bytes - at + 1 < need and bytes:sub(1, at - 1) or bytes
    end
    at = at - 1
  end
  return bytes
end

-- The text to show of a stream of `produced` bytes of which `bytes` were kept,
-- and whether it was cut.
local function shown(bytes, produced, limit)
  bytes = bytes or ""
  local cut = (produced or #bytes) > #bytes
  local text = core.text.repair(cut and without_partial(bytes) or bytes)
  if #text > limit then
    text, cut = core.text.cut(text, limit), true
  end
  return cut and text .. MARKER or text, cut
end

local function seconds(ms)
  return ("%g s"):format(ms / 1000)
end

local function memory_of(stage, fallback)
  return schema.format_size(stage.limits and stage.limits.memory or fallback)
end

local function signal_name(stage)
  return SIGNALS[stage.code] or ("SIG%d"):format(stage.code), 128 + stage.code
end

-- A verdict: { status, reason, exit_code, signal, hint }.
local function run_verdict(stage, request, limits)
  local memory = memory_of(stage, limits.memory)
  if stage.finish == "wall" then
    local limit = stage.limits and stage.limits.timeout_ms or request.timeout_ms
    return { status = "timeout", reason = "timeout",
      hint = ("The program was stopped at its time limit of %s; make it faster or ask for a larger "
        .. "timeout_seconds (at most %d)."):format(seconds(limit), limits.max_timeout_seconds) }
  elseif stage.finish == "exit" then
    local hint = stage.oom and ("A process of the program was killed because the memory limit of "
      .. "%s was reached."):format(memory) or nil
    return { status = stage.code == 0 and "success" or "error", reason = "exit",
      exit_code = stage.code, hint = hint }
  end
  local name, code = signal_name(stage)
  if stage.oom and name == "SIGKILL" then
    return { status = "error", reason = "oom", exit_code = code, signal = name,
      hint = ("The program was killed because it needed more than the memory limit of %s; use less "
        .. "memory."):format(memory) }
  end
  return { status = "error", reason = "signal", exit_code = code, signal = name,
    hint = SIGNAL_HINTS[name] }
end

local MISSING = {
  absent = "The compiler ended without an error but did not write %s, so there is nothing to run.",
  not_regular = "The compiler left something at %s that is no regular file, so there is nothing to run.",
  too_large = "The compiled program %s is larger than the limit of %s; look for large initialised "
    .. "arrays.",
}

local function compile_verdict(stage, request, limits)
  local memory = memory_of(stage, limits.memory)
  if stage.finish == "wall" then
    local limit = stage.limits and stage.limits.timeout_ms or limits.timeout_seconds * 1000
    return { status = "timeout", reason = "compile_timeout",
      hint = ("The compiler was stopped at its time limit of %s; the program was not run.")
        :format(seconds(limit)) }
  end
  local name, code
  if stage.finish == "exit" then code = stage.code else name, code = signal_name(stage) end
  local verdict = { status = "compile_error", reason = "compile", exit_code = code, signal = name }
  if stage.oom then
    verdict.reason = "compile_oom"
    verdict.hint = ("The compiler was killed because it hit the memory limit of %s; include fewer "
      .. "headers or split the templates."):format(memory)
  elseif name then
    verdict.hint = ("The compiler was ended by %s; the program was not run."):format(name)
  elseif code == 0 then
    verdict.hint = (MISSING[stage.artifact_missing] or MISSING.absent)
      :format(request.language.artifact or "the program", schema.format_size(limits.artifact))
  end
  return verdict
end

local function compile_failed(outcome)
  local stage = outcome.compile
  if not stage then return false end
  return stage.finish ~= "exit" or stage.code ~= 0 or stage.artifact_missing or not outcome.run
end

-- What the compiler said, on both of its streams, as one capture.
local function compiler_text(stage)
  local out, err = stage.stdout or "", stage.stderr or ""
  return out .. err, (stage.stdout_bytes or #out) + (stage.stderr_bytes or #err)
end

local function output_fields(outcome, failed, limit)
  local out = {}
  local said, said_bytes
  if outcome.compile then
    local bytes
    bytes, said_bytes = compiler_text(outcome.compile)
    said, out.truncated = shown(bytes, said_bytes, limit)
    if said ~= "" then out.compile_output = said end
  end
  if failed then
    out.stdout, out.stdout_bytes = "", 0
    out.stderr, out.stderr_bytes = said, said_bytes
    return out
  end
  local run, out_cut, err_cut = outcome.run
  out.stdout, out_cut = shown(run.stdout, run.stdout_bytes, limit)
  out.stderr, err_cut = shown(run.stderr, run.stderr_bytes, limit)
  out.stdout_bytes = run.stdout_bytes or #(run.stdout or "")
  out.stderr_bytes = run.stderr_bytes or #(run.stderr or "")
  out.truncated = out_cut or err_cut
  return out
end

local function timings(outcome)
  return { queue_ms = rounded(outcome.queue_ms),
    compile_ms = outcome.compile and rounded(outcome.compile.wall_ms),
    run_ms = outcome.run and rounded(outcome.run.wall_ms) }
end

local function duration(outcome)
  return rounded((outcome.compile and outcome.compile.wall_ms or 0)
    + (outcome.run and outcome.run.wall_ms or 0))
end

--- Builds the answer of run_code.
-- request: as of request.check. outcome: { run_id, image, queue_ms, compile =
-- stage or nil, run = stage or nil, cached }; a stage is { finish = "exit", "signal" or
-- "wall", code, oom, wall_ms, cpu_ms, peak_bytes, stdout, stderr (bytes kept),
-- stdout_bytes, stderr_bytes (bytes produced), limits = { timeout_ms, memory,
-- cpus }, artifact_missing }.
function result.build(config, request, outcome)
  local entry = request.language
  local failed = compile_failed(outcome)
  local stage = failed and outcome.compile or outcome.run
  local verdict = failed and compile_verdict(stage, request, languages.compile_limits(config, entry))
    or run_verdict(stage, request, languages.run_limits(config, entry))
  local out = output_fields(outcome, failed, config.limits.output_bytes)
  out.status, out.reason = verdict.status, verdict.reason
  out.exit_code = verdict.exit_code or core.json.null
  out.signal, out.hint = verdict.signal, verdict.hint
  if out.truncated and not out.hint then
    out.hint = ("Output was cut at %d bytes per stream; print less."):format(config.limits.output_bytes)
  end
  out.oom_killed = stage.oom and true or nil
  out.cached = outcome.cached and true or nil
  out.language, out.image, out.run_id = entry.name, outcome.image, outcome.run_id
  out.duration_ms, out.timings = duration(outcome), timings(outcome)
  out.cpu_ms, out.peak_memory_bytes = rounded(stage.cpu_ms), stage.peak_bytes
  return out
end

return result
