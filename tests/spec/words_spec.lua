local catalog = require "sandbox_runner.catalog"
local schema = require "sandbox_runner.schema"
local settings = require "sandbox_runner.settings"
local words = require "sandbox_runner.words"

local ROOT = debug.getinfo(1, "S").source:match("^@(.*)tests/spec/") or "./"

local function refused(text)
  local config, err = settings.parse(text, "conf/init.lua")
  assert.is_nil(config)
  return err.message
end

local H = "handler = function() end"

-- One fault in the second line of the file each: text, what the message says.
local FAULTS = {
  tool = {
    { "tool 'a b' {}", 'the name of a tool must be up to 64 letters, digits, "_" and "-"' },
    { "tool 'a.b' {}", "the name of a tool must be up to 64 letters" },
    { "tool '' {}", "the name of a tool must be up to 64 letters" },
    { "tool('" .. ("x"):rep(65) .. "', {})", "the name of a tool is 65 bytes long, at most 64 are allowed" },
    { "tool 'x' { description = 'd' }", 'tool "x".handler is missing; write handler = function(arguments, ctx)' },
    { "tool 'x' { description = 'd', handler = 'f' }", 'tool "x".handler must be a function, got "f"' },
    { "tool 'x' { " .. H .. " }", 'tool "x".description is missing; say what it does: models choose by it' },
    { "tool 'x' { description = '', " .. H .. " }", 'tool "x".description must not be empty' },
    { "tool 'x' { description = 'd', hanlder = function() end }", 'unknown field "hanlder"; did you mean "handler"?' },
    { "tool 'x' { description = 7, " .. H .. " }", 'tool "x".description must be a string, got 7' },
    { "tool 'x' 'y'", 'tool "x" must be a table of named values, got "y"' },
    { "tool 'x' { 1 }", 'tool "x" must be a table of named values, got a list' },
    { "tool 'x' { description = 'd', input = {}, " .. H .. " }", 'tool "x".input.type must be "object"' },
    { "tool 'x' { description = 'd', input = { type = 'object', properties = {}, anyOf = { {} } }, " .. H .. " }",
      'tool "x".input.anyOf at the root makes model providers refuse' },
    { "tool 'x' { description = 'd', output = { type = 'array' }, " .. H .. " }",
      'tool "x".output.type must be "object"' },
    { "tool 'x' { description = 'd', annotations = { readOnly = true }, " .. H .. " }",
      'tool "x".annotations: unknown field "readOnly"; known are destructiveHint' },
    { "tool 'x' { description = 'd', annotations = { readOnlyHint = 1 }, " .. H .. " }",
      "annotations.readOnlyHint must be true or false, got 1" },
    { "tool 'x' { description = 'd', task = true, " .. H .. " }", 'task must be "slow" or "always", got true' },
    { "tool 'x' { description = 'd', icons = { { src = 'file:///x' } }, " .. H .. " }",
      'icons[1].src must begin with https:// or data:image/, got "file:///x"' },
    { "tool 'x' { description = 'd', meta = { f = print }, " .. H .. " }",
      "meta.f must be plain data, got a function" },
    { "tool 'run_code' { description = 'd', " .. H .. " }", 'tool "run_code" is one of the server\'s own' },
    { "tool 'x' { description = 'd', input = { type = 'object', properties = { a = { ['x-mcp-header'] = 'A' } } }, "
      .. H .. " }", 'input.properties.a has an x-mcp-header, so its type must be "string", "integer" or "boolean"' },
    { "tool 'x' { description = 'd', input = { type = 'object', properties = { a = { type = 'string', "
      .. "['x-mcp-header'] = 'a b' } } }, " .. H .. " }", '["x-mcp-header"] must be a header name like "Region"' },
    { "tool 'x' { description = 'd', input = { type = 'object', properties = { a = { type = 'array', "
      .. "items = { type = 'string', ['x-mcp-header'] = 'A' } } } }, " .. H .. " }",
      "input.properties.a.items: only an argument itself can have an x-mcp-header" },
    { "tool 'x' { description = 'd', input = { type = 'object', properties = { "
      .. "a = { type = 'string', ['x-mcp-header'] = 'A' }, b = { type = 'string', ['x-mcp-header'] = 'a' } } }, " .. H
      .. " }", 'input.properties.b: the header "a" belongs to a already' },
    { "tool 'x'", 'tool "x" has no entry; write tool "x" { ... }' },
  },
  resource = {
    { "resource 'notes' { text = 'x' }", 'the address of a resource must be an address like "notes://today"' },
    { "resource 'notes://{x}' { text = 'x' }", "with {parts} it is a resource_template" },
    { "resource 'a:b' {}", 'resource "a:b" needs either text, or read = function(uri, variables, ctx)' },
    { "resource 'a:b' { text = 'x', read = function() end }", "needs either text, or read" },
    { "resource 'a:b' { read = 'x' }", 'resource "a:b".read must be a function, got "x"' },
    { "resource 'a:b' { text = 'x', mimeType = 'text/plain' }", 'unknown field "mimeType"; did you mean "mime_type"?' },
    { "resource 'a:b' { text = 'x', annotations = { priority = 2 } }", "priority must be a number from 0 to 1, got 2" },
    { "resource 'history://runs' { text = 'x' }", "is one of the server's own" },
  },
  resource_template = {
    { "resource_template 'a:b' { read = function() end }", "a template has parts like {id}" },
    { "resource_template 'a:{b}{c}' { read = function() end }", "a template has parts like {id}" },
    { "resource_template 'a:{b' { read = function() end }", "a template has parts like {id}" },
    { "resource_template 'a:{+b}' { read = function() end }", "a template has parts like {id}" },
    { "resource_template 'a:{b}/{b}' { read = function() end }", "{b} is there twice" },
    { "resource_template 'a:{b}' {}", "read is missing; write read = function(uri, variables, ctx)" },
    { "resource_template 'a:{b}' { read = function() end, complete = { c = {} } }",
      'complete: there is no argument "c"; did you mean "b"?' },
    { "resource_template 'a:{b}' { read = function() end, complete = { b = 'x' } }",
      'complete.b must be a list of texts or a function(value, ctx), got "x"' },
  },
  prompt = {
    { "prompt 'x' {}", 'prompt "x".messages is missing; write messages = function(arguments, ctx)' },
    { "prompt 'x' { messages = 'hi' }", 'prompt "x".messages must be a function, got "hi"' },
    { "prompt 'x' { messages = function() end, arguments = { 'a' } }", "arguments[1] must be a table of named values" },
    { "prompt 'x' { messages = function() end, arguments = { { name = 'a' }, { name = 'a' } } }",
      'the argument "a" is there twice' },
    { "prompt 'x' { messages = function() end, arguments = { { name = 'a', requird = true } } }",
      'unknown field "requird"; did you mean "required"?' },
    { "prompt 'x' { messages = function() end, complete = { a = {} } }",
      'complete: there is no argument "a"; there are none' },
    { "prompt 'run_program' { messages = function() end }", "is one of the server's own" },
  },
}

