--- The methods that both eras share: tools, resources, prompts and completion.
--
-- A method is a function(req) as in mcp.lua. What takes a handler runs in a task of
-- its own (call.start); lists are encoded once for each revision.
local core = require "sandbox_runner.core"
local call = require "sandbox_runner.call"
local handlers = require "sandbox_runner.handlers"
local rpc = require "sandbox_runner.rpc"
local schema = require "sandbox_runner.schema"
local tasks = require("sandbox_runner.later").module "sandbox_runner.tasks"

local features = {}

local MAX_VALUES = 100 -- of one completion (specification, "Completion")
local TEXTS = schema.array(schema.string {}, { like = "a list of texts" })

local methods = {}

--- Name -> function(req).
features.methods = methods

local function invalid(text, data)
  return nil, rpc.INVALID_PARAMS, text, data
end

-- The members of an entry that the revision knows beside the first ones.
local function known(into, members, names)
  for _, name in ipairs(names) do into[name] = members[name] end
  return into
end

local function published_tool(tool, rules)
  return known({ name = tool.name, description = tool.description, inputSchema = tool.input },
    { title = tool.title, annotations = tool.annotations, outputSchema = tool.output, icons = tool.icons,
      _meta = tool.meta }, rules.tool)
end

local function published_resource(entry, rules)
  return known({ uri = entry.uri, uriTemplate = entry.uri_template, name = entry.name,
    description = entry.description, mimeType = entry.mime_type },
    { title = entry.title, annotations = entry.annotations, icons = entry.icons, _meta = entry.meta },
    rules.resource)
end

local function published_prompt(entry, rules)
  local arguments = core.json.array {}
  for i, argument in ipairs(entry.arguments) do
    arguments[i] = { name = argument.name, description = argument.description, required = argument.required or false }
  end
  return known({ name = entry.name, description = entry.description, arguments = arguments },
    { title = entry.title, icons = entry.icons, _meta = entry.meta }, rules.prompt)
end

-- method -> kind of its changes, list of the catalog, member of the result, form.
local LISTS = {
  ["tools/list"] = { "tools", "tools", "tools", published_tool },
  ["resources/list"] = { "resources", "resources", "resources", published_resource },
  ["resources/templates/list"] = { "resources", "templates", "resourceTemplates", published_resource },
  ["prompts/list"] = { "prompts", "prompts", "prompts", published_prompt },
}

for method, list in pairs(LISTS) do
  local kind, from, member, publish = table.unpack(list)
  methods[method] = function(req)
    if rpc.optional(req.message.params.cursor) ~= nil then
      return invalid(method .. " has one page; this cursor was not issued here")
    end
    local catalog = req.server.catalog
    return { [member] = catalog:published(kind, method, req.rules, function()
      local out = core.json.array {}
      for i, entry in ipairs(catalog[from]) do out[i] = publish(entry, req.rules) end
      return core.json.encoded(out)
    end) }
  end
end

local function text_block(text)
  return { type = "text", text = text }
end

-- Type of a block -> its members that must be texts.
local BLOCKS = { text = { "text" }, image = { "data", "mimeType" }, audio = { "data", "mimeType" },
  resource = {}, resource_link = { "uri", "name" } }

-- A client that does not understand one member drops the whole answer. So what a
-- handler returned is checked here, and the fault told where it can be mended: these
-- errors go to the log.

local function check_member(place, value, wanted, fits)
  if not fits then error(("%s must be %s, got %s"):format(place, wanted, schema.show(value)), 0) end
end

local function check_texts(place, object, names)
  for _, name in ipairs(names) do
    check_member(place .. "." .. name, object[name], "a text", type(object[name]) == "string")
  end
end

local function check_object(place, value)
  check_member(place, value, "an object", value == nil or rpc.is_object(value) and not schema.is_list(value))
end

local function check_blocks(content, what)
  for i, block in ipairs(content) do
    local place, kind = ("%s: content[%d]"):format(what, i), type(block) == "table" and block.type
    if not BLOCKS[kind] then
      error(("%s must have a type: %s; got %s"):format(place, schema.listing(schema.keys(BLOCKS), "or"),
        schema.show(kind or block)), 0)
    end
    check_texts(place, block, BLOCKS[kind])
    if kind == "resource" then
      local inner = block.resource
      check_member(place .. ".resource", inner, "an object with a uri", type(inner) == "table" and inner.uri ~= nil)
    end
  end
  return content
end

