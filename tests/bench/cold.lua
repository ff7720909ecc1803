--- A cold run over MCP beside what one would do without this program, taken in
-- turns in the same minute.

local core = require "sandbox_runner.core"
local shell = require "bench.shell"
local stats = require "bench.stats"

local PROGRAM = 'print("hello")'
-- An answered run's container, and curl's, are still being removed for a while:
-- the next sample must not pay for that.
local SETTLE_MS = 400
local BAR = { op = "<=", limit = 0.95 }

local function expect_hello(text)
  if not text:find("hello\n", 1, true) then error("no hello: " .. text, 0) end
end

local function docker_command(bench)
  return shell.line({ "docker", "run", "--rm", "--network", "none", "--memory", "256m", "--cpus", "0.5", "--read-only",
    bench.machine.images.python, "python", "-c", PROGRAM }, { DOCKER_HOST = bench.address })
end

--- Create, start, wait, logs, remove in one curl, which keeps the connection.
local function api_command(bench)
  local name = "sandbox-runner-bench-" .. core.sys.random_hex(8)
  local body = core.json.encode { Image = bench.machine.images.python,
    Cmd = core.json.array { "python", "-c", PROGRAM },
    HostConfig = { NetworkMode = "none", Memory = 256 << 20, NanoCpus = 500000000, ReadonlyRootfs = true } }
  local base = "http://engine/containers/"
  local function call(method, path) return { "-s", "--fail", "-X", method, base .. path } end
  local create = call("POST", "create?name=" .. name)
  table.move({ "-H", "Content-Type: application/json", "-d", body }, 1, 4, #create + 1, create)
  local words = { "curl" }
  for i, part in ipairs { create, call("POST", name .. "/start"), call("POST", name .. "/wait"),
    call("GET", name .. "/logs?stdout=1"), call("DELETE", name) } do
    if i > 1 then words[#words + 1] = "--next" end
    table.move({ "--unix-socket", bench.address:match("^unix://(.*)$") }, 1, 2, #words + 1, words)
    table.move(part, 1, #part, #words + 1, words)
  end
  return shell.line(words)
end

local function of_command(make)
  return function(bench)
    local output, ms = shell.timed(make(bench))
    expect_hello(output)
    return ms - bench.shell_ms
  end
end

--- The ways that this machine allows; each is {name, function(bench) -> ms}.
local function ways(bench, server)
  local list = { { "cold run over MCP", function()
    local result, ms = server:run("python", PROGRAM)
    expect_hello(result.stdout)
    return ms
  end } }
  if shell.has "docker" then list[#list + 1] = { "docker run --rm", of_command(docker_command) } end
  if shell.has "curl" and bench.address:match("^unix://") then
    list[#list + 1] = { "engine API by one curl", of_command(api_command) }
  end
  return list
end

--- A, B, C, A, B, C ...: a machine that gets slower or faster does so for all.
local function interleave(bench, list, n)
  local samples = {}
  for i = 0, n do
    for k, way in ipairs(list) do
      shell.pause(SETTLE_MS)
      local ms = way[2](bench)
      if i > 0 then -- the first round warms up
        samples[k] = samples[k] or {}
        samples[k][i] = ms
      end
    end
  end
  return samples
end

--- What it costs io.popen to start a program at all, which the server does not pay.
local function shell_cost()
  local times = {}
  for i = 1, 20 do times[i] = select(2, shell.timed("exec true")) end
  return stats.median(times)
end

--- The ratio of the medians is the figure; beside it the ratios of the best and
-- of the 95th percentiles, which show what noise does to it.
local function add_ratio(report, name, ours, theirs)
  local function ratio(of) return of(ours) / of(theirs) end
  report:add { name = name, unit = "ratio", bar = BAR, value = ratio(stats.median),
    min = ratio(function(s) return stats.quantile(s, 0) end),
    p95 = ratio(function(s) return stats.quantile(s, 0.95) end) }
end

return function(bench)
  bench.shell_ms = shell_cost()
  local server = bench.start_client()
  local list = ways(bench, server)
  local samples = interleave(bench, list, bench.samples(20, 5))
  server:close()
  local report = bench.report
  for k, way in ipairs(list) do report:add { name = way[1], unit = "ms", samples = samples[k] } end
  if not list[2] then return report:skip("cold run / docker run --rm", BAR, "neither docker nor curl is here") end
  add_ratio(report, "cold run / " .. list[2][1], samples[1], samples[2])
  report:note(("cold run: request byte to answer byte; commands: until the end of their output, less %.2f ms for the "
    .. "shell. In turns, %d ms apart."):format(bench.shell_ms, SETTLE_MS))
  report:note(list[2][1] == "docker run --rm" and "docker run --rm: " .. docker_command(bench)
    or "no docker client here: the engine API through curl stands in for docker run.")
end
