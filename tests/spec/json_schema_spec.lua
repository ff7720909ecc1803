local core = require "sandbox_runner.core"
local json_schema = require "sandbox_runner.json_schema"
local reader = require "sandbox_runner.json_schema_reader"
local schema = require "sandbox_runner.schema"

local null = core.json.null

local function read(node, portable) return reader.read(node, "input", portable) end

local function refused(node, portable)
  local out, message = read(node, portable)
  assert.is_nil(out)
  return message
end

local function object(properties, more)
  local node = { type = "object", properties = properties }
  for key, value in pairs(more or {}) do node[key] = value end
  return node
end

-- Checks one property x against a schema, with JSON text for the value.
local function check(node, text, options)
  local value = assert(core.json.decode('{"x":' .. text .. "}"))
  local out, message = json_schema.check(assert(read(object { x = node })), value, options)
  if out then return out.x end
  return nil, message
end

local LENIENT = { lenient = true }

describe("a schema of init.lua", function()
  it("is published as it was written", function()
    local written = { ["$schema"] = "https://json-schema.org/draft/2020-12/schema", type = "object",
      ["$defs"] = { address = { ["$anchor"] = "addressDef", type = "object",
        properties = { street = { type = "string" } } } },
      properties = { name = { type = "string" }, address = { ["$ref"] = "#/$defs/address" },
        contact = { type = "string", enum = { "phone", "email" } } },
      allOf = { { anyOf = { { required = { "phone" } }, { required = { "email" } } } } },
      ["if"] = { properties = { contact = { const = "phone" } }, required = { "contact" } },
      ["then"] = { required = { "phone" } }, ["else"] = { required = { "email" } },
      additionalProperties = false, ["x-own"] = { 1, 2 } }
    assert.equal(core.json.encode(written), core.json.encode(assert(read(written))))
  end)

  it("has lists and objects where the keyword wants them, when they are empty, too", function()
    local node = assert(read(object({ a = { type = "array", items = {}, default = {}, enum = {} },
      b = { const = {}, examples = {} } }, { required = {}, ["$defs"] = {} })))
    assert.equal('{"$defs":{},"properties":{"a":{"default":[],"enum":[],"items":{},"type":"array"},'
      .. '"b":{"const":{},"examples":[]}},"required":[],"type":"object"}', core.json.encode(node))
  end)

  local cyclic = { type = "object", properties = {} }
  cyclic.properties.x = cyclic
  local self_holding = {}
  self_holding.a = self_holding
  for name, case in pairs {
    ["a text"] = { "x", 'input must be a schema like { type = "string" }, got "x"' },
    ["a list"] = { { "x" }, "input must be a schema" },
    ["no type"] = { { properties = {} }, 'input.type must be "object"' },
    ["another type"] = { { type = "array", items = {} }, 'input.type must be "object"' },
    ["no properties"] = { { type = "object" }, "input.properties is missing; write properties = {}" },
    ["a misspelt keyword"] = { object({}, { requird = {} }), 'input.requird is no keyword of JSON Schema; did you '
      .. 'mean "required"?' },
    ["an argument as a keyword"] = { { type = "object", city = { type = "string" } },
      "input.city is no keyword of JSON Schema; names of arguments go into properties" },
    ["a misspelt type"] = { object { x = { type = "strng" } }, 'input.properties.x.type must be "string", ' },
    ["types that are none"] = { object { x = { type = {} } }, "input.properties.x.type must have at least 1" },
    ["properties as a list"] = { object { "x" }, "input.properties has the key 1; keys must be names" },
    ["a schema as a text"] = { object { x = "string" }, "input.properties.x must be a schema like" },
    ["a bound as a text"] = { object { x = { minimum = "1" } },
      'input.properties.x.minimum must be a number, got "1"' },
    ["a length below zero"] = { object { x = { minLength = -1 } }, "x.minLength must be a whole number of at least 0" },
    ["required as a text"] = { object({}, { required = "x" }), "input.required must be a list of names" },
    ["required of what is not there"] = { object({ name = {} }, { required = { "nmae" } }),
      'input.required names "nmae", which is not among the properties; did you mean "name"?' },
    ["a list of no schemas"] = { object({ x = { anyOf = {} } }), "anyOf must have at least 1 element" },
    ["a function"] = { object { x = { default = print } }, "x.default must be plain data, got a function" },
    ["not a number"] = { object { x = { minimum = 0 / 0 } }, "minimum must be a number, got NaN" },
    ["a reference into nothing"] = { object { x = { ["$ref"] = "#/$defs/y" } },
      'input.properties.x.$ref leads nowhere in this schema; write it like "#/$defs/name", got "#/$defs/y"' },
    ["a reference to elsewhere"] = { object { x = { items = { ["$ref"] = "https://x.example/s.json" } } },
      "input.properties.x.items.$ref leads nowhere in this schema" },
    ["one that holds itself"] = { cyclic, "is nested too deep, or holds itself" },
    ["data that holds itself"] = { object { x = { default = self_holding } }, "is nested too deep, or holds itself" },
  } do
    it("is refused: " .. name, function() assert.matches(case[2], refused(case[1]), 1, true) end)
  end

  it("that well-known hosts fail at is refused, unless it is wanted", function()
    for _, key in ipairs { "anyOf", "oneOf", "allOf" } do
      local node = object({ a = {} }, { [key] = { { required = { "a" } } } })
      assert.matches(("input.%s at the root makes model providers refuse"):format(key), refused(node, true), 1, true)
      assert.is_table(read(node, false))
    end
    assert.matches("input.properties.a must be a schema", refused(object { a = true }, true), 1, true)
    assert.is_table(read(object { a = { anyOf = { { type = "string" }, { type = "null" } } } }, true))
  end)
end)

