-- Completion against clients and handlers that do not do as they should; the rest is
-- in features_spec.lua.
local core = require "sandbox_runner.core"
local peer = require "spec.support.peer"

local null, array = core.json.null, core.json.array

local INIT = [[
local list = {}
for i = 1, 1000 do list[i] = "v" .. i end
prompt "p" {
  arguments = { { name = "text" }, { name = "number" }, { name = "named" }, { name = "hole" }, { name = "none" },
    { name = "empty" }, { name = "other" }, { name = "many" } },
  complete = { text = function() return "abc" end, number = function() return { "a", 7 } end,
    named = function() return { a = "b" } end, hole = function() return { "a", nil, "c" } end,
    none = function() end, empty = function() return {} end,
    other = function(_, ctx) return { ctx.arguments.text or "nothing" } end, many = list },
  messages = print,
}]]

local function ask(client, name, value, context)
  return client.ask("completion/complete", { ref = { type = "ref/prompt", name = "p" },
    argument = { name = name, value = value }, context = context })
end

-- A test body that gets a client after its handshake.
local function with(fn)
  return peer.run(INIT, function(client)
    client.initialize()
    fn(client)
  end)
end

describe("completion/complete", function()
  it("keeps it to the log when a function gives no list of texts", with(function(client)
    for name, why in pairs { text = ' must be a list of texts, got "abc"', number = "[2] must be a string, got 7",
      named = " must be a list of texts, got a table", hole = " must be a list of texts, got a list" } do
      local failure = ask(client, name, "").error
      assert.equal(-32603, failure.code)
      assert.matches("^internal error %(id %x+%)", failure.message)
      assert.matches(('what completes "%s"%s'):format(name, why), table.remove(client.log), 1, true)
    end
    for _, name in ipairs { "none", "empty" } do
      assert.same({ values = {}, total = 0, hasMore = false }, ask(client, name, "").result.completion)
    end
  end))

  it("takes what else is known as an object", with(function(client)
    for _, name in ipairs { "other", "many" } do
      for _, context in ipairs { "x", array {}, { arguments = "x" }, { arguments = array { "x" } } } do
        local failure = ask(client, name, "", context).error
        assert.equal(-32602, failure.code)
        assert.matches("context[.%l]* must be an object", failure.message)
      end
      for _, context in ipairs { null, {}, { arguments = null }, { arguments = {} } } do
        assert.is_table(ask(client, name, "", context).result)
      end
    end
    assert.same({ "b" }, ask(client, "other", "", { arguments = { text = "b" } }).result.completion.values)
  end))

  it("compares a long text with a long list in no time", with(function(client)
    local start = os.clock()
    assert.equal(0, ask(client, "many", ("v"):rep(1 << 20)).result.completion.total)
    assert.is_true(os.clock() - start < 0.5, os.clock() - start)
  end))
end)
