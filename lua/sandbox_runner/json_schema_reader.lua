--- JSON Schemas and other JSON data as init.lua writes them: Lua tables.
--
-- A copy comes out that encodes as it was meant, or a message that begins with
-- the place. An empty table is a list where the keyword wants one (required,
-- enum, allOf) and an object elsewhere.
local core = require "sandbox_runner.core"
local json_schema = require "sandbox_runner.json_schema"
local schema = require "sandbox_runner.schema"

local null, array_mt = core.json.null, core.json.array_mt
local KEYWORDS = json_schema.keywords

local reader = {}

local MAX_DEPTH = 64
local TYPE = schema.enum { "string", "integer", "number", "boolean", "object", "array", "null" }

-- Kind of a keyword's value -> function(value, path, depth) -> copy | nil, message.
local READ = {}

local function read_by(node)
  return function(value, path) return schema.check(node, value, path) end
end

READ.text = read_by(schema.string {})
READ.flag = read_by(schema.boolean {})
READ.number = read_by(schema.number {})
READ.count = read_by(schema.integer { min = 0 })
READ.words = read_by(schema.array(schema.string {}, { like = "a list of names" }))

local function list_of(kind, spec)
  return function(value, path, depth)
    local element = schema.custom { check = function(inner, place) return READ[kind](inner, place, depth + 1) end }
    return schema.check(schema.array(element, spec), value, path)
  end
end

READ.values = list_of("value", {})
READ.schemas = list_of("schema", { min_items = 1, like = "a list of schemas" })

function READ.types(value, path)
  if type(value) ~= "table" then return schema.check(TYPE, value, path) end
  return schema.check(schema.array(TYPE, { min_items = 1 }), value, path)
end

-- Copies a table with names as keys; read(key, value, path) reads its members.
local function read_members(value, path, read)
  local out = {}
  for key in pairs(value) do
    if type(key) ~= "string" then
      return nil, ("%s has the key %s; keys must be names"):format(path, schema.show(key))
    end
  end
  for _, key in ipairs(schema.keys(value)) do
    local member, message = read(key, value[key], path .. "." .. key)
    if message then return nil, message end
    out[key] = member
  end
  return out
end

local function named(kind)
  return function(value, path, depth)
    if type(value) ~= "table" then
      return nil, ("%s must be a table of named values, got %s"):format(path, schema.show(value))
    end
    return read_members(value, path, function(_, member, place) return READ[kind](member, place, depth + 1) end)
  end
end

READ.word_lists = named "words"
READ.schemas_by_name = named "schema"
local read_named_values = named "value"

function READ.value(value, path, depth)
  local kind = type(value)
  if depth > MAX_DEPTH then return nil, path .. " is nested too deep, or holds itself" end
  if kind == "string" or kind == "boolean" or value == null then return value end
  if kind == "number" then return READ.number(value, path) end
  if kind ~= "table" then return nil, ("%s must be plain data, got %s"):format(path, schema.show(value)) end
  if #value > 0 or getmetatable(value) == array_mt then return READ.values(value, path, depth) end
  return read_named_values(value, path, depth)
end

local function unknown_keyword(key, path)
  local hint = schema.suggest(key, schema.keys(KEYWORDS))
  if not hint:find("^did you mean") then
    hint = 'names of arguments go into properties = { ... }, keywords of your own begin with "x-"'
  end
  return ("%s is no keyword of JSON Schema; %s"):format(path, hint)
end

function READ.schema(value, path, depth)
  if type(value) == "boolean" then return value end
  if depth > MAX_DEPTH then return nil, path .. " is nested too deep, or holds itself" end
  if type(value) ~= "table" or #value > 0 then
    return nil, ('%s must be a schema like { type = "string" }, got %s'):format(path, schema.show(value))
  end
  local out, message = read_members(value, path, function(key, member, place)
    local kind = key:find("^x%-") and "value" or KEYWORDS[key]
    if not kind then return nil, unknown_keyword(key, place) end
    return READ[kind](member, place, depth + 1)
  end)
  if out and out.type == "array" and type(out.default) == "table" then core.json.array(out.default) end
  return out, message
end

local function bad_reference(root, node, path)
  if type(node) ~= "table" then return nil end
  if node["$ref"] and json_schema.resolve(root, node["$ref"]) == nil then
    return ("%s.$ref leads nowhere in this schema; write it like \"#/$defs/name\", got %s"):format(path,
      schema.show(node["$ref"]))
  end
  local message
  json_schema.each_inner(node, function(inner, key)
    message = message or bad_reference(root, inner, path .. "." .. key)
  end)
  return message
end

-- A name that no argument has would refuse every call.
local function undeclared(node, path)
  for _, name in ipairs(node.required or {}) do
    if node.properties[name] == nil then
      return ("%s.required names %s, which is not among the properties; %s"):format(path, schema.show(name),
        schema.suggest(name, schema.keys(node.properties)))
    end
  end
end

local COMPOSED = { "allOf", "anyOf", "oneOf", "not", "if" }

local function unportable(node, path)
  for _, key in ipairs(COMPOSED) do
    if node[key] ~= nil then
      return ("%s.%s at the root makes model providers refuse every request; check such a rule in the handler, "
        .. "or publish it all the same with portable = false"):format(path, key)
    end
  end
  for _, name in ipairs(schema.keys(node.properties)) do
    if type(node.properties[name]) == "boolean" then
      return ("%s.properties.%s must be a schema like { type = \"string\" }: some clients drop all tools over a "
        .. "plain %s"):format(path, name, node.properties[name])
    end
  end
end

--- Reads the schema of a tool's arguments or answer; the root is an object with
-- properties. portable: refuse what JSON Schema allows but well-known hosts fail at.
function reader.read(value, path, portable)
  local node, message = READ.schema(value, path, 0)
  if message then return nil, message end
  if type(node) ~= "table" or node.type ~= "object" then
    return nil, path .. '.type must be "object": what a tool takes and gives has names'
  elseif not node.properties then
    return nil, path .. ".properties is missing; write properties = {} when there are none"
  end
  message = undeclared(node, path) or bad_reference(node, node, path) or portable and unportable(node, path)
  if message then return nil, message end
  return node
end

--- Reads an object of any content, such as `_meta`.
function reader.read_data(value, path)
  return read_named_values(value, path, 0)
end

return reader
