local core = require "sandbox_runner.core"
local engine_of = require "sandbox_runner.engine"
local fake = require "spec.support.fake"
local gate_of = require "sandbox_runner.gate"
local metrics_of = require "sandbox_runner.metrics"
local rate_of = require "sandbox_runner.rate"
local run = require "sandbox_runner.run"
local settings = require "sandbox_runner.settings"

local loop = core.loop

local UNESCAPED = { n = "\n", ["\\"] = "\\", ['"'] = '"' }

local function parse_labels(text, line)
  local labels, at = {}, 1
  while at <= #text do
    local name, start = text:match('^([%a_][%w_]*)="()', at)
    local stop = assert(start, line)
    while text:sub(stop, stop) ~= '"' do
      assert(stop <= #text, line)
      stop = stop + (text:sub(stop, stop) == "\\" and 2 or 1)
    end
    assert(labels[name] == nil and (stop == #text or text:sub(stop + 1, stop + 1) == ","), line)
    labels[name] = text:sub(start, stop - 1):gsub("\\(.)", UNESCAPED)
    at = stop + 2
  end
  return labels
end

--- Reads the text as Prometheus does (exposition formats, "Text format details").
-- Returns { [name with sorted labels] = value } and { [family] = type }.
local function parse(text)
  assert.equal("\n", text:sub(-1))
  local values, types, helps, family = {}, {}, {}, nil
  for line in text:gmatch "(.-)\n" do
    local name, rest = line:match "^# HELP ([%a_:][%w_:]*) (.+)$"
    if name then
      assert.is_nil(helps[name], line)
      helps[name] = rest
    elseif line:sub(1, 1) == "#" then
      name, rest = line:match "^# TYPE ([%a_:][%w_:]*) (%l+)$"
      assert.is_truthy(name and helps[name] and not types[name], line)
      types[name], family = rest, name
    else
      local labels, value
      name, labels, value = line:match "^([%a_:][%w_:]*)(%b{}) (%S+)$"
      if not name then name, value = line:match "^([%a_:][%w_:]*) (%S+)$" end
      assert.is_truthy(name and tonumber(value), line)
      assert.equal(family, types[family] == "histogram" and name:gsub("_%l+$", "") or name, line)
      local parts = {}
      for label, content in pairs(parse_labels(labels and labels:sub(2, -2) or "", line)) do
        parts[#parts + 1] = label .. "=" .. content
      end
      table.sort(parts)
      local key = name .. (#parts > 0 and " " .. table.concat(parts, " ") or "")
      assert.is_nil(values[key], line)
      values[key] = tonumber(value)
    end
  end
  return values, types
end

local function write_agent(b)
  local path = b.folder .. "/agent"
  fake.write(path, "agent's bytes")
  return path
end

--- A runner with a fake engine of this script, and its metrics.
local function bench(script, init)
  script.images = script.images or { ["python:3.12-slim"] = true, ["gcc:14"] = true }
  script.has_agent = true
  local b = { fake = fake.start(script) }
  b.config = assert(settings.parse(("engine.address = %q\n%s"):format(b.fake.address, init or "pool.size = 0")))
  b.engine = engine_of.new { config = b.config, log = function() end, agent = write_agent(b.fake),
    state = b.fake.folder .. "/state" }
  b.runner = run.new(b.config, b.engine, function() end)
  b.metrics = metrics_of.new { runner = b.runner }
  function b:run(language, ctx)
    return self.runner:run({ language = self.config.languages[language or "python"], code = "1", timeout_ms = 5000,
      timeout_seconds = 5 }, ctx or {})
  end
  function b:values() return (parse(self.metrics:text())) end
  return setmetatable(b, { __close = function()
    b.runner:close()
    b.engine:wait_gone(5000)
    b.engine:close()
    b.fake:stop()
  end })
end

local function idle_runner()
  local spared = { hits = 0, misses = 0 }
  return { started = 1764497600.25, stats = { languages = {}, denied = 0 }, gate = gate_of.new(1),
    ready = function() return {} end, pool = { stats = spared }, cache = { bytes = 0, stats = spared },
    engine = { stats = { starts = 0, errors = {} } } }
end

describe("the metrics", function()
  it("keep to the conventions of names", function()
    local metrics = metrics_of.new { runner = idle_runner(), http = function() return { connections = 3, sessions = 1,
      buffered = 10, requests = 7, streams = 2 } end, auth = { stats = { refused = 2 } } }
    metrics:request("ping", "legacy", true)
    local values, types = parse(metrics:text())
    for name, kind in pairs(types) do
      assert.is_truthy(name:find "^sandbox_runner_" or name:find "^process_", name)
      assert.equal(kind == "counter", name:find "_total$" ~= nil, name)
    end
    assert.equal(3, values.sandbox_runner_http_connections)
    assert.equal(1, values.sandbox_runner_http_sessions)
    assert.equal(10, values.sandbox_runner_http_buffered_bytes)
    assert.equal(7, values.sandbox_runner_http_requests_in_flight)
    assert.equal(2, values.sandbox_runner_http_streams)
    assert.equal(2, values.sandbox_runner_http_unauthorized_total)
    assert.equal(1, values["sandbox_runner_build_info version=" .. core.version])
    assert.equal(1764497600.25, values.process_start_time_seconds)
    assert.is_true(values.process_resident_memory_bytes > 1e6)
    assert.is_true(values.process_cpu_seconds_total > 0)
    assert.equal("text/plain; version=0.0.4; charset=utf-8", metrics_of.content_type)
  end)

  it("leave out what is not there", function()
    local values = parse(metrics_of.new({ runner = idle_runner() }):text())
    for name in pairs(values) do assert.is_nil(name:find "_http_", name) end
  end)

  it("count requests under a bounded number of labels", function()
    local metrics = metrics_of.new { runner = idle_runner() }
    metrics:request("tools/call", "modern", true)
    metrics:request("tools/call", "modern", true)
    metrics:request("tools/call", "legacy", false)
    metrics:request("tools/call", "legacy", nil)
    for i = 1, 1000 do metrics:request("x" .. i, "era" .. i, false) end
    local values = parse(metrics:text())
    local function requests(method, era, outcome)
      return values[("sandbox_runner_requests_total era=%s method=%s outcome=%s"):format(era, method, outcome)]
    end
    assert.equal(2, requests("tools/call", "modern", "ok"))
    assert.equal(1, requests("tools/call", "legacy", "error"))
    assert.equal(1, requests("tools/call", "legacy", "cancelled"))
    assert.equal(1000, requests("other", "other", "error"))
    local n = 0
    for name in pairs(values) do n = n + (name:find "requests_total" and 1 or 0) end
    assert.equal(4, n)
  end)

  it("escape labels", function()
    local runner = idle_runner()
    runner.engine.stats.errors['a "b"\\\nc'] = 1
    runner.engine.stats.errors["bad \xff"] = 2
    local values = parse(metrics_of.new({ runner = runner }):text())
    assert.equal(1, values['sandbox_runner_engine_errors_total code=a "b"\\\nc'])
    assert.equal(2, values["sandbox_runner_engine_errors_total code=bad \u{fffd}"])
  end)

  it("count who was refused, by reason", fake.task(function()
    local runner = idle_runner()
    runner.gate = gate_of.new(1, 0)
    assert(runner.gate:enter())
    assert.is_nil((runner.gate:enter()))
    local rate = rate_of.new(1, loop.now_ms)
    for _ = 1, 3 do rate:take("a") end
    run.new(settings.defaults(), runner.engine).note_denied(runner)
    local values = parse(metrics_of.new({ runner = runner, rate = rate }):text())
    assert.equal(1, values["sandbox_runner_runs_refused_total reason=busy"])
    assert.equal(2, values["sandbox_runner_runs_refused_total reason=rate"])
    assert.equal(1, values["sandbox_runner_runs_refused_total reason=policy"])
    assert.equal(1, values.sandbox_runner_runs_in_flight)
    assert.equal(0, values.sandbox_runner_runs_queued)
  end))

  it("count runs by language and end, and measure them", fake.task(function()
    local b <close> = bench { agent = { { { "exit" } }, { { "exit", code = 1 } }, { { "exit", finish = "wall" } },
      { { "sleep", 0.3 }, { "exit" } } } }
    for _ = 1, 4 do assert(b:run()) end
    local values = b:values()
    assert.equal(3, values["sandbox_runner_runs_total language=python reason=exit"])
    assert.equal(1, values["sandbox_runner_runs_total language=python reason=timeout"])
    local name = "sandbox_runner_run_duration_seconds"
    assert.equal(4, values[name .. "_count language=python"])
    assert.equal(4, values[name .. "_bucket language=python le=+Inf"])
    assert.equal(4, values[name .. "_bucket language=python le=60"])
    assert.is_true(values[name .. "_bucket language=python le=0.25"] <= 3)
    assert.is_true(values[name .. "_sum language=python"] > 0.3)
    local last = 0
    for _, bound in ipairs { "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "30" } do
      local below = values[("%s_bucket language=python le=%s"):format(name, bound)]
      assert.is_true(below >= last, bound)
      last = below
    end
    assert.equal(4, values.sandbox_runner_engine_container_starts_total)
    assert.equal(0, values.sandbox_runner_runs_in_flight)
  end))

  it("count runs that were cancelled, or could not be had, and do not measure them", fake.task(function()
    local b <close> = bench { agent = { { "silent" } } }
    local handle = fake.start_task(function() return b:run() end)
    fake.eventually(function() return b.fake:count "frame S" == 1 end)
    assert.equal(1, b:values().sandbox_runner_runs_in_flight)
    handle.task:cancel("no")
    handle:wait()
    b.fake:set { images = {} }
    b.engine:note { code = "protocol", message = "forget what is known" }
    assert.is_nil((b:run()))
    local values = b:values()
    assert.equal(1, values["sandbox_runner_runs_total language=python reason=cancelled"])
    assert.equal(1, values["sandbox_runner_runs_total language=python reason=failed"])
    assert.equal(0, values["sandbox_runner_run_duration_seconds_count language=python"])
    assert.equal(1, values["sandbox_runner_engine_errors_total code=not_found"])
  end))

  it("count troubles with the engine once each", fake.task(function()
    local b <close> = bench { start = { { status = 500 }, {} } }
    b:run()
    assert.equal(1, b:values()["sandbox_runner_engine_errors_total code=internal"]
      or b:values()["sandbox_runner_engine_errors_total code=unavailable"])
    b.fake:crash()
    assert.is_nil((b:run()))
    local before = b:values()["sandbox_runner_engine_errors_total code=unavailable"]
    assert.is_nil((b:run()))
    assert.equal(before + 1, b:values()["sandbox_runner_engine_errors_total code=unavailable"])
    b.fake:boot()
  end))

  it("count what the pool and the cache spared", fake.task(function()
    local b <close> = bench({}, "pool.size = 1\npool.max = 1")
    b.fake:set { agent = { { { "artifact", b.config.languages.cpp.artifact, "ELF" }, { "exit" } }, { { "exit" } } } }
    assert(b:run "cpp")
    fake.eventually(function()
      local ready = b.runner.pool:ready()
      return ready["cpp/c"] == 1 and ready["cpp/r"] == 1
    end, "the pool")
    local values = b:values()
    assert.equal(2, values.sandbox_runner_pool_misses_total)
    assert.equal(0, values.sandbox_runner_pool_hits_total)
    assert.equal(1, values["sandbox_runner_pool_ready language=cpp stage=compile"])
    assert.equal(1, values["sandbox_runner_pool_ready language=cpp stage=run"])
    assert.equal(1, values.sandbox_runner_compile_cache_misses_total)
    assert.is_true(values.sandbox_runner_compile_cache_bytes > 3)
    assert(b:run "cpp")
    values = b:values()
    assert.equal(1, values.sandbox_runner_pool_hits_total)
    assert.equal(1, values.sandbox_runner_compile_cache_hits_total)
    assert.equal(1, values.sandbox_runner_compile_cache_misses_total)
  end))
end)
