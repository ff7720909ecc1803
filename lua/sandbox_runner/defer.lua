--- defer(fn): a to-be-closed value whose end calls fn(value, failure). failure is
-- nil when the block was left normally. fn may await.

return function(fn)
  return setmetatable({}, { __close = fn })
end
