--- What a server does while nothing happens: nothing.

local shell = require "bench.shell"

-- After a run its sandbox is removed, memory goes back to the system and a sandbox
-- is started ahead, which takes a while on a busy machine: the watch begins after
-- a second without a wake-up, or so many seconds later at the latest.
local QUIET_MS, QUIET_TRIES = 1000, 10
local WATCH_MS = 5000 -- well within the minute after which the second sweep comes

local function report(bench, name, was, now, bar)
  bench.report:add { name = name .. ", wake-ups a second", unit = "per s", bar = bar,
    value = (now.wakes - was.wakes) * 1000 / WATCH_MS }
  bench.report:add { name = "  CPU", unit = "ms/s", bar = bar, value = (now.cpu - was.cpu) * 1000 / WATCH_MS }
end

local function look(server)
  local wakes, cpu = server:activity()
  return { wakes = wakes, cpu = cpu }
end

local function await_quiet(servers)
  for _ = 1, QUIET_TRIES do
    local before, quiet = {}, true
    for i, server in ipairs(servers) do before[i] = look(server).wakes end
    shell.pause(QUIET_MS)
    for i, server in ipairs(servers) do quiet = quiet and look(server).wakes == before[i] end
    if quiet then return end
  end
end

return function(bench)
  local empty, stocked = bench.start_client(bench.config "pool.size = 0"), bench.start_client()
  for _, server in ipairs { empty, stocked } do server:run("python", 'print("hello")') end
  shell.pause(QUIET_MS)
  await_quiet { empty, stocked }
  local empty_was, stocked_was = look(empty), look(stocked)
  shell.pause(WATCH_MS)
  report(bench, "idle, pool empty", empty_was, look(empty), { op = "==", limit = 0 })
  report(bench, "idle, a sandbox waiting", stocked_was, look(stocked))
  empty:close()
  stocked:close()
end
