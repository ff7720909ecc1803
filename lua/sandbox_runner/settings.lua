--- Settings: the tree of every tunable with its bounds and default, and the
-- strict reader of init.lua.
--
-- init.lua is Lua, read as text in an environment that holds the sections, the
-- word `language`, and a few pure helpers. It is trusted code of the operator:
-- the environment guards against slips, not against enemies. A slip stops the
-- start with "init.lua:LINE: what, and what would be right"; nothing is applied
-- by half.
local core = require "sandbox_runner.core"
local languages = require "sandbox_runner.languages"
local schema = require "sandbox_runner.schema"

local settings = {}

local KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
local MAX_FILE_BYTES = MIB
local LOAD_BUDGET_S = 1     -- CPU seconds that init.lua may take
local POLICY_BUDGET_S = 0.2 -- ... and one call of a policy: it holds up every other request
local HOOK_STEP = 10000     -- VM instructions between two looks at the clock
local CHUNK = "init.lua"    -- chunk name; messages carry the path as given instead
-- One answer must fit a client's line of 10 MiB; a character takes up to 13
-- bytes there, because a result travels twice (structured, and as text).
local MAX_HISTORY_CHARACTERS = 750000

-- Sizes and counts of one sandbox; the two stages differ in their defaults.
local function sandbox_fields(d)
  return {
    memory = schema.size { min = 16 * MIB, max = 64 * GIB, default = d.memory,
      doc = "memory of one sandbox, swap included, and the tmpfs below count against it" },
    cpus = schema.number { min = 0.05, max = 64, default = d.cpus,
      doc = "CPU time per second of wall time" },
    pids = schema.integer { min = 16, max = 4096, default = 128,
      doc = "processes and threads of one sandbox" },
    scratch = schema.size { min = MIB, max = 16 * GIB, default = d.scratch,
      doc = "size of /scratch, the working folder" },
    tmp = schema.size { min = MIB, max = 16 * GIB, default = d.tmp, doc = "size of /tmp" },
    shm = schema.size { min = MIB, max = 16 * GIB, default = 16 * MIB, doc = "size of /dev/shm" },
    files = schema.integer { min = 64, max = 1000000, default = 4096,
      doc = "files and folders in each of /scratch and /tmp" },
    open_files = schema.integer { min = 64, max = 65536, default = 1024,
      doc = "files a process may hold open" },
    file_size = schema.size { min = MIB, max = 16 * GIB, default = d.file_size,
      doc = "largest file; above scratch and tmp, so that a full disk is told as such" },
  }
end

local function section(fields, more, doc)
  for key, node in pairs(more) do fields[key] = node end
  return schema.record(fields, { noun = "setting", doc = doc })
end

