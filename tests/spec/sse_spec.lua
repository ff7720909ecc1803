-- The older transport on the real httpd: sessions that end while something goes on.
local core = require "sandbox_runner.core"
local fake = require "spec.support.fake"
local here = require "spec.support.here"

local PING = '{"jsonrpc":"2.0","id":1,"method":"ping"}'

-- Opens a session: the client that reads its stream, its entry, and where it is posted to.
local function open(place)
  local client = place:connect()
  client:request("GET", "/sse")
  local path, id = client:wait("\n\n"):match "data: (/messages/%?session_id=(%x+))"
  return client, place.front.sse.sessions.entries[id], path
end

local function count(t)
  local n = 0
  for _ in pairs(t) do n = n + 1 end
  return n
end

describe("a session of the older transport", function()
  it("that is evicted while its client reads slowly leaves the signs of life to others", fake.task(function()
    local place <close> = here.start { init = "http.sessions = 1", http = { keepalive_seconds = 0.02 } }
    local slow <close>, entry = open(place)
    local filler = ("x"):rep(1 << 20)
    for _ = 1, 7 do assert.is_true(entry.send(filler)) end
    local other <close> = open(place)
    assert.equal(2, count(place.front.watched)) -- the first is not read to its end
    for _ = 1, 3 do
      other:wait ": keep-alive\n\n"
      other.text = ""
    end
    assert.same({}, place.log)
    assert.is_false(entry.send "{}")
    assert.is_true(#slow:wait "\r\n0\r\n\r\n" > 7 << 20) -- what was written still comes
    fake.eventually(function() return count(place.front.watched) == 1 end)
  end))

  it("that ends during the body of a POST is not found any more", fake.task(function()
    local place <close> = here.start()
    local stream, entry, path = open(place)
    local client <close> = place:connect()
    client:request("POST", path, { ["Content-Type"] = "application/json", ["Content-Length"] = #PING })
    client:write(PING:sub(1, 5))
    core.loop.sleep(20)
    stream:close()
    fake.eventually(function() return place.front.sse.sessions.count == 0 end)
    client:write(PING:sub(6))
    local status, text = client:response()
    assert.equal(404, status)
    assert.matches("GET /sse", text, 1, true)
    assert.is_false(entry.send "{}")
  end))

  it("is answered once, and counted so, whatever the core does", fake.task(function()
    local session = { has_batches = function() return false end, close = function() end }
    function session.dispatch(_, _, sink)
      sink.reply '"first"'
      sink.reply '"second"'
    end
    local place <close> = here.start { server = { session = function() return session end } }
    local stream <close>, entry, path = open(place)
    local client <close> = place:connect()
    client:post(path, core.json.decode(PING))
    assert.equal(202, (client:response()))
    stream:wait '"first"'
    core.loop.sleep(20)
    assert.is_nil(stream:wait("data"):find "second")
    assert.same({ 1, 1 }, { entry.busy, entry.streams })
  end))

  it("is refused for a while when all are at work", fake.task(function()
    local place <close> = here.start { init = "http.sessions = 1" }
    local stream <close>, entry = open(place)
    place.front.sse.sessions:enter(entry)
    local client <close> = place:connect()
    client:request("GET", "/sse")
    local status, text = client:response()
    assert.equal(503, status)
    assert.matches("\r\nRetry%-After: 5\r\n", text)
    assert.matches("too many sessions", text)
    stream:close()
  end))
end)
