-- What the tools take and refuse: a refusal is an answer that a model can read,
-- nothing runs for it, and the history does not know it.
local check = require "e2e.check"
local client = require "e2e.client"

local json = client.json

local function each(groups, fn)
  for _, group in ipairs(groups) do
    for i = 2, #group do fn(group[i], group[1]) end
  end
end

describe("arguments of run_code", function()
  local groups = require "e2e.cases.arguments"
  local server, outcomes
  local cases = {}
  each(groups, function(case) cases[#cases + 1] = case end)

  setup(function()
    server = client.start { seconds = 120 }
    outcomes = check.run_all(server, cases, 8)
  end)
  teardown(function() server:close() end)

  each(groups, function(case, group)
    it(group .. ": " .. case[1], function() assert.is_nil(check.fault(case, outcomes[case])) end)
  end)

  it("are recorded for the runs that were, and for no other", function()
    local ran = 0
    for _, case in ipairs(cases) do ran = ran + (case.refused and 0 or 1) end
    local rows = assert(server:history(1000))
    assert.equal(ran, #rows)
    for _, row in ipairs(rows) do assert.is_true(row.language == "python" or row.language == "cpp") end
  end)
end)

-- Texts that are cheap to send and dear to a pattern that goes back and forth.
describe("arguments that are made of 50000 blanks", function()
  local BLANKS = (" "):rep(50000)
  local shapes = {
    { "language", { language = BLANKS, code = "pass" } },
    { "language, with a letter at each end", { language = "x" .. BLANKS .. "x", code = "pass" } },
    { "code", { language = "python", code = BLANKS } },
    { "code that looks like a fence", { language = "cobol",
      code = "```" .. BLANKS .. "x" .. BLANKS .. "\n" .. BLANKS } },
    { "code, lines of a blank", { language = "python", code = (" \n"):rep(25000) } },
    { "timeout_seconds", { language = "python", code = "pass", timeout_seconds = BLANKS } },
    { "timeout_seconds, with a digit in the middle", { language = "python", code = "pass",
      timeout_seconds = BLANKS .. "1" .. BLANKS .. "x" } },
    { "timeout_seconds, of digits", { language = "python", code = "pass", timeout_seconds = ("1"):rep(50000) } },
    { "timeout_seconds, of noughts", { language = "python", code = "pass",
      timeout_seconds = "1." .. ("0"):rep(50000) .. "x" } },
    { "an unknown argument", { language = "python", code = "pass", [BLANKS] = BLANKS } },
  }
  local server
  setup(function() server = client.start() end)
  teardown(function() server:close() end)

  for _, shape in ipairs(shapes) do
    it("are refused within a second, and hold up no ping: " .. shape[1], function()
      local result, ping, took = nil, math.huge, math.huge
      for _ = 1, 8 do -- the machine may be busy
        local started = client.now_ms()
        local id = server:post("run_code", shape[2])
        ping = math.min(ping, server:ping())
        result = server:wait(id).result
        took = math.min(took, client.now_ms() - started)
        if ping < 50 * client.slow and took < 1000 * client.slow then break end
      end
      assert.is_true(ping < 50 * client.slow, ping .. " ms")
      assert.is_true(took < 1000 * client.slow, took .. " ms")
      assert.is_true(result.isError)
      assert.is_true(#result.content[1].text < 2000, #result.content[1].text .. " bytes of refusal")
    end)
  end
end)

describe("arguments of the other tools", function()
  local server

  setup(function()
    server = client.start { seconds = 60 }
    for _ = 1, 25 do server:post("run_code", { language = "python", code = "print('row')" }) end
    for id = server.last_id - 24, server.last_id do server:wait(id) end
  end)
  teardown(function() server:close() end)

  local function rows_for(arguments)
    local result = server:call("get_execution_history", arguments)
    return not result.isError and #result.structuredContent.result or result.content[1].text
  end

  it("history: 20 rows when nothing is asked", function()
    assert.equal(20, rows_for {})
    assert.equal(20, rows_for(nil))
    assert.equal(20, rows_for(json.null))
    assert.equal(20, rows_for { limit = json.null })
  end)

  it("history: a limit, as a number or a text", function()
    assert.equal(5, rows_for { limit = 5 })
    assert.equal(5, rows_for { limit = "5" })
    assert.equal(1, rows_for { limit = 1 })
    assert.equal(25, rows_for { limit = 1000 })
  end)

  for _, limit in ipairs { -1, 0, 1001, 1e300, 2.5, "many", "", true, json.array { 5 } } do
    it("history: refuses the limit " .. json.encode(limit), function()
      assert.matches("limit", tostring(rows_for { limit = limit }))
    end)
  end

  it("history: refuses what it does not know", function()
    assert.matches("language", rows_for { language = "python" })
  end)

  it("languages: image, description and names, each accepted by run_code", function()
    local listed = server:call("list_supported_languages", {}).structuredContent.result
    local found = {}
    for _, entry in ipairs(listed) do
      found[entry.language] = entry
      assert.is_string(entry.image)
      assert.is_string(entry.description)
      local code = entry.language == "cpp" and "int main() {}" or "pass"
      assert.equal("success", assert(server:run(entry.language, code)).status)
    end
    assert.equal("python:3.12-slim", found.python.image)
    assert.equal("gcc:14", found.cpp.image)
  end)

  it("languages: without arguments at all", function()
    for _, arguments in ipairs { false, json.null, {} } do
      assert.is_falsy(server:call("list_supported_languages", arguments or nil).isError)
    end
    assert.is_true(server:call("list_supported_languages", { x = 1 }).isError)
  end)
end)
