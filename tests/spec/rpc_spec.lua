local core = require "sandbox_runner.core"
local rpc = require "sandbox_runner.rpc"

local function kind(text) return rpc.parse(text).kind end

local function bad(text)
  local message = rpc.parse(text)
  assert.equal("bad", message.kind, text)
  return message.code, message.id
end

local function ping(id) return ('{"jsonrpc":"2.0","id":%s,"method":"ping"}'):format(id) end

describe("rpc", function()
  it("reads requests and keeps ids digit by digit", function()
    for _, id in ipairs { "0", "-5", "1", '"abc"', '""', '"a\\u0062"', "9007199254740993",
      "12345678901234567890", '"1"' } do
      local message = rpc.parse(ping(id))
      assert.equal("request", message.kind, id)
      assert.equal('{"id":' .. id .. ',"jsonrpc":"2.0","result":{}}',
        core.json.encode(rpc.result(message.id, {})))
    end
  end)

  it("compares ids by type and value", function()
    local function key(id) return rpc.parse(ping(id)).key end
    assert.equal(key '"ab"', key '"a\\u0062"')
    assert.are_not.equal(key '"1"', key "1")
    assert.are_not.equal(key "9007199254740992", key "9007199254740993")
    local cancel = '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s,"reason":"r"}}'
    for _, id in ipairs { "1", '"1"', "9007199254740993", "-5" } do
      assert.equal(key(id), rpc.cancelled_key(rpc.parse(cancel:format(id))))
    end
    assert.is_nil(rpc.cancelled_key(rpc.parse(cancel:format("null"))))
    assert.is_nil(rpc.cancelled_key(rpc.parse(cancel:format("{}"))))
  end)

  it("refuses ids that are none", function()
    for _, id in ipairs { "null", "1.5", "true", "{}", "[]", "1e400" } do
      local code, echoed = bad(ping(id))
      assert.equal(-32600, code, id)
      assert.is_nil(echoed)
    end
  end)

  it("answers JSON that is no request, with the id when it is usable", function()
    for text, id in pairs { ["42"] = false, ["null"] = false, ['"hi"'] = false, ["{}"] = false,
      ["true"] = false, ["false"] = false, ['{"jsonrpc":"1.0","id":1,"method":"ping"}'] = "1",
      ['{"id":"x","method":"ping"}'] = '"x"', ['{"jsonrpc":"2.0","id":1,"method":7}'] = "1",
      ['{"jsonrpc":"2.0","id":1}'] = "1", ['{"jsonrpc":"2.0","id":1,"method":"ping","x":1}'] = "1",
      ['{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}'] = "1" } do
      local code, echoed = bad(text)
      assert.equal(-32600, code, text)
      assert.equal(id or nil, echoed, text)
    end
  end)

  it("answers text that is no JSON", function()
    for _, text in ipairs { "{", "nope", "\239\187\191{}", '{"a":NaN}', '{"a":"\1"}', '"\255"', "{}{}", "\0" } do
      assert.equal(-32700, (bad(text)), text)
    end
    local code, id = bad('{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":"\255"}}')
    assert.same({ -32700, "7" }, { code, id })
  end)

  it("takes absent, empty and null params and refuses others", function()
    for _, params in ipairs { '{}', 'null', '{"_meta":{}}' } do
      assert.equal("request", kind('{"jsonrpc":"2.0","id":1,"method":"ping","params":' .. params .. "}"))
    end
    for _, params in ipairs { "[]", '"x"', "7", "true" } do
      local code, id = bad('{"jsonrpc":"2.0","id":1,"method":"ping","params":' .. params .. "}")
      assert.same({ -32602, "1" }, { code, id })
    end
  end)

  it("never answers notifications, responses and blank lines", function()
    for text, want in pairs { [""] = "blank", [" \r"] = "blank", ['{"jsonrpc":"2.0","id":1,"result":{}}'] = "response",
      ['{"jsonrpc":"2.0","error":{"code":1,"message":"x"}}'] = "response", ['{"result":1}'] = "response",
      ['{"jsonrpc":"2.0","method":"x"}'] = "notification", ['{"jsonrpc":"1.0","method":"x"}'] = "ignored",
      ['{"jsonrpc":"2.0","method":7}'] = "ignored", ['{"jsonrpc":"2.0","method":"x","params":[]}'] = "ignored" } do
      assert.equal(want, kind(text), text)
    end
  end)

  it("marks messages whose strings hold NUL", function()
    local message = rpc.parse('{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"b\\u0000c"}}')
    assert.is_true(message.nul)
    assert.equal("b\239\191\189c", message.params.a)
    assert.is_nil(rpc.parse('{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"b\\\\u0000c"}}').nul)
  end)

  it("reads batches element by element, raw ids too", function()
    local message = rpc.parse('[' .. ping "9007199254740993" .. ', ' .. ping '"]},\\"{["' .. ' ,42,[1,{}],"a,b"]')
    assert.equal("batch", message.kind)
    local kinds, ids = {}, {}
    for i, item in ipairs(message.items) do kinds[i], ids[i] = item.kind, item.id or false end
    assert.same({ "request", "request", "bad", "bad", "bad" }, kinds)
    assert.same({ "9007199254740993", '"]},\\"{["', false, false, false }, ids)
    assert.same({}, rpc.parse(" [ ] ").items)
  end)
end)
