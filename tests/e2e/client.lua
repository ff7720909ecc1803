--- A raw MCP client: starts a server on stdio and speaks JSON-RPC lines with it.
--
-- The server's stdin is a pipe of io.popen, its stdout a FIFO, its stderr a
-- file. It runs under `timeout`, so that no read here waits for ever, with a
-- state folder of its own that goes when the client closes. Every line that the
-- server writes must be one JSON value; anything else is an error at once.
local core = require "sandbox_runner.core"
local json = require "e2e.json"

local client = { json = json }
local Client = {}
Client.__index = Client

--- Text of an init.lua for tests that count sandboxes: none is started ahead.
client.no_pool = "pool.size = 0"

--- A program that the compiler needs many seconds for, and little memory.
client.slow_cpp = [[
constexpr int spin(int n) {
    int s = 0;
    for (int i = 0; i < n; ++i) for (int j = 0; j < 1000; ++j) s ^= i + j;
    return s;
}
constexpr int a = spin(3000), b = spin(3001), c = spin(3002), d = spin(3003);
int main() { return a + b + c + d == 0; }]]

-- The sanitizers make the server several times slower.
client.slow = core.sys.getenv("SR_FLAVOUR") == "asan" and 4 or 1

function client.quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end
local quote = client.quote

function client.now_ms() return core.loop.now_ms() end

--- Waits without running anything.
function client.sleep(seconds) os.execute(("sleep %g"):format(seconds)) end

--- Polls fn until it returns something true or the seconds are over; returns that.
function client.eventually(seconds, fn)
  local last = client.now_ms() + seconds * 1000
  while true do
    local value = fn()
    if value or client.now_ms() > last then return value end
    client.sleep(0.05)
  end
end

--- Runs fn, which returns milliseconds, until they are below the limit: up to five
-- times, as a busy machine may be slow once. Throws when they never are.
function client.within(limit_ms, fn)
  local seen = {}
  for i = 1, 5 do
    local took = fn()
    if took < limit_ms then return end
    seen[i] = ("%.1f"):format(took)
  end
  error(("never within %g ms: %s"):format(limit_ms, table.concat(seen, ", ")), 2)
end

