--- What init.lua defines, made into entries of the catalog: its functions get a
-- context of their own, and what they return is checked.
local core = require "sandbox_runner.core"
local json_schema = require("sandbox_runner.later").module "sandbox_runner.json_schema"
local schema = require "sandbox_runner.schema"
local tools = require "sandbox_runner.tools"

local handlers = {}

-- Members of a call's context (call.lua) that a handler of init.lua gets as well.
local SHARED = { "progress", "log", "ask", "elicit", "sample", "roots", "state", "answers", "require",
  "protocol_error", "changed", "updated", "sleep", "detach", "arguments" }

local JSON = { encode = core.json.encode, decode = core.json.decode, array = core.json.array, null = core.json.null }

local function check_limit(ctx, limit)
  local most = ctx.server.config.history.max_limit
  if limit ~= nil and (math.type(limit) ~= "integer" or limit < 1 or limit > most) then
    error(("ctx.history takes a whole number from 1 to %d, got %s"):format(most, schema.show(limit)), 3)
  end
end

-- The server's inside is not in it: what a handler relies on stays the same.
local function view(ctx)
  local out = { json = JSON, base64 = core.crypto.base64,
    client = { key = ctx.client.key, capabilities = ctx.client.capabilities, info = ctx.client.info },
    run = function(arguments) return tools.run(ctx, arguments) end,
    history = function(limit)
      check_limit(ctx, limit)
      return tools.history(ctx, limit)
    end,
    languages = function() return tools.languages(ctx) end }
  for _, name in ipairs(SHARED) do out[name] = ctx[name] end
  return out
end

-- An entry with other members in place of its own.
local function over(entry, members)
  return setmetatable(members, { __index = entry })
end

-- A structured answer as its schema wants it, or an error: clients drop one that
-- is not, and with it the call.
local function checked_answer(entry, value)
  local message = "it must be a table, got " .. schema.show(value)
  if type(value) == "table" then
    value, message = json_schema.check(entry.output, value, { plain = true })
    if value then return value end
  end
  error(("tool %q returned what its output does not allow: %s"):format(entry.name, message), 0)
end

--- Whether what a handler returned is a whole CallToolResult.
function handlers.is_result(value)
  local content = type(value) == "table" and value.content
  return type(content) == "table" and (next(content) == nil or schema.is_list(content))
end

local function conforming(entry, value)
  local whole = handlers.is_result(value)
  if not entry.output or (whole and value.isError and value.structuredContent == nil) then return value end
  if not whole then return checked_answer(entry, value) end
  return over(value, { structuredContent = checked_answer(entry, value.structuredContent) })
end

--- A tool of init.lua (words.lua) as a catalog entry.
function handlers.tool(entry)
  local out = over(entry, {})
  function out.check(arguments)
    local values, message = json_schema.check(entry.input, arguments, { lenient = true })
    if not values then return nil, schema.sentence(message) end
    return values
  end
  function out.handler(arguments, ctx)
    local value, text = entry.handler(arguments, view(ctx))
    if value ~= nil then return conforming(entry, value) end
    return nil, text ~= nil and tostring(text) or ("The tool %s gave no answer."):format(entry.name)
  end
  return out
end

-- Completers: a list stays one, a function gets a context.
local function completers(complete)
  local out = {}
  for name, source in pairs(complete or {}) do
    out[name] = type(source) ~= "function" and source or function(value, ctx) return source(value, view(ctx)) end
  end
  return out
end

--- A resource or a resource template of init.lua as a catalog entry.
function handlers.resource(entry)
  local out = over(entry, { name = entry.name or entry.uri or entry.uri_template,
    complete = completers(entry.complete) })
  if entry.read then
    function out.read(uri, variables, ctx) return entry.read(uri, variables, view(ctx)) end
  else
    function out.read() return { text = entry.text } end
  end
  return out
end

--- A prompt of init.lua as a catalog entry.
function handlers.prompt(entry)
  return over(entry, { complete = completers(entry.complete),
    messages = function(arguments, ctx) return entry.messages(arguments, view(ctx)) end })
end

return handlers
