-- What strangers may do to an HTTP server: crowd it, drip, flood, never read. The
-- next client is served all the same, and the memory stays within its bounds.
local client = require "e2e.client"
local http = require "e2e.http_client"

local json = http.json
local MIB = 1 << 20
local SERVED_MS = 50 * client.slow
local SAMPLES = 101
local FLOODED = { progressToken = "flood" } -- _meta of a call that wants to hear of it

-- flood notes whether it was ended by us, for the resource of that name.
local INIT = client.no_pool .. [[

local ended = "no"
tool "flood" { description = "says more than anybody reads",
  input = { type = "object", properties = {} },
  handler = function(_, ctx)
    local text = ("x"):rep(262144)
    ended = "no"
    for i = 1, 150 do
      ctx.progress(i, nil, text)
      ctx.sleep(11) -- one is taken every 10 ms
    end
    ended = "by itself"
    return "done"
  end }
tool "flooded" { description = "whether the flood came to its end",
  input = { type = "object", properties = {} },
  handler = function() return ended end }
]]

local server, before

-- What the memory has grown by is below a limit; a sanitizer keeps what was freed.
local function is_below(limit) return client.slow > 1 or server:rss() - before < limit end

local function assert_below(limit)
  assert.is_true(is_below(limit), (server:rss() - before) // MIB .. " MiB more")
end

-- Requests, each by a new client: none is refused, and the next client is served
-- within SERVED_MS. That is judged by the median of many. A single sample shows when
-- the test machine ran us, the server and its neighbours, not what the server does: on
-- two busy processors a request that takes 1 ms waits for tens of them now and then.
local function assert_served()
  local times = {}
  for i = 1, SAMPLES do
    local started = client.now_ms()
    assert.equal(200, server:modern("tools/list", {}).status)
    times[i] = client.now_ms() - started
  end
  table.sort(times)
  local median = times[(SAMPLES + 1) // 2]
  assert.is_true(median < SERVED_MS, ("%.1f ms"):format(median))
end

-- Closes connections at the end of a test, however it ends.
local function closing(list)
  return setmetatable(list, { __close = function()
    for _, connection in ipairs(list) do connection:close() end
  end })
end

-- What a peer says before it closes the connection: a status, or nil.
local function verdict(connection)
  local status = connection:head()
  return status
end

describe("an HTTP server under abuse", function()
  setup(function()
    server = http.start { init = INIT, seconds = 300 }
    assert_served()
    before = server:rss()
  end)
  teardown(function() assert.equal(0, (server:close())) end)

  it("does not grow with clients that come and go", function()
    local function wave()
      for i = 1, 300 do
        local session = server:session()
        if i % 3 == 0 then session:delete() end
        if i % 5 == 0 then session:listen():close() end
        local sse = server:connect()
        sse:request("GET", "/sse")
        sse:close()
      end
      client.sleep(1)
      return server:rss()
    end
    wave()
    local first = wave()
    local growth = math.max(wave(), wave()) - first
    assert.is_true(growth < 8 * MIB or client.slow > 1, growth // 1024 .. " KiB")
  end)

  it("serves the next one beside 200 idle and 50 slow ones, a large body, an endless head, a deaf reader", function()
    local idle <close> = closing {}
    local slow <close> = closing {}
    for i = 1, 200 do idle[i] = server:connect() end
    for i = 1, 50 do
      slow[i] = server:connect()
      slow[i]:request("POST", "/mcp", http.headers { ["Content-Length"] = "1000" })
    end
    local large, head, deaf = server:connect(), server:connect(), server:connect()
    local guard <close> = closing { large, head, deaf }
    large.tcp:settimeout(0.2)
    large:request("POST", "/mcp", http.headers { ["Content-Length"] = tostring(64 * MIB) })
    head.tcp:settimeout(0.2)
    head:write "GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
    deaf:request("POST", "/mcp", http.modern_headers("tools/call", "flood"), json.encode(http.request("tools/call",
      http.modern_params({ name = "flood" }, nil, FLOODED))))
    for round = 1, 20 do
      for _, connection in ipairs(slow) do connection:write " " end
      large:write(("x"):rep(MIB))
      head:write(("X-Filler-%d: %s\r\n"):format(round, ("y"):rep(4000)))
      if round % 4 == 0 then assert_served() end
    end
    assert_below(64 * MIB)
  end)

  it("ends a head without end, and one that is too large", function()
    local connection = server:connect()
    connection:write "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: "
    for _ = 1, 64 do
      if not connection:write(("z"):rep(16384)) then break end
    end
    local status = verdict(connection)
    assert.is_true(status == nil or status == 431 or status == 413 or status == 400, tostring(status))
    connection:close()
    local many = server:connect()
    many:write "GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
    for i = 1, 20000 do
      if not many:write(("A%d: b\r\n"):format(i)) then break end
    end
    status = verdict(many)
    assert.is_true(status == nil or status == 431 or status == 413 or status == 400, tostring(status))
    many:close()
    assert_served()
  end)

  it("keeps nothing of a body that is too long, and says so", function()
    for _, headers in ipairs { { ["Content-Length"] = tostring(64 * MIB), Expect = "100-continue" },
      { ["Content-Length"] = tostring(64 * MIB) } } do
      local connection = server:connect()
      connection:request("POST", "/mcp", http.headers(headers))
      for _ = 1, headers.Expect and 0 or 64 do connection:write(("x"):rep(MIB)) end
      assert_below(64 * MIB)
      assert.equal(413, verdict(connection))
      connection:close()
    end
  end)

  it("holds so many bodies at a time and no more, says so, and keeps a place for small ones", function()
    local list <close> = closing {}
    local statuses = {}
    for i = 1, 24 do -- 4 MiB each; there is room for 48 MiB of such
      list[i] = server:connect()
      list[i]:request("POST", "/mcp", http.headers { ["Content-Length"] = tostring(4 * MIB) })
      list[i].tcp:settimeout(5)
      list[i]:write(("x"):rep(4 * MIB - (i <= 12 and 10 or 0)))
      if i > 12 then statuses[#statuses + 1] = verdict(list[i]) end
    end
    for i = 1, 12 do assert.equal(503, statuses[i]) end
    assert_served()
    assert_below(100 * MIB)
    for i = 1, 12 do
      list[i]:write(("x"):rep(10))
      assert.equal(400, verdict(list[i])) -- no JSON
    end
  end)

  it("gives memory back", function()
    client.eventually(5, function() return is_below(40 * MIB) end)
    assert_below(40 * MIB)
    assert_served()
  end)

  it("ends a client that reads nothing, and what it asked for", function()
    local connection = server:modern_open("tools/call", { name = "flood" }, { meta = FLOODED })
    client.sleep(4 * client.slow) -- twice what the flood takes
    assert_served()
    assert_below(48 * MIB)
    assert.equal("no", server:modern("tools/call", { name = "flooded" }).json.result.content[1].text)
    connection:close()
  end)

  it("keeps no more for a legacy client that reads nothing than for all of them", function()
    local session = server:session()
    local list <close> = closing {}
    for i = 1, 3 do list[i] = session:open(http.call("flood", nil, i, FLOODED)) end
    client.eventually(20 * client.slow, function()
      return server:modern("tools/call", { name = "flooded" }).json.result.content[1].text == "by itself"
    end)
    assert_served()
    assert_below(80 * MIB)
  end)

  it("closes what idles when all places are taken", function()
    local crowded = http.start { init = client.no_pool .. "\nhttp.connections = 16" }
    local list <close> = closing {}
    for i = 1, 40 do list[i] = crowded:connect() end
    assert.equal(200, crowded:modern("tools/list", {}).status)
    local closed = 0
    for _, connection in ipairs(list) do
      if connection:is_closed(0.01) then closed = closed + 1 end
    end
    assert.is_true(closed >= 24, closed .. " closed")
    local streams <close>, statuses = closing {}, {}
    for i = 1, 12 do
      streams[i] = crowded:connect()
      streams[i]:request("GET", "/sse")
      local status = streams[i]:head() or 0
      statuses[status] = (statuses[status] or 0) + 1
    end
    assert.same({ [200] = 4, [503] = 8 }, statuses) -- half of the places for streams, to one client
    assert.equal(200, crowded:modern("tools/list", {}).status)
    assert.equal(0, (crowded:close()))
  end)

  it("ends a request that drips", function()
    local strict = http.start { init = client.no_pool .. "\nhttp.request_seconds = 1\nhttp.idle_seconds = 1" }
    local list <close> = closing {}
    for i, text in ipairs { "", "POST /mcp HT", "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX: ",
      "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n" } do
      list[i] = strict:connect()
      list[i]:write(text)
    end
    local started = client.now_ms()
    while client.now_ms() - started < 2500 * client.slow do
      for i, connection in ipairs(list) do
        if i > 1 then connection:write "1" end
      end
      client.sleep(0.1)
    end
    for i, connection in ipairs(list) do
      connection.tcp:settimeout(0.1)
      local data, why = connection.tcp:receive "*a"
      assert.is_true(data ~= nil or why == "closed", "connection " .. i .. ": " .. tostring(why))
    end
    assert.equal(0, (strict:close()))
  end)

  it("survives what is no HTTP", function()
    for _, text in ipairs { "\r\n\r\n", "GET\r\n\r\n", "\0\1\2\3", "GET /mcp HTTP/9.9\r\n\r\n", ("A"):rep(100000),
      "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
      "POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
      "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
      "GET http://evil.example/mcp HTTP/1.1\r\nHost: localhost\r\n\r\n",
      "GET /mcp HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n",
      "GET /%00 HTTP/1.1\r\nHost: localhost\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc" } do
      local connection = server:connect()
      connection:write(text)
      connection.tcp:settimeout(0.2)
      local status = verdict(connection)
      assert.is_true(status == nil or status >= 400, text)
      connection:close()
    end
    assert_served()
  end)
end)
