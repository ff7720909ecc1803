-- The container engine: found, not found, refused; images there and not; and
-- that nothing on it but our own is ever touched.
local client = require "e2e.client"
local core = require "sandbox_runner.core"
local sandboxes = require "e2e.sandboxes"

local CODE = { language = "python", code = "print('ran')" }

-- Starts a server; calls fn(server); closes it.
local function with(options, fn)
  local server = client.start(options)
  local ok, why = pcall(fn, server)
  local status = server:close()
  if not ok then error(why, 0) end
  assert.equal(0, status)
end

-- The text of a refused run_code, which must come within three seconds.
local function refusal(server)
  local result
  client.within(3000 * client.slow, function()
    local started = client.now_ms()
    result = server:call("run_code", CODE)
    return client.now_ms() - started
  end)
  assert.is_true(result.isError, result.content[1].text)
  assert.is_nil(result.structuredContent)
  return result.content[1].text
end

-- The names of the volumes with our label, as a set.
local function volumes()
  local text = sandboxes.ask(function(docker) return assert(docker:volumes()) end)
  local set = {}
  for _, volume in ipairs(core.json.decode(text).Volumes or {}) do set[volume.Name] = true end
  return set
end

-- Whether the volume is gone afterwards; one in use stays.
local function remove_volume(name)
  return sandboxes.ask(function(docker)
    docker:remove_volume(name)
    local _, why = docker:volume(name)
    return why ~= nil and why.code == "not_found"
  end)
end

local function has(text, ...)
  for _, word in ipairs { ... } do assert.is_truthy(text:find(word, 1, true), text) end
end

