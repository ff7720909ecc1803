--- Runs a second, and many at once.

local core = require "sandbox_runner.core"
local rivals = require "bench.rivals"
local shell = require "bench.shell"
local stats = require "bench.stats"

local loop = core.loop
local ROUNDS, SLICE_MS = 3, 5000
local DOCKER_RUNS = 40 -- about a slice of them
local SETTLE_MS = 1500 -- containers of the last slice are still being removed
local CLIENTS, MANY = 4, 50
local MANY_IDLE_MS = 3000
local SUSTAINED = { name = "runs a second / docker run under xargs -P4", bar = { op = ">=", limit = 1.2 } }
local LAST = { op = "<=", limit = 1.15 }

local function send(server)
  server:send("tools/call", { name = "run_code", arguments = { language = "python", code = rivals.PROGRAM } })
end

--- Waits for any run's answer. Returns whether it is right.
local function receive(server)
  local message = server:receive()
  local out = message.result and message.result.structuredContent
  return out ~= nil and out.status == "success" and out.stdout == "hello\n"
end

local function receive_right(server)
  if not receive(server) then error("a run failed", 0) end
end

--- Keeps n requests in flight. Returns answers a second.
local function our_rate(server, n)
  local started, count = loop.now_ms(), 0
  for _ = 1, n do send(server) end
  while loop.now_ms() - started < SLICE_MS do
    receive_right(server)
    send(server)
    count = count + 1
  end
  for _ = 1, n do receive_right(server) end
  return (count + n) * 1000 / (loop.now_ms() - started)
end

local function docker_rate(bench)
  local output, ms = shell.timed(rivals.docker_many(bench, DOCKER_RUNS))
  local _, count = output:gsub("hello\n", "")
  if count ~= DOCKER_RUNS then error("docker run failed under xargs", 0) end
  return DOCKER_RUNS * 1000 / ms
end

local function sustained(bench, server, has_docker)
  local ours, theirs = {}, {}
  for i = 1, bench.samples(ROUNDS, 1) do
    shell.pause(SETTLE_MS)
    ours[i] = our_rate(server, CLIENTS)
    if has_docker then
      shell.pause(SETTLE_MS)
      theirs[i] = docker_rate(bench)
    end
  end
  return ours, theirs
end

--- Returns the right answers, and the milliseconds until the last one.
local function all_at_once(server)
  shell.pause(MANY_IDLE_MS)
  local started, right = loop.now_ms(), 0
  for _ = 1, MANY do send(server) end
  for _ = 1, MANY do right = right + (receive(server) and 1 or 0) end
  return right, loop.now_ms() - started
end

local function many(bench, server, rate)
  local right, last = {}, {}
  for i = 1, bench.samples(3, 1) do right[i], last[i] = all_at_once(server) end
  local report = bench.report
  report:add { name = MANY .. " at once, right answers", unit = "", value = math.min(table.unpack(right)),
    bar = { op = "==", limit = MANY } }
  report:add { name = "  the last one after", unit = "ms", samples = last }
  report:add { name = ("  that / %d at the sustained rate"):format(MANY), unit = "ratio", bar = LAST,
    value = stats.median(last) * rate / (MANY * 1000) }
end

return function(bench)
  local has_docker = shell.has "docker" and shell.has "xargs"
  local report, server = bench.report, bench.start_client()
  local ours, theirs = sustained(bench, server, has_docker)
  report:add { name = CLIENTS .. " runs at a time", unit = "per s", samples = ours }
  if has_docker then
    report:add { name = "docker run under xargs -P4", unit = "per s", samples = theirs }
    report:add_ratio(SUSTAINED.name, ours, theirs, SUSTAINED.bar)
  else
    report:skip(SUSTAINED.name, SUSTAINED.bar, "docker or xargs is not here")
  end
  for _, n in ipairs { 1, 16 } do
    shell.pause(SETTLE_MS)
    local name = n == 1 and "1 run at a time" or n .. " runs at a time"
    report:add { name = name, unit = "per s", value = our_rate(server, n) }
  end
  many(bench, server, stats.median(ours))
  server:close()
  report:note(("runs a second: Python hello through one server, slices of %d s in turns with docker run; each answer "
    .. "is checked."):format(SLICE_MS // 1000))
end
