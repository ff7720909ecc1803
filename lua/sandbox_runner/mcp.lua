--- The MCP server: one session with one client, without a transport.
--
-- Text comes in by session:handle, answers go out by the send function. Each
-- tool call runs in a task of its own, so that nothing waits for a run. This
-- file serves the revisions with the initialize handshake (LEGACY); what they
-- differ in is data.
local core = require "sandbox_runner.core"
local rpc = require "sandbox_runner.rpc"
local request = require "sandbox_runner.request"
local schema = require "sandbox_runner.schema"

local mcp = {}

local NEWEST = "2025-11-25"
local MAX_MALFORMED = 20      -- then silence: two broken peers must not feed each other
local PROGRESS_GAP_MS = 100
local MAX_CALLS = 1000        -- in flight at once; runs have a narrower gate of their own
local MAX_BATCH = 100
local MAX_BATCH_BYTES = 8 << 20
local TOO_LARGE = "the answers of this batch are too large for one line; send the calls one by one"
local ENVELOPE = "io.modelcontextprotocol/protocolVersion"
local UNSUPPORTED_VERSION = -32022

-- What a revision knows, beyond the first: members of a tool, of a tool result,
-- of serverInfo and of a progress notification, and whether it has batches.
local function version(tool, result, info, progress, batches)
  return { tool = tool, result = result, info = info, progress = progress, batches = batches }
end

local NEW_TOOL, NEW_INFO = { "annotations", "title", "outputSchema" }, { "title", "description" }

local LEGACY = {
  ["2024-11-05"] = version({}, {}, {}, {}),
  ["2025-03-26"] = version({ "annotations" }, {}, {}, { "message" }, true),
  ["2025-06-18"] = version(NEW_TOOL, { "structuredContent" }, { "title" }, { "message" }),
  ["2025-11-25"] = version(NEW_TOOL, { "structuredContent" }, NEW_INFO, { "message" }),
}

local INFO = { title = "SandboxRunner",
  description = "Runs code snippets in disposable, locked-down containers" }

local INSTRUCTIONS = "run_code runs a program in a fresh isolated container; "
  .. "list_supported_languages names the languages; get_execution_history shows past runs."

local NOT_INITIALIZED = "not initialized: send initialize first (revisions "
  .. schema.listing(schema.keys(LEGACY)) .. ")"

local Session = {}
Session.__index = Session

local function take(into, from, names)
  for _, name in ipairs(names) do into[name] = from[name] end
  return into
end

function Session:deliver(message)
  if not self.closed then self.send(core.json.encode(message)) end
end

local function error_id(self, what, trace)
  local id = core.sys.random_hex(4)
  self.log(("internal error %s in %s: %s"):format(id, what, trace), "error")
  return id
end

local function trace_of(thrown)
  if type(thrown) == "table" and thrown.code == "cancelled" then return thrown end
  return debug.traceback(tostring(thrown), 2)
end

-- Progress is the time since the call began, so it only ever grows; what the
-- runner says about its stage becomes the message and the expected end.
local function progress_reporter(self, call, token)
  local last, last_ms = 0, -math.huge
  return function(message, elapsed, total)
    local now = self.now_ms()
    if call.finished or call.cancelled or now - last_ms < PROGRESS_GAP_MS then return end
    last_ms = now
    last = math.max(math.floor(now - call.started_ms) / 1000, last + 0.001)
    local params = { progressToken = token, progress = last }
    if total and total > 0 then
      params.total = math.max(last, math.floor((last + total - (elapsed or 0)) * 100) / 100)
    end
    take(params, { message = message }, self.rules.progress)
    self:deliver(rpc.notification("notifications/progress", params))
  end
end

local function progress_token(params)
  local meta = params._meta
  local token = rpc.is_object(meta) and meta.progressToken
  if type(token) == "string" or math.type(token) == "integer" then return token end
end

local function refusal(text)
  return { content = core.json.array { { type = "text", text = text } }, isError = true }
end

local function tool_result(rules, value)
  local out = { content = core.json.array { { type = "text", text = core.json.encode(value) } },
    isError = false }
  return take(out, { structuredContent = value }, rules.result)
end

-- The end of a call, whatever it was; only here it leaves the tables.
local function finish(self, call, answer)
  call.finished = true
  if self.calls[call.key] == call then self.calls[call.key] = nil end
  self.running[call] = nil
  call.reply(not call.cancelled and answer or nil)
  if not next(self.running) then self.on_idle() end
end

local function call_body(self, call, tool, arguments)
  if call.cancelled then return nil end
  local ctx = { progress = call.token and progress_reporter(self, call, call.token) }
  local value, text = tool.handler(self, arguments, ctx)
  if value == nil then return rpc.result(call.id, refusal(text)) end
  return rpc.result(call.id, tool_result(self.rules, value))
end

local function run_call(self, call, tool, arguments)
  local ok, answer = xpcall(call_body, trace_of, self, call, tool, arguments)
  if not ok then
    local cancelled = type(answer) == "table" -- see trace_of
    answer = not cancelled and rpc.error(call.id, rpc.INTERNAL_ERROR,
      ("internal error (id %s); the server's log has the details")
        :format(error_id(self, tool.name, answer))) or nil
  end
  finish(self, call, answer)
