--- What a model is told about this server when it connects. Short: many hosts put
-- it into every conversation.
local schema = require "sandbox_runner.schema"

local instructions = {}

local TEXT = [[
Use run_code whenever running a program gives a surer answer than reasoning: arithmetic, parsing,
algorithms, trying out code. Languages: %s.

Each run is a fresh container without network, input or files of earlier runs; put all data into the code.
One run has %d s (timeout_seconds up to %d), %s of memory and %g CPU; code up to %d bytes, each output
stream cut at %d bytes. %sIndependent runs may be sent side by side.

Read the result by status: success (exit code 0), error, timeout or compile_error. reason says why: exit,
signal, timeout, oom, compile, compile_timeout or compile_oom. hint says what to do about it. exit_code is
null when the program was stopped; truncated means that output was cut. A text in place of a result
(isError) means that nothing was run, and says what to change.%s]]

local RATE = "At most %d runs a minute. "
local HISTORY = "\n\nEvery run is recorded: get_execution_history, or the resources history://runs and "
  .. "history://runs/{id}."

--- The text, with the limits of this config.
function instructions.text(config)
  local limits = config.limits
  return TEXT:format(schema.listing(config.language_order), limits.timeout_seconds, limits.max_timeout_seconds,
    schema.format_size(limits.memory), limits.cpus, limits.code_bytes, limits.output_bytes,
    limits.runs_per_minute and RATE:format(limits.runs_per_minute) or "",
    config.history.enabled and HISTORY or "")
end

return instructions
