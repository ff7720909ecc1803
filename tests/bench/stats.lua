--- What a row of the report needs to know about its samples.

local M = {}

--- The value below which the share q of the samples lies (nearest rank, so it
-- is always one of them). samples: array of numbers, at least one.
function M.quantile(samples, q)
  local sorted = table.move(samples, 1, #samples, 1, {})
  table.sort(sorted)
  return sorted[math.max(1, math.ceil(q * #sorted))]
end

--- The middle one, or the mean of the two in the middle.
function M.median(samples)
  local sorted = table.move(samples, 1, #samples, 1, {})
  table.sort(sorted)
  local n = #sorted
  return (sorted[(n + 1) // 2] + sorted[n // 2 + 1]) / 2
end

function M.max(samples)
  return math.max(table.unpack(samples))
end

return M
