local core = require "sandbox_runner.core"
local result = require "sandbox_runner.result"
local schema = require "sandbox_runner.schema"
local settings = require "sandbox_runner.settings"

local null = core.json.null
local config = settings.defaults()
local MARKER = "\n\n[... OUTPUT TRUNCATED ...]"

local function stage(changes)
  local out = { finish = "exit", code = 0, oom = false, wall_ms = 12.345, cpu_ms = 10, peak_bytes = 4096,
    stdout = "", stderr = "", limits = { timeout_ms = 10000, memory = 256 << 20, cpus = 0.5 } }
  for key, value in pairs(changes or {}) do out[key] = value end
  out.stdout_bytes = out.stdout_bytes or #out.stdout
  out.stderr_bytes = out.stderr_bytes or #out.stderr
  return out
end

-- Every result built here must keep to the published schema.
local function build(language, outcome, with)
  with = with or config
  outcome.run_id, outcome.image, outcome.queue_ms = "r1", "img:1", outcome.queue_ms or 0.5
  local answer = result.build(with, { language = with.languages[language], timeout_ms = 10000 }, outcome)
  local checked, message = schema.check(result.schema(), answer, "result")
  assert.is_nil(message)
  assert.same(checked, answer)
  if not answer.stdout:find("\0", 1, true) then
    assert.same(core.json.decode(core.json.encode(answer)), answer)
  end
  return answer
end

local function run(changes) return build("python", { run = stage(changes) }) end

local function compile(changes, run_stage)
  local c = stage(changes)
  c.limits = { timeout_ms = 30000, memory = 1 << 30, cpus = 1 }
  return build("cpp", { compile = c, run = run_stage })
end

local function has(answer, wanted)
  for key, value in pairs(wanted) do assert.equal(value, answer[key], key) end
end

