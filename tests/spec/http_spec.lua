-- What HTTP headers mean, events that outlive their connection, and the front door.
-- See exchange_spec, sessions_spec, sse_spec and streamable_spec for the other parts
-- of the HTTP transports, e2e/http_spec.lua for the whole.
local core = require "sandbox_runner.core"
local events = require "sandbox_runner.event_stream"
local fake = require "spec.support.fake"
local headers = require "sandbox_runner.http_headers"
local here = require "spec.support.here"
local http = require "sandbox_runner.http"
local settings = require "sandbox_runner.settings"

local function reader(values)
  return function(name) return values[name] end
end

local function base64(text) return "=?base64?" .. core.crypto.base64(text) .. "?=" end

describe("the check of Host and Origin", function()
  local guard = headers.guard({ "Runner.example", "fd00::1", "10.0.0.1:8443" }, { "https://App.example" })

  it("lets this machine in, by any name and port", function()
    for _, host in ipairs { "localhost", "localhost:8000", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:65535", "[::1]",
      "[::1]:80", " localhost ", "localhost:" } do
      assert.is_nil(guard:refuse(host), host)
    end
  end)

  it("lets configured hosts in, one with a port by this port only", function()
    for _, host in ipairs { "runner.example", "RUNNER.EXAMPLE:99", "[fd00::1]", "[fd00::1]:7", "10.0.0.1:8443" } do
      assert.is_nil(guard:refuse(host), host)
    end
    assert.truthy(guard:refuse "10.0.0.1")
    assert.truthy(guard:refuse "10.0.0.1:8444")
  end)

  it("refuses any other host, and says what to do", function()
    for _, host in ipairs { "evil.example", "localhost.evil.example", "evil.example:localhost",
      "127.0.0.1.evil.example",
      "localhost, evil.example", "", "localhost/", "user@localhost", "localhost:80x", "127.0.0.2", "[::2]", "::1",
      "localhost.", "http://localhost", "[::1", "localhost:80:80" } do
      assert.matches("allowed_hosts", guard:refuse(host), 1, true)
    end
    assert.matches("Host", guard:refuse(nil))
  end)

  it("lets origins of this machine and configured ones in", function()
    for _, origin in ipairs { "http://localhost", "https://localhost:3000", "http://127.0.0.1:1", "HTTP://[::1]:5",
      "https://app.example", "HTTPS://APP.EXAMPLE" } do
      assert.is_nil(guard:refuse("localhost", origin), origin)
    end
  end)

  it("refuses any other origin", function()
    for _, origin in ipairs { "null", "", "http://evil.example", "http://localhost.evil.example", "file://",
      "localhost",
      "https://app.example:444", "http://app.example", "ftp://localhost", "http://localhost@evil.example",
      "http://localhost, http://evil.example", "http://runner.example", "http://localhost/path" } do
      assert.matches("allowed_origins", guard:refuse("localhost", origin), 1, true)
    end
  end)
end)

describe("a request target", function()
  it("has a path and a query", function()
    for target, want in pairs { ["/mcp"] = { "/mcp", {} }, ["/mcp?"] = { "/mcp", {} }, ["/mcp/"] = { "/mcp", {} },
      ["/messages/?session_id=a%20b+c&x=1&flag"] = { "/messages", { session_id = "a b c", x = "1", flag = "" } },
      ["/"] = { "/", {} }, ["/m?a=1&a=2#frag"] = { "/m", { a = "2" } }, ["http://x/mcp"] = { "http://x/mcp", {} } } do
      assert.same(want, { headers.target(target) }, target)
    end
  end)
end)

describe("Accept", function()
  local cases = {
    { nil, true, true }, { "", true, true }, { "*/*", true, true }, { "application/json", true, false },
    { "text/event-stream", false, true }, { "application/json, text/event-stream", true, true },
    { "text/event-stream;q=0.5,application/json;q=0", false, true }, { "text/html", false, false },
    { "application/*", true, false }, { "text/*;q=0.1", false, true }, { "*/*, application/json;q=0", false, true },
    { "APPLICATION/JSON ; Q=1", true, false }, { "application/json;charset=utf-8", true, false },
    { ",,", false, false }, { "application/jsonp", false, false },
  }

  it("allows JSON, events, both or none", function()
    for _, case in ipairs(cases) do
      local json, stream = headers.accepts(case[1])
      assert.same({ case[2], case[3] }, { json, stream }, case[1])
    end
  end)

  it("may name events before JSON", function()
    for accept, first in pairs { ["text/event-stream, application/json"] = true, ["text/event-stream"] = true,
      ["application/json, text/event-stream"] = false, ["*/*"] = false, [""] = false } do
      assert.equal(first, (select(3, headers.accepts(accept))), accept)
    end
  end)

  it("asks for events only by name", function()
    for accept, wanted in pairs { ["text/event-stream"] = true, ["application/json, text/event-stream"] = true,
      ["*/*"] = false, ["application/json"] = false, ["text/*"] = true, ["text/event-stream;q=0"] = false } do
      assert.equal(wanted, headers.asks_for_events(accept), accept)
    end
    assert.is_false(headers.asks_for_events(nil))
  end)
end)

