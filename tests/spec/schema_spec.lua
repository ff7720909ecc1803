local core = require "sandbox_runner.core"
local schema = require "sandbox_runner.schema"

local null = core.json.null

describe("schema", function()
  it("reads sizes as Docker writes them", function()
    local sizes = { ["256m"] = 268435456, ["256M"] = 268435456, ["256mb"] = 268435456,
      ["256MiB"] = 268435456, ["1g"] = 1073741824, ["1.5g"] = 1610612736, ["64k"] = 65536,
      ["10b"] = 10, ["4096"] = 4096, ["0"] = 0 }
    for text, bytes in pairs(sizes) do assert.equal(bytes, schema.parse_size(text), text) end
    assert.equal(4096, schema.parse_size(4096))
    assert.equal(4096, schema.parse_size(4096.0))
    for _, bad in ipairs { "-1", "1x", "", "m", "1 m", "1mm", "0x10", "1e3", "inf", -1, 0.5, 0 / 0,
      math.huge } do
      assert.is_nil(schema.parse_size(bad), tostring(bad))
    end
  end)

  it("writes sizes with the largest fitting unit", function()
    for _, text in ipairs { "256m", "1g", "1k", "1000", "0" } do
      assert.equal(text, schema.format_size(schema.parse_size(text)))
    end
  end)

  it("takes whole numbers only, numeric strings only when lenient", function()
    local strict, lenient = schema.integer { min = 1, max = 30 }, schema.integer { min = 1, max = 30,
      lenient = true }
    assert.equal(5, schema.check(strict, 5.0, "n"))
    assert.is_nil(schema.check(strict, "5", "n"))
    for _, good in ipairs { "5", " 5 ", "5.0", 5, 5.0 } do
      local value = schema.check(lenient, good, "n")
      assert.equal(5, value)
      assert.equal("integer", math.type(value))
    end
    for _, bad in ipairs { 0, 31, -1, 10.5, "5s", "", "0x5", "1e1", "10.5", true, {}, 0 / 0, math.huge,
      1e308, "99999999999999999999999" } do
      local value, message = schema.check(lenient, bad, "n")
      assert.is_nil(value)
      assert.matches("^n must be a whole number from 1 to 30, got ", message)
    end
  end)

  it("names the path and the closest known field", function()
    local node = schema.record({ memory = schema.size { default = 1 } }, { noun = "setting" })
    local _, message = schema.check(node, { memroy = 1 }, "limits")
    assert.equal('limits: unknown setting "memroy"; did you mean "memory"?', message)
    _, message = schema.check(schema.array(schema.string {}), { "a", 7 }, "run")
    assert.equal("run[2] must be a string, got 7", message)
    _, message = schema.check(schema.map(schema.string {}, { key = schema.string {} }), { A = 1 }, "env")
    assert.equal("env.A must be a string, got 1", message)
  end)

  it("fills defaults, leaves optional fields out, insists on the others", function()
    local node = schema.record { a = schema.integer { default = 3 },
      b = schema.string { optional = true }, c = schema.string { hint = "say it" } }
    assert.same({ a = 3, c = "x" }, schema.check(node, { c = "x" }))
    local _, message = schema.check(node, {})
    assert.equal("c is missing; say it", message)
  end)

  it("takes null for an absent optional field only in a lenient record", function()
    local fields = { a = schema.integer { default = 3 } }
    assert.same({ a = 3 }, schema.check(schema.record(fields, { lenient = true }), { a = null }))
    assert.is_nil(schema.check(schema.record(fields), { a = null }))
    assert.equal(null, schema.check(schema.nullable(schema.integer {}), null))
    assert.equal(1, schema.check(schema.nullable(schema.integer {}), 1))
  end)

  it("keeps lists and tables apart", function()
    assert.is_nil(schema.check(schema.record {}, core.json.array {}, "x"))
    assert.is_nil(schema.check(schema.record {}, { 1 }, "x"))
    assert.is_nil(schema.check(schema.array(schema.integer {}), { 1, nil, 3, x = 1 }, "x"))
    assert.is_nil(schema.check(schema.array(schema.integer {}, { min_items = 1 }), {}, "x"))
  end)

  it("publishes JSON Schema without null members, type lists or references", function()
    local node = schema.record({ n = schema.nullable(schema.integer { doc = "N." }),
      s = schema.enum({ "a", "b" }, { default = "a" }), l = schema.array(schema.number { min = 0 }) })
    assert.equal('{"additionalProperties":false,"properties":{'
      .. '"l":{"items":{"minimum":0,"type":"number"},"type":"array"},'
      .. '"n":{"anyOf":[{"type":"integer"},{"type":"null"}],"description":"N."},'
      .. '"s":{"default":"a","enum":["a","b"],"type":"string"}},'
      .. '"required":["l","n"],"type":"object"}', core.json.encode(schema.to_json(node)))
    assert.equal('{"additionalProperties":false,"properties":{},"type":"object"}',
      core.json.encode(schema.to_json(schema.record {})))
  end)

  it("shows values on one short line", function()
    assert.equal('"a\\nb"', schema.show("a\nb"))
    assert.equal("null", schema.show(null))
    assert.equal("NaN", schema.show(0 / 0))
    assert.is_true(#schema.show(("x"):rep(1000)) < 60)
  end)
end)
