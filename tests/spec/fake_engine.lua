--- A Docker engine for specs, in a process of its own: enough of the Engine API
-- for run.lua, with an agent inside that plays a script.
--
--   lua5.4 fake_engine.lua FOLDER
--
-- FOLDER/engine.sock is where it listens, FOLDER/script.lua says how it behaves
-- (read anew for each request), FOLDER/verbs gets one line per request. It ends
-- when the script's file is gone.
--
-- The script returns { [verb] = step or {step, step...; the last one stays},
-- agent = {action...} or {{action...}...}, images = {name = true}, labels = {name =
-- JSON}, ... }. A step is {status=, message=, body=, delay=seconds, done=true,
-- stall=true, cut=true}.

local socket = require "socket"
local unix = require "socket.unix"

local folder = assert(arg[1], "usage: fake_engine.lua FOLDER")
local tasks, containers, counts, volumes, pulled = {}, {}, {}, {}, {}
local script = {}

local function record(verb, detail)
  local file = assert(io.open(folder .. "/verbs", "a"))
  file:write(verb, "\t", (detail or ""):gsub("[\r\n]", " "), "\n")
  file:close()
end

local function wait_until(condition)
  while not condition() do coroutine.yield() end
end

local function pause(seconds)
  local due = socket.gettime() + seconds
  wait_until(function() return socket.gettime() >= due end)
end

local Conn = {}
Conn.__index = Conn

function Conn:send(data)
  local at = 1
  while at <= #data do
    local sent, why, partial = self.socket:send(data, at)
    at = (sent or partial or at - 1) + 1
    if why == "closed" then error("closed", 0) end
    if why then coroutine.yield() end
  end
end

--- Takes what has arrived without waiting; false at the end.
function Conn:poll()
  local data, why, partial = self.socket:receive(65536)
  self.buffer = self.buffer .. (data or partial or "")
  return why ~= "closed"
end

function Conn:need(n)
  while #self.buffer < n do
    if not self:poll() and #self.buffer < n then error("closed", 0) end
    if #self.buffer < n then coroutine.yield() end
  end
end

function Conn:take(n)
  self:need(n)
  local data = self.buffer:sub(1, n)
  self.buffer = self.buffer:sub(n + 1)
  return data
end

