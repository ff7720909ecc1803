--- Revision 2026-07-28: stateless, every request carries its own envelope.
local core = require "sandbox_runner.core"
local call = require "sandbox_runner.call"
local legacy = require "sandbox_runner.legacy"
local rpc = require "sandbox_runner.rpc"
local schema = require "sandbox_runner.schema"
local tasks = require("sandbox_runner.later").module "sandbox_runner.tasks"

local modern = {}

local PREFIX = "io.modelcontextprotocol/"
local VERSION, CAPABILITIES, INFO = PREFIX .. "protocolVersion", PREFIX .. "clientCapabilities", PREFIX .. "clientInfo"
local LEVEL, SERVER_INFO = PREFIX .. "logLevel", PREFIX .. "serverInfo"
local SUBSCRIPTION = PREFIX .. "subscriptionId"

--- Served revisions, newest first.
modern.versions = { "2026-07-28" }

--- The field sets, as in legacy.lua.
modern.rules = { modern = true, tool = { "annotations", "title", "outputSchema", "_meta", "icons" },
  result = { "structuredContent", "_meta" }, info = {}, progress = { "message" },
  resource = { "annotations", "title", "_meta", "icons" }, prompt = { "title", "_meta", "icons" },
  not_found = rpc.INVALID_PARAMS, capabilities = legacy.versions[legacy.NEWEST].capabilities }

-- Caching hints (2026-07-28, "Caching"): what everybody sees alike is public; a
-- resource may hold what a user ran.
local LISTS = { ttlMs = 60000, cacheScope = "public" }
local CACHE = { ["server/discover"] = LISTS, ["tools/list"] = LISTS, ["prompts/list"] = LISTS,
  ["resources/list"] = LISTS, ["resources/templates/list"] = LISTS,
  ["resources/read"] = { ttlMs = 0, cacheScope = "private" } }

--- The envelope's protocolVersion, or nil: then the message is of another era.
function modern.claimed_version(params)
  local meta = params._meta
  return rpc.is_object(meta) and meta[VERSION] or nil
end

local function is_served(version)
  for _, known in ipairs(modern.versions) do
    if known == version then return true end
  end
end

local function served_list()
  return core.json.array { table.unpack(modern.versions) }
end

--- Why the version that a request claims is not served: code, text, data; or nil.
function modern.refuse_version(params)
  local claimed = modern.claimed_version(params)
  if type(claimed) ~= "string" then
    return rpc.INVALID_PARAMS, ("params._meta must hold %q, a string like %q"):format(VERSION, modern.versions[1])
  elseif not is_served(claimed) then
    return rpc.UNSUPPORTED_VERSION, ("revision %s is not served this way; %s is, older ones by initialize")
      :format(schema.show(claimed), modern.versions[1]), { supported = served_list(), requested = claimed }
  end
end

--- Why the rest of the envelope is not one: code, text; or nil.
function modern.refuse(req)
  local meta = req.message.params._meta
  if not rpc.is_object(meta[CAPABILITIES]) then
    return rpc.INVALID_PARAMS, ("params._meta must hold %q, an object ({} if there are none)"):format(CAPABILITIES)
  elseif meta[INFO] ~= nil and not rpc.is_object(meta[INFO]) then
    return rpc.INVALID_PARAMS, ("%q must be an object with name and version"):format(INFO)
  elseif meta[LEVEL] ~= nil and not legacy.level_rank[meta[LEVEL]] then
    return rpc.INVALID_PARAMS, ("%q must be one of %s"):format(LEVEL, legacy.levels)
  end
end

--- What the envelope says of the client: capabilities, info, log level.
function modern.client_of(req)
  local meta = req.message.params._meta
  return meta[CAPABILITIES], meta[INFO], meta[LEVEL]
end

--- A result with what this revision adds to every one.
function modern.decorate(req, result)
  local out = {}
  for key, value in pairs(result) do out[key] = value end
  out.resultType = out.resultType or "complete"
  local hint = out.resultType == "complete" and CACHE[req.message.method]
  for key, value in pairs(hint or {}) do
    if out[key] == nil then out[key] = value end
  end
  local meta = { [SERVER_INFO] = req.server:info {} }
  for key, value in pairs(out._meta or {}) do meta[key] = value end
  out._meta = meta
  return out
