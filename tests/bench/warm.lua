--- A run whose sandbox was started ahead, beside the bare interpreter.

local bare = require "bench.bare"
local rivals = require "bench.rivals"
local shell = require "bench.shell"
local stats = require "bench.stats"

-- So long a client pauses that the pool has the next sandbox ready. The bare
-- interpreter is measured at the pause's end, when the engine is quiet again.
local PACE_MS = 450
local FILE = "/hello.py"
local P50 = { name = "warm run p50 / bare python3 p50", bar = { op = "<=", limit = 0.6 } }
local P99 = { name = "warm run p99 / bare python3 p50, one client", bar = { op = "<=", limit = 2.0 } }

local function measure(server, command, n)
  local ours, theirs = {}, {}
  for i = 0, n do
    shell.pause(PACE_MS)
    local bare_ms = command and shell.timed_hello(command)
    local _, ms = server:run("python", rivals.PROGRAM)
    if i > 0 then theirs[i], ours[i] = bare_ms, ms end -- the first one stocks the pool
  end
  return ours, theirs
end

return function(bench)
  local root, why = bare.root(bench, "python")
  local command
  if root then
    bare.write(root, FILE, rivals.PROGRAM .. "\n")
    command = bare.command(root, { "python3", FILE })
    shell.timed_hello(command)
  end
  local server = bench.start_client()
  local ours, theirs = measure(server, command, bench.samples(100, 10))
  server:close()
  local report = bench.report
  report:add { name = "warm run over MCP", unit = "ms", samples = ours, picture = "Python, warm", ours = true }
  if not root then
    report:skip(P50.name, P50.bar, why)
    return report:skip(P99.name, P99.bar, why)
  end
  report:add { name = "bare python3 FILE, no container", unit = "ms", samples = theirs, picture = "bare python3" }
  report:add_ratio(P50.name, ours, theirs, P50.bar)
  report:add { name = P99.name, unit = "ratio", bar = P99.bar,
    value = stats.quantile(ours, 0.99) / stats.median(theirs) }
  report:add { name = "  bare python3 p99 / its p50: the noise", unit = "ratio",
    value = stats.quantile(theirs, 0.99) / stats.median(theirs) }
  report:note(("warm run: the default settings, a request every %d ms or so. Bare: chroot into the image's files, "
    .. "from the start of the process to its end, less the shell."):format(PACE_MS))
end
