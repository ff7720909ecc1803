--- A raw HTTP client for the server under test: sockets, bytes, and what comes back.
--
-- The server is started by e2e.client, which keeps its log, its state folder and
-- its process; here it listens on a free port of 127.0.0.1. Nothing waits longer
-- than TIMEOUT seconds.
local client = require "e2e.client"
local socket = require "socket"

local json = client.json
local M = {}
local Server, Connection, Session = {}, {}, {}
Server.__index, Connection.__index, Session.__index = Server, Connection, Session

local TIMEOUT = 15 * client.slow
local BOTH = "application/json, text/event-stream"

M.json = json

-- Where the server says that it listens.
local function address_of(process)
  local found
  client.eventually(10 * client.slow, function()
    found = process:stderr():match "listening on (%S+)"
    return found or not process:alive()
  end)
  if not found then error("it does not listen; its log: " .. process:stderr(), 3) end
  return found
end

--- Starts a server. options: those of client.start, and transport ("http").
function M.start(options)
  local all = { mute = true, seconds = 120 }
  for name, value in pairs(options or {}) do all[name] = value end
  all.args = { "--transport", all.transport or "http", "--port", "0", table.unpack(all.args or {}) }
  local process = client.start(all)
  local url = address_of(process)
  local host, port = url:match "^http://(.-):(%d+)/"
  return setmetatable({ process = process, url = url, host = host, port = tonumber(port) }, Server)
end

--- Tells the server to stop.
function Server:signal(name)
  self.signalled = true
  self.process:signal(name)
end

--- Waits for the end of the server, which it is told to come to unless it was
-- already. Returns its exit status and the milliseconds that took.
function Server:close()
  local started = client.now_ms()
  if not self.signalled and self.process:alive() then self.process:signal "TERM" end
  local status = self.process:close()
  return status, client.now_ms() - started
end

--- The memory of the server in bytes.
function Server:rss()
  local text = client.read_file(("/proc/%d/status"):format(self.process:pid()))
  return tonumber(text:match "VmRSS:%s*(%d+) kB") * 1024
end

--- A connection of its own.
function Server:connect()
  local tcp = assert(socket.connect(self.host, self.port))
  tcp:settimeout(TIMEOUT)
  tcp:setoption("tcp-nodelay", true)
  return setmetatable({ tcp = tcp, server = self, rest = "" }, Connection)
end

--- Sends bytes as they are. Returns true, or nil and why.
function Connection:write(bytes)
  local sent, why = self.tcp:send(bytes)
  return sent and true, why
end

