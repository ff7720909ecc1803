--- The server's own tools, as entries of the catalog (see catalog.lua).
--
-- A handler gets the arguments (a table) and a context (call.lua); it returns the
-- structured answer, or nil and a text that tells the model what to do.
local core = require "sandbox_runner.core"
local languages = require "sandbox_runner.languages"
local request = require "sandbox_runner.request"
local result = require "sandbox_runner.result"
local schema = require "sandbox_runner.schema"

local tools = {}

--- The resource that lists past runs; told of when a run is recorded.
tools.HISTORY_URI = "history://runs"

local RUN_TEXT = "Run a program in a fresh, isolated container and return what it printed. "
  .. "Languages: %s. No network, nothing kept between runs, standard input is empty; /scratch is "
  .. "the working folder. Limits: %d s by default, timeout_seconds up to %d; %s memory, %g CPU; "
  .. "code up to %d bytes; stdout and stderr are each cut at %d bytes. status is success, error, "
  .. "timeout or compile_error; look at hint, exit_code and stderr when it is not success."

local function run_description(config)
  local limits, names = config.limits, {}
  for i, name in ipairs(config.language_order) do
    names[i] = ("%s (%s)"):format(name, config.languages[name].description)
  end
  return RUN_TEXT:format(table.concat(names, ", "), limits.timeout_seconds,
    limits.max_timeout_seconds, schema.format_size(limits.memory), limits.cpus, limits.code_bytes,
    limits.output_bytes)
end

local function is_cancelled(thrown)
  return type(thrown) == "table" and thrown.code == "cancelled"
end

local function trace_of(thrown)
  if type(thrown) == "table" then return thrown end
  return debug.traceback(tostring(thrown), 2)
end

-- Returns nil, or a warning when the run could not be recorded. A run that took
-- place is recorded whatever becomes of its request: only the wait for a locked file
-- can be cancelled, when nothing is written yet, and each cancellation comes once.
local function record(server, checked, answer)
  local history, cancelled = server.history, nil
  local ok, warning = xpcall(history.record, trace_of, history, checked, answer)
  while is_cancelled(warning) do
    cancelled = warning
    ok, warning = xpcall(history.record, trace_of, history, checked, answer)
  end
  if not ok then error(warning, 0) end
  if not warning then server.catalog:updated(tools.HISTORY_URI) end
  if cancelled then error(cancelled, 0) end
  return warning
end

-- A run that was cancelled after its program had started is in the record, too.
local function record_cancelled(server, checked, run, started_ms)
  if not run.started then return end
  record(server, checked, { status = "cancelled", reason = "cancelled",
    duration_ms = math.floor((server.now_ms() - started_ms) * 100) / 100 })
end

local function run_checked(server, checked, run)
  local started_ms = server.now_ms()
  local ok, answer, err = xpcall(server.runner.run, trace_of, server.runner, checked, run)
  if not ok then
    if is_cancelled(answer) then record_cancelled(server, checked, run, started_ms) end
    error(answer, 0)
  end
  return answer, err
end

-- The arguments as the runner takes them, when this client may run now.
local function admit(server, arguments, client)
  local checked, text, denied = request.check(server.config, arguments, client)
  if denied then server.runner:note_denied() end
  if not checked then return nil, text end
  local ok, seconds = true, nil
  if server.rate then ok, seconds = server.rate:take(client) end
  if not ok then return nil, server.rate:refusal(seconds) end
  return checked
end

-- A run for which there was no place, or no engine, does not count for the rate.
local function give_back(server, run, err)
  if server.rate and err.code == "unavailable" and not run.started then server.rate:give_back(run.client.key) end
end

--- Runs a program: run_code, also for handlers of init.lua. Returns its result
-- (result.lua), or nil and a text for the model. Throws when it is cancelled.
function tools.run(ctx, arguments)
  local server = ctx.server
  local checked, text = admit(server, arguments, ctx.client.key)
  if not checked then return nil, text end
  -- Each run has a state of its own: a handler may start several.
  local run = { report = ctx.report, client = ctx.client }
  local answer, err = run_checked(server, checked, run)
  if not answer then
    give_back(server, run, err)
    return nil, schema.sentence(err.message or tostring(err))
  end
  local warning = record(server, checked, answer)
  if warning then
    answer.warnings = answer.warnings or core.json.array {}
    table.insert(answer.warnings, warning)
  end
  return answer
