--- Who may use the HTTP transport: bearer tokens (RFC 6750), each with the name
-- of the client it belongs to.
--
-- There is no TLS here: whoever can read the traffic can read the token, so
-- another machine reaches this server by way of a proxy that speaks TLS.

local core = require "sandbox_runner.core"
local fault = require "sandbox_runner.fault"

local sys = core.sys
local M = {}
local Auth = {}
Auth.__index = Auth

local VARIABLE = "SANDBOX_RUNNER_TOKEN"
local MAX_FILE_BYTES = 256 << 10
local MAX_TOKENS = 1000
local MIN_TOKEN_BYTES, MAX_TOKEN_BYTES = 16, 4096
local MAKE_ONE = "make one with: openssl rand -hex 32"
local ONLY_NAME = "token" -- of the client whose token has none

-- Takes a token for a client: true, or nil and what is wrong with it.
local function add(self, name, token)
  if #token < MIN_TOKEN_BYTES then
    return nil, ("the token has %d characters, and %d are needed; %s"):format(#token, MIN_TOKEN_BYTES, MAKE_ONE)
  elseif #token > MAX_TOKEN_BYTES then
    return nil, ("the token is longer than %d characters; %s"):format(MAX_TOKEN_BYTES, MAKE_ONE)
  elseif token:find "[^\x21-\x7e]" then
    return nil, "the token may hold printable ASCII without blanks only; " .. MAKE_ONE
  elseif #self.clients == MAX_TOKENS then
    return nil, ("there are more than %d tokens"):format(MAX_TOKENS)
  end
  local code = core.crypto.hmac_sha256(self.key, token)
  if self.codes[code] then return nil, "this token is there twice; every client needs one of its own" end
  self.codes[code] = true
  self.clients[#self.clients + 1] = { name = name, code = code }
  return true
end

-- Takes one line of the file, "name:token" or, when it is the only one, "token".
local function add_line(self, line)
  local name, token = line:match "^([^:]*):(.*)$"
  if name and not name:find "^[%w._-]+$" or name and #name > 64 then
    return nil, "the name before the colon may have 64 letters, digits, dots, dashes and underscores at most"
  end
  if not name then self.nameless = true end
  local ok, why = add(self, name or ONLY_NAME, token or line)
  if ok and self.nameless and #self.clients > 1 then
    return nil, "with several tokens every line needs a name: name:token"
  end
  return ok, why
end

local function add_text(self, text, path)
  local number = 0
  for line in (text .. "\n"):gmatch "(.-)\r?\n" do
    number = number + 1
    if line ~= "" and line:sub(1, 1) ~= "#" then
      local ok, why = add_line(self, line)
      if not ok then return fault.new("invalid", ("%s:%d: %s"):format(path, number, why)) end
    end
  end
  if #self.clients > 0 then return self end
  return fault.new("invalid", ("%s: there is no token in it; %s"):format(path, MAKE_ONE))
end

-- As given when absolute, below the home folder for "~/...", else beside init.lua.
local function resolve(config)
  local file = config.http.token_file
  if file:sub(1, 1) == "/" then return file end
  if file:sub(1, 2) == "~/" then return sys.home() .. file:sub(2) end
  return ((config.file or ""):match "^.*/" or "./") .. file
end

-- Who can read the file can run code here.
local function check_file(path)
  local stat, why = sys.stat(path)
  if not stat then return fault.new(why.code, why.message .. " (http.token_file)") end
  if stat.type ~= "file" then return fault.new("invalid", path .. ": this is no regular file (http.token_file)") end
  if stat.uid ~= 0 and stat.uid ~= sys.uid() then
    return fault.new("denied", ("%s: belongs to user %d, who could let anybody in; run: chown %d %s")
      :format(path, stat.uid, sys.uid(), path))
  elseif stat.mode & 63 ~= 0 then
    return fault.new("denied", ("%s: group or others may use it (mode %03o); run: chmod 600 %s")
      :format(path, stat.mode & 511, path))
  end
  return true
end

local function read_file(self, path)
  local ok, why = check_file(path) -- first: opening a FIFO would wait for ever
  if not ok then return nil, why end
  local file, message = io.open(path, "rb")
  if not file then return fault.new("denied", "cannot read " .. message) end
  local text = file:read(MAX_FILE_BYTES + 1) or ""
  file:close()
  if #text > MAX_FILE_BYTES then return fault.new("invalid", path .. ": larger than 256 KiB") end
  return add_text(self, text, path)
end

local function take_variable(self, value)
  local ok, why = add(self, ONLY_NAME, (value:gsub("\r?\n$", "")))
  if ok then return self end
  return fault.new("invalid", ("%s: %s"):format(VARIABLE, why))
end

--- The tokens of the file that http.token_file names, or the one in the variable
-- SANDBOX_RUNNER_TOKEN, or none. Both at once are refused: one of them would be
-- a leftover that somebody takes for valid, or for revoked. So is a variable that
-- is set to nothing: it was meant to hold a token.
-- config: settings. Returns auth | nil, err; no message holds a token.
function M.load(config)
  local self = setmetatable({ key = sys.random_hex(32), clients = {}, codes = {}, stats = { refused = 0 } }, Auth)
  local value = os.getenv(VARIABLE)
  if config.http.token_file and value then
    return fault.new("invalid", ("both http.token_file and %s are set; unset the variable, or remove the setting")
      :format(VARIABLE))
  end
  if config.http.token_file then return read_file(self, resolve(config)) end
  if value then return take_variable(self, value) end
  return self
end

--- Whether a request needs a token.
function Auth:required()
  return #self.clients > 0
end

--- header: the value of Authorization, or nil. Returns the name of the client
-- whose token it holds, or nil. Takes the same time for every wrong token: what
-- is compared are codes of one length, and all of them. auth.stats.refused counts.
function Auth:check(header)
  local scheme, token = (header or ""):match "^(%a+) +(%S+) *$"
  local name
  if token and scheme:lower() == "bearer" then
    local code = core.crypto.hmac_sha256(self.key, token)
    for _, client in ipairs(self.clients) do
      if core.crypto.equal(code, client.code) then name = client.name end
    end
  end
  if not name then self.stats.refused = self.stats.refused + 1 end
  return name
end

--- The WWW-Authenticate header of a 401 (RFC 6750, 3): header is what the request
-- had for Authorization, or nil.
function M.challenge(header)
  local realm = 'Bearer realm="sandbox-runner"'
  return header and realm .. ', error="invalid_token"' or realm
end

local function is_loopback(host)
  if host == "localhost" or host == "::1" then return true end
  local bytes = { host:match "^127%.(%d+)%.(%d+)%.(%d+)$" }
  for _, byte in ipairs(bytes) do
    if #byte > 3 or tonumber(byte) > 255 then return false end
  end
  return #bytes == 3
end

--- Whether this server may listen on host: anybody on this machine may use a
-- loopback address, others take a token. Returns true, or nil and what to do.
function M.may_bind(host, auth)
  if auth:required() or is_loopback(host) then return true end
  return nil, ("http.host: %s may be reached from other machines, and whoever reaches it could run code here. Name a "
    .. "file with a token as http.token_file (or set %s), or listen on 127.0.0.1."):format(host, VARIABLE)
end

return M
