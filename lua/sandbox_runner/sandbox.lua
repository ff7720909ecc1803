--- One disposable sandbox: launched, used once, and surely gone afterwards.
--
-- A sandbox is a to-be-closed value. Closing never loses a container: while it
-- is being launched, the removal waits for that; the removal itself runs in a
-- task of its own, which a cancelled run does not take with it.

local core = require "sandbox_runner.core"
local defer = require "sandbox_runner.defer"
local fault = require "sandbox_runner.fault"

local loop = core.loop
local M = {}
local Sandbox = {}
Sandbox.__index = Sandbox

local ATTACH_MS, READY_MS = 10000, 20000
local GONE_MS = 5000
local LADDER_MS = { 1000, 2000, 4000 }
local UNSURE = { timeout = true, unavailable = true, conflict = true }

--- engine: see engine.lua; docker: its connection; name: of the container.
function M.new(engine, docker, name)
  local uid = engine:take_uid()
  if not uid then
    return fault.complete("unavailable", "Too many sandboxes at once; try again.")
  end
  engine.active = engine.active + 1
  return setmetatable({
    engine = engine, docker = docker, name = name, uid = uid,
    state = "new", -- new, unsure, created, started, over
    gone = loop.event(),
  }, Sandbox)
end

local function unwanted()
  return fault.new("cancelled", "not wanted any more")
end

local function await_agent(self)
  local ok, why = self.box:wait("ready", READY_MS)
  if ok then return true end
  why.at = "ready"
  local words = self:words() -- such as "exec format error", for an image of another processor
  if words ~= "" then why.message = ("%s (%s)"):format(why.message, words) end
  return nil, why
end

--- The steps from nothing to an agent that waits for orders, up to the point
-- where somebody closes the sandbox. Returns true | nil, err.
local function launch_steps(self, spec)
  local docker, name = self.docker, self.name
  local made, why = docker:create(name, spec)
  if not made then
    -- Without an answer the engine may have made it, or may do so yet; and a name of
    -- ours is in use only when the HTTP client has asked twice on its own.
    if UNSURE[why.code] then self.state = "unsure" end
    return nil, why
  end
  self.state = "created"
  self.engine:note_warnings(made)
  if self.closed then return unwanted() end
  self.box, why = docker:attach(name, ATTACH_MS)
  if not self.box then return nil, why end
  if self.closed then return unwanted() end
  self.state = "started" -- even when the call below fails: what it did is not known then
  local ok
  ok, why = docker:start(name)
  if not ok then
    why.at = "start"
    return nil, why
  end
  return await_agent(self)
end

--- From nothing to an agent that waits for orders. Returns true | nil, err. The
-- work goes on in a task of its own when the caller is cancelled: a creation
-- that is given up half way could still come into being with nobody to remove
-- it.
function Sandbox:launch(spec)
  spec.uid = self.uid
  self.launched = loop.event()
  loop.spawn(function()
    -- In case the steps throw: nobody may wait for them for ever.
    local guard <close> = defer(function()
      self.launched:set { err = select(2, fault.new("internal", "the launch failed")) }
    end)
    local ok, why = launch_steps(self, spec)
    if self.closed and self.box then self.box:close() end
    self.launched:set(ok and { ok = true } or { err = why })
  end)
  local outcome = self.launched:wait()
  if outcome.ok then return true end
  return nil, outcome.err
end

--- What the runtime or the agent said outside the protocol, one visible line.
function Sandbox:words()
  return self.box and core.text.visible(core.text.repair(self.box:words())) or ""
end

--- Whether it still waits for its orders.
function Sandbox:is_ready()
  local state = not self.closed and self.box and self.box:state()
  return state == "ready" or state == "held"
end

--- Changes the limits of a sandbox that waits: { memory = bytes, cpus = number },
-- each may be absent. Returns true | nil, err.
function Sandbox:limit(limits)
  return self.docker:update(self.name, { memory = limits.memory,
    nano_cpus = limits.cpus and math.floor(limits.cpus * 1e9 + 0.5) })
end

--- The agent has reported: the container ends by itself.
function Sandbox:over()
  self.state = "over"
end

local function is_gone(ok, why)
  return ok or why.code == "not_found"
end

--- By force, for an agent that did not end with its stream. Only while the
-- engine calls it running: update and kill, when they meet a removal that is
-- going on, make Docker 20.10 list a ghost of the container for ever.
local function kill(docker, name)
  local text = docker:inspect(name)
  local info = text and core.json.decode(text)
  if not (info and info.State and info.State.Running) then return end
  docker:update(name, { nano_cpus = 2000000000 }) -- a throttled fork bomb dies slowly
  docker:kill(name)
end

--- Waits until the engine has removed it, with growing force. The end of its
-- stream already ends an agent, which takes everything in the sandbox along.
local function remove(self)
  local docker, name = self.docker, self.name
  if self.state ~= "created" and self.state ~= "unsure" then
    if is_gone(docker:wait_removed(name, GONE_MS)) then return true end
    kill(docker, name)
    if is_gone(docker:wait_removed(name, GONE_MS)) then return true end
  end
  local ok, why
  for _, pause in ipairs(LADDER_MS) do
    ok, why = docker:remove(name)
    if ok or why.code == "not_found" and self.state ~= "unsure" then return true end
    loop.sleep(pause)
  end
  -- Never made, as far as the engine knows; it may only be slow, so this took its time.
  return self.state == "unsure" and why.code == "not_found", why
end

local function reap(self)
  if self.launched then self.launched:wait() end
  local ok, why = true, nil
  if self.state ~= "new" then ok, why = remove(self) end
  local engine = self.engine
  if ok then
    engine.uids[self.uid] = nil
  else -- its uid stays taken; see Engine:retry_leaked
    engine.leaked[self.name] = self.uid
    engine.log(("sandbox %s could not be removed (%s); this is tried again, or: docker rm -f %s")
      :format(self.name, why.message, self.name), "warning")
  end
  engine:ended()
  self.gone:set()
end

--- Ends it, whatever its state; does not wait. Idempotent.
function Sandbox:close()
  if self.closed then return end
  self.closed = true
  if self.box then self.box:close() end -- before any kill: an unread attach stream wedges it
  loop.spawn(reap, self)
end

Sandbox.__close = Sandbox.close

return M
