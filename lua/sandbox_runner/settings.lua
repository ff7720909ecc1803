--- Settings: init.lua read, checked and frozen into the config that the rest of
-- the program takes. What may be set is in settings_tree.lua and words.lua, how
-- the file runs in config_file.lua; here values are held against each other.
local config_file = require "sandbox_runner.config_file"
local core = require "sandbox_runner.core"
local languages = require "sandbox_runner.languages"
local schema = require "sandbox_runner.schema"
local settings_tree = require "sandbox_runner.settings_tree"
local words = require "sandbox_runner.words"

local settings = {}

local TREE = settings_tree.sections
local MAX_FILE_BYTES = 1 << 20
-- One answer must fit a client's line of 10 MiB; a character takes up to 13
-- bytes there, because a result travels twice (structured, and as text).
local MAX_HISTORY_CHARACTERS = 750000

--- The tree, for documentation: section name -> record node.
settings.tree = TREE

-- A read-only view of a flat table; pairs works on it.
local function frozen(values, name)
  return setmetatable({}, {
    __index = values,
    __pairs = function() return next, values, nil end,
    __newindex = function(_, key)
      error(("%s.%s cannot be changed after the start"):format(name, tostring(key)), 2)
    end,
  })
end

-- Collects "PLACE: text" for every pair of values that cannot both be right;
-- quotes the first of the named settings that the file itself set.
local function complain(state, problems, text, ...)
  local place = state.path
  for _, name in ipairs { ... } do
    if state.places[name] then place = state.places[name] break end
  end
  problems[#problems + 1] = place .. ": " .. text
end

local function check_sandbox(state, problems, label, limits, ...)
  local sum = limits.scratch + limits.tmp + limits.shm
  local show = schema.format_size
  if sum >= limits.memory then
    complain(state, problems, ("%s: scratch + tmp + shm = %s must stay below memory = %s, "
      .. "which they count against"):format(label, show(sum), show(limits.memory)), ...)
  end
  local largest = math.max(limits.scratch, limits.tmp)
  if limits.file_size <= largest then
    complain(state, problems, ("%s: file_size = %s must be above scratch and tmp (%s), or a "
      .. "full disk looks like a crash"):format(label, show(limits.file_size), show(largest)), ...)
  end
end

local function section_places(name)
  local places = {}
  for _, key in ipairs { "memory", "scratch", "tmp", "shm", "file_size" } do
    places[#places + 1] = name .. "." .. key
  end
  return table.unpack(places)
end

local function at_most(state, problems, small, large, why)
  local function get(path)
    local name, key = path:match("^(%w+)%.(.*)$")
    return state.values[name][key], TREE[name].fields[key].kind == "size" and schema.format_size
      or tostring
  end
  local a, show = get(small)
  local b = get(large)
  if a > b then
    complain(state, problems, ("%s = %s must not exceed %s = %s%s"):format(small, show(a), large,
      show(b), why or ""), small, large)
  end
end

local function check_engine(state, problems)
  local engine = state.values.engine
  local address = engine.address
  if not address then return end
  local scheme = address:match("^(%w+)://")
  if scheme == "ssh" then
    complain(state, problems, "engine.address: ssh is not supported; forward the socket "
      .. "(ssh -L /path/docker.sock:/var/run/docker.sock HOST) and name it as unix:///path/docker.sock",
      "engine.address")
  elseif not address:find("^unix:///.") and not address:find("^tcp://[^/]+:%d+/?$") then
    complain(state, problems, ("engine.address must look like unix:///var/run/docker.sock or "
      .. "tcp://host:2376, got %s"):format(schema.show(address)), "engine.address")
  elseif scheme == "tcp" and not engine.tls_dir and not engine.allow_plain_tcp then
    complain(state, problems, "engine.address: tcp without TLS gives the machine to everybody on "
      .. "the network; set engine.tls_dir, or engine.allow_plain_tcp = true", "engine.address")
  end
end

local function check_languages(state, problems, config)
  for _, name in ipairs(config.language_order) do
    local entry = config.languages[name]
    local place = "language " .. name
    local run = languages.run_limits(config, entry)
    if entry.limits then
      check_sandbox(state, problems, ("language %q"):format(name), run, place)
      if run.timeout_seconds > run.max_timeout_seconds then
        complain(state, problems, ("language %q: timeout_seconds = %d must not exceed "
          .. "limits.max_timeout_seconds = %d"):format(name, run.timeout_seconds,
          run.max_timeout_seconds), place)
      end
    end
    if entry.compile_limits then
      check_sandbox(state, problems, ("language %q, compile_limits"):format(name),
        languages.compile_limits(config, entry), place)
    end
  end
end

local function check_open(state, problems)
  for open in pairs(state.open) do
    problems[#problems + 1] = ("%s: %s %q has no entry; write %s %q { ... }")
      :format(open.place, open.word, open.name, open.word, open.name)
  end
end

local function cross_check(state, config)
  local problems, values = {}, state.values
  at_most(state, problems, "limits.timeout_seconds", "limits.max_timeout_seconds")
  at_most(state, problems, "history.default_limit", "history.max_limit")
  at_most(state, problems, "pool.size", "pool.max")
  at_most(state, problems, "http.body", "http.body_budget", ", which all requests share")
  at_most(state, problems, "compile.artifact", "compile.scratch", ", where the compiler writes it")
  at_most(state, problems, "compile.artifact", "limits.scratch", ", where the program runs from")
  check_sandbox(state, problems, "limits", values.limits, section_places("limits"))
  check_sandbox(state, problems, "compile", values.compile, section_places("compile"))
  if values.history.max_limit * values.history.preview_characters > MAX_HISTORY_CHARACTERS then
    complain(state, problems, ("history.max_limit times history.preview_characters must stay "
      .. "within %d, so that one answer fits a line"):format(MAX_HISTORY_CHARACTERS),
      "history.max_limit", "history.preview_characters")
  end
  check_engine(state, problems)
  check_languages(state, problems, config)
  check_open(state, problems)
  return problems
end

local function in_order(state, word)
  local list = {}
  for i, name in ipairs(state.order[word]) do list[i] = state.entries[word][name] end
  return list
end

local function assemble(state)
  local all, order = state.entries.language, state.order.language
  if #order == 0 then
    for i, pair in ipairs(languages.defaults) do
      order[i], all[pair[1]] = pair[1], assert(words.all.language.check(pair[1], pair[2]))
    end
  end
  state.done = true
  local config = { file = state.path, languages = all, language_order = order,
    tools = in_order(state, "tool"), resources = in_order(state, "resource"),
    templates = in_order(state, "resource_template"), prompts = in_order(state, "prompt"),
    policy = config_file.policy(state) }
  for _, name in ipairs(settings_tree.names) do config[name] = frozen(state.values[name], name) end
  return config
end

local function invalid(message, code)
  return nil, setmetatable({ code = code or "invalid", message = message },
    { __tostring = function(err) return err.message end })
end

--- Reads settings from the text of an init.lua; `path` is used in messages.
-- Returns the config, or nil and an error whose message may have several lines,
-- each "PATH:LINE: what, and what would be right". The config is frozen: a table
-- for each section; languages (name -> entry) and language_order; tools, resources,
-- templates and prompts (lists of the entries that words.lua checks); policy; file.
function settings.parse(text, path)
  local state = config_file.new(path or "init.lua")
  local ok, message = config_file.run(state, text)
  if not ok then return invalid(message) end
  local config = assemble(state)
  local problems = cross_check(state, config)
  if #problems > 0 then return invalid(table.concat(problems, "\n")) end
  return frozen(config, "config")
end

--- The built-in defaults, as a frozen config; its file is nil.
function settings.defaults()
  return frozen(assemble(config_file.new(nil)), "config")
end

-- Whoever may change the program itself may change its settings as well: a tree
-- that belongs to another user can thus be tried out under sudo.
local function trusted_owner(uid)
  local program = core.sys.stat(core.sys.exe())
  return uid == 0 or uid == core.sys.uid() or (program ~= nil and uid == program.uid)
end

-- Others never; a group only where it is its owner's private one (same number),
-- which a umask of 002 makes the rule on some systems.
local function writable_by_others(stat)
  return stat.mode & 2 ~= 0 or (stat.mode & 16 ~= 0 and stat.gid ~= stat.uid)
end

-- Who may write the file decides what this server runs.
local function check_owner(path)
  local stat = core.sys.stat(path)
  if not stat then return true end
  if stat.type == "directory" then
    return invalid(path .. ": this is a folder; name the file, as in --config DIR/init.lua")
  elseif stat.type ~= "file" then
    return invalid(path .. ": this is no regular file")
  end
  if not trusted_owner(stat.uid) then
    local uid = core.sys.uid()
    return invalid(("%s: belongs to user %d, who could change what this server (user %d) runs; "
      .. "copy it, or: chown %d %s"):format(path, stat.uid, uid, uid, path), "denied")
  end
  if writable_by_others(stat) then
    return invalid(("%s: group or others may write to it (mode %03o); run: chmod go-w %s")
      :format(path, stat.mode & 511, path), "denied")
  end
  return true
end

--- Reads the file at `path`. Returns as settings.parse does; an absent file is
-- an error with code "not_found", one that others may write to is "denied".
function settings.load(path)
  local ok, err = check_owner(path) -- first: opening a FIFO would wait for ever
  if not ok then return nil, err end
  local file, message = io.open(path, "rb")
  if not file then
    return invalid("cannot read " .. tostring(message), "not_found")
  end
  local text = file:read(MAX_FILE_BYTES + 1)
  file:close()
  if not text then return settings.parse("", path) end
  if #text > MAX_FILE_BYTES then return invalid(path .. ": larger than 1 MiB") end
  return settings.parse(text, path)
end

return settings
