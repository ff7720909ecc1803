--- Every tunable of init.lua with its bounds, default and meaning: section name
-- -> record node. Data only; settings.lua reads files against it.
local core = require "sandbox_runner.core"
local languages = require "sandbox_runner.languages"
local schema = require "sandbox_runner.schema"

local KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

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
    runs_per_minute = schema.integer { optional = true, min = 1, max = 100000,
      doc = "runs that one client may start in a minute; not set: no limit" },
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
  http = section({}, {
    host = schema.string { pattern = "^[%w.:_-]+$", max_bytes = 255, default = "127.0.0.1",
      like = 'an address like "127.0.0.1" or "::1"',
      doc = "address to listen on; any but a loopback one needs token_file" },
    port = schema.integer { min = 0, max = 65535, default = 8000,
      doc = "port to listen on; 0 = any that is free" },
    token_file = schema.string { optional = true, min_bytes = 1, max_bytes = 4096, pattern = "^[^\0]*$",
      doc = "file with the tokens that clients must send; not set: none is asked for" },
    allowed_hosts = schema.array(schema.string { pattern = "^[%w.:_%[%]-]+$", max_bytes = 255,
      like = 'a host name like "runner.example"' }, { default = core.json.array {}, max_items = 100,
      like = "a list of host names", doc = "names by which clients may call it, beside this machine's own" }),
    allowed_origins = schema.array(schema.string { pattern = "^%a[%w+.-]*://[^/%s]+$", max_bytes = 255,
      like = 'an origin like "https://app.example"' }, { default = core.json.array {}, max_items = 100,
      like = "a list of origins", doc = "web pages that may call it, beside this machine's own" }),
    connections = schema.integer { min = 16, max = 10000, default = 1000,
      doc = "connections at the same time; above, the one idle the longest is closed" },
    body = schema.size { min = 4 * KIB, max = 64 * MIB, default = 4 * MIB,
      doc = "largest body of one request" },
    body_budget = schema.size { min = MIB, max = 16 * GIB, default = 64 * MIB,
      doc = "memory for the bodies of all requests that are being read" },
    header = schema.size { min = 4 * KIB, max = 64 * KIB, default = 16 * KIB,
      doc = "largest head of one request" },
    idle_seconds = schema.integer { min = 1, max = 86400, default = 60,
      doc = "a connection without a request is closed after so long" },
    request_seconds = schema.integer { min = 1, max = 3600, default = 30,
      doc = "a request must have arrived after so long" },
    keepalive_seconds = schema.integer { min = 1, max = 3600, default = 15,
      doc = "pause between two signs of life on a silent stream" },
    sessions = schema.integer { min = 1, max = 100000, default = 1000,
      doc = "sessions at the same time; above, the one idle the longest ends" },
    session_idle_seconds = schema.integer { min = 1, max = 604800, default = 1800,
      doc = "a session that nobody uses ends after so long" },
    grace_seconds = schema.integer { min = 0, max = 3600, default = 5,
      doc = "how long running calls may go on when the server is told to stop" },
  }, "the HTTP server"),
  tasks = section({}, {
    after_seconds = schema.number { min = 0, max = 60, default = 1,
      doc = "a call that takes longer goes on as a task" },
    keep_seconds = schema.integer { min = 1, max = 86400, default = 300,
      doc = "how long the result of a task is kept" },
    max = schema.integer { min = 1, max = 100000, default = 1000,
      doc = "tasks kept at the same time" },
  }, "long calls as tasks"),
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

local function with_timeout()
  local names = schema.keys(sandbox_fields {})
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

--- sections: the tree. names: those of the sections, sorted. language: the node
-- of a language entry.
return { sections = TREE, names = schema.keys(TREE), language = entry_node() }