describe("Content-Type", function()
  it("is JSON with any parameters", function()
    for value, is in pairs { ["application/json"] = true, ["Application/JSON; charset=utf-8"] = true,
      [" application/json"] = true, ["text/json"] = false, ["application/json-rpc"] = false, [""] = false } do
      assert.equal(is, headers.is_json(value), value)
    end
    assert.is_false(headers.is_json(nil))
  end)
end)

describe("a header value", function()
  it("is stripped, and decoded when it is written in base64", function()
    for value, meaning in pairs { ["  a b\t"] = "a b", [base64 "Hello"] = "Hello", [base64 "Zürich"] = "Zürich",
      [base64 ""] = "", ["=?base64?SGVsbG8="] = "=?base64?SGVsbG8=", ["SGVsbG8="] = "SGVsbG8=", [""] = "" } do
      assert.equal(meaning, headers.decode(value))
    end
  end)

  it("is nothing when the base64 is broken or hides something else than UTF-8", function()
    for _, value in ipairs { "=?base64?SGVsbG8?=", "=?base64?SGVs!!!bG8=?=", "=?base64?SGVs bG8=?=",
      base64 "\xff\xfe" } do
      assert.is_nil(headers.decode(value), value)
    end
  end)
end)

describe("the headers that repeat a modern request", function()
  local function mismatch(method, params, values)
    return headers.mismatch({ method = method, params = params }, reader(values))
  end

  it("must be there and equal", function()
    assert.is_nil(mismatch("tools/list", {}, { ["Mcp-Method"] = " tools/list " }))
    assert.matches("missing", mismatch("tools/list", {}, {}))
    assert.matches("prompts/list", mismatch("tools/list", {}, { ["Mcp-Method"] = "prompts/list" }))
    assert.truthy(mismatch("tools/list", {}, { ["Mcp-Method"] = "TOOLS/LIST" }))
    assert.truthy(mismatch("tools/list", {}, { ["Mcp-Method"] = "tools/list, tools/list" }))
  end)

  it("name what is called, got, read or asked for", function()
    for method, member in pairs { ["tools/call"] = "name", ["prompts/get"] = "name", ["resources/read"] = "uri",
      ["tasks/get"] = "taskId", ["tasks/update"] = "taskId", ["tasks/cancel"] = "taskId" } do
      local params = { [member] = "käse" }
      assert.is_nil(mismatch(method, params, { ["Mcp-Method"] = method, ["Mcp-Name"] = base64 "käse" }))
      assert.is_nil(mismatch(method, params, { ["Mcp-Method"] = method, ["Mcp-Name"] = "käse" }))
      assert.matches("Mcp%-Name.*missing", mismatch(method, params, { ["Mcp-Method"] = method }))
      assert.matches("params." .. member, mismatch(method, params, { ["Mcp-Method"] = method, ["Mcp-Name"] = "kase" }))
      assert.matches("base64", mismatch(method, params, { ["Mcp-Method"] = method, ["Mcp-Name"] = "=?base64?x?=" }))
    end
  end)

  it("leave params without a name to whoever checks params", function()
    assert.is_nil(mismatch("tools/call", {}, { ["Mcp-Method"] = "tools/call" }))
    assert.is_nil(mismatch("tools/call", { name = 7 }, { ["Mcp-Method"] = "tools/call" }))
    assert.truthy(mismatch("tools/call", {}, { ["Mcp-Method"] = "tools/call", ["Mcp-Name"] = "x" }))
  end)
end)

