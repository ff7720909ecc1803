local instructions = require "sandbox_runner.instructions"
local settings = require "sandbox_runner.settings"

local function text(init) return instructions.text(assert(settings.parse(init or ""))) end

describe("the instructions", function()
  it("say the live limits", function()
    local said = text [[
      limits.timeout_seconds = 7 limits.max_timeout_seconds = 77 limits.memory = "1g" limits.cpus = 2
      limits.code_bytes = 123 limits.output_bytes = 456 limits.runs_per_minute = 9
      language "lua" { description = "d", images = { "i" }, file = "f", run = { "lua" } }]]
    for _, part in ipairs { "Languages: lua.", "has 7 s (timeout_seconds up to 77)", "1g of memory and 2 CPU",
      "up to 123 bytes", "cut at 456 bytes", "At most 9 runs a minute.", "history://runs/{id}" } do
      assert.matches(part, said, 1, true)
    end
  end)

  it("leave out what does not apply", function()
    assert.is_nil(text():find("a minute", 1, true))
    assert.is_nil(text("history.enabled = false"):find("history", 1, true))
  end)

  it("name every status and reason, and are short", function()
    local said = text()
    for _, word in ipairs { "success", "error", "timeout", "compile_error", "exit", "signal", "oom", "compile",
      "compile_timeout", "compile_oom", "hint", "exit_code", "truncated", "isError" } do
      assert.matches("%f[%w_]" .. word .. "%f[^%w_]", said)
    end
    assert.is_true(#said < 1500, #said)
  end)
end)