describe("a value", function()
  it("has one of the types", function()
    local samples = { string = '"a"', integer = "3", number = "3.5", boolean = "false", null = "null", array = "[]",
      object = "{}" }
    local also = { integer = { number = true } }
    for kind, text in pairs(samples) do
      for wanted in pairs(samples) do
        local value, message = check({ type = wanted }, text)
        if kind == wanted or (also[kind] and also[kind][wanted]) then
          assert.is_nil(message)
        else
          assert.is_nil(value)
          assert.matches("^x must be ", message)
        end
      end
    end
    assert.equal(1, check({ type = { "string", "integer" } }, "1"))
    local _, message = check({ type = { "string", "null" } }, "1")
    assert.equal("x must be a string or null, got 1", message)
    assert.equal("integer", math.type(check({ type = "integer" }, "10.0")))
  end)

  it("may be a number written as a text, where that is allowed", function()
    for _, text in ipairs { '"10"', '" 10 "', '"10.0"', "10.0" } do
      local value = check({ type = "integer" }, text, LENIENT)
      assert.equal(10, value)
      assert.equal("integer", math.type(value))
    end
    assert.equal(2.5, check({ type = "number" }, '"2.5"', LENIENT))
    for _, text in ipairs { '"10.5"', '"ten"', '""', '"0x10"', '"1e3"', "true", "10.5",
      '"' .. ("0"):rep(32) .. '1"' } do
      assert.is_nil(check({ type = "integer" }, text, LENIENT))
    end
    assert.is_nil(check({ type = "integer" }, '"10"'))
    assert.equal("10", check({ anyOf = { { type = "integer" }, { type = "string" } } }, '"10"', LENIENT))
    assert.equal(10, check({ anyOf = { { type = "integer" }, { type = "null" } } }, '"10"', LENIENT))
  end)

  for name, case in pairs {
    ["a choice"] = { { enum = { "a", "b" } }, { '"a"' }, '"c"', 'x must be "a" or "b", got "c"' },
    ["a choice of more"] = { { enum = { 1, null, { 1 } } }, { "1", "null", "[1]" }, "2",
      "x must be 1, null or a list, got 2" },
    ["a constant"] = { { const = { a = 1 } }, { '{"a":1}' }, '{"a":2}', "x must be a table, got a table" },
    ["bounds"] = { { type = "integer", minimum = 1, maximum = 3 }, { "1", "3" }, "4",
      "x must be a whole number from 1 to 3, got 4" },
    ["open bounds"] = { { type = "number", exclusiveMinimum = 0, exclusiveMaximum = 1 }, { "0.5" }, "1",
      "x must be a number above 0 and below 1, got 1" },
    ["an open bound below"] = { { exclusiveMinimum = 0 }, { "0.001" }, "0", "x must be a number above 0, got 0" },
    ["multiples"] = { { multipleOf = 0.1 }, { "0.3", "7" }, "0.35", "x must be a multiple of 0.1, got 0.35" },
    ["lengths, in characters"] = { { minLength = 1, maxLength = 3 }, { '"äöü"' }, '""',
      "x has 0 characters, at least 1 are needed" },
    ["list lengths"] = { { type = "array", maxItems = 1 }, { "[]", "[1]" }, "[1,2]",
      "x has 2 elements, at most 1 are allowed" },
    ["elements"] = { { items = { type = "string" } }, { "[]", '["a"]' }, '["a",1]', "x[2] must be a string, got 1" },
    ["first elements"] = { { prefixItems = { { type = "string" } }, items = false }, { "[]", '["a"]' }, '["a",1]',
      "x[2] is not allowed here" },
    ["differing elements"] = { { uniqueItems = true }, { '[1,"1",[1]]' }, "[[1],2,[1]]", "x[1] and x[3] are the same" },
    ["members"] = { { properties = { a = { type = "string" } } }, { "{}", '{"a":"b","c":1}' }, '{"a":1}',
      "x.a must be a string, got 1" },
    ["needed members"] = { { properties = { a = { description = "The a." } }, required = { "a" } }, { '{"a":null}' },
      "{}", "x.a is missing (The a)" },
    ["no other members"] = { { properties = { name = {} }, additionalProperties = false }, { '{"name":1}' },
      '{"nmae":1}', 'x: unknown member "nmae"; did you mean "name"?' },
    ["other members"] = { { additionalProperties = { type = "integer" } }, { '{"a":1}' }, '{"a":"b"}',
      'x.a must be a whole number, got "b"' },
    ["how many members"] = { { minProperties = 1 }, { '{"a":1}' }, "{}", "x has 0 members, at least 1 are needed" },
    ["members that go together"] = { { dependentRequired = { a = { "b" } } }, { '{"b":1}', '{"a":1,"b":1}' },
      '{"a":1}', "x.b is missing; it goes with a" },
    ["all of"] = { { allOf = { { minimum = 1 }, { maximum = 2 } } }, { "1" }, "3",
      "x must be a number of at most 2, got 3" },
    ["any of"] = { { anyOf = { { type = "string" }, { minimum = 5 } } }, { '"a"', "5" }, "4",
      "x has none of the allowed forms: x must be a string, got 4; or x must be a number of at least 5, got 4" },
    ["one of"] = { { oneOf = { { type = "integer" }, { minimum = 5 } } }, { "4", "5.5" }, "5",
      "x has 2 forms of which one may be there" },
    ["not"] = { { ["not"] = { type = "string" } }, { "1" }, '"a"', "x has a form that is not allowed" },
    ["nothing"] = { false, {}, "1", "x is not allowed here" },
    ["a condition"] = { { ["if"] = { type = "string" }, ["then"] = { minLength = 2 }, ["else"] = { minimum = 1 } },
      { '"ab"', "1" }, "0", "x must be a number of at least 1, got 0" },
  } do
    it("is checked by " .. name, function()
      for _, text in ipairs(case[2]) do
        local _, message = check(case[1], text)
        assert.is_nil(message)
      end
      local value, message = check(case[1], case[3])
      assert.is_nil(value)
      assert.equal(case[4], message)
    end)
  end

  it("gets defaults, a copy of them each time", function()
    local node = assert(read(object { limit = { type = "integer", default = 3 },
      tags = { type = "array", default = {} },
      deep = { type = "object", properties = { on = { type = "boolean", default = false } } } }))
    local first = assert(json_schema.check(node, { deep = {} }))
    assert.same({ limit = 3, tags = {}, deep = { on = false } }, first)
    assert.equal('[]', core.json.encode(first.tags))
    first.tags[1] = "mine"
    assert.same({}, json_schema.check(node, {}).tags)
  end)

  it("is no part of what comes out", function()
    local given = { list = core.json.array { 1 } }
    local out = assert(json_schema.check(assert(read(object { list = { type = "array" } })), given))
    out.list[2] = 2
    assert.equal(1, #given.list)
  end)

  it("may be null where an optional one is meant, when lenient", function()
    local node = assert(read(object({ a = { type = "integer" }, b = { type = "integer", default = 2 },
      c = { type = "integer" }, d = { type = "null" } }, { required = { "c" } })))
    assert.same({ b = 2, c = 1, d = null },
      json_schema.check(node, { a = null, b = null, c = 1, d = null }, LENIENT))
    local _, message = json_schema.check(node, { c = null }, LENIENT)
    assert.equal("c must be a whole number, got null", message)
    assert.is_nil(json_schema.check(node, { a = null, c = 1 }))
  end)

  it("follows local references, recursive ones too", function()
    local node = assert(read(object({ tree = { ["$ref"] = "#/$defs/node" }, named = { ["$ref"] = "#leaf" } },
      { ["$defs"] = { node = { type = "object", properties = { value = { ["$ref"] = "#/$defs/a~1b%20c" },
        children = { type = "array", items = { ["$ref"] = "#/$defs/node" } } } },
        ["a/b c"] = { ["$anchor"] = "leaf", type = "integer" } } })))
    local good = assert(core.json.decode '{"tree":{"value":1,"children":[{"value":2,"children":[]}]},"named":3}')
    assert.same(good, json_schema.check(node, good))
    good.tree.children[1].value = "x"
    local _, message = json_schema.check(node, good)
    assert.equal('tree.children[1].value must be a whole number, got "x"', message)
  end)

  it("that never ends to be checked is a fault, not a hang", function()
    local node = assert(read(object({ x = { ["$ref"] = "#/$defs/a" } },
      { ["$defs"] = { a = { ["$ref"] = "#/$defs/a" } } })))
    local ok, message = pcall(json_schema.check, node, { x = 1 })
    assert.is_false(ok)
    assert.matches("refers to itself", message)
  end)

  it("that nests alternatives is checked without trying all their combinations", function()
    local inner = { ["$ref"] = "#/$defs/term" }
    local function operation(name)
      return { type = "object", properties = { inner = inner, op = { const = name } }, required = { "op" } }
    end
    local node = assert(read(object({ x = inner }, { ["$defs"] = { term = {
      anyOf = { operation "add", operation "multiply", { type = "integer" } } } } })))
    for _, case in ipairs { { "add", true }, { "divide", false } } do
      local value = 1
      for _ = 1, 50 do value = { op = case[1], inner = value } end
      local start = os.clock()
      local out, message = json_schema.check(node, { x = value }, LENIENT)
      assert.is_true(os.clock() - start < 0.5, os.clock() - start)
      assert.equal(case[2], out ~= nil)
      if out then assert.same(value, out.x) else assert.is_true(#message < 1000, #message) end
    end
  end)

  it("of Lua may be an empty table for a list", function()
    local node = assert(read(object { list = { type = "array" }, either = { type = { "array", "null" } },
      any = {}, object = { type = "object" } }))
    local given = { list = {}, either = {}, any = {}, object = {} }
    assert.is_nil(json_schema.check(node, given))
    local out = assert(json_schema.check(node, given, { plain = true }))
    assert.equal('{"any":{},"either":[],"list":[],"object":{}}', core.json.encode(out))
  end)

  it("as an argument is told about by its name", function()
    local node = assert(read(object({ city = { type = "string" } },
      { required = { "city" }, additionalProperties = false })))
    local _, message = json_schema.check(node, {}, LENIENT)
    assert.equal("city is missing", message)
    _, message = json_schema.check(node, { town = "x" }, LENIENT)
    assert.equal('unknown argument "town"; known are city', message)
  end)

  it("as a whole is called what it is: arguments, or an answer", function()
    local function told(more, value, options)
      local node = assert(read(object({ city = { type = "string" } }, more)))
      return select(2, json_schema.check(node, value, options))
    end
    for text, case in pairs {
      ["%s none of the allowed forms: city is missing"] = { { anyOf = { { required = { "city" } } } }, {} },
      ["%s 2 forms of which one may be there"] = { { oneOf = { {}, true } }, {} },
      ["%s a form that is not allowed"] = { { ["not"] = {} }, {} },
      ["%s 0 members, at least 1 are needed"] = { { minProperties = 1 }, {} },
    } do
      assert.equal(text:format "the arguments have", told(case[1], case[2], LENIENT))
      assert.equal(text:format "the answer has", told(case[1], case[2], { plain = true }))
    end
    assert.equal("the arguments are not allowed here", told({ allOf = { false } }, {}, LENIENT))
    assert.equal("the answer is not allowed here", told({ allOf = { false } }, {}, { plain = true }))
    assert.equal("the arguments must be an object, got a list", told({}, core.json.array { 1 }, LENIENT))
    assert.equal("the answer must be an object, got a list", told({}, { 1 }, { plain = true }))
    local closed = { additionalProperties = false }
    assert.equal('unknown argument "town"; known are city', told(closed, { town = 1 }, LENIENT))
    assert.equal('unknown member "town"; known are city', told(closed, { town = 1 }, { plain = true }))
  end)

  it("under a long name is checked in linear time, and told about in short", function()
    local node = assert(read(object({}, { additionalProperties = { items = { type = "integer" } } })))
    local list = core.json.array {}
    for i = 1, 2000 do list[i] = i end
    local start = os.clock()
    assert.is_table(json_schema.check(node, { [("ä"):rep(1 << 20)] = list }))
    assert.is_true(os.clock() - start < 1, os.clock() - start)
    list[1] = "x"
    local _, message = json_schema.check(node, { [("ä"):rep(1 << 20)] = list })
    assert.equal(("ä"):rep(32) .. '...[1] must be a whole number, got "x"', message)
  end)
end)

describe("keywords", function()
  it("all can be read", function()
    local samples = { types = "string", values = { 1 }, value = 1, words = { "a" }, word_lists = { a = { "b" } },
      schemas_by_name = { a = {} }, schemas = { {} }, schema = {}, number = 1, count = 1, flag = true, text = "#" }
    for key, kind in pairs(json_schema.keywords) do
      local node = assert(read(object { x = { [key] = samples[kind] } }))
      assert.is_not_nil(node.properties.x[key], key)
    end
    assert.is_true(#schema.keys(json_schema.keywords) > 50)
  end)
end)
