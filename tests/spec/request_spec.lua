local core = require "sandbox_runner.core"
local request = require "sandbox_runner.request"
local settings = require "sandbox_runner.settings"

local null = core.json.null
local config = settings.defaults()

local function arguments(changes)
  local out = { language = "python", code = "print('t')" }
  for key, value in pairs(changes) do out[key] = value end
  return out
end

local function accepted(changes)
  local checked, text = request.check(config, arguments(changes))
  assert.is_nil(text)
  return checked
end

local function refused(changes, with)
  local checked, text = request.check(with or config, arguments(changes))
  assert.is_nil(checked)
  assert.matches("[.?]$", text)
  return text
end

describe("request", function()
  it("takes the defaults", function()
    local checked = accepted {}
    assert.equal("python", checked.language.name)
    assert.equal("print('t')", checked.code)
    assert.equal(10, checked.timeout_seconds)
    assert.equal(10000, checked.timeout_ms)
  end)

  it("takes the time limit as number, numeric string, integral float or null", function()
    for _, value in ipairs { 5, "5", 5.0, " 5 " } do
      assert.equal(5, accepted { timeout_seconds = value }.timeout_seconds)
    end
    assert.equal(10, accepted { timeout_seconds = null }.timeout_seconds)
    assert.equal(30, accepted { timeout_seconds = 30 }.timeout_seconds)
  end)

  it("refuses any other time limit by name, with the ceiling", function()
    for _, value in ipairs { 0, -1, 31, 1e308, math.huge, 0 / 0, 10.5, "5s", "", "ten", true, {} } do
      assert.matches("timeout_seconds must be a whole number from 1 to 30, got",
        refused { timeout_seconds = value })
    end
  end)

  it("uses the time limit of a language that has its own", function()
    local own = assert(settings.parse('language "b" { description = "b", images = { "i" }, file = "f", '
      .. 'run = { "b" }, limits = { timeout_seconds = 3 } }'))
    assert.equal(3, request.check(own, { language = "b", code = "x" }).timeout_seconds)
    assert.equal(4, request.check(own, { language = "b", code = "x", timeout_seconds = 4 }).timeout_seconds)
  end)

  it("finds languages by alias", function()
    assert.equal("python", accepted { language = "py" }.language.name)
    assert.equal("cpp", accepted { language = " C++ " }.language.name)
  end)

  it("refuses unknown languages and lists the known", function()
    for _, name in ipairs { "rust", "__index", "../../etc", "name" } do
      local text = refused { language = name }
      assert.matches('^Unknown language "', text)
      assert.matches("python.*py.*cpp.*c%+%+", text)
    end
    assert.matches("language is empty", refused { language = " " })
  end)

  it("refuses absent and wrong arguments by name", function()
    assert.matches("language must be a string, got null", refused { language = null })
    assert.matches("language must be a string, got 7", refused { language = 7 })
    assert.matches("code must be a string, got a list; send the whole source as one string",
      refused { code = core.json.array { "a", "b" } })
    assert.matches("code must be a string, got null", refused { code = null })
    local _, text = request.check(config, {})
    assert.matches("^code is missing; send", text)
    _, text = request.check(config, nil)
    assert.matches("^code is missing; send", text)
    _, text = request.check(config, { code = "x" })
    assert.matches("^language is missing; name a language: python", text)
  end)

  it("refuses empty and blank code", function()
    for _, code in ipairs { "", " \n\t\n", "```python\n\n```" } do
      assert.matches("code is empty", refused { code = code })
    end
  end)

  it("counts bytes, not characters, up to the limit itself", function()
    local edge = "#" .. ("a"):rep(51184) .. "\nprint('edge')\n"
    assert.equal(51200, #edge)
    assert.equal(edge, accepted { code = edge }.code)
    local text = refused { code = "# " .. ("é"):rep(26000) .. "\nprint('x')" }
    assert.matches("52013 bytes", text)
    assert.matches("51200 bytes", text)
  end)

  it("refuses NUL in code", function()
    assert.matches("NUL character", refused { code = "print('a\0b')" })
  end)

  it("refuses unknown arguments and explains stdin", function()
    local text = refused { stdin = "hello" }
    assert.matches('unknown argument "stdin"; known are code, language and timeout_seconds', text)
    assert.matches("standard input is empty", text)
    assert.matches('unknown argument "timeout"; did you mean', refused { timeout = 3 })
  end)

  describe("fences", function()
    it("around the whole text are taken off", function()
      for _, text in ipairs { "```python\nprint(1)\n```", "```\nprint(1)\n```\n", "\n ```py\nprint(1)\n```  ",
        "~~~ python {x}\nprint(1)\n~~~", "````\nprint(1)\n`````", "```python\r\nprint(1)\n```\r\n" } do
        assert.equal("print(1)\n", accepted { code = text }.code, text)
      end
    end)

    it("keep the text between as it is", function()
      assert.equal("  if x:\n\ty\n\n", request.unwrap("```\n  if x:\n\ty\n\n```"))
      assert.equal("a\r\nb\r\n", request.unwrap("```\r\na\r\nb\r\n```"))
    end)

    it("elsewhere are left alone", function()
      for _, text in ipairs { "print(1)", "x = '''\n```\ny\n```\n'''", "```\na\n```\nb\n```\nc\n```",
        "```\nprint(1)", "text\n```\na\n```", "```a```", "```", "~~~\na\n```", "  indented", "\239\187\191x",
        "````\na\n```" } do
        assert.equal(text, request.unwrap(text))
      end
    end)
  end)

  describe("policy", function()
    local function with(body)
      return assert(settings.parse("policy = function(request) " .. body .. " end"))
    end

    it("may allow", function()
      for _, body in ipairs { "", "return nil", "return true" } do
        assert.equal("print('t')", assert(request.check(with(body), arguments {})).code)
      end
    end)

    it("may refuse, with a reason or without", function()
      assert.equal("Refused by the policy of this server: not today.",
        refused({}, with "return nil, 'not today'"))
      assert.matches("not today", refused({}, with "return false, 'not today'"))
      assert.matches("no reason was given", refused({}, with "return false"))
    end)

    it("may change the request, which is checked again", function()
      local changed = assert(request.check(with [[request.language = "py"; request.code = "x"
        request.timeout_seconds = 2; return request]], arguments { language = "cpp" }))
      assert.same({ "python", "x", 2000 }, { changed.language.name, changed.code, changed.timeout_ms })
      assert.matches("its request is not valid: timeout_seconds must be",
        refused({}, with "request.timeout_seconds = 99; return request"))
      assert.matches("its request is not valid: unknown argument",
        refused({}, with "request.image = 'x'; return request"))
    end)

    it("may set the limits of one run, within the bounds of the settings", function()
      local function with_limits(text) return with(text .. " return request") end
      local changed = assert(request.check(with_limits 'request.memory = "200m" request.cpus = 1', arguments {}))
      assert.same({ memory = 200 << 20, cpus = 1 }, changed.limits)
      assert.is_nil(assert(request.check(with_limits "", arguments {})).limits)
      for _, bad in ipairs { "request.memory = 0", 'request.memory = "144m"', "request.memory = {}",
        "request.cpus = 0", "request.cpus = 'all'" } do
        assert.matches("refused: its request is not valid: %a", refused({}, with_limits(bad)))
      end
    end)

    it("knows who asks, and may hand that back", function()
      local strict = with [[if request.client == "eve" then return nil, "not " .. request.client end
        request.timeout_seconds = 3 return request]]
      assert.equal(3, assert(request.check(strict, arguments {}, "adam")).timeout_seconds)
      local checked, text, denied = request.check(strict, arguments {}, "eve")
      assert.is_nil(checked)
      assert.equal("Refused by the policy of this server: not eve.", text)
      assert.is_true(denied)
      assert.is_nil(select(3, request.check(strict, arguments { code = "" }, "eve")))
    end)

    it("that fails refuses, and names its line", function()
      assert.matches("policy of this server failed.*init.lua:1: attempt to",
        refused({}, with "return request.nothing.at_all"))
      assert.matches("policy of this server failed", refused({}, with "return 7"))
      assert.matches("policy of this server failed", refused({}, with "while true do end"))
    end)

    it("is not asked about what is refused anyway", function()
      assert.matches("code is empty", refused({ code = "" }, with "error('asked')"))
    end)
  end)

  it("takes no longer for texts made to be slow", function()
    local blanks = (" "):rep(50000)
    local started = os.clock()
    refused { language = "x" .. blanks .. "x" }
    accepted { code = "x" .. (" "):rep(51000) .. "x" }
    refused { code = "x" .. (" "):rep(4000000) .. "x" }
    refused { timeout_seconds = ("0"):rep(50000) .. "x" }
    refused { timeout_seconds = blanks .. "x" }
    assert.is_true(os.clock() - started < 0.5)
  end)
end)
