local core = require "sandbox_runner.core"

local crypto = core.crypto

local function bytes(hex)
  return (hex:gsub("%x%x", function(byte) return string.char(tonumber(byte, 16)) end))
end

-- RFC 4231, test cases 1 to 4, 6 and 7.
local HMAC = {
  { ("\x0b"):rep(20), "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7" },
  { "Jefe", "what do ya want for nothing?", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843" },
  { ("\xaa"):rep(20), ("\xdd"):rep(50), "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe" },
  { bytes "0102030405060708090a0b0c0d0e0f10111213141516171819", ("\xcd"):rep(50),
    "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b" },
  { ("\xaa"):rep(131), "Test Using Larger Than Block-Size Key - Hash Key First",
    "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54" },
  { ("\xaa"):rep(131), "This is a test using a larger than block-size key and a larger than block-size data. "
    .. "The key needs to be hashed before being used by the HMAC algorithm.",
    "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2" },
}

-- RFC 4648, section 10.
local BASE64 = { [""] = "", f = "Zg==", fo = "Zm8=", foo = "Zm9v", foob = "Zm9vYg==", fooba = "Zm9vYmE=",
  foobar = "Zm9vYmFy" }

describe("crypto", function()
  it("computes the HMACs of RFC 4231", function()
    for _, case in ipairs(HMAC) do assert.equal(case[3], crypto.hmac_sha256(case[1], case[2])) end
  end)

  it("takes an empty key for an empty key, whatever was used before", function()
    local empty = "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad"
    crypto.hmac_sha256("another", "text")
    assert.equal(empty, crypto.hmac_sha256("", ""))
  end)

  it("compares", function()
    assert.is_true(crypto.equal("", ""))
    assert.is_true(crypto.equal("a\0b", "a\0b"))
    assert.is_false(crypto.equal("a\0b", "a\0c"))
    assert.is_false(crypto.equal("a", "ab"))
    assert.has_error(function() crypto.equal("a") end)
  end)

  it("encodes and decodes the base64 of RFC 4648", function()
    for plain, text in pairs(BASE64) do
      assert.equal(text, crypto.base64(plain))
      assert.equal(plain, crypto.unbase64(text))
    end
    local all = {}
    for i = 0, 255 do all[#all + 1] = string.char(i) end
    for n = 0, 255 do
      local part = table.concat(all, "", 256 - n)
      assert.equal(part, crypto.unbase64(crypto.base64(part)))
    end
    assert.equal("+/+/", crypto.base64("\xfb\xff\xbf"))
  end)

  it("decodes nothing that it would not have written", function()
    for _, text in ipairs { "Z", "Zg", "Zg=", "Zg===", "Zh==", "Zm9=", "Z===", "====", "Zg==Zg==", "Zm9v\n", " Zm9v",
      "Zm 9", "Zm9-", "Zm9_", "Zm9\0", "=Zm9", "Zm=v", "Z=m9", "\xc5\xbdm9" } do
      assert.is_nil(crypto.unbase64(text))
    end
  end)
end)
