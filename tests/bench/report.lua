--- The rows of the bench, as a table for people and as JSON for programs.

local core = require "sandbox_runner.core"
local stats = require "bench.stats"

local M = {}
local Report = {}
Report.__index = Report

local COLUMNS = { "figure", "value", "min", "p95", "p99", "unit", "bar", "met", "n" }
local RIGHT = { value = true, min = true, p95 = true, p99 = true, n = true }

function M.new()
  return setmetatable({ rows = {}, notes = {} }, Report)
end

local function meets(value, bar)
  if bar.op == "==" then return value == bar.limit end
  if bar.op == ">=" then return value >= bar.limit end
  return value <= bar.limit
end

--- Adds a figure. row: {name=, unit=, value= (default: the median of samples),
-- samples = array or nil, bar = {op="<=" | ">=" | "==", limit=} or nil: only
-- shown, picture = label or nil: the picture shows it, ours = true: in
-- our colour}. Returns the row.
function Report:add(row)
  row.value = row.value or stats.median(row.samples)
  if row.samples and #row.samples > 1 then
    row.min = row.min or math.min(table.unpack(row.samples))
    row.p95 = row.p95 or stats.quantile(row.samples, 0.95)
    row.p99 = row.p99 or stats.quantile(row.samples, 0.99)
  end
  if row.bar then row.met = meets(row.value, row.bar) end
  self.rows[#self.rows + 1] = row
  return row
end

--- The ratio of the medians is the figure; beside it the ratios of the best and
-- of the 95th and 99th percentiles, which show what noise does to it.
function Report:add_ratio(name, ours, theirs, bar)
  local function ratio(of, q) return of(ours, q) / of(theirs, q) end
  return self:add { name = name, unit = "ratio", bar = bar, value = ratio(stats.median),
    min = ratio(stats.quantile, 0), p95 = ratio(stats.quantile, 0.95), p99 = ratio(stats.quantile, 0.99) }
end

--- A figure that cannot be taken on this machine: with a bar it counts as missed.
function Report:skip(name, bar, why)
  local row = { name = name, unit = "", bar = bar, skipped = why }
  if bar then row.met = false end
  self.rows[#self.rows + 1] = row
  self:note(("%s: not measured, %s"):format(name, why))
end

--- A line below the table: what was compared with what.
function Report:note(text)
  self.notes[#self.notes + 1] = text
end

function Report:missed()
  local n = 0
  for _, row in ipairs(self.rows) do
    if row.met == false then n = n + 1 end
  end
  return n
end

--- A number as people read it; "" for nil.
function M.show(value)
  if value == nil then return "" end
  if math.type(value) == "integer" then return ("%d"):format(value) end
  return (value < 10 and "%.2f" or "%.1f"):format(value)
end

local show = M.show

local function cells(row)
  local met = ""
  if row.met ~= nil then met = row.met and "yes" or "NO" end
  local bar = row.bar and ("%s %s"):format(row.bar.op, row.bar.limit) or ""
  return {
    figure = row.name, unit = row.unit, value = row.skipped and "-" or show(row.value),
    min = show(row.min), p95 = show(row.p95), p99 = show(row.p99), bar = bar, met = met,
    n = row.samples and tostring(#row.samples) or "",
  }
end

local function line(values, widths)
  local out = {}
  for i, column in ipairs(COLUMNS) do
    out[i] = (RIGHT[column] and "%" .. widths[column] .. "s" or "%-" .. widths[column] .. "s"):format(values[column])
  end
  return (table.concat(out, "  "):gsub("%s+$", ""))
end

function Report:table()
  local lines, header, rule, widths = {}, {}, {}, {}
  local all = {}
  for i, row in ipairs(self.rows) do all[i] = cells(row) end
  for _, column in ipairs(COLUMNS) do
    header[column], widths[column] = column, #column
    for _, row in ipairs(all) do widths[column] = math.max(widths[column], #row[column]) end
    rule[column] = ("-"):rep(widths[column])
  end
  lines[1], lines[2] = line(header, widths), line(rule, widths)
  for _, row in ipairs(all) do lines[#lines + 1] = line(row, widths) end
  return table.concat(lines, "\n")
end

--- machine, settings: tables that go into the file as they are. Returns true | nil, text.
function Report:write(path, machine, settings)
  local rows = core.json.array {}
  for i, row in ipairs(self.rows) do
    local samples = row.samples and core.json.array(row.samples) or nil
    rows[i] = { name = row.name, value = row.value, unit = row.unit, min = row.min, p95 = row.p95,
      p99 = row.p99, bar = row.bar, met = row.met, samples = samples, skipped = row.skipped }
  end
  local file, why = io.open(path, "w")
  if not file then return nil, why end
  file:write(core.json.encode { machine = machine, settings = settings, figures = rows,
    notes = core.json.array(self.notes) }, "\n")
  return file:close()
end

return M
