--- The revisions with the initialize handshake, 2024-11-05 to 2025-11-25: what
-- each knows, and the methods that only they have.
local core = require "sandbox_runner.core"
local rpc = require "sandbox_runner.rpc"
local schema = require "sandbox_runner.schema"

local legacy = {}

--- The revision that is answered when an unknown one is offered.
legacy.NEWEST = "2025-11-25"

-- Optional members by the revision that brought them; batches came and went.
local TOOL_2025_06 = { "annotations", "title", "outputSchema", "_meta" }
local TOOL_2025_11 = { "annotations", "title", "outputSchema", "_meta", "icons" }
local FIRST = { "tools", "resources", "prompts", "logging" }
local WITH_COMPLETIONS = { "tools", "resources", "prompts", "logging", "completions" }

--- Revision -> its field sets: members of a tool, a tool result, serverInfo, a
-- progress notification, a resource (or template) and a prompt beyond those of
-- 2024-11-05; the capabilities it can name; whether it has batches; the code for
-- a resource that does not exist.
legacy.versions = {
  ["2024-11-05"] = { tool = {}, result = {}, info = {}, progress = {}, resource = { "annotations" }, prompt = {},
    capabilities = FIRST },
  ["2025-03-26"] = { tool = { "annotations" }, result = {}, info = {}, progress = { "message" },
    resource = { "annotations" }, prompt = {}, batches = true,
    capabilities = WITH_COMPLETIONS },
  ["2025-06-18"] = { tool = TOOL_2025_06, result = { "structuredContent", "_meta" }, info = { "title" },
    progress = { "message" }, resource = { "annotations", "title", "_meta" }, prompt = { "title", "_meta" },
    capabilities = WITH_COMPLETIONS },
  ["2025-11-25"] = { tool = TOOL_2025_11, result = { "structuredContent", "_meta" },
    info = { "title", "description" }, progress = { "message" },
    resource = { "annotations", "title", "_meta", "icons" }, prompt = { "title", "_meta", "icons" },
    capabilities = WITH_COMPLETIONS },
}
for _, rules in pairs(legacy.versions) do rules.not_found = -32002 end

-- What each says.
local CAPABILITIES = { tools = { listChanged = true }, resources = { listChanged = true, subscribe = true },
  prompts = { listChanged = true }, logging = {}, completions = {} }

--- The capabilities of the server in a revision with these rules, a new table.
function legacy.capabilities(rules)
  local out = {}
  for _, name in ipairs(rules.capabilities) do out[name] = CAPABILITIES[name] end
  return out
end

local NOT_INITIALIZED = "not initialized: send initialize first (revisions "
  .. schema.listing(schema.keys(legacy.versions)) .. "), or send the _meta of revision 2026-07-28"

local LEVELS = { "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency" }

--- The log levels as a text, and name -> rank; RFC 5424's order, the mildest first.
legacy.levels, legacy.level_rank = table.concat(LEVELS, ", "), {}
for rank, name in ipairs(LEVELS) do legacy.level_rank[name] = rank end

local MAX_HANDSHAKE = 65536 -- bytes; it is kept as long as the session

local function bad_initialize(params)
  if type(params.protocolVersion) ~= "string" then return "protocolVersion must be a string" end
  if not rpc.is_object(params.capabilities) then return "capabilities must be an object" end
  local info = params.clientInfo
  if not rpc.is_object(info) or type(info.name) ~= "string" or type(info.version) ~= "string" then
    return "clientInfo must be an object with name and version"
  end
  local bytes = #core.json.encode { params.capabilities, info }
  if bytes > MAX_HANDSHAKE then
    return ("capabilities and clientInfo take %d bytes, at most %d are kept"):format(bytes, MAX_HANDSHAKE)
  end
end

local methods = {}

--- The methods of these revisions alone; function(req) as in mcp.lua.
legacy.methods = methods

function methods.initialize(req)
  local params, session = req.message.params, req.session
  local why = bad_initialize(params)
  if why then return nil, rpc.INVALID_PARAMS, "initialize: " .. why end
  local asked = params.protocolVersion
  session:initialize(legacy.versions[asked] and asked or legacy.NEWEST, params)
  local rules = legacy.versions[session.version]
  return { protocolVersion = session.version, capabilities = legacy.capabilities(rules),
    serverInfo = req.server:info(rules.info), instructions = req.server.instructions }
end

function methods.ping() return {} end

methods["logging/setLevel"] = function(req)
  local level = req.message.params.level
  if not legacy.level_rank[level] then
    return nil, rpc.INVALID_PARAMS, "logging/setLevel: level must be one of " .. legacy.levels
  end
  req.session.log_level = level
  return {}
end

local function subscription(subscribed)
  return function(req)
    local uri = req.message.params.uri
    if type(uri) ~= "string" then return nil, rpc.INVALID_PARAMS, req.message.method .. ": uri must be a string" end
    if subscribed and not req.server.catalog:resource(uri) then
      return nil, req.rules.not_found, "there is no resource " .. schema.show(uri), { uri = uri }
    end
    if not req.session:subscribe(uri, subscribed) then
      return nil, rpc.INVALID_PARAMS, "too many subscriptions; end some of them with resources/unsubscribe"
    end
    return {}
  end
end

methods["resources/subscribe"] = subscription(true)
methods["resources/unsubscribe"] = subscription(nil)

local BEFORE_INITIALIZE = { initialize = true, ping = true }

--- Why this request is not served in the state of its session: code, text; or nil.
function legacy.refuse(req)
  if not req.session.version and not BEFORE_INITIALIZE[req.message.method] then
    return rpc.INVALID_PARAMS, NOT_INITIALIZED
  end
end

--- A result as these revisions send it.
function legacy.decorate(_, result)
  return result
end

-- Capability that a client must have declared for a request to it.
local NEEDS = { ["elicitation/create"] = "elicitation", ["sampling/createMessage"] = "sampling",
  ["roots/list"] = "roots" }

--- The client capability that a server-to-client request needs, or nil.
function legacy.capability_for(method) return NEEDS[method] end

--- Asks the client (a request each, in the order of their keys) and awaits the
-- answers: { key = result }. Throws the client's error as a protocol error.
function legacy.ask(req, requests, fail)
  local answers = {}
  for _, key in ipairs(schema.keys(requests)) do
    local request = requests[key]
    local response = req.session:ask_client(req.sink, request.method, request.params)
    if response.error then
      fail(rpc.INTERNAL_ERROR, ("the client refused %s: %s"):format(request.method,
        core.text.visible(tostring(response.error.message))))
    end
    answers[key] = response.result
  end
  return answers
end

return legacy
