--- The front door of the HTTP transports: who is let in, which path leads where,
-- and what all of them share: bodies, refusals, keep-alive, the end.
local auth = require "sandbox_runner.auth"
local core = require "sandbox_runner.core"
local defer = require "sandbox_runner.defer"
local headers = require "sandbox_runner.http_headers"
local health = require "sandbox_runner.health"
local metrics = require "sandbox_runner.metrics"
local rpc = require "sandbox_runner.rpc"
local schema = require "sandbox_runner.schema"
local sse = require "sandbox_runner.sse"
local streamable = require "sandbox_runner.streamable"

local loop = core.loop
local M = {}
local Front = {}
Front.__index = Front

local STREAM_BYTES = 16 << 20 -- the largest answer (mcp.lua), and notes before it
local SMALL_BODY = 64 << 10
local FLUSH_MS = 500
local EXPIRE_MS = 5000
local JSON, TEXT = "application/json", "text/plain; charset=utf-8"

local function show_health(self, request)
  local report, healthy = health.report(self.server)
  -- The rest names paths and versions: that is for those who may see the metrics.
  local given = request:header "Authorization"
  if self.auth:required() and not (given and self.auth:check(given)) then report = { status = report.status } end
  request:respond(healthy and 200 or 503, { ["Content-Type"] = JSON, ["Cache-Control"] = "no-store" },
    core.json.encode(report))
end

local function show_metrics(self, request)
  request:respond(200, { ["Content-Type"] = metrics.content_type }, self.server.metrics:text())
end

-- Path -> method -> function(self, request, client, query). `open` paths need no token.
local function routes(front)
  local old, new = front.sse, front.streamable
  local paths = {
    ["/sse"] = { GET = function(_, ...) old:get(...) end },
    ["/messages"] = { POST = function(_, ...) old:post(...) end },
    ["/healthz"] = { GET = show_health, HEAD = show_health, open = true },
    ["/metrics"] = { GET = show_metrics },
  }
  if new then
    paths["/mcp"] = { POST = function(_, ...) new:post(...) end, GET = function(_, ...) new:get(...) end,
      DELETE = function(_, ...) new:delete(...) end }
  end
  return paths
end

--- Answers with an error. more, optional: id (raw token), data, headers.
function Front.refuse(_, request, status, code, text, more)
  more = more or {}
  local all = { ["Content-Type"] = JSON }
  for name, value in pairs(more.headers or {}) do all[name] = value end
  request:respond(status, all, core.json.encode(rpc.error(more.id, code, text, more.data)))
end

local BODY_TROUBLE = {
  too_large = { 413, "a message may be %d bytes long at most (http.body in init.lua)" },
  timeout = { 408, "the body did not arrive in time; send the request again" },
  unavailable = { 503, "the server has too many bodies in hand; send the request again in a moment" },
}

-- Takes a place for a body that may become large, as long as a quarter of all room
-- is left for small ones: whoever sends large ones slowly keeps nobody out. Returns
-- a value whose end gives it back, or nil: there is none.
local function reserve(self, request)
  local http = self.config.http
  local size = tonumber(request:header "Content-Length") or request:header "Transfer-Encoding" and http.body or 0
  if size <= SMALL_BODY or size > http.body then return defer(function() end) end
  if self.large_bodies > 0 and self.large_bodies + size > http.body_budget - http.body_budget // 4 then return nil end
  self.large_bodies = self.large_bodies + size
  return defer(function() self.large_bodies = self.large_bodies - size end)
end

-- A body that could not be read: answers, if there is still somebody.
local function refuse_body(self, request, code)
  local trouble = BODY_TROUBLE[code]
  if not trouble then return end
  self:refuse(request, trouble[1], rpc.INVALID_REQUEST, trouble[2]:format(self.config.http.body),
    { headers = { ["Retry-After"] = trouble[1] == 503 and "1" or nil } })
end

