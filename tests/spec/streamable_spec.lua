-- Streamable HTTP on the real httpd: who can be told something unasked, and who cannot.
local core = require "sandbox_runner.core"
local fake = require "spec.support.fake"
local here = require "spec.support.here"

local INIT = [[
tool "ask" { description = "asks the client",
  input = { type = "object", properties = {} },
  handler = function(_, ctx) return ctx.elicit { message = "well?",
    requestedSchema = { type = "object", properties = { answer = { type = "string" } } } }.content.answer end }]]

local CALL = { jsonrpc = "2.0", id = 1, method = "tools/call", params = { name = "ask" } }

-- Opens the stream of GET for what nobody asked for.
local function listen(place, headers)
  local client = place:connect()
  client:request("GET", "/mcp", { Accept = "text/event-stream", ["MCP-Session-Id"] = headers["MCP-Session-Id"] })
  client:wait "\r\n\r\n"
  return client
end

describe("a legacy client that takes JSON alone", function()
  it("cannot be asked without a stream of GET, and is told so at once", fake.task(function()
    local place <close> = here.start { init = INIT }
    local headers, entry = place:session { elicitation = {} }
    assert.is_false(entry.tell "{}")
    local client <close> = place:connect()
    client:post("/mcp", CALL, headers)
    local status, text = client:response() -- within 30 s, or this throws
    assert.equal(200, status)
    assert.matches("cannot be asked", text, 1, true)
  end))

  it("is asked on the stream of GET", fake.task(function()
    local place <close> = here.start { init = INIT }
    local headers = place:session { elicitation = {} }
    local stream <close> = listen(place, headers)
    local client <close> = place:connect()
    client:post("/mcp", CALL, headers)
    local id = stream:wait "elicitation/create":match '"id":"(server%-%d+)"'
    local answering <close> = place:connect()
    answering:post("/mcp", { jsonrpc = "2.0", id = id, result = { action = "accept", content = { answer = "so" } } },
      headers)
    assert.equal(202, (answering:response()))
    local status, text = client:response()
    assert.same({}, place.log)
    assert.equal(200, status)
    assert.matches('"text":"so"', text, 1, true)
  end))
end)

describe("a session", function()
  it("can be told something as long as its client has a stream or can come back to it", fake.task(function()
    local place <close> = here.start()
    local headers, entry = place:session()
    local stream <close> = listen(place, headers)
    assert.is_true(entry.tell '"there"')
    stream:wait '"there"'
    stream:close()
    fake.eventually(function() return not entry.channels[0].live end)
    assert.is_true(entry.tell '"away"')
    place.front.streamable.sessions:remove(entry, "over")
    assert.is_false(entry.tell '"over"')
  end))

  it("cannot when its client has never seen an id to come back with", fake.task(function()
    local place <close> = here.start()
    local headers, entry = place:session({}, "2025-06-18") -- knows no events without data
    listen(place, headers):close()
    fake.eventually(function() return entry.channels[0] and not entry.channels[0].live end)
    assert.is_false(entry.tell '"away"')
  end))

  it("is told when what its client comes back for is not kept any more", fake.task(function()
    local place <close> = here.start()
    local headers, entry = place:session()
    listen(place, headers):close()
    fake.eventually(function() return entry.channels[0] and not entry.channels[0].live end)
    for i = 1, 10001 do entry.tell(("%d"):format(i)) end
    for number, status in pairs { [0] = 400, [9000] = 200, [20000] = 400 } do
      local client <close> = place:connect()
      client:request("GET", "/mcp", { Accept = "text/event-stream", ["MCP-Session-Id"] = headers["MCP-Session-Id"],
        ["Last-Event-ID"] = ("0-%d"):format(number) })
      assert.matches("^HTTP/1.1 " .. status, client:wait "\r\n\r\n")
    end
  end))

  it("does not take all the places for streams that others may need", fake.task(function()
    local place <close> = here.start { http = { connections = 16 } }
    local streams = {}
    for i = 1, 5 do streams[i] = place:connect() end
    for i = 1, 5 do
      streams[i]:request("GET", "/mcp", { Accept = "text/event-stream",
        ["MCP-Session-Id"] = place:session()["MCP-Session-Id"] })
      assert.matches(i < 5 and "^HTTP/1.1 200" or "^HTTP/1.1 503", streams[i]:wait "\r\n\r\n")
    end
    for i = 1, 5 do streams[i]:close() end
  end))

  it("is refused for a while when all are at work, by the id of the request", fake.task(function()
    local place <close> = here.start { init = "http.sessions = 1" }
    local _, entry = place:session()
    place.front.streamable.sessions:enter(entry)
    local client <close> = place:connect()
    client:post("/mcp", { jsonrpc = "2.0", id = "mine", method = "initialize", params = {
      protocolVersion = "2025-11-25", capabilities = {}, clientInfo = { name = "spec", version = "1" } } })
    local status, text = client:response()
    assert.equal(503, status)
    assert.matches("\r\nRetry%-After: 5\r\n", text)
    assert.equal("mine", core.json.decode(text:match "\r\n\r\n(.*)$").id)
  end))
end)
