local auth_of = require "sandbox_runner.auth"
local core = require "sandbox_runner.core"
local fake = require "spec.support.fake"

local TOKEN = "0123456789abcdef"
local OTHER = "fedcba9876543210-other"
local getenv = os.getenv

describe("the tokens", function()
  local folder, path, variable

  setup(function()
    folder = fake.temporary_folder()
    path = folder .. "/tokens"
  end)

  teardown(function()
    os.execute("rm -rf '" .. folder .. "'")
  end)

  before_each(function()
    variable = nil
    os.getenv = function(name) -- luacheck: ignore 122
      if name == "SANDBOX_RUNNER_TOKEN" then return variable end
      return getenv(name)
    end
  end)

  after_each(function()
    os.getenv = getenv -- luacheck: ignore 122
  end)

  local function load(text, mode)
    if text then
      fake.write(path, text)
      assert(os.execute(("chmod %s '%s'"):format(mode or "600", path)))
    end
    return auth_of.load { file = folder .. "/init.lua", http = { token_file = text and path } }
  end

  local function refused(...)
    local auth, why = load(...)
    assert.is_nil(auth)
    assert.is_nil(why.message:find(TOKEN, 1, true))
    assert.is_nil(why.message:find(OTHER, 1, true))
    return why.message, why.code
  end

  it("are not needed where none is set", function()
    local auth = assert(load())
    assert.is_false(auth:required())
    assert.is_nil(auth:check("Bearer " .. TOKEN))
  end)

  it("come from the file, with and without a line end", function()
    for _, text in ipairs { TOKEN, TOKEN .. "\n", TOKEN .. "\r\n", "# mine\n\n" .. TOKEN .. "\n" } do
      local auth = assert(load(text))
      assert.is_true(auth:required())
      assert.equal("token", auth:check("Bearer " .. TOKEN))
    end
  end)

  it("come from the variable", function()
    variable = TOKEN .. "\n"
    assert.equal("token", assert(load()):check("Bearer " .. TOKEN))
  end)

  it("have names where there are several", function()
    local auth = assert(load(("anna:%s\nbert:%s\n"):format(TOKEN, OTHER)))
    assert.equal("anna", auth:check("Bearer " .. TOKEN))
    assert.equal("bert", auth:check("Bearer " .. OTHER))
  end)

  it("may share a name, so that one can replace the other", function()
    local auth = assert(load(("anna:%s\nanna:%s\n"):format(TOKEN, OTHER)))
    assert.equal("anna", auth:check("Bearer " .. TOKEN))
    assert.equal("anna", auth:check("Bearer " .. OTHER))
  end)

  it("are taken with the scheme in any case and nothing else", function()
    local auth = assert(load("anna:" .. TOKEN))
    for _, scheme in ipairs { "Bearer ", "bearer ", "BEARER ", "Bearer   " } do
      assert.equal("anna", auth:check(scheme .. TOKEN))
    end
    local wrong = { "", "Bearer", "Bearer ", TOKEN, "Basic " .. TOKEN, "Bearer" .. TOKEN, "Bearer " .. TOKEN .. "x",
      "Bearer x" .. TOKEN, "Bearer " .. TOKEN:sub(1, -2), "Bearer " .. TOKEN:upper(), "Bearer anna:" .. TOKEN,
      ("Bearer %s, Bearer %s"):format(TOKEN, TOKEN), ("Bearer %s %s"):format(OTHER, TOKEN), " Bearer " .. TOKEN,
      "Bearer \0" .. TOKEN }
    for _, header in ipairs(wrong) do assert.is_nil(auth:check(header), header) end
    assert.is_nil(auth:check(nil))
    assert.equal(#wrong + 1, auth.stats.refused)
  end)

  it("are nowhere in memory as they were", function()
    local auth = assert(load("anna:" .. TOKEN))
    local function search(t)
      for key, value in pairs(t) do
        assert.is_nil(tostring(key):find(TOKEN, 1, true))
        assert.is_nil(tostring(value):find(TOKEN, 1, true))
        if type(value) == "table" then search(value) end
      end
    end
    search(auth)
  end)

  it("are compared as codes of one length, all of them", function()
    local auth = assert(load(("anna:%s\nbert:%s\n"):format(TOKEN, OTHER)))
    local equal, lengths = core.crypto.equal, {}
    core.crypto.equal = function(a, b)
      lengths[#lengths + 1] = ("%d %d"):format(#a, #b)
      return equal(a, b)
    end
    auth:check("Bearer x")
    auth:check("Bearer " .. TOKEN)
    core.crypto.equal = equal
    assert.same({ "64 64", "64 64", "64 64", "64 64" }, lengths)
  end)

  it("in a file that others can read are refused", function()
    for _, mode in ipairs { "640", "604", "620", "601", "644" } do
      local text, code = refused(TOKEN, mode)
      assert.equal("denied", code)
      assert.matches("mode " .. mode .. "%); run: chmod 600 ", text)
    end
    assert(load(TOKEN, "400"))
  end)

  it("in a file of somebody else are refused", function()
    if core.sys.uid() ~= 0 then return pending("needs root") end
    fake.write(path, TOKEN)
    os.execute(("chmod 600 '%s'; chown 12345 '%s'"):format(path, path))
    local auth, why = auth_of.load { http = { token_file = path } }
    os.execute(("chown 0 '%s'"):format(path))
    assert.is_nil(auth)
    assert.matches("belongs to user 12345, .*run: chown 0 ", why.message)
  end)

  it("are refused when they are no tokens, with the line and what to do", function()
    for _, case in ipairs {
      { ("x"):rep(15), "the token has 15 characters" },
      { "short", ":1: the token has 5 characters, and 16 are needed; make one with: openssl" },
      { "\n" .. TOKEN .. " x", ":2: the token may hold printable ASCII without blanks" },
      { TOKEN .. "\195\164", "printable ASCII" }, { "\239\187\191" .. TOKEN, "printable ASCII" },
      { ("x"):rep(5000), "longer than 4096" },
      { "", "there is no token in it; make one" }, { "# " .. TOKEN .. "\n", "there is no token in it" },
      { "an na:" .. TOKEN, "the name before the colon" }, { ":" .. TOKEN, "the name before the colon" },
      { ("n"):rep(65) .. ":" .. TOKEN, "the name before the colon" },
      { TOKEN .. "\n" .. OTHER, ":2: with several tokens every line needs a name" },
      { "anna:" .. TOKEN .. "\n" .. OTHER, ":2: with several tokens every line needs a name" },
      { TOKEN .. "\nanna:" .. OTHER, ":2: with several tokens every line needs a name" },
      { ("anna:%s\nbert:%s"):format(TOKEN, TOKEN), ":2: this token is there twice" },
      { ("#"):rep(300000), "larger than 256 KiB" },
    } do
      local text, code = refused(case[1])
      assert.equal("invalid", code)
      assert.matches(case[2], text, 1, true)
    end
  end)

  it("in both places at once, or in an empty variable, are refused", function()
    variable = OTHER
    assert.matches("both http.token_file and SANDBOX_RUNNER_TOKEN are set; unset", (refused(TOKEN)), 1, true)
    variable = ""
    assert.matches("SANDBOX_RUNNER_TOKEN: the token has 0 characters", (refused()), 1, true)
    variable = "tooshort"
    assert.matches("make one with: openssl rand -hex 32", (refused()), 1, true)
  end)

  it("in a file that is none are refused without waiting", function()
    for _, what in ipairs { "/dev/null", folder, folder .. "/absent", folder .. "/fifo" } do
      if what:find "fifo" then os.execute("mkfifo '" .. what .. "'") end
      local auth, why = auth_of.load { http = { token_file = what } }
      assert.is_nil(auth)
      assert.matches("http.token_file", why.message, 1, true)
      assert.matches(what, why.message, 1, true)
    end
  end)

  it("of a relative path are beside init.lua", function()
    fake.write(path, TOKEN)
    os.execute(("chmod 600 '%s'"):format(path))
    assert(auth_of.load { file = folder .. "/init.lua", http = { token_file = "tokens" } })
  end)

  it("are the price of an address that others can reach", function()
    local none, some = assert(load()), assert(load(TOKEN))
    for _, host in ipairs { "127.0.0.1", "127.8.9.255", "localhost", "::1" } do
      assert.is_true((auth_of.may_bind(host, none)))
    end
    for _, host in ipairs { "0.0.0.0", "::", "192.168.1.2", "10.0.0.1", "127.0.0.256", "127.0.0.1.example.org",
      "127.1", "1270.0.0.1", "localhost.example.org", "::ffff:127.0.0.1", "fe80::1", "", "128.0.0.1" } do
      local ok, text = auth_of.may_bind(host, none)
      assert.is_nil(ok, host)
      assert.matches("http.token_file (or set SANDBOX_RUNNER_TOKEN), or listen on 127.0.0.1", text, 1, true)
      assert.is_true((auth_of.may_bind(host, some)))
    end
  end)

  it("are asked for as RFC 6750 has it", function()
    assert.equal('Bearer realm="sandbox-runner"', auth_of.challenge(nil))
    assert.equal('Bearer realm="sandbox-runner", error="invalid_token"', auth_of.challenge("Bearer x"))
  end)
end)
