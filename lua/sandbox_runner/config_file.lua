--- The environment in which init.lua runs: sections that take their settings
-- strictly, the words that define something, and a few pure helpers.
--
-- It is trusted code of the operator: the environment guards against slips, not
-- against enemies. A slip stops the run with "PATH:LINE: what, and what would be
-- right"; nothing is applied by half.
local core = require "sandbox_runner.core"
local schema = require "sandbox_runner.schema"
local settings_tree = require "sandbox_runner.settings_tree"
local words = require "sandbox_runner.words"

local config_file = {}

local TREE, SECTIONS = settings_tree.sections, settings_tree.names
local LOAD_BUDGET_S = 1     -- CPU seconds that the file may take
local POLICY_BUDGET_S = 0.2 -- ... and one call of a policy: it holds up every other request
local HOOK_STEP = 10000     -- VM instructions between two looks at the clock
local CHUNK = "init.lua"    -- chunk name; messages carry the path as given instead

-- A message with the operator's line. Thrown as a table, so that nothing adds
-- a second place to it.
local Slip = { __name = "sandbox_runner.slip" }
Slip.__tostring = function(slip) return slip.text end

local function slip(place, text)
  error(setmetatable({ text = place .. ": " .. text }, Slip), 0)
end

-- The innermost line of init.lua that is being executed, as "PATH:LINE".
local function place_of_caller(path)
  for level = 2, 50 do
    local info = debug.getinfo(level, "Sl")
    if not info then break end
    if info.source == "=" .. CHUNK then return ("%s:%d"):format(path, info.currentline) end
  end
  return path
end

-- Lua's own message, with the path as given in place of the chunk name.
local function rewrite(path, message)
  if getmetatable(message) == Slip then return message.text end
  message = tostring(message):match("^[^\n]*")
  local line, rest = message:match("^" .. CHUNK:gsub("%.", "%%.") .. ":(%d+): (.*)$")
  if line then return ("%s:%s: %s"):format(path, line, rest) end
  return path .. ": " .. message
end

-- Runs fn in a coroutine of its own, whose hook stops it after `budget` CPU
-- seconds. Once time is up the hook fires at every line and every instruction, so
-- nothing that catches errors can go on. Returns as pcall does.
local function guarded(path, budget, fn, ...)
  local thread = coroutine.create(fn)
  local deadline = os.clock() + budget
  local function look()
    if os.clock() < deadline then return end
    debug.sethook(thread, look, "l", 1)
    slip(place_of_caller(path),
      ("this ran for more than %g s; is there a loop that never ends?"):format(budget))
  end
  debug.sethook(thread, look, "", HOOK_STEP)
  local results = table.pack(coroutine.resume(thread, ...))
  local waits = coroutine.status(thread) ~= "dead"
  coroutine.close(thread)
  if waits then return false, path .. ": a configuration cannot wait" end
  if not results[1] then return false, rewrite(path, results[2]) end
  return table.unpack(results, 1, results.n)
end

local function copy(t)
  local out = {}
  for key, value in pairs(t) do out[key] = value end
  return out
end

