--- tools/list a second, beside a server that runs on Node.js.

local core = require "sandbox_runner.core"
local shell = require "bench.shell"
local stats = require "bench.stats"

local PACKAGE = "@modelcontextprotocol/server-everything"
local VERSION = "2026.8.31"
local BURST, WARM_BURSTS = 50, 20
local SLICE_MS, ROUNDS = 700, 5
local BAR = { op = ">=", limit = 10 }

local function folder(bench)
  return bench.program:match("^(.*)/") .. "/node/everything"
end

--- Installs the package where it is missing. Returns the server's words | nil, text.
local function everything(bench)
  for _, program in ipairs { "node", "npm" } do
    if not shell.has(program) then return nil, program .. " is not here" end
  end
  local path = folder(bench)
  local entry = ("%s/node_modules/%s/dist/index.js"):format(path, PACKAGE)
  if not core.sys.stat(entry) then
    local ok = os.execute(("mkdir -p %s && npm install --prefix %s --no-audit --no-fund --no-package-lock "
      .. "--loglevel=error %s@%s </dev/null >&2"):format(shell.quote(path), shell.quote(path), PACKAGE, VERSION))
    if not ok then return nil, "npm could not install " .. PACKAGE end
  end
  return { "node", entry, "stdio" }
end

--- Answers a second while always BURST requests are on their way.
local function rate(server)
  local ms, count = 0, 0
  while ms < SLICE_MS do
    ms = ms + server:burst("tools/list", BURST)
    count = count + BURST
  end
  return count * 1000 / ms
end

local function warm_up(server)
  for _ = 1, WARM_BURSTS do server:burst("tools/list", BURST) end
  return server
end

local function measure(bench, ours, theirs)
  local our_rates, their_rates = {}, {}
  for i = 1, bench.samples(ROUNDS, 2) do
    our_rates[i] = rate(ours)
    their_rates[i] = theirs and rate(theirs)
  end
  return our_rates, their_rates
end

return function(bench)
  local words, why = everything(bench)
  local ours = warm_up(bench.start_client())
  local theirs = words and warm_up(bench.start_other(words))
  local our_rates, their_rates = measure(bench, ours, theirs)
  local our_bytes, their_bytes = ours:answer_bytes "tools/list", theirs and theirs:answer_bytes "tools/list"
  ours:close()
  local report = bench.report
  report:add { name = "tools/list", unit = "per s", samples = our_rates }
  if not theirs then return report:skip("tools/list / server-everything", BAR, why) end
  theirs:close()
  report:add { name = "  server-everything on Node.js", unit = "per s", samples = their_rates }
  report:add { name = "tools/list / server-everything", unit = "ratio", bar = BAR,
    value = stats.median(our_rates) / stats.median(their_rates) }
  report:note(("tools/list: both warmed up, %d requests on their way at once; an answer has %d bytes, that of %s %s "
    .. "%d."):format(BURST, our_bytes, PACKAGE, VERSION, their_bytes))
end
