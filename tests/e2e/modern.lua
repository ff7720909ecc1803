--- Revision 2026-07-28 for the raw client: its envelope, its calls, its tasks.
local client = require "e2e.client"

local json = client.json

local modern = {}

local PREFIX = "io.modelcontextprotocol/"
modern.REVISION, modern.TASKS = "2026-07-28", PREFIX .. "tasks"

-- Members of _meta.
modern.VERSION, modern.CAPABILITIES = PREFIX .. "protocolVersion", PREFIX .. "clientCapabilities"
modern.INFO, modern.LEVEL = PREFIX .. "clientInfo", PREFIX .. "logLevel"
modern.SUBSCRIPTION, modern.SERVER_INFO = PREFIX .. "subscriptionId", PREFIX .. "serverInfo"

--- The _meta of a request. more: members that are added or replaced.
function modern.envelope(more)
  local meta = { [modern.VERSION] = modern.REVISION, [modern.CAPABILITIES] = {},
    [modern.INFO] = { name = "e2e", version = "1" } }
  for key, value in pairs(more or {}) do meta[key] = value end
  return meta
end

--- Sends a request; returns its id.
function modern.post(server, method, params, more, id)
  local with = { _meta = modern.envelope(more) }
  for key, value in pairs(params or {}) do with[key] = value end
  return server:request(method, with, id)
end

--- Sends a request and waits for its answer.
function modern.ask(server, method, params, more)
  return server:wait(modern.post(server, method, params, more))
end

--- Sends a tool call; with: further params. Returns its id.
function modern.post_tool(server, name, arguments, more, with)
  local params = { name = name, arguments = arguments or {} }
  for key, value in pairs(with or {}) do params[key] = value end
  return modern.post(server, "tools/call", params, more)
end

function modern.ask_tool(server, name, arguments, more, with)
  return server:wait(modern.post_tool(server, name, arguments, more, with))
end

--- Arguments of run_code.
function modern.python(code, seconds) return { language = "python", code = code, timeout_seconds = seconds } end

function modern.sleeping(seconds)
  return modern.python(("import time; time.sleep(%g); print('slept')"):format(seconds), 30)
end

--- The error code of an answer, or all of it for a message.
function modern.code_of(answer) return answer.error and answer.error.code or json.encode(answer) end

--- The text of a tool result, or all of the answer for a message.
function modern.text_of(answer)
  return answer.result and answer.result.content and answer.result.content[1].text or json.encode(answer)
end

--- Starts a server without a handshake whose sandboxes can be asked for.
function modern.start(options)
  options.mute = true
  local server = client.start(options)
  modern.ask(server, "server/discover")
  assert(client.eventually(5, function() return server:instance() end), "the server has no instance")
  return server
end

--- Calls fn(server) with a server of its own.
function modern.with(options, fn)
  local server = client.start(options)
  local ok, why = pcall(fn, server)
  server:close()
  if not ok then error(why, 0) end
end

return modern
