-- What operators rely on: tokens, metrics, health, and that one client does not
-- stand in another's way. Against the real program and the real engine.
local client = require "e2e.client"
local http = require "e2e.http_client"

local ANNA, BERT = "anna-0123456789abcdef", "bert-0123456789abcdef"

local function bearer(token) return { Authorization = "Bearer " .. token } end

local function run_code(server, code, headers, seconds)
  return server:modern_open("tools/call", { name = "run_code",
    arguments = { language = "python", code = code, timeout_seconds = seconds } }, { headers = headers })
end

--- Runs code; returns the structured result, or nil and the text of a refusal.
local function run(server, code, headers)
  local connection = run_code(server, code, headers)
  local result = assert(connection:response()).json.result
  connection:close()
  if result.isError then return nil, result.content[1].text end
  return result.structuredContent
end

--- The metrics by name and labels as they are written.
local function metrics(server, headers)
  local response = server:http("GET", "/metrics", headers)
  assert.equal(200, response.status, response.body)
  assert.equal("text/plain; version=0.0.4; charset=utf-8", response.headers["content-type"])
  local values = {}
  for line in response.body:gmatch "[^\n]+" do
    if line:sub(1, 1) ~= "#" then
      local name, value = line:match "^(.*) (%S+)$"
      values[name:gsub("^sandbox_runner_", "")] = assert(tonumber(value), line)
    end
  end
  return values
end

local function health(server, headers)
  local response = server:http("GET", "/healthz", headers)
  return response.status, response.json
end

--- Starts the program in vain; returns its exit status and what it said.
local function start_in_vain(options)
  options.mute = true
  local process = client.start(options)
  client.eventually(10 * client.slow, function() return not process:alive() end)
  local said = process:stderr()
  return process:close(), said
end

local function token_file(text, mode)
  local folder = client.folder()
  client.write_file(folder .. "/tokens", text)
  os.execute(("chmod %s %s"):format(mode or "600", client.quote(folder .. "/tokens")))
  return folder .. "/tokens", folder
end

local HTTP = { "--transport", "http", "--port", "0" }

describe("the figures of a server", function()
  local server

  setup(function() server = http.start { init = "pool.size = 1\npool.max = 1\npolicy = function(r) "
    .. 'if r.code:find "forbidden" then return nil, "not here" end end' } end)
  teardown(function() assert.equal(0, (server:close())) end)

  it("count runs, the pool, requests and refusals", function()
    assert(run(server, "print(1)"))
    assert.is_truthy(client.eventually(10 * client.slow, function()
      return metrics(server)['pool_ready{language="python",stage="run"}'] == 1
    end))
    local before = metrics(server)
    assert.equal(1, before['runs_total{language="python",reason="exit"}'])
    assert.equal(0, before.pool_hits_total)
    assert.equal(1, before.pool_misses_total)
    assert.equal("exit", run(server, "raise SystemExit(3)").reason)
    assert.matches("not here", select(2, run(server, "forbidden")), 1, true)
    local after = metrics(server)
    assert.equal(1, after.pool_hits_total)
    assert.equal(2, after['runs_total{language="python",reason="exit"}'])
    assert.equal(2, after['run_duration_seconds_count{language="python"}'])
    assert.equal(1, after['runs_refused_total{reason="policy"}'])
    assert.equal(3, after['requests_total{method="tools/call",era="modern",outcome="ok"}'])
    assert.is_true(after.http_connections >= 1)
    assert.equal(1, after.http_requests_in_flight) -- the one that asks
    assert.is_true(after.process_resident_memory_bytes > 1e6)
    assert.is_true(math.abs(after.process_start_time_seconds - os.time()) < 120)
  end)

  it("show a run that goes on, and the sessions", function()
    local session = server:session()
    local connection = run_code(server, "import time; time.sleep(20)", nil, 20)
    assert.is_truthy(client.eventually(10 * client.slow, function() return metrics(server).runs_in_flight == 1 end))
    assert.equal(1, metrics(server).http_sessions)
    local _, report = health(server)
    assert.same({ in_flight = 1, queued = 0 }, report.runs)
    connection:close() -- which cancels it in this revision
    assert.is_truthy(client.eventually(10 * client.slow, function()
      return metrics(server)['runs_total{language="python",reason="cancelled"}'] == 1
    end))
    assert.equal(1, metrics(server)['requests_total{method="tools/call",era="modern",outcome="cancelled"}'])
    session:delete()
    assert.equal(0, metrics(server).http_sessions)
  end)

  it("have bounded labels", function()
    for i = 1, 30 do server:modern("nonsense/" .. i) end
    local values = metrics(server)
    assert.equal(30, values['requests_total{method="other",era="modern",outcome="error"}'])
  end)

  it("hold the health, with the engine's versions", function()
    local status, report = health(server)
    assert.equal(200, status)
    assert.equal("ok", report.status)
    assert.is_true(report.engine.reachable)
    assert.matches("^%d+%.%d+", report.engine.version)
    assert.matches("^1%.%d+$", report.engine.api)
    assert.is_true(report.uptime_seconds >= 0)
    assert.equal("python", report.pool[1].language)
  end)
end)

