--- Errors of the Lua side, alike those of the core: { code, message }.

local MT = { __tostring = function(e) return e.code .. ": " .. e.message end }

local fault = {}

--- nil and an error, to be returned. code: one of the core's (src/err.h).
function fault.new(code, message)
  return nil, setmetatable({ code = code, message = message }, MT)
end

--- The same with a text that is complete: whole sentences for whoever asked for
-- the run, with the remedy. Others are put into a sentence on their way up.
function fault.complete(code, message)
  return nil, setmetatable({ code = code, message = message, complete = true }, MT)
end

return fault
