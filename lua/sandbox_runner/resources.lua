--- The server's own resources: the record of runs, as a whole and one by one.
local core = require "sandbox_runner.core"
local rpc = require "sandbox_runner.rpc"
local tools = require "sandbox_runner.tools"

local resources = {}

local JSON = "application/json"
local RUN_PREFIX = tools.HISTORY_URI .. "/"
local AUDIENCE = { audience = core.json.array { "user", "assistant" } }

-- Ends the call: the record cannot be read, which is not the client's fault.
local function fail(ctx, text)
  ctx.protocol_error(rpc.INTERNAL_ERROR, text)
end

local function read_runs(_, _, ctx)
  local rows, text = tools.history(ctx)
  if not rows then fail(ctx, text) end
  return { text = core.json.encode { runs = rows } }
end

--- The run with this id (row number or run_id) as JSON text; nil when there is
-- none. code_cut is true when only the beginning of the code was kept.
function resources.run_text(id, ctx)
  local row, text = ctx.server.history:find(id)
  if row == nil then fail(ctx, text) end
  if not row then return nil end
  local kept = ctx.server.config.history.preview_characters
  row.code_cut = (utf8.len(row.code_snippet) or 0) >= kept or nil
  return core.json.encode(row), row
end

--- The address of a run of this id.
function resources.run_uri(id) return RUN_PREFIX .. tostring(id) end

local function read_run(_, variables, ctx)
  local text = resources.run_text(variables.id, ctx)
  return text and { text = text }
end

--- Ids of recent runs that begin with value, newest first: run ids where there
-- are some, else row numbers. failed: only of runs that did not succeed.
function resources.complete_id(value, ctx, failed)
  local ids = {}
  for _, row in ipairs(tools.history(ctx, math.min(100, ctx.server.config.history.max_limit)) or {}) do
    local id = row.run_id or tostring(row.id)
    if id:sub(1, #value) == value and not (failed and row.status == "success") then ids[#ids + 1] = id end
  end
  return ids
end

--- Resources and templates with the settings of this config; none without a
-- history. Two lists of catalog entries.
function resources.list(config)
  if not config.history.enabled then return {}, {} end
  return {
    { uri = tools.HISTORY_URI, name = "runs", title = "Past runs", mime_type = JSON, annotations = AUDIENCE,
      description = ("The last %d runs, newest first, as get_execution_history shows them.")
        :format(config.history.default_limit), read = read_runs },
  }, {
    { uri_template = RUN_PREFIX .. "{id}", name = "run", title = "One past run", mime_type = JSON,
      annotations = AUDIENCE, description = "One run by its id or run_id: code as far as it was kept, verdict, "
        .. "sizes, times. What it printed is not kept.", read = read_run,
      complete = { id = function(value, ctx) return resources.complete_id(value, ctx) end } },
  }
end

return resources
