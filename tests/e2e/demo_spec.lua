-- The session that `make run` shows, as a test.
local client = require "e2e.client"

describe("the session of make run", function()
  it("goes well from its first line to its last", function()
    local program = client.quote(client.program())
    local pipe = assert(io.popen(program .. " --script tests/e2e/demo.lua " .. program .. " 2>&1 </dev/null"))
    local out = pipe:read("a")
    local _, kind, status = pipe:close()
    assert.same({ "exit", 0 }, { kind, status }, out)
    local lines = {}
    for line in out:gmatch "[^\n]+" do lines[#lines + 1] = line end
    assert.equal("All went well.", lines[#lines])
    for _, title in ipairs { "The handshake", "What the server can do", "A Python program",
      "The README's C++ program", "A program that does not compile", "A program that does not end",
      "The record of these runs" } do
      assert.is_truthy(out:find("--- " .. title, 1, true), title)
    end
    assert.is_nil(out:find("\27", 1, true), "colours without a terminal")
  end)
end)