local TREE = {
  limits = section(sandbox_fields { memory = 256 * MIB, cpus = 0.5, scratch = 64 * MIB,
    tmp = 64 * MIB, file_size = 256 * MIB }, {
    timeout_seconds = schema.integer { min = 1, max = 3600, default = 10,
      doc = "time limit of a run that names none" },
    max_timeout_seconds = schema.integer { min = 1, max = 3600, default = 30,
      doc = "longest time limit a client may ask for" },
    code_bytes = schema.integer { min = 1, max = MIB, default = 51200,
      doc = "longest source, in bytes" },
    output_bytes = schema.integer { min = 1, max = 256 * KIB, default = 102400,
      doc = "most bytes returned of stdout, and of stderr" },
    concurrency = schema.integer { optional = true, min = 1, max = 256,
      doc = "runs at the same time, more wait; not set: 16 for each CPU" },
    queue = schema.integer { min = 0, max = 10000, default = 256,
      doc = "runs that may wait; more are refused as busy" },
  }, "the run stage"),
  compile = section(sandbox_fields { memory = GIB, cpus = 1, scratch = 128 * MIB,
    tmp = 256 * MIB, file_size = 512 * MIB }, {
    timeout_seconds = schema.integer { min = 1, max = 600, default = 30,
      doc = "time limit of the compiler" },
    artifact = schema.size { min = KIB, max = 256 * MIB, default = 32 * MIB,
      doc = "largest program the compiler may hand over" },
    cache = schema.size { min = 0, max = 16 * GIB, default = 64 * MIB,
      doc = "memory for compiled programs that may be asked for again; 0 = none" },
  }, "the compile stage"),
  pool = section({}, {
    size = schema.integer { min = 0, max = 64, default = 1,
      doc = "sandboxes started ahead per language and stage; 0 = none" },
    max = schema.integer { min = 0, max = 256, default = 4, doc = "the same while many runs come" },
    idle_seconds = schema.integer { min = 1, max = 86400, default = 300,
      doc = "after so long without a run the number goes back to size" },
    warm = schema.enum({ "first-use", "start" }, { default = "first-use",
      doc = "whether they are started after the first run of a language, or with the server" }),
  }, "sandboxes started ahead"),
  history = section({}, {
    enabled = schema.boolean { default = true, doc = "keep a record of runs" },
    file = schema.string { min_bytes = 1, max_bytes = 4096, pattern = "^[^\0]*$",
      default = "sandbox_history.db",
      doc = "SQLite file; a relative path is taken from the state folder" },
    default_limit = schema.integer { min = 1, max = 1000, default = 20,
      doc = "rows of get_execution_history when no limit is given" },
    max_limit = schema.integer { min = 1, max = 1000, default = 1000,
      doc = "most rows a client may ask for" },
    preview_characters = schema.integer { min = 16, max = 10000, default = 500,
      doc = "characters of the code that a row keeps" },
    max_rows = schema.integer { min = 1, max = 100000000, default = 100000,
      doc = "rows kept; the oldest go first" },
  }, "the record of runs"),
  engine = section({}, {
    address = schema.string { optional = true, min_bytes = 1, max_bytes = 1024,
      doc = "unix:///path or tcp://host:port; not set: found by DOCKER_HOST, context, usual places" },
    runtime = schema.string { optional = true, pattern = "^[%w][%w_.-]*$", max_bytes = 128,
      like = 'the name of a runtime like "runsc"', doc = "OCI runtime; not set: the engine's own" },
    tls_dir = schema.string { optional = true, min_bytes = 1, max_bytes = 4096,
      doc = "folder with ca.pem, cert.pem and key.pem for a tcp address" },
    allow_plain_tcp = schema.boolean { default = false,
      doc = "accept a tcp address without TLS" },
  }, "where the container engine is"),
  log = section({}, {
    level = schema.enum({ "error", "warning", "info", "debug" },
      { default = "info", doc = "how much goes to stderr" }),
  }, "the log on stderr"),
}

local SECTIONS = schema.keys(TREE)

local function override_node(names, base, doc)
  local fields = {}
  for _, name in ipairs(names) do
    local node = { optional = true }
    for key, value in pairs(base.fields[name]) do
      if key ~= "default" then node[key] = value end
    end
    fields[name] = node
  end
  return schema.record(fields, { noun = "setting", optional = true, doc = doc })
end

local SANDBOX_KEYS = schema.keys(sandbox_fields {})

