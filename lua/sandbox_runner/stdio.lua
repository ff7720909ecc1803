--- MCP over stdin and stdout: one message a line, one client.
local core = require "sandbox_runner.core"
local rpc = require "sandbox_runner.rpc"

local stdio = core.stdio
local M = {}

local MAX_LINE = 4 * 1024 * 1024

local function write(text)
  if text then stdio.write(text .. "\n") end
end

local SINK = { send = write, reply = write }

local function has(head, member) return head:find('"' .. member .. '"', 1, true) ~= nil end

-- A line that was longer than MAX_LINE; head: its beginning. A response is not answered.
local function refuse(session, head)
  if not has(head, "method") and (has(head, "result") or has(head, "error")) then return end
  session:oversized(MAX_LINE, rpc.salvage_id(head), SINK)
end

--- Serves messages until the input ends or stopped() is true. on_first is called
-- when the first one has been dealt with: a client that only looks in gets its
-- answer before anything else happens.
function M.serve(server, stopped, on_first)
  local session = server:session { client = "stdio", notify = write }
  while not stopped() do
    local line, _, head = stdio.read_line(MAX_LINE)
    if line == false or stopped() then return end
    if line then session:handle(line, SINK) else refuse(session, head) end
    if on_first then on_first() end
    on_first = nil
  end
end

return M
