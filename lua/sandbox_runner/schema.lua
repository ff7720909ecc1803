--- Descriptions of values as data.
--
-- A node says what a value must look like. One tree of nodes serves three
-- purposes: checking what came in (schema.check), the JSON Schema that clients
-- see (schema.to_json) and the words of messages and manuals (schema.expected).
--
-- Fields every node may have: doc (one sentence), default, optional (true: may
-- be absent), hint (what to do, added to a message), lenient (see check).
local core = require "sandbox_runner.core"

local null, array_mt = core.json.null, core.json.array_mt

local schema = {}

local function constructor(kind)
  return function(spec)
    local node = { kind = kind }
    for key, value in pairs(spec or {}) do node[key] = value end
    return node
  end
end

--- Leaves. string: min_bytes, max_bytes, pattern (with `like`, its meaning in
-- words). integer, number, size: min, max. size is a count of bytes, written
-- as an integer or as Docker writes it ("256m"). func is a Lua function.
schema.string = constructor "string"
schema.integer = constructor "integer"
schema.number = constructor "number"
schema.boolean = constructor "boolean"
schema.size = constructor "size"
schema.func = constructor "func"

--- What no other node describes: check(value, path) -> value | nil, message
-- judges it; like says what it wants.
schema.custom = constructor "custom"

--- One of a list of strings.
function schema.enum(values, spec)
  local node = constructor "enum" (spec)
  node.values = values
  return node
end

--- A list of values of one kind; spec: min_items, max_items.
function schema.array(items, spec)
  local node = constructor "array" (spec)
  node.items = items
  return node
end

--- A table with known keys. A field is required unless it is optional or has a
-- default. spec.noun names a field in messages ("setting", "argument").
function schema.record(fields, spec)
  local node = constructor "record" (spec)
  node.fields = fields
  return node
end

--- A table with free keys; spec.key is the node of the keys (a string node).
function schema.map(values, spec)
  local node = constructor "map" (spec)
  node.values = values
  return node
end

--- The inner node or JSON null.
function schema.nullable(inner)
  return { kind = "nullable", inner = inner, doc = inner.doc, optional = inner.optional }
end

