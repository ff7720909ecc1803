-- The HTTP transports against the real program and the real engine: who is let in,
-- sessions, streams, both eras. How it lives and ends: http_life_spec.lua; what
-- strangers may do: http_abuse_spec.lua.
local client = require "e2e.client"
local http = require "e2e.http_client"
local sandboxes = require "e2e.sandboxes"

local INIT = require "e2e.http_tools"
local json = http.json

local server

local function code_of(response)
  return response.json and response.json.error and response.json.error.code
end

local function text_of(response)
  return response.json.result.content[1].text
end

describe("HTTP", function()
  setup(function() server = http.start { init = INIT } end)
  teardown(function() assert.equal(0, (server:close())) end)

  describe("at the door", function()
    local paths = { { "POST", "/mcp" }, { "GET", "/mcp" }, { "DELETE", "/mcp" }, { "GET", "/sse" },
      { "POST", "/messages/" }, { "GET", "/healthz" }, { "GET", "/metrics" }, { "GET", "/nowhere" } }

    it("refuses foreign hosts and origins on every path and by every method", function()
      for _, one in ipairs(paths) do
        for _, headers in ipairs { { Host = "evil.example" }, { Host = "evil.example:" .. server.port },
          { Origin = "http://evil.example" }, { Origin = "null" } } do
          local response = server:http(one[1], one[2], http.headers(headers), one[1] == "POST" and "{}" or nil)
          assert.equal(403, response.status)
          assert.is_nil(response.headers["access-control-allow-origin"])
        end
      end
    end)

    it("takes local ones", function()
      for _, headers in ipairs { { Host = "localhost" }, { Host = "[::1]:1" }, { Origin = "http://localhost:1234" },
        { Origin = "https://127.0.0.1" } } do
        local response = server:post(http.initialize(), headers)
        assert.equal(200, response.status)
        assert.is_nil(response.headers["access-control-allow-origin"])
      end
    end)

    it("answers 404 for other paths and 405 with Allow for other methods", function()
      assert.equal(404, server:http("GET", "/").status)
      assert.equal(404, server:http("POST", "/mcp/x", http.headers(), "{}").status)
      for _, method in ipairs { "PUT", "PATCH", "OPTIONS", "HEAD" } do
        local response = server:http(method, "/mcp")
        assert.equal(405, response.status)
        assert.equal("DELETE, GET, POST", response.headers.allow)
      end
      assert.equal("GET", server:http("POST", "/sse", http.headers(), "{}").headers.allow)
    end)

    it("serves /mcp/ like /mcp", function()
      assert.equal(200, server:http("POST", "/mcp/", http.headers(), json.encode(http.initialize())).status)
    end)

    it("tells how it is", function()
      local response = server:http("GET", "/healthz")
      assert.equal(200, response.status)
      assert.equal("ok", response.json.status)
      assert.equal(200, server:http("GET", "/metrics").status)
    end)
  end)

  describe("a POST", function()
    it("must be JSON by its type", function()
      for _, kind in ipairs { "text/plain", "application/x-www-form-urlencoded", "application/json-rpc", false } do
        assert.equal(415, server:post(http.initialize(), { ["Content-Type"] = kind }).status)
      end
      assert.equal(415, server:post(http.initialize(), { ["Content-Encoding"] = "gzip" }).status)
      assert.equal(200, server:post(http.initialize(), { ["Content-Type"] = "Application/Json; charset=utf-8" }).status)
    end)

    it("must accept something that we have", function()
      assert.equal(406, server:post(http.initialize(), { Accept = "text/html" }).status)
      for _, accept in ipairs { "application/json", "*/*", "application/json, text/event-stream", false } do
        local response = server:post(http.initialize(), { Accept = accept })
        assert.equal(200, response.status)
        assert.equal("application/json", response.headers["content-type"])
      end
      local response = server:post(http.initialize(), { Accept = "text/event-stream" })
      assert.equal("text/event-stream", response.headers["content-type"])
      assert.truthy(response.headers["mcp-session-id"])
      assert.equal("2025-11-25", response.events[1].message.result.protocolVersion)
    end)

    it("that is no message is refused with 400", function()
      for text, code in pairs { ["{"] = -32700, [""] = -32700, ["nonsense"] = -32700, ["\xff"] = -32700, ["7"] = -32600,
        ["[]"] = -32600, ['{"jsonrpc":"2.0","id":null,"method":"ping"}'] = -32600,
        ['{"id":1,"method":"ping"}'] = -32600,
        ['{"jsonrpc":"2.0","id":1}'] = -32600, ['[{"jsonrpc":"2.0","id":1,"method":"ping"}]'] = -32600,
        ['{"method":"notifications/initialized"}'] = -32600,
        ['{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}'] = -32602 } do
        local response = server:post(text)
        assert.equal(400, response.status, text)
        assert.equal(code, code_of(response), text)
      end
      local response = server:post '{"jsonrpc":"2.0","id":"x","method":7}'
      assert.equal("x", response.json.id)
    end)

    it("may be so long and no longer", function()
      local long = http.request("initialize", { padding = ("x"):rep(70000) })
      local response = server:post(long)
      assert.equal(413, response.status)
      assert.matches("65536", response.json.error.message)
      local connection = server:connect() -- length not known before
      connection:request("POST", "/mcp", http.headers { ["Transfer-Encoding"] = "chunked" })
      for _ = 1, 20 do connection:write("1000\r\n" .. ("x"):rep(4096) .. "\r\n") end
      connection:write "0\r\n\r\n"
      assert.equal(413, (connection:head()))
      connection:close()
    end)

    it("may come in chunks", function()
      local text = json.encode(http.initialize())
      local connection = server:connect()
      connection:request("POST", "/mcp", http.headers { ["Transfer-Encoding"] = "chunked" })
      for i = 1, #text, 10 do
        local piece = text:sub(i, i + 9)
        connection:write(("%x\r\n%s\r\n"):format(#piece, piece))
      end
      connection:write "0\r\n\r\n"
      assert.equal(200, connection:response().status)
      connection:close()
    end)

    it("shares its connection with others", function()
      local connection = server:connect()
      for _ = 1, 20 do
        connection:request("POST", "/mcp", http.headers(), json.encode(http.initialize()))
        assert.equal(200, connection:response().status)
      end
      connection:close()
    end)
  end)

  describe("a legacy session", function()
    it("begins with initialize, which names it", function()
      for offered, answered in pairs { ["2025-11-25"] = "2025-11-25", ["2025-06-18"] = "2025-06-18",
        ["2025-03-26"] = "2025-03-26", ["2024-11-05"] = "2024-11-05", ["2026-07-28"] = "2025-11-25" } do
        local response = server:post(http.initialize(offered), { ["MCP-Protocol-Version"] = "9999-01-01" })
        assert.equal(answered, response.json.result.protocolVersion)
        assert.matches("^[\x21-\x7e]+$", response.headers["mcp-session-id"])
      end
      local failed = server:post(http.request("initialize", {}))
      assert.equal(-32602, code_of(failed))
      assert.is_nil(failed.headers["mcp-session-id"])
    end)

    it("serves requests, swallows notifications and answers", function()
      local session = server:session()
      local response = session:post(http.request("ping", nil, "p"))
      assert.equal('{"id":"p","jsonrpc":"2.0","result":{}}', response.body)
      assert.is_nil(response.headers["mcp-session-id"])
      assert.equal("again", text_of(session:post(http.call("echo", { text = "again" }))))
      for _, message in ipairs { { jsonrpc = "2.0", method = "notifications/whatever" },
        { jsonrpc = "2.0", id = "server-77", result = json.decode "{}" } } do
        local taken = session:post(message)
        assert.equal(202, taken.status)
        assert.equal("", taken.body)
      end
      assert.equal(-32601, code_of(session:post(http.request "nonsense")))
      assert.equal(200, session:post(http.request "nonsense").status)
    end)

    it("is asked for: 400 without, 404 with an unknown one", function()
      for _, message in ipairs { http.request "ping", http.request "tools/list",
        { jsonrpc = "2.0", method = "notifications/initialized" },
        { jsonrpc = "2.0", id = 1, result = json.decode "{}" } } do
        assert.equal(400, server:post(message).status)
        assert.equal(404, server:post(message, { ["MCP-Session-Id"] = "00" }).status)
      end
      assert.equal(404, server:post(http.initialize(), { ["MCP-Session-Id"] = "00" }).status)
      for _, method in ipairs { "GET", "DELETE" } do
        local accept = "text/event-stream"
        assert.equal(400, server:http(method, "/mcp", { Accept = accept }).status)
        assert.equal(404, server:http(method, "/mcp", { Accept = accept, ["MCP-Session-Id"] = "00" }).status)
      end
    end)

    it("is initialized once", function()
      local session = server:session()
      local response = session:post(http.initialize())
      assert.equal(400, response.status)
      assert.equal(-32600, code_of(response))
      assert.equal(200, session:post(http.request "ping").status)
    end)

    it("takes any known version in the header, and no unknown one", function()
      local session = server:session()
      for version, status in pairs { ["2025-11-25"] = 200, ["2025-03-26"] = 200, ["2024-11-05"] = 200,
        ["2024-10-07"] = 400, nonsense = 400 } do
        assert.equal(status, session:post(http.request "ping", { ["MCP-Protocol-Version"] = version }).status, version)
      end
      assert.equal(200, session:post(http.request "ping", { ["MCP-Protocol-Version"] = false }).status)
    end)

    it("ends by DELETE, with its streams, and is unknown afterwards", function()
      local session = server:session()
      local stream, status = session:listen()
      assert.equal(200, status)
      assert.equal(204, session:delete().status)
      while stream:event() do end
      assert.equal(404, session:post(http.request "ping").status)
      assert.equal(404, session:delete().status)
      assert.equal(404, select(2, session:listen()))
      stream:close()
    end)

    it("has batches in the one revision that knows them", function()
      local batch = '[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/x"},'
        .. '{"jsonrpc":"2.0","id":2,"method":"nonsense"}]'
      local response = server:session "2025-03-26":post(batch)
      assert.equal(200, response.status)
      assert.equal(2, #response.json)
      local notes = server:session "2025-03-26":post '[{"jsonrpc":"2.0","method":"notifications/x"}]'
      assert.equal(202, notes.status)
      assert.equal(400, server:session "2025-03-26":post("[]").status)
      assert.equal(400, server:session "2025-06-18":post(batch).status)
    end)

    it("answers by a stream once something precedes the answer", function()
      local response = server:session():post(http.call("steps", nil, 5, { progressToken = "t" }))
      assert.equal("text/event-stream", response.headers["content-type"])
      assert.equal("no-cache, no-transform", response.headers["cache-control"])
      assert.equal("no", response.headers["x-accel-buffering"])
      local got = {}
      for _, event in ipairs(response.events) do
        assert.truthy(event.id)
        local message = event.message
        got[#got + 1] = message and (message.params and message.params.progress or message.result.content[1].text)
      end
      assert.same({ 1, 2, 3, "walked" }, got)
      assert.equal("", response.events[1].data) -- an id to come back with
      local old = server:session "2025-06-18":post(http.call("steps", nil, 5, { progressToken = "t" }))
      assert.truthy(old.events[1].message) -- whose clients cannot read that
    end)

    it("answers plainly when the client takes no stream, or no token was sent", function()
      local session = server:session()
      assert.equal("walked", text_of(session:post(http.call "steps")))
      assert.equal("walked", text_of(session:post(http.call("steps", nil, 1, { progressToken = 1 }),
        { Accept = "application/json" })))
    end)

    it("asks the client on the stream of the call", function()
      local hello = http.initialize()
      hello.params.capabilities = { elicitation = json.decode "{}" }
      local session = server:session()
      session.id = server:post(hello).headers["mcp-session-id"]
      local connection = session:open(http.call("ask", nil, 9))
      connection:head()
      local question = connection:message()
      assert.equal("elicitation/create", question.method)
      assert.equal(202, session:post { jsonrpc = "2.0", id = question.id,
        result = { action = "accept", content = { answer = "so" } } }.status)
      local answer = connection:message()
      assert.equal("so", answer.result.content[1].text)
      assert.equal(9, answer.id)
      connection:close()
    end)

    it("is not asked where it cannot hear: JSON alone, and no stream of GET", function()
      local hello = http.initialize()
      hello.params.capabilities = { elicitation = json.decode "{}" }
      local session = server:session()
      session.id = server:post(hello).headers["mcp-session-id"]
      local response = session:post(http.call("ask", nil, 9), { Accept = "application/json" })
      assert.equal(200, response.status)
      assert.equal(-32603, code_of(response))
      local stream = session:listen()
      local connection = session:open(http.call("ask", nil, 10), { Accept = "application/json" })
      local question = stream:message()
      assert.equal("elicitation/create", question.method)
      assert.equal(202, session:post { jsonrpc = "2.0", id = question.id,
        result = { action = "accept", content = { answer = "so" } } }.status)
      assert.equal("so", text_of(connection:response()))
      stream:close()
      connection:close()
    end)

    it("runs three streams at once", function()
      local session, connections = server:session(), {}
      for i = 1, 3 do connections[i] = session:open(http.call("steps", nil, i, { progressToken = i })) end
      for i, connection in ipairs(connections) do
        local events = connection:response().events
        assert.equal(i, events[#events].message.id)
        for _, event in ipairs(events) do
          if event.message and event.message.params then assert.equal(i, event.message.params.progressToken) end
        end
        connection:close()
      end
    end)
  end)

  describe("the stream of GET", function()
    it("must be asked for by name, and is there once", function()
      local session = server:session()
      assert.equal(406, select(2, session:listen { Accept = "application/json" }))
      assert.equal(406, select(2, session:listen { Accept = "*/*" }))
      local stream, status, headers = session:listen()
      assert.equal(200, status)
      assert.equal("text/event-stream", headers["content-type"])
      assert.equal(409, select(2, session:listen()))
      stream:close()
      assert.is_true(client.eventually(5, function() return select(2, session:listen()) == 200 end))
    end)

    it("tells what nobody asked for, and no answers", function()
      local session, other = server:session(), server:session()
      local stream = session:listen()
      assert.equal("told", text_of(other:post(http.call "announce")))
      assert.equal("notifications/tools/list_changed", stream:message().method)
      stream:close()
    end)

    it("goes on where it was lost", function()
      local session = server:session()
      local stream = session:listen()
      local _, first = nil, stream:event()
      assert.truthy(first.id)
      stream:close()
      client.sleep(0.1)
      for _ = 1, 2 do session:post(http.call "announce") end
      stream = session:listen { ["Last-Event-ID"] = first.id }
      local _, one = stream:message()
      local _, two = stream:message()
      stream:close()
      stream = session:listen { ["Last-Event-ID"] = one.id }
      assert.equal(two.id, select(2, stream:message()).id)
      stream:close()
    end)

    it("goes on even while the old connection seems to be there", function()
      local session = server:session()
      local dead = session:listen()
      local first = dead:event()
      local stream, status = session:listen { ["Last-Event-ID"] = first.id }
      assert.equal(200, status)
      session:post(http.call "announce")
      assert.truthy(stream:message())
      dead:close()
      stream:close()
    end)
  end)

  describe("a lost connection", function()
    it("loses no answer in the legacy era", function()
      local session = server:session()
      local connection = session:open(http.call("steps", nil, 3, { progressToken = "t" }))
      connection:head()
      local _, event = connection:message()
      connection:close()
      local stream = session:listen { ["Last-Event-ID"] = event.id }
      local got, last = {}, nil
      for one in function() return stream:message() end do
        got[#got + 1] = one.params and one.params.progress or "answer"
        last = one
      end
      assert.same({ 2, 3, "answer" }, got)
      assert.equal("walked", last.result.content[1].text)
      stream:close()
      -- Once more, after everything was sent: nothing was thrown away yet.
      stream = session:listen { ["Last-Event-ID"] = event.id }
      assert.equal(2, stream:message().params.progress)
      stream:close()
    end)

    it("is what a call may ask for: the answer waits", function()
      local session = server:session()
      local response = session:post(http.call("away", nil, 4))
      local last = response.events[#response.events]
      assert.equal("20", last.retry)
      assert.is_nil(last.message)
      local stream = session:listen { ["Last-Event-ID"] = response.events[1].id }
      assert.equal("back", stream:message().result.content[1].text)
      assert.is_nil(stream:message())
      stream:close()
    end)

    it("cannot be taken up with an id that means nothing", function()
      local session = server:session()
      for _, id in ipairs { "7-1", "nonsense", "0-9", "1-0" } do
        assert.equal(400, select(2, session:listen { ["Last-Event-ID"] = id }), id)
      end
    end)
  end)

  describe("a modern request", function()
    it("stands alone", function()
      local response = server:modern("server/discover", {})
      assert.equal(200, response.status)
      assert.equal("application/json", response.headers["content-type"])
      assert.equal("complete", response.json.result.resultType)
      assert.is_nil(response.headers["mcp-session-id"])
      local called = server:modern("tools/call", { name = "echo", arguments = { text = "hi" } },
        { headers = { ["MCP-Session-Id"] = "unknown", ["Last-Event-ID"] = "1-1", Accept = "application/json" } })
      assert.equal("hi", text_of(called))
    end)

    it("answers by a stream, without ids, once something precedes the answer", function()
      local response = server:modern("tools/call", { name = "steps" }, { meta = { progressToken = 7 } })
      assert.equal(4, #response.events)
      for _, event in ipairs(response.events) do
        assert.is_nil(event.id)
        assert.truthy(event.message)
      end
      assert.equal("complete", response.events[4].message.result.resultType)
    end)

    it("must repeat its version, method and name in headers", function()
      local params = { name = "echo", arguments = { text = "x" } }
      local function status(headers, method, p)
        local response = server:modern(method or "tools/call", p or params, { headers = headers, id = "the id" })
        if response.status ~= 200 then
          assert.equal(-32020, code_of(response))
          assert.equal("the id", response.json.id)
        end
        return response.status
      end
      assert.equal(400, status { ["MCP-Protocol-Version"] = false })
      assert.equal(400, status { ["MCP-Protocol-Version"] = "2025-11-25" })
      assert.equal(400, status { ["Mcp-Method"] = false })
      assert.equal(400, status { ["Mcp-Method"] = "Tools/Call" })
      assert.equal(400, status { ["Mcp-Name"] = false })
      assert.equal(400, status { ["Mcp-Name"] = "Echo" })
      assert.equal(400, status { ["Mcp-Name"] = "=?base64?ZWNobw?=" })
      assert.equal(200, status { ["Mcp-Name"] = "=?base64?ZWNobw==?=" })
      assert.equal(200, status { ["Mcp-Name"] = "  echo  " })
      assert.equal(200, status { ["Mcp-Method"] = false, ["MCP-METHOD"] = "tools/call" })
      assert.equal(400, status({ ["Mcp-Method"] = "prompts/list" }, "tools/list", {}))
    end)

    it("must repeat the parameters that a tool marks", function()
      local function status(region, header)
        local response = server:modern("tools/call", { name = "routed", arguments = { region = region } },
          { headers = { ["Mcp-Param-Region"] = header } })
        if response.status ~= 200 then assert.equal(-32020, code_of(response)) end
        return response.status
      end
      assert.equal(200, status("eu", "eu"))
      assert.equal(200, status("Hello", "=?base64?SGVsbG8=?="))
      assert.equal(400, status("Hello", "=?base64?SGVsbG8?="))
      assert.equal(400, status("eu", nil))
      assert.equal(400, status("eu", "us"))
      assert.equal(200, status(nil, nil))
      local session = server:session() -- a matter of this revision alone
      assert.equal("eu", text_of(session:post(http.call("routed", { region = "eu" }))))
    end)

    it("has statuses for what a proxy should know", function()
      local function answer(method, params, options)
        local response = server:modern(method, params, options)
        return { response.status, code_of(response) }
      end
      assert.same({ 404, -32601 }, answer("nonsense", {}))
      for _, method in ipairs { "initialize", "ping", "logging/setLevel", "resources/subscribe", "tasks/list" } do
        assert.same({ 404, -32601 }, answer(method, {}), method)
      end
      assert.same({ 404, -32601 }, answer("nonsense", {}, { headers = { ["Mcp-Method"] = false } }))
      assert.same({ 200, -32602 }, answer("tools/call", { name = "no such tool" }))
      local meta = { ["io.modelcontextprotocol/protocolVersion"] = "2030-01-01" }
      assert.same({ 400, -32022 }, answer("tools/list", {}, { meta = meta,
        headers = { ["MCP-Protocol-Version"] = "2030-01-01", ["Mcp-Method"] = false } }))
      assert.same({ 400, -32602 }, answer("tools/list", {}, { capabilities = "none" }))
      assert.same({ 400, -32021 }, answer("tools/call", { name = "ask" }))
    end)

    it("without an envelope is malformed when its header or its method says what it is", function()
      local response = server:post(http.request("tools/list", {}, 4), http.modern_headers "tools/list")
      assert.equal(400, response.status)
      assert.equal(-32602, code_of(response))
      assert.equal(4, response.json.id)
      response = server:post(http.request("server/discover", {}, 4))
      assert.equal(400, response.status)
      assert.equal(-32602, code_of(response))
    end)

    it("is one message, and its notifications are taken without a session", function()
      assert.equal(400, server:post("[" .. json.encode(http.request "ping") .. "]", http.modern_headers "ping").status)
      local note = { jsonrpc = "2.0", method = "notifications/x" }
      assert.equal(202, server:post(note, http.modern_headers "notifications/x").status)
    end)

    it("has neither GET nor DELETE", function()
      for _, method in ipairs { "GET", "DELETE" } do
        local response = server:http(method, "/mcp",
          { Accept = "text/event-stream", ["MCP-Protocol-Version"] = http.VERSION })
        assert.equal(405, response.status)
        assert.equal("POST", response.headers.allow)
      end
    end)

    it("may listen until it closes the connection", function()
      local connection = server:modern_open("subscriptions/listen",
        { notifications = { toolsListChanged = true } }, { id = "l" })
      assert.equal(200, (connection:head()))
      assert.equal("notifications/subscriptions/acknowledged", connection:message().method)
      server:modern("tools/call", { name = "announce" })
      local change = connection:message()
      assert.equal("notifications/tools/list_changed", change.method)
      assert.equal("l", change.params._meta["io.modelcontextprotocol/subscriptionId"])
      connection:close()
      local response = server:modern("subscriptions/listen", { notifications = json.decode "{}" },
        { headers = { Accept = "application/json" } })
      assert.equal(406, response.status)
    end)

    it("does not disturb a legacy session, nor the other way round", function()
      local session = server:session()
      assert.equal(200, server:modern("tools/list", {}).status)
      assert.equal(200, session:post(http.request "ping").status)
      local request = http.request("tools/list", http.modern_params {})
      assert.equal("complete", session:post(request, http.modern_headers "tools/list").json.result.resultType)
    end)
  end)

  it("runs programs", function()
    local response = server:session():post(http.run "print(6 * 7)")
    assert.equal("42\n", response.json.result.structuredContent.stdout)
    response = server:modern("tools/call",
      { name = "run_code", arguments = { language = "python", code = "print(7 * 6)" } })
    assert.equal("42\n", response.json.result.structuredContent.stdout)
  end)

  describe("the older transport", function()
    -- A session: its stream, and a function that posts to it.
    local function open(headers)
      local stream = server:connect()
      stream:request("GET", "/sse", headers or { Accept = "text/event-stream" })
      local status = stream:head()
      assert.equal(200, status)
      local first = stream:event()
      assert.equal("endpoint", first.event)
      assert.matches("^/messages/%?session_id=[\x21-\x7e]+$", first.data)
      return stream, function(message, more)
        return server:http("POST", first.data, http.headers(more),
          type(message) == "table" and json.encode(message) or message)
      end
    end

    it("answers on its stream", function()
      local stream, post = open()
      local taken = post(http.initialize "2024-11-05")
      assert.equal(202, taken.status)
      assert.equal("", taken.body)
      local hello, event = stream:message()
      assert.equal("message", event.event)
      assert.equal("2024-11-05", hello.result.protocolVersion)
      assert.equal(202, post({ jsonrpc = "2.0", method = "notifications/initialized" }).status)
      post(http.call("steps", nil, 3, { progressToken = "p" }))
      for i = 1, 3 do assert.equal(i, stream:message().params.progress) end
      assert.equal("walked", stream:message().result.content[1].text)
      stream:close()
    end)

    it("serves the modern era, too, message by message", function()
      local stream, post = open()
      post(http.request("server/discover", http.modern_params {}, "d"))
      assert.equal("complete", stream:message().result.resultType)
      stream:close()
    end)

    it("refuses what is no message, no session or an unknown one", function()
      local stream, post = open()
      assert.equal(400, post("{").status)
      assert.equal(400, post("").status)
      assert.equal(400, post('{"jsonrpc":"2.0","id":null,"method":"ping"}').status)
      assert.equal(413, post(("x"):rep(70000)).status)
      assert.equal(415, post("{}", { ["Content-Type"] = "text/plain" }).status)
      assert.equal(400, server:http("POST", "/messages/", http.headers(), "{}").status)
      assert.equal(404, server:http("POST", "/messages/?session_id=00", http.headers(), "{}").status)
      stream:close()
    end)

    it("ends with its stream, and its calls with it", function()
      local stream, post = open()
      post(http.initialize())
      stream:message()
      post(http.run("import time; time.sleep(20)", 5, nil, 25))
      sandboxes.wait_for(server.process, 1)
      stream:close()
      assert.truthy(sandboxes.gone_after(server.process:instance(), 3 * client.slow))
      assert.is_true(client.eventually(2, function() return post(http.request "ping").status == 404 end))
    end)
  end)
end)
