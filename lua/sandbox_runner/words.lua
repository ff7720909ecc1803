--- The words of init.lua that define something: language, tool, resource,
-- resource_template and prompt. Each is a name and a table of fields; what they
-- may say is here, what becomes of them in languages.lua and handlers.lua.
local core = require "sandbox_runner.core"
local json_schema = require("sandbox_runner.later").module "sandbox_runner.json_schema"
local json_schema_reader = require("sandbox_runner.later").module "sandbox_runner.json_schema_reader"
local languages = require "sandbox_runner.languages"
local schema = require "sandbox_runner.schema"
local settings_tree = require "sandbox_runner.settings_tree"

local words = {}

--- The longest address of a resource.
words.MAX_URI_BYTES = 2000

--- Names that the server itself uses, by word.
words.built_in = {
  tool = { run_code = true, list_supported_languages = true, get_execution_history = true },
  resource = { ["history://runs"] = true },
  resource_template = { ["history://runs/{id}"] = true },
  prompt = { run_program = true, fix_failed_run = true },
}

local function text(spec)
  spec.optional, spec.min_bytes = spec.optional ~= false, 1
  return schema.string(spec)
end

local function description(hint)
  return text { optional = hint == nil, max_bytes = 10000, hint = hint }
end

local IMAGE = schema.custom { check = function(value, path)
  if type(value) == "string" and (value:find("^https://.") or value:find("^data:image/.")) then return value end
  return nil, ("%s must begin with https:// or data:image/, got %s"):format(path, schema.show(value))
end }
local ICONS = schema.array(schema.record({ src = IMAGE, mimeType = text {},
  sizes = schema.array(schema.string {}, { optional = true }),
  theme = schema.enum({ "light", "dark" }, { optional = true }),
}, { noun = "field" }), { optional = true, like = "a list of icons" })

local DATA = schema.custom { optional = true, like = "a table of plain data",
  check = function(...) return json_schema_reader.read_data(...) end }

-- Fields of every word.
local function record(fields)
  fields.title, fields.icons, fields.meta = text { max_bytes = 200 }, ICONS, DATA
  return schema.record(fields, { noun = "field" })
end

local NAME = schema.string { pattern = "^[%w_-]+$", max_bytes = 64,
  like = 'up to 64 letters, digits, "_" and "-" (some hosts drop a whole server over anything else)' }
local ARGUMENT = schema.string { pattern = "^[%w_]+$", max_bytes = 64, like = 'a name like "run_id"' }

local function hint_flag() return schema.boolean { optional = true } end

local TOOL_HINTS = schema.record({ title = text {}, readOnlyHint = hint_flag(), destructiveHint = hint_flag(),
  idempotentHint = hint_flag(), openWorldHint = hint_flag() }, { noun = "field", optional = true })

local RESOURCE_HINTS = schema.record({
  audience = schema.array(schema.enum { "user", "assistant" }, { optional = true }),
  priority = schema.number { min = 0, max = 1, optional = true }, lastModified = text {},
}, { noun = "field", optional = true })

local function handler(like)
  return schema.func { hint = "write " .. like }
end

-- Values that a client may complete an argument to.
local SUGGESTIONS = schema.custom { like = "a list of texts or a function(value, ctx)", check = function(value, path)
  if type(value) == "function" then return value end
  return schema.check(schema.array(schema.string {}, { like = "a list of texts or a function(value, ctx)" }),
    value, path)
end }
local COMPLETE = schema.map(SUGGESTIONS, { key = ARGUMENT, optional = true })

-- Schemas are read by read_schemas, which knows `portable`.
local RAW = schema.custom { optional = true, check = function(value) return value end }

local TOOL = record { description = description "say what it does: models choose by it", input = RAW, output = RAW,
  annotations = TOOL_HINTS, portable = schema.boolean { default = true },
  task = schema.enum({ "slow", "always" }, { optional = true }),
  handler = handler "handler = function(arguments, ctx) ... end" }

local READ = schema.func { optional = true }
local RESOURCE = record { name = text {}, description = description(), mime_type = text {},
  annotations = RESOURCE_HINTS, text = schema.string { optional = true }, read = READ }
local TEMPLATE = record { name = text {}, description = description(), mime_type = text {},
  annotations = RESOURCE_HINTS, complete = COMPLETE,
  read = handler "read = function(uri, variables, ctx) ... end" }
local PROMPT = record { description = description(), complete = COMPLETE,
  arguments = schema.array(schema.record({ name = ARGUMENT, description = description(),
    required = schema.boolean { default = false } }, { noun = "field" }), { default = core.json.array {} }),
  messages = handler "messages = function(arguments, ctx) ... end" }

-- The first x-mcp-header that is not on an argument itself; clients drop a tool
-- that has one on elements, alternatives and the like.
local function misplaced(node, path, is_root)
  local found
  json_schema.each_inner(node, function(inner, key)
    if found or type(inner) ~= "table" then return end
    local place = path .. "." .. key
    if inner["x-mcp-header"] and not (is_root and key:find("^properties%.")) then
      found = place
    else
      found = misplaced(inner, place, false)
    end
  end)
  return found
end

