--- Histograms: how many observations were at most so large.

local M = {}

--- bounds: upper bounds, ascending. Returns { bounds, counts, sum, count }; counts[i]
-- are those between bounds[i - 1] and bounds[i], the last those above all bounds.
function M.new(bounds)
  local counts = {}
  for i = 1, #bounds + 1 do counts[i] = 0 end
  return { bounds = bounds, counts = counts, sum = 0, count = 0 }
end

--- Counts one observation.
function M.observe(histogram, value)
  local bounds, at = histogram.bounds, 1
  while bounds[at] and value > bounds[at] do at = at + 1 end
  histogram.counts[at] = histogram.counts[at] + 1
  histogram.sum, histogram.count = histogram.sum + value, histogram.count + 1
end

return M
