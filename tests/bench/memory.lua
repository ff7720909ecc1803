--- What the server holds: idle, and after a program that prints 1 GB.

local shell = require "bench.shell"

local MIB = 1 << 20
local SETTLE_MS = 1000
local GIB_OF_OUTPUT = [[
import sys
block = b"x" * (1 << 20)
for _ in range(1024):
    sys.stdout.buffer.write(block)
]]

local function idle(bench, server)
  server:run("python", 'print("hello")')
  shell.pause(SETTLE_MS)
  bench.report:add { name = "idle after one run, RssAnon", unit = "MB", value = server:memory("RssAnon") / MIB,
    bar = { op = "<=", limit = 4 } }
  bench.report:add { name = "idle after one run, RSS", unit = "MB", value = server:memory("VmRSS") / MIB,
    bar = { op = "<=", limit = 16 } }
end

local function flood(bench, server)
  local anon, rss = server:memory("RssAnon"), server:memory("VmRSS")
  server:reset_peak()
  local result, ms = server:run("python", GIB_OF_OUTPUT, 30)
  local peak = server:memory("VmHWM")
  shell.pause(SETTLE_MS)
  local report = bench.report
  report:add { name = "1 GB printed, bytes counted", unit = "bytes", value = result.stdout_bytes,
    bar = { op = "==", limit = 1 << 30 } }
  report:add { name = "1 GB printed, RssAnon grows by", unit = "MB", value = (server:memory("RssAnon") - anon) / MIB,
    bar = { op = "<=", limit = 1 } }
  report:add { name = "  at the worst moment (VmHWM)", unit = "MB", value = (peak - rss) / MIB,
    bar = { op = "<=", limit = 1 } }
  report:add { name = "  time", unit = "ms", value = ms }
end

return function(bench)
  local server = bench.start_client(bench.config "pool.size = 0")
  idle(bench, server)
  flood(bench, server)
  server:close()
  bench.report:note "MB are 2^20 bytes here, and memory is as /proc/PID/status has it."
end
