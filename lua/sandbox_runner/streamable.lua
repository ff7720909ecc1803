--- Streamable HTTP: one path for the legacy revisions, which have sessions, and
-- for 2026-07-28, where every POST stands alone.
--
-- The checks come in the order in which a client can mend things: headers that
-- say how to read the body, the body, the version, the method, and then the
-- headers that repeat the body.
local events = require "sandbox_runner.event_stream"
local exchange = require "sandbox_runner.exchange"
local headers = require "sandbox_runner.http_headers"
local legacy = require "sandbox_runner.legacy"
local mcp = require "sandbox_runner.mcp"
local modern = require "sandbox_runner.modern"
local rpc = require "sandbox_runner.rpc"
local schema = require "sandbox_runner.schema"
local sessions = require "sandbox_runner.sessions"

local M = {}
local Endpoint = {}
Endpoint.__index = Endpoint

local PRIMED = "2025-11-25" -- the first revision whose clients read events without data
local OLDEST_MODERN = modern.versions[#modern.versions]
local SESSION, VERSION = "MCP-Session-Id", "MCP-Protocol-Version"

local START_AGAIN = "begin a new one with initialize and without MCP-Session-Id"
local STATUS = { [rpc.HEADER_MISMATCH] = 400, [rpc.MISSING_CAPABILITY] = 400, [rpc.UNSUPPORTED_VERSION] = 400,
  [rpc.METHOD_NOT_FOUND] = 404 }

--- The endpoint. front: see http.lua.
function M.new(front)
  local http = front.config.http
  return setmetatable({ front = front, server = front.server, store = events.store(front.now_ms),
    sessions = sessions.new { max = http.sessions, idle_ms = http.session_idle_seconds * 1000,
      now_ms = front.now_ms } }, Endpoint)
end

local function trimmed(request, name)
  local value = request:header(name)
  return value and schema.trim(value)
end

local function is_modern(version)
  return version ~= nil and version:find "^%d%d%d%d%-%d%d%-%d%d$" ~= nil and version >= OLDEST_MODERN
end

-- What every handler needs to know of a request.
local function open(self, request, client)
  local id = trimmed(request, SESSION)
  return { request = request, client = client, session_id = id, version = trimmed(request, VERSION),
    entry = self.sessions:find(id, client) }
end

local function refuse(self, post, status, code, text, more)
  more = more or {}
  if more.id == nil and post.message and post.message.kind == "request" then more.id = post.message.id end
  self.front:refuse(post.request, status, code, text, more)
end

-- Whether the request belongs to a session and names no unknown version; else it
-- is refused here. A client begins a new session only when it is told 404.
local function has_session(self, post)
  if not post.session_id then
    refuse(self, post, 400, rpc.INVALID_REQUEST, "the MCP-Session-Id header is missing; initialize answers with one")
  elseif not post.entry then
    refuse(self, post, 404, rpc.INVALID_REQUEST, "there is no such session (any more); " .. START_AGAIN)
  elseif post.version and not legacy.versions[post.version] and not is_modern(post.version) then
    refuse(self, post, 400, rpc.INVALID_REQUEST, ("MCP-Protocol-Version %s is unknown; known are %s")
      :format(schema.show(post.version), schema.listing(schema.keys(legacy.versions))))
  else
    return true
  end
  return false
end

local function new_channel(self, entry, name)
  local channel = self.store:channel(name, entry.core.version >= PRIMED)
  entry.channels[name] = channel
  return channel
end

-- The channel of one POST; number 0 is the one of what nobody asked for.
local function next_channel(self, entry)
  entry.last_channel = entry.last_channel + 1
  return new_channel(self, entry, entry.last_channel)
end

local function new_entry(self, client)
  local entry = { client = client, channels = {}, last_channel = 0 }
  -- Returns false when the client cannot hear of it.
  function entry.tell(text)
    local channel = entry.channels[0]
    return channel ~= nil and channel:push(text)
  end
  entry.core = self.server:session { client = client, notify = entry.tell }
  function entry.close(reason)
    entry.core:close(reason)
    for _, channel in pairs(entry.channels) do channel:finish() end
  end
  return entry
end

-- Hands a message to the core and waits until it is answered or the client has
-- gone. options: core (session), json, status, headers, channel, elsewhere; see
-- exchange.lua. Returns whether the client has gone before.
local function serve(self, post, options)
  local front, one = self.front, nil
  local leave = post.entry and self.sessions:enter(post.entry) or function() end
  one = exchange.new { request = post.request, json = options.json, events = post.events, now_ms = front.now_ms,
    status = options.status, headers = options.headers, channel = options.channel, elsewhere = options.elsewhere,
    unanswered = function() return front.stopping and 503 or 202 end,
    over = function()
      leave()
      front:unwatch(one)
    end }
  front:watch(one)
  options.core:dispatch(post.message, one:sink())
  if one.answered or post.request:wait_gone() ~= "gone" then return false end
  one:leave()
  return not one.answered
end

local function no_headers() end
local function nowhere() return false end

-- A message in its session. The end of the connection does not end the call.
local function serve_legacy(self, post)
  local entry, is_request = post.entry, post.message.kind == "request"
  serve(self, post, { core = entry.core, json = post.json and not (is_request and post.events_first),
    headers = no_headers, elsewhere = entry.tell,
    channel = function() return next_channel(self, entry) end,
    status = function(answer) return answer and answer.error and not is_request and 400 or 200 end })
end

local function initialize(self, post)
  if post.entry then
    return refuse(self, post, 400, rpc.INVALID_REQUEST, "this session is initialized already; " .. START_AGAIN)
  elseif post.session_id then
    return has_session(self, post)
  end
  local entry = new_entry(self, post.client)
  if not self.sessions:add(entry) then return self.front:refuse_session(post.request, post.message.id) end
  post.entry = entry
  serve(self, post, { core = entry.core, json = post.json, elsewhere = nowhere, status = function() return 200 end,
    headers = function() return entry.core.version and { [SESSION] = entry.id } or nil end })
  if not entry.core.version then self.sessions:remove(entry, "not initialized") end
end

local function refuse_params(self, post)
  local params = post.message.params
  local tool = post.message.method == "tools/call" and self.server.catalog:tool(params.name)
  if not tool or not tool.headers then return nil end
  local arguments = rpc.is_object(params.arguments) and params.arguments or {}
  return headers.param_mismatch(tool.headers, arguments, post.header)
end

-- Why the headers of a modern request are wrong, or nil. What the core refuses
-- for a better reason is left to it.
local function mismatch(self, post)
  local params = post.message.params
  local claimed = modern.claimed_version(params)
  if type(claimed) ~= "string" then return nil end
  if post.version ~= claimed then
    return ("the header %s is %s, but _meta says %s"):format(VERSION, post.version and schema.show(post.version)
      or "missing", schema.show(claimed))
  end
  if modern.refuse_version(params) or not self.server:method("modern", post.message.method) then return nil end
  return headers.mismatch(post.message, post.header) or refuse_params(self, post)
end

local function is_bad_envelope(message)
  return modern.refuse_version(message.params) ~= nil or modern.refuse { message = message } ~= nil
end

local function modern_status(message)
  return function(answer)
    local code = answer.error and answer.error.code
    if code == rpc.INVALID_PARAMS then return is_bad_envelope(message) and 400 or 200 end
    return STATUS[code] or 200
  end
end

-- A request of its own: the end of the connection is its cancellation.
local function serve_modern(self, post)
  local why = mismatch(self, post)
  if why then return refuse(self, post, 400, rpc.HEADER_MISMATCH, why) end
  local listens = post.message.method == "subscriptions/listen"
  if listens and not post.events then
    return refuse(self, post, 406, rpc.INVALID_REQUEST, "the answer is a stream: Accept must allow text/event-stream")
  end
  local release <close> = listens and self.front:listener(post.request, post.client) or nil
  if listens and not release then return end
  post.entry = nil
  local session = self.server:session { client = post.client }
  if serve(self, post, { core = session, json = post.json, headers = no_headers, elsewhere = nowhere,
    status = modern_status(post.message) }) then
    session:close "the client has closed the connection"
  end
end

local KINDS = {}

function KINDS.blank(self, post)
  refuse(self, post, 400, rpc.PARSE_ERROR, "the body is empty; it must be one JSON-RPC message")
end

function KINDS.bad(self, post)
  refuse(self, post, 400, post.message.code, post.message.message, { id = post.message.id })
end

function KINDS.ignored(self, post)
  refuse(self, post, 400, rpc.INVALID_REQUEST,
    "no notification: jsonrpc must be \"2.0\", params an object, and nothing else may be there")
end

function KINDS.request(self, post)
  local message = post.message
  if mcp.era(message) == "modern" then return serve_modern(self, post) end
  if message.method == "initialize" then return initialize(self, post) end
  if is_modern(post.version) then
    local _, text = modern.refuse_version(message.params)
    return refuse(self, post, 400, rpc.INVALID_PARAMS, text)
  end
  if has_session(self, post) then serve_legacy(self, post) end
end

-- In the modern era no notification of a client means anything to us.
function KINDS.notification(self, post)
  if is_modern(post.version) or modern.claimed_version(post.message.params) ~= nil then
    return post.request:respond(202, {}, "")
  end
  if has_session(self, post) then serve_legacy(self, post) end
end

function KINDS.response(self, post)
  if has_session(self, post) then serve_legacy(self, post) end
end

function KINDS.batch(self, post)
  if not (post.entry and post.entry.core:has_batches()) then
    return refuse(self, post, 400, rpc.INVALID_REQUEST,
      "send one message a POST; batches exist in sessions of revision 2025-03-26 only")
  end
  if has_session(self, post) then serve_legacy(self, post) end
end

--- POST: one message.
function Endpoint:post(request, client)
  local takes_json, takes_events, events_first = headers.accepts(request:header "Accept")
  if not takes_json and not takes_events then
    return self.front:refuse(request, 406, rpc.INVALID_REQUEST,
      "Accept must allow application/json and text/event-stream")
  end
  local text = self.front:json_body(request)
  if not text then return end
  local post = open(self, request, client)
  post.json, post.events, post.events_first = takes_json, takes_events, takes_events and events_first
  post.header = function(name) return request:header(name) end
  post.message = rpc.parse(text, post.entry ~= nil and post.entry.core:has_batches())
  KINDS[post.message.kind](self, post)
end

-- Serves a channel over this connection until it ends.
local function connect(self, post, channel, after)
  local release <close> = self.front:listener(post.request, post.client)
  local stream = release and post.request:stream(200, events.HEADERS)
  if not stream then return end
  local leave = self.sessions:enter(post.entry, true)
  local last_ms = self.front.now_ms()
  local watched = { keep_alive = function(_, now_ms, quiet_ms)
    if channel.live ~= stream or now_ms - last_ms < quiet_ms then return end
    last_ms = now_ms
    channel:comment()
  end }
  channel:attach(stream, after)
  self.front:watch(watched)
  post.request:wait_gone()
  self.front:unwatch(watched)
  channel:leave(stream)
  leave()
end

local function resume(self, post, id)
  local name, number = events.parse_id(id)
  local channel = name and post.entry.channels[name]
  if not channel or number > channel.count or number < channel.dropped then
    return refuse(self, post, 400, rpc.INVALID_REQUEST,
      "what came after this Last-Event-ID is not kept (any more); send the request again")
  end
  connect(self, post, channel, number)
end

-- Methods but POST are for sessions, which the modern era has not.
local function open_session(self, request, client)
  local get = open(self, request, client)
  if is_modern(get.version) then
    refuse(self, get, 405, rpc.INVALID_REQUEST, "this revision has POST only", { headers = { Allow = "POST" } })
  elseif has_session(self, get) then
    return get
  end
end

--- GET: a stream of what nobody asked for, or of what a lost connection has not
-- delivered (Last-Event-ID).
function Endpoint:get(request, client)
  if not headers.asks_for_events(request:header "Accept") then
    return self.front:refuse(request, 406, rpc.INVALID_REQUEST, "GET is for a stream: send Accept: text/event-stream")
  end
  local get = open_session(self, request, client)
  if not get then return end
  local id = trimmed(request, "Last-Event-ID")
  if id and id ~= "" then return resume(self, get, id) end
  local channel = get.entry.channels[0] or new_channel(self, get.entry, 0)
  if channel.live then
    return refuse(self, get, 409, rpc.INVALID_REQUEST, "this session has such a stream already; close that first")
  end
  connect(self, get, channel, channel.count)
end

--- DELETE: the end of a session.
function Endpoint:delete(request, client)
  local get = open_session(self, request, client)
  if not get then return end
  self.sessions:remove(get.entry, "the client has ended the session")
  request:respond(204, {}, "")
end

--- Whether there is something that expire may find.
function Endpoint:has_leftovers()
  return self.sessions.count > 0 or not self.store:is_empty()
end

--- To be called from time to time: idle sessions and old events go.
function Endpoint:expire()
  self.sessions:expire()
  self.store:expire()
  for _, entry in pairs(self.sessions.entries) do
    for name, channel in pairs(entry.channels) do
      if channel:is_over() then entry.channels[name] = nil end
    end
  end
end

--- Ends every session.
function Endpoint:close(reason)
  self.sessions:close_all(reason)
end

return M