describe("result", function()
  it("of a success has every field of the original and no null", function()
    local answer = run { stdout = "hi\n" }
    has(answer, { status = "success", reason = "exit", exit_code = 0, stdout = "hi\n", stderr = "",
      duration_ms = 12.35, language = "python", stdout_bytes = 3, stderr_bytes = 0, truncated = false,
      cpu_ms = 10, peak_memory_bytes = 4096, run_id = "r1", image = "img:1" })
    assert.same({ queue_ms = 0.5, run_ms = 12.35 }, answer.timings)
    for _, field in ipairs { "signal", "hint", "compile_output", "warnings", "oom_killed" } do
      assert.is_nil(answer[field])
    end
  end)

  it("keeps plain exit codes, 125 and 137 too", function()
    for _, code in ipairs { 1, 3, 42, 125, 137, 255 } do
      has(run { code = code }, { status = "error", reason = "exit", exit_code = code })
    end
  end)

  it("names signals and gives 128 + n", function()
    for number, name in pairs { [11] = "SIGSEGV", [6] = "SIGABRT", [15] = "SIGTERM", [24] = "SIGXCPU",
      [31] = "SIGSYS", [34] = "SIG34" } do
      has(run { finish = "signal", code = number }, { status = "error", reason = "signal",
        signal = name, exit_code = 128 + number })
    end
    assert.matches("[Ss]egmentation fault", run { finish = "signal", code = 11 }.hint)
    assert.matches("CPU time", run { finish = "signal", code = 24 }.hint)
  end)

  it("tells running out of memory apart from other kills", function()
    local answer = run { finish = "signal", code = 9, oom = true }
    has(answer, { status = "error", reason = "oom", exit_code = 137, signal = "SIGKILL", oom_killed = true })
    assert.matches("memory limit of 256m", answer.hint)
    has(run { finish = "signal", code = 9 }, { reason = "signal", exit_code = 137 })
    answer = run { code = 3, oom = true }
    has(answer, { reason = "exit", exit_code = 3, oom_killed = true })
    assert.matches("256m", answer.hint)
    has(run { code = 0, oom = true }, { status = "success", oom_killed = true })
    has(run { finish = "signal", code = 9, oom = true }, { reason = "oom", exit_code = 137 })
  end)

  it("of a timeout has no exit code, keeps the output and names the limit", function()
    local answer = run { finish = "wall", stdout = "start\n" }
    has(answer, { status = "timeout", reason = "timeout", exit_code = null, stdout = "start\n" })
    assert.matches("time limit of 10 s", answer.hint)
    assert.matches("at most 30", answer.hint)
    assert.is_nil(answer.signal)
  end)

  it("of a compile error has the compiler's code and text", function()
    local answer = compile { code = 1, stderr = "x.cpp:1: error: expected ';'\n" }
    has(answer, { status = "compile_error", reason = "compile", exit_code = 1, stdout = "",
      stderr = "x.cpp:1: error: expected ';'\n", compile_output = "x.cpp:1: error: expected ';'\n",
      duration_ms = 12.35, stderr_bytes = 29, stdout_bytes = 0 })
    assert.same({ queue_ms = 0.5, compile_ms = 12.35 }, answer.timings)
  end)

  it("of a compiler that ran into a limit says which", function()
    local answer = compile { finish = "wall" }
    has(answer, { status = "timeout", reason = "compile_timeout", exit_code = null })
    assert.matches("30 s", answer.hint)
    answer = compile { code = 1, oom = true, stderr = "g++: fatal error: Killed\n" }
    has(answer, { status = "compile_error", reason = "compile_oom", exit_code = 1 })
    assert.matches("memory limit of 1g", answer.hint)
    has(compile { finish = "signal", code = 11 }, { status = "compile_error", signal = "SIGSEGV",
      exit_code = 139 })
  end)

  it("of a compiler that left no program says so", function()
    for missing, text in pairs { absent = "did not write a.out", not_regular = "no regular file",
      too_large = "a.out is larger than the limit of 32m" } do
      local answer = compile { artifact_missing = missing }
      has(answer, { status = "compile_error", reason = "compile", exit_code = 0 })
      assert.matches(text, answer.hint)
    end
  end)

  it("adds up both stages and keeps warnings of the compiler", function()
    local answer = compile({ stderr = "warning: x\n" }, stage { stdout = "1\n", stderr = "e", code = 2 })
    has(answer, { status = "error", exit_code = 2, duration_ms = 24.69, stdout = "1\n", stderr = "e",
      compile_output = "warning: x\n", language = "cpp" })
    assert.same({ queue_ms = 0.5, compile_ms = 12.35, run_ms = 12.35 }, answer.timings)
    assert.is_nil(compile({}, stage()).compile_output)
  end)

  describe("output", function()
    local small = assert(settings.parse "limits.output_bytes = 10")
    local function shown(bytes, produced)
      return build("python", { run = stage { stdout = bytes, stdout_bytes = produced } }, small)
    end

    it("of exactly the limit is not cut", function()
      has(shown "0123456789", { stdout = "0123456789", truncated = false, stdout_bytes = 10 })
    end)

    it("beyond the limit is cut, marked and counted", function()
      local answer = shown("0123456789", 5000000)
      has(answer, { stdout = "0123456789" .. MARKER, truncated = true, stdout_bytes = 5000000 })
      assert.matches("cut at 10 bytes", answer.hint)
    end)

    it("is cut between characters", function()
      has(shown("12345678é", 40), { stdout = "12345678é" .. MARKER })
      has(shown("123456789\195", 40), { stdout = "123456789" .. MARKER })
      has(shown("1234567\240\159\152", 40), { stdout = "1234567" .. MARKER })
    end)

    it("is valid UTF-8, also when repairing makes it longer", function()
      has(shown "a\254b", { stdout = "a\239\191\189b", truncated = false, stdout_bytes = 3 })
      local answer = shown(("\255"):rep(10))
      has(answer, { stdout = ("\239\191\189"):rep(3) .. MARKER, truncated = true, stdout_bytes = 10 })
    end)

    it("keeps control characters and every stream for itself", function()
      local answer = build("python", { run = stage { stdout = "\27[31mred\27[0m\0", stderr = ("e"):rep(10),
        stderr_bytes = 300000 } }, assert(settings.parse "limits.output_bytes = 20"))
      has(answer, { stdout = "\27[31mred\27[0m\0", stderr = ("e"):rep(10) .. MARKER, truncated = true })
    end)
  end)
end)