describe("a word of init.lua", function()
  for word, faults in pairs(FAULTS) do
    for _, fault in ipairs(faults) do
      it("stops the start with its line: " .. fault[1]:sub(1, 100), function()
        local message = refused("-- a comment\n" .. fault[1])
        assert.matches("^conf/init.lua:2: ", message)
        assert.matches(fault[2], message, 1, true)
      end)
    end

    it(word .. " cannot be there twice", function()
      local good = { tool = "tool 'x' { description = 'd', " .. H .. " }", resource = "resource 'a:b' { text = 'x' }",
        resource_template = "resource_template 'a:{b}' { read = function() end }",
        prompt = "prompt 'x' { messages = function() end }" }
      assert.truthy(settings.parse(good[word]))
      assert.matches("init.lua:2: .* is defined twice", refused(good[word] .. "\n" .. good[word]))
    end)
  end

  it("cannot be used later", function()
    local config = assert(settings.parse(
      "tool 'x' { description = 'd', handler = function() tool 'y' { description = 'd', handler = print } end }"))
    local ok, slip = pcall(config.tools[1].handler)
    assert.is_false(ok)
    assert.matches("init.lua:1: a tool cannot be added after the start", tostring(slip))
  end)

  it("keeps the order of the file", function()
    local text = {}
    for _, name in ipairs { "z", "a", "m" } do
      text[#text + 1] = ("prompt %q { messages = function() end }"):format(name)
    end
    local names = {}
    for i, entry in ipairs(assert(settings.parse(table.concat(text, "\n"))).prompts) do names[i] = entry.name end
    assert.same({ "z", "a", "m" }, names)
  end)

  it("defines what the file says, with the helpers of Lua and in a loop as well", function()
    local config = assert(settings.parse [[
      local function describe(n) return ("Adds %d"):format(n) end
      for i = 1, 2 do
        tool("add" .. i, { title = "Add", description = describe(i), task = "slow", portable = false,
          input = { type = "object", allOf = { {} },
            properties = { n = { type = "integer", ["x-mcp-header"] = "N" } } },
          output = { type = "object", properties = { sum = { type = "integer" } } },
          annotations = { readOnlyHint = true }, meta = { own = { 1 } },
          icons = { { src = "data:image/png;base64,AA==", mimeType = "image/png", sizes = { "1x1" } } },
          handler = function(arguments) return { sum = arguments.n + i } end })
      end]])
    local entry = config.tools[2]
    assert.same({ "add2", "Adds 2", "slow", { n = "N" }, { 1 } },
      { entry.name, entry.description, entry.task, entry.headers, entry.meta.own })
    assert.same({ sum = 5 }, entry.handler { n = 3 })
  end)

  it("tool without input takes no arguments", function()
    local config = assert(settings.parse("tool 'x' { description = 'd', " .. H .. " }"))
    assert.same({ type = "object", properties = {}, additionalProperties = false }, config.tools[1].input)
    assert.is_nil(config.tools[1].headers)
  end)

  it("is known to luacheck, as every section and setting is", function()
    local file = assert(io.open(ROOT .. ".luacheckrc"))
    local text = file:read("a")
    file:close()
    for word in pairs(words.all) do assert.matches(('"%s"'):format(word), text) end
    for name, record in pairs(settings.tree) do
      local fields = assert(text:match("%f[%w]" .. name .. " = section%((.-)%)"), name)
      for key in pairs(record.fields) do assert.matches(('"%s"'):format(key), fields) end
    end
  end)

  it("may not take a name of the server's own, and those are known", function()
    local own, all = { tool = {}, prompt = {}, resource = {}, resource_template = {} }, catalog.new(settings.defaults())
    for _, entry in ipairs(all.tools) do own.tool[entry.name] = true end
    for _, entry in ipairs(all.prompts) do own.prompt[entry.name] = true end
    for _, entry in ipairs(all.resources) do own.resource[entry.uri] = true end
    for _, entry in ipairs(all.templates) do own.resource_template[entry.uri_template] = true end
    assert.same(own, words.built_in)
    assert.same({ "language", "prompt", "resource", "resource_template", "tool" }, schema.keys(words.all))
  end)
end)
