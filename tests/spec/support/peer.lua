--- A server with one client in this process, for specs of the protocol: the
-- real modules on the real loop, but a runner that runs nothing.
local catalog = require "sandbox_runner.catalog"
local core = require "sandbox_runner.core"
local fake = require "spec.support.fake"
local mcp = require "sandbox_runner.mcp"
local settings = require "sandbox_runner.settings"

local peer = {}

--- A client of a server with these init.lua settings. options: sessions of the
-- same server (server), its client key (client). Fields: server, session, sent
-- (decoded messages, in order), log.
function peer.new(init, options)
  options = options or {}
  local p = { sent = {}, log = {} }
  local config = assert(settings.parse(init or "", "init.lua"))
  p.server = options.server or mcp.server { config = config, catalog = catalog.new(config), spawn = core.loop.spawn,
    runner = { run = function() error "nothing runs here" end, image_in_use = function() end },
    history = { record = function() end, recent = function() return core.json.array {} end },
    now_ms = core.loop.now_ms, log = function(text) p.log[#p.log + 1] = text end }
  local function take(text)
    p.sent[#p.sent + 1] = assert(core.json.decode(text))
    if p.waiter then p.waiter:set(true) end
  end
  p.sink = { send = take, reply = function(text) if text then take(text) end end }
  p.session = p.server:session { client = options.client or "spec", notify = take }

  --- Sends one message (a table).
  function p.send(message)
    message.jsonrpc = "2.0"
    p.session:handle(core.json.encode(message), p.sink)
  end

  --- Awaits the first message for which is(message) holds, from `from` on.
  function p.await(is, from)
    local at = from or 1
    while true do
      for i = at, #p.sent do
        if is(p.sent[i]) then return p.sent[i], i end
      end
      at = #p.sent + 1
      p.waiter = core.loop.event()
      assert(p.waiter:wait(2000), "no such message came")
    end
  end

  --- Sends a request and awaits its answer.
  function p.ask(method, params, id)
    id = id or "id-" .. #p.sent
    local from = #p.sent + 1
    p.send { id = id, method = method, params = params }
    return p.await(function(message) return message.id == id and not message.method end, from)
  end

  --- The legacy handshake.
  function p.initialize(version, capabilities)
    return p.ask("initialize", { protocolVersion = version or "2025-11-25", capabilities = capabilities or {},
      clientInfo = { name = "spec", version = "1" } })
  end

  --- A request of revision 2026-07-28: params with the envelope.
  function p.modern(method, params, meta, id)
    params = params or {}
    params._meta = { ["io.modelcontextprotocol/protocolVersion"] = "2026-07-28",
      ["io.modelcontextprotocol/clientCapabilities"] = {} }
    for key, value in pairs(meta or {}) do params._meta[key] = value end
    return p.ask(method, params, id)
  end
  return p
end

--- A test body that gets a peer and runs inside the loop.
function peer.run(init, fn)
  return fake.task(function() fn(peer.new(init)) end)
end

return peer
