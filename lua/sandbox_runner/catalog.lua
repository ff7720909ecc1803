--- What the server offers: tools, resources, resource templates and prompts, its
-- own and those of init.lua, and who is told when something of it changes.
--
-- tool: name, title, description, icons, annotations, input and output (JSON
--   Schema; output may be nil), headers (argument -> name of an Mcp-Param header),
--   task ("slow": may be answered as a task, "always", nil: never), meta,
--   check(arguments) -> values | nil, text,
--   handler(values, ctx) -> answer | nil, text. answer: a text; a table whose
--   `content` is a list (a whole CallToolResult); another list, which goes out as
--   JSON text; or another table, the structured answer.
-- resource: uri, or uri_template; name, title, description, mime_type, icons,
--   annotations, meta, read(uri, variables, ctx) -> {text=} | {blob = base64} | a
--   list of such | nil (there is none), complete
-- prompt: name, title, description, icons, meta, arguments (list of {name,
--   description, required}), complete, messages(arguments, ctx) -> text | list of
--   {role, content} | nil, text
-- complete: argument or variable -> list of texts | function(value, ctx) -> list
local handlers = require "sandbox_runner.handlers"
local prompts = require "sandbox_runner.prompts"
local resources = require "sandbox_runner.resources"
local schema = require "sandbox_runner.schema"
local tools = require "sandbox_runner.tools"
local words = require "sandbox_runner.words"

local catalog = {}

local Catalog = {}
Catalog.__index = Catalog

local function add(list, entries, wrap)
  for _, entry in ipairs(entries) do list[#list + 1] = wrap(entry) end
  return list
end

local function by(list, key)
  local out = {}
  for _, entry in ipairs(list) do out[entry[key]] = entry end
  return out
end

-- "a://{x}/b" -> names = { "x" }, texts = { "//:a", "b/" }: what stands before, between
-- and after the variables (RFC 6570, level 1), reversed for variables_of.
local function compile(template)
  local names, texts, at = {}, {}, 1
  for from, name, past in template:gmatch "(){([%w_]+)}()" do
    names[#names + 1], texts[#texts + 1] = name, template:sub(at, from - 1):reverse()
    at = past
  end
  texts[#texts + 1] = template:sub(at):reverse()
  return { names = names, texts = texts }
end

-- Variables have one character at least, and neither "/" nor "?" nor "#". From the
-- last to the first each is as short as it can be, so the first one is the longest,
-- as with a pattern; which would try all divisions of a long segment, while here no
-- step is ever undone: a text found sooner leaves the rest as many chances.
local function variables_of(matcher, uri)
  local names, texts, back, variables = matcher.names, matcher.texts, uri:reverse(), {}
  local last = texts[#texts]
  if back:sub(1, #last) ~= last then return nil end
  local at = #last + 1
  for i = #names, 1, -1 do
    local earliest = i == 1 and #back - #texts[1] + 1 or at + 1
    local from, to = back:find(texts[i], earliest, true)
    local value = from and back:sub(at, from - 1):reverse() or ""
    if value == "" or value:find "[/?#]" then return nil end
    variables[names[i]] = schema.percent_decoded(value)
    at = to + 1
  end
  return variables
end

--- The tool of this name, or nil.
function Catalog:tool(name) return self.tools_by_name[name] end

--- The prompt of this name, or nil.
function Catalog:prompt(name) return self.prompts_by_name[name] end

--- The resource or template that answers for a URI, and the values of the
-- template's variables; or nil.
function Catalog:resource(uri)
  if #uri > words.MAX_URI_BYTES then return nil end
  local entry = self.resources_by_uri[uri]
  if entry then return entry, {} end
  for _, template in ipairs(self.templates) do
    local variables = variables_of(self.matchers[template.uri_template], uri)
    if variables then return template, variables end
  end
end

--- The template written exactly so, or nil.
function Catalog:template(text) return self.templates_by_text[text] end

--- What make() gives, kept for these rules until the list of this kind changes:
-- lists are the same for every client.
function Catalog:published(kind, method, rules, make)
  local cache = self.cache[kind]
  cache[rules] = cache[rules] or {}
  cache[rules][method] = cache[rules][method] or make()
  return cache[rules][method]
end

local function tell(self, kind, uri)
  for _, listener in ipairs { table.unpack(self.listeners) } do listener(kind, uri) end
end

--- Calls fn(kind, uri) for every change: kind "tools", "prompts" or "resources"
-- (the list is another one), or "updated" with the URI of a resource. Returns a
-- function that ends this.
function Catalog:listen(fn)
  local function listener(kind, uri) fn(kind, uri) end
  table.insert(self.listeners, listener)
  return function()
    for i, other in ipairs(self.listeners) do
      if other == listener then return table.remove(self.listeners, i) end
    end
  end
end

--- The list of this kind is another one now.
function Catalog:changed(kind)
  assert(self.cache[kind], "changed takes tools, prompts or resources")
  self.cache[kind] = {}
  tell(self, kind)
end

--- The content of a resource is another one now.
function Catalog:updated(uri)
  tell(self, "updated", uri)
end

--- The catalog of a config: the server's own entries, then those of init.lua.
function catalog.new(config)
  local own_resources, own_templates = resources.list(config)
  local self = { listeners = {}, cache = { tools = {}, prompts = {}, resources = {} }, matchers = {},
    tools = add(tools.list(config), config.tools, handlers.tool),
    resources = add(own_resources, config.resources, handlers.resource),
    templates = add(own_templates, config.templates, handlers.resource),
    prompts = add(prompts.list(config), config.prompts, handlers.prompt) }
  self.tools_by_name, self.prompts_by_name = by(self.tools, "name"), by(self.prompts, "name")
  self.resources_by_uri = by(self.resources, "uri")
  self.templates_by_text = by(self.templates, "uri_template")
  for text in pairs(self.templates_by_text) do self.matchers[text] = compile(text) end
  return setmetatable(self, Catalog)
end

return catalog
