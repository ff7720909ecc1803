--- What the headers of an MCP request over HTTP mean, and whether they agree
-- with its body. Nothing here waits or answers.
local core = require "sandbox_runner.core"
local schema = require "sandbox_runner.schema"

local trim = schema.trim

local M = {}

local MAX_NUMBER = 32 -- characters; no JSON encoder writes longer ones

local LOCAL = { ["localhost"] = true, ["127.0.0.1"] = true, ["[::1]"] = true }

-- Method -> the member of its params that Mcp-Name repeats (2026-07-28, "Standard
-- Headers"; the tasks extension, "Routing Headers").
local NAMED = { ["tools/call"] = "name", ["prompts/get"] = "name", ["resources/read"] = "uri",
  ["tasks/get"] = "taskId", ["tasks/update"] = "taskId", ["tasks/cancel"] = "taskId" }

-- Host and port of an authority, the host in lower case; nil when it is none.
local function split_authority(text)
  local host, port = text:match "^(%[[%x:.]+%])(.*)$"
  if not host then host, port = text:match "^([%w._-]+)(.*)$" end
  if not host or not (port == "" or port:find "^:%d*$") then return nil end
  return host:lower(), port
end

local function is_local(authority)
  local host = split_authority(authority)
  return host ~= nil and LOCAL[host] == true
end

-- An IPv6 address is written with brackets in a Host header, and often without
-- in a configuration.
local function as_host(text)
  text = text:lower()
  if text:find(":.*:") and not text:find("[", 1, true) then return "[" .. text .. "]" end
  return text
end

local Guard = {}
Guard.__index = Guard

--- A check of where requests are sent to and come from, against DNS rebinding.
-- hosts: further values of Host (with a port: with this one only), origins:
-- further values of Origin; both lists of strings.
function M.guard(hosts, origins)
  local self = setmetatable({ hosts = {}, origins = {} }, Guard)
  for _, host in ipairs(hosts) do self.hosts[as_host(host)] = true end
  for _, origin in ipairs(origins) do self.origins[origin:lower()] = true end
  return self
end

local function host_allowed(self, value)
  local host, port = split_authority(value)
  return host ~= nil and (LOCAL[host] or self.hosts[host] or self.hosts[host .. port]) ~= nil
end

local function origin_allowed(self, value)
  if self.origins[value:lower()] then return true end
  local scheme, authority = value:match "^(%a+)://(.*)$"
  scheme = scheme and scheme:lower()
  return (scheme == "http" or scheme == "https") and is_local(authority)
end

--- Why a request with these headers (nil: absent) is not served, or nil.
function Guard:refuse(host, origin)
  if not host then return "the Host header is missing" end
  if not host_allowed(self, trim(host)) then
    return ("Host %s is not served here; use localhost, or add it to http.allowed_hosts in init.lua")
      :format(schema.show(host))
  elseif origin and not origin_allowed(self, trim(origin)) then
    return ("Origin %s is not allowed; if this page is yours, add it to http.allowed_origins in init.lua")
      :format(schema.show(origin))
  end
end

--- Path and query of a request target; query is name -> value, the last of a name.
function M.target(text)
  local path, rest = text:match "^([^?#]*)%??([^#]*)"
  local query = {}
  for name, value in rest:gmatch "([^&=]+)=?([^&]*)" do
    query[name] = schema.percent_decoded((value:gsub("+", " ")))
  end
  if #path > 1 then path = path:gsub("/$", "") end
  return path, query
end

local JSON, EVENTS = "application/json", "text/event-stream"

-- How well a media range fits a type: 3 exactly, 2 and 1 by a wildcard.
local function fit(range, wanted)
  if range == wanted then return 3 end
  if range == wanted:match "^[^/]*" .. "/*" then return 2 end
  return range == "*/*" and 1 or 0
end

local function accepts(header, wanted)
  local best, allowed = 0, false
  for part in header:gmatch "[^,]+" do
    local how = fit(part:match "^%s*([^;%s]*)":lower(), wanted)
    if how > best then
      best, allowed = how, (tonumber(part:lower():match ";%s*q%s*=%s*([%d.]+)") or 1) > 0
    end
  end
  return allowed
end

--- Whether an Accept header (nil: absent, which allows anything) takes JSON,
-- whether it takes a stream of events, and whether it names that first: of equals,
-- the client then gets it.
function M.accepts(header)
  if not header or not header:find "%S" then return true, true, false end
  local json_at, events_at = header:find(JSON, 1, true), header:find(EVENTS, 1, true)
  return accepts(header, JSON), accepts(header, EVENTS), events_at ~= nil and (json_at == nil or events_at < json_at)
end

--- Whether an Accept header asks for events by name.
function M.asks_for_events(header)
  return accepts((header or ""):gsub("%*/%*", ""), EVENTS)
end

--- Whether a Content-Type is that of JSON, whatever its parameters.
function M.is_json(content_type)
  return content_type ~= nil and content_type:match "^%s*([^;%s]*)":lower() == JSON
end

--- The meaning of a header value, which may be written as =?base64?...?=; nil
-- when that is broken or not UTF-8.
function M.decode(value)
  value = trim(value)
  local inner = value:match "^=%?base64%?(.*)%?=$"
  if not inner then return value end
  local bytes = core.crypto.unbase64(inner)
  return bytes and core.text.is_utf8(bytes) and bytes or nil
end

-- Why the header is not what the body says (a string), or nil.
local function differs(name, value, wanted, where)
  if value == nil then
    return ("the header %s is missing; it must be %s, as %s says"):format(name, schema.show(wanted), where)
  end
  local meaning = M.decode(value)
  if meaning == nil then return ("the header %s holds broken base64"):format(name) end
  if meaning ~= wanted then
    return ("the header %s is %s, but %s says %s"):format(name, schema.show(meaning), where, schema.show(wanted))
  end
end

--- Why the headers of a modern request do not repeat its method and name, or nil.
-- message: rpc.parse; header: function(name) -> value or nil.
function M.mismatch(message, header)
  local why = differs("Mcp-Method", header "Mcp-Method", message.method, "method")
  local member = NAMED[message.method]
  if why or not member then return why end
  local value, wanted = header "Mcp-Name", message.params[member]
  if type(wanted) == "string" then return differs("Mcp-Name", value, wanted, "params." .. member) end
  if value then return ("the header Mcp-Name is there, but params.%s is no string"):format(member) end
end

-- A number as JSON has it, or nil. The length comes first: over many digits the
-- pattern, in which three repetitions may meet, takes cubic time.
local function as_number(text)
  return #text <= MAX_NUMBER and text:find "^%-?%d+%.?%d*[eE]?[+-]?%d*$" and tonumber(text) or nil
end

-- Numbers are compared by value: 42.0 is 42.
local function param_differs(name, value, wanted, where)
  if math.type(wanted) == nil then
    if type(wanted) == "boolean" then wanted = tostring(wanted) end
    return type(wanted) == "string" and differs(name, value, wanted, where) or nil
  end
  local meaning = value and M.decode(value)
  if meaning and as_number(meaning) == wanted then return nil end
  return differs(name, value, ("%.14g"):format(wanted), where) or nil
end

--- Why the Mcp-Param-* headers of a call do not repeat its arguments, or nil.
-- headers: parameter -> name, of a tool (x-mcp-header). An argument that is
-- absent or null is not looked for.
function M.param_mismatch(headers, arguments, header)
  for _, param in ipairs(schema.keys(headers)) do
    local name, wanted = "Mcp-Param-" .. headers[param], arguments[param]
    if wanted ~= nil and wanted ~= core.json.null then
      local why = param_differs(name, header(name), wanted, "arguments." .. param)
      if why then return why end
    end
  end
end

return M