describe("the headers that repeat arguments", function()
  local names = { region = "Region", count = "Count", on = "On" }
  local function mismatch(arguments, values) return headers.param_mismatch(names, arguments, reader(values)) end

  it("must be there for what is there", function()
    assert.is_nil(mismatch({}, {}))
    assert.is_nil(mismatch({ region = core.json.null }, {}))
    assert.is_nil(mismatch({}, { ["Mcp-Param-Region"] = "ignored" }))
    assert.matches("Mcp%-Param%-Region is missing", mismatch({ region = "eu" }, {}))
    assert.is_nil(mismatch({ region = "eu" }, { ["Mcp-Param-Region"] = "eu" }))
    assert.is_nil(mismatch({ region = "Hello" }, { ["Mcp-Param-Region"] = base64 "Hello" }))
    assert.truthy(mismatch({ region = "Hello" }, { ["Mcp-Param-Region"] = "=?base64?SGVsbG8?=" }))
    assert.truthy(mismatch({ region = "eu" }, { ["Mcp-Param-Region"] = "EU" }))
  end)

  it("compare numbers by value, booleans by name", function()
    assert.is_nil(mismatch({ count = 42 }, { ["Mcp-Param-Count"] = "42.0" }))
    assert.is_nil(mismatch({ count = 1.5 }, { ["Mcp-Param-Count"] = "1.5" }))
    assert.is_nil(mismatch({ count = 1e21 }, { ["Mcp-Param-Count"] = "1e+21" }))
    for _, value in ipairs { "43", "0x2a", "42x", "", "4 2" } do
      assert.truthy(mismatch({ count = 42 }, { ["Mcp-Param-Count"] = value }), value)
    end
    assert.is_nil(mismatch({ count = -0.1 }, { ["Mcp-Param-Count"] = "-1.0000000000000000556E-0001" }))
    assert.is_nil(mismatch({ on = true }, { ["Mcp-Param-On"] = "true" }))
    assert.truthy(mismatch({ on = false }, { ["Mcp-Param-On"] = "true" }))
    assert.truthy(mismatch({ on = false }, {}))
  end)
end)

