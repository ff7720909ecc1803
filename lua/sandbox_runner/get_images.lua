--- Fetches the images that the languages need: pulled by the engine, else built
-- from Debian packages under a name of our own, never under the official one.

local core = require "sandbox_runner.core"
local engine_of = require "sandbox_runner.engine"
local tar = require "sandbox_runner.tar"

local loop = core.loop
local M = {}

local OWN = "^sandbox%-runner/(%w+):(%w+)$"
-- What image-build.sh makes, counted: an image of ours with a lower number is older.
local RECIPES = { python = 1, gcc = 2 }
local NEWS = { gcc = "has <bits/stdc++.h> precompiled" }
local DOCKERFILE = [[
FROM %s
COPY precompile.sh /tmp/precompile.sh
RUN sh /tmp/precompile.sh && rm /tmp/precompile.sh
]]

local function say(...)
  io.stdout:write(...)
  io.stdout:write("\n")
  io.stdout:flush()
end

local function split(name)
  local repository, tag = name:match("^(.*):([^:/]+)$")
  return repository or name, tag or "latest"
end

--- The sum of the layers' current and total bytes, as far as known.
local function add_progress(state, line)
  local event = core.json.decode(line)
  if type(event) ~= "table" then return end
  if event.error then state.failed = tostring(event.error) end
  local detail = event.progressDetail
  if event.id and type(detail) == "table" and detail.total then
    state.layers[event.id] = { detail.current or 0, detail.total }
  end
end

local function show_progress(name, state)
  local current, total = 0, 0
  for _, layer in pairs(state.layers) do
    current, total = current + layer[1], total + layer[2]
  end
  if total > 0 and current ~= state.shown then
    say(("  %s: %.0f of %.0f MB"):format(name, current / 1e6, total / 1e6))
    state.shown = current
  end
end

local function take_lines(state, text)
  state.rest = state.rest .. text
  local last = 1
  for line, at in state.rest:gmatch("([^\n]*)\n()") do
    add_progress(state, line)
    last = at
  end
  state.rest = state.rest:sub(last)
end

--- Waits for the end of a transfer, with a line of progress every other second.
-- Returns true | nil, text.
local function follow(transfer, name)
  local state = { layers = {}, rest = "", next_show = loop.now_ms() + 2000 }
  local finished, why
  repeat
    loop.sleep(100)
    finished, why = transfer:finished()
    if finished ~= nil then take_lines(state, transfer:read()) end
    if loop.now_ms() >= state.next_show then
      show_progress(name, state)
      state.next_show = loop.now_ms() + 2000
    end
  until finished ~= false
  if not finished then return nil, why.message end
  take_lines(state, "\n")
  if state.failed then return nil, state.failed end
  return true
end

--- Pulls one image. Returns true | nil, text.
local function pull(docker, name)
  local repository, tag = split(name)
  say("pulling ", name)
  local transfer, why = docker:pull(repository, tag)
  if not transfer then return nil, why.message end
  return follow(transfer, name)
end

local function quoted(text)
  return "'" .. text:gsub("'", "'\\''") .. "'"
end

local function set_up_script(share, name)
  for _, folder in ipairs { share .. "/src/setup/", share .. "/setup/" } do
    if core.sys.stat(folder .. name) then return folder .. name end
  end
  return nil
end

--- Builds and imports an image of ours. Returns true | nil, text.
local function build(docker, name, share)
  local kind, tag = name:match(OWN)
  if kind ~= "python" and kind ~= "gcc" or tag ~= "local" then
    return nil, "only sandbox-runner/python:local and sandbox-runner/gcc:local can be built here"
  end
  local script = set_up_script(share, "image-build.sh")
  if not script then return nil, "the script that builds it is missing; install again" end
  -- Not os.tmpname: /tmp may be a small file system in memory, and this is large.
  local out = ("%s/sandbox-runner-%s.tar"):format(core.sys.getenv("TMPDIR") or "/var/tmp", core.sys.random_hex(8))
  say("building ", name, " from Debian packages")
  local ok = os.execute(("bash %s %s %s"):format(quoted(script), quoted(kind), quoted(out)))
  local text, why
  local state = { layers = {}, rest = "" }
  if ok then
    say("importing ", name)
    text, why = docker:import("sandbox-runner/" .. kind, tag, out, RECIPES[kind])
    take_lines(state, (text or "") .. "\n") -- an error may come in an answer that began as a success
  end
  os.remove(out)
  if text and not state.failed then return true end
  return nil, state.failed or why and why.message or "the build failed, see above"
end

--- Id and labels of an image; nil when it is not there.
local function inspect(docker, name)
  local text = docker:image(name)
  local info = text and core.json.decode(text)
  if type(info) ~= "table" then return nil end
  local labels = type(info.Config) == "table" and info.Config.Labels
  return info.Id, type(labels) == "table" and labels or {}
end

--- Makes an image of ours out of an official one, in which the compiler is faster;
-- a run uses it as long as it was made of that very image. Trouble is only told.
local function precompile(docker, name, own, share)
  local id = inspect(docker, name)
  local _, labels = inspect(docker, own)
  local path = set_up_script(share, "precompile.sh")
  if not id or not path or labels and labels["sandbox-runner.base"] == id then return end
  local script = assert(io.open(path, "rb"))
  local files = tar.files { { "Dockerfile", DOCKERFILE:format(id) }, { "precompile.sh", script:read("a") } }
  script:close()
  say("precompiling <bits/stdc++.h> of ", name, " in ", own)
  local ok
  local transfer, why = docker:build(own, id, files)
  if transfer then ok, why = follow(transfer, own) else why = why.message end
  if not ok then say(("  %s: %s; %s is used as it is"):format(own, why, name)) end
end

--- Says what is to be had beyond an image that is there.
local function look_after(docker, name, share)
  local kind, tag = name:match(OWN)
  local faster = engine_of.faster_name(name)
  if faster then
    precompile(docker, name, faster, share)
  elseif NEWS[kind] and tag == "local" then
    local _, labels = inspect(docker, name)
    if (tonumber(labels and labels["sandbox-runner.recipe"]) or 1) < RECIPES[kind] then
      say(("%s is of an older version, and works. One made anew %s: docker image rm %s, then get the images again")
        :format(name, NEWS[kind], name))
    end
  end
end

local function get(engine, docker, entry, share)
  local image = engine:image(entry.images)
  if image then return image.made_of or image.name end
  local reasons = {}
  for _, name in ipairs(entry.images) do
    local ok, why
    if name:match(OWN) then ok, why = build(docker, name, share) else ok, why = pull(docker, name) end
    if ok then return name end
    say(("  %s: %s"):format(name, why))
    reasons[#reasons + 1] = name
  end
  return nil, reasons
end

--- Makes sure that each language has one of its images. share: the folder with
-- the set-up scripts. Returns the exit status: 0 when all are there.
function M.run(config, engine, share)
  local docker, why = engine:connect()
  if not docker then
    core.sys.log(why.message)
    return 1
  end
  local status = 0
  for _, name in ipairs(config.language_order) do
    local image, tried = get(engine, docker, config.languages[name], share)
    if image then
      look_after(docker, image, share)
      say(("%s: %s"):format(name, image))
    else
      core.sys.log(("%s: none of its images could be had (%s)"):format(name, table.concat(tried, ", ")))
      status = 1
    end
  end
  return status
end

return M