-- error values as text: init.lua may throw tables.
local function describe(value)
  if type(value) == "string" then return value end
  if type(value) ~= "table" then return tostring(value) end
  local parts = {}
  for _, key in ipairs(schema.keys(value)) do
    local element = value[key] or value[tonumber(key)]
    parts[#parts + 1] = ("%s = %s"):format(key, schema.show(element))
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end

local function log_line(...)
  local parts = table.pack(...)
  for i = 1, parts.n do parts[i] = tostring(parts[i]) end
  core.sys.log("init.lua: " .. table.concat(parts, " "))
end

local function helpers(state)
  local strings = copy(string)
  strings.dump = nil
  return {
    pairs = pairs, ipairs = ipairs, next = next, select = select, tostring = tostring,
    tonumber = tonumber, type = type, print = log_line,
    string = strings, table = copy(table), math = copy(math), utf8 = copy(utf8),
    error = function(value) slip(place_of_caller(state.path), describe(value)) end,
    assert = function(...)
      if (...) then return ... end
      local value = select(2, ...)
      slip(place_of_caller(state.path), value == nil and "assertion failed" or describe(value))
    end,
  }
end

local function assign(state, name, key, value)
  local node = TREE[name].fields[key]
  local place = place_of_caller(state.path)
  if state.done then slip(place, "settings cannot be changed after the start") end
  if not node then
    slip(place, ("%s: unknown setting %s; %s"):format(name, schema.show(key),
      schema.suggest(key, schema.keys(TREE[name].fields))))
  end
  local path = name .. "." .. key
  local checked, message
  if value ~= nil then
    checked, message = schema.check(node, value, path)
  elseif not node.optional then
    message = ("%s must be %s, got nothing"):format(path, schema.expected(node))
  end
  if message then slip(place, message) end
  state.values[name][key], state.places[path] = checked, place
end

local function section_proxy(state, name)
  return setmetatable({}, {
    __index = function(_, key)
      if TREE[name].fields[key] then return state.values[name][key] end
      slip(place_of_caller(state.path), ("%s: unknown setting %s; %s"):format(name,
        schema.show(key), schema.suggest(key, schema.keys(TREE[name].fields))))
    end,
    __newindex = function(_, key, value) assign(state, name, key, value) end,
    __pairs = function() return next, copy(state.values[name]), nil end,
    __metatable = false,
  })
end

local function define(state, word, name, fields)
  local place = place_of_caller(state.path)
  if state.done then slip(place, ("a %s cannot be added after the start"):format(word)) end
  local entry, message = words.all[word].check(name, fields)
  message = message or words.all[word].clash(name, entry, state.entries[word])
  if message then slip(place, message) end
  state.entries[word][name], state.places[word .. " " .. name] = entry, place
  table.insert(state.order[word], name)
end

-- `word "name" { ... }`, and word(name, { ... }).
local function define_word(state, word)
  return function(name, fields)
    local place = place_of_caller(state.path)
    local checked, message = schema.check(words.all[word].name, name, words.all[word].what)
    if not checked then slip(place, message) end
    if fields ~= nil then return define(state, word, checked, fields) end
    local open = { place = place, word = word, name = checked }
    state.open[open] = true
    return function(later)
      state.open[open] = nil
      define(state, word, checked, later)
    end
  end
end

local ABSENT = { os = true, io = true, require = true, load = true, loadfile = true,
  dofile = true, debug = true, package = true, coroutine = true, pcall = true, xpcall = true,
  setmetatable = true, getmetatable = true, rawset = true, rawget = true, _G = true }

local function read_unknown(state, key)
  if key == "policy" then return state.policy end
  local place = place_of_caller(state.path)
  if ABSENT[key] then
    slip(place, ("%s is not available in init.lua, which only sets values"):format(key))
  end
  local known = schema.keys(state.env)
  table.move({ "true", "false", "nil", "policy" }, 1, 4, #known + 1, known)
  slip(place, ("unknown name %s; %s"):format(schema.show(key), schema.suggest(key, known)))
end

local function write_unknown(state, key, value)
  local place = place_of_caller(state.path)
  if state.done then slip(place, "settings cannot be changed after the start") end
  if key == "policy" then
    if value ~= nil and type(value) ~= "function" then
      slip(place, "policy must be a function, got " .. schema.show(value))
    end
    state.policy = value
  elseif TREE[key] then
    slip(place, ("%s is a section; set its values one by one, as in %s.%s = ..."):format(key, key,
      schema.keys(TREE[key].fields)[1]))
  elseif state.env[key] ~= nil then
    slip(place, ("%s is a word of init.lua and cannot be set"):format(key))
  else
    slip(place, ("unknown name %s; settings live in %s (a helper of your own: local %s = ...)")
      :format(schema.show(key), schema.listing(SECTIONS), tostring(key)))
  end
end

local function environment(state)
  state.env = helpers(state)
  for word in pairs(words.all) do state.env[word] = define_word(state, word) end
  for _, name in ipairs(SECTIONS) do state.env[name] = section_proxy(state, name) end
  return setmetatable({}, {
    __index = function(_, key)
      local value = state.env[key]
      if value ~= nil then return value end
      return read_unknown(state, key)
    end,
    __newindex = function(_, key, value) write_unknown(state, key, value) end,
    __metatable = false,
  })
end

--- A file that has set nothing yet: path (for messages; nil for no file), values
-- (section -> setting -> value), places ("limits.memory" or "tool x" -> "PATH:LINE"),
-- entries (word -> name -> entry), order (word -> names), open (begun entries
-- without fields), policy, done (true: no more changes).
function config_file.new(path)
  local state = { path = path, values = {}, places = {}, entries = {}, order = {}, open = {} }
  for name, node in pairs(TREE) do state.values[name] = assert(schema.check(node, {}, name)) end
  for word in pairs(words.all) do state.entries[word], state.order[word] = {}, {} end
  return state
end

--- Runs the text of the file. Returns true, or nil and a message.
function config_file.run(state, text)
  local path = state.path
  if text:sub(1, 1) == "\27" then
    return nil, path .. ": this is compiled Lua; init.lua must be plain text"
  end
  text = text:gsub("^\239\187\191", "")
  local chunk, message = load(text, "=" .. CHUNK, "t", environment(state))
  if not chunk then return nil, rewrite(path, message) end
  local ok
  ok, message = guarded(path, LOAD_BUDGET_S, chunk)
  if not ok then return nil, message end
  return true
end

--- The policy as the program calls it: policy(request) returns what the
-- function returned, or throws a message with the operator's line. nil: none.
function config_file.policy(state)
  local policy = state.policy
  if not policy then return nil end
  return function(request)
    local results = table.pack(guarded(state.path, POLICY_BUDGET_S, policy, request))
    if not results[1] then error(results[2], 0) end
    return table.unpack(results, 2, results.n)
  end
end

return config_file
