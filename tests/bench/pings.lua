--- How soon a ping is answered while many programs sleep.

local shell = require "bench.shell"
local stats = require "bench.stats"

local RUNS = 20
-- Until the last one has started, the first one still sleeps.
local SLEEP = "import time; time.sleep(28)"
local GAP_MS = 10
-- A program is "running" when it has its order; Python needs a moment until it sleeps.
local SETTLE_MS = 1500

local function send_all(server)
  for i = 1, RUNS do
    server:send("tools/call", { name = "run_code", arguments = { language = "python", code = SLEEP,
      timeout_seconds = 30 }, _meta = { progressToken = "run " .. i } })
  end
end

--- Counts the programs that started: their first word of progress is "running".
local function watcher()
  local seen = { count = 0 }
  return seen, function(message)
    local params = message.params
    if message.method ~= "notifications/progress" then
      error("a sleeping run ended: " .. require("sandbox_runner.core").json.encode(message), 0)
    end
    if params.message == "running" and not seen[params.progressToken] then
      seen[params.progressToken] = true
      seen.count = seen.count + 1
    end
  end
end

local function ping(server, on_other, into)
  into[#into + 1] = select(2, server:request("ping", nil, on_other))
  shell.pause(GAP_MS)
end

return function(bench)
  local server, idle = bench.start_client(), bench.start_client()
  local seen, on_other = watcher()
  local starting, asleep, control = {}, {}, {}
  send_all(server)
  while seen.count < RUNS do ping(server, on_other, starting) end
  shell.pause(SETTLE_MS)
  for _ = 1, bench.samples(200, 50) do
    ping(server, on_other, asleep)
    ping(idle, nil, control)
  end
  server:close()
  idle:close()
  local report = bench.report
  report:add { name = RUNS .. " sleeping runs, slowest ping", unit = "ms", value = stats.max(asleep),
    samples = asleep, bar = { op = "<=", limit = 5 } }
  report:add { name = "  an idle server beside it, slowest", unit = "ms", value = stats.max(control),
    samples = control }
  report:add { name = "  while they are being started, slowest", unit = "ms", value = stats.max(starting),
    samples = starting }
  report:note "pings: what the idle server beside it needs as well is the machine's noise, not the runs'."
end
