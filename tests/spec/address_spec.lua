-- The addresses depend on the environment, so each case asks a process of its own.
local core = require "sandbox_runner.core"
local fake = require "spec.support.fake"

local ASK = [[
local core = require "sandbox_runner.core"
local config = core.json.decode(arg[1])
local out = core.json.array()
for _, c in ipairs(require("sandbox_runner.address").candidates(config)) do out[#out + 1] = c end
print(core.json.encode(out))
]]

local folder

--- candidates() under these variables and no others.
local function ask(variables, config)
  local script = folder .. "/ask.lua"
  fake.write(script, ASK)
  local parts = { "env -i HOME='" .. folder .. "/home'" }
  for name, value in pairs(variables) do parts[#parts + 1] = ("%s='%s'"):format(name, value) end
  parts[#parts + 1] = ("'%s' --script '%s' '%s' 2>&1"):format(core.sys.exe(), script,
    core.json.encode(config or { none = true }))
  local pipe = assert(io.popen(table.concat(parts, " ")))
  local text = pipe:read("a")
  assert(pipe:close(), text)
  return assert(core.json.decode(text), text)
end

local function only(variables, config)
  local list = ask(variables, config)
  assert.equal(1, #list)
  return list[1]
end

local function write_context(dir, id, name, host, tls)
  assert(core.sys.mkdir_p(("%s/contexts/meta/%s"):format(dir, id)))
  fake.write(("%s/contexts/meta/%s/meta.json"):format(dir, id), core.json.encode {
    Name = name, Metadata = {}, Endpoints = { docker = { Host = host, SkipTLSVerify = false } } })
  if tls then assert(core.sys.mkdir_p(("%s/contexts/tls/%s/docker"):format(dir, id))) end
end

describe("engine addresses", function()
  before_each(function()
    folder = fake.temporary_folder()
    assert(core.sys.mkdir_p(folder .. "/home"))
  end)
  after_each(function() os.execute(("rm -rf '%s'"):format(folder)) end)

  it("without a hint are the usual sockets of this user", function()
    local list = ask { XDG_RUNTIME_DIR = "/run/user/77" }
    local addresses = {}
    for i, c in ipairs(list) do addresses[i] = c.address end
    assert.equal("unix:///var/run/docker.sock", addresses[1])
    assert.equal("unix:///run/user/77/docker.sock", addresses[2])
    assert.equal(("unix://%s/home/.docker/run/docker.sock"):format(folder), addresses[3])
    for _, c in ipairs(list) do assert.equal("unix://" .. c.path, c.address) end
    local text = table.concat(addresses, " ")
    assert.matches("/run/user/77/podman/podman.sock", text, 1, true)
  end)

  it("need no XDG_RUNTIME_DIR", function()
    local list = ask {}
    assert.equal(("unix:///run/user/%d/docker.sock"):format(core.sys.uid()), list[2].address)
  end)

  it("name each socket once", function()
    local seen = {}
    for _, c in ipairs(ask { XDG_RUNTIME_DIR = "/run", HOME = "/" }) do
      assert.is_nil(seen[c.address])
      seen[c.address] = true
    end
  end)

  it("follow init.lua before all else", function()
    local c = only({ DOCKER_HOST = "unix:///other" }, { address = "unix:///mine" })
    assert.equal("unix:///mine", c.address)
    assert.matches("init.lua", c.source, 1, true)
    assert.is_nil(c.refused)
  end)

  it("follow DOCKER_HOST", function()
    local c = only { DOCKER_HOST = "unix:///x/y.sock", DOCKER_CONTEXT = "ignored" }
    assert.equal("unix:///x/y.sock", c.address)
    assert.equal("DOCKER_HOST", c.source)
    assert.is_nil(c.refused)
  end)

  it("take an empty DOCKER_HOST for none", function()
    assert.is_true(#ask { DOCKER_HOST = "" } > 1)
  end)

  it("refuse what cannot be spoken, and say what to do", function()
    for host, words in pairs {
      ["ssh://me@host"] = "ssh -L", ["tcp://host:2375"] = "plain tcp", ["npipe:////./pipe/x"] = "looks like",
      ["unix://relative"] = "looks like", ["/var/run/docker.sock"] = "looks like", ["tcp://"] = "looks like",
      ["tcp:///x"] = "looks like", ["http://host"] = "looks like", ["fd://"] = "looks like",
    } do
      local c = only { DOCKER_HOST = host }
      assert.equal(host, c.address)
      assert.matches(words, tostring(c.refused), 1, true)
    end
  end)

  it("use tcp with TLS, or when it is allowed", function()
    local c = only { DOCKER_HOST = "tcp://h:2376", DOCKER_TLS_VERIFY = "1", DOCKER_CERT_PATH = "/certs" }
    assert.is_nil(c.refused)
    assert.equal("/certs", c.tls_dir)
    c = only { DOCKER_HOST = "tcp://h:2376", DOCKER_TLS_VERIFY = "1" }
    assert.equal(folder .. "/home/.docker", c.tls_dir)
    c = only({ DOCKER_HOST = "tcp://h:2375" }, { allow_plain_tcp = true })
    assert.is_nil(c.refused)
    assert.is_nil(c.tls_dir)
    c = only({}, { address = "tcp://h:2376", tls_dir = "/mine" })
    assert.is_nil(c.refused)
    assert.equal("/mine", c.tls_dir)
  end)

  it("follow the Docker context in use", function()
    local dir = folder .. "/config"
    write_context(dir, "aaa", "other", "unix:///other.sock")
    write_context(dir, "bbb", "mine", "unix:///mine.sock")
    write_context(dir, "ccc", "far", "tcp://far:2376", true)
    write_context(dir, "ddd", "away", "ssh://me@away")
    fake.write(dir .. "/config.json", '{"currentContext":"mine"}')
    local c = only { DOCKER_CONFIG = dir }
    assert.equal("unix:///mine.sock", c.address)
    assert.matches("mine", c.source)
    c = only { DOCKER_CONFIG = dir, DOCKER_CONTEXT = "far" }
    assert.equal("tcp://far:2376", c.address)
    assert.equal(dir .. "/contexts/tls/ccc/docker", c.tls_dir)
    assert.is_nil(c.refused)
    c = only { DOCKER_CONFIG = dir, DOCKER_CONTEXT = "away" }
    assert.matches("ssh -L", c.refused, 1, true)
    assert.is_true(#ask { DOCKER_CONFIG = dir, DOCKER_CONTEXT = "default" } > 1)
  end)

  it("look for the context in the home folder", function()
    write_context(folder .. "/home/.docker", "x", "colima", "unix:///colima.sock")
    fake.write(folder .. "/home/.docker/config.json", '{"currentContext":"colima","auths":{}}')
    assert.equal("unix:///colima.sock", only({}).address)
  end)

  it("of a context that is not there are no reason to use another machine", function()
    local c = only { DOCKER_CONTEXT = "gone" }
    assert.matches("context", c.refused)
  end)

  it("survive broken files of Docker's", function()
    local dir = folder .. "/config"
    for _, text in ipairs { "", "{", "[]", "5", '{"currentContext":5}', '{"currentContext":null}', "\255" } do
      assert(core.sys.mkdir_p(dir))
      fake.write(dir .. "/config.json", text)
      assert.is_true(#ask { DOCKER_CONFIG = dir } > 1)
    end
    for _, text in ipairs { "", "[]", "null", '{"Name":"m"}', '{"Name":"m","Endpoints":5}',
      '{"Name":"m","Endpoints":null}', '{"Name":"m","Endpoints":{"docker":null}}',
      '{"Name":"m","Endpoints":{"docker":{"Host":5}}}' } do
      assert(core.sys.mkdir_p(dir .. "/contexts/meta/x"))
      fake.write(dir .. "/contexts/meta/x/meta.json", text)
      local c = only { DOCKER_CONFIG = dir, DOCKER_CONTEXT = "m" }
      assert.matches("context", c.refused)
    end
  end)
end)
