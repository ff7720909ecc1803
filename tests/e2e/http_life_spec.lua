-- How an HTTP server lives: cancelled calls, signs of life, sessions that end,
-- tokens, and its own end.
local client = require "e2e.client"
local http = require "e2e.http_client"
local sandboxes = require "e2e.sandboxes"

local INIT = require "e2e.http_tools"
local json = http.json

local function text_of(response)
  return response.json.result.content[1].text
end

describe("cancelling", function()
  local server
  setup(function() server = http.start { init = INIT } end)
  teardown(function() assert.equal(0, (server:close())) end)

  local SLEEP = "import time; print('up', flush=True); time.sleep(20)"

  it("is closing the connection in the modern era", function()
    local connection = server:modern_open("tools/call", { name = "run_code",
      arguments = { language = "python", code = SLEEP, timeout_seconds = 25 } })
    sandboxes.wait_for(server.process, 1)
    client.sleep(0.3)
    connection:close()
    assert.truthy(sandboxes.gone_after(server.process:instance(), 3 * client.slow))
  end)

  it("is so once there is a stream, too", function()
    local connection = server:modern_open("tools/call", { name = "run_code",
      arguments = { language = "python", code = SLEEP, timeout_seconds = 25 } }, { meta = { progressToken = 1 } })
    connection:head()
    assert.truthy(connection:message())
    sandboxes.wait_for(server.process, 1)
    connection:close()
    assert.truthy(sandboxes.gone_after(server.process:instance(), 3 * client.slow))
  end)

  it("takes a message in the legacy era; closing the connection is none", function()
    local session = server:session()
    local connection = session:open(http.run(SLEEP, 8, nil, 25))
    sandboxes.wait_for(server.process, 1)
    connection:close()
    client.sleep(0.5)
    assert.equal(1, #sandboxes.of(server.process:instance()))
    session:post { jsonrpc = "2.0", method = "notifications/cancelled", params = { requestId = 8 } }
    assert.truthy(sandboxes.gone_after(server.process:instance(), 3 * client.slow))
  end)

  it("ends the waiting POST without an answer", function()
    local session = server:session()
    local connection = session:open(http.run(SLEEP, 8, nil, 25))
    sandboxes.wait_for(server.process, 1)
    session:post { jsonrpc = "2.0", method = "notifications/cancelled", params = { requestId = 8 } }
    local response = connection:response()
    assert.equal(202, response.status)
    assert.equal("", response.body)
    connection:close()
  end)

  it("comes with the end of the session", function()
    local session = server:session()
    local connection = session:open(http.run(SLEEP, 8, nil, 25))
    sandboxes.wait_for(server.process, 1)
    session:delete()
    assert.truthy(sandboxes.gone_after(server.process:instance(), 3 * client.slow))
    connection:close()
  end)
end)

describe("signs of life", function()
  it("come on every silent stream, and make a stream of an answer that takes long", function()
    local quick <close> = setmetatable({ server = http.start { init = INIT .. "http.keepalive_seconds = 1" } },
      { __close = function(self) self.server:close() end })
    local session = quick.server:session()
    local get = session:listen()
    get:event()
    local sse = quick.server:connect()
    sse:request("GET", "/sse")
    sse:head()
    sse:event()
    local listen = quick.server:modern_open("subscriptions/listen", { notifications = json.decode "{}" })
    listen:head()
    listen:event()
    for _, stream in ipairs { get, sse, listen } do
      assert.matches("^:", stream:event().raw)
      assert.matches("^:", stream:event().raw)
      stream:close()
    end
    for _, response in ipairs { session:post(http.call("slow", { ms = 2500 })),
      quick.server:modern("tools/call", { name = "slow", arguments = { ms = 2500 } }) } do
      assert.equal("text/event-stream", response.headers["content-type"])
      assert.equal("slept", response.events[#response.events].message.result.content[1].text)
    end
    local plain = session:post(http.call("slow", { ms = 1500 }), { Accept = "application/json" })
    assert.equal("slept", text_of(plain))
  end)
end)

describe("sessions", function()
  it("make room for new ones, the longest idle first, and end when idle", function()
    local small = http.start { init = INIT .. "http.sessions = 2\nhttp.session_idle_seconds = 1" }
    local first, second = small:session(), small:session()
    assert.equal(200, first:post(http.request "ping").status)
    local third = small:session()
    assert.equal(404, second:post(http.request "ping").status)
    assert.equal(200, first:post(http.request "ping").status)
    local stream = third:listen()
    assert.is_true(client.eventually(10, function()
      client.sleep(2)
      return first:post(http.request "ping").status == 404
    end))
    assert.equal(200, third:post(http.request "ping").status)
    stream:close()
    assert.equal(0, (small:close()))
  end)
end)

describe("a token", function()
  local TOKEN, OTHER = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
  local guarded, folder

  setup(function()
    folder = client.folder()
    client.write_file(folder .. "/tokens", ("alice:%s\nbob:%s\n"):format(TOKEN, OTHER))
    os.execute("chmod 600 " .. client.quote(folder .. "/tokens"))
    guarded = http.start { init = INIT .. ("http.token_file = %q"):format(folder .. "/tokens") }
  end)
  teardown(function()
    assert.equal(0, (guarded:close()))
    client.remove(folder)
  end)

  local function with(token) return { Authorization = "Bearer " .. token } end

  it("is needed everywhere but for the state of health", function()
    for _, one in ipairs { { "POST", "/mcp" }, { "GET", "/mcp" }, { "DELETE", "/mcp" }, { "GET", "/sse" },
      { "POST", "/messages/" }, { "GET", "/metrics" } } do
      local response = guarded:http(one[1], one[2], http.headers(), one[1] == "POST" and "{}" or nil)
      assert.equal(401, response.status, one[2])
      assert.matches("^Bearer", response.headers["www-authenticate"])
    end
    assert.equal(200, guarded:http("GET", "/healthz").status)
    assert.equal(403, guarded:http("GET", "/healthz", { Host = "evil.example" }).status)
    assert.equal(200, guarded:http("GET", "/metrics", with(TOKEN)).status)
  end)

  it("must be a known one, in the header", function()
    for _, value in ipairs { "Bearer wrong", "Bearer", TOKEN, "Basic " .. TOKEN, "Bearer " .. TOKEN .. "x",
      "Bearer " .. TOKEN .. " x" } do
      local response = guarded:post(http.initialize(), { Authorization = value })
      assert.equal(401, response.status, value)
      assert.matches("invalid_token", response.headers["www-authenticate"])
    end
    assert.equal(401, guarded:http("POST", "/mcp?access_token=" .. TOKEN, http.headers(), "{}").status)
    assert.equal(200, guarded:post(http.initialize(), with(TOKEN)).status)
    assert.equal(200, guarded:modern("tools/list", {}, { headers = with(OTHER) }).status)
  end)

  it("owns its sessions", function()
    local session = guarded:session(nil, with(TOKEN))
    assert.equal(200, session:post(http.request "ping").status)
    assert.equal(404, session:post(http.request "ping", with(OTHER)).status)
    assert.equal(401, session:post(http.request "ping", { Authorization = false }).status)
    assert.equal(404, session:delete(with(OTHER)).status)
    assert.equal(200, session:post(http.request "ping").status)
  end)

  it("is never told or logged", function()
    assert.is_nil(guarded.process:stderr():find(TOKEN, 1, true))
    assert.is_nil(guarded:post(http.initialize(), with(TOKEN .. "x")).body:find(TOKEN, 1, true))
  end)
end)

describe("the end of an HTTP server", function()
  local SLEEP = "import time; time.sleep(20)"

  it("is prompt when nothing goes on, whatever streams are open", function()
    local idle = http.start { init = INIT }
    local session = idle:session()
    local get = session:listen()
    local sse = idle:connect()
    sse:request("GET", "/sse")
    sse:head()
    local listen = idle:modern_open("subscriptions/listen", { notifications = json.decode "{}" }, { id = 3 })
    listen:head()
    listen:message()
    local status, took = idle:close()
    assert.equal(0, status)
    assert.is_true(took < 1000 * client.slow, took .. " ms")
    assert.equal(3, listen:message().id) -- told that it is over
    get:close()
    sse:close()
  end)

  it("waits for runs that end in time and answers them", function()
    local busy = http.start { init = INIT }
    local session = busy:session()
    session:post(http.run "print(0)")
    local one = session:open(http.run("import time; time.sleep(1); print('made it')", 1))
    local two = busy:modern_open("tools/call", { name = "run_code", arguments = { language = "python",
      code = "import time; time.sleep(1); print('made it')" } }, { meta = { progressToken = 1 } })
    sandboxes.wait_for(busy.process, 2)
    busy:signal "TERM"
    client.sleep(0.2)
    assert.is_nil((require "socket").connect(busy.host, busy.port))
    assert.equal("made it\n", one:response().json.result.structuredContent.stdout)
    local events = two:response().events
    assert.equal("made it\n", events[#events].message.result.structuredContent.stdout)
    assert.equal(0, (busy:close()))
  end)

  it("answers calls that could still become tasks, and does not wait for tasks", function()
    local busy = http.start { init = INIT .. [[
http.grace_seconds = 20
tasks.after_seconds = 10
for _, how in ipairs { "slow", "always" } do
  tool("task_" .. how) { description = "takes its time", task = how,
    input = { type = "object", properties = { ms = { type = "integer" } }, required = { "ms" } },
    handler = function(arguments, ctx)
      ctx.sleep(arguments.ms)
      return "slept"
    end }
end]] }
    local capabilities = { extensions = { ["io.modelcontextprotocol/tasks"] = json.decode "{}" } }
    local function open(how, ms)
      return busy:modern_open("tools/call", { name = "task_" .. how, arguments = { ms = ms } },
        { capabilities = capabilities })
    end
    assert.equal("task", open("always", 60000):response().json.result.resultType)
    local call = open("slow", 1500)
    client.sleep(0.3)
    busy:signal "TERM"
    local response = call:response()
    assert.equal(200, response.status)
    assert.equal("slept", text_of(response))
    local status, took = busy:close()
    assert.equal(0, status)
    assert.is_true(took < 2000 * client.slow, took .. " ms")
  end)

  it("ends the others after the grace, and leaves nothing", function()
    local busy = http.start { init = INIT .. "http.grace_seconds = 1" }
    local session = busy:session()
    local one = session:open(http.run(SLEEP, 1, nil, 25))
    local two = busy:modern_open("tools/call", { name = "run_code", arguments = { language = "python", code = SLEEP,
      timeout_seconds = 25 } })
    sandboxes.wait_for(busy.process, 2)
    local instance = busy.process:instance()
    local started = client.now_ms()
    busy:signal "INT"
    assert.equal(503, one:response().status)
    assert.equal(503, two:response().status)
    local status = busy:close()
    local took = client.now_ms() - started
    assert.equal(0, status)
    assert.is_true(took > 1000 and took < 3000 * client.slow, took .. " ms")
    assert.truthy(sandboxes.gone_after(instance, 1))
  end)

  it("comes at once with a second signal", function()
    local busy = http.start { init = INIT .. "http.grace_seconds = 30" }
    local instance
    busy:session():open(http.run(SLEEP, 1, nil, 25))
    sandboxes.wait_for(busy.process, 1)
    instance = busy.process:instance()
    busy:signal "TERM"
    client.sleep(0.3)
    assert.is_true(busy.process:alive())
    busy:signal "TERM"
    local status, took = busy:close()
    assert.equal(1, status)
    assert.is_true(took < 1000 * client.slow, took .. " ms")
    assert.truthy(sandboxes.gone_after(instance, 5))
  end)
end)

describe("--transport sse", function()
  it("serves the older transport only", function()
    local old = http.start { init = INIT, transport = "sse" }
    assert.matches("/sse$", old.url)
    assert.equal(404, old:post(http.initialize()).status)
    local stream = old:connect()
    stream:request("GET", "/sse")
    assert.equal(200, (stream:head()))
    assert.equal("endpoint", stream:event().event)
    stream:close()
    assert.equal(200, old:http("GET", "/healthz").status)
    assert.equal(0, (old:close()))
  end)
end)
