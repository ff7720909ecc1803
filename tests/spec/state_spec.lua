local core = require "sandbox_runner.core"
local state_of = require "sandbox_runner.state"

local SECRET = core.sys.random_hex(32)
local BOUND = core.json.encode(core.json.array { "tools/call", "deploy", { target = "x" }, "alice" })

describe("sealed state", function()
  local now, sealer
  before_each(function()
    now = 1785000000.25
    sealer = state_of.new(SECRET, function() return now end)
  end)

  local function refuses(text, bound)
    local value, why = sealer:open(text, bound or BOUND)
    assert.is_nil(value)
    assert.is_string(why)
    return why
  end

  it("gives back what was sealed", function()
    for _, value in ipairs { "text", "", 0, -1, 1.5, 2 ^ 53, true, false, { a = { 1, 2, { b = "\u{1F600}\n" } } },
      core.json.array {}, core.json.null } do
      local text = sealer:seal(value, BOUND, 60)
      assert.same(value, (sealer:open(text, BOUND)))
    end
  end)

  it("is text that needs no escapes, with nothing of the bound text in it", function()
    local text = sealer:seal({ step = 2 }, BOUND, 60)
    assert.matches("^v1%.[%w+/=]+%.%x+$", text)
    assert.is_nil(core.crypto.unbase64(text:match "%.([^.]+)%."):find("deploy", 1, true))
  end)

  it("is refused whichever byte is changed, dropped or added", function()
    local text = sealer:seal({ step = 2, name = "Alice" }, BOUND, 60)
    for at = 1, #text do
      local before, byte, after = text:sub(1, at - 1), text:byte(at), text:sub(at + 1)
      for bit = 0, 7 do refuses(before .. string.char(byte ~ (1 << bit)) .. after) end
      local same = text:sub(at, at)
      for _, swapped in ipairs { same:upper(), same:lower() } do
        if swapped ~= same then refuses(before .. swapped .. after) end
      end
      refuses(before .. after)
      refuses(before .. "A" .. text:sub(at))
    end
    refuses(text .. "0")
    refuses(text .. "\n")
    refuses(" " .. text)
    refuses(text:upper())
    assert.is_table((sealer:open(text, BOUND)))
  end)

  it("is refused when its payload is exchanged for another sealed one", function()
    local one, two = sealer:seal(1, BOUND, 60), sealer:seal(2, BOUND, 60)
    local body, code = one:match "^v1%.([^.]+)%.(%x+)$"
    local other_body, other_code = two:match "^v1%.([^.]+)%.(%x+)$"
    refuses(("v1.%s.%s"):format(body, other_code))
    refuses(("v1.%s.%s"):format(other_body, code))
  end)

  it("is refused for another method, other params or another client", function()
    local text = sealer:seal("x", BOUND, 60)
    for _, parts in ipairs { { "prompts/get", "deploy", { target = "x" }, "alice" },
      { "tools/call", "delete", { target = "x" }, "alice" }, { "tools/call", "deploy", { target = "y" }, "alice" },
      { "tools/call", "deploy", { target = "x" }, "bob" } } do
      refuses(text, core.json.encode(core.json.array(parts)))
    end
    refuses(text, "")
    refuses(text, BOUND .. " ")
  end)

  it("does not let a piece of the bound text pass for sealed text", function()
    local body, code = sealer:seal("x", "a:b", 60):match "^v1%.([^.]+)%.(%x+)$"
    refuses(("v1.%s.%s"):format(body, code), "a")
    refuses(("v1.%s.%s"):format(body, code), "a:b:" .. body)
    refuses(("v1.%s.%s"):format(body, code), "a:b:")
  end)

  it("is refused with another secret", function()
    local text = sealer:seal("x", BOUND, 60)
    local other = state_of.new(core.sys.random_hex(32), function() return now end)
    assert.is_nil((other:open(text, BOUND)))
    local again = state_of.new(SECRET, function() return now end)
    assert.equal("x", (again:open(text, BOUND)))
  end)

  it("expires", function()
    local text = sealer:seal("x", BOUND, 60)
    now = now + 59.9
    assert.equal("x", (sealer:open(text, BOUND)))
    now = now + 0.1
    assert.matches("expired", refuses(text))
    now = now + 1e9
    assert.matches("expired", refuses(text))
    assert.matches("expired", refuses(sealer:seal("x", BOUND, 0)))
  end)

  it("is not read when it is no string, empty, endless or nonsense", function()
    for _, text in ipairs { 1, true, {}, core.json.null, "", ".", "..", "v1", "v1.", "v1..", "v1.AAAA.", "v1..00",
      "v1.AAAA.zz", "v2.AAAA." .. ("0"):rep(64), "v1.AAAA." .. ("0"):rep(64), ("v1."):rep(1000), "\0", "\255\254",
      "v1.%s.%d", ("A"):rep(65536), "v1." .. ("A"):rep(65000) .. "." .. ("0"):rep(64) } do
      refuses(text)
    end
    assert.is_nil((sealer:open(nil, BOUND)))
    assert.matches("too long", refuses(sealer:seal("x", BOUND, 60) .. ("0"):rep(65536)))
    assert.matches("too long", refuses(("("):rep(4 << 20)))
  end)

  it("is refused when a payload is signed that is none of ours", function()
    local function signed(json)
      local body = core.crypto.base64(json)
      return ("v1.%s.%s"):format(body, core.crypto.hmac_sha256(SECRET, ("v1:%d:%s:%s"):format(#BOUND, BOUND, body)))
    end
    assert.equal("x", (sealer:open(signed('{"e":9e9,"v":"x"}'), BOUND)))
    for _, json in ipairs { "", "1", "null", "[]", "{}", '{"v":1}', '{"e":"9e9","v":1}', '{"e":null,"v":1}', "{" } do
      assert.matches("malformed", refuses(signed(json)))
    end
  end)

  it("has a largest size, and says so to whoever wants to keep more", function()
    local text = sealer:seal(("a"):rep(49000), BOUND, 60)
    assert.is_true(#text <= 65536)
    assert.equal(49000, #sealer:open(text, BOUND))
    local ok, why = pcall(sealer.seal, sealer, ("a"):rep(49200), BOUND, 60)
    assert.is_false(ok)
    assert.matches("65536; keep less", why)
  end)

  it("is not made of what JSON cannot give back", function()
    local deep = {}
    for _ = 1, 70 do deep = { deep } end
    for _, value in ipairs { "a\0b", print, 0 / 0, math.huge, deep } do
      assert.is_false((pcall(sealer.seal, sealer, value, BOUND, 60)))
    end
    assert.is_false((pcall(sealer.seal, sealer, nil, BOUND, 60)))
    for _, secret in ipairs { "", "short", 5 } do assert.is_false((pcall(state_of.new, secret))) end
  end)
end)
