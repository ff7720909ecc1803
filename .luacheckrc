std = "lua54"
max_line_length = 120
exclude_files = { "build" }

-- `local guard <close> = ...` is used by going out of scope, which luacheck does not see.
ignore = { "211/guard", "211/_.*" }

-- init.lua sees the sections, their settings and a few helpers, and nothing else of Lua: a misspelt
-- setting shows here before it stops a start.
local function section(...)
  local fields = {}
  for _, name in ipairs { ... } do fields[name] = { read_only = false } end
  return { fields = fields }
end

stds.sandbox_runner = {
  globals = { "policy" },
  read_globals = {
    "language", "tool", "resource", "resource_template", "prompt", "assert", "error", "ipairs", "next", "pairs",
    "print", "select", "tonumber", "tostring", "type", "math", "string", "table", "utf8",
    limits = section(
      "timeout_seconds", "max_timeout_seconds", "memory", "cpus", "pids", "scratch", "tmp", "shm", "files",
      "open_files", "file_size", "code_bytes", "output_bytes", "concurrency", "queue",
      "runs_per_minute"),
    compile = section(
      "timeout_seconds", "memory", "cpus", "pids", "scratch", "tmp", "shm", "files", "open_files",
      "file_size", "artifact", "cache"),
    pool = section("size", "max", "idle_seconds", "warm"),
    history = section("enabled", "file", "default_limit", "max_limit", "preview_characters", "max_rows"),
    http = section(
      "host", "port", "token_file", "allowed_hosts", "allowed_origins", "connections", "body", "body_budget",
      "header", "idle_seconds", "request_seconds", "keepalive_seconds", "sessions", "session_idle_seconds",
      "grace_seconds"),
    tasks = section("after_seconds", "keep_seconds", "max"),
    engine = section("address", "runtime", "tls_dir", "allow_plain_tcp"),
    log = section("level"),
  },
}

files["init.lua"] = { std = "sandbox_runner" }
files["tests/conformance/init.lua"] = { std = "sandbox_runner" }
files["tests/**/*_spec.lua"] = { std = "+busted" }
files["tests/run.lua"] = { globals = { "arg" } }