local function whole_result(tool, value, rules)
  local what, is_error = "tool " .. tool.name, value.isError
  check_object(what .. ": structuredContent", value.structuredContent)
  check_object(what .. ": _meta", value._meta)
  check_member(what .. ": isError", is_error, "true or false", is_error == nil or type(is_error) == "boolean")
  local content = check_blocks(core.json.array { table.unpack(value.content) }, what)
  return known({ content = content, isError = is_error or false },
    { structuredContent = value.structuredContent, _meta = value._meta }, rules.result)
end

-- What a handler returned, as a CallToolResult. The structured answer travels as
-- text as well, for clients that do not read it; a list, which no structured answer
-- can be, as text alone.
local function tool_result(tool, value, rules)
  if handlers.is_result(value) then return whole_result(tool, value, rules) end
  if type(value) ~= "table" then
    return { content = core.json.array { text_block(tostring(value)) }, isError = false }
  end
  return known({ content = core.json.array { text_block(core.json.encode(value)) }, isError = false },
    { structuredContent = not schema.is_list(value) and value or nil }, rules.result)
end

local function find_tool(req)
  local params = req.message.params
  if type(params.name) ~= "string" then return nil, "tools/call: name must be a string" end
  local arguments = rpc.optional(params.arguments)
  if arguments ~= nil and not rpc.is_object(arguments) then return nil, "tools/call: arguments must be an object" end
  local tool = req.server.catalog:tool(params.name)
  if tool then return tool, arguments or {} end
  local names = {}
  for i, known_tool in ipairs(req.server.catalog.tools) do names[i] = known_tool.name end
  return nil, ("unknown tool %s; known are %s"):format(schema.show(params.name), schema.listing(names))
end

methods["tools/call"] = function(req)
  local tool, arguments = find_tool(req)
  if not tool then return invalid(arguments) end
  local function body(ctx)
    local values, text = tool.check(arguments)
    if not values then return call.refusal(text) end
    local value
    value, text = tool.handler(values, ctx)
    if value == nil then return call.refusal(text) end
    return tool_result(tool, value, req.rules)
  end
  if req.rules.modern and tool.task and req.server.tasks then
    if tasks.declared(req) then return req.server.tasks:call(req, tool, body) end
    if tool.task == "always" then return tasks.undeclared() end
  end
  return call.start(req, body)
end

local function one_content(entry, uri, part)
  if type(part) == "string" then part = { text = part } end
  if type(part) ~= "table" or (type(part.text) == "string") == (type(part.blob) == "string") then
    error(("resource %s: read must give { text = ... } or { blob = base64 }, got %s"):format(entry.name,
      schema.show(part)), 0)
  end
  check_object(("resource %s: _meta"):format(entry.name), part._meta)
  return { uri = part.uri or uri, mimeType = part.mimeType or part.mime_type or entry.mime_type, text = part.text,
    blob = part.blob, _meta = part._meta }
end

local function contents_of(entry, uri, value)
  local out = core.json.array {}
  for i, part in ipairs(type(value) == "table" and value[1] ~= nil and value or { value }) do
    out[i] = one_content(entry, uri, part)
  end
  return out
end

methods["resources/read"] = function(req)
  local uri = req.message.params.uri
  if type(uri) ~= "string" then return invalid "resources/read: uri must be a string" end
  local entry, variables = req.server.catalog:resource(uri)
  local function missing()
    return nil, req.rules.not_found, "there is no resource " .. schema.show(uri), { uri = uri }
  end
  if not entry then return missing() end
  return call.start(req, function(ctx)
    local value = entry.read(uri, variables, ctx)
    if value == nil then return missing() end
    return { contents = contents_of(entry, uri, value) }
  end)
end

