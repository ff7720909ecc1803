-- MCP over real stdio: framing, JSON-RPC, the handshake, the tools as published.
local client = require "e2e.client"

local json = client.json

local function request(id, method, params)
  return ('{"jsonrpc":"2.0","id":%s,"method":"%s"%s}'):format(id, method, params and ',"params":' .. params or "")
end

local function error_code(message) return message.error and message.error.code or json.encode(message) end

describe("framing", function()
  local server
  setup(function() server = client.start { seconds = 120 } end)
  teardown(function() server:close() end)

  -- Nothing may have been said since: the next message is the ping's answer.
  local function assert_silence()
    local before = server.count
    server:ping()
    assert.equal(before + 1, server.count)
  end

  it("takes a message in pieces", function()
    local text = request(1000, "ping") .. "\n"
    for i = 1, #text do
      server:write(text:sub(i, i))
      if i % 10 == 0 then client.sleep(0.01) end
    end
    assert.same({}, server:wait(1000).result)
  end)

  it("takes many messages in one write", function()
    local lines = {}
    for id = 1001, 1005 do lines[#lines + 1] = request(id, "ping") end
    server:write(table.concat(lines, "\n") .. "\n")
    for id = 1001, 1005 do assert.same({}, server:wait(id).result) end
  end)

  it("takes CRLF and blanks around a message", function()
    assert.equal(1006, server:ask(request(1006, "ping") .. "\r").id)
    assert.equal(1007, server:ask("  \t" .. request(1007, "ping") .. "  ").id)
  end)

  it("passes over blank lines", function()
    server:send ""
    server:send "   \t"
    server:send "\r"
    assert_silence()
  end)

  it("answers what is no JSON, with no id, and goes on", function()
    for _, text in ipairs { "hello", "{", '{"jsonrpc":"2.0",}', "[1,", "{'a':1}", '{"a":1} {"b":2}', '"\1"', "nul",
      '{"id":NaN}' } do
      local answer = server:ask(text)
      assert.equal(-32700, error_code(answer), text)
      assert.is_nil(answer.id)
    end
    assert_silence()
  end)

  it("answers bad UTF-8 and raw NUL bytes once", function()
    assert.equal(-32700, error_code(server:ask('{"jsonrpc":"2.0","method":"ping","x":"\xff\xfe"}')))
    assert.equal(-32700, error_code(server:ask('{"jsonrpc":"2.0","method":"ping","x":"a\0b"}')))
    assert.equal(-32700, error_code(server:ask("\0\0\0")))
    assert.equal(-32700, error_code(server:ask(request(5, "ping", '{"x":"\xed\xa0\x80"}'))))
    assert_silence()
  end)

  it("skips a line above 4 MiB and serves the next", function()
    local answer = server:ask(request(7, "ping", '{"x":"' .. ("a"):rep(5 * 1024 * 1024) .. '"}'))
    assert.equal(-32600, error_code(answer))
    assert.matches("4194304", answer.error.message)
    assert_silence()
  end)

  it("serves a line just below 4 MiB", function()
    assert.equal(8, server:ask(request(8, "ping", '{"x":"' .. ("a"):rep(4 * 1024 * 1024 - 200) .. '"}')).id)
  end)

  it("refuses code of 300000 letters once, with the id", function()
    server:request("tools/call", { name = "run_code", arguments = { language = "python",
      code = "#" .. ("a"):rep(300000) } }, 9)
    assert.is_true(server:wait(9).result.isError)
    assert_silence()
  end)

  it("keeps its own lines whole and free of other line ends", function()
    local id = server:post("run_code", { language = "python",
      code = "print('a\\u2028b\\u2029c\\x85d\\x7fe\\r\\x0b\\x0c\\x1c')" })
    local _, line
    repeat _, line = server:read() until server.answers[id]
    server:wait(id)
    for _, separator in ipairs { "\u{2028}", "\u{2029}", "\u{85}", "\127", "\r", "\v", "\f", "\28" } do
      assert.is_nil(line:sub(1, -2):find(separator, 1, true))
    end
  end)

  it("falls silent after many malformed lines, until a good one comes", function()
    server:ping()
    local before = server.count
    server:send(("{oops\n"):rep(99) .. "{oops")
    server:ping()
    local said = server.count - before - 1
    assert.is_true(said >= 1 and said <= 20, said .. " answers")
    assert.equal(-32700, error_code(server:ask "{oops"))
  end)
end)

describe("JSON-RPC", function()
  local server
  setup(function() server = client.start { seconds = 60 } end)
  teardown(function() server:close() end)

  local function assert_silence()
    local before = server.count
    server:ping()
    assert.equal(before + 1, server.count)
  end

  for _, id in ipairs { "0", "-5", '"abc"', '""', '"1"', "9007199254740993", "-9223372036854775808",
    "123456789012345678901234567890", '"\\u00e9\\ud83d\\ude00"', '"server-discover-probe-1"' } do
    it("gives the id " .. id .. " back as it came", function()
      local message, line = server:ask(request(id, "ping"))
      assert.same({}, message.result)
      assert.is_truthy(line:find('"id":' .. id, 1, true), line)
    end)
  end

  for _, id in ipairs { "null", "1.5", "{}", "[]", "true", "1e400" } do
    it("refuses the id " .. id, function()
      local answer = server:ask(request(id, "ping"))
      assert.is_truthy(error_code(answer) == -32600 or error_code(answer) == -32700)
      assert.is_nil(answer.id)
    end)
  end

  for _, text in ipairs { "42", "null", '"hi"', "{}", "true", '{"jsonrpc":"1.0","id":1,"method":"ping"}',
    '{"id":1,"method":"ping"}', '{"jsonrpc":2.0,"id":1,"method":"ping"}', '{"jsonrpc":"2.0","id":1,"method":7}',
    '{"jsonrpc":"2.0","id":1,"method":null}', '{"jsonrpc":"2.0","id":1}',
    '{"jsonrpc":"2.0","id":1,"method":"ping","extra":1}' } do
    it("refuses " .. text, function()
      local answer = server:ask(text)
      assert.equal(-32600, error_code(answer))
      assert.equal(text:find '"id":1' and 1 or nil, answer.id)
    end)
  end

  it("refuses params that are no object", function()
    for _, params in ipairs { "[]", "[1]", '"x"', "5", "true" } do
      local answer = server:ask(request(2, "ping", params))
      assert.equal(-32602, error_code(answer), params)
      assert.equal(2, answer.id)
    end
  end)

  it("takes params that are absent, null or empty, unknown members and _meta", function()
    for _, params in ipairs { "null", "{}", '{"x":1,"_meta":{"y":null}}' } do
      assert.same({}, server:ask(request(3, "ping", params)).result)
      assert.is_table(server:ask(request(3, "tools/list", params)).result)
    end
  end)

  it("answers an unknown method at once", function()
    for _, method in ipairs { "nonsense", "", "tools/nonsense", "tasks/get", "elicitation/create", "__index",
      "initialized" } do
      assert.equal(-32601, error_code(server:ask(request(4, method))), method)
    end
  end)

  it("never answers a notification", function()
    for _, text in ipairs { '{"jsonrpc":"2.0","method":"notifications/initialized"}',
      '{"jsonrpc":"2.0","method":"initialized"}', '{"jsonrpc":"2.0","method":"nonsense","params":{}}',
      '{"jsonrpc":"2.0","method":"ping"}', '{"jsonrpc":"2.0","method":"tools/list","params":[]}',
      '{"jsonrpc":"2.0","method":"notifications/cancelled"}',
      '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}',
      '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}' } do
      server:send(text)
    end
    assert_silence()
  end)

  it("never answers a response", function()
    server:send '{"jsonrpc":"2.0","id":1,"result":{}}'
    server:send '{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}'
    assert_silence()
  end)

  it("refuses a second call with an id that is in flight", function()
    server:request("tools/call", { name = "run_code", arguments = { language = "python",
      code = "import time; time.sleep(1); print('first')" } }, 500)
    assert.equal(-32600, error_code(server:ask(request(500, "ping"))))
    assert.equal("first\n", server:wait(500).result.structuredContent.stdout)
    assert.same({}, server:ask(request(500, "ping")).result)
  end)

  it("takes no batch from 2025-06-18 on, and says so once", function()
    for _, text in ipairs { "[" .. request(1, "ping") .. "," .. request(2, "ping") .. "]", "[]", "[1,2]" } do
      local answer = server:ask(text)
      assert.equal(-32600, error_code(answer))
      assert.is_nil(answer.id)
    end
    assert_silence()
  end)
end)

describe("batches of 2025-03-26", function()
  local server
  setup(function() server = client.start { seconds = 60, version = "2025-03-26" } end)
  teardown(function() server:close() end)

  it("are answered together", function()
    local call = '{"name":"run_code","arguments":{"language":"python","code":"print(1)"}}'
    server:send("[" .. request(1, "ping") .. ',{"jsonrpc":"2.0","method":"notifications/x"},' .. request('"b"', "nope")
      .. "," .. request(3, "tools/call", call) .. "]")
    local batch, by_id = server:other(), {}
    assert.equal(3, #batch)
    for _, answer in ipairs(batch) do by_id[answer.id] = answer end
    assert.same({}, by_id[1].result)
    assert.equal(-32601, by_id.b.error.code)
    assert.is_false(by_id[3].result.isError)
  end)

  it("have errors for what is no request in them", function()
    local batch = server:ask('[1,{"jsonrpc":"2.0","id":4,"method":7},' .. request(5, "ping") .. "]")
    assert.equal(3, #batch)
  end)

  it("must not be empty nor hold initialize", function()
    assert.equal(-32600, error_code(server:ask "[]"))
    local batch = server:ask("[" .. request(6, "initialize",
      '{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"x","version":"1"}}') .. "]")
    assert.equal(-32600, error_code(batch[1]))
  end)

  it("of notifications alone have no answer", function()
    local before = server.count
    server:send '[{"jsonrpc":"2.0","method":"notifications/x"}]'
    server:ping()
    assert.equal(before + 1, server.count)
  end)
end)

describe("the handshake", function()
  local function with(options, fn)
    local server = client.start(options)
    local ok, why = pcall(fn, server)
    server:close()
    if not ok then error(why, 0) end
  end

  it("is not needed for ping and unknown methods, but for the rest", function()
    with({ mute = true }, function(server)
      assert.same({}, server:ask(request(0, "ping")).result)
      assert.equal(-32601, error_code(server:ask(request(1, "nonsense"))))
      assert.is_table(server:ask(request('"p"', "server/discover")).error)
      for _, method in ipairs { "tools/list", "tools/call" } do
        local answer = server:ask(request(2, method, '{"name":"list_supported_languages"}'))
        assert.equal(-32602, error_code(answer))
        assert.matches("initialize", answer.error.message)
      end
      server:initialize()
      assert.equal("1\n", assert(server:run("python", "print(1)")).stdout)
    end)
  end)

  for asked, answered in pairs { ["2024-11-05"] = "2024-11-05", ["2025-03-26"] = "2025-03-26",
    ["2025-06-18"] = "2025-06-18", ["2025-11-25"] = "2025-11-25", ["2026-07-28"] = "2025-11-25",
    ["2024-10-07"] = "2025-11-25", ["1999-01-01"] = "2025-11-25", ["x"] = "2025-11-25", [""] = "2025-11-25" } do
    it(("answers version %q with %s"):format(asked, answered), function()
      with({ version = asked }, function(server)
        local result = server.hello.result
        assert.equal(answered, result.protocolVersion)
        assert.is_table(result.capabilities.tools)
        assert.is_string(result.serverInfo.name)
        assert.is_string(result.serverInfo.version)
        assert.equal(answered >= "2025-06-18", result.serverInfo.title ~= nil)
        assert.equal(answered >= "2025-11-25", result.serverInfo.description ~= nil)
        for _, name in ipairs { "resultType", "ttlMs", "cacheScope" } do assert.is_nil(result[name]) end
        local list = server:wait(server:request("tools/list")).result
        for _, tool in ipairs(list.tools) do
          assert.equal(answered >= "2025-03-26", tool.annotations ~= nil)
          assert.equal(answered >= "2025-06-18", tool.outputSchema ~= nil)
        end
        local call = server:call("list_supported_languages", {})
        assert.equal(answered >= "2025-06-18", call.structuredContent ~= nil)
      end)
    end)
  end

  it("refuses malformed params and can be tried again", function()
    with({ mute = true }, function(server)
      for _, params in ipairs { "{}", '{"protocolVersion":1,"capabilities":{},"clientInfo":{"name":"x","version":"1"}}',
        '{"protocolVersion":"2025-11-25","capabilities":[],"clientInfo":{"name":"x","version":"1"}}',
        '{"protocolVersion":"2025-11-25","capabilities":{}}',
        '{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x"}}' } do
        assert.equal(-32602, error_code(server:ask(request(1, "initialize", params))), params)
      end
      assert.equal(-32602, error_code(server:ask(request(1, "initialize"))))
      assert.is_table(server:initialize().result)
      assert.equal("2024-11-05", server:initialize("2024-11-05").result.protocolVersion)
    end)
  end)

  it("needs no more of the environment than clients pass on", function()
    with({ before = "env -i HOME=\"$HOME\" PATH=/usr/bin:/bin XDG_STATE_HOME=\"$XDG_STATE_HOME\"" }, function(server)
      assert.is_table(server:wait(server:request("tools/list")).result)
    end)
  end)

  it("needs no place for logs: a full stderr does not stop it", function()
    local init = [[
      policy = function() print(("x"):rep(4000)) return nil, "as a test" end
    ]]
    with({ init = init, stderr_unread = true }, function(server)
      for _ = 1, 60 do
        assert.is_true(server:call("run_code", { language = "python", code = "print(1)" }).isError)
      end
      server:ping()
    end)
  end)
end)

describe("tools", function()
  local server, tools
  setup(function()
    server = client.start { seconds = 60 }
    tools = server:wait(server:request("tools/list")).result
  end)
  teardown(function() server:close() end)

  -- Calls fn(schema, path) for a schema and all below it.
  local function walk(schema, path, fn)
    fn(schema, path)
    for name, below in pairs(schema.properties or {}) do walk(below, path .. "." .. name, fn) end
    if schema.items then walk(schema.items, path .. "[]", fn) end
    for _, below in ipairs(schema.anyOf or {}) do walk(below, path .. "|", fn) end
  end

  it("are three, on one page, in a stable order", function()
    assert.is_nil(tools.nextCursor)
    local names = {}
    for i, tool in ipairs(tools.tools) do names[i] = tool.name end
    assert.same({ "run_code", "list_supported_languages", "get_execution_history" }, names)
    local again = server:wait(server:request("tools/list", { cursor = json.null })).result
    assert.equal(json.encode(tools), json.encode(again))
  end)

  it("have no page behind a cursor", function()
    for _, cursor in ipairs { "x", "", "2" } do
      assert.equal(-32602, error_code(server:wait(server:request("tools/list", { cursor = cursor }))))
    end
  end)

  it("have the names, texts and hints that clients need", function()
    for _, tool in ipairs(tools.tools) do
      assert.matches("^[a-zA-Z0-9_-]+$", tool.name)
      assert.is_true(#tool.description > 20 and #tool.title > 0)
      local run = tool.name == "run_code"
      assert.same({ readOnlyHint = not run, destructiveHint = false, idempotentHint = not run, openWorldHint = false },
        tool.annotations)
    end
  end)

  it("have schemas that every client takes", function()
    local function plain(schema, path)
      assert.is_table(schema, path)
      for _, name in ipairs { "$schema", "$ref", "$defs", "oneOf", "allOf", "definitions" } do
        assert.is_nil(schema[name], path .. name)
      end
      assert.is_true(schema.type == nil or type(schema.type) == "string", path)
      if schema.type == "object" and schema.properties == nil then
        assert.is_table(schema.additionalProperties, path)
      end
    end
    for _, tool in ipairs(tools.tools) do
      for _, schema in ipairs { tool.inputSchema, tool.outputSchema } do
        assert.equal("object", schema.type)
        assert.is_table(schema.properties)
        assert.is_nil(schema.anyOf)
        walk(schema, tool.name, plain)
      end
      assert.is_false(tool.inputSchema.additionalProperties)
      for name, property in pairs(tool.inputSchema.properties) do assert.is_string(property.description, name) end
    end
    assert.same({ "code", "language" }, (function(list) table.sort(list) return list end)(
      { table.unpack(tools.tools[1].inputSchema.required) }))
    local timeout = tools.tools[1].inputSchema.properties.timeout_seconds
    assert.same({ "integer", 1, 30, 10 }, { timeout.type, timeout.minimum, timeout.maximum, timeout.default })
  end)

  it("answer with every field that the schema requires, and no other", function()
    local function conform(schema, value, path)
      if schema.anyOf then
        if value == json.null then return end
        return conform(schema.anyOf[1], value, path)
      end
      if schema.type == "object" then
        for _, name in ipairs(schema.required or {}) do assert.is_not_nil(value[name], path .. "." .. name) end
        for name, below in pairs(value) do
          assert.is_table(schema.properties[name], path .. "." .. name .. " is not declared")
          conform(schema.properties[name], below, path .. "." .. name)
        end
      elseif schema.type == "array" then
        assert.equal(json.array_mt, getmetatable(value), path)
        for _, below in ipairs(value) do conform(schema.items, below, path) end
      elseif schema.type == "integer" then
        assert.is_true(type(value) == "number" and value == math.floor(value), path)
      else
        assert.equal(schema.type, type(value), path)
      end
    end
    for _, code in ipairs { "print(1)", "1/0", "import os; os.abort()", "import time; time.sleep(9)" } do
      conform(tools.tools[1].outputSchema, assert(server:run("python", code, 1)), "run_code")
    end
    for _, code in ipairs { "int main() {}", "int main() { x }", "#warning hm\nint main() { return 3; }" } do
      conform(tools.tools[1].outputSchema, assert(server:run("cpp", code)), "run_code")
    end
    for _, tool in ipairs { tools.tools[2], tools.tools[3] } do
      conform(tool.outputSchema, server:call(tool.name, {}).structuredContent, tool.name)
    end
  end)

  it("refuse a broken call by an error, a bad value by an answer", function()
    for _, params in ipairs { "null", "{}", '{"name":7}', '{"name":null}', '{"name":"nonsense"}', '{"name":"__index"}',
      '{"name":"run_code","arguments":[]}', '{"name":"run_code","arguments":"text"}',
      '{"name":"run_code","arguments":5}' } do
      assert.equal(-32602, error_code(server:ask(request(1, "tools/call", params))), params)
    end
    assert.equal(-32602, error_code(server:ask(request(1, "tools/call"))))
    assert.equal(-32602, error_code(server:ask(request(1, "tools/call", "[]"))))
    for _, params in ipairs { '{"name":"run_code"}', '{"name":"run_code","arguments":null}',
      '{"name":"run_code","arguments":{}}' } do
      local answer = server:ask(request(2, "tools/call", params))
      assert.is_true(answer.result.isError, params)
      assert.is_nil(answer.result.structuredContent)
      assert.equal("text", answer.result.content[1].type)
    end
  end)

  it("call a program that fails an answer, not an error", function()
    for code, status in pairs { ["1/0"] = "error", ["import time; time.sleep(9)"] = "timeout" } do
      local result = server:call("run_code", { language = "python", code = code, timeout_seconds = 1 })
      assert.is_falsy(result.isError)
      assert.equal(status, result.structuredContent.status)
    end
  end)

  it("come with resources and prompts", function()
    for method, name in pairs { ["resources/list"] = "resources", ["prompts/list"] = "prompts",
      ["resources/templates/list"] = "resourceTemplates" } do
      assert.is_true(#server:ask(request(3, method)).result[name] > 0)
    end
  end)
end)
