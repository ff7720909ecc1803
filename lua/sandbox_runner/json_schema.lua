--- Values checked against a JSON Schema (2020-12), for the tools of init.lua.
--
-- By the keywords that tools use: pattern, format, contains, the unevaluated ones
-- and rules about the names of properties are published, but not checked.
-- Messages are for a model: they name the place and what would be right. A place
-- ("a.b[2]") is "" for the value as a whole.
local core = require "sandbox_runner.core"
local schema = require "sandbox_runner.schema"

local null, array_mt = core.json.null, core.json.array_mt

local json_schema = {}

local MAX_DEPTH = 1000  -- of checking, references included
local MAX_SHOWN = 12    -- alternatives that a message lists
local MAX_MESSAGE = 300 -- bytes of what it says of one of them, which may list some again
local MAX_NAME = 64     -- bytes of a name in a place: it is written for every element below it

-- What the value as a whole and a member of it are called, and the verbs for it.
local ARGUMENTS = { name = "the arguments", member = "argument", has = "have", is = "are" }
local ANSWER = { name = "the answer", member = "member" }

--- What each keyword holds, in the words of json_schema_reader.lua.
json_schema.keywords = {
  type = "types", enum = "values", examples = "values", const = "value", default = "value",
  required = "words", dependentRequired = "word_lists",
  properties = "schemas_by_name", patternProperties = "schemas_by_name", dependentSchemas = "schemas_by_name",
  ["$defs"] = "schemas_by_name", definitions = "schemas_by_name",
  allOf = "schemas", anyOf = "schemas", oneOf = "schemas", prefixItems = "schemas",
  items = "schema", contains = "schema", additionalProperties = "schema", propertyNames = "schema",
  unevaluatedItems = "schema", unevaluatedProperties = "schema", contentSchema = "schema",
  ["not"] = "schema", ["if"] = "schema", ["then"] = "schema", ["else"] = "schema",
  minimum = "number", maximum = "number", exclusiveMinimum = "number", exclusiveMaximum = "number",
  multipleOf = "number",
  minLength = "count", maxLength = "count", minItems = "count", maxItems = "count", minContains = "count",
  maxContains = "count", minProperties = "count", maxProperties = "count",
  uniqueItems = "flag", deprecated = "flag", readOnly = "flag", writeOnly = "flag",
  title = "text", description = "text", format = "text", pattern = "text", contentEncoding = "text",
  contentMediaType = "text", ["$schema"] = "text", ["$id"] = "text", ["$ref"] = "text", ["$anchor"] = "text",
  ["$dynamicRef"] = "text", ["$dynamicAnchor"] = "text", ["$comment"] = "text",
}

--- Calls visit(inner, key) for each schema directly inside a schema.
function json_schema.each_inner(node, visit)
  for key, value in pairs(node) do
    local kind = json_schema.keywords[key]
    if kind == "schema" then
      visit(value, key)
    elseif kind == "schemas" or kind == "schemas_by_name" then
      for name, inner in pairs(value) do visit(inner, ("%s.%s"):format(key, name)) end
    end
  end
end

local function find_anchor(node, name)
  if type(node) ~= "table" then return nil end
  if node["$anchor"] == name then return node end
  local found
  json_schema.each_inner(node, function(inner) found = found or find_anchor(inner, name) end)
  return found
end

local function unescape(token)
  return (schema.percent_decoded(token):gsub("~1", "/"):gsub("~0", "~"))
end

--- The schema that a $ref names: "#", "#anchor" or "#/a/pointer"; or nil.
function json_schema.resolve(root, ref)
  local anchor, pointer = ref:match("^#([^/]+)$"), ref:match("^#(/.*)$")
  if anchor then return find_anchor(root, anchor) end
  local node = (pointer or ref == "#") and root or nil
  for token in (pointer or ""):gmatch("/([^/]*)") do
    if type(node) ~= "table" then return nil end
    token = unescape(token)
    node = node[getmetatable(node) == array_mt and (math.tointeger(tonumber(token)) or -1) + 1 or token]
  end
  if type(node) == "table" or type(node) == "boolean" then return node end
end

-- evaluate(state, node, value, path) -> true, the value as the program uses it; or
-- false, message. state: root, lenient, plain (see json_schema.check), depth, whole
-- (ARGUMENTS or ANSWER), seen (see check_reference).
local evaluate

