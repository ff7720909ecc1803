--- Commands of the bench: quoting, and running one to its end.

local core = require "sandbox_runner.core"
local stats = require "bench.stats"

local loop = core.loop
local M = {}

function M.quote(text)
  return "'" .. text:gsub("'", "'\\''") .. "'"
end

--- A command line from an array of words; env: {NAME = value} or nil. It begins
-- with exec, so that the shell makes no second process for it.
function M.line(words, env)
  local out = {}
  for name, value in pairs(env or {}) do out[#out + 1] = ("export %s=%s;"):format(name, M.quote(value)) end
  out[#out + 1] = "exec"
  for _, word in ipairs(words) do out[#out + 1] = M.quote(word) end
  return table.concat(out, " ")
end

--- Returns what it printed, and the milliseconds from its start to the end of its
-- output; an exit status other than 0 is an error.
function M.timed(command)
  local started = loop.now_ms()
  local pipe <close> = assert(io.popen(command, "r"))
  local output = pipe:read("a")
  local elapsed = loop.now_ms() - started
  local ok, how, code = pipe:close()
  if not ok then error(("%s %s: %s\n%s"):format(how, code, command, output), 0) end
  return output, elapsed
end

--- What it costs io.popen to start a program at all, in milliseconds: a server that
-- runs already does not pay it, so it is taken off what commands need.
function M.cost()
  if not M.cost_ms then
    local times = {}
    for i = 1, 20 do times[i] = select(2, M.timed("exec true")) end
    M.cost_ms = stats.median(times)
  end
  return M.cost_ms
end

--- As M.timed, less the cost of the shell; it must print hello.
function M.timed_hello(command)
  local output, ms = M.timed(command)
  if not output:find("hello\n", 1, true) then error("no hello: " .. output, 0) end
  return ms - M.cost(), output
end

function M.has(program)
  return os.execute("command -v " .. M.quote(program) .. " >/dev/null 2>&1") == true
end

--- Lets the engine finish what the last sample left to it.
function M.pause(ms)
  loop.run(function() loop.sleep(ms) end)
end

return M