end

--- The rows of get_execution_history, or nil and a text; limit nil: the default.
function tools.history(ctx, limit)
  return ctx.server.history:recent(limit or ctx.server.config.history.default_limit)
end

--- The rows of list_supported_languages.
function tools.languages(ctx)
  local runner = ctx.server.runner
  return core.json.array(languages.list(ctx.server.config, function(images) return runner:image_in_use(images) end))
end

local LANGUAGE = schema.record {
  language = schema.string { doc = "Name for run_code." },
  image = schema.string { doc = "Preferred container image." },
  image_in_use = schema.string { optional = true,
    doc = "The image that is there; absent when none is, or the engine does not answer." },
  description = schema.string {},
  aliases = schema.array(schema.string {}, { optional = true, doc = "Other accepted names." }),
}

local RUN_ROW = schema.record {
  id = schema.integer {},
  timestamp = schema.string { doc = "When it ended, ISO 8601, UTC." },
  language = schema.string {},
  code_snippet = schema.string { doc = "The first characters of the code." },
  status = schema.string { doc = "success, error, timeout, compile_error or cancelled." },
  exit_code = schema.nullable(schema.integer {}),
  duration_ms = schema.number {},
  stdout_size = schema.integer { doc = "Bytes." },
  stderr_size = schema.integer { doc = "Bytes." },
  run_id = schema.string { optional = true },
  reason = schema.string { optional = true },
  signal = schema.string { optional = true },
}

local NO_ARGUMENTS = schema.record({}, { noun = "argument", lenient = true })

local function history_input(config)
  local bounds = config.history
  return schema.record({
    limit = schema.integer { min = 1, max = bounds.max_limit, default = bounds.default_limit,
      lenient = true, doc = "How many rows, newest first." },
  }, { noun = "argument", lenient = true })
end

local function get_history(arguments, ctx)
  local rows, text = tools.history(ctx, arguments.limit)
  if not rows then return nil, text end
  return { result = rows }
end

local function wrapped(row, doc)
  return schema.record { result = schema.array(row, { doc = doc }) }
end

local READ_ONLY = { readOnlyHint = true, destructiveHint = false, idempotentHint = true,
  openWorldHint = false }
local RUNS = { readOnlyHint = false, destructiveHint = false, idempotentHint = false,
  openWorldHint = false }

-- An entry from its nodes; check is by the input node unless the entry has one.
local function entry(fields)
  local input = fields.input
  fields.input, fields.output = schema.to_json(input), schema.to_json(fields.output)
  fields.check = fields.check or function(arguments)
    local values, message = schema.check(input, arguments)
    if not values then return nil, schema.sentence(message) end
    return values
  end
  return fields
end

--- The tools with the texts and limits of this config, in their stable order.
function tools.list(config)
  return {
    entry { name = "run_code", title = "Run code", description = run_description(config),
      input = request.schema(config), output = result.schema(), annotations = RUNS, task = "slow",
      check = function(arguments) return arguments end, -- request.check does it, with the policy
      handler = function(arguments, ctx) return tools.run(ctx, arguments) end },
    entry { name = "list_supported_languages", title = "List languages",
      description = "List the languages that run_code takes, with their images and other names.",
      input = NO_ARGUMENTS, output = wrapped(LANGUAGE, "One entry per language."), annotations = READ_ONLY,
      handler = function(_, ctx) return { result = tools.languages(ctx) } end },
    entry { name = "get_execution_history", title = "Show past runs",
      description = "List past runs, newest first: when, language, start of the code, status, "
        .. "exit code, duration and output sizes. Refused calls are not in it.",
      input = history_input(config), output = wrapped(RUN_ROW, "One row per run, newest first."),
      annotations = READ_ONLY, handler = get_history },
  }
end

return tools