local IS = {
  string = function(_, v) return type(v) == "string" end,
  number = function(_, v) return type(v) == "number" end,
  integer = function(_, v) return type(v) == "number" and math.tointeger(v) ~= nil end,
  boolean = function(_, v) return type(v) == "boolean" end,
  null = function(_, v) return v == null end,
  array = function(state, v)
    return schema.is_list(v) or (state.plain and type(v) == "table" and next(v) == nil)
  end,
  object = function(_, v) return type(v) == "table" and not schema.is_list(v) end,
}

local IN_WORDS = { string = "a string", integer = "a whole number", number = "a number", boolean = "true or false",
  null = "null", array = "a list", object = "an object" }

local function types_of(node)
  return type(node.type) == "string" and { node.type } or node.type
end

local function has(list, word)
  for _, known in ipairs(list or {}) do
    if known == word then return true end
  end
  return false
end

local function range_in_words(node)
  if node.minimum and node.maximum then
    return (" from %s to %s"):format(schema.show(node.minimum), schema.show(node.maximum))
  end
  local parts = {}
  for _, pair in ipairs { { "minimum", "of at least" }, { "maximum", "of at most" },
    { "exclusiveMinimum", "above" }, { "exclusiveMaximum", "below" } } do
    if node[pair[1]] then parts[#parts + 1] = pair[2] .. " " .. schema.show(node[pair[1]]) end
  end
  return #parts > 0 and " " .. table.concat(parts, " and ") or ""
end

local function choice_in_words(values)
  local shown = {}
  for i = 1, math.min(#values, MAX_SHOWN) do shown[i] = schema.show(values[i]) end
  if #values > MAX_SHOWN then shown[#shown + 1] = "others" end
  return schema.listing(shown, "or")
end

local function wanted(node)
  if node.enum then return choice_in_words(node.enum) end
  if node.const ~= nil then return schema.show(node.const) end
  local words = {}
  for i, name in ipairs(types_of(node) or { "number" }) do
    words[i] = IN_WORDS[name]
    if name == "integer" or name == "number" then words[i] = words[i] .. range_in_words(node) end
  end
  return schema.listing(words, "or")
end

-- "a.b has", "the arguments have".
local function subject(state, path, verb)
  if path ~= "" then return path .. " " .. verb end
  return state.whole.name .. " " .. (state.whole[verb] or verb)
end

local function refuse(state, node, value, path)
  return false, ("%s be %s, got %s"):format(subject(state, path, "must"), wanted(node), schema.show(value))
end

local function join(path, key)
  if #key > MAX_NAME then key = core.text.cut(key, MAX_NAME) .. "..." end
  return path == "" and key or path .. "." .. key
end

-- Models send numbers as texts. The length is bounded because the patterns take
-- quadratic time.
local function number_from(text, whole)
  if type(text) ~= "string" or #text > 32 then return nil end
  if not text:find(whole and "^%s*[+-]?%d+%.?0*%s*$" or "^%s*[+-]?%d+%.?%d*%s*$") then return nil end
  local number = tonumber(text)
  return whole and math.tointeger(number) or not whole and number or nil
end

-- Several alternatives may refer to one schema, at each depth again: what came of
-- it is kept, or the time would double with every level that a client nests.
local function check_reference(state, node, value, path)
  if node["$ref"] == nil then return true, value end
  local target = json_schema.resolve(state.root, node["$ref"])
  if type(value) ~= "table" then return evaluate(state, target, value, path) end
  local seen = state.seen[state.lenient or false]
  seen[target] = seen[target] or {}
  seen[target][value] = seen[target][value] or { evaluate(state, target, value, path) }
  return table.unpack(seen[target][value])
end

local function check_type(state, node, value, path)
  for _, name in ipairs(types_of(node) or {}) do
    if IS[name](state, value) then
      return true, node.type == "integer" and math.tointeger(value) or value
    end
  end
  if node.type == nil then return true, value end
  if state.lenient and (node.type == "integer" or node.type == "number") then
    local number = number_from(value, node.type == "integer")
    if number then return true, number end
  end
  return refuse(state, node, value, path)
end

local function same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  return core.json.encode(a) == core.json.encode(b)
end

local function check_choice(state, node, value, path)
  if node.const ~= nil and not same(node.const, value) then return refuse(state, node, value, path) end
  if not node.enum then return true, value end
  for _, allowed in ipairs(node.enum) do
    if same(allowed, value) then return true, value end
  end
  return refuse(state, node, value, path)
end

local function is_multiple(value, of)
  local times = value / of
  return math.abs(times - math.floor(times + 0.5)) < 1e-9
end

local function check_number(state, node, value, path)
  local low, high = node.exclusiveMinimum, node.exclusiveMaximum
  if (node.minimum and value < node.minimum) or (node.maximum and value > node.maximum)
    or (low and value <= low) or (high and value >= high) then
    return refuse(state, node, value, path)
  elseif node.multipleOf and not is_multiple(value, node.multipleOf) then
    return false, ("%s be a multiple of %s, got %s"):format(subject(state, path, "must"), schema.show(node.multipleOf),
      schema.show(value))
  end
  return true, value
end

local function bad_count(state, count, low, high, noun, path)
  local what = ("%s %d %s%s"):format(subject(state, path, "has"), count, noun, count == 1 and "" or "s")
  if low and count < low then return ("%s, at least %d are needed"):format(what, low) end
  if high and count > high then return ("%s, at most %d are allowed"):format(what, high) end
end

local function check_string(state, node, value, path)
  local message = bad_count(state, utf8.len(value) or #value, node.minLength, node.maxLength, "character", path)
  if message then return false, message end
  return true, value
end

local function bad_repetition(list, path)
  local seen = {}
  for i, element in ipairs(list) do
    local text = core.json.encode(element)
    if seen[text] then return ("%s[%d] and %s[%d] are the same"):format(path, seen[text], path, i) end
    seen[text] = i
  end
end

local function check_array(state, node, value, path)
  local message = bad_count(state, #value, node.minItems, node.maxItems, "element", path)
  if message then return false, message end
  local out = core.json.array {}
  for i, element in ipairs(value) do
    local inner = node.prefixItems and node.prefixItems[i]
    if inner == nil then inner = node.items end
    local ok, checked = true, element
    if inner ~= nil then ok, checked = evaluate(state, inner, element, ("%s[%d]"):format(path, i)) end
    if not ok then return false, checked end
    out[i] = checked
  end
  message = node.uniqueItems and bad_repetition(out, path)
  if message then return false, message end
  return true, out
end

local function copy(value)
  if type(value) ~= "table" then return value end
  local out = {}
  for key, element in pairs(value) do out[key] = copy(element) end
  return setmetatable(out, getmetatable(value))
end

local function absent(node, name, inner, path)
  if type(inner) == "table" and inner.default ~= nil then return true, copy(inner.default) end
  if not has(node.required, name) then return true, nil end
  local what = type(inner) == "table" and inner.description
  return false, ("%s is missing%s"):format(join(path, name), what and " (" .. what:gsub("%.$", "") .. ")" or "")
end

local function check_property(state, node, name, value, path)
  local inner = node.properties[name]
  if value == nil then return absent(node, name, inner, path) end
  local ok, checked = evaluate(state, inner, value, join(path, name))
  if not ok and value == null and state.lenient and not has(node.required, name) then
    return absent(node, name, inner, path) -- models write null where they mean nothing
  end
  return ok, checked
end

local function check_unknown(state, node, name, value, path)
  local rule = node.additionalProperties
  if rule == nil or rule == true or node.patternProperties then return true, value end
  if rule ~= false then return evaluate(state, rule, value, join(path, name)) end
  return false, ("%sunknown %s %s; %s"):format(path ~= "" and path .. ": " or "",
    path == "" and state.whole.member or "member", schema.show(name),
    schema.suggest(name, schema.keys(node.properties or {})))
end

local function bad_members(state, node, value, path)
  for _, name in ipairs(node.required or {}) do
    if value[name] == nil then return join(path, name) .. " is missing" end
  end
  for name, others in pairs(node.dependentRequired or {}) do
    for _, other in ipairs(value[name] ~= nil and others or {}) do
      if value[other] == nil then return ("%s is missing; it goes with %s"):format(join(path, other), name) end
    end
  end
  return bad_count(state, #schema.keys(value), node.minProperties, node.maxProperties, "member", path)
end

local function check_object(state, node, value, path)
  local out, properties = {}, node.properties or {}
  for _, name in ipairs(schema.keys(value)) do
    if properties[name] == nil then
      local ok, checked = check_unknown(state, node, name, value[name], path)
      if not ok then return false, checked end
      out[name] = checked
    end
  end
  for _, name in ipairs(schema.keys(properties)) do
    local ok, checked = check_property(state, node, name, value[name], path)
    if not ok then return false, checked end
    out[name] = checked
  end
  local message = bad_members(state, node, out, path)
  if message then return false, message end
  return true, out
end

local function check_content(state, node, value, path)
  local kind = type(value)
  if kind == "number" then return check_number(state, node, value, path) end
  if kind == "string" then return check_string(state, node, value, path) end
  if kind ~= "table" then return true, value end
  local types = types_of(node)
  if schema.is_list(value) or (IS.array(state, value) and has(types, "array") and not has(types, "object")) then
    return check_array(state, node, value, path)
  end
  return check_object(state, node, value, path)
end

-- Without the leniency: what fits as it is wins over what could be meant.
local function strictly(state, node, value, path)
  local lenient = state.lenient
  state.lenient = false
  local ok, checked = evaluate(state, node, value, path)
  state.lenient = lenient
  return ok, checked
end

-- How many of the nodes fit, the value of the first of them, the messages of the others.
local function try_all(state, nodes, value, path, try)
  local count, first, messages = 0, nil, {}
  for i, node in ipairs(nodes) do
    local ok, checked = try(state, node, value, path)
    if ok then
      count = count + 1
      if count == 1 then first = checked end
    elseif i <= MAX_SHOWN then
      messages[#messages + 1] = core.text.cut(checked, MAX_MESSAGE)
    end
  end
  return count, first, messages
end

local function check_alternatives(state, nodes, value, path, only_one)
  if not nodes then return true, value end
  local count, first, messages = try_all(state, nodes, value, path, strictly)
  if count == 0 and state.lenient then
    count, first, messages = try_all(state, nodes, value, path, evaluate)
  end
  if count == 0 then
    return false, ("%s none of the allowed forms: %s"):format(subject(state, path, "has"),
      table.concat(messages, "; or "))
  elseif count > 1 and only_one then
    return false, ("%s %d forms of which one may be there"):format(subject(state, path, "has"), count)
  end
  return true, first
end

local function check_all(state, node, value, path)
  for _, inner in ipairs(node.allOf or {}) do
    local ok
    ok, value = evaluate(state, inner, value, path)
    if not ok then return false, value end
  end
  local ok
  ok, value = check_alternatives(state, node.anyOf, value, path, false)
  if not ok then return false, value end
  return check_alternatives(state, node.oneOf, value, path, true)
end

local function check_condition(state, node, value, path)
  if node["not"] ~= nil and strictly(state, node["not"], value, path) then
    return false, subject(state, path, "has") .. " a form that is not allowed"
  end
  if node["if"] == nil then return true, value end
  local branch = node["else"]
  if strictly(state, node["if"], value, path) then branch = node["then"] end
  if branch == nil then return true, value end
  return evaluate(state, branch, value, path)
end

local STEPS = { check_reference, check_type, check_choice, check_content, check_all, check_condition }

function evaluate(state, node, value, path)
  if node == true then return true, value end
  if node == false then return false, subject(state, path, "is") .. " not allowed here" end
  state.depth = state.depth + 1
  if state.depth > MAX_DEPTH then error("a JSON Schema refers to itself without an end", 0) end
  local ok
  for _, step in ipairs(STEPS) do
    ok, value = step(state, node, value, path)
    if not ok then break end
  end
  state.depth = state.depth - 1
  return ok, value
end

--- Checks a value against a schema of an object (json_schema_reader.read).
-- Returns the value as the program uses it (a copy, defaults filled in), or nil
-- and a message. options.lenient, for what a client sent: "10" is a number, null
-- an absent optional property. options.plain, for what Lua made: an empty table
-- may be a list, too. Messages speak of arguments, with options.plain of an answer.
function json_schema.check(node, value, options)
  local state = { root = node, depth = 0, lenient = options and options.lenient, plain = options and options.plain }
  state.whole, state.seen = state.plain and ANSWER or ARGUMENTS, { [true] = {}, [false] = {} }
  local ok, checked = evaluate(state, node, value, "")
  if not ok then return nil, checked end
  return checked
end

return json_schema