describe("a server without an engine", function()
  it("is not healthy, and says so at once and as it is", function()
    local folder = client.folder()
    local server = http.start { init = ('engine.address = "unix://%s/engine.sock"'):format(folder) }
    for _ = 1, 2 do
      local started = client.now_ms()
      local status, report = health(server)
      assert.is_true(client.now_ms() - started < 2000 * client.slow)
      assert.equal(503, status)
      assert.equal("unavailable", report.status)
      assert.is_false(report.engine.reachable)
      assert.matches(folder .. "/engine.sock", report.engine.error, 1, true)
    end
    assert.is_nil((run(server, "print(1)")))
    assert.is_true(metrics(server)['engine_errors_total{code="unavailable"}'] >= 1)
    assert.equal(0, (server:close()))
    client.remove(folder)
  end)
end)

describe("a token", function()
  local server, folder

  setup(function()
    local path
    path, folder = token_file(("anna:%s\nbert:%s\n"):format(ANNA, BERT))
    server = http.start { init = ("http.token_file = %q\nlimits.runs_per_minute = 2\n%s"):format(path, client.no_pool) }
  end)

  teardown(function()
    assert.equal(0, (server:close()))
    client.remove(folder)
  end)

  it("is asked for on every path but the health", function()
    for _, one in ipairs { { "POST", "/mcp" }, { "GET", "/mcp" }, { "DELETE", "/mcp" }, { "GET", "/sse" },
      { "POST", "/messages/?session_id=1" }, { "GET", "/metrics" } } do
      local body = one[1] == "POST" and "{}" or nil
      local response = server:http(one[1], one[2], http.headers(), body)
      assert.equal(401, response.status, one[2])
      assert.equal('Bearer realm="sandbox-runner"', response.headers["www-authenticate"])
      for _, value in ipairs { "Bearer wrong-0123456789abcdef", "Basic " .. ANNA, ANNA, "Bearer " .. ANNA .. "x",
        "Bearer anna:" .. ANNA } do
        response = server:http(one[1], one[2], http.headers { Authorization = value }, body)
        assert.equal(401, response.status, one[2])
        assert.equal('Bearer realm="sandbox-runner", error="invalid_token"', response.headers["www-authenticate"])
        assert.is_nil(response.body:find(ANNA, 1, true))
      end
    end
    assert.is_true(metrics(server, bearer(ANNA)).http_unauthorized_total >= 36)
  end)

  it("is not asked for by the health, which then tells no more than how it is", function()
    local status, report = health(server)
    assert.equal(200, status)
    assert.same({ status = "ok" }, report)
    report = select(2, health(server, bearer(BERT)))
    assert.is_true(report.engine.reachable)
  end)

  it("in a URL is no token", function()
    assert.equal(401, server:http("GET", "/metrics?access_token=" .. ANNA).status)
  end)

  it("lets in, each under its own rate limit", function()
    assert(run(server, "print(1)", bearer(ANNA)))
    assert(run(server, "print(1)", { authorization = "bearer " .. ANNA }))
    local result, text = run(server, "print(1)", bearer(ANNA))
    assert.is_nil(result)
    assert.matches("^Too many runs: each client may begin 2 a minute here%. Wait %d+ seconds?, then", text)
    assert(run(server, "print(1)", bearer(BERT)))
    assert.equal(1, metrics(server, bearer(ANNA))['runs_refused_total{reason="rate"}'])
    assert.equal(3, metrics(server, bearer(ANNA))['runs_total{language="python",reason="exit"}'])
  end)

  it("is in no line of the log", function()
    assert.is_nil(server.process:stderr():find(ANNA, 1, true))
    assert.is_nil(server.process:stderr():find("wrong-0123456789abcdef", 1, true))
  end)

  it("may come from the environment, which no program sees", function()
    local other = http.start { init = client.no_pool, env = { SANDBOX_RUNNER_TOKEN = ANNA } }
    assert.equal(401, other:http("GET", "/metrics").status)
    local result = assert(run(other, "import os; print(dict(os.environ))", bearer(ANNA)))
    assert.matches("PATH", result.stdout, 1, true)
    assert.is_nil(result.stdout:find(ANNA, 1, true))
    assert.is_nil(other.process:stderr():find(ANNA, 1, true))
    assert.equal(0, (other:close()))
  end)
end)

