--- Who owns a sandbox, and the removal of what dead owners left.
--
-- Each server holds a lock on a file of its own for as long as it lives, and
-- its sandboxes carry its name. Locks, unlike process ids, are not reused: a
-- lock that can be taken means that the owner is dead.

local core = require "sandbox_runner.core"

local sys = core.sys
local M = {}

local LABEL = "sandbox-runner"
local FOREIGN_GRACE_SECONDS = 30
local YOUNG_SECONDS = 60
local OLD_AGENT_SECONDS = 24 * 3600

--- A new instance. state: the state folder, or nil when there is none; without
-- it the sandboxes are told to be over by their deadline alone.
function M.owner(state, log)
  local owner = { instance = sys.random_hex(16) }
  if not state then return owner end
  local dir = state .. "/instances"
  local ok, why = sys.mkdir_p(dir, 448)
  if ok then
    owner.dir = dir
    owner.lock, why = sys.lock(("%s/%s.lock"):format(dir, owner.instance))
    -- A sweep of another server may have tried the file between its creation and
    -- our lock; a file without its lock would mean that we are dead.
    for _ = 1, 10 do
      if owner.lock or why.code ~= "conflict" then break end
      owner.instance = sys.random_hex(16)
      owner.lock, why = sys.lock(("%s/%s.lock"):format(dir, owner.instance))
    end
  end
  if not owner.lock then
    log(("no lock file (%s): if this server is killed, what is left of it is removed only after its deadline")
      :format(why.message), "warning")
  end
  return owner
end

--- Gives the name up. keep: leave the file, for a sandbox of it may be left.
function M.release(owner, keep)
  if not owner.lock then return end
  if not keep then os.remove(("%s/%s.lock"):format(owner.dir, owner.instance)) end
  owner.lock:close()
  owner.lock = nil
end

--- "ours", "alive", "dead" or "unknown" (its lock file is not here).
local function state_of(owner, instance)
  if instance == owner.instance then return "ours" end
  -- The label comes from the engine: nothing but our own form becomes a path.
  if not owner.dir or not instance:match("^%x+$") then return "unknown" end
  local path = ("%s/%s.lock"):format(owner.dir, instance)
  if not sys.stat(path) then return "unknown" end
  local lock = sys.lock(path)
  if not lock then return "alive" end
  lock:close()
  return "dead"
end

--- A label of a container as the engine lists it, "" when it is not there.
local function label(container, name)
  local labels = container.Labels
  local value = type(labels) == "table" and labels[LABEL .. "." .. name]
  return type(value) == "string" and value or ""
end

--- A removal that meets the engine's own makes Docker 20.10 list a ghost for
-- ever. What runs ends by itself, since its stream is gone: it gets a minute.
local function ends_by_itself(container, now)
  local young = type(container.Created) == "number" and now - container.Created < YOUNG_SECONDS
  return container.State == "removing" or container.State == "running" and young
end

local function is_left_over(owner, container, now)
  if ends_by_itself(container, now) then return false end
  local state = state_of(owner, label(container, "instance"))
  if state == "dead" then return true end
  if state ~= "unknown" then return false end
  local deadline = tonumber(label(container, "deadline"))
  return deadline ~= nil and now > deadline + FOREIGN_GRACE_SECONDS
end

--- RFC 3339, "2026-11-30T12:34:56.789+01:00", as Unix seconds, or nil.
local function unix_time(text)
  local y, mo, d, h, mi, s = tostring(text or ""):match("^(%d+)-(%d+)-(%d+)T(%d+):(%d+):(%d+)")
  if not y then return nil end
  local utc = os.time { year = y, month = mo, day = d, hour = h, min = mi, sec = s, isdst = false }
  utc = utc - (os.time(os.date("!*t", utc)) - utc) -- os.time reads local time
  local sign, hours, minutes = text:match("([+-])(%d%d):(%d%d)$") -- else "Z"
  local offset = sign and (hours * 3600 + minutes * 60) * (sign == "-" and -1 or 1) or 0
  return utc - offset
end

--- The engine's clock: a remote one may differ from ours.
function M.engine_now(docker)
  local text = docker:info()
  local info = text and core.json.decode(text)
  return unix_time(type(info) == "table" and info.SystemTime) or core.loop.wall()
end

--- Volumes of agents of other versions, unused and more than a day old. An
-- older server that is still there fills its own again when it needs it.
local function remove_old_agents(docker, keep, now)
  if not keep then return end
  local text = docker:volumes()
  local answer = text and core.json.decode(text)
  local list = type(answer) == "table" and answer.Volumes
  for _, volume in ipairs(type(list) == "table" and list or {}) do
    local made = unix_time(volume.CreatedAt)
    if volume.Name ~= keep and made and now - made > OLD_AGENT_SECONDS then docker:remove_volume(volume.Name) end
  end
end

local function remove_stale_locks(owner, in_use)
  for _, name in ipairs(owner.dir and sys.list(owner.dir) or {}) do
    local instance = name:match("^(%x+)%.lock$")
    local path = owner.dir .. "/" .. name
    local stat = instance and not in_use[instance] and sys.stat(path)
    -- The engine may still be making what a young owner has died over.
    if stat and core.loop.wall() - stat.mtime > YOUNG_SECONDS and state_of(owner, instance) == "dead" then
      os.remove(path)
    end
  end
end

--- Removes left-over sandboxes, the lock files of their owners, and old agents
-- but for the volume `keep`. Returns the number of sandboxes removed | nil, err.
function M.run(docker, owner, keep)
  local text, why = docker:list()
  if not text then return nil, why end
  local containers = core.json.decode(text, { nul = "replace" })
  if type(containers) ~= "table" then
    return nil, { code = "protocol", message = "the engine's list of containers makes no sense" }
  end
  local now, removed, in_use = M.engine_now(docker), 0, {}
  for _, container in ipairs(containers) do
    local ok = false
    if is_left_over(owner, container, now) then ok, why = docker:remove(container.Id) end
    if ok or ok == nil and why.code == "not_found" then
      removed = removed + 1
    else
      in_use[label(container, "instance")] = true
    end
  end
  remove_stale_locks(owner, in_use)
  remove_old_agents(docker, keep, now)
  return removed
end

return M