local function with_timeout()
  local names = { table.unpack(SANDBOX_KEYS) }
  names[#names + 1] = "timeout_seconds"
  return names
end

local function entry_node()
  local fields = {}
  for key, node in pairs(languages.fields) do fields[key] = node end
  fields.limits = override_node(with_timeout(), TREE.limits, "the entry's own run limits")
  fields.compile_limits = override_node(with_timeout(), TREE.compile,
    "the entry's own compile limits")
  return schema.record(fields, { noun = "field" })
end

local ENTRY = entry_node()

--- The tree, for documentation: section name -> record node, and the node of a
-- language entry.
settings.tree, settings.entry = TREE, ENTRY

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
  coroutine.close(thread)
  if results[1] and coroutine.status(thread) ~= "dead" then
    return false, path .. ": a configuration cannot wait"
  end
  if not results[1] then return false, rewrite(path, results[2]) end
  return table.unpack(results, 1, results.n)
end

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

local function find_clash(state, name, entry)
  local taken = {}
  for other, known in pairs(state.languages) do
    taken[other] = other
    for _, alias in ipairs(known.aliases or {}) do taken[alias] = other end
  end
  if state.languages[name] then return ("language %q is defined twice"):format(name) end
  local own = { name, table.unpack(entry.aliases or {}) }
  for _, word in ipairs(own) do
    if taken[word] then
      return ("language %q: the name %q already belongs to %q"):format(name, word, taken[word])
    end
    taken[word] = name
  end
end

local function define_language(state, name, fields)
  local place = place_of_caller(state.path)
  if state.done then slip(place, "languages cannot be added after the start") end
  local entry, message = languages.check(ENTRY, name, fields)
  message = message or find_clash(state, name, entry)
  if message then slip(place, message) end
  state.languages[name], state.places["language " .. name] = entry, place
  state.order[#state.order + 1] = name
end

local function language_word(state)
  return function(name, fields)
    local place = place_of_caller(state.path)
    local checked, message = schema.check(languages.name_node, name, "the name of a language")
    if not checked then slip(place, message) end
    if fields ~= nil then return define_language(state, checked, fields) end
    state.open[checked] = place
    return function(later)
      state.open[checked] = nil
      define_language(state, checked, later)
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
  state.env.language = language_word(state)
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

local function cross_check(state, config)
  local problems, values = {}, state.values
  at_most(state, problems, "limits.timeout_seconds", "limits.max_timeout_seconds")
  at_most(state, problems, "history.default_limit", "history.max_limit")
  at_most(state, problems, "pool.size", "pool.max")
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
  for name, place in pairs(state.open) do
    problems[#problems + 1] = ("%s: language %q has no entry; write language %q { ... }")
      :format(place, name, name)
  end
  return problems
end

local function new_state(path)
  local state = { path = path, values = {}, places = {}, languages = {}, order = {}, open = {} }
  for name, record in pairs(TREE) do state.values[name] = assert(schema.check(record, {}, name)) end
  return state
end

-- The policy as the program calls it: policy(request) returns what the
-- function returned, or throws a message with the operator's line.
local function guarded_policy(state)
  local policy = state.policy
  if not policy then return nil end
  return function(request)
    local results = table.pack(guarded(state.path, POLICY_BUDGET_S, policy, request))
    if not results[1] then error(results[2], 0) end
    return table.unpack(results, 2, results.n)
  end
end

local function assemble(state)
  if #state.order == 0 then
    for _, pair in ipairs(languages.defaults) do
      state.languages[pair[1]] = assert(languages.check(ENTRY, pair[1], pair[2]))
      state.order[#state.order + 1] = pair[1]
    end
  end
  state.done = true
  local config = { file = state.path, languages = state.languages, language_order = state.order,
    policy = guarded_policy(state), places = state.places }
  for _, name in ipairs(SECTIONS) do config[name] = frozen(state.values[name], name) end
  return config
end

local function invalid(message, code)
  return nil, setmetatable({ code = code or "invalid", message = message },
    { __tostring = function(err) return err.message end })
end

--- Reads settings from the text of an init.lua; `path` is used in messages.
-- Returns the config (frozen), or nil and an error whose message may have
-- several lines, each "PATH:LINE: what, and what would be right".
function settings.parse(text, path)
  path = path or CHUNK
  local state = new_state(path)
  if text:sub(1, 1) == "\27" then
    return invalid(path .. ": this is compiled Lua; init.lua must be plain text")
  end
  text = text:gsub("^\239\187\191", "")
  local chunk, message = load(text, "=" .. CHUNK, "t", environment(state))
  if not chunk then return invalid(rewrite(path, message)) end
  local ok
  ok, message = guarded(path, LOAD_BUDGET_S, chunk)
  if not ok then return invalid(message) end
  local config = assemble(state)
  local problems = cross_check(state, config)
  if #problems > 0 then return invalid(table.concat(problems, "\n")) end
  return frozen(config, "config")
end

--- The built-in defaults, as a frozen config; its file is nil.
function settings.defaults()
  local state = new_state(nil)
  return frozen(assemble(state), "config")
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
