--- An MCP client for timing: it blocks in read, so that nothing of its own lies
-- between the answer's bytes and the clock.
--
-- The shell that becomes the server writes its process id just before exec: this
-- is the server's pid, and the moment from which its own start is counted.

local core = require "sandbox_runner.core"
local shell = require "bench.shell"

local loop = core.loop
local M = {}
local Client = {}
Client.__index = Client

local INITIALIZE = {
  protocolVersion = "2025-11-25", capabilities = {},
  clientInfo = { name = "bench", version = "1" },
}

local count = 0

local function command(options, fifo, log)
  local words = options.words or { options.program }
  if options.config then words = { options.program, "--config", options.config } end
  return ("exec >%s 2>>%s; echo $$; %s"):format(shell.quote(fifo), shell.quote(log),
    shell.line(words, { XDG_STATE_HOME = options.folder .. "/state" }))
end

--- Starts a server and initializes the session. options: program, folder (for the
-- pipe, the log, the history), config = init.lua or nil: the installed one; words
-- in place of program and config: the command line of another server.
-- Returns a client with pid and start = {shell_ms, exec_ms, total_ms}: until the
-- exec, from there to the answer, both. On a busy machine the client may wake late
-- at the pid: what shell_ms then has too much, exec_ms has too little.
function M.start(options)
  count = count + 1
  local fifo = ("%s/answers-%d"):format(options.folder, count)
  local log = options.folder .. "/server.log"
  shell.timed("mkfifo " .. shell.quote(fifo))
  local self = setmetatable({ last_id = 0, log = log }, Client)
  local line = command(options, fifo, log)
  local started = loop.now_ms()
  self.input = assert(io.popen(line, "w"))
  local id = self:send("initialize", INITIALIZE)
  self.output = assert(io.open(fifo, "r")) -- waits until the shell has opened its end
  self.pid = self:read_line()
  local exec = loop.now_ms()
  local _, answered = self:answer(id)
  os.remove(fifo)
  self.start = { shell_ms = exec - started, exec_ms = answered - exec, total_ms = answered - started }
  self:notify("notifications/initialized")
  return self
end

function Client:read_line()
  local line = self.output:read("l")
  if not line then error("the server ended; its log is " .. self.log, 0) end
  return line
end

function Client:write(message)
  assert(self.input:write(core.json.encode(message), "\n"))
  assert(self.input:flush())
end

function Client:notify(method)
  self:write { jsonrpc = "2.0", method = method }
end

--- Sends a request without waiting. Returns its id.
function Client:send(method, params)
  self.last_id = self.last_id + 1
  self:write { jsonrpc = "2.0", id = self.last_id, method = method, params = params or {} }
  return self.last_id
end

--- The next message of the server, and when it was there (loop.now_ms).
function Client:receive()
  local line = self:read_line()
  local now = loop.now_ms()
  return assert(core.json.decode(line)), now
end

--- Waits for the answer to id; other messages go to on_other(message), if given.
-- Returns the result and when it was there.
function Client:answer(id, on_other)
  while true do
    local message, now = self:receive()
    if message.id == id then
      if message.error then error(message.error.message, 0) end
      return message.result, now
    end
    if on_other then on_other(message) end
  end
end

--- Returns the result and the milliseconds from the request's bytes to its answer's.
function Client:request(method, params, on_other)
  local text = core.json.encode { jsonrpc = "2.0", id = self.last_id + 1, method = method, params = params or {} }
  self.last_id = self.last_id + 1
  local started = loop.now_ms()
  self.input:write(text, "\n")
  self.input:flush()
  local result, now = self:answer(self.last_id, on_other)
  return result, now - started
end

--- Runs code to its successful end. Returns the structured result and milliseconds.
function Client:run(language, code, timeout_seconds)
  local result, ms = self:request("tools/call", { name = "run_code",
    arguments = { language = language, code = code, timeout_seconds = timeout_seconds } })
  local out = result.structuredContent
  if not out or out.status ~= "success" then error("run_code: " .. result.content[1].text, 0) end
  return out, ms
end

--- Sends n requests at once and waits for as many answers. Returns milliseconds.
-- Answers are told from the server's own messages by their bytes: decoding them
-- would take longer than some servers need to make them.
function Client:burst(method, n)
  local lines = {}
  for i = 1, n do
    self.last_id = self.last_id + 1
    lines[i] = core.json.encode { jsonrpc = "2.0", id = self.last_id, method = method, params = {} } .. "\n"
  end
  local text = table.concat(lines)
  local started = loop.now_ms()
  self.input:write(text)
  self.input:flush()
  while n > 0 do
    local line = self:read_line()
    if line:find('"error"', 1, true) and not line:find('"result"', 1, true) then error(line, 0) end
    if line:find('"result"', 1, true) then n = n - 1 end
  end
  return loop.now_ms() - started
end

--- The length of the answer to a request.
function Client:answer_bytes(method)
  self:send(method)
  while true do
    local line = self:read_line()
    if line:find('"result"', 1, true) then return #line end
  end
end

--- A number of /proc/PID/status in bytes: "VmRSS", "RssAnon", "VmHWM".
function Client:memory(field)
  local file <close> = assert(io.open(("/proc/%s/status"):format(self.pid)))
  local kib = file:read("a"):match("\n" .. field .. ":%s*(%d+) kB")
  return tonumber(kib) * 1024
end

--- What the server's threads did until now: wake-ups (voluntary switches), and
-- the milliseconds that they were on a CPU (proc(5), schedstat).
function Client:activity()
  local script = [[cd /proc/%s/task && cat */status | awk '/^voluntary_ctxt/ { n += $2 } END { print n }'
    cat */schedstat | awk '{ n += $1 } END { printf "%%d\n", n }']]
  local wakes, ns = shell.timed(script:format(self.pid)):match("^(%d+)%s+(%d+)")
  return tonumber(wakes), tonumber(ns) / 1e6
end

--- Makes VmHWM start anew at what is resident now (proc(5), clear_refs).
function Client:reset_peak()
  local file <close> = assert(io.open(("/proc/%s/clear_refs"):format(self.pid), "w"))
  file:write("5")
end

--- Ends the server by the end of its input; that it ends well is checked.
function Client:close()
  local ok, how, code = self.input:close()
  self.output:close()
  if not ok then error(("the server ended with %s %s; its log is %s"):format(how, code, self.log), 0) end
end

return M
