--- The check of run_code's arguments: from what a client sent to what the
-- runner takes, or to a text that says what to do.
local core = require "sandbox_runner.core"
local languages = require "sandbox_runner.languages"
local schema = require "sandbox_runner.schema"
local tree = require "sandbox_runner.settings_tree"

local request = {}

local NUL_TEXT = "code contains a NUL character (U+0000), which no source file may hold; "
  .. 'remove it, or write it as an escape of the language, like "\\0" in a string.'

local STDIN_TEXT = " A program's standard input is empty here: put its input into the code."

--- The arguments of run_code as a schema node; limits and languages are those
-- of the config.
function request.schema(config)
  local limits = config.limits
  return schema.record({
    language = schema.string { doc = "Language of the code: " .. languages.names(config) .. ".",
      hint = "name a language: " .. languages.names(config) },
    code = schema.string {
      doc = ("Source of a whole program, at most %d bytes of UTF-8."):format(limits.code_bytes),
      hint = "send the whole source as one string, with newlines between its lines" },
    timeout_seconds = schema.integer { min = 1, max = limits.max_timeout_seconds,
      default = limits.timeout_seconds, lenient = true,
      hint = "it is the time limit of the run in seconds",
      doc = "Time limit of the run in seconds; compiling has a limit of its own." },
  }, { noun = "argument", lenient = true })
end

-- A line that opens or closes a Markdown fence: its marks and what follows.
local function fence_of(line)
  local marks, rest = line:match("^ ? ? ?(```+)([^`]*)$")
  if not marks then marks, rest = line:match("^ ? ? ?(~~~+)(.*)$") end
  return marks, rest
end

local function closes(line, opening)
  local marks, rest = fence_of(line)
  return marks and marks:sub(1, 1) == opening:sub(1, 1) and #marks >= #opening
    and not rest:find("%S")
end

--- Takes a Markdown fence off when it encloses the whole text: the first line
-- opens it, the last one closes it, none between closes it. Anything else is
-- returned as it is. Models often send the fence along with the code.
function request.unwrap(code)
  local trimmed = schema.trim(code)
  if not trimmed:find("^[`~][`~][`~]") then return code end
  local first, body = trimmed:match("^([^\n]*)\n(.*)$")
  if not first then return code end
  local last
  body, last = ("\n" .. body):match("^(.*\n)([^\n]*)$")
  local opening = fence_of((first:gsub("\r$", "")))
  if not opening or not closes(last, opening) then return code end
  for line in body:gmatch("[^\n]+") do
    if closes((line:gsub("\r$", "")), opening) then return code end
  end
  return body:sub(2)
end

local function find_language(config, name)
  local entry = languages.find(config, name)
  if entry then return entry end
  if not name:find("%S") then
    return nil, ("language is empty; name one of: %s."):format(languages.names(config))
  end
  return nil, ("Unknown language %s. Known are: %s."):format(schema.show(name),
    languages.names(config))
end

-- A fence around the code does not count.
local MAX_FENCE = 1024

local function check_code(config, code)
  if #code <= config.limits.code_bytes + MAX_FENCE then code = request.unwrap(code) end
  if not code:find("%S") then
    return nil, "code is empty; send the source of a whole program."
  elseif code:find("\0", 1, true) then
    return nil, NUL_TEXT
  elseif #code > config.limits.code_bytes then
    return nil, ("code is %d bytes long and at most %d bytes are accepted; shorten it, or split "
      .. "the work into several runs."):format(#code, config.limits.code_bytes)
  end
  return code
end

local function default_timeout(config, entry)
  return languages.run_limits(config, entry).timeout_seconds
end

local function is_given(value)
  return value ~= nil and value ~= core.json.null
end

local function assemble(config, values, asked)
  local entry, text = find_language(config, values.language)
  if not entry then return nil, text end
  local code
  code, text = check_code(config, values.code)
  if not code then return nil, text end
  local seconds = asked and values.timeout_seconds or default_timeout(config, entry)
  return { language = entry, code = code, timeout_seconds = seconds, timeout_ms = seconds * 1000 }
end

local function check_values(config, arguments)
  local values, message = schema.check(request.schema(config), arguments)
  if not values then
    message = schema.sentence(message)
    if type(arguments) == "table" and is_given(arguments.stdin) then
      message = message .. STDIN_TEXT
    end
    return nil, message
  end
  return assemble(config, values, is_given(arguments.timeout_seconds))
end

local function policy_failed(reason)
  return nil, ("The policy of this server failed, so the run was refused: %s. The operator has to "
    .. "correct init.lua."):format(reason)
end

-- The limits of this one run that a policy's request names: { memory = bytes, cpus =
-- number }, each may be absent; nil when there are none; or nil, why.
local function limits_of(config, entry, verdict)
  local own = {}
  for _, name in ipairs { "memory", "cpus" } do
    if verdict[name] ~= nil then
      local value, message = schema.check(tree.sections.limits.fields[name], verdict[name], name)
      if not value then return nil, message end
      own[name] = value
    end
  end
  local usual = languages.run_limits(config, entry)
  local files = usual.scratch + usual.tmp + usual.shm
  if own.memory and own.memory <= files then
    return nil, ("memory must be above scratch + tmp + shm = %s, which count against it")
      :format(schema.format_size(files))
  end
  return next(own) and own or nil
end

-- A policy's request, checked like a client's: it may hand back the table that it
-- got. Returns as check_values does.
local function check_verdict(config, verdict)
  local arguments = {}
  for key, value in pairs(verdict) do arguments[key] = value end
  arguments.client, arguments.memory, arguments.cpus = nil, nil, nil
  local changed, message = check_values(config, arguments)
  if not changed then return nil, message end
  changed.limits, message = limits_of(config, changed.language, verdict)
  if message then return nil, schema.sentence(message) end
  return changed
end

local function apply_policy(config, checked, client)
  local ok, verdict, reason = pcall(config.policy, { language = checked.language.name,
    code = checked.code, timeout_seconds = checked.timeout_seconds, client = client })
  if not ok then return policy_failed(tostring(verdict)) end
  if verdict == true or (verdict == nil and reason == nil) then return checked end
  if not verdict then
    reason = reason == nil and "no reason was given" or core.text.cut(core.text.repair(tostring(reason)), 1000)
    return nil, "Refused by the policy of this server: " .. schema.sentence(reason)
  end
  if type(verdict) ~= "table" then
    return policy_failed("it must return nil, a reason or a request, got " .. schema.show(verdict))
  end
  local changed, message = check_verdict(config, verdict)
  if not changed then return policy_failed("its request is not valid: " .. message:sub(1, -2)) end
  return changed
end

--- Checks the arguments of run_code (a decoded JSON object, or nil) of a client
-- (its name, for the policy). Returns { language = entry, code =, timeout_seconds =,
-- timeout_ms =, limits = nil or { memory =, cpus = } of this run alone }, or nil, a
-- text for the model, and true when it was the policy that refused. The policy of
-- init.lua has the last word: it may return nil (allow), nil or false and a reason,
-- or a changed request.
function request.check(config, arguments, client)
  if not is_given(arguments) then arguments = {} end
  local checked, text = check_values(config, arguments)
  if not checked then return nil, text end
  if not config.policy then return checked end
  checked, text = apply_policy(config, checked, client)
  return checked, text, checked == nil or nil
end

--- The text for a message whose strings held U+0000.
request.NUL_TEXT = NUL_TEXT

return request
