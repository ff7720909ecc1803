--- A cold run over MCP beside what one would do without this program, taken in
-- turns in the same minute. Cold: nothing was started ahead (pool.size = 0).

local rivals = require "bench.rivals"
local shell = require "bench.shell"

-- An answered run's container, and curl's, are still being removed for a while:
-- the next sample must not pay for that.
local SETTLE_MS = 400
local BAR = { op = "<=", limit = 0.9 }

--- The ways that this machine allows; each is {name, function(bench) -> ms, label
-- in the picture}.
local function ways(bench, server)
  local list = { { "cold run over MCP", function()
    return select(2, server:run("python", rivals.PROGRAM))
  end, "Python, cold" } }
  if shell.has "docker" then
    list[#list + 1] = { "docker run --rm", function()
      return (shell.timed_hello(rivals.docker_command(bench)))
    end, "docker run" }
  end
  if shell.has "curl" and bench.address:match("^unix://") then
    list[#list + 1] = { "engine API by one curl", function()
      return (shell.timed_hello(rivals.api_command(bench)))
    end, "engine API" }
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

return function(bench)
  local server = bench.start_client(bench.config "pool.size = 0")
  local list = ways(bench, server)
  local samples = interleave(bench, list, bench.samples(15, 5))
  server:close()
  local report = bench.report
  for k, way in ipairs(list) do
    report:add { name = way[1], unit = "ms", samples = samples[k], picture = way[3], ours = k == 1 }
  end
  if not list[2] then return report:skip("cold run / docker run --rm", BAR, "neither docker nor curl is here") end
  report:add_ratio("cold run / " .. list[2][1], samples[1], samples[2], BAR)
  report:note(("cold run: request byte to answer byte; commands: until the end of their output, less %.2f ms for the "
    .. "shell. In turns, %d ms apart."):format(shell.cost(), SETTLE_MS))
  report:note(list[2][1] == "docker run --rm" and "docker run --rm: " .. rivals.docker_command(bench)
    or "no docker client here: the engine API through curl stands in for docker run.")
end
