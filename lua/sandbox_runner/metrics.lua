--- Figures for Prometheus (text exposition format 0.0.4). What is counted lies
-- with whoever counts it (runner, pool, cache, engine, gate, rate, auth); it is
-- put into words only when somebody asks.

local core = require "sandbox_runner.core"

local M = {}
local Metrics = {}
Metrics.__index = Metrics

--- The Content-Type of what text() returns.
M.content_type = "text/plain; version=0.0.4; charset=utf-8"

-- What clients invent must not become labels without end.
local METHODS = {}
for name in ([[
  initialize ping server/discover subscriptions/listen logging/setLevel completion/complete
  tools/list tools/call resources/list resources/templates/list resources/read resources/subscribe
  resources/unsubscribe prompts/list prompts/get tasks/get tasks/update tasks/cancel
]]):gmatch "%S+" do METHODS[name] = true end

local ERAS = { legacy = true, modern = true }

-- A family is { name, type, help, collect }; collect(metrics, add) calls
-- add(value, labels, suffix) for each of its samples, or not at all when what it
-- would tell of is not there. labels: name, value, name, value ...
local function gauge(name, help, collect) return { "sandbox_runner_" .. name, "gauge", help, collect } end
local function counter(name, help, collect) return { "sandbox_runner_" .. name, "counter", help, collect } end

