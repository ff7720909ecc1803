--- Whether this server can run anything, for whoever watches over it. Nothing
-- here goes on unless somebody asks.

local core = require "sandbox_runner.core"

local M = {}

--- Awaits the engine for a second at most; see Engine:probe. server: has runner.
-- Returns a table for JSON and whether all is well: { status = "ok" or "unavailable",
-- version, uptime_seconds, engine = { reachable, version, api, error }, pool = array
-- of { language, stage, ready }, runs = { in_flight, queued } }.
function M.report(server)
  local runner = server.runner
  local engine = runner.engine:probe()
  return {
    status = engine.reachable and "ok" or "unavailable",
    version = core.version,
    uptime_seconds = math.floor((core.loop.now_ms() - runner.started_ms) / 1000),
    engine = { reachable = engine.reachable, version = engine.version, api = engine.api, error = engine.why },
    pool = core.json.array(runner:ready()),
    runs = { in_flight = runner.gate.inside, queued = runner.gate.waiting },
  }, engine.reachable
end

return M
