--- The engine as the rest of the program sees it: images, sandboxes, sweep.
--
-- Everything here awaits, so it is called from tasks. A lost engine is looked
-- for again at the next call: no restart is needed after Docker came back.

local address = require "sandbox_runner.address"
local core = require "sandbox_runner.core"
local defer = require "sandbox_runner.defer"
local fault = require "sandbox_runner.fault"
local sweep = require "sandbox_runner.sweep"
local tar = require "sandbox_runner.tar"

local loop, sys = core.loop, core.sys
local ABSENT_MS = 1000 -- as long an image that was not there is not asked for again
local PROBE_MS = 1000 -- as long a probe may take, and as long its outcome counts

local M = {}
local Engine = {}
Engine.__index = Engine

local FIRST_UID, UIDS = 60600, 584 -- spec.h: SR_UID_FIRST, SR_UID_COUNT

--- options: config (settings), log = function(text), agent = path of the agent,
-- state = state folder or nil, fetch = the command that gets absent images.
function M.new(options)
  return setmetatable({
    config = options.config.engine,
    log = options.log,
    agent_path = options.agent,
    fetch = options.fetch or "sandbox-runner --get-images",
    owner = sweep.owner(options.state, options.log),
    images = {}, -- name -> {name, id, volumes}
    warned = {}, -- warnings of the engine that were logged
    absent = {}, -- name -> when it was found not to be there
    uids = {}, -- uid -> true while a sandbox may live under it
    next_uid = tonumber(sys.random_hex(2), 16) % UIDS,
    active = 0, -- sandboxes that are neither gone nor leaked
    leaked = {}, -- name -> uid of sandboxes that could not be removed
    stats = { starts = 0, errors = {} }, -- sandboxes started; troubles by code
  }, Engine)
end

local REMEDIES = {
  address = "Correct the address.",
  named = "Correct it, or start the engine there.", -- somebody named this one place
  denied = "This user may not use the socket: run `sudo usermod -aG docker $USER` and log in again, "
    .. "or use a rootless engine.",
  invalid = "", -- the engine is too old, or none: the text says so
  timeout = "It accepts connections and does not answer: restart it (`sudo systemctl restart docker`).",
  unavailable = "Start Docker (`sudo systemctl start docker`; in a source tree `make engine`), "
    .. "or set engine.address in init.lua.",
}