--- The body of a POST that must be JSON, or nil: then the request is answered, or
-- its client has gone.
function Front:json_body(request)
  local coding = request:header "Content-Encoding"
  if not headers.is_json(request:header "Content-Type") or coding and coding:lower() ~= "identity" then
    return self:refuse(request, 415, rpc.INVALID_REQUEST,
      "the body must be JSON as it is: send Content-Type: application/json, and no Content-Encoding")
  end
  local place <close> = reserve(self, request)
  if not place then return refuse_body(self, request, "unavailable") end
  local body, why = request:read(self.config.http.body)
  if body then return body end
  refuse_body(self, request, why.code)
end

local function refuse_for_now(self, request, text, id)
  self:refuse(request, 503, rpc.INTERNAL_ERROR, text .. "; try again later",
    { id = id, headers = { ["Retry-After"] = "5" } })
end

--- Refuses a session for which sessions.lua has no place. id: raw token, optional.
function Front:refuse_session(request, id)
  refuse_for_now(self, request, "too many sessions are at work", id)
end

--- Takes one of the places for connections that stay open without asking for
-- anything; the others are kept for requests. Returns a value whose end gives it
-- back, or nil: the request was refused.
function Front:listener(request, client)
  local own = self.listening[client] or 0
  if self.listeners >= self.max_listeners or own >= self.max_listeners // 2 then
    return refuse_for_now(self, request, "too many streams are open")
  end
  self.listeners, self.listening[client] = self.listeners + 1, own + 1
  return defer(function()
    own = self.listening[client] - 1
    self.listeners, self.listening[client] = self.listeners - 1, own > 0 and own or nil
  end)
end

local function trace_of(thrown)
  if type(thrown) == "table" and thrown.code == "cancelled" then return thrown end
  return debug.traceback(tostring(thrown), 2)
end

-- Calls fn; a fault of ours in it is logged and ends nothing else. Returns true, or
-- false and the error for the client (nil when the task was cancelled).
local function guarded(self, what, fn, ...)
  local ok, trace = xpcall(fn, trace_of, ...)
  if ok then return true end
  return false, type(trace) == "string" and self.server:internal_error(what, trace) or nil
end

-- Keep-alive comments, as long as there is somebody to show them to. Who fails is
-- not asked again.
local function keep_alive(self)
  local guard <close> = defer(function() self.keeping_alive = false end)
  local quiet_ms = self.config.http.keepalive_seconds * 1000
  while next(self.watched) and not self.closed do
    loop.sleep(math.min(quiet_ms / 4, 5000))
    local now = self.now_ms()
    for thing in pairs(self.watched) do
      if not guarded(self, "a keep-alive", thing.keep_alive, thing, now, quiet_ms) then self:unwatch(thing) end
    end
  end
end

-- What has been idle or kept for too long goes.
local function expire(self)
  local guard <close> = defer(function() self.expiring = false end)
  while self.streamable:has_leftovers() and not self.closed do
    loop.sleep(EXPIRE_MS)
    guarded(self, "an expiry", self.streamable.expire, self.streamable)
  end
end

-- A server that nobody uses does not wake up.
local function wake(self)
  if not self.keeping_alive then
    self.keeping_alive = true
    loop.spawn(keep_alive, self)
  end
  if self.streamable and not self.expiring then
    self.expiring = true
    loop.spawn(expire, self)
  end
end

--- watch and unwatch: who is asked to show now and then that its connection
-- lives, by keep_alive(now_ms, quiet_ms).
function Front:watch(thing)
  self.watched[thing] = true
  wake(self)
end

function Front:unwatch(thing) self.watched[thing] = nil end

-- Whose request it is: a name; or nil, and it was refused here.
local function client_of(self, request, route)
  if route.open or not self.auth:required() then return request:peer() end
  local given = request:header "Authorization"
  local name = self.auth:check(given)
  if name then return name end
  self:refuse(request, 401, rpc.INVALID_REQUEST,
    given and "this token is not known here; send one of those that this server was given"
      or "a token is needed: send Authorization: Bearer TOKEN",
    { headers = { ["WWW-Authenticate"] = auth.challenge(given) } })
end