describe("an engine that is not there", function()
  local NOWHERE = { env = { DOCKER_HOST = "unix:///nowhere/docker.sock" } }

  it("is said with what was tried and what to do, and the rest works", function()
    with(NOWHERE, function(server)
      has(refusal(server), "unix:///nowhere/docker.sock", "DOCKER_HOST", "systemctl start docker", "engine.address")
      assert.is_falsy(server:call("list_supported_languages", {}).isError)
      assert.equal(0, #server:history())
      client.within(100 * client.slow, function() return server:ping() end)
    end)
  end)

  it("does not delay the handshake", function()
    client.within(500 * client.slow, function()
      local server = client.start(NOWHERE)
      local took = client.now_ms() - server.started_ms
      assert.equal(0, (server:close()))
      return took
    end)
  end)

  it("is found when it comes later, without a restart", function()
    local folder = client.folder()
    local socket = folder .. "/docker.sock"
    with({ env = { DOCKER_HOST = "unix://" .. socket } }, function(server)
      has(refusal(server), socket)
      local real = sandboxes.address():match("^unix://(.*)$")
      if not real then return pending "the engine has no socket here" end
      os.execute(("ln -s %s %s"):format(client.quote(real), client.quote(socket)))
      assert.equal("ran\n", assert(server:run("python", CODE.code)).stdout)
    end)
    client.remove(folder)
  end)

  it("is told from one that is silent", function()
    -- A socket that takes connections and never answers.
    local folder = client.folder()
    local socket = folder .. "/silent.sock"
    if not os.execute("command -v node >/dev/null") then return pending "needs node" end
    local silent = assert(io.popen(("exec node -e 'require(\"net\").createServer(() => {}).listen(%q);"
      .. " process.stdin.on(\"end\", () => process.exit()).resume()'"):format(socket), "w"))
    assert.is_truthy(client.eventually(30, function() return core.sys.stat(socket) end))
    with({ env = { DOCKER_HOST = "unix://" .. socket } }, function(server)
      local started = client.now_ms()
      local id = server:post("run_code", CODE)
      client.within(100 * client.slow, function() return server:ping() end)
      local result = server:wait(id).result
      assert.is_true(client.now_ms() - started < 30000)
      assert.is_true(result.isError)
      has(result.content[1].text, socket)
    end)
    silent:close()
    client.remove(folder)
  end)

  it("can be one that says nonsense", function()
    local folder = client.folder()
    local socket = folder .. "/odd.sock"
    if not os.execute("command -v node >/dev/null") then return pending "needs node" end
    local odd = assert(io.popen(("exec node -e 'require(\"net\").createServer(c => c.end(\"hello\\n\")).listen(%q);"
      .. " process.stdin.on(\"end\", () => process.exit()).resume()'"):format(socket), "w"))
    assert.is_truthy(client.eventually(30, function() return core.sys.stat(socket) end))
    with({ env = { DOCKER_HOST = "unix://" .. socket } }, function(server) has(refusal(server), socket) end)
    odd:close()
    client.remove(folder)
  end)
end)

describe("DOCKER_HOST", function()
  local VALUES = {
    { "a socket of a rootless engine that is not there", "unix:///run/user/4242/docker.sock",
      { "/run/user/4242/docker.sock" } },
    { "ssh", "ssh://somebody@host", { "ssh", "engine.address" } },
    { "plain tcp", "tcp://127.0.0.1:2375", { "tcp", "allow_plain_tcp" } },
    { "nonsense", "localhost", { "localhost", "unix:///" } },
    { "a relative socket", "unix://docker.sock", { "unix:///" } },
    { "a name that is no host", "tcp://", { "tcp://" } },
  }
  for _, value in ipairs(VALUES) do
    it("is refused by name: " .. value[1], function()
      with({ env = { DOCKER_HOST = value[2] } }, function(server)
        has(refusal(server), "DOCKER_HOST", table.unpack(value[3]))
      end)
    end)
  end

  it("is honoured", function()
    with({ env = { DOCKER_HOST = sandboxes.address() }, init = "engine.allow_plain_tcp = true" }, function(server)
      assert.equal("ran\n", assert(server:run("python", CODE.code)).stdout)
    end)
  end)

  it("gives way to engine.address of init.lua", function()
    local address = sandboxes.address()
    local init = ("engine.address = %q\nengine.allow_plain_tcp = true"):format(address)
    with({ env = { DOCKER_HOST = "unix:///nowhere.sock" }, init = init }, function(server)
      assert.equal("ran\n", assert(server:run("python", CODE.code)).stdout)
    end)
    init = 'engine.address = "unix:///not/here.sock"'
    with({ env = { DOCKER_HOST = address }, init = init }, function(server)
      has(refusal(server), "/not/here.sock", "init.lua")
    end)
  end)

  it("of plain tcp can be allowed, and a closed port is said", function()
    with({ env = { DOCKER_HOST = "tcp://127.0.0.1:1" }, init = "engine.allow_plain_tcp = true" }, function(server)
      has(refusal(server), "127.0.0.1:1")
    end)
  end)
end)

describe("a Docker context", function()
  it("chosen in the client's settings is honoured and named", function()
    local home = client.folder()
    local id = ("ab"):rep(32)
    assert(core.sys.mkdir_p(home .. "/.docker/contexts/meta/" .. id, 448))
    client.write_file(home .. "/.docker/config.json", '{"currentContext":"mine"}')
    local meta = '{"Name":"mine","Metadata":{},"Endpoints":{"docker":{"Host":"%s","SkipTLSVerify":false}}}'
    local path = home .. "/.docker/contexts/meta/" .. id .. "/meta.json"
    client.write_file(path, meta:format "unix:///not/mine.sock")
    local options = { env = { HOME = home }, unset = { "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG" } }
    with(options, function(server) has(refusal(server), "/not/mine.sock", '"mine"') end)
    local address = sandboxes.address()
    if address:find "^unix:" then
      client.write_file(path, meta:format(address))
      with(options, function(server) assert.equal("ran\n", assert(server:run("python", CODE.code)).stdout) end)
    end
    client.remove(home)
  end)
end)

describe("images", function()
  local function language(images)
    return ([[language "python" { description = "x", images = { %s }, file = "x.py",
      run = { "python", "/scratch/x.py" } }]]):format(images)
  end

  it("that are missing are named with the command that gets them", function()
    with({ init = language '"no-such-image:1", "none/of/these:2"' }, function(server)
      has(refusal(server), "no-such-image:1", "none/of/these:2", "docker pull no-such-image:1", "--get-images")
      assert.equal(0, #server:history())
    end)
  end)

  it("that go and come back while the server runs are noticed", function()
    if not os.execute("command -v docker >/dev/null") then return pending "needs the docker command" end
    local name = "sandbox-runner-test:" .. core.sys.random_hex(4)
    local id = sandboxes.ask(function(docker)
      return core.json.decode(docker:image("sandbox-runner/python:local") or docker:image("python:3.12-slim")).Id
    end)
    local function docker(words) os.execute(("docker %s >/dev/null"):format(words)) end
    docker("tag " .. id .. " " .. name)
    with({ init = language(("%q"):format(name)) }, function(server)
      assert.equal(name, assert(server:run("python", CODE.code)).image)
      docker("rmi " .. name)
      -- What is known by its id may still be used; what is asked for anew is not there.
      local other = client.start { init = language(("%q"):format(name)) }
      has(refusal(other), name)
      docker("tag " .. id .. " " .. name)
      -- For a second the server believes that it is still not there.
      local result = client.eventually(20, function() return (other:run("python", CODE.code)) end)
      assert.equal("ran\n", result and result.stdout)
      other:close()
      docker("rmi " .. name)
    end)
  end)

  it("are taken in the order of preference, and the answer says which", function()
    with({ init = language '"no-such-image:1", "python:3.12-slim", "sandbox-runner/python:local"' }, function(server)
      local image = assert(server:run("python", "print('ran')")).image
      assert.is_true(image == "python:3.12-slim" or image == "sandbox-runner/python:local", image)
    end)
  end)
end)

describe("what is on the engine", function()
  -- A container that was created and never started, with our label.
  local function plant(name, instance, deadline)
    sandboxes.ask(function(docker)
      local image = docker:image("sandbox-runner/python:local") or assert(docker:image("python:3.12-slim"))
      local volume = "sandbox-runner-test-" .. name
      assert(docker:create_volume(volume))
      local ok, why = docker:create_filler(name, core.json.decode(image).Id, volume, instance, deadline)
      assert(ok, why and why.message)
    end)
  end

  local function exists(name)
    return sandboxes.ask(function(docker) return docker:inspect(name) ~= nil end)
  end

  local function remove(name)
    sandboxes.ask(function(docker) docker:remove(name) end)
    -- A container that is being removed keeps its volume for a moment.
    assert.is_true(client.eventually(30, function() return remove_volume("sandbox-runner-test-" .. name) end))
  end

  it("survives when it belongs to another server that may live, and goes when that one is dead", function()
    local now = os.time()
    local other = core.sys.random_hex(16)
    local alive, dead = "sandbox-runner-test-a" .. other, "sandbox-runner-test-d" .. other
    plant(alive, other, now + 3600)
    plant(dead, other, now - 3600)
    with({}, function(server)
      server:run("python", "print(1)")
      assert.is_true(client.eventually(30, function() return not exists(dead) end))
      assert.is_true(exists(alive))
    end)
    assert.is_true(exists(alive))
    remove(alive)
    remove(dead)
  end)

  it("survives when it is not ours at all", function()
    if not os.execute("command -v docker >/dev/null") then return pending "needs the docker command" end
    local image = sandboxes.ask(function(docker)
      return core.json.decode(docker:image("sandbox-runner/python:local") or docker:image("python:3.12-slim")).Id
    end)
    local name = "test-of-sandbox-runner-" .. core.sys.random_hex(4)
    os.execute(("docker create --name %s %s true >/dev/null"):format(name, image))
    local server = client.start()
    server:run("python", "print(1)")
    server:post("run_code", { language = "python", code = "import time; time.sleep(20)" })
    sandboxes.wait_for(server, 1)
    assert.equal(0, (server:close()))
    assert.is_true(exists(name))
    os.execute(("docker rm %s >/dev/null"):format(name))
  end)

  it("gains no volume of ours but the agent's, and no image", function()
    local has_docker = os.execute("command -v docker >/dev/null")
    local function listing()
      local set = volumes()
      if not has_docker then return set end -- images cannot be listed without it
      local file = io.popen("docker images -q --no-trunc")
      for line in file:lines() do set[line] = true end
      file:close()
      return set
    end
    local before = listing()
    with({}, function(server)
      server:run("python", "print(1)")
      server:run("cpp", "int main() {}")
      server:run("python", "import time; time.sleep(9)", 1)
    end)
    for line in pairs(listing()) do
      assert.is_true(before[line] or line:find("^sandbox%-runner%-agent%-") ~= nil, line)
    end
  end)

  it("is not believed for ever: an agent volume that went comes back", function()
    local name = core.sys.random_hex(6)
    -- An agent of its own content, hence a volume of its own.
    local folder = client.folder()
    local program = client.program()
    local steps = ("mkdir DIR/build && cp FROM/sandbox-runner FROM/sandbox-agent DIR/build/ && "
      .. "printf NAME >>DIR/build/sandbox-agent && ln -s SHARE/lua SHARE/init.lua DIR/")
      :gsub("%u%u%u%u?%u?", { DIR = folder, NAME = name, FROM = client.quote(program:match "^(.*)/"),
        SHARE = client.quote(program:match "^(.-)/build/") })
    assert(os.execute(steps))
    local before = volumes()
    with({ program = folder .. "/build/sandbox-runner", init = client.no_pool }, function(server)
      assert.equal("ran\n", assert(server:run("python", CODE.code)).stdout)
      local own
      for volume in pairs(volumes()) do
        if not before[volume] then own = volume end
      end
      assert.is_string(own)
      assert.is_true(client.eventually(30, function() return remove_volume(own) end))
      assert.equal("ran\n", assert(server:run("python", CODE.code)).stdout)
      assert.is_true(client.eventually(30, function() return remove_volume(own) end))
    end)
    client.remove(folder)
  end)
end)

describe("a sandbox that somebody else removes", function()
  it("is said as a failure of the call, is no run of the record, and the server goes on", function()
    with({ init = client.no_pool }, function(server)
      local id = server:begin { language = "python", code = "import time; time.sleep(29)", timeout_seconds = 30 }
      local container = sandboxes.wait_for(server, 1)[1]
      local started = client.now_ms()
      sandboxes.ask(function(docker) docker:remove(container.Id) end)
      local result = server:wait(id).result
      assert.is_true(client.now_ms() - started < 20000)
      assert.is_true(result.isError, result.content[1].text)
      assert.is_nil(result.structuredContent)
      has(result.content[1].text, "The sandbox was lost", "run it again")
      assert.equal(0, #server:history())
      assert.equal("ran\n", assert(server:run("python", CODE.code)).stdout)
    end)
  end)
end)