local function failure(tried)
  local parts, kind = {}, "unavailable"
  for _, t in ipairs(tried) do
    parts[#parts + 1] = ("%s%s: %s"):format(t.address, t.source and " (" .. t.source .. ")" or "", t.why)
    if REMEDIES[t.kind] then kind = t.kind elseif t.source then kind = "named" end
  end
  local text = ("No container engine can be used. Tried %s. %s"):format(table.concat(parts, "; "), REMEDIES[kind])
  return fault.complete(kind == "denied" and "denied" or "unavailable", (text:gsub("%s+$", "")))
end

--- Tries one place. Returns docker | nil, kind of trouble, text.
local function try(place)
  if place.refused then return nil, "address", place.refused end
  if place.path and not sys.stat(place.path) then return nil, "absent", "no such socket" end
  local docker, why = core.docker.open(place.address, place.tls_dir)
  if not docker then return nil, "address", why.message end
  local version
  version, why = docker:ping()
  if not version then return nil, why.code, why.message end
  return docker
end

--- Each trouble once, however many look at it on its way up.
local function count(self, why)
  if why.counted then return end
  local errors = self.stats.errors
  why.counted, errors[why.code] = true, (errors[why.code] or 0) + 1
end

--- The connected engine, found anew when there is none. Returns docker | nil, err.
function Engine:connect()
  if self.docker then return self.docker end
  local tried = {}
  for _, place in ipairs(address.candidates(self.config)) do
    local docker, kind, text = try(place)
    if docker then
      self.docker, self.address, self.version = docker, place.address, nil
      if next(self.leaked) then loop.spawn(function() self:retry_leaked() end) end
      return docker
    end
    tried[#tried + 1] = { address = place.address, source = place.source, kind = kind, why = text }
  end
  local _, why = failure(tried)
  count(self, why)
  return nil, why
end

--- Tries once more to remove what could not be removed; frees the uids.
function Engine:retry_leaked()
  for name, uid in pairs(self.leaked) do
    local ok, why
    if self.docker then ok, why = self.docker:remove(name) end
    if ok or why and why.code == "not_found" then self.leaked[name], self.uids[uid] = nil, nil end
  end
end

--- A sandbox is gone, or given up. Wakes who waits for the last one.
function Engine:ended()
  self.active = self.active - 1
  if self.active == 0 and self.last_gone then self.last_gone:set() end
end

--- Waits until no sandbox is left (the leaked aside), at most so long.
function Engine:wait_gone(timeout_ms)
  if self.active == 0 then return end
  self.last_gone = loop.event()
  self.last_gone:wait(timeout_ms)
end

--- Logs, once each, what the engine has to say about a sandbox that it made: it
-- warns there of a limit that it cannot set.
function Engine:note_warnings(text)
  local answer = core.json.decode(text)
  local list = type(answer) == "table" and answer.Warnings
  for _, warning in ipairs(type(list) == "table" and list or {}) do
    if not self.warned[warning] then
      self.warned[warning] = true
      self.log(("the engine warns: %s (a limit of the sandboxes may not be in force)"):format(tostring(warning)),
        "warning")
    end
  end
end

--- Draws the conclusions from trouble: what was believed about the engine is
-- asked again at the next try.
function Engine:note(why)
  count(self, why)
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

--- The name of the image that get_images makes of an official one, to have the
-- compiler faster in it; nil for an image of which none is made.
function M.faster_name(name)
  return name:match "^gcc:[%w_.-]+$" and "sandbox-runner/" .. name
end

--- What a run uses for an image that is there: the faster one made of it, if there
-- is one and it was made of this very image, or the image itself.
local function in_use(docker, name, info)
  local own = M.faster_name(name)
  local faster = own and core.json.decode(docker:image(own) or "null")
  local labels = type(faster) == "table" and type(faster.Config) == "table" and faster.Config.Labels
  if type(labels) == "table" and labels["sandbox-runner.base"] == info.Id and type(faster.Id) == "string" then
    return { name = own, id = faster.Id, volumes = declared_volumes(faster), made_of = name }
  end
  return { name = name, id = info.Id, volumes = declared_volumes(info) }
end

--- The first of the names that is present. Returns {name, id, volumes[, made_of]} | nil,
-- err; see in_use. A run never pulls: downloads belong to a moment that somebody chose.
function Engine:image(names)
  local docker, why = self:connect()
  if not docker then return nil, why end
  for _, name in ipairs(names) do
    if self.images[name] then return self.images[name] end
    local text
    if loop.now_ms() - (self.absent[name] or -math.huge) < ABSENT_MS then
      why = { code = "not_found" }
    else
      text, why = docker:image(name)
    end
    if text then
      local info = core.json.decode(text)
      if type(info) ~= "table" or type(info.Id) ~= "string" then
        return fault.complete("protocol", ("The answer about image %s is not what a container engine says; "
          .. "is %s really one?"):format(name, self.address))
      end
      self.images[name] = in_use(docker, name, info)
      return self.images[name]
    end
    if why.code ~= "not_found" then
      self:note(why)
      return nil, why
    end
    if why.message then self.absent[name] = loop.now_ms() end
  end
  return fault.complete("not_found", ("No image for this language is present (looked for %s). Run "
    .. "`%s` (in a source tree `make images`), or `docker pull %s`.")
    :format(table.concat(names, ", "), self.fetch, names[1]))
end

--- The agent's program | nil, err.
local function read_agent(path)
  local file, why = io.open(path, "rb")
  if not file then
    return fault.complete("not_found", ("The agent is missing (%s). Run `make` in the source tree, or install again.")
      :format(why))
  end
  local data = file:read("a")
  file:close()
  return data
end

--- The volume of this version's agent | nil, err. Its name carries the digest of
-- what this server found at its start, and nothing else goes into it.
function Engine:agent_name()
  if not self.agent_volume then
    local data, why = read_agent(self.agent_path)
    if not data then return nil, why end
    self.agent_digest = sys.digest(data)
    self.agent_volume = "sandbox-runner-agent-" .. self.agent_digest
  end
  return self.agent_volume
end

--- Puts the agent into its volume by way of a container that is never started.
local function fill(self, docker, image)
  local data, why = read_agent(self.agent_path)
  if not data then return nil, why end
  if sys.digest(data) ~= self.agent_digest then
    return fault.complete("conflict", "The agent was replaced since this server started (an update?). Restart it.")
  end
  local ok
  ok, why = docker:create_volume(self.agent_volume)
  if not ok then return nil, why end
  local name = "sandbox-runner-filler-" .. sys.random_hex(8)
  ok, why = docker:create_filler(name, image.id, self.agent_volume, self.owner.instance,
    math.floor(loop.wall()) + 60)
  if not ok then return nil, why end
  ok, why = docker:put_archive(name, tar.executable("agent", data))
  local removed, trouble = docker:remove(name)
  if not removed then self.log(("container %s could not be removed: %s"):format(name, trouble.message), "warning") end
  return ok, why
end

--- The same once for all who ask meanwhile, in a task of its own: a run that is
-- cancelled half way would leave the container behind.
function Engine:fill_once(docker, image)
  if not self.filling then
    local filling = loop.event()
    self.filling = filling
    loop.spawn(function()
      local ok, why = fault.new("internal", "filling the agent's volume failed")
      local guard <close> = defer(function()
        self.filling = nil
        filling:set { ok = ok, why = why }
      end)
      ok, why = fill(self, docker, image)
    end)
  end
  local outcome = self.filling:wait()
  return outcome.ok, outcome.why
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
  self:retry_leaked()
  local ok, why = sweep.run(docker, self.owner, self:agent_name())
  if not ok then
    self:note(why)
    self.log("sweep: " .. why.message)
  end
end

--- The engine's own version, asked once for each connection; nil when it does not say.
local function version_of(self, docker)
  if not self.version then
    local info = core.json.decode(docker:info() or "null")
    self.version = type(info) == "table" and type(info.ServerVersion) == "string" and info.ServerVersion or nil
  end
  return self.version
end

local function examine(self, probe)
  local docker, why = self:connect()
  local api
  if docker then api, why = docker:ping(PROBE_MS) end
  if not api then
    self:note(why)
    probe.outcome = { reachable = false, why = why.message }
    return
  end
  probe.outcome = { reachable = true, api = api }
  probe.outcome.version = version_of(self, docker)
end

--- Whether the engine answers: { reachable, api = API version, version, why =
-- text when it does not }. Waits one second at most. One probe goes on at a time,
-- for all who ask meanwhile, and its outcome counts for a second.
function Engine:probe()
  local probe = self.probed
  if not probe or probe.over:is_set() and loop.now_ms() - probe.since_ms >= PROBE_MS then
    probe = { since_ms = loop.now_ms(), over = loop.event(),
      outcome = { reachable = false, why = "The container engine does not answer." } }
    self.probed = probe
    loop.spawn(function()
      local guard <close> = defer(function() probe.over:set() end)
      examine(self, probe)
    end)
  end
  local left = probe.since_ms + PROBE_MS - loop.now_ms()
  if left > 0 then probe.over:wait(left) end
  return probe.outcome
end

--- Ends the life of this instance. Its lock file stays while a sandbox of it may:
-- then the next server finds it without an owner and removes both.
function Engine:close()
  sweep.release(self.owner, self.active > 0 or next(self.leaked) ~= nil)
end

return M