end

local function find_tool(self, name)
  for _, tool in ipairs(self.tools) do
    if tool.name == name then return tool end
  end
end

local function cancel(call, reason)
  call.cancelled = true
  if call.task then call.task:cancel(reason) end
end

-- methods: function(self, message, reply) -> result | nil, code, text, data.
-- A method that answers later returns DEFERRED and calls reply once.

local DEFERRED = {}
local METHODS = {}

local function bad_initialize(params)
  if type(params.protocolVersion) ~= "string" then return "protocolVersion must be a string" end
  if not rpc.is_object(params.capabilities) then return "capabilities must be an object" end
  local info = params.clientInfo
  if not rpc.is_object(info) or type(info.name) ~= "string" or type(info.version) ~= "string" then
    return "clientInfo must be an object with name and version"
  end
end

function METHODS.initialize(self, message)
  local why = bad_initialize(message.params)
  if why then return nil, rpc.INVALID_PARAMS, "initialize: " .. why end
  local asked = message.params.protocolVersion
  self.version = LEGACY[asked] and asked or NEWEST
  self.rules = LEGACY[self.version]
  local info = take({ name = "sandbox-runner", version = core.version }, INFO, self.rules.info)
  return { protocolVersion = self.version, capabilities = { tools = {} }, serverInfo = info,
    instructions = INSTRUCTIONS }
end

function METHODS.ping() return {} end

local function published(tool, rules)
  local out = { name = tool.name, description = tool.description,
    inputSchema = schema.to_json(tool.input) }
  return take(out, { title = tool.title, annotations = tool.annotations,
    outputSchema = schema.to_json(tool.output) }, rules.tool)
end

METHODS["tools/list"] = function(self, message)
  if rpc.optional(message.params.cursor) ~= nil then
    return nil, rpc.INVALID_PARAMS, "tools/list has one page; this cursor was not issued here"
  end
  if self.published_rules ~= self.rules then
    local list = core.json.array {}
    for i, tool in ipairs(self.tools) do list[i] = published(tool, self.rules) end
    self.published, self.published_rules = core.json.encoded { tools = list }, self.rules
  end
  return self.published
end

local function bad_call(self, params)
  if type(params.name) ~= "string" then return "tools/call: name must be a string" end
  local arguments = rpc.optional(params.arguments)
  if arguments ~= nil and not rpc.is_object(arguments) then
    return "tools/call: arguments must be an object"
  end
  if not find_tool(self, params.name) then
    local names = {}
    for i, tool in ipairs(self.tools) do names[i] = tool.name end
    return ("unknown tool %s; known are %s"):format(schema.show(params.name),
      schema.listing(names))
  end
end

METHODS["tools/call"] = function(self, message, reply)
  local params = message.params
  local why = bad_call(self, params)
  if why then return nil, rpc.INVALID_PARAMS, why end
  if message.nul then return refusal(request.NUL_TEXT) end
  if self:in_flight() >= MAX_CALLS then
    return refusal(("%d calls are in flight; wait for some of them."):format(MAX_CALLS))
  end
  local call = { id = message.id, key = message.key, reply = reply, started_ms = self.now_ms(),
    token = progress_token(params) }
  self.calls[call.key], self.running[call] = call, true
  local tool, arguments = find_tool(self, params.name), rpc.optional(params.arguments) or {}
  call.task = self.spawn(function() run_call(self, call, tool, arguments) end)
  return DEFERRED
end

-- Not advertised; but some hosts drop a server that answers an error here.
for method, member in pairs { ["resources/list"] = "resources",
  ["resources/templates/list"] = "resourceTemplates", ["prompts/list"] = "prompts" } do
  METHODS[method] = function() return { [member] = core.json.array {} } end
end

local BEFORE_INITIALIZE = { initialize = true, ping = true }

local function claimed_version(params)
  local meta = params._meta
  return rpc.is_object(meta) and meta[ENVELOPE]
end

-- Why a request is not served at all: code, text, data; or nil.
local function refuse_request(self, message)
  if self.calls[message.key] then
    return rpc.INVALID_REQUEST, "a call with this id is still in flight"
  end
  local claimed = claimed_version(message.params)
  if claimed then
    return UNSUPPORTED_VERSION, "this server speaks the revisions with initialize only",
      { supported = core.json.array { NEWEST }, requested = claimed }
  end
  if not METHODS[message.method] then
    return rpc.METHOD_NOT_FOUND, "unknown method " .. schema.show(message.method)
  end
  if not self.rules and not BEFORE_INITIALIZE[message.method] then
    return rpc.INVALID_PARAMS, NOT_INITIALIZED
  end
  if message.nul and message.method ~= "tools/call" then
    return rpc.INVALID_PARAMS, "a string contains a NUL character (U+0000)"
  end
end

