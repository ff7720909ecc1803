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
  end
  if not owner.lock then log("no lock file: " .. why.message) end
  return owner
end

--- Gives the name up; call when no sandbox of it can be left.
function M.release(owner)
  if not owner.lock then return end
  os.remove(("%s/%s.lock"):format(owner.dir, owner.instance))
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

local function is_left_over(owner, labels, now)
  local state = state_of(owner, labels[LABEL .. ".instance"] or "")
  if state == "dead" then return true end
  if state ~= "unknown" then return false end
  local deadline = tonumber(labels[LABEL .. ".deadline"] or "")
  return deadline ~= nil and now > deadline + FOREIGN_GRACE_SECONDS
end

--- The engine's clock: a remote one may differ from ours.
local function engine_now(docker)
  local text = docker:info()
  local info = text and core.json.decode(text)
  local y, mo, d, h, mi, s = tostring(info and info.SystemTime or ""):match(
    "^(%d+)-(%d+)-(%d+)T(%d+):(%d+):(%d+)")
  if not y then return core.loop.wall() end
  local utc = os.time { year = y, month = mo, day = d, hour = h, min = mi, sec = s, isdst = false }
  local offset = os.time(os.date("!*t", utc)) - utc -- of the local zone, as os.time reads local time
  return utc - offset
end

local function remove_stale_locks(owner, in_use)
  for _, name in ipairs(owner.dir and sys.list(owner.dir) or {}) do
    local instance = name:match("^(%x+)%.lock$")
    if instance and not in_use[instance] and state_of(owner, instance) == "dead" then
      os.remove(owner.dir .. "/" .. name)
    end
  end
end

--- Removes left-over sandboxes and the lock files of their owners.
-- Returns the number removed | nil, err.
function M.run(docker, owner)
  local text, why = docker:list()
  if not text then return nil, why end
  local now, removed, in_use = nil, 0, {}
  for _, container in ipairs(core.json.decode(text) or {}) do
    local labels = container.Labels or {}
    now = now or engine_now(docker)
    if is_left_over(owner, labels, now) then
      local ok
      ok, why = docker:remove(container.Id)
      if ok or why.code == "not_found" then
        removed = removed + 1
      else
        in_use[labels[LABEL .. ".instance"] or ""] = true
      end
    end
  end
  remove_stale_locks(owner, in_use)
  return removed
end

return M
