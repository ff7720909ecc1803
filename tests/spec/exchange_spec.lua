-- One POST until its answer, on the real httpd: what reaches the client, how often,
-- and what is said of what cannot.
local core = require "sandbox_runner.core"
local events = require "sandbox_runner.event_stream"
local exchange = require "sandbox_runner.exchange"
local fake = require "spec.support.fake"
local here = require "spec.support.here"

local function now_ms() return 0 end
local function nothing() end

-- Runs fn(one, client, seen) with an exchange of a real request. options replace
-- those of the exchange; seen.over counts its ends.
local function with_exchange(options, fn)
  return fake.task(function()
    local httpd <close> = assert(core.httpd.listen {})
    local client <close> = here.connect(httpd:address())
    client:request("POST", "/", { Connection = "close" }, "{}")
    local seen = { over = 0 }
    local all = { request = httpd:accept(), json = true, events = true, now_ms = now_ms, headers = nothing,
      status = function() return 200 end, unanswered = function() return 202 end,
      elsewhere = function() return false end, over = function() seen.over = seen.over + 1 end }
    for name, value in pairs(options) do all[name] = value end
    seen.request = all.request
    fn(exchange.new(all), client, seen)
  end)
end

local function go(one, client, seen)
  client:close()
  assert.equal("gone", seen.request:wait_gone())
  one:leave()
end

-- channel as an option of the exchange: one of a store of its own.
local function channel(primed)
  local one = events.store(now_ms):channel(1, primed)
  return function() return one end
end

describe("an exchange", function()
  it("replies exactly once, plainly", with_exchange({}, function(one, client, seen)
    local sink = one:sink()
    sink.reply('"first"', {})
    sink.reply('"second"', {})
    assert.is_false(sink.send '"late"')
    local text = client:wait()
    assert.matches("^HTTP/1.1 200 .*\r\n\r\n\"first\"$", text)
    assert.equal(1, seen.over)
  end))

  it("replies exactly once, at the end of a stream", with_exchange({}, function(one, client, seen)
    local sink = one:sink()
    assert.is_true(sink.send '"note"')
    sink.reply('"first"', {})
    sink.reply('"second"', {})
    assert.is_false(sink.send '"late"')
    one:keep_alive(1e9, 1)
    local text = client:wait()
    assert.matches('data: "note".*data: "first".*\r\n0\r\n\r\n$', text)
    assert.is_nil(text:find "second")
    assert.is_nil(text:find "late")
    assert.equal(1, seen.over)
  end))

  it("replies with nothing but a status when there is nothing to say", with_exchange({}, function(one, client, seen)
    one:reply(nil)
    one:reply('"late"', {})
    assert.matches("^HTTP/1.1 202 .*\r\nContent%-Length: 0\r\n\r\n$", client:wait())
    assert.equal(1, seen.over)
  end))

  for _, reached in ipairs { true, false } do
    it(("says %s of a message that goes elsewhere, where it is so"):format(reached), with_exchange(
      { events = false, elsewhere = function() return reached end }, function(one)
        assert.equal(reached, one:sink().send '"x"')
      end))
  end

  it("says that a message cannot reach a client that went before the stream", with_exchange(
    { channel = channel(true) }, function(one, client, seen)
      go(one, client, seen)
      assert.is_false(one:sink().send '"x"')
      one:reply('"answer"', {})
      assert.equal(1, seen.over)
    end))

  it("says so of a stream that nobody can take up again", with_exchange({}, function(one, client, seen)
    assert.is_true(one:sink().send '"x"')
    go(one, client, seen)
    assert.is_false(one:sink().send '"y"')
  end))

  it("keeps a message for a client that can come back", with_exchange({ channel = channel(true) },
    function(one, client, seen)
      assert.is_true(one:sink().send '"x"')
      go(one, client, seen)
      assert.is_true(one:sink().send '"y"')
    end))
end)
