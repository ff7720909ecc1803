--- What a client's first answer does not need is not made or loaded before it.
local later = {}

--- make() -> an object, called once, at the first use. Returns a stand-in with the
-- object's fields and methods, to be read only.
function later.object(make)
  local object
  return setmetatable({}, { __index = function(_, key)
    object = object or make()
    local value = object[key]
    if type(value) ~= "function" then return value end
    return function(_, ...) return value(object, ...) end
  end })
end

--- A stand-in for the module of this name.
function later.module(name)
  return setmetatable({}, { __index = function(_, key) return require(name)[key] end })
end

return later