describe("a header of any length", function()
  -- Text of n bytes -> what reads it.
  local readers = {
    ["a number"] = function(text)
      headers.param_mismatch({ a = "A" }, { a = 42 }, reader { ["Mcp-Param-A"] = text })
    end,
    ["a parameter"] = function(text)
      headers.param_mismatch({ a = "A" }, { a = "b" }, reader { ["Mcp-Param-A"] = text })
    end,
    ["a name"] = function(text)
      headers.mismatch({ method = "tools/call", params = { name = "x" } },
        reader { ["Mcp-Method"] = "tools/call", ["Mcp-Name"] = text })
    end,
    ["Accept"] = function(text)
      headers.accepts(text)
      headers.asks_for_events(text)
    end,
    ["Content-Type"] = headers.is_json, ["the target"] = headers.target, ["Last-Event-ID"] = events.parse_id,
    ["Host and Origin"] = function(text)
      local guard = headers.guard({}, {})
      guard:refuse(text)
      guard:refuse("localhost", text)
      guard:refuse("localhost", "http://" .. text)
    end,
  }
  local seeds = { "1", "11111111111111111111-", "a", "a.", ".", ":", "[:", " ", "; ", ";q", ";q=1", "q =", ",", "=",
    "&", "a=", "+", "%4", "/", "?", "?=", "=?base64?", "=?base64?QQ==?=", "\t", "*/*", "\255" }

  it("is read in time that grows as the length does", function()
    local function check(what, seed, text)
      local started = os.clock()
      readers[what](text)
      local took = os.clock() - started
      assert.is_true(took < 0.5, ("%s: %d bytes of %q take %g s"):format(what, #text, seed, took))
    end
    for what in pairs(readers) do
      for _, seed in ipairs(seeds) do
        for _, bytes in ipairs { 1 << 10, 1 << 13, 1 << 16 } do -- up to four times of what http.header allows
          local text = seed:rep(bytes // #seed)
          check(what, seed, text)
          check(what, seed, text .. "!") -- which ends no pattern
        end
      end
    end
  end)
end)

-- A connection that notes what is written to it until it breaks.
local function connection()
  local stream = { text = "" }
  function stream:write(text)
    if self.broken then return nil, { code = "conflict" } end
    self.text = self.text .. text
    return true
  end
  function stream:close() self.closed = true end
  return stream
end

local function ids(text)
  local list = {}
  for id in text:gmatch "id: (%S+)" do list[#list + 1] = id end
  return table.concat(list, " ")
end

describe("a channel", function()
  local now, store
  before_each(function()
    now = 0
    store = events.store(function() return now end)
  end)

  it("numbers its events, one line each", function()
    local channel, stream = store:channel(3, false), connection()
    channel:attach(stream, 0)
    channel:push '{"a":1}'
    channel:finish '{"b":2}'
    assert.equal('event: message\nid: 3-1\ndata: {"a":1}\n\nevent: message\nid: 3-2\ndata: {"b":2}\n\n', stream.text)
    assert.is_true(stream.closed)
  end)

  it("begins with an id to come back with, for those who can read it", function()
    local channel, stream = store:channel(1, true), connection()
    channel:attach(stream, 0)
    assert.equal("id: 1-0\nretry: 1000\ndata: \n\n", stream.text)
  end)

  it("goes on over another connection where the client was", function()
    local channel, first, second = store:channel(1, false), connection(), connection()
    channel:attach(first, 0)
    channel:push "1"
    first.broken = true
    channel:push "2"
    channel:push "3"
    channel:attach(second, 1)
    channel:finish "4"
    assert.equal("1-1", ids(first.text))
    assert.equal("1-2 1-3 1-4", ids(second.text))
    assert.is_true(second.closed)
  end)

  it("keeps its end for a client that is away", function()
    local channel, stream = store:channel(1, true), connection()
    channel:finish "the answer"
    assert.is_false(channel:is_over())
    channel:attach(stream, 0)
    assert.matches("data: the answer", stream.text)
    assert.is_true(stream.closed)
  end)

  it("ends the old connection when there is a new one", function()
    local channel, first, second = store:channel(1, false), connection(), connection()
    channel:attach(first, 0)
    channel:attach(second, 0)
    channel:leave(first) -- noticed late
    channel:push "x"
    assert.is_true(first.closed)
    assert.equal("", first.text)
    assert.equal("1-1", ids(second.text))
  end)

  it("sends a client away for a while", function()
    local channel, stream, later = store:channel(1, true), connection(), connection()
    channel:attach(stream, 0)
    channel:detach(50)
    assert.matches("retry: 50\n\n$", stream.text)
    assert.is_true(stream.closed)
    channel:push "x"
    channel:attach(later, 0)
    assert.equal("1-0 1-1", ids(later.text))
  end)

  it("sends nobody away who has no id to come back with", function()
    local channel, stream = store:channel(1, false), connection()
    channel:attach(stream, 0)
    channel:detach(50)
    assert.is_nil(stream.closed)
    channel:push "x"
    channel:detach(50)
    assert.is_true(stream.closed)
  end)

  it("says whether an event can reach the client, now or when that comes back", function()
    local channel, stream = store:channel(1, false), connection()
    assert.is_false(channel:push "nobody was ever there")
    channel:attach(stream, channel.count)
    assert.is_true(channel:push "there")
    stream.broken = true
    assert.is_true(channel:push "away, with an id")
    assert.is_false(channel:push(("x"):rep(events.MAX_BYTES + 1)))
    channel:finish()
    assert.is_false(channel:push "over")
    local primed, broken = store:channel(2, true), connection()
    broken.broken = true
    primed:attach(broken, 0)
    assert.is_false(primed:push "gone before the id")
    primed:attach(connection(), 0)
    assert.is_true(primed:push "there")
  end)

  it("forgets what is old", function()
    local channel, stream = store:channel(1, false), connection()
    channel:push "old"
    now = events.KEEP_MS
    channel:push "new"
    store:expire()
    now = now + 1
    store:expire()
    channel:attach(stream, 0)
    assert.equal("1-2", ids(stream.text))
    channel:finish()
    assert.is_false(channel:is_over())
    now = now + events.KEEP_MS
    store:expire()
    assert.is_true(channel:is_over())
    assert.equal(0, store.bytes)
  end)

  it("shares a limit with all others", function()
    local first, second, text = store:channel(1, false), store:channel(2, false), ("x"):rep(1 << 20)
    first:push "small"
    for _ = 1, 40 do second:push(text) end
    assert.is_true(store.bytes <= events.MAX_BYTES)
    assert.is_nil(next(first.kept))
    local stream = connection()
    second:attach(stream, 0)
    assert.is_true(#stream.text <= events.MAX_BYTES + 1000)
    assert.matches("id: 2%-40", stream.text)
    for _ = 1, 2 * events.MAX_EVENTS do first:push "y" end
    assert.is_true(store.last - store.first < events.MAX_EVENTS)
  end)

  it("keeps an event that is larger than everything only for whoever is there", function()
    local channel, stream = store:channel(1, false), connection()
    channel:attach(stream, 0)
    channel:push(("x"):rep(events.MAX_BYTES + 1))
    assert.equal("1-1", ids(stream.text))
    assert.equal(0, store.bytes)
  end)

  it("finds itself by the id of an event", function()
    assert.same({ 12, 345 }, { events.parse_id "12-345" })
    for _, id in ipairs { "", "1", "1-", "-1", "a-1", "1-1-1", "1-99999999999999999999", " 1-1" } do
      assert.is_nil((events.parse_id(id)), id)
    end
  end)
end)

describe("a fault of ours in one request", function()
  -- What comes back for a request, by way of a child process: this one serves it.
  local function ask(port, path)
    local out = fake.temporary_folder() .. "/out"
    os.execute(([[bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d
      printf "GET %s HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n" >&3
      cat <&3 >%s.new; mv %s.new %s' &]]):format(port, path, out, out, out))
    fake.eventually(function() return core.sys.stat(out) end, "an answer")
    local text = fake.read(out)
    os.execute(("rm -r '%s'"):format(out:match "^(.*)/"))
    return text
  end

  it("is answered with 500 and logged, and the next one is served", fake.task(function()
    local logged = {}
    local server = { session = function() error "secret detail" end, metrics = { text = function() return "fine" end },
      internal_error = function(_, _, trace)
        logged[#logged + 1] = trace
        return { code = -32603, message = "internal error" }
      end }
    local front = assert(http.listen { server = server, config = settings.defaults(), port = 0,
      auth = { required = function() return false end } })
    core.loop.spawn(function() front:serve() end)
    local port = tonumber(front:url():match ":(%d+)/")
    local text = ask(port, "/sse")
    assert.matches("^HTTP/1.1 500 ", text)
    assert.is_nil(text:find "secret")
    assert.matches("secret detail.*traceback", logged[1])
    assert.equal(1, #logged)
    assert.matches("^HTTP/1.1 200 .*fine$", ask(port, "/metrics"))
    front:stop()
    front:close()
  end))
end)

describe("what the front door does from time to time", function()
  it("goes on for the others when one fails", fake.task(function()
    local place <close> = here.start { http = { keepalive_seconds = 0.02 } }
    local front, asked = place.front, { good = 0, bad = 0 }
    local function watched(name, failure)
      return { keep_alive = function()
        asked[name] = asked[name] + 1
        if failure then error(failure) end
      end }
    end
    local good = watched "good"
    front:watch(good)
    front:watch(watched("bad", "out of order"))
    front:watch(watched("bad", { message = "out of order, too" }))
    fake.eventually(function() return asked.good > 5 end)
    assert.equal(2, asked.bad)
    assert.equal(2, #place.log)
    assert.matches("a keep%-alive.*out of order", table.concat(place.log))
    front:unwatch(good)
    fake.eventually(function() return not front.keeping_alive end)
  end))

  it("begins anew when its task was ended by force", fake.task(function()
    local place <close> = here.start { http = { keepalive_seconds = 0.02 } }
    local front, asked = place.front, 0
    function place.server.internal_error() error({ code = "cancelled" }, 0) end -- ends the task itself
    local bad = { keep_alive = function() error "x" end }
    front:watch(bad)
    fake.eventually(function() return not front.keeping_alive end)
    front:unwatch(bad)
    front:watch { keep_alive = function() asked = asked + 1 end }
    fake.eventually(function() return asked > 1 end)
  end))

  it("expires what is left although one session cannot be ended", fake.task(function()
    local place <close> = here.start { http = { session_idle_seconds = 0.05 } }
    local front = place.front
    fake.set_local(front.watch, "EXPIRE_MS", 20)
    local _, bad = place:session()
    function bad.close() error "stays" end
    place:session()
    fake.eventually(function() return front.streamable.sessions.count == 0 end)
    fake.set_local(front.watch, "EXPIRE_MS", 5000)
    assert.matches("an expiry.*stays", table.concat(place.log))
    fake.eventually(function() return not front.expiring end)
  end))
end)