function client.read_file(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read("a")
  file:close()
  return text
end

function client.write_file(path, text)
  local file = assert(io.open(path, "wb"))
  assert(file:write(text))
  file:close()
end

--- A new folder, to be removed with client.remove.
function client.folder()
  local base = core.sys.getenv("TMPDIR") or "/tmp"
  local path = ("%s/sandbox-runner-test-%s"):format(base, core.sys.random_hex(8))
  assert(core.sys.mkdir_p(path, 448))
  return path
end

function client.remove(path)
  assert(path:find("sandbox%-runner%-test%-"), path)
  os.execute("rm -rf " .. quote(path))
end

--- The program under test: named by SR_PROGRAM, else the one that runs this.
function client.program()
  return core.sys.getenv("SR_PROGRAM") or core.sys.exe()
end

local function words_of(options, folder)
  local words = { options.program or client.program() }
  local config = options.config
  if options.init then
    config = folder .. "/init.lua"
    client.write_file(config, options.init)
  end
  if config then words[#words + 1], words[#words + 2] = "--config", config end
  for _, word in ipairs(options.args or {}) do words[#words + 1] = word end
  for i, word in ipairs(words) do words[i] = quote(word) end
  return table.concat(words, " ")
end

local function environment(options, state)
  local parts = { "env", "XDG_STATE_HOME=" .. quote(state) }
  for _, name in ipairs(options.unset or {}) do table.insert(parts, 2, "-u " .. name) end
  for name, value in pairs(options.env or {}) do parts[#parts + 1] = name .. "=" .. quote(value) end
  return table.concat(parts, " ")
end

-- The lock files of the servers that use a state folder: instance -> true.
local function instances_in(state)
  local found = {}
  for _, name in ipairs(core.sys.list(state .. "/sandbox-runner/instances") or {}) do
    local instance = name:match("^(%x+)%.lock$")
    if instance then found[instance] = true end
  end
  return found
end

--- Starts a server and shakes hands with it.
-- options, all optional: init (text of an init.lua) or config (its path), args,
-- env, unset (names), cwd, seconds (its life at most, default 60), state (a
-- state folder that outlives the client), version (of the protocol), before
-- (shell words before the program, such as "setpriv ..."), mute (no handshake),
-- stderr_unread (stderr is a pipe that nobody reads), umask.
function client.start(options)
  options = options or {}
  local self = setmetatable({ answers = {}, others = {}, count = 0, last_id = 0 }, Client)
  self.folder = client.folder()
  self.state, self.stderr_unread = options.state or self.folder, options.stderr_unread
  self.earlier = instances_in(self.state)
  local fifo, pid = self.folder .. "/stdout", self.folder .. "/pid"
  assert(os.execute("mkfifo " .. quote(fifo)))
  if options.stderr_unread then assert(os.execute("mkfifo " .. quote(self.folder .. "/stderr"))) end
  local command = ("%scd %s && exec %s timeout -k 1 %d sh -c 'echo $$ >\"$0\"; exec %s \"$@\"' %s %s >%s 2%s%s"):format(
    options.umask and "umask " .. options.umask .. "; " or "", quote(options.cwd or "."),
    environment(options, self.state), math.ceil((options.seconds or 60) * client.slow), options.before or "",
    quote(pid), words_of(options, self.folder), quote(fifo), options.stderr_unread and "<>" or ">",
    quote(self.folder .. "/stderr"))
  self.started_ms = client.now_ms()
  self.input = assert(io.popen(command, "w"))
  self.input:setvbuf("full", 65536)
  self.output = assert(io.open(fifo, "rb"))
  if not options.mute then
    self:initialize(options.version)
    self:instance() -- while no later server shares the state folder
  end
  return self
end

--- The process id of the server.
function Client:pid()
  return tonumber(client.eventually(2, function()
    return (client.read_file(self.folder .. "/pid") or ""):match("%d+")
  end))
end

function Client:signal(name) os.execute(("kill -%s %d"):format(name, self:pid())) end

--- Whether the server runs.
function Client:alive() return core.sys.stat("/proc/" .. self:pid()) ~= nil end

function Client:stderr()
  if self.stderr_unread then return "" end
  return client.read_file(self.folder .. "/stderr") or ""
end

--- The name under which this server's sandboxes are labelled. It has one soon after
-- its first answer; nil when it gets no lock file.
function Client:instance()
  if self.known_instance then return self.known_instance end
  client.eventually(5, function()
    for instance in pairs(instances_in(self.state)) do
      if not self.earlier[instance] then self.known_instance = instance end
    end
    return self.known_instance
  end)
  return self.known_instance
end

--- Sends bytes as they are.
function Client:write(bytes)
  self.input:write(bytes)
  self.input:flush()
end

--- Sends one message: a table, or the text of a line.
function Client:send(message)
  self:write((type(message) == "table" and json.encode(message) or message) .. "\n")
end

--- Sends a request; returns its id.
function Client:request(method, params, id)
  if id == nil then
    self.last_id = self.last_id + 1
    id = self.last_id
  end
  self:send { jsonrpc = "2.0", id = id, method = method, params = params }
  return id
end

function Client:notify(method, params)
  self:send { jsonrpc = "2.0", method = method, params = params }
end

function Client:cancel(id, reason)
  self:notify("notifications/cancelled", { requestId = id, reason = reason })
end

local MEMBERS = { jsonrpc = true, id = true, result = true, error = true, method = true, params = true }

-- What every message has to be, so that no client drops it.
local function check_shape(message, line)
  local function must(ok, what)
    if not ok then error(what .. ": " .. line:sub(1, 300), 0) end
  end
  if getmetatable(message) == json.array_mt then
    must(message[1], "an empty batch")
    for _, item in ipairs(message) do check_shape(item, line) end
    return
  end
  must(message.jsonrpc == "2.0", "no jsonrpc")
  for name in pairs(message) do must(MEMBERS[name], "unknown member " .. name) end
  if message.method then return must(message.id == nil, "a request from the server") end
  must((message.result == nil) ~= (message.error == nil), "result and error")
  must(message.id ~= json.null, "a null id")
  if message.error then
    must(math.type(message.error.code) == "integer" and type(message.error.message) == "string", "bad error")
  else
    must(type(message.result) == "table" and message.id ~= nil, "bad result")
  end
end

local function keep(self, message, line)
  check_shape(message, line)
  self.count = self.count + 1
  if message.method == nil and message.id ~= nil and getmetatable(message) ~= json.array_mt then
    assert(self.answers[message.id] == nil, "answered twice: " .. line:sub(1, 200))
    self.answers[message.id] = message
  else
    self.others[#self.others + 1] = message
  end
  return message
end

--- Reads the next message of any kind; returns it and its line, nil at the end of the output.
function Client:read()
  local line = self.output:read("L")
  if not line then return nil end
  local message, why = json.decode(line)
  if line:sub(-1) ~= "\n" then why = "line without an end" end
  if type(message) ~= "table" or why then
    error(("not a message on stdout (%s): %s"):format(why or "no object", line:sub(1, 300)))
  end
  return keep(self, message, line), line
end

local function ended(self, what)
  error(("the server ended before %s; its log: %s"):format(what, self:stderr():sub(-2000)), 3)
end

--- The answer to a request, whenever it came; others are kept meanwhile.
function Client:wait(id)
  while self.answers[id] == nil do
    if not self:read() then ended(self, "it answered " .. tostring(id)) end
  end
  local answer = self.answers[id]
  self.answers[id] = nil
  return answer
end

--- The next message that is no answer: a notification, a batch, an error without id.
function Client:other()
  while #self.others == 0 do
    if not self:read() then ended(self, "it said anything") end
  end
  return table.remove(self.others, 1)
end

--- Sends the text of one line; returns the next message, whatever it is, and its line.
function Client:ask(text)
  self:send(text)
  local message, line = self:read()
  if not message then ended(self, "it answered " .. text:sub(1, 80)) end
  if message.id ~= nil then self.answers[message.id] = nil else table.remove(self.others) end
  return message, line
end

function Client:initialize(version)
  local id = self:request("initialize", { protocolVersion = version or "2025-11-25", capabilities = {},
    clientInfo = { name = "e2e", version = "1" } })
  self.hello = self:wait(id)
  self:notify("notifications/initialized")
  return self.hello
end

--- Milliseconds until a ping is answered.
function Client:ping()
  local id = self:request("ping")
  local started = client.now_ms()
  local answer = self:wait(id)
  assert(answer.result and next(answer.result) == nil, "a ping is answered with {}")
  return client.now_ms() - started
end

--- Sends a tool call; returns its id. meta: the _meta of its params.
function Client:post(tool, arguments, meta)
  return self:request("tools/call", { name = tool, arguments = arguments, _meta = meta })
end

--- Calls run_code; returns the id when the program has been started (with doing =
-- "compiling": the compiler).
function Client:begin(arguments, doing)
  self.begun = (self.begun or 0) + 1
  local token = "begin-" .. self.begun
  local id = self:post("run_code", arguments, { progressToken = token })
  while true do
    local message = table.remove(self.others, 1)
    local params = message and message.params
    if params and params.progressToken == token and params.message == (doing or "running") then return id end
    if self.answers[id] then error("answered before it began: " .. json.encode(self.answers[id]), 2) end
    if not message and not self:read() then ended(self, "it began") end
  end
end

--- Calls a tool; returns the result of the call (content, structuredContent, isError).
function Client:call(tool, arguments, meta)
  local answer = self:wait(self:post(tool, arguments, meta))
  if not answer.result then error("refused: " .. json.encode(answer.error), 2) end
  return answer.result
end

--- Runs code; returns the structured result, or nil and the text of a refusal.
function Client:run(language, code, timeout_seconds)
  local result = self:call("run_code", { language = language, code = code, timeout_seconds = timeout_seconds })
  if result.isError then return nil, result.content[1].text end
  return result.structuredContent
end

--- The rows of get_execution_history, or nil and the text of a refusal.
function Client:history(limit)
  local result = self:call("get_execution_history", { limit = limit })
  if result.isError then return nil, result.content[1].text end
  return result.structuredContent.result
end

--- Closes the server's stdin and waits for its end. Returns the exit status (128
-- + n for signal n; 124 or 137 when it had to be stopped) and the milliseconds
-- that it took. What it still wrote can be read from then on; folder() goes.
function Client:finish()
  local started = client.now_ms()
  local _, kind, code = self.input:close()
  self.input = nil
  local took = client.now_ms() - started
  while self.output and self:read() do end
  return kind == "signal" and 128 + code or code, took
end

--- Ends the server if need be and removes its folder. Returns as finish does; what
-- a sanitizer had to say is an error.
function Client:close()
  local status, took
  if self.input then status, took = self:finish() end
  if self.output then self.output:close() end
  self.output = nil
  local log = self:stderr()
  client.remove(self.folder)
  if log:find("Sanitizer", 1, true) or log:find(": runtime error: ", 1, true) then error(log, 2) end
  return status, took
end

return client
