--- The front door of http.lua on the real httpd, in this process, and raw clients
-- of it: for specs that have to see both sides at once. Everything runs in the loop.
local core = require "sandbox_runner.core"
local fake = require "spec.support.fake"
local front = require "sandbox_runner.http"
local peer = require "spec.support.peer"
local socket = require "socket"

local M = {}
local Here, Client = {}, {}
Here.__index, Client.__index = Here, Client

-- A frozen table, of which some fields are others.
local function with(base, fields) return setmetatable(fields, { __index = base }) end

--- Listens on a free port; closed with the test. options: init (text), http (fields
-- of config.http, fractions of seconds allowed), server (mcp.server by default).
-- Fields: front, server, log.
function M.start(options)
  options = options or {}
  local p = peer.new(options.init)
  local server = options.server or p.server
  local config = with(p.server.config, { http = with(p.server.config.http, options.http or {}) })
  local self = setmetatable({ server = server, log = p.log }, Here)
  self.front = assert(front.listen { server = server, config = config, port = 0,
    auth = { required = function() return false end } })
  self.host, self.port = self.front.httpd:address()
  core.loop.spawn(function() self.front:serve() end)
  return self
end

function Here:close()
  self.front:stop()
  self.front:close()
end

Here.__close = Here.close

--- A client's connection, which reads nothing by itself; text is what was read
-- and not taken yet.
function M.connect(host, port)
  local tcp = assert(socket.connect(host, port))
  tcp:settimeout(0)
  return setmetatable({ tcp = tcp, text = "" }, Client)
end

function Here:connect() return M.connect(self.host, self.port) end

function Client:write(text)
  local at = 1
  fake.eventually(function()
    local sent, _, partly = self.tcp:send(text, at)
    at = (sent or partly) + 1
    return at > #text
  end, "sent")
end

--- Sends a request; its body may come later, when Content-Length is in headers.
function Client:request(method, path, headers, body)
  local lines = { ("%s %s HTTP/1.1\r\nHost: localhost"):format(method, path) }
  for name, value in pairs(headers or {}) do lines[#lines + 1] = name .. ": " .. value end
  if body then lines[#lines + 1] = "Content-Length: " .. #body end
  self:write(table.concat(lines, "\r\n") .. "\r\n\r\n" .. (body or ""))
end

--- Posts a message (a table); it accepts JSON alone unless headers say otherwise.
function Client:post(path, message, headers)
  local all = { ["Content-Type"] = "application/json", Accept = "application/json" }
  for name, value in pairs(headers or {}) do all[name] = value end
  self:request("POST", path, all, core.json.encode(message))
end

-- Reads what is there; returns whether the server has closed the connection.
local function read(self)
  local text, why, partly = self.tcp:receive(1 << 20)
  self.text = self.text .. (text or partly)
  return why == "closed"
end

--- Reads until `ending` has come (nil: until the server closes). Returns all of it.
function Client:wait(ending)
  fake.eventually(function()
    return read(self) or ending and self.text:find(ending, 1, true)
  end, ending or "the end")
  return self.text
end

--- Takes the next response, which has a Content-Length: its status, and all of it.
function Client:response()
  local head = self:wait("\r\n\r\n"):match "^.-\r\n\r\n"
  local length = #head + tonumber(head:match "\r\nContent%-Length: (%d+)")
  fake.eventually(function() return #self.text >= length or read(self) end, "a body")
  local text = self.text:sub(1, length)
  self.text = self.text:sub(length + 1)
  return tonumber(text:match "^HTTP/1.1 (%d+)"), text
end

function Client:close() self.tcp:close() end

Client.__close = Client.close

--- Begins a legacy session; returns the headers of its requests, and its entry.
function Here:session(capabilities, version)
  local client <close> = self:connect()
  client:post("/mcp", { jsonrpc = "2.0", id = 0, method = "initialize", params = {
    protocolVersion = version or "2025-11-25", capabilities = capabilities or {},
    clientInfo = { name = "spec", version = "1" } } })
  local status, text = client:response()
  assert(status == 200, text)
  local id = text:match "\r\nMCP%-Session%-Id: (%x+)"
  return { ["MCP-Session-Id"] = id }, self.front.streamable.sessions.entries[id]
end

return M