describe("a server is not started", function()
  local function refused(pattern, options)
    options.args = options.args or HTTP
    local status, said = start_in_vain(options)
    assert.equal(78, status)
    assert.matches(pattern, said)
    assert.is_nil(said:find(ANNA, 1, true))
  end

  it("for other machines without a token", function()
    refused("0%.0%.0%.0 may be reached from other machines.*http%.token_file %(or set SANDBOX_RUNNER_TOKEN%)",
      { args = { "--transport", "http", "--port", "0", "--host", "0.0.0.0" } })
    refused(":: may be reached from other machines", { init = 'http.host = "::"\nhttp.port = 0',
      args = { "--transport", "http" } })
  end)

  it("with a token file that others can read, or without a token in it", function()
    local path, folder = token_file(ANNA, "644")
    refused("mode 644%); run: chmod 600 ", { init = ("http.token_file = %q"):format(path) })
    client.remove(folder)
    path, folder = token_file "# nothing\n"
    refused("there is no token in it; make one with: openssl rand %-hex 32", {
      init = ("http.token_file = %q"):format(path) })
    client.remove(folder)
    refused("absent: No such file", { init = 'http.token_file = "/absent"' })
  end)

  it("with a token in two places, or a variable that holds none", function()
    local path, folder = token_file(ANNA)
    refused("both http%.token_file and SANDBOX_RUNNER_TOKEN are set", { init = ("http.token_file = %q"):format(path),
      env = { SANDBOX_RUNNER_TOKEN = BERT } })
    client.remove(folder)
    refused("SANDBOX_RUNNER_TOKEN: the token has 0 characters", { env = { SANDBOX_RUNNER_TOKEN = "" } })
  end)
end)

describe("one client's fifty runs", function()
  local server, folder

  before_each(function()
    local path
    path, folder = token_file(("anna:%s\nbert:%s\n"):format(ANNA, BERT))
    server = http.start { init = ("http.token_file = %q\nlimits.concurrency = 1\nlimits.queue = 50\n%s"):format(path,
      client.no_pool) }
  end)

  after_each(function()
    assert.equal(0, (server:close()))
    client.remove(folder)
  end)

  local function queue_up(n)
    local connections = {}
    for i = 1, n do connections[i] = run_code(server, "import time; time.sleep(0.1)", bearer(ANNA)) end
    assert.is_truthy(client.eventually(20 * client.slow, function()
      return metrics(server, bearer(ANNA)).runs_queued >= n - 5
    end))
    return connections
  end

  local function ended(values) return values['runs_total{language="python",reason="exit"}'] or 0 end

  it("do not hold up another client's", function()
    local connections = queue_up(50)
    local before = metrics(server, bearer(BERT))
    assert(run(server, "print('in between')", bearer(BERT)))
    local after = metrics(server, bearer(BERT))
    assert.is_true(after.runs_queued >= 40, after.runs_queued)
    assert.is_true(ended(after) - ended(before) <= 5, ended(after) - ended(before))
    for _, connection in ipairs(connections) do connection:close() end
    assert.is_truthy(client.eventually(10 * client.slow, function()
      local values = metrics(server, bearer(ANNA))
      return values.runs_queued == 0 and values.runs_in_flight == 0
    end))
  end)

  it("leave room in the queue for another client's", function()
    local connections = queue_up(51)
    for i = 1, 10 do connections[51 + i] = run_code(server, "import time; time.sleep(0.1)", bearer(ANNA)) end
    assert.is_truthy(client.eventually(20 * client.slow, function()
      return metrics(server, bearer(ANNA))['runs_refused_total{reason="busy"}'] >= 1
    end))
    assert(run(server, "print('in between')", bearer(BERT)))
    for _, connection in ipairs(connections) do connection:close() end
  end)
end)