local function serve(self, message, reply)
  local code, text, data = refuse_request(self, message)
  local result
  if not code then result, code, text, data = METHODS[message.method](self, message, reply) end
  if result == DEFERRED then return end
  if result == nil then return reply(rpc.error(message.id, code, text, data)) end
  reply(rpc.result(message.id, result))
end

-- A request is answered whatever happens to us.
local function dispatch_request(self, message, reply)
  local ok, trace = xpcall(serve, debug.traceback, self, message, reply)
  if ok then return end
  local id = error_id(self, message.method, trace)
  reply(rpc.error(message.id, rpc.INTERNAL_ERROR,
    ("internal error (id %s); the server's log has the details"):format(id)))
end

local function dispatch_notification(self, message)
  if message.method ~= "notifications/cancelled" then return end
  local key = rpc.cancelled_key(message)
  local call = key and self.calls[key]
  if not call then return end
  self.calls[key] = nil
  cancel(call, "cancelled by the client")
end

local function dispatch(self, message, reply)
  if message.kind == "request" then return dispatch_request(self, message, reply) end
  if message.kind == "notification" then
    dispatch_notification(self, message)
  elseif message.kind == "bad" then
    return reply(rpc.error(message.id, message.code, message.message))
  end
  reply(nil)
end

-- Answers of a batch go out together, when the last is there. They are kept as
-- text: what is too large for one line is refused at once, not held.
local function dispatch_batch(self, items)
  local answers, missing, bytes = {}, #items, 0
  local function add(answer)
    local text = core.json.encode(answer)
    if bytes + #text > MAX_BATCH_BYTES then
      text = core.json.encode(rpc.error(answer.id, rpc.INTERNAL_ERROR, TOO_LARGE))
    end
    bytes = bytes + #text
    answers[#answers + 1] = text
  end
  local function reply(answer)
    missing = missing - 1
    if answer then add(answer) end
    if missing == 0 and #answers > 0 and not self.closed then
      self.send("[" .. table.concat(answers, ",") .. "]")
    end
  end
  for _, item in ipairs(items) do
    if item.kind == "request" and item.method == "initialize" then
      item = { kind = "bad", code = rpc.INVALID_REQUEST, id = item.id,
        message = "initialize must not be in a batch" }
    end
    dispatch(self, item, reply)
  end
end

local function refuse_batch(self, message)
  if not (self.rules and self.rules.batches) then
    return "batches exist in revision 2025-03-26 only; send one message a line"
  elseif #message.items == 0 then
    return "an empty batch"
  elseif #message.items > MAX_BATCH then
    return ("a batch may hold %d messages"):format(MAX_BATCH)
  end
end

local function count_malformed(self, message)
  if message.kind == "bad" and message.code ~= rpc.INVALID_PARAMS then
    self.malformed = self.malformed + 1
  elseif message.kind ~= "blank" then
    self.malformed = 0
  end
  return self.malformed <= MAX_MALFORMED
end

--- Takes one message (a line without its end, or a body). Never throws for what
-- is in it; answers go to send, now or later.
function Session:handle(text)
  if self.closed then return end
  local message = rpc.parse(text, self.rules ~= nil and self.rules.batches)
  if message.kind == "batch" then
    local why = refuse_batch(self, message)
    if not why then
      self.malformed = 0
      return dispatch_batch(self, message.items)
    end
    message = { kind = "bad", code = rpc.INVALID_REQUEST, message = why }
  end
  if not count_malformed(self, message) then return end
  dispatch(self, message, function(answer)
    if answer then self:deliver(answer) end
  end)
end

--- The transport met a message longer than `limit` bytes and skipped it; token
-- is its raw id, when it could be found (core.json.raw_id of its start).
function Session:oversized(limit, token)
  local message = { kind = "bad", code = rpc.INVALID_REQUEST, id = token,
    message = ("a message may be %d bytes long at most"):format(limit) }
  if self.closed or not count_malformed(self, message) then return end
  self:deliver(rpc.error(token, message.code, message.message))
end

--- How many calls have not ended, cancelled ones that still clean up included.
function Session:in_flight()
  local n = 0
  for _ in pairs(self.running) do n = n + 1 end
  return n
end

--- Cancels every call; none of them is answered any more.
function Session:cancel_all(reason)
  for call in pairs(self.running) do cancel(call, reason or "the server stops") end
end

--- Ends the session: calls are cancelled, nothing more is sent or taken.
function Session:close(reason)
  self.closed = true
  self:cancel_all(reason)
end

--- A session. options: config, tools (tools.list(config)), runner (run(self,
-- request, ctx)), history (history.open), send(text), spawn(fn) -> task with
-- task:cancel(reason), now_ms() monotonic, log(text, level).
function mcp.new(options)
  local session = { calls = {}, running = {}, malformed = 0, closed = false,
    on_idle = options.on_idle or function() end }
  for _, name in ipairs { "config", "tools", "runner", "history", "send", "spawn", "now_ms",
    "log" } do
    session[name] = assert(options[name], name .. " is missing")
  end
  return setmetatable(session, Session)
end

return mcp