-- Which arguments travel in a header too (x-mcp-header): name -> header name. The
-- specification has them on plain values only, each header once.
local function mirrored(node, path)
  local wrong = misplaced(node, path, true)
  if wrong then return nil, wrong .. ": only an argument itself can have an x-mcp-header" end
  local headers, taken = {}, {}
  for _, name in ipairs(schema.keys(node.properties)) do
    local property = node.properties[name]
    local header = type(property) == "table" and property["x-mcp-header"]
    if header then
      local place = ("%s.properties.%s"):format(path, name)
      if type(header) ~= "string" or not header:find("^[%w!#$%%&'*+.^_`|~-]+$") then
        return nil, place .. '["x-mcp-header"] must be a header name like "Region"'
      elseif property.type ~= "string" and property.type ~= "integer" and property.type ~= "boolean" then
        return nil, place .. ' has an x-mcp-header, so its type must be "string", "integer" or "boolean"'
      elseif taken[header:lower()] then
        return nil, ("%s: the header %q belongs to %s already"):format(place, header, taken[header:lower()])
      end
      headers[name], taken[header:lower()] = header, name
    end
  end
  return headers
end

local function read_schemas(entry, path)
  local message
  if entry.input == nil then
    entry.input = { type = "object", properties = {}, additionalProperties = false }
  else
    entry.input, message = json_schema_reader.read(entry.input, path .. ".input", entry.portable)
  end
  if message then return nil, message end
  if entry.output ~= nil then
    entry.output, message = json_schema_reader.read(entry.output, path .. ".output", false)
    if message then return nil, message end
  end
  local headers
  headers, message = mirrored(entry.input, path .. ".input")
  if not headers then return nil, message end
  entry.headers = next(headers) and headers or nil
  return entry
end

local function finish_resource(entry, path)
  if (entry.text == nil) == (entry.read == nil) then
    return nil, path .. " needs either text, or read = function(uri, variables, ctx) ... end"
  end
  return entry
end

-- complete must speak of arguments that are there.
local function completes(entry, path, names)
  for _, name in ipairs(schema.keys(entry.complete or {})) do
    if not names[name] then
      return nil, ("%s.complete: there is no argument %q; %s"):format(path, name,
        schema.suggest(name, schema.keys(names)))
    end
  end
  return entry
end

local function finish_template(entry, path, uri)
  local names, without = {}, uri:gsub("{[%w_]+}", "")
  for name in uri:gmatch("{([%w_]+)}") do
    if names[name] then return nil, ("%s: {%s} is there twice"):format(path, name) end
    names[name] = true
  end
  if not next(names) or without:find("[{}]") or uri:find("}{", 1, true) then
    return nil, path .. ': a template has parts like {id} with text between them, as in "notes://{day}/{id}"'
  end
  return completes(entry, path, names)
end

local function finish_prompt(entry, path)
  local names = {}
  for _, argument in ipairs(entry.arguments) do
    if names[argument.name] then return nil, ("%s: the argument %q is there twice"):format(path, argument.name) end
    names[argument.name] = true
  end
  return completes(entry, path, names)
end

-- check(name, fields) of a word: the checked entry with its name, or nil, message.
local function checker(word, node, key, finish)
  return function(name, fields)
    local path = ("%s %q"):format(word, name)
    local entry, message = schema.check(node, fields, path)
    if entry then entry, message = finish(entry, path, name) end
    if not entry then return nil, message end
    entry[key] = name
    return entry
  end
end

local function same_name(word)
  return function(name, _, earlier)
    if earlier[name] then return ("%s %q is defined twice"):format(word, name) end
    if words.built_in[word] and words.built_in[word][name] then
      return ("%s %q is one of the server's own; choose another name"):format(word, name)
    end
  end
end

-- Languages have aliases, which must differ, too.
local function language_clash(name, entry, earlier)
  local taken = {}
  for other, known in pairs(earlier) do
    taken[other] = other
    for _, alias in ipairs(known.aliases or {}) do taken[alias] = other end
  end
  if earlier[name] then return ("language %q is defined twice"):format(name) end
  for _, word in ipairs { name, table.unpack(entry.aliases or {}) } do
    if taken[word] then
      return ("language %q: the name %q already belongs to %q"):format(name, word, taken[word])
    end
    taken[word] = name
  end
end

local URI = schema.string { pattern = "^%a[%w+.-]*:[^%s{}]+$", max_bytes = words.MAX_URI_BYTES,
  like = 'an address like "notes://today" (with {parts} it is a resource_template)' }
local URI_TEMPLATE = schema.string { pattern = "^%a[%w+.-]*:%S+$", max_bytes = words.MAX_URI_BYTES,
  like = 'an address with parts like "notes://{day}"' }

--- word -> name (node), what (the name in words), check(name, fields) -> entry |
-- nil, message, and clash(name, entry, earlier entries by name) -> message | nil.
words.all = {
  language = { name = languages.name_node, what = "the name of a language", clash = language_clash,
    check = function(name, fields) return languages.check(settings_tree.language, name, fields) end },
  tool = { name = NAME, what = "the name of a tool", clash = same_name "tool",
    check = checker("tool", TOOL, "name", read_schemas) },
  resource = { name = URI, what = "the address of a resource", clash = same_name "resource",
    check = checker("resource", RESOURCE, "uri", finish_resource) },
  resource_template = { name = URI_TEMPLATE, what = "the address of a resource template",
    clash = same_name "resource_template",
    check = checker("resource_template", TEMPLATE, "uri_template", finish_template) },
  prompt = { name = NAME, what = "the name of a prompt", clash = same_name "prompt",
    check = checker("prompt", PROMPT, "name", finish_prompt) },
}

return words