local function handle(self, request)
  local why = self.guard:refuse(request:header "Host", request:header "Origin")
  if why then return self:refuse(request, 403, rpc.INVALID_REQUEST, why) end
  local path, query = headers.target(request:target())
  local route = self.routes[path]
  if not route then
    return request:respond(404, { ["Content-Type"] = TEXT },
      ("%s is not served; these are: %s\n"):format(schema.show(path), self.paths))
  end
  local serve = route[request:method()]
  if not serve then
    return self:refuse(request, 405, rpc.INVALID_REQUEST, ("%s takes %s"):format(path, route.allow),
      { headers = { Allow = route.allow } })
  end
  local client = client_of(self, request, route)
  if client then serve(self, request, client, query) end
end

-- A fault in one request is answered, too, unless something was.
local function take(self, request)
  local ok, failure = guarded(self, "an HTTP request", handle, self, request)
  if ok or not failure then return end
  pcall(self.refuse, self, request, 500, failure.code, failure.message)
end

--- Serves requests until the server stops.
function Front:serve()
  while true do
    local request = self.httpd:accept()
    if not request then return end
    loop.spawn(take, self, request)
  end
end

--- Where it listens, as a client has to write it.
function Front:url()
  local host, port = self.httpd:address()
  if host:find(":", 1, true) then host = "[" .. host .. "]" end
  return ("http://%s:%d%s"):format(host, port, self.streamable and "/mcp" or "/sse")
end

--- What the metrics show: connections, requests, buffered (bytes), sessions, streams.
function Front:stats()
  local stats = self.httpd:stats()
  stats.sessions = self.sse.sessions.count + (self.streamable and self.streamable.sessions.count or 0)
  stats.streams = self.listeners
  return stats
end

--- No new connection, no new request; what is there goes on.
function Front:stop()
  self.stopping = true
  self.httpd:stop()
end

--- Ends all sessions and streams, then all connections, once what was answered is
-- out or half a second is over.
function Front:close()
  if self.streamable then self.streamable:close "the server stops" end
  self.sse:close "the server stops"
  local last = self.now_ms() + FLUSH_MS
  while self.httpd:stats().requests > 0 and self.now_ms() < last do loop.sleep(10) end
  self.closed = true
  self.httpd:close()
end

local function guard_of(http, host)
  local hosts = {}
  for _, name in ipairs(http.allowed_hosts) do hosts[#hosts + 1] = name end
  if host ~= "0.0.0.0" and host ~= "::" then hosts[#hosts + 1] = host end
  return headers.guard(hosts, http.allowed_origins)
end

local function finish_routes(self)
  self.routes = routes(self)
  self.paths = table.concat(schema.keys(self.routes), ", ")
  for _, route in pairs(self.routes) do
    local names = {}
    for _, name in ipairs(schema.keys(route)) do
      if name ~= "open" then names[#names + 1] = name end
    end
    route.allow = table.concat(names, ", ")
  end
end

--- Listens. options: server (mcp.lua), config, auth (auth.lua), sse_only = whether
-- there is no /mcp, host and port instead of the configured ones. Returns the
-- front | nil, err.
function M.listen(options)
  local http = options.config.http
  local host = options.host or http.host
  local httpd, why = core.httpd.listen { host = host, port = options.port or http.port,
    connections = http.connections, header_bytes = http.header, body_budget = http.body_budget,
    idle_seconds = http.idle_seconds, request_seconds = http.request_seconds, stream_bytes = STREAM_BYTES }
  if not httpd then return nil, why end
  local most = httpd:stats().max_connections
  local self = setmetatable({ httpd = httpd, server = options.server, config = options.config, auth = options.auth,
    now_ms = loop.now_ms, watched = {}, listeners = 0, large_bodies = 0, guard = guard_of(http, host),
    listening = {}, max_listeners = most - math.max(8, most // 10) }, Front)
  if most < http.connections then
    options.server.log(("only %d connections at a time: this process may open too few files (ulimit -n)"):format(most),
      "warning")
  end
  self.sse = sse.new(self)
  if not options.sse_only then self.streamable = streamable.new(self) end
  finish_routes(self)
  return self
end

return M