local function head_of(method, path, headers, body)
  local lines = { ("%s %s HTTP/1.1"):format(method, path) }
  for name, value in pairs(headers) do
    if value then lines[#lines + 1] = ("%s: %s"):format(name, value) end
  end
  if body and headers["Content-Length"] == nil then lines[#lines + 1] = "Content-Length: " .. #body end
  return table.concat(lines, "\r\n") .. "\r\n\r\n"
end

--- Sends a request. headers: name -> value; Host is added unless it is there (false: none).
function Connection:request(method, path, headers, body)
  local all = { Host = ("%s:%d"):format(self.server.host, self.server.port) }
  for name, value in pairs(headers or {}) do all[name] = value end
  return self:write(head_of(method, path, all, body) .. (body or ""))
end

-- Reads until `pattern` occurs; returns what is before it. Nil, why at the end.
local function read_until(self, mark)
  while true do
    local at, stop = self.rest:find(mark, 1, true)
    if at then
      local text = self.rest:sub(1, at - 1)
      self.rest = self.rest:sub(stop + 1)
      return text
    end
    local data, why, partial = self.tcp:receive(1)
    local more = data or partial
    if more == "" or not more then return nil, why end
    self.tcp:settimeout(0)
    local _, _, extra = self.tcp:receive(65536)
    self.tcp:settimeout(TIMEOUT)
    self.rest = self.rest .. more .. (extra or "")
  end
end

local function read_bytes(self, n)
  while #self.rest < n do
    local data, why, partial = self.tcp:receive(math.min(n - #self.rest, 65536))
    local more = data or partial
    if more == "" or not more then return nil, why end
    self.rest = self.rest .. more
  end
  local text = self.rest:sub(1, n)
  self.rest = self.rest:sub(n + 1)
  return text
end

--- The status and the headers (names in lower case) of the next response; nil,
-- why when the connection ended.
function Connection:head()
  local text, why = read_until(self, "\r\n\r\n")
  if not text then return nil, why end
  local headers = {}
  for name, value in text:gmatch "\r\n([^:\r\n]+):[ \t]*([^\r\n]*)" do headers[name:lower()] = value end
  self.chunked = headers["transfer-encoding"] == "chunked"
  self.length = tonumber(headers["content-length"])
  return tonumber(text:match "^HTTP/1%.[01] (%d+)"), headers
end

-- The next chunk of a chunked body; nil at its end; nil, why when it broke off.
local function read_chunk(self)
  local size, why = read_until(self, "\r\n")
  if not size then return nil, why or "closed" end
  local n = tonumber(size:match "^%x+", 16)
  local data
  data, why = read_bytes(self, n + 2)
  if not data then return nil, why or "closed" end
  if n == 0 then return nil end
  return data:sub(1, -3)
end

--- The body of the response whose head was read.
function Connection:body()
  if not self.chunked then return read_bytes(self, self.length or 0) or "" end
  local parts = {}
  while true do
    local chunk, why = read_chunk(self)
    if not chunk then return table.concat(parts), why end
    parts[#parts + 1] = chunk
  end
end

local function parse_event(text)
  local event = { raw = text }
  for line in (text .. "\n"):gmatch "(.-)\n" do
    local name, value = line:match "^([^:]*): ?(.*)$"
    if name == "" then event.comment = value elseif name then event[name] = value end
  end
  if event.data and event.data ~= "" and event.event ~= "endpoint" then event.message = json.decode(event.data) end
  return event
end

--- The next event of a stream: { id, event, data, retry, comment, message = decoded
-- data }. Nil at the end of the stream; nil, why when it broke off.
function Connection:event()
  self.stream = self.stream or ""
  while true do
    local at, stop = self.stream:find("\n\n", 1, true)
    if at then
      local text = self.stream:sub(1, at - 1)
      self.stream = self.stream:sub(stop + 1)
      return parse_event(text)
    end
    local chunk, why = read_chunk(self)
    if not chunk then return nil, why end
    self.stream = self.stream .. chunk
  end
end

--- The next event that holds a message; those without are skipped.
function Connection:message()
  while true do
    local event, why = self:event()
    if not event then return nil, why end
    if event.message then return event.message, event end
  end
end

--- The whole next response: { status, headers, body, json = decoded body, events =
-- list, when it is a stream }.
function Connection:response()
  local status, headers = self:head()
  if not status then return nil, headers end
  local out = { status = status, headers = headers }
  if headers["content-type"] == "text/event-stream" then
    out.events = {}
    for event in function() return self:event() end do out.events[#out.events + 1] = event end
  else
    out.body = self:body()
    if headers["content-type"] == "application/json" then out.json = json.decode(out.body) end
  end
  return out
end

--- Whether the server has closed the connection (waits up to `seconds`).
function Connection:is_closed(seconds)
  self.tcp:settimeout(seconds or TIMEOUT)
  local data, why = self.tcp:receive(1)
  self.tcp:settimeout(TIMEOUT)
  if data then self.rest = self.rest .. data end
  return why == "closed"
end

function Connection:close() self.tcp:close() end

--- One request on a connection of its own; returns the response.
function Server:http(method, path, headers, body)
  local connection = self:connect()
  connection:request(method, path, headers, body)
  local response, why = connection:response()
  connection:close()
  if not response then error(("no response to %s %s: %s"):format(method, path, tostring(why)), 2) end
  return response
end

local function merged(headers, more)
  for name, value in pairs(more or {}) do headers[name] = value end
  return headers
end

--- Headers of a POST to /mcp; more: further ones, false to leave one out.
function M.headers(more)
  return merged({ ["Content-Type"] = "application/json", Accept = BOTH }, more)
end

--- Posts a message (a table, or text) to /mcp; returns the response.
function Server:post(message, more)
  return self:http("POST", "/mcp", M.headers(more), type(message) == "table" and json.encode(message) or message)
end

function M.request(method, params, id)
  return { jsonrpc = "2.0", id = id or 1, method = method, params = params }
end

M.VERSION = "2026-07-28"

--- The params of a modern request.
function M.modern_params(params, capabilities, meta)
  local out = merged({}, params)
  out._meta = merged({ ["io.modelcontextprotocol/protocolVersion"] = M.VERSION,
    ["io.modelcontextprotocol/clientCapabilities"] = capabilities or {},
    ["io.modelcontextprotocol/clientInfo"] = { name = "e2e", version = "1" } }, meta)
  return out
end

--- The headers of a modern request.
function M.modern_headers(method, name, more)
  return M.headers(merged({ ["MCP-Protocol-Version"] = M.VERSION, ["Mcp-Method"] = method, ["Mcp-Name"] = name }, more))
end

--- Sends a modern request on a connection of its own; returns the connection.
function Server:modern_open(method, params, options)
  options = options or {}
  local connection = self:connect()
  connection:request("POST", "/mcp", M.modern_headers(method, params and (params.name or params.uri), options.headers),
    json.encode(M.request(method, M.modern_params(params, options.capabilities, options.meta), options.id)))
  return connection
end

--- The same; returns the response.
function Server:modern(method, params, options)
  local connection = self:modern_open(method, params, options)
  local response = assert(connection:response())
  connection:close()
  return response
end

function M.initialize(version)
  return M.request("initialize", { protocolVersion = version or "2025-11-25", capabilities = {},
    clientInfo = { name = "e2e", version = "1" } }, 0)
end

--- A legacy session; more: headers of every request of it.
function Server:session(version, more)
  local response = self:post(M.initialize(version), more)
  assert(response.status == 200, response.body)
  local session = setmetatable({ server = self, id = response.headers["mcp-session-id"], more = more,
    hello = response.json, version = response.json.result.protocolVersion }, Session)
  assert(session:post({ jsonrpc = "2.0", method = "notifications/initialized" }).status == 202)
  return session
end

--- Headers of a request of this session.
function Session:headers(more)
  local headers = { ["MCP-Session-Id"] = self.id, ["MCP-Protocol-Version"] = self.version }
  return merged(merged(headers, self.more), more)
end

function Session:post(message, more) return self.server:post(message, self:headers(more)) end

--- Sends a message on a connection of its own; returns the connection.
function Session:open(message, more)
  local connection = self.server:connect()
  connection:request("POST", "/mcp", M.headers(self:headers(more)),
    type(message) == "table" and json.encode(message) or message)
  return connection
end

--- Opens a stream by GET; returns the connection, the status and the headers.
function Session:listen(more)
  local connection = self.server:connect()
  connection:request("GET", "/mcp", self:headers(merged({ Accept = "text/event-stream" }, more)))
  return connection, connection:head()
end

function Session:delete(more)
  return self.server:http("DELETE", "/mcp", self:headers(more))
end

--- A tool call as a message.
function M.call(tool, arguments, id, meta)
  return M.request("tools/call", { name = tool, arguments = arguments, _meta = meta }, id)
end

--- The tools/call message of run_code.
function M.run(code, id, meta, seconds)
  return M.call("run_code", { language = "python", code = code, timeout_seconds = seconds }, id, meta)
end

return M