-- The texts of a prompt's arguments, or nil and what is wrong with them.
local function prompt_arguments(prompt, given)
  local values, names = {}, {}
  for _, argument in ipairs(prompt.arguments) do
    local value = rpc.optional(given[argument.name])
    if value == nil and argument.required then
      return nil, ("prompt %s: the argument %q is missing%s"):format(prompt.name, argument.name,
        argument.description and " (" .. argument.description:gsub("%.$", "") .. ")" or "")
    elseif value ~= nil and type(value) ~= "string" then
      return nil, ("prompt %s: %s must be a string, got %s"):format(prompt.name, argument.name, schema.show(value))
    end
    values[argument.name], names[#names + 1] = value, argument.name
    names[argument.name] = true
  end
  for _, name in ipairs(schema.keys(given)) do
    if not names[name] then
      return nil, ("prompt %s: unknown argument %s; %s"):format(prompt.name, schema.show(name),
        schema.suggest(name, names))
    end
  end
  return values
end

local ROLES = { user = true, assistant = true }

local function prompt_messages(prompt, value)
  if type(value) == "string" then value = { { role = "user", content = value } } end
  local out = core.json.array {}
  for i, message in ipairs(type(value) == "table" and value or {}) do
    local content = type(message) == "table" and message.content
    if type(content) == "string" then content = text_block(content) end
    if type(content) ~= "table" or not ROLES[message.role or "user"] then
      error(("prompt %s: message %d must have content, and the role user or assistant"):format(prompt.name, i), 0)
    end
    out[i] = { role = message.role or "user", content = check_blocks({ content }, "prompt " .. prompt.name)[1] }
  end
  if #out == 0 then error(("prompt %s gave no messages"):format(prompt.name), 0) end
  return out
end

methods["prompts/get"] = function(req)
  local params = req.message.params
  if type(params.name) ~= "string" then return invalid "prompts/get: name must be a string" end
  local given = rpc.optional(params.arguments) or {}
  if not rpc.is_object(given) then return invalid "prompts/get: arguments must be an object" end
  local prompt = req.server.catalog:prompt(params.name)
  if not prompt then return invalid("unknown prompt " .. schema.show(params.name)) end
  local arguments, why = prompt_arguments(prompt, given)
  if not arguments then return invalid(why) end
  return call.start(req, function(ctx)
    local value, text = prompt.messages(arguments, ctx)
    if value == nil then return invalid(text and tostring(text) or "the prompt gave no messages") end
    return { description = prompt.description, messages = prompt_messages(prompt, value) }
  end)
end

-- Arguments and variables of what a ref names, and their completers; or nil, why.
local function referred(catalog, ref)
  if not rpc.is_object(ref) then return nil, "completion/complete: ref must be an object" end
  if ref.type == "ref/prompt" then
    local prompt = type(ref.name) == "string" and catalog:prompt(ref.name)
    if not prompt then return nil, "unknown prompt " .. schema.show(ref.name) end
    local names = {}
    for _, argument in ipairs(prompt.arguments) do names[argument.name] = true end
    return names, prompt.complete or {}
  elseif ref.type == "ref/resource" then
    local template = type(ref.uri) == "string" and catalog:template(ref.uri)
    if not template then return nil, "unknown resource template " .. schema.show(ref.uri) end
    local names = {}
    for name in ref.uri:gmatch("{([%w_]+)}") do names[name] = true end
    return names, template.complete or {}
  end
  return nil, 'completion/complete: ref.type must be "ref/prompt" or "ref/resource"'
end

-- The texts of a fixed list that begin with what was typed; case does not matter.
local function beginning_with(list, value)
  local out, wanted = {}, value:lower()
  for _, text in ipairs(list) do
    if text:sub(1, #wanted):lower() == wanted then out[#out + 1] = text end
  end
  return out
end

local function completion(values)
  local out = core.json.array { table.unpack(values, 1, math.min(#values, MAX_VALUES)) }
  return { completion = { values = out, total = #values, hasMore = #values > #out } }
end

-- A completer's list; nil: it knows none.
local function suggestions(name, values)
  if values == nil then return {} end
  local list, message = schema.check(TEXTS, values, ("what completes %q"):format(name))
  return list or error(message, 0)
end

-- The other arguments as far as the client knows them; or nil, what is wrong.
local function known_arguments(context)
  if context == nil then return {} end
  if not rpc.is_object(context) then return nil, "completion/complete: context must be an object" end
  local arguments = rpc.optional(context.arguments)
  if arguments == nil then return {} end
  if not rpc.is_object(arguments) then return nil, "completion/complete: context.arguments must be an object" end
  return arguments
end

-- The name and the text to be completed of one of these arguments; or nil, why.
local function asked_argument(names, argument)
  if not rpc.is_object(argument) or type(argument.name) ~= "string" or type(argument.value) ~= "string" then
    return nil, "completion/complete: argument must be an object with name and value, both strings"
  elseif not names[argument.name] then
    return nil, ("unknown argument %s; %s"):format(schema.show(argument.name),
      schema.suggest(argument.name, schema.keys(names)))
  end
  return argument.name, argument.value
end

methods["completion/complete"] = function(req)
  local params = req.message.params
  local names, complete = referred(req.server.catalog, params.ref)
  if not names then return invalid(complete) end
  local name, value = asked_argument(names, params.argument)
  if not name then return invalid(value) end
  local arguments, why = known_arguments(rpc.optional(params.context))
  if not arguments then return invalid(why) end
  local source = complete[name] or {}
  if type(source) ~= "function" then return completion(beginning_with(source, value)) end
  return call.start(req, function(ctx)
    ctx.arguments = arguments
    return completion(suggestions(name, source(value, ctx)))
  end)
end

return features
