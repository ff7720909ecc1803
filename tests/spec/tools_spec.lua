local core = require "sandbox_runner.core"
local fake = require "spec.support.fake"
local json_schema = require "sandbox_runner.json_schema"
local rate = require "sandbox_runner.rate"
local schema = require "sandbox_runner.schema"
local settings = require "sandbox_runner.settings"
local tools = require "sandbox_runner.tools"

local null = core.json.null
local config = settings.defaults()

local function by_name(with)
  local out = {}
  for _, tool in ipairs(tools.list(with or config)) do out[tool.name] = tool end
  return out
end

local RESULT = { status = "success", reason = "exit", exit_code = 0, stdout = "", stderr = "", stdout_bytes = 0,
  stderr_bytes = 0, truncated = false, language = "python", duration_ms = 1, timings = {} }

local function copy(t)
  local out = {}
  for key, value in pairs(t) do out[key] = value end
  return out
end

-- A server with a scripted runner; notes what was recorded, who is told of it, and
-- what the policy denied.
local function server(run, warning, with)
  local recorded = {}
  local self = { config = with or config, now_ms = function() return 5 end, recorded = recorded, told = {}, denied = 0 }
  self.runner = { run = function(_, request, ctx) return run(request, ctx) end,
    image_in_use = function(_, images) return images[2] end,
    note_denied = function() self.denied = self.denied + 1 end }
  self.catalog = { updated = function(_, uri) self.told[#self.told + 1] = uri end }
  self.history = {
    record = function(_, request, result)
      recorded[#recorded + 1] = { request = request, result = result }
      return warning
    end,
    recent = function(_, limit)
      if limit == 13 then return nil, "The history is off: no disk." end
      return core.json.array { { id = limit, timestamp = "t", language = "python", code_snippet = "",
        status = "timeout", exit_code = null, duration_ms = 1.5, stdout_size = 0, stderr_size = 0 } }
    end,
  }
  return self
end

local function call(name, with, arguments, ctx)
  local tool = by_name()[name]
  ctx = ctx or {}
  ctx.server, ctx.client = with, { key = "stdio" }
  local values, text = tool.check(arguments)
  if not values then return nil, text end
  local value
  value, text = tool.handler(values, ctx)
  if value ~= nil then assert(json_schema.check(tool.output, value)) end
  return value, text
end

local function fine() return copy(RESULT) end

local function walk(node, visit)
  visit(node)
  for _, value in pairs(node) do
    if type(value) == "table" then walk(value, visit) end
  end
end

describe("tools", function()
  it("have the names and arguments of the original", function()
    local names = {}
    for i, tool in ipairs(tools.list(config)) do names[i] = tool.name end
    assert.same({ "run_code", "list_supported_languages", "get_execution_history" }, names)
    assert.same({ "code", "language", "timeout_seconds" }, schema.keys(by_name().run_code.input.properties))
    assert.same({ "limit" }, schema.keys(by_name().get_execution_history.input.properties))
    assert.same({}, schema.keys(by_name().list_supported_languages.input.properties))
  end)

  it("publish schemas that every host takes", function()
    for _, tool in ipairs(tools.list(config)) do
      assert.matches("^[%w_-]+$", tool.name)
      for _, json in ipairs { tool.input, tool.output } do
        assert.equal("object", json.type)
        assert.is_table(json.properties)
        assert.is_false(json.additionalProperties)
        assert.is_nil(json.anyOf)
        walk(json, function(part)
          assert.is_nil(part["$ref"])
          assert.is_nil(part["$schema"])
          for _, value in pairs(part) do assert.are_not.equal(null, value) end
          if part.properties and part.type == "object" then
            for _, property in pairs(part.properties) do assert.is_table(property) end
          end
        end)
        assert.is_not_nil(core.json.decode(core.json.encode(json)))
      end
    end
  end)

  it("say the live limits", function()
    local changed = by_name(assert(settings.parse(
      "limits.max_timeout_seconds = 77\nlimits.memory = '1g'\nhistory.default_limit = 7")))
    assert.matches("up to 77; 1g memory", changed.run_code.description)
    assert.equal(77, changed.run_code.input.properties.timeout_seconds.maximum)
    assert.equal(7, changed.get_execution_history.input.properties.limit.default)
    assert.matches("python %(.*cpp %(", changed.run_code.description)
  end)

  it("hint at what they do", function()
    local all = by_name()
    assert.same({ readOnlyHint = false, destructiveHint = false, idempotentHint = false, openWorldHint = false },
      all.run_code.annotations)
    for _, name in ipairs { "list_supported_languages", "get_execution_history" } do
      assert.same({ readOnlyHint = true, destructiveHint = false, idempotentHint = true, openWorldHint = false },
        all[name].annotations)
    end
  end)
end)

describe("run_code", function()
  it("runs, records and answers", function()
    local with = server(fine)
    local answer = call("run_code", with, { language = "PY", code = "pass" })
    assert.same(RESULT, answer)
    assert.equal(1, #with.recorded)
    assert.equal("python", with.recorded[1].request.language.name)
    assert.same({ "history://runs" }, with.told)
  end)

  it("lets the runner report and tells it who asks, and nothing else", function()
    local report = function() end
    local seen
    local with = server(function(_, ctx) seen = copy(ctx) return fine() end)
    call("run_code", with, { language = "python", code = "x" }, { report = report, progress = error })
    assert.same({ report = report, client = { key = "stdio" } }, seen)
  end)

  it("is limited by the rate of the client, for what would run", function()
    local with = server(fine)
    with.rate = rate.new(2, function() return 0 end)
    for _ = 1, 3 do assert.is_nil((call("run_code", with, { language = "python", code = "" }))) end
    for _ = 1, 2 do assert.truthy(call("run_code", with, { language = "python", code = "x" })) end
    local answer, text = call("run_code", with, { language = "python", code = "x" })
    assert.is_nil(answer)
    assert.matches("2 a minute.*Wait 30 seconds", text)
    assert.equal(2, #with.recorded)
  end)

  it("does not count for the rate when there was no place for it", function()
    local failure = { code = "unavailable", message = "Busy" }
    local with = server(function(_, run)
      run.started = failure.started
      return nil, failure
    end)
    with.rate = rate.new(2, function() return 0 end)
    local function ask() return select(2, call("run_code", with, { language = "python", code = "x" })) end
    for _ = 1, 5 do assert.equal("Busy.", ask()) end
    failure.started = true
    assert.equal("Busy.", ask())
    failure.code, failure.started = "timeout", nil
    assert.equal("Busy.", ask())
    assert.matches("Too many runs", ask())
  end)

  it("counts what the policy denies, and knows the client", function()
    local with = server(fine, nil, assert(settings.parse(
      "policy = function(r) if r.code == 'bad' then return nil, 'not you, ' .. r.client end end")))
    local answer, text = call("run_code", with, { language = "python", code = "bad" })
    assert.is_nil(answer)
    assert.matches("not you, stdio", text)
    assert.truthy(call("run_code", with, { language = "python", code = "good" }))
    assert.is_nil((call("run_code", with, { language = "python", code = "" })))
    assert.equal(1, with.denied)
  end)

  it("refuses bad arguments: nothing runs, nothing is recorded", function()
    local with = server(function() error "ran" end)
    for _, arguments in ipairs { {}, { language = "python" }, { language = "__index", code = "x" },
      { language = "python", code = "x", timeout_seconds = 31 }, { language = null, code = "x" },
      { language = "python", code = " " }, { language = "python", code = "x", stdin = "y" } } do
      local answer, text = call("run_code", with, arguments)
      assert.is_nil(answer)
      assert.is_string(text)
    end
    assert.same({}, with.recorded)
  end)

  it("adds a warning when the history cannot be written", function()
    local answer = call("run_code", server(fine, "not recorded"), { language = "python", code = "x" })
    assert.same({ "not recorded" }, { table.unpack(answer.warnings) })
    assert.equal("success", answer.status)
  end)

  it("tells why a run could not start, and does not record it", function()
    local with = server(function() return nil, { code = "unavailable", message = "No engine; start it" } end)
    local answer, text = call("run_code", with, { language = "python", code = "x" })
    assert.is_nil(answer)
    assert.equal("No engine; start it.", text)
    assert.same({}, with.recorded)
  end)

  it("passes a cancellation on, and records it when the program had started", function()
    local thrown = { code = "cancelled", message = "by the client" }
    for _, started in ipairs { true, false } do
      local with = server(function(_, ctx)
        ctx.started = started
        error(thrown, 0)
      end)
      local ok, err = pcall(call, "run_code", with, { language = "python", code = "x" })
      assert.is_false(ok)
      assert.equal(thrown, err)
      assert.equal(started and 1 or 0, #with.recorded)
      assert.equal(#with.recorded, #with.told)
      if started then assert.equal("cancelled", with.recorded[1].result.status) end
    end
  end)

  it("records a run that ended even when it is cancelled while the record is locked", fake.task(function()
    local with, asked = server(fine), 0
    local record = with.history.record
    with.history.record = function(...)
      asked = asked + 1
      if asked < 3 then core.loop.sleep(60000) end
      return record(...)
    end
    local handle = fake.start_task(call, "run_code", with, { language = "python", code = "x" })
    for i = 1, 2 do
      fake.eventually(function() return asked == i end)
      handle.task:cancel("by the client")
    end
    local ok, err = handle:wait()
    assert.is_false(ok)
    assert.same({ "cancelled", "by the client" }, { err.code, err.message })
    assert.equal(1, #with.recorded)
    assert.equal("success", with.recorded[1].result.status)
    assert.same({ "history://runs" }, with.told)
  end))

  it("throws when the record has a fault, with a trace", function()
    local with = server(fine)
    with.history.record = function() error "bug" end
    local ok, err = pcall(call, "run_code", with, { language = "python", code = "x" })
    assert.is_false(ok)
    assert.matches("bug.*traceback", err)
  end)

  it("throws what is our own fault, with a trace", function()
    local ok, err = pcall(call, "run_code", server(function() error "bug" end), { language = "python", code = "x" })
    assert.is_false(ok)
    assert.matches("bug.*traceback", err)
  end)
end)

describe("the lists", function()
  it("name languages that run_code takes", function()
    local answer = call("list_supported_languages", server(fine), {})
    assert.equal(2, #answer.result)
    for _, row in ipairs(answer.result) do
      local entry = config.languages[row.language]
      assert.equal(entry.images[1], row.image)
      assert.equal(entry.images[2], row.image_in_use)
      assert.truthy(call("run_code", server(fine), { language = row.language, code = "x" }))
    end
    local _, text = call("list_supported_languages", server(fine), { all = true })
    assert.equal('unknown argument "all"; there are none.', text)
  end)

  it("show the history with its default and its bounds", function()
    assert.equal(20, call("get_execution_history", server(fine), {}).result[1].id)
    assert.equal(5, call("get_execution_history", server(fine), { limit = "5" }).result[1].id)
    assert.equal(20, call("get_execution_history", server(fine), { limit = null }).result[1].id)
    for _, limit in ipairs { -1, 0, 1001, "all", 1.5, true } do
      local answer, text = call("get_execution_history", server(fine), { limit = limit })
      assert.is_nil(answer)
      assert.matches("limit must be a whole number from 1 to 1000", text)
    end
    local _, text = call("get_execution_history", server(fine), { limit = 13 })
    assert.equal("The history is off: no disk.", text)
  end)
end)
