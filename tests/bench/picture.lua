--- The latencies as one SVG picture: bars on a logarithmic scale, in colours that
-- fit a light and a dark page.

local report = require "bench.report"

local M = {}

local WIDTH, LEFT, RIGHT = 720, 170, 70
local TOP, STEP, BAR = 44, 26, 16

local STYLE = [[
<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.small { font-size: 11px; fill: #59636e }
.axis { stroke: #d1d9e0 }
.ours { fill: #1a7f37 } .theirs { fill: #818b98 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .small { fill: #9198a1 } .axis { stroke: #3d444d }
  .ours { fill: #3fb950 } .theirs { fill: #656c76 }
}
</style>
]]

local HEAD = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">'
local TITLE = [[
<title>Time until the output of a hello program is there</title>
<text x="10" y="20">Time until the output of a hello program is there (median, logarithmic scale)</text>]]

local function shown(rows)
  local list = {}
  for _, row in ipairs(rows) do
    if row.picture and row.value then list[#list + 1] = row end
  end
  table.sort(list, function(a, b) return a.value < b.value end)
  return list
end

--- Powers of ten around the values: the first one's and the last one's exponent.
local function decades(list)
  local first = math.floor(math.log(list[1].value, 10))
  return first, math.max(first + 1, math.ceil(math.log(list[#list].value, 10)))
end

local function escape(text)
  return (text:gsub("&", "&amp;"):gsub("<", "&lt;"))
end

local function grid(out, first, last, x_of, bottom)
  for exponent = first, last do
    local x = x_of(10 ^ exponent)
    out[#out + 1] = ('<line class="axis" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>'):format(x, x, TOP - 6, bottom)
    out[#out + 1] = ('<text class="small" x="%.1f" y="%d" text-anchor="middle">%g ms</text>'):format(x, bottom + 16,
      10 ^ exponent)
  end
end

local function bars(out, list, x_of)
  for i, row in ipairs(list) do
    local y = TOP + (i - 1) * STEP
    local x = x_of(row.value)
    out[#out + 1] = ('<text x="%d" y="%d" text-anchor="end">%s</text>'):format(LEFT - 10, y + 13, escape(row.picture))
    out[#out + 1] = ('<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>'):format(
      row.ours and "ours" or "theirs", LEFT, y, math.max(2, x - LEFT), BAR)
    out[#out + 1] = ('<text class="small" x="%.1f" y="%d">%s ms</text>'):format(x + 6, y + 12, report.show(row.value))
  end
end

--- rows: of a report; those with a picture label are shown, `ours` in green.
-- Returns the text of the picture, or nil when there is nothing to show.
function M.svg(rows)
  local list = shown(rows)
  if #list == 0 then return nil end
  local first, last = decades(list)
  local function x_of(value)
    return LEFT + (math.log(value, 10) - first) / (last - first) * (WIDTH - LEFT - RIGHT)
  end
  local bottom = TOP + #list * STEP
  local out = { HEAD:format(WIDTH, bottom + 28, WIDTH, bottom + 28), STYLE .. TITLE }
  grid(out, first, last, x_of, bottom)
  bars(out, list, x_of)
  out[#out + 1] = "</svg>\n"
  return table.concat(out, "\n")
end

return M
