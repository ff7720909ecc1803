local core = require "sandbox_runner.core"
local fake = require "spec.support.fake"
local socket = require "socket"

local loop = core.loop

--- A server that is closed with the test, and answers each request with handler(request, server)
-- in a task of its own; without a handler the test accepts.
local function serve(options, handler)
  local server = assert(core.httpd.listen(options or {}))
  if handler then
    loop.spawn(function()
      for request in function() return server:accept() or nil end do
        loop.spawn(handler, request, server)
      end
    end)
  end
  return server
end

--- A client's connection; closed with the test.
local function connect(server)
  local client = assert(socket.connect(server:address()))
  client:settimeout(0)
  return setmetatable({}, {
    __index = {
      send = function(_, text)
        local at = 1
        fake.eventually(function()
          local sent, _, partly = client:send(text, at)
          at = (sent or partly) + 1
          return at > #text
        end, "sent")
      end,
      --- What comes until `ending` has come, or until the server closes.
      receive = function(_, ending)
        local got = {}
        fake.eventually(function()
          local text, why, partly = client:receive(65536)
          got[#got + 1] = text or partly
          return why == "closed" or ending and table.concat(got):find(ending, 1, true)
        end, ending or "the end")
        return table.concat(got)
      end,
      close = function() client:close() end,
      half_close = function() client:shutdown "send" end,
    },
    __close = function() client:close() end,
  })
end

local function ask(server, text, ending)
  local client <close> = connect(server)
  client:send(text)
  return client:receive(ending)
end

local function post(body, headers)
  return ("POST / HTTP/1.1\r\nHost: a\r\n%sContent-Length: %d\r\n\r\n%s"):format(headers or "", #body, body)
end

local GET = "GET /x?y=1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

describe("httpd", function()
  it("hands over what the client said", fake.task(function()
    local seen
    local server <close> = serve(nil, function(request)
      seen = { request:method(), request:target(), request:header("x-two"), request:header("X-None") or "none",
        request:header("content-type"), request:peer(), request:read(100), (select(2, request:read(100))).code }
      request:respond(201, { ["Content-Type"] = "text/plain", ["X-Number"] = 7 }, "fine")
    end)
    local answer = ask(server, post("body", "x-two: 1\r\nX-TWO: 2\r\nContent-Type: a/b\r\n"), "fine")
    assert.same({ "POST", "/", "1, 2", "none", "a/b", "127.0.0.1", "body", "conflict" }, seen)
    assert.matches("^HTTP/1.1 201 Created\r\n", answer)
    assert.matches("\r\nContent%-Type: text/plain\r\n", answer)
    assert.matches("\r\nX%-Number: 7\r\n", answer)
    assert.matches("\r\n\r\nfine$", answer)
  end))

  it("passes bodies on byte for byte, and an absent one as an empty one", fake.task(function()
    local server <close> = serve(nil, function(request) request:respond(200, nil, request:read(1 << 20)) end)
    local body = ("\0\xff\r\n%z"):rep(100000)
    local answer = ask(server, post(body, "Connection: close\r\n"))
    assert.equal(body, answer:match("\r\n\r\n(.*)$"))
    assert.matches("Content%-Length: 0\r\n", ask(server, GET))
  end))

  it("serves requests side by side", fake.task(function()
    local server <close> = serve(nil, function(request)
      loop.sleep(200)
      request:respond(200, {}, "slept")
    end)
    local start, clients = loop.now_ms(), {}
    for i = 1, 20 do
      clients[i] = connect(server)
      clients[i]:send(GET)
    end
    for _, client in ipairs(clients) do
      client:receive("slept")
      client:close()
    end
    assert.is_true(loop.now_ms() - start < 3000)
  end))

  it("says why a body cannot be had, and answers all the same", fake.task(function()
    local codes = {}
    local server <close> = serve({ body_budget = 50, request_seconds = 0.3 }, function(request)
      local body, err = request:read(100)
      codes[#codes + 1] = body or err.code
      request:respond(body and 200 or 400, {}, "answered")
    end)
    assert.matches(" 400 ", ask(server, post(("x"):rep(101)), "answered"))
    assert.matches(" 400 ", ask(server, post(("x"):rep(60)), "answered"))
    assert.matches(" 200 ", ask(server, post(("x"):rep(40)), "answered"))
    assert.equal("", ask(server, (post("xxxx"):sub(1, -2)))) -- one byte is missing
    local client <close> = connect(server)
    client:send((post("xxxx"):sub(1, -2)))
    client:close()
    fake.eventually(function() return #codes == 5 end)
    assert.same({ "too_large", "unavailable", ("x"):rep(40), "timeout", "conflict" }, codes)
    assert.same({ connections = 0, max_connections = 1000, requests = 0, buffered = 0, unsent = 0 }, server:stats())
  end))

  it("streams", fake.task(function()
    local ended
    local server <close> = serve(nil, function(request)
      local stream <close> = request:stream(200, { ["Content-Type"] = "text/event-stream" })
      for i = 1, 3 do
        assert.is_true(stream:write("data: " .. i .. "\n\n"))
        loop.sleep(5)
      end
      stream:close()
      stream:close()
      assert.error_matches(function() stream:write("x") end, "the stream is closed")
      ended = request:wait_gone()
    end)
    local answer = ask(server, GET)
    assert.matches("\r\nTransfer%-Encoding: chunked\r\n", answer)
    assert.matches("data: 1.*data: 2.*data: 3.*\r\n0\r\n\r\n$", answer)
    fake.eventually(function() return ended end)
    assert.equal("done", ended)
  end))

  it("notices that the client of a stream has gone, or does not read", fake.task(function()
    local ends = {}
    local server <close> = serve({ stream_bytes = 100000 }, function(request)
      local stream <close> = request:stream(200, {})
      stream:write("begun")
      if request:target() == "/full" then
        local ok, err
        repeat
          ok, err = stream:write(("x"):rep(50000))
          loop.sleep(0)
        until not ok
        ends[#ends + 1] = err.code
      end
      ends[#ends + 1] = request:wait_gone()
      ends[#ends + 1] = select(2, stream:write("more")).code
    end)
    local client <close> = connect(server)
    client:send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    client:receive("begun")
    client:close()
    fake.eventually(function() return #ends == 2 end)
    local deaf <close> = connect(server)
    deaf:send("GET /full HTTP/1.1\r\nHost: a\r\n\r\n")
    fake.eventually(function() return #ends == 5 end)
    assert.same({ "gone", "conflict", "conflict", "gone", "conflict" }, ends)
  end))

  it("gives up streams that are not read, by time and by the sum of what waits", fake.task(function()
    local server <close> = serve { request_seconds = 0.5, output_budget = 1 << 20 }
    local clients, streams = {}, {}
    for i = 1, 3 do
      clients[i] = connect(server)
      clients[i]:send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
      streams[i] = server:accept():stream(200, {})
    end
    local broken = 0
    for _ = 1, 100 do
      for i = 1, 2 do
        if streams[i] and not streams[i]:write(("x"):rep(400000)) then streams[i], broken = nil, broken + 1 end
      end
      assert.is_true(server:stats().unsent < 3 << 20)
      loop.sleep(5)
    end
    assert.is_true(broken >= 1)
    fake.eventually(function() return server:stats().requests == 1 end)
    assert.equal(0, server:stats().unsent)
    assert.is_true(streams[3]:write "still here")
    clients[3]:receive "still here"
    for _, client in ipairs(clients) do client:close() end
  end))

  it("answers a client that has closed its sending side", fake.task(function()
    local server <close> = serve(nil, function(request)
      local body = request:read(100)
      request:respond(200, {}, request:wait_gone() .. " " .. body)
    end)
    local client <close> = connect(server)
    client:send(post "body")
    client:half_close()
    assert.matches("\r\n\r\ngone body$", client:receive())
  end))

  it("passes on the length as it was sent, and refuses one that nobody has", fake.task(function()
    local seen
    local server <close> = serve(nil, function(request)
      seen = request:header "content-length"
      request:respond(200, {}, "fine")
    end)
    ask(server, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0004\r\n\r\nbody", "fine")
    assert.equal("0004", seen)
    local absurd = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551615\r\n\r\nbody"
    assert.matches("^HTTP/1.1 413 ", ask(server, absurd))
  end))

  it("answers for a request that was forgotten, and breaks off a stream that was", fake.task(function()
    local server <close> = serve()
    local one <close> = connect(server)
    local two <close> = connect(server)
    one:send(GET)
    do
      local request = server:accept()
      assert.equal("GET", request:method())
    end
    two:send(GET)
    do
      local stream = server:accept():stream(200, {})
      stream:write("half")
      assert.matches("half", two:receive("half"))
    end
    collectgarbage()
    collectgarbage()
    assert.matches("^HTTP/1.1 500 ", one:receive())
    assert.not_matches("0\r\n\r\n", two:receive())
  end))

  it("refuses what would split an answer, and a second answer", fake.task(function()
    local server <close> = serve()
    local client <close> = connect(server)
    client:send(GET)
    local request = server:accept()
    for _, headers in ipairs { { X = "a\r\nB: c" }, { X = "a\nb" }, { X = "a\0b" }, { ["X\r\nB"] = "c" },
      { ["a b"] = "c" }, { [""] = "c" }, { "c" }, { X = {} }, { ["Content-Length"] = "1" },
      { ["Transfer-Encoding"] = "gzip" }, { connection = "upgrade" } } do
      assert.has_error(function() request:respond(200, headers, "") end)
      assert.has_error(function() request:stream(200, headers) end)
    end
    for _, status in ipairs { 99, 100, 199, 600, 1000, 2.5, "x" } do
      assert.has_error(function() request:respond(status, {}, "") end)
    end
    assert.is_true(request:respond(200, { X = "", Connection = "close" }, "one"))
    assert.has_error(function() request:respond(200, {}, "two") end, "the request was answered already")
    assert.has_error(function() request:stream(200, {}) end, "the request was answered already")
    assert.matches("\r\n\r\none$", client:receive())
  end))

  it("refuses a stream to who gets no body", fake.task(function()
    local server <close> = serve()
    local client <close> = connect(server)
    client:send((GET:gsub("^GET", "HEAD")))
    local request = server:accept()
    assert.has_error(function() request:stream(200, {}) end, "an answer without a body cannot be a stream")
    assert.is_true(request:respond(200, {}, "body"))
    local answer = client:receive()
    assert.matches("\r\nContent%-Length: 4\r\n", answer)
    assert.matches("\r\n\r\n$", answer)
  end))

  it("refuses headers that grow while they are read", fake.task(function()
    local server <close> = serve()
    local client <close> = connect(server)
    client:send(GET)
    local request, headers, grown = server:accept(), {}, false
    for i = 1, 40 do headers["X-" .. i] = ("x"):rep(40) end
    collectgarbage()
    collectgarbage("stop")
    setmetatable({}, { __gc = function()
      for i = 1, 40 do headers["X-" .. i] = ("x"):rep(60) end
      grown = true
    end })
    local before = collectgarbage("incremental", 100, 1000, 63) -- a whole cycle in one step, at the next allocation
    collectgarbage("restart")
    local ok, err = pcall(request.respond, request, 200, headers, "")
    collectgarbage("incremental", 200, 100, 13) -- the defaults
    collectgarbage(before)
    assert.is_true(grown)
    assert.is_false(ok)
    assert.matches("the table changed", err)
    assert.is_true(request:respond(200, headers, ""))
    assert.matches("X%-40: " .. ("x"):rep(60), client:receive())
  end))

  it("tells apart a port in use, one that is not allowed, and a host that is not here", fake.task(function()
    local server <close> = serve()
    local host, port = server:address()
    assert.equal("127.0.0.1", host)
    local none, err = core.httpd.listen { port = port }
    assert.is_nil(none)
    assert.equal("conflict", err.code)
    assert.equal(("127.0.0.1:%d is in use by another program; name another --port"):format(port), err.message)
    assert.equal("invalid", select(2, core.httpd.listen { host = "no.such.host.invalid" }).code)
    assert.equal("invalid", select(2, core.httpd.listen { host = "192.0.2.1" }).code)
    for _, options in ipairs { { port = 65536 }, { port = "x" }, { port = 1.5 }, { connections = 0 }, { host = {} },
      { request_seconds = 0 }, { idle_seconds = "x" }, { header_bytes = 1 }, { body_budget = -1 },
      { stream_bytes = 0 }, { output_budget = 0 } } do
      assert.has_error(function() core.httpd.listen(options) end)
    end
  end))

  it("allows one waiter of a kind, and takes over after it was cancelled", fake.task(function()
    local server <close> = serve()
    local first = loop.spawn(function() server:accept() end)
    loop.sleep(0)
    assert.has_error(function() server:accept() end, "somebody accepts already")
    first:cancel()
    loop.sleep(0)
    local client <close> = connect(server)
    client:send((post("body"):sub(1, -2)))
    local request = server:accept()
    local reader = loop.spawn(function() request:read(100) end)
    local watcher = loop.spawn(function() request:wait_gone() end)
    loop.sleep(20)
    assert.has_error(function() request:read(100) end, "somebody reads this request already")
    assert.has_error(function() request:wait_gone() end, "somebody waits for the end of this request already")
    reader:cancel()
    watcher:cancel()
    loop.sleep(0)
    assert.equal("conflict", select(2, request:read(100)).code)
    request:respond(200, {}, "ok")
    client:send("y")
    assert.matches("ok$", client:receive("ok"))
    assert.equal("done", request:wait_gone())
  end))

  it("stops: what is there goes on, nothing else is accepted", fake.task(function()
    local server <close> = serve()
    local client <close> = connect(server)
    client:send(GET)
    local request, over = server:accept(), nil
    loop.spawn(function() over = server:accept() end)
    loop.sleep(0)
    server:stop()
    loop.sleep(0)
    assert.is_false(over)
    assert.is_false(server:accept())
    assert.is_nil(socket.connect(server:address()))
    request:respond(200, {}, "still")
    assert.matches("still$", client:receive())
  end))

  it("closes with everything in flight", fake.task(function()
    local server <close> = serve()
    local clients, requests, log = {}, {}, {}
    for i = 1, 4 do
      clients[i] = connect(server)
      clients[i]:send(i == 1 and (post("body"):sub(1, -2)) or GET)
      requests[i] = server:accept()
    end
    local stream = requests[3]:stream(200, {})
    stream:write("x")
    loop.spawn(function() log.read = select(2, requests[1]:read(100)).code end)
    loop.spawn(function() log.wait = requests[2]:wait_gone() end)
    loop.spawn(function() log.accept = server:accept() end)
    loop.sleep(20)
    server:close()
    server:close()
    server:stop()
    for _, client in ipairs(clients) do client:receive() end
    loop.sleep(0)
    assert.same({ read = "conflict", wait = "gone", accept = false }, log)
    assert.equal("conflict", select(2, stream:write("y")).code)
    assert.equal("conflict", select(2, requests[4]:respond(200, {}, "")).code)
    assert.equal("", requests[2]:read(1))
    assert.equal("GET", requests[2]:method())
    assert.is_false(server:accept())
    assert.same({ connections = 0, max_connections = 0, requests = 0, buffered = 0, unsent = 0 }, server:stats())
  end))

  it("cannot be reached by its metatables", fake.task(function()
    local server <close> = serve()
    assert.is_false(getmetatable(server))
  end))
end)