function Conn:line()
  local at = self.buffer:find("\r\n", 1, true)
  while not at do
    self:need(#self.buffer + 1)
    at = self.buffer:find("\r\n", 1, true)
  end
  return self:take(at + 1):sub(1, -3)
end

local function read_body(conn, headers)
  if headers["transfer-encoding"] ~= "chunked" then return conn:take(tonumber(headers["content-length"] or "0")) end
  local parts = {}
  while true do
    local n = tonumber(conn:line(), 16)
    parts[#parts + 1] = conn:take(n)
    conn:line()
    if n == 0 then return table.concat(parts) end
  end
end

local function read_request(conn)
  local method, path = conn:line():match("^(%u+) (%S+)")
  local headers = {}
  for line in function() return conn:line() end do
    if line == "" then break end
    local name, value = line:match("^([^:]+):%s*(.*)$")
    headers[name:lower()] = value
  end
  local request = { method = method, path = path:gsub("^/v1%.%d+", ""), headers = headers }
  request.body = read_body(conn, headers)
  return request
end

local function answer(conn, status, body, more)
  conn:send(("HTTP/1.1 %d X\r\nApi-Version: %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s")
    :format(status, script.api or "1.41", more or "", #body, body))
end

local function refuse(conn, status, message)
  answer(conn, status, ('{"message":"%s"}'):format(message))
end

-- The agent: frames of src/agent/wire.h inside the frames of the attach stream.

local function wire(kind, payload) return string.pack(">c1s4", kind, payload) end

local function say(conn, stream, bytes) conn:send(string.pack(">Bxxxs4", stream, bytes)) end

local ENDS = { exit = 0, signal = 1, wall = 2, killed = 3 }

local function report(fields)
  return wire("X", string.pack(">BBI4I8I8I8I8I8", ENDS[fields.finish or "exit"], fields.oom and 1 or 0,
    fields.code or 0, fields.wall_us or 1000, fields.cpu_us or 500, fields.peak_bytes or 1 << 20,
    fields.out or 0, fields.err or 0))
end

local function vanish(container)
  container.state = "gone"
  containers[container.name] = nil
end

--- The next frame of the server that is complete, or nil.
local function next_frame(conn)
  if #conn.buffer < 5 then return nil end
  local kind, n = string.unpack(">c1I4", conn.buffer)
  if #conn.buffer < 5 + n then return nil end
  local payload = conn.buffer:sub(6, 5 + n)
  conn.buffer = conn.buffer:sub(6 + n)
  return kind, payload
end

--- Waits for a frame of this kind and records every one on the way. Returns false when
-- the container or the connection is gone.
local function await_frame(conn, container, wanted)
  while container.state ~= "gone" do
    local kind, payload = next_frame(conn)
    if kind then
      record("frame " .. kind, payload:gsub("[^\32-\126]", "."))
      if kind == wanted then return true end
    elseif not conn:poll() and #conn.buffer == 0 then
      return false
    else
      coroutine.yield()
    end
  end
  return false
end

local actions = {}

function actions.out(conn, _, action) say(conn, 1, wire("O", action[2])) end
function actions.err(conn, _, action) say(conn, 1, wire("R", action[2])) end
function actions.words(conn, _, action) say(conn, 2, action[2]) end
function actions.raw(conn, _, action) conn:send(action[2]) end
function actions.failure(conn, _, action) say(conn, 1, wire("!", action[2])) end
function actions.exit(conn, _, action) say(conn, 1, report(action)) end

function actions.artifact(conn, _, action)
  say(conn, 1, wire("B", string.pack(">I8", #action[3]) .. action[2]) .. wire("D", action[3]))
end

function actions.missing(conn, _, action) say(conn, 1, wire("N", string.char(action[3]) .. action[2])) end

function actions.sleep(_, container, action)
  local due = socket.gettime() + action[2]
  wait_until(function() return container.state == "gone" or socket.gettime() >= due end)
end

--- Says nothing more, and ends with its stream as the agent does.
function actions.silent(conn, container)
  wait_until(function() return container.state == "gone" or not conn:poll() end)
end

--- Nothing ends it but a kill.
function actions.stubborn(_, container)
  wait_until(function() return container.state == "gone" end)
end

--- Waits for the server's K frame and reports as the agent does.
function actions.killable(conn, container)
  if await_frame(conn, container, "K") then say(conn, 1, report { finish = "killed" }) end
end

function actions.cut() error("cut", 0) end

local function pick(list, n)
  if type(list) ~= "table" or list[1] == nil then return list or {} end
  if type(list[1]) ~= "table" then return list end
  return list[math.min(n, #list)]
end

local function play(conn, container)
  wait_until(function() return container.state ~= "created" end)
  counts.agent = (counts.agent or 0) + 1
  local list = script.agent or { { "exit" } }
  if type(list[1][1]) == "table" then list = list[math.min(counts.agent, #list)] end
  if list[1][1] ~= "mute" then
    say(conn, 1, wire("H", "\1"))
    if not await_frame(conn, container, "S") then return end
  end
  for _, action in ipairs(list) do
    if container.state == "gone" then return end
    if actions[action[1]] then actions[action[1]](conn, container, action) end
  end
end

local handlers = {}

function handlers.ping(conn) answer(conn, 200, "OK") end

function handlers.info(conn)
  answer(conn, 200, ('{"SystemTime":"%s"}'):format(script.clock or os.date("!%Y-%m-%dT%H:%M:%S.123456789Z")))
end

function handlers.image(conn, name)
  name = name:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end)
  if not (script.images or {})[name] and not pulled[name] then return refuse(conn, 404, "No such image: " .. name) end
  answer(conn, 200, ('{"Id":"sha256:%s","Config":{"Volumes":%s,"Labels":%s}}'):format(name, script.volumes or "null",
    (script.labels or {})[name] or "null"))
end

function handlers.volume(conn, name)
  if not volumes[name] and not script.has_agent then return refuse(conn, 404, "no such volume") end
  answer(conn, 200, "{}")
end

function handlers.create_volume(conn, _, request)
  volumes[request.body:match('"Name":"([^"]*)"')] = true
  answer(conn, 201, "{}")
end

function handlers.list_volumes(conn)
  answer(conn, 200, script.volume_list or '{"Volumes":null,"Warnings":null}')
end

function handlers.remove_volume(conn) answer(conn, 204, "") end

function handlers.create(conn, name)
  if containers[name] then return refuse(conn, 409, "name in use") end
  containers[name] = { name = name, state = "created" }
  answer(conn, 201, script.create_text or ('{"Id":"%s","Warnings":[]}'):format(name))
end

function handlers.put_archive(conn) answer(conn, 200, "") end

function handlers.attach(conn, name)
  local container = containers[name]
  if not container then return refuse(conn, 404, "No such container: " .. name) end
  conn:send("HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
  local ok, why = pcall(play, conn, container)
  if not ok and why ~= "closed" and why ~= "cut" then io.stderr:write("agent: ", tostring(why), "\n") end
  if container.state == "running" then vanish(container) end
  error("closed", 0)
end

local function known(handler)
  return function(conn, name, request)
    local container = containers[name]
    if not container then return refuse(conn, 404, "No such container: " .. name) end
    return handler(conn, container, request)
  end
end

handlers.start = known(function(conn, container)
  container.state = "running"
  answer(conn, 204, "")
end)
handlers.inspect = known(function(conn, container)
  answer(conn, 200, ('{"State":{"Running":%s}}'):format(container.state == "running"))
end)
handlers.update = known(function(conn) answer(conn, 200, "{}") end)
handlers.kill = known(function(conn, container)
  if not script.unkillable then vanish(container) end
  answer(conn, 204, "")
end)
handlers.remove = known(function(conn, container)
  vanish(container)
  answer(conn, 204, "")
end)
handlers.wait = known(function(conn, container)
  wait_until(function() return container.state == "gone" end)
  answer(conn, 200, '{"StatusCode":0}')
end)

function handlers.events(conn) answer(conn, 200, script.events_text or "") end
function handlers.list(conn) answer(conn, 200, script.containers or "[]") end

function handlers.pull(conn, name)
  name = name:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end)
  local text = script.pull_text or '{"status":"done"}\r\n'
  if not text:find '"error"' then pulled[name:gsub("&tag=", ":")] = true end
  conn:send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
  for i = 1, #text, 7 do -- cut anywhere
    local part = text:sub(i, i + 6)
    conn:send(("%x\r\n%s\r\n"):format(#part, part))
  end
  conn:send("0\r\n\r\n")
end

function handlers.import(conn, _, request)
  record("imported", #request.body .. " " .. request.body:sub(1, 40))
  answer(conn, 200, script.import_text or '{"status":"sha256:1"}\r\n')
end

function handlers.build(conn, _, request)
  record("built", request.body)
  answer(conn, 200, script.build_text or '{"stream":"Step 1/3"}\r\n')
end

local ROUTES = {
  { "POST", "^/build%?(.*)$", "build" },
  { "GET", "^/_ping$", "ping" }, { "GET", "^/info$", "info" }, { "GET", "^/images/(.+)/json$", "image" },
  { "POST", "^/images/create%?fromImage=(.*)$", "pull" }, { "POST", "^/images/create%?fromSrc=(.*)$", "import" },
  { "POST", "^/volumes/create$", "create_volume" }, { "GET", "^/volumes/(.+)$", "volume" },
  { "GET", "^/volumes%?", "list_volumes" }, { "DELETE", "^/volumes/(.+)$", "remove_volume" },
  { "GET", "^/containers/([^/]+)/json$", "inspect" },
  { "GET", "^/events", "events" }, { "GET", "^/containers/json", "list" },
  { "POST", "^/containers/create%?name=(.+)$", "create" },
  { "PUT", "^/containers/([^/]+)/archive", "put_archive" },
  { "POST", "^/containers/([^/]+)/attach", "attach" }, { "POST", "^/containers/([^/]+)/start", "start" },
  { "POST", "^/containers/([^/]+)/kill", "kill" }, { "POST", "^/containers/([^/]+)/wait", "wait" },
  { "POST", "^/containers/([^/]+)/update", "update" }, { "DELETE", "^/containers/([^/?]+)", "remove" },
}

local function find_route(request)
  for _, route in ipairs(ROUTES) do
    local name = request.method == route[1] and request.path:match(route[2])
    if name then return route[3], name end
  end
  error("no route for " .. request.method .. " " .. request.path, 0)
end

local function handle(conn, request)
  local verb, name = find_route(request)
  if not (verb == "create" and request.body:find('sandbox-runner.run":"agent"', 1, true)) then
    counts[verb] = (counts[verb] or 0) + 1
  end
  record(verb, name .. "\t" .. (verb == "create" and request.body or ""))
  local chunk = loadfile(folder .. "/script.lua")
  script = chunk and chunk() or script
  local step = pick(script[verb], counts[verb] or 0)
  if step.delay then pause(step.delay) end
  if step.done then -- the work is done although the answer never comes
    handlers[verb]({ send = function() end }, name, request)
  end
  if step.stall then wait_until(function() return not conn:poll() end) end
  if step.cut then error("closed", 0) end
  if step.status then return refuse(conn, step.status, step.message or "refused") end
  if step.body then return answer(conn, 200, step.body) end
  handlers[verb](conn, name, request)
end

local function serve(client)
  client:settimeout(0)
  local conn = setmetatable({ socket = client, buffer = "" }, Conn)
  local ok, why
  repeat
    ok, why = pcall(function() handle(conn, read_request(conn)) end)
  until not ok
  if why ~= "closed" then io.stderr:write("fake engine: ", tostring(why), "\n") end
  client:close()
end

local listener = assert(unix.stream())
assert(listener:bind(folder .. "/engine.new"))
assert(listener:listen(32))
os.rename(folder .. "/engine.new", folder .. "/engine.sock") -- not to be seen before it listens
listener:settimeout(0)

local function exists(path)
  local file = io.open(path)
  if file then file:close() end
  return file ~= nil
end

while exists(folder .. "/script.lua") do
  local client = listener:accept()
  if client then tasks[coroutine.create(function() serve(client) end)] = true end
  for task in pairs(tasks) do
    local ok, why = coroutine.resume(task)
    if not ok then io.stderr:write(tostring(why), "\n") end
    if coroutine.status(task) == "dead" then tasks[task] = nil end
  end
  socket.sleep(0.001)
end
