--- Puts the figures into the README, between its two marks, and the picture into
-- the project.

local machine = require "bench.machine"
local report = require "bench.report"

local M = {}

local BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
local OPS = { ["<="] = "≤", [">="] = "≥", ["=="] = "=" }

local function read(path)
  local file <close> = assert(io.open(path))
  return file:read("a")
end

local function write(path, text)
  local file <close> = assert(io.open(path, "w"))
  file:write(text)
end

local function with_unit(value, unit)
  local text = report.show(value)
  if unit == "" or unit == "ratio" or text == "" then return text end
  return text .. " " .. unit
end

local function line(row)
  local bar = row.bar and ("%s %s"):format(OPS[row.bar.op], with_unit(row.bar.limit, row.unit)) or ""
  local value = row.skipped and "not measured" or with_unit(row.value, row.unit)
  if row.met == false then value = value .. " (missed)" end
  local name = row.name:gsub("^%s+", "… "):gsub(" / ", " ÷ ")
  return ("| %s | %s | %s | %s | %s |"):format(name, bar, value, report.show(row.p95), report.show(row.p99))
end

--- The table of the README, with the machine that it was measured on.
function M.markdown(bench, has_picture)
  local m = bench.machine
  local out = { BEGIN, "" }
  if has_picture then table.move({ "![Latencies](tests/bench/bench.svg)", "" }, 1, 2, #out + 1, out) end
  table.move({ "| Figure | Bar | Measured | p95 | p99 |", "|---|---|---|---|---|" }, 1, 2, #out + 1, out)
  for _, row in ipairs(bench.report.rows) do
    if row.bar or not row.name:find "^%s" then out[#out + 1] = line(row) end -- details stay in the report
  end
  table.move({ "", ("Measured on %s, load %.1f before and %.1f after:"):format(os.date("!%Y-%m-%d"), m.load_before,
    m.load_after), "", (("\n" .. machine.text(m)):gsub("\n", "\n    "):sub(2)), "", END }, 1, 6, #out + 1, out)
  return table.concat(out, "\n")
end

--- folder: tests/bench. Returns the text that the README now has.
function M.write(folder, bench, svg)
  local path = folder .. "/../../README.md"
  local text = read(path)
  local from, first_end = text:find(BEGIN, 1, true)
  local _, to = text:find(END, first_end or 1, true)
  if not (from and to) then error("README.md has no place between " .. BEGIN .. " and " .. END, 0) end
  if svg then write(folder .. "/bench.svg", svg) end
  local table_text = M.markdown(bench, svg ~= nil)
  write(path, text:sub(1, from - 1) .. table_text .. text:sub(to + 1))
  return table_text
end

return M
