--- The server's own prompts: how to get something done with run_code.
local languages = require "sandbox_runner.languages"
local resources = require "sandbox_runner.resources"
local schema = require "sandbox_runner.schema"

local prompts = {}

local RUN_PROGRAM = [[
Solve this task by writing a program in %s (%s) and running it with the tool run_code:

%s

- Write one whole program that prints what matters. It gets no input, no network and no files, and has
  only what comes with the language.
- It has %d s (timeout_seconds up to %d) and %s of memory.
- When status is not success, read hint, stderr and exit_code, correct the program and run it again. After
  three failures explain what stands in the way.
- Answer with what the program printed and what follows from it. Present nothing as a result that no run
  has shown.]]

local FIX_RUN = [[
The run below did not end well. Its entry in the record follows.

- Find out why: status and reason say how it ended (timeout and oom are limits, signal is a crash, compile
  means that it did not build).
- The record keeps no output. Run the program once more with the tool run_code (language %q) to see its
  stderr%s.
- Correct the program, run it, and repeat until status is success or you can say why it cannot be.
- Then show the corrected program and what was wrong.]]

local CUT = ". Only the beginning of the code was kept: ask for the rest if you do not have it"

local function names_of(config)
  local names = {}
  for i, name in ipairs(config.language_order) do names[i] = name end
  return names
end

local function run_program(arguments, ctx)
  local config = ctx.server.config
  local entry = languages.find(config, arguments.language)
  if not entry then
    return nil, ("unknown language %s; known are %s"):format(schema.show(arguments.language), languages.names(config))
  end
  local limits = languages.run_limits(config, entry)
  return RUN_PROGRAM:format(entry.name, entry.description, arguments.task, limits.timeout_seconds,
    limits.max_timeout_seconds, schema.format_size(limits.memory))
end

local function fix_failed_run(arguments, ctx)
  local text, row = resources.run_text(arguments.run_id, ctx)
  if not text then
    return nil, ("there is no run %s in the record; get_execution_history lists the last ones")
      :format(schema.show(arguments.run_id))
  end
  local uri = resources.run_uri(row.run_id or row.id)
  return {
    { role = "user", content = FIX_RUN:format(row.language, row.code_cut and CUT or "") },
    { role = "user", content = { type = "resource",
      resource = { uri = uri, mimeType = "application/json", text = text } } },
  }
end

--- The prompts for this config, in their stable order, as entries of the catalog.
function prompts.list(config)
  local list = {
    { name = "run_program", title = "Solve a task with a program",
      description = "Have a program written for a task, run in the sandbox and corrected until it works.",
      arguments = {
        { name = "language", description = "Language of the program.", required = true },
        { name = "task", description = "What the program is to find out or to do.", required = true },
      },
      complete = { language = names_of(config) }, messages = run_program },
  }
  if config.history.enabled then
    list[2] = { name = "fix_failed_run", title = "Correct a failed run",
      description = "Have a past run that failed looked at and corrected.",
      arguments = { { name = "run_id", description = "run_id or id of the run.", required = true } },
      complete = { run_id = function(value, ctx) return resources.complete_id(value, ctx, true) end },
      messages = fix_failed_run }
  end
  return list
end

return prompts