end

local methods = {}

--- The methods of this revision alone; function(req) as in mcp.lua.
modern.methods = methods

methods["server/discover"] = function(req)
  local capabilities = legacy.capabilities(modern.rules)
  capabilities.extensions = req.server.tasks and { [tasks.EXTENSION] = {} } or nil
  return { supportedVersions = served_list(), instructions = req.server.instructions, capabilities = capabilities }
end

-- Kind of a catalog event -> the member of `notifications` that asks for it.
local LIST_FILTERS = { tools = "toolsListChanged", prompts = "promptsListChanged", resources = "resourcesListChanged" }
local MAX_TEXTS, MAX_URI_BYTES = 1000, 65536

-- What is wrong with a list of texts in a filter, or nil.
local function bad_texts(name, list)
  if getmetatable(list) ~= core.json.array_mt or #list > MAX_TEXTS then
    return ("%s must be an array of at most %d strings"):format(name, MAX_TEXTS)
  end
  for _, text in ipairs(list) do
    if type(text) ~= "string" then return name .. " must hold strings" end
  end
end

-- The honoured part of a filter, and the set of its URIs; or nil, why.
local function read_filter(filter)
  if not rpc.is_object(filter) then return nil, "notifications must be an object" end
  local honoured, uris = {}, {}
  for _, name in pairs(LIST_FILTERS) do
    if filter[name] ~= nil and type(filter[name]) ~= "boolean" then return nil, name .. " must be a boolean" end
    honoured[name] = filter[name] or nil
  end
  local asked = rpc.optional(filter.resourceSubscriptions)
  if asked == nil then return honoured, uris end
  local why = bad_texts("resourceSubscriptions", asked)
  if why then return nil, why end
  local bytes = 0
  for _, uri in ipairs(asked) do uris[uri], bytes = true, bytes + #uri end
  if bytes > MAX_URI_BYTES then
    return nil, ("resourceSubscriptions may take %d bytes together"):format(MAX_URI_BYTES)
  end
  honoured.resourceSubscriptions = asked
  return honoured, uris
end

-- What a catalog event is to this subscription: method, params; or nil.
local function event_message(honoured, uris, kind, uri)
  if kind == "updated" then
    if uris[uri] then return "notifications/resources/updated", { uri = uri } end
  elseif honoured[LIST_FILTERS[kind]] then
    return ("notifications/%s/list_changed"):format(kind), {}
  end
end

-- The ids of tasks whose changes are asked for; or nil, code, text, data.
local function read_task_ids(req)
  local asked = rpc.optional(req.message.params.notifications.taskIds)
  if asked == nil then return {} end
  if not req.server.tasks or not tasks.declared(req) then return tasks.undeclared() end
  local why = bad_texts("taskIds", asked)
  if why then return nil, rpc.INVALID_PARAMS, "subscriptions/listen: " .. why end
  return asked
end

methods["subscriptions/listen"] = function(req)
  local honoured, uris = read_filter(req.message.params.notifications)
  if not honoured then return nil, rpc.INVALID_PARAMS, "subscriptions/listen: " .. uris end
  local ids, code, text, data = read_task_ids(req)
  if not ids then return nil, code, text, data end
  local mark = { [SUBSCRIPTION] = core.json.raw(req.message.id) }
  local function send(method, params)
    params._meta = mark
    req.sink.send(core.json.encode(rpc.notification(method, params)))
  end
  return call.listen(req, function()
    local leave_tasks
    if #ids > 0 then
      honoured.taskIds, leave_tasks = req.server.tasks:listen(req.client.key, ids, function(state)
        send("notifications/tasks", state)
      end)
    end
    send("notifications/subscriptions/acknowledged", { notifications = honoured })
    local leave = req.server.catalog:listen(function(kind, uri)
      local method, params = event_message(honoured, uris, kind, uri)
      if method then send(method, params) end
    end)
    return function()
      leave()
      if leave_tasks then leave_tasks() end
    end
  end, { _meta = mark })
end

return modern
