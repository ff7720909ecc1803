-- Tools, resources and prompts of init.lua, on the real program and engine.
local client = require "e2e.client"

local ROOT = debug.getinfo(1, "S").source:match("^@(.*)tests/e2e/") or "./"

-- The examples of the shipped init.lua, which stand there as comments.
local function examples()
  local out, taking = {}, false
  for line in (client.read_file(ROOT .. "init.lua") .. "\n"):gmatch("(.-)\n") do
    local text = line:match("^%-%- ?(.*)$")
    if text and text:find("^%l[%l_]* \"[^\"]+\" {$") and not text:find("^language") then taking = true end
    if taking then out[#out + 1] = text end
    if text == "}" then taking = false end
  end
  return table.concat(out, "\n")
end

local OWN = [[
tool "both" {
  title = "Run in both", description = "Runs the same expression in two languages and compares.",
  input = { type = "object", required = { "expression" }, additionalProperties = false, properties = {
    expression = { type = "string", maxLength = 100 }, seconds = { type = "integer", default = 5, maximum = 9 } } },
  output = { type = "object", required = { "equal", "answers" }, properties = {
    equal = { type = "boolean" }, answers = { type = "array", items = { type = "string" } } } },
  handler = function(arguments, ctx)
    local code = { python = "print(%s)", cpp = "#include <iostream>\nint main() { std::cout << (%s) << '\\n'; }" }
    local answers = {}
    for i, language in ipairs { "python", "cpp" } do
      ctx.progress(i - 1, 2, "running " .. language)
      local result, text = ctx.run { language = language, code = code[language]:format(arguments.expression),
        timeout_seconds = arguments.seconds }
      if not result then return nil, text end
      if result.status ~= "success" then return nil, language .. ": " .. (result.hint or result.stderr) end
      answers[i] = result.stdout
    end
    return { equal = answers[1] == answers[2], answers = answers }
  end,
}
tool "sleepy" { description = "Waits.", handler = function(_, ctx) ctx.sleep(600000) end }
tool "busy" { description = "Computes for ever.", handler = function() while true do end end }
tool "slow_run" { description = "Runs for long.", handler = function(_, ctx)
  return ctx.run { language = "python", code = "import time; time.sleep(60)", timeout_seconds = 30 }
end }
tool "numbers" { description = "Gives a list.", handler = function() return { 1, 2 } end }
tool "broken" { description = "Has a fault.", handler = function() local x; return x.y end }
policy = function(request)
  if request.code:find("forbidden", 1, true) then return nil, "not for " .. request.client end
end
]]

describe("tools of init.lua", function()
  local server
  setup(function() server = client.start { init = OWN } end)
  teardown(function() assert.equal(0, (server:close())) end)

  it("are listed after the server's own", function()
    local tools = server:wait(server:request "tools/list").result.tools
    assert.equal("run_code", tools[1].name)
    assert.same({ "both", "Run in both" }, { tools[4].name, tools[4].title })
    assert.same({ type = "integer", default = 5, maximum = 9 }, tools[4].inputSchema.properties.seconds)
    assert.same({ "expression" }, { table.unpack(tools[4].inputSchema.required) })
    assert.same({ type = "object", properties = {}, additionalProperties = false }, tools[5].inputSchema)
  end)

  it("run programs as run_code does, with progress, and are in the record", function()
    local result = server:call("both", { expression = "6 * 7" }, { progressToken = "p" })
    assert.same({ equal = true, answers = { "42\n", "42\n" } }, result.structuredContent)
    local seen = {}
    while server.others[1] do
      local note = table.remove(server.others, 1)
      assert.same({ "notifications/progress", "p" }, { note.method, note.params.progressToken })
      seen[note.params.message] = note.params.progress
    end
    assert.equal(0, seen["running python"])
    assert.equal(1, seen["running cpp"])
    local rows = server:history()
    assert.same({ "cpp", "python" }, { rows[1].language, rows[2].language })
  end)

  it("may give a list, which is no structured answer", function()
    assert.same({ content = { { type = "text", text = "[1,2]" } }, isError = false }, server:call("numbers", {}))
  end)

  it("tell a model what was wrong", function()
    for _, case in ipairs { { {}, "expression is missing." },
      { { expression = 7 }, "expression must be a string, got 7." },
      { { expression = "1", seconds = "10" }, "seconds must be a whole number of at most 9, got 10." },
      { { expression = "1", second = 1 }, 'unknown argument "second"; did you mean "seconds"?' },
      { { expression = "forbidden" }, "Refused by the policy of this server: not for stdio." } } do
      local result = server:call("both", case[1])
      assert.same({ true, case[2] }, { result.isError, result.content[1].text })
    end
    assert.matches("^python: ", server:call("both", { expression = "1/0" }).content[1].text)
  end)

  it("keep their faults to the log, with the line", function()
    local answer = server:wait(server:post("broken", {}))
    assert.equal(-32603, answer.error.code)
    assert.matches("^internal error %(id %x+%)", answer.error.message)
    assert.matches("init.lua:%d+: attempt to index a nil value", server:stderr())
  end)

  it("that compute for ever are stopped, and hold nobody up afterwards", function()
    local answer = server:wait(server:post("busy", {}))
    assert.equal(-32603, answer.error.code)
    assert.is_true(server:ping() < 500 * client.slow)
  end)

  it("can be cancelled while they wait and while they run", function()
    for _, name in ipairs { "sleepy", "slow_run" } do
      local id = server:post(name, {})
      client.sleep(1)
      server:cancel(id)
      server:ping()
      assert.is_nil(server.answers[id])
    end
    assert.is_truthy(client.eventually(5, function() return server:history()[1].status == "cancelled" end))
  end)
end)

describe("the record as a resource", function()
  it("has every run, and a prompt for those that failed", function()
    local server = client.start()
    server:run("python", "print('fine')")
    local failed = assert(server:run("python", "1/0"))
    local function result(method, params) return assert(server:wait(server:request(method, params)).result) end
    local function read(uri)
      return client.json.decode(result("resources/read", { uri = uri }).contents[1].text)
    end
    assert.equal("history://runs", result("resources/list").resources[1].uri)
    assert.same({ "1/0", "print('fine')" },
      { read("history://runs").runs[1].code_snippet, read("history://runs").runs[2].code_snippet })
    local run = read("history://runs/" .. failed.run_id)
    assert.same({ 2, "error", 1, #failed.stderr }, { run.id, run.status, run.exit_code, run.stderr_size })
    local ids = result("completion/complete", { ref = { type = "ref/prompt", name = "fix_failed_run" },
      argument = { name = "run_id", value = "" } }).completion.values
    assert.same({ failed.run_id }, { table.unpack(ids) })
    local messages = result("prompts/get", { name = "fix_failed_run", arguments = { run_id = ids[1] } }).messages
    assert.equal("1/0", client.json.decode(messages[2].content.resource.text).code_snippet)
    assert.equal(0, (server:close()))
  end)

  it("is told of to whoever subscribed to it", function()
    local server = client.start()
    local answer = server:wait(server:request("resources/subscribe", { uri = "history://runs" }))
    assert.same({}, answer.result)
    server:run("python", "print(1)")
    local note = server:other()
    assert.same({ "notifications/resources/updated", "history://runs" }, { note.method, note.params.uri })
    assert.equal(0, (server:close()))
  end)
end)

describe("the examples of the shipped init.lua", function()
  it("work", function()
    local text = examples()
    local count = select(2, text:gsub("\n}", ""))
    assert.equal(4, count)
    local server = client.start { init = text }
    assert.equal("1267650600228229401496703205376\n",
      server:call("evaluate", { expression = "2**100" }).content[1].text)
    assert.is_true(server:call("evaluate", { expression = "1/0" }).isError)
    local function result(method, params) return assert(server:wait(server:request(method, params)).result) end
    assert.matches("JSON", result("resources/read", { uri = "notes://house-rules" }).contents[1].text)
    assert.matches('"language":"cpp"', result("resources/read", { uri = "notes://languages/cpp" }).contents[1].text)
    assert.equal(-32002, server:wait(server:request("resources/read", { uri = "notes://languages/ada" })).error.code)
    assert.matches("print%(1%)", result("prompts/get", { name = "explain_output",
      arguments = { code = "print(1)" } }).messages[1].content.text)
    assert.equal(0, (server:close()))
  end)
end)

it("a word of init.lua that is wrong stops the start with its line", function()
  local server = client.start { init = '\ntool "x" {\n  description = "d",\n}', mute = true, seconds = 10 }
  assert.is_nil(server:read())
  assert.equal(78, (server:finish()))
  local log = server:stderr()
  server:close()
  assert.matches('/init.lua:[24]: tool "x".handler is missing; write handler = function', log)
end)
