--- Where the container engine may be found, in order of preference.
--
-- MCP clients pass on little more than HOME and PATH, so DOCKER_HOST and
-- XDG_RUNTIME_DIR are used when there and never needed.

local core = require "sandbox_runner.core"

local sys = core.sys
local M = {}

local function read_json(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read("a")
  file:close()
  local value = core.json.decode(text)
  return type(value) == "table" and value or nil
end

--- The endpoint of the Docker context in use, as the docker command keeps it
-- below ~/.docker (config.json, contexts/meta/*/meta.json).
-- Returns name, address, tls_dir: no name when it is the default context, no
-- address when there is none of that name.
local function context_endpoint()
  local dir = sys.getenv("DOCKER_CONFIG") or sys.home() .. "/.docker"
  local settings = read_json(dir .. "/config.json") or {}
  local name = sys.getenv("DOCKER_CONTEXT") or settings.currentContext
  if type(name) ~= "string" or name == "default" then return nil end
  for _, id in ipairs(sys.list(dir .. "/contexts/meta") or {}) do
    local meta = read_json(("%s/contexts/meta/%s/meta.json"):format(dir, id))
    local endpoints = meta and meta.Name == name and meta.Endpoints
    local endpoint = type(endpoints) == "table" and endpoints.docker
    if type(endpoint) == "table" and type(endpoint.Host) == "string" then
      local tls = ("%s/contexts/tls/%s/docker"):format(dir, id)
      return name, endpoint.Host, sys.stat(tls) and tls or nil
    end
  end
  return name
end

--- Sockets of the usual engines for this user.
local function usual_sockets()
  local home, uid = sys.home(), sys.uid()
  local runtime = sys.getenv("XDG_RUNTIME_DIR") or "/run/user/" .. uid
  return {
    "/var/run/docker.sock",
    runtime .. "/docker.sock", -- rootless Docker
    home .. "/.docker/run/docker.sock", -- Docker Desktop
    home .. "/.docker/desktop/docker.sock",
    home .. "/.colima/default/docker.sock",
    home .. "/.orbstack/run/docker.sock",
    runtime .. "/podman/podman.sock",
    "/run/podman/podman.sock",
  }
end

--- Whether this program can use the address, and what to do when it cannot.
-- Returns true, or nil and a text.
local function usable(address, tls_dir, allow_plain_tcp)
  if address:match("^unix:///") then return true end
  if address:match("^ssh://") then
    return nil, "ssh is not spoken here; forward the socket (ssh -L /tmp/engine.sock:/var/run/docker.sock HOST) "
      .. 'and set engine.address = "unix:///tmp/engine.sock" in init.lua'
  end
  if not address:match("^tcp://[^/]") then
    return nil, "an address looks like unix:///var/run/docker.sock or tcp://host:2376"
  end
  if tls_dir or allow_plain_tcp then return true end
  return nil, "plain tcp gives root to whoever can reach it; set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH "
    .. "(or engine.tls_dir), or, if you mean it, engine.allow_plain_tcp = true in init.lua"
end

local function explicit(address, tls_dir, source, config)
  local ok, why = usable(address, tls_dir, config.allow_plain_tcp)
  return { { address = address, tls_dir = tls_dir, source = source, refused = not ok and why or nil } }
end

--- All places to try. config: the engine section of the settings.
-- Returns an array of {address=, tls_dir=, source=, refused=text or nil}. A place
-- that somebody named is the only one: falling back silently would run code on
-- another machine than was meant.
function M.candidates(config)
  if config.address then
    return explicit(config.address, config.tls_dir, "engine.address in init.lua", config)
  end
  local host = sys.getenv("DOCKER_HOST")
  if host then
    local tls = sys.getenv("DOCKER_TLS_VERIFY") and (sys.getenv("DOCKER_CERT_PATH") or sys.home() .. "/.docker")
    return explicit(host, config.tls_dir or tls, "DOCKER_HOST", config)
  end
  local name, address, tls_dir = context_endpoint()
  if address then return explicit(address, tls_dir, ("Docker context %q"):format(name), config) end
  if name then
    return { { address = ("context %q"):format(name), refused = "there is no such Docker context; choose one of "
      .. "`docker context ls`, or unset DOCKER_CONTEXT" } }
  end
  local list, seen = {}, {}
  for _, path in ipairs(usual_sockets()) do
    if not seen[path] then list[#list + 1] = { address = "unix://" .. path, path = path } end
    seen[path] = true
  end
  return list
end

return M
