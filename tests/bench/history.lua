--- Whether a long record makes its newest rows slower to read.

local shell = require "bench.shell"

local FEW, MANY = 100, 1000000
local BAR = { op = "<=", limit = 1.5 }
local NAME = "history of 1 000 000 rows / of 100"

local FILL = [[
INSERT INTO runs (timestamp, language, code_snippet, status, exit_code, duration_ms, stdout_size, stderr_size)
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
SELECT 1700000000 + i, 'python', 'print("hello", ' || i || ')', 'success', 0, 12, 6, 0 FROM n;
]]

local function query(server, expected)
  local result, ms = server:request("tools/call", { name = "get_execution_history", arguments = { limit = 20 } })
  local text = result.content[1].text
  if result.isError or not text:find(tostring(expected), 1, true) then error("history: " .. text, 0) end
  return ms
end

--- A server whose record has n rows: it makes the file, sqlite3 fills it.
local function filled(bench, n)
  local path = ("%s/history-%d.db"):format(bench.folder, n)
  local config = bench.config(("history.file = %q\nhistory.max_rows = 2000000"):format(path))
  local maker = bench.start_client(config)
  maker:request("tools/call", { name = "get_execution_history", arguments = { limit = 1 } })
  maker:close()
  shell.timed(("sqlite3 -cmd 'PRAGMA synchronous = OFF' %s %s"):format(shell.quote(path), shell.quote(FILL:format(n))))
  return bench.start_client(config)
end

return function(bench)
  if not shell.has "sqlite3" then return bench.report:skip(NAME, BAR, "sqlite3, which fills it, is not here") end
  local few, many = filled(bench, FEW), filled(bench, MANY)
  query(few, FEW)
  query(many, MANY) -- the first query opens the file
  local short, long = {}, {}
  for i = 1, bench.samples(200, 50) do
    short[i] = query(few, FEW)
    long[i] = query(many, MANY)
  end
  few:close()
  many:close()
  local report = bench.report
  report:add { name = "get_execution_history, 20 of 100 rows", unit = "ms", samples = short }
  report:add { name = "get_execution_history, 20 of 1 000 000", unit = "ms", samples = long }
  report:add_ratio(NAME, long, short, BAR)
end
