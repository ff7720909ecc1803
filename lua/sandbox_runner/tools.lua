--- The tools: each is a table of texts, two schema nodes and a handler.
--
-- handler(server, arguments, ctx) gets the session (its config, runner, history
-- and log), the decoded arguments (a table) and ctx { progress = function or
-- nil, started = set by the runner once a program runs }. It returns the
-- structured answer, or nil and a text that tells the model what to do.
local core = require "sandbox_runner.core"
local languages = require "sandbox_runner.languages"
local request = require "sandbox_runner.request"
local result = require "sandbox_runner.result"
local schema = require "sandbox_runner.schema"

local tools = {}

local function check_arguments(node, arguments)
  local values, message = schema.check(node, arguments)
  if not values then return nil, schema.sentence(message) end
  return values
end

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

-- A run that was cancelled after its program had started is in the record, too.
local function record_cancelled(server, checked, ctx, started_ms)
  if not ctx.started then return end
  server.history:record(checked, { status = "cancelled", reason = "cancelled",
    duration_ms = math.floor((server.now_ms() - started_ms) * 100) / 100 })
end

local function run_checked(server, checked, ctx)
  local started_ms = server.now_ms()
  local ok, answer, err = xpcall(server.runner.run, function(thrown)
    if type(thrown) == "table" then return thrown end
    return debug.traceback(tostring(thrown), 2)
  end, server.runner, checked, ctx)
  if not ok then
    if type(answer) == "table" and answer.code == "cancelled" then
      record_cancelled(server, checked, ctx, started_ms)
    end
    error(answer, 0)
  end
  return answer, err
end

local function run_code(server, arguments, ctx)
  local checked, text = request.check(server.config, arguments)
  if not checked then return nil, text end
  local answer, err = run_checked(server, checked, ctx)
  if not answer then return nil, schema.sentence(err.message or tostring(err)) end
  local warning = server.history:record(checked, answer)
  if warning then
    answer.warnings = answer.warnings or core.json.array {}
    table.insert(answer.warnings, warning)
  end
  return answer
end

local NO_ARGUMENTS = schema.record({}, { noun = "argument", lenient = true })

local LANGUAGE = schema.record {
  language = schema.string { doc = "Name for run_code." },
  image = schema.string { doc = "Preferred container image." },
  image_in_use = schema.string { optional = true,
    doc = "The image that is there; absent when none is, or the engine does not answer." },
  description = schema.string {},
  aliases = schema.array(schema.string {}, { optional = true, doc = "Other accepted names." }),
}

local function list_languages(server, arguments)
  local values, text = check_arguments(NO_ARGUMENTS, arguments)
  if not values then return nil, text end
  return { result = core.json.array(languages.list(server.config, function(images)
    return server.runner:image_in_use(images)
  end)) }
end

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

local function history_input(config)
  local bounds = config.history
  return schema.record({
    limit = schema.integer { min = 1, max = bounds.max_limit, default = bounds.default_limit,
      lenient = true, doc = "How many rows, newest first." },
  }, { noun = "argument", lenient = true })
end

local function get_history(server, arguments)
  local values, text = check_arguments(history_input(server.config), arguments)
  if not values then return nil, text end
  local rows
  rows, text = server.history:recent(values.limit)
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

--- The tools with the texts and limits of this config, in their stable order:
-- { name, title, description, input, output, annotations, handler }.
function tools.list(config)
  return {
    { name = "run_code", title = "Run code", description = run_description(config),
      input = request.schema(config), output = result.schema(), annotations = RUNS,
      handler = run_code },
    { name = "list_supported_languages", title = "List languages",
      description = "List the languages that run_code takes, with their images and other names.",
      input = NO_ARGUMENTS, output = wrapped(LANGUAGE, "One entry per language."),
      annotations = READ_ONLY, handler = list_languages },
    { name = "get_execution_history", title = "Show past runs",
      description = "List past runs, newest first: when, language, start of the code, status, "
        .. "exit code, duration and output sizes. Refused calls are not in it.",
      input = history_input(config), output = wrapped(RUN_ROW, "One row per run, newest first."),
      annotations = READ_ONLY, handler = get_history },
  }
end

return tools