--- { "a", "b", "c" } -> "a, b and c"; `word` replaces "and".
function schema.listing(names, word)
  if #names < 2 then return names[1] or "none" end
  return table.concat(names, ", ", 1, #names - 1) .. " " .. (word or "and") .. " " .. names[#names]
end

--- The keys of a table, sorted.
function schema.keys(t)
  local names = {}
  for key in pairs(t) do names[#names + 1] = tostring(key) end
  table.sort(names)
  return names
end

local function distance(a, b)
  local row = {}
  for j = 0, #b do row[j] = j end
  for i = 1, #a do
    local diagonal
    diagonal, row[0] = row[0], i
    for j = 1, #b do
      local cost = a:byte(i) == b:byte(j) and 0 or 1
      diagonal, row[j] = row[j], math.min(row[j] + 1, row[j - 1] + 1, diagonal + cost)
    end
  end
  return row[#b]
end

local function letters(word)
  local out = { word:byte(1, -1) }
  table.sort(out)
  return string.char(table.unpack(out))
end

-- How far a misspelt name is from a known one; its beginning, or the same
-- letters in another order, are near.
local function remoteness(name, known)
  if #name > 2 and known:sub(1, #name) == name or letters(name) == letters(known) then return 1 end
  return distance(name, known)
end

--- The end of a message about an unknown name: the closest known one, or all.
function schema.suggest(name, names)
  local best, best_distance
  name = tostring(name):sub(1, 64)
  for _, known in ipairs(names) do
    local d = remoteness(name:lower(), known)
    if not best or d < best_distance then best, best_distance = known, d end
  end
  if best and best_distance <= (#best < 4 and 1 or math.max(2, #best // 3)) then
    return ("did you mean %q?"):format(best)
  end
  if #names == 0 then return "there are none" end
  return "known are " .. schema.listing(names)
end

--- Whether a value is a table that is a list for JSON: marked as one, or with
-- elements. An empty one that is not marked may be either; it is encoded as an object.
function schema.is_list(value)
  return type(value) == "table" and (getmetatable(value) == array_mt or #value > 0)
end

--- A value as a message shows it: short, on one line.
function schema.show(value)
  local kind = type(value)
  if value == nil then return "nothing" end
  if value == null then return "null" end
  if kind == "string" then
    if #value > 40 then value = core.text.cut(core.text.repair(value), 40) .. "..." end
    return '"' .. core.text.visible(core.text.repair(value)) .. '"'
  end
  if kind == "number" then
    if value ~= value then return "NaN" end
    return math.type(value) == "integer" and tostring(value) or ("%.14g"):format(value)
  end
  if kind == "table" then return schema.is_list(value) and "a list" or "a table" end
  if kind == "boolean" then return tostring(value) end
  return "a " .. kind
end

local UNITS = { b = 1, k = 1 << 10, m = 1 << 20, g = 1 << 30, t = 1 << 40 }

--- "256m" -> 268435456. Units b, k, m, g, t (powers of 1024), in either case,
-- also as "256mb" or "256MiB"; fractions as in "1.5g"; a plain number is bytes.
-- Returns nil for anything else, negative numbers included.
function schema.parse_size(value)
  if type(value) == "number" then
    local bytes = math.tointeger(value)
    return bytes and bytes >= 0 and bytes or nil
  end
  if type(value) ~= "string" then return nil end
  local digits, unit = value:lower():match("^(%d+%.?%d*)(%a*)$")
  if not digits then return nil end
  local factor = UNITS[unit:match("^([bkmgt]?)$") or unit:match("^([kmgt])i?b$")]
  if unit == "" then factor = 1 end
  local bytes = factor and tonumber(digits) * factor
  return bytes and math.tointeger(math.floor(bytes)) or nil
end

--- 268435456 -> "256m"; the largest unit that divides the value.
function schema.format_size(bytes)
  for _, unit in ipairs { "t", "g", "m", "k" } do
    local factor = UNITS[unit]
    if bytes >= factor and bytes % factor == 0 then return ("%d%s"):format(bytes // factor, unit) end
  end
  return ("%d"):format(bytes)
end

local function bounds(node, show)
  if node.min and node.max then
    return (" from %s to %s"):format(show(node.min), show(node.max))
  elseif node.min then
    return (" of at least %s"):format(show(node.min))
  elseif node.max then
    return (" of at most %s"):format(show(node.max))
  end
  return ""
end

local function quoted_listing(values)
  local shown = {}
  for i, value in ipairs(values) do shown[i] = ("%q"):format(value) end
  return schema.listing(shown, "or")
end

local EXPECTED = {
  string = function(node) return node.like or "a string" end,
  integer = function(node) return "a whole number" .. bounds(node, schema.show) end,
  number = function(node) return "a number" .. bounds(node, schema.show) end,
  size = function(node)
    return 'a size like "256m"' .. bounds(node, schema.format_size)
  end,
  boolean = function() return "true or false" end,
  enum = function(node) return quoted_listing(node.values) end,
  array = function(node) return node.like or "a list" end,
  record = function() return "a table of named values" end,
  map = function() return "a table of named values" end,
  func = function() return "a function" end,
  custom = function(node) return node.like end,
  nullable = function(node) return schema.expected(node.inner) .. " or null" end,
}

--- What a node wants, in words: "a whole number from 1 to 30".
function schema.expected(node)
  return EXPECTED[node.kind](node)
end

local function join(path, key)
  if not path or path == "" then return tostring(key) end
  return path .. "." .. tostring(key)
end

local function refuse(node, value, path)
  return nil, ("%s must be %s, got %s%s"):format(path ~= "" and path or "the value",
    schema.expected(node), schema.show(value), node.hint and "; " .. node.hint or "")
end

local function in_bounds(node, value)
  return not (node.min and value < node.min) and not (node.max and value > node.max)
end

local function to_integer(node, value)
  if type(value) == "number" then return math.tointeger(value) end
  -- The length is bounded because the pattern takes quadratic time.
  if node.lenient and type(value) == "string" and #value <= 32 and value:find("^%s*[+-]?%d+%.?0*%s*$") then
    return math.tointeger(tonumber(value))
  end
end

local CHECK = {}

function CHECK.string(node, value, path)
  if type(value) ~= "string" then return refuse(node, value, path) end
  if node.min_bytes and #value < node.min_bytes then
    return nil, ("%s must not be empty"):format(path)
  end
  if node.max_bytes and #value > node.max_bytes then
    return nil, ("%s is %d bytes long, at most %d are allowed"):format(path, #value, node.max_bytes)
  end
  if node.pattern and not value:find(node.pattern) then return refuse(node, value, path) end
  return value
end

function CHECK.integer(node, value, path)
  local number = to_integer(node, value)
  if not number or not in_bounds(node, number) then return refuse(node, value, path) end
  return number
end

function CHECK.number(node, value, path)
  if type(value) ~= "number" or value ~= value or math.abs(value) == math.huge
    or not in_bounds(node, value) then
    return refuse(node, value, path)
  end
  return value
end

function CHECK.size(node, value, path)
  local bytes = schema.parse_size(value)
  if not bytes or not in_bounds(node, bytes) then return refuse(node, value, path) end
  return bytes
end

function CHECK.boolean(node, value, path)
  if type(value) ~= "boolean" then return refuse(node, value, path) end
  return value
end

function CHECK.func(node, value, path)
  if type(value) ~= "function" then return refuse(node, value, path) end
  return value
end

function CHECK.custom(node, value, path)
  return node.check(value, path)
end

function CHECK.enum(node, value, path)
  for _, allowed in ipairs(node.values) do
    if value == allowed then return value end
  end
  return refuse(node, value, path)
end

local function is_sequence(value)
  local count = 0
  for key in pairs(value) do
    if math.type(key) ~= "integer" then return false end
    count = count + 1
  end
  return count == #value
end

function CHECK.array(node, value, path)
  if type(value) ~= "table" or not is_sequence(value) then return refuse(node, value, path) end
  if #value < (node.min_items or 0) then
    return nil, ("%s must have at least %d element%s"):format(path, node.min_items,
      node.min_items == 1 and "" or "s")
  end
  if node.max_items and #value > node.max_items then
    return nil, ("%s has %d elements, at most %d are allowed"):format(path, #value, node.max_items)
  end
  local out = core.json.array {}
  for i, element in ipairs(value) do
    local checked, message = schema.check(node.items, element, ("%s[%d]"):format(path, i))
    if checked == nil then return nil, message end
    out[i] = checked
  end
  return out
end

local function unknown_field(node, value, path)
  for _, key in ipairs(schema.keys(value)) do
    if not node.fields[key] then
      local prefix = path ~= "" and path .. ": " or ""
      return ("%sunknown %s %s; %s"):format(prefix, node.noun or "field", schema.show(key),
        schema.suggest(key, schema.keys(node.fields)))
    end
  end
end

local function check_field(node, field, value, path)
  if value == null and node.lenient and (field.optional or field.default ~= nil) then
    value = nil
  end
  if value == nil then
    if field.default ~= nil then return field.default end
    if field.optional then return nil end
    return nil, ("%s is missing%s"):format(path, field.hint and "; " .. field.hint or "")
  end
  return schema.check(field, value, path)
end

function CHECK.record(node, value, path)
  if type(value) ~= "table" or schema.is_list(value) then return refuse(node, value, path) end
  local unknown = unknown_field(node, value, path)
  if unknown then return nil, unknown end
  local out = {}
  for _, key in ipairs(schema.keys(node.fields)) do
    local checked, message = check_field(node, node.fields[key], value[key], join(path, key))
    if message then return nil, message end
    out[key] = checked
  end
  return out
end

function CHECK.map(node, value, path)
  if type(value) ~= "table" or schema.is_list(value) then return refuse(node, value, path) end
  local out = {}
  for key, element in pairs(value) do
    local name, message = schema.check(node.key, key, path .. ": the name " .. tostring(key))
    if name == nil then return nil, message end
    out[name], message = schema.check(node.values, element, join(path, key))
    if message then return nil, message end
  end
  return out
end

function CHECK.nullable(node, value, path)
  if value == null then return null end
  return schema.check(node.inner, value, path)
end

--- Check a value against a node. Returns the value as the program uses it (a
-- copy; defaults filled in, sizes in bytes), or nil and a message that names
-- the path and what would be right. A lenient integer also takes "5" and 5.0;
-- a lenient record takes null for an absent optional field.
function schema.check(node, value, path)
  return CHECK[node.kind](node, value, path or "")
end

local JSON = {}

function JSON.string() return { type = "string" } end
function JSON.integer(node) return { type = "integer", minimum = node.min, maximum = node.max } end
function JSON.number(node) return { type = "number", minimum = node.min, maximum = node.max } end
function JSON.size(node) return { type = "integer", minimum = node.min, maximum = node.max } end
function JSON.boolean() return { type = "boolean" } end
function JSON.enum(node)
  return { type = "string", enum = core.json.array { table.unpack(node.values) } }
end

function JSON.array(node)
  return { type = "array", items = schema.to_json(node.items) }
end

function JSON.map(node)
  return { type = "object", additionalProperties = schema.to_json(node.values) }
end

function JSON.record(node)
  local properties, required = {}, {}
  for _, key in ipairs(schema.keys(node.fields)) do
    local field = node.fields[key]
    properties[key] = schema.to_json(field)
    if not field.optional and field.default == nil then required[#required + 1] = key end
  end
  return { type = "object", properties = properties, additionalProperties = false,
    required = #required > 0 and core.json.array(required) or nil }
end

function JSON.nullable(node)
  local inner = schema.to_json(node.inner)
  inner.description = nil -- it stands outside
  return { anyOf = core.json.array { inner, { type = "null" } } }
end

--- The JSON Schema of a node, ready for core.json.encode. Root "type":"object"
-- for records; no $ref, no type lists: several hosts drop such tools.
function schema.to_json(node)
  local out = JSON[node.kind](node)
  out.description = node.doc
  out.default = node.default
  return out
end

--- text without the white space around it. In linear time, which the usual
-- pattern "^%s*(.-)%s*$" is not: a client chooses these texts.
function schema.trim(text)
  local from = text:find("%S")
  if not from then return "" end
  local _, to = text:find("^.*%S")
  return text:sub(from, to)
end

--- text with %41 and the like replaced by what they stand for (RFC 3986, 2.1).
function schema.percent_decoded(text)
  return (text:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end))
end

--- text with a full stop, unless it ends as a sentence already.
function schema.sentence(text)
  return text:find("[.!?]$") and text or text .. "."
end

return schema