local function sorted(t)
  local names = {}
  for name in pairs(t) do names[#names + 1] = name end
  table.sort(names)
  return ipairs(names)
end

local function add_runs(m, add)
  for _, language in sorted(m.runner.stats.languages) do
    local reasons = m.runner.stats.languages[language].reasons
    for _, reason in sorted(reasons) do add(reasons[reason], { "language", language, "reason", reason }) end
  end
end

local function add_histogram(add, histogram, name, value)
  local below = 0
  for i, bound in ipairs(histogram.bounds) do
    below = below + histogram.counts[i]
    add(below, { name, value, "le", ("%.15g"):format(bound) }, "_bucket")
  end
  add(histogram.count, { name, value, "le", "+Inf" }, "_bucket")
  add(histogram.sum, { name, value }, "_sum")
  add(histogram.count, { name, value }, "_count")
end

local function add_durations(m, add)
  local languages = m.runner.stats.languages
  for _, language in sorted(languages) do add_histogram(add, languages[language].seconds, "language", language) end
end

local function add_refused(m, add)
  add(m.runner.gate.stats.refused, { "reason", "busy" })
  add(m.runner.stats.denied, { "reason", "policy" })
  add(m.rate and m.rate.stats.refused or 0, { "reason", "rate" })
end

local function add_ready(m, add)
  for _, item in ipairs(m.runner:ready()) do add(item.ready, { "language", item.language, "stage", item.stage }) end
end

local function add_errors(m, add)
  local errors = m.runner.engine.stats.errors
  for _, code in sorted(errors) do add(errors[code], { "code", code }) end
end

local function add_requests(m, add)
  for _, method in sorted(m.requests) do
    for _, era in sorted(m.requests[method]) do
      local outcomes = m.requests[method][era]
      for _, outcome in sorted(outcomes) do
        add(outcomes[outcome], { "method", method, "era", era, "outcome", outcome })
      end
    end
  end
end

local function http(name)
  return function(m, add)
    if m.http then add(m.http()[name]) end
  end
end

-- proc(5), status: "VmRSS:     13824 kB".
local function add_memory(_, add)
  local file = io.open("/proc/self/status")
  if not file then return end
  local kib = file:read("a"):match "VmRSS:%s*(%d+) kB"
  file:close()
  if kib then add(tonumber(kib) * 1024) end
end

local FAMILIES = {
  counter("runs_total", "Runs that were let in, by how they ended.", add_runs),
  { "sandbox_runner_run_duration_seconds", "histogram",
    "From a run's place to its result: start of the sandbox, compiler and program.", add_durations },
  gauge("runs_in_flight", "Runs that have a place.", function(m, add) add(m.runner.gate.inside) end),
  gauge("runs_queued", "Runs that wait for a place.", function(m, add) add(m.runner.gate.waiting) end),
  counter("runs_refused_total", "Runs that were not let in: rate limit, full queue, policy.", add_refused),
  counter("pool_hits_total", "Sandboxes that were there when one was wanted.",
    function(m, add) add(m.runner.pool.stats.hits) end),
  counter("pool_misses_total", "Sandboxes that had to be started when one was wanted.",
    function(m, add) add(m.runner.pool.stats.misses) end),
  gauge("pool_ready", "Sandboxes that stand ready.", add_ready),
  counter("compile_cache_hits_total", "Compilations that the cache spared.",
    function(m, add) add(m.runner.cache.stats.hits) end),
  counter("compile_cache_misses_total", "Compilations that took place.",
    function(m, add) add(m.runner.cache.stats.misses) end),
  gauge("compile_cache_bytes", "What the cache holds.", function(m, add) add(m.runner.cache.bytes) end),
  counter("engine_errors_total", "Troubles with the container engine.", add_errors),
  counter("engine_container_starts_total", "Sandboxes that the engine started.",
    function(m, add) add(m.runner.engine.stats.starts) end),
  counter("requests_total", "MCP requests, by how they were answered.", add_requests),
  gauge("http_connections", "Open connections.", http "connections"),
  gauge("http_sessions", "Sessions of clients of the revisions that have them.", http "sessions"),
  gauge("http_streams", "Streams that wait for messages to a client.", http "streams"),
  gauge("http_requests_in_flight", "HTTP requests that have not been answered to the end.", http "requests"),
  gauge("http_buffered_bytes", "Bodies of requests that are being read.", http "buffered"),
  counter("http_unauthorized_total", "HTTP requests without a valid token.",
    function(m, add) if m.auth then add(m.auth.stats.refused) end end),
  gauge("build_info", "Always 1.", function(_, add) add(1, { "version", core.version }) end),
  { "process_start_time_seconds", "gauge", "When the server was started, Unix time.",
    function(m, add) add(m.runner.started) end },
  { "process_cpu_seconds_total", "counter", "CPU time of the server.", function(_, add) add(os.clock()) end },
  { "process_resident_memory_bytes", "gauge", "Resident memory of the server.", add_memory },
}

local ESCAPES = { ["\\"] = "\\\\", ['"'] = '\\"', ["\n"] = "\\n" }

local function label_text(labels)
  if not labels then return "" end
  local parts = {}
  for i = 1, #labels, 2 do
    parts[#parts + 1] = ('%s="%s"'):format(labels[i], core.text.repair(labels[i + 1]):gsub('[\\"\n]', ESCAPES))
  end
  return "{" .. table.concat(parts, ",") .. "}"
end

local function number_text(value)
  return math.type(value) == "integer" and ("%d"):format(value) or ("%.15g"):format(value)
end

local function put_family(self, out, family)
  local name, kind, help, collect = table.unpack(family)
  local header = ("# HELP %s %s\n# TYPE %s %s"):format(name, help, name, kind)
  collect(self, function(value, labels, suffix)
    if value == nil then return end
    out[#out + 1], header = header, nil
    out[#out + 1] = ("%s%s%s %s"):format(name, suffix or "", label_text(labels), number_text(value))
  end)
end

--- options: runner (run.lua); optional: rate, auth, http = function that returns
-- { connections, sessions, streams, requests, buffered = bytes } of this moment,
-- each of them optional.
function M.new(options)
  return setmetatable({ runner = assert(options.runner, "runner is missing"), rate = options.rate,
    auth = options.auth, http = options.http, requests = {} }, Metrics)
end

--- Counts a request. era: "legacy" or "modern". ok: true when it was answered with
-- a result, false: with an error, nil: not at all, as it was cancelled.
function Metrics:request(method, era, ok)
  method = METHODS[method] and method or "other"
  era = ERAS[era] and era or "other"
  local outcome = ok and "ok" or ok == false and "error" or "cancelled"
  local eras = self.requests[method] or {}
  local outcomes = eras[era] or {}
  self.requests[method], eras[era] = eras, outcomes
  outcomes[outcome] = (outcomes[outcome] or 0) + 1
end

--- All of it, as Prometheus reads it.
function Metrics:text()
  local out = {}
  for _, family in ipairs(FAMILIES) do put_family(self, out, family) end
  return table.concat(out, "\n") .. "\n"
end

return M
