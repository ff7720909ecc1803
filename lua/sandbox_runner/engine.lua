--- The engine as the rest of the program sees it: images, sandboxes, sweep.
--
-- Everything here awaits, so it is called from tasks. A lost engine is looked
-- for again at the next call: no restart is needed after Docker came back.

local address = require "sandbox_runner.address"
local core = require "sandbox_runner.core"
local sweep = require "sandbox_runner.sweep"
local tar = require "sandbox_runner.tar"

local loop, sys = core.loop, core.sys
local M = {}
local Engine = {}
Engine.__index = Engine

local FIRST_UID, UIDS = 60600, 584 -- spec.h: SR_UID_FIRST, SR_UID_COUNT

--- An error whose text is complete: it says what to do. Others are the engine's.
local function err(code, message)
  return nil, { code = code, message = message, complete = true }
end

--- options: config (settings), log = function(text), agent = path of the agent,
-- state = state folder or nil.
function M.new(options)
  return setmetatable({
    config = options.config.engine,
    log = options.log,
    agent_path = options.agent,
    owner = sweep.owner(options.state, options.log),
    images = {}, -- name -> {name, id, volumes}
    uids = {}, -- uid -> true while a sandbox may live under it
    next_uid = tonumber(sys.random_hex(2), 16) % UIDS,
    active = 0, -- sandboxes that are not known to be gone
    leaked = {}, -- names of sandboxes that could not be removed
  }, Engine)
end

local REMEDIES = {
  denied = "This user may not use the socket: run `sudo usermod -aG docker $USER` and log in again, "
    .. "or use a rootless engine.",
  invalid = "Correct the address.",
  unavailable = "Start Docker (`sudo systemctl start docker`; in a source tree `make engine`), "
    .. "or set engine.address in init.lua.",
}

local function failure_text(tried)
  local parts, code = {}, "unavailable"
  for _, t in ipairs(tried) do
    parts[#parts + 1] = ("%s%s: %s"):format(t.address, t.source and " (" .. t.source .. ")" or "", t.why)
    if t.code == "denied" or t.code == "invalid" then code = t.code end
  end
  return ("No container engine can be used. Tried %s. %s"):format(table.concat(parts, "; "), REMEDIES[code]), code
end

local function try(place)
  if place.refused then return nil, { code = "invalid", message = place.refused } end
  if place.path and not sys.stat(place.path) then return nil, { code = "not_found", message = "no such socket" } end
  local docker, why = core.docker.open(place.address, place.tls_dir)
  if not docker then return nil, why end
  local version
  version, why = docker:ping()
  if not version then return nil, why end
  return docker
end

--- The connected engine, found anew when there is none. Returns docker | nil, err.
function Engine:connect()
  if self.docker then return self.docker end
  local tried = {}
  for _, place in ipairs(address.candidates(self.config)) do
    local docker, why = try(place)
    if docker then
      self.docker, self.address = docker, place.address
      return docker
    end
    tried[#tried + 1] = { address = place.address, source = place.source, why = why.message, code = why.code }
  end
  local text, code = failure_text(tried)
  return err(code, text)
end

--- Draws the conclusions from trouble: what was believed about the engine is
-- asked again at the next try.
function Engine:note(why)
  self.images = {}
  self.agent_ready = false
  if why.code == "unavailable" or why.code == "denied" then self.docker = nil end
end

local function declared_volumes(image)
  local list = {}
  local volumes = type(image.Config) == "table" and image.Config.Volumes
  for path in pairs(type(volumes) == "table" and volumes or {}) do list[#list + 1] = path end
  table.sort(list)
  return list
end

--- The first of the names that is present. Returns {name, id, volumes} | nil, err.
-- A run never pulls: downloads belong to a moment that somebody chose.
function Engine:image(names)
  local docker, why = self:connect()
  if not docker then return nil, why end
  for _, name in ipairs(names) do
    if self.images[name] then return self.images[name] end
    local text
    text, why = docker:image(name)
    if text then
      local info = core.json.decode(text)
      if type(info) ~= "table" or type(info.Id) ~= "string" then
        return err("protocol", ("the engine's answer about image %s makes no sense"):format(name))
      end
      self.images[name] = { name = name, id = info.Id, volumes = declared_volumes(info) }
      return self.images[name]
    end
    if why.code ~= "not_found" then
      self:note(why)
      return nil, why
    end
  end
  return err("not_found", ("No image for this language is present (looked for %s). Run `sandbox-runner --get-images` "
    .. "(in a source tree `make images`), or `docker pull %s`."):format(table.concat(names, ", "), names[1]))
end

local function read_file(path)
  local file, why = io.open(path, "rb")
  if not file then return err("not_found", ("the agent is missing (%s); install again"):format(why)) end
  local data = file:read("a")
  file:close()
  return data
end

--- Puts the agent into its volume by way of a container that is never started.
function Engine:fill(docker, image)
  local data, why = read_file(self.agent_path)
  if not data then return nil, why end
  local ok
  ok, why = docker:create_volume(self.agent_volume)
  if not ok then return nil, why end
  local name = "sandbox-runner-filler-" .. sys.random_hex(8)
  ok, why = docker:create_filler(name, image.id, self.agent_volume, self.owner.instance,
    math.floor(loop.wall()) + 60)
  if not ok then return nil, why end
  ok, why = docker:put_archive(name, tar.executable("agent", data))
  docker:remove(name)
  return ok, why
end

--- The same once for all who ask meanwhile, in a task of its own: a run that is
-- cancelled half way would leave the container behind.
function Engine:fill_once(docker, image)
  if not self.filling then
    local filling = loop.event()
    self.filling = filling
    loop.spawn(function()
      local ok, why = self:fill(docker, image)
      self.filling = nil
      filling:set { ok = ok, why = why }
    end)
  end
  local outcome = self.filling:wait()
  return outcome.ok, outcome.why
end

--- The volume of this version's agent | nil, err.
function Engine:agent_name()
  if not self.agent_volume then
    local data, why = read_file(self.agent_path)
    if not data then return nil, why end
    self.agent_volume = "sandbox-runner-agent-" .. sys.digest(data)
  end
  return self.agent_volume
end

--- Makes sure that the engine has the agent. force: refill although it is there.
-- Returns the volume's name | nil, err.
function Engine:agent(docker, image, force)
  local name, missing = self:agent_name()
  if not name then return nil, missing end
  if self.agent_ready and not force then return self.agent_volume end
  local ok, why = docker:volume(self.agent_volume)
  if not ok and why.code ~= "not_found" then return nil, why end
  if not ok or force or self.filling then
    ok, why = self:fill_once(docker, image)
    if not ok then return nil, why end
  end
  self.agent_ready = true
  return self.agent_volume
end

--- A uid that no living sandbox of ours has: kernel counters are kept per uid.
function Engine:take_uid()
  for i = 0, UIDS - 1 do
    local uid = FIRST_UID + (self.next_uid + i) % UIDS
    if not self.uids[uid] then
      self.next_uid = (uid - FIRST_UID + 1) % UIDS
      self.uids[uid] = true
      return uid
    end
  end
  return nil
end

--- Removes what servers that are no more have left behind. Errors are logged.
function Engine:sweep()
  local docker = self:connect()
  if not docker then return end
  local ok, why = sweep.run(docker, self.owner, self:agent_name())
  if not ok then
    self:note(why)
    self.log("sweep: " .. why.message)
  end
end

--- Ends the life of this instance: its lock file goes.
function Engine:close()
  sweep.release(self.owner)
end

return M
