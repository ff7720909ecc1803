--- What the engine itself says: the tests' own view of containers and volumes.
local address = require "sandbox_runner.address"
local client = require "e2e.client"
local core = require "sandbox_runner.core"
local settings = require "sandbox_runner.settings"

local sandboxes = {}

-- The first place that answers, as the program under test would find it.
local function connect()
  for _, place in ipairs(address.candidates(settings.defaults().engine)) do
    local docker = not place.refused and core.docker.open(place.address, place.tls_dir)
    if docker and docker:ping() then return docker, place.address end
  end
  error("no container engine answers; run `make engine`")
end

--- Calls fn(docker) where it may wait; returns what fn returned.
function sandboxes.ask(fn)
  local values
  core.loop.run(function() values = table.pack(pcall(function() return fn((connect())) end)) end)
  if not values[1] then error(values[2], 0) end
  return table.unpack(values, 2, values.n)
end

--- The address of the engine.
function sandboxes.address()
  local found
  core.loop.run(function() found = select(2, connect()) end)
  return found
end

--- All containers with our label whose instance is the given one. An unknown
-- instance is an error: it has no sandboxes, which would pass for "all gone".
function sandboxes.of(instance)
  assert(type(instance) == "string", "the server's instance is not known")
  local text = sandboxes.ask(function(docker) return assert(docker:list()) end)
  local out = {}
  for _, container in ipairs(client.json.decode(text)) do
    if container.Labels["sandbox-runner.instance"] == instance then out[#out + 1] = container end
  end
  return out
end

--- Waits until so many sandboxes of a server are there; returns them.
function sandboxes.wait_for(server, count)
  local found
  client.eventually(60, function()
    found = sandboxes.of(server:instance())
    local running = 0
    for _, container in ipairs(found) do
      if container.State == "running" then running = running + 1 end
    end
    return running >= count
  end)
  assert(#found >= count, #found .. " sandboxes, wanted " .. count)
  return found
end

--- How long, in seconds, until none of an instance is left; nil when some is after `seconds`.
function sandboxes.gone_after(instance, seconds)
  local started = client.now_ms()
  local gone = client.eventually(seconds, function() return #sandboxes.of(instance) == 0 end)
  return gone and (client.now_ms() - started) / 1000
end

--- One container as the engine describes it.
function sandboxes.inspect(id)
  return client.json.decode(sandboxes.ask(function(docker) return assert(docker:inspect(id)) end))
end

--- An image as the engine describes it.
function sandboxes.image(id)
  return client.json.decode(sandboxes.ask(function(docker) return assert(docker:image(id)) end))
end

return sandboxes
