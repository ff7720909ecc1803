local core = require "sandbox_runner.core"
local schema = require "sandbox_runner.schema"
local settings = require "sandbox_runner.settings"

local ROOT = debug.getinfo(1, "S").source:match("^@(.*)tests/spec/") or "./"

local function refused(text)
  local config, err = settings.parse(text, "conf/init.lua")
  assert.is_nil(config)
  return err.message
end

local function plain(config)
  local out = {}
  for name in pairs(settings.tree) do
    out[name] = {}
    for key, value in pairs(config[name]) do out[name][key] = value end
  end
  out.languages, out.language_order = config.languages, config.language_order
  return out
end

local function file_with(text, mode)
  local path = os.tmpname()
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  os.execute(("chmod %s '%s'"):format(mode or "644", path))
  finally(function() os.remove(path) end)
  return path
end

describe("settings", function()
  it("have the defaults of the original", function()
    local config = settings.defaults()
    assert.equal(10, config.limits.timeout_seconds)
    assert.equal(30, config.limits.max_timeout_seconds)
    assert.equal(256 << 20, config.limits.memory)
    assert.equal(0.5, config.limits.cpus)
    assert.equal(51200, config.limits.code_bytes)
    assert.equal(102400, config.limits.output_bytes)
    assert.equal("sandbox_history.db", config.history.file)
    assert.equal(20, config.history.default_limit)
    assert.same({ "python", "cpp" }, config.language_order)
  end)

  it("are stated in full, with these defaults, by the shipped init.lua", function()
    local config, err = settings.load(ROOT .. "init.lua")
    assert.is_nil(err)
    assert.same(plain(settings.defaults()), plain(config))
    local file = assert(io.open(ROOT .. "init.lua"))
    local text = file:read("a")
    file:close()
    for name, record in pairs(settings.tree) do
      for key in pairs(record.fields) do
        assert.truthy(text:find("\n%-%-[^\n]*\n" .. name .. "%." .. key .. " = "), name .. "." .. key)
      end
    end
  end)

  it("take the values of the file", function()
    local config = assert(settings.parse([[
      limits.timeout_seconds = 12
      limits.memory = "512M"
      limits.cpus = 2
      engine.address = "unix:///run/docker.sock"
      local twice = limits.timeout_seconds * 2
      limits.max_timeout_seconds = math.max(twice, 30)
    ]]))
    assert.equal(12, config.limits.timeout_seconds)
    assert.equal(512 << 20, config.limits.memory)
    assert.equal("unix:///run/docker.sock", config.engine.address)
    assert.equal(30, config.limits.max_timeout_seconds)
  end)

  it("have lists, which no two configs share when they are set", function()
    local config = assert(settings.parse([[
      http.allowed_hosts = { "runner.example", "[::1]:8000" }
      http.allowed_origins = { "https://app.example", "null://x" }
      http.host = "::"
      limits.runs_per_minute = 30
      tasks.after_seconds = 0.5]]))
    assert.same({ "runner.example", "[::1]:8000" }, { table.unpack(config.http.allowed_hosts) })
    assert.same({ 2, "::", 30, 0.5 }, { #config.http.allowed_origins, config.http.host, config.limits.runs_per_minute,
      config.tasks.after_seconds })
    assert.equal(0, #settings.defaults().http.allowed_hosts)
  end)

  it("cannot be changed afterwards", function()
    local config = settings.defaults()
    assert.has_error(function() config.limits.memory = 1 end)
    assert.has_error(function() config.limits = {} end)
    config = assert(settings.parse("policy = function() limits.pids = 20 end"))
    assert.has_error(function() config.policy {} end)
    assert.equal(128, config.limits.pids)
  end)

  describe("refuse with the place and what would be right", function()
    for text, message in pairs {
      ["\nlimits.memroy = '1g'"] = 'init.lua:2: limits: unknown setting "memroy"; did you mean "memory"?',
      ["READ_ONLY = ture"] = 'init.lua:1: unknown name "ture"; did you mean "true"?',
      ["READ_ONLY = true"] = 'init.lua:1: unknown name "READ_ONLY"; settings live in',
      ["limits = {}"] = "init.lua:1: limits is a section; set its values one by one",
      ["local x = limits.foo"] = 'init.lua:1: limits: unknown setting "foo"',
      ["limits.memory = '0'"] = 'must be a size like "256m" from 16m to 64g, got "0"',
      ["limits.memory = '-1'"] = 'from 16m to 64g, got "%-1"',
      ["limits.memory = '1x'"] = 'from 16m to 64g, got "1x"',
      ["limits.memory = '1k'"] = 'from 16m to 64g, got "1k"',
      ["limits.memory = nil"] = "got nothing",
      ["limits.cpus = 0"] = "limits.cpus must be a number from 0.05 to 64, got 0",
      ["limits.cpus = 0/0"] = "got NaN",
      ["limits.output_bytes = 0"] = "limits.output_bytes must be a whole number from 1 to 262144, got 0",
      ["limits.timeout_seconds = -1"] = "from 1 to 3600, got %-1",
      ["limits.timeout_seconds = '5'"] = 'got "5"',
      ["limits.timeout_seconds = 1.5"] = "got 1.5",
      ["history.enabled = 1"] = "history.enabled must be true or false, got 1",
      ["log.level = 'loud'"] = 'log.level must be "error", "warning", "info" or "debug", got "loud"',
      ["config.timeout = = 5"] = "^conf/init.lua:1: unexpected symbol near '='$",
      ["error({code = 7})"] = "^conf/init.lua:1: {code = 7}$",
      ["error('no')"] = "^conf/init.lua:1: no$",
      ["assert(false)"] = "^conf/init.lua:1: assertion failed$",
      ["local x = nil; x.y = 1"] = "^conf/init.lua:1: attempt to index a nil value",
      ["os.exit(3)"] = "init.lua:1: os is not available in init.lua",
      ["require 'x'"] = "require is not available",
      ["pcall(print)"] = "pcall is not available",
      ["local function f() return f() + 1 end f()"] = "init.lua:1: stack overflow",
      ["while true do end"] = "init.lua:1: this ran for more than 1 s",
      ["limits.runs_per_minute = 0"] = "must be a whole number from 1 to 100000, got 0",
      ["http.port = 65536"] = "http.port must be a whole number from 0 to 65535, got 65536",
      ["http.host = 'http://x'"] = 'http.host must be an address like "127.0.0.1" or "::1", got "http://x"',
      ["http.allowed_hosts = 'x'"] = 'http.allowed_hosts must be a list of host names, got "x"',
      ["http.allowed_hosts = { 'http://x' }"] = 'http.allowed_hosts%[1%] must be a host name like "runner.example"',
      ["http.allowed_origins = { 'x' }"] = 'allowed_origins%[1%] must be an origin like "https://app.example", got "x"',
      ["http.allowed_origins = { 'https://x/' }"] = "must be an origin like",
      ["http.body = '1k'"] = 'http.body must be a size like "256m" from 4k to 64m, got "1k"',
      ["http.body = '8m' http.body_budget = '4m'"] = "http.body = 8m must not exceed http.body_budget = 4m, which all",
      ["tasks.after_seconds = -1"] = "tasks.after_seconds must be a number from 0 to 60, got %-1",
      ["tool = 3"] = "tool is a word of init.lua and cannot be set",
      ["policy = 3"] = "policy must be a function, got 3",
      ["print = nil"] = "print is a word of init.lua",
      ["engine.address = 'ssh://me@host'"] = "ssh is not supported; forward the socket",
      ["engine.address = '/var/run/docker.sock'"] = "engine.address must look like unix:///",
      ["engine.address = 'tcp://h:2375'"] = "tcp without TLS",
      ["language 'x'"] = 'init.lua:1: language "x" has no entry',
      ["language('X', {})"] = "the name of a language must be a lower%-case name",
      ["language '__index' {}"] = "the name of a language must be a lower%-case name",
    } do
      it((text:gsub("%s+", " ")), function() assert.matches(message, (refused(text))) end)
    end

    it("all failed cross-checks at once", function()
      local message = refused("limits.timeout_seconds = 40\nlimits.scratch = '512m'\n"
        .. "history.default_limit = 900\nhistory.max_limit = 800")
      assert.matches("init.lua:1: limits.timeout_seconds = 40 must not exceed", message)
      assert.matches("init.lua:2: limits: scratch %+ tmp %+ shm = 592m must stay below", message)
      assert.matches("init.lua:2: limits: file_size = 256m must be above", message)
      assert.matches("init.lua:3: history.default_limit = 900 must not exceed", message)
    end)

    it("with the path as given, however long", function()
      local path = ("/Über uns 1/x"):rep(20) .. "/init.lua"
      local _, err = settings.parse("x.y = 1", path)
      assert.equal(path .. ":1: ", err.message:sub(1, #path + 4))
    end)

    it("compiled Lua", function()
      assert.matches("must be plain text", refused(string.dump(function() end)))
    end)
  end)

  it("accept a byte order mark and an empty file", function()
    assert.equal(11, assert(settings.parse("\239\187\191limits.timeout_seconds = 11")).limits.timeout_seconds)
    assert.same(plain(settings.defaults()), plain(assert(settings.parse(""))))
  end)

  describe("languages", function()
    local BASH = 'language "bash" { description = "Bash", images = { "i:1" }, file = "s.sh", %s '
      .. 'run = { "bash", "-c", "echo \\"a b\\" $HOME" } }'

    it("are what the file names, words unchanged", function()
      local config = assert(settings.parse(BASH:format("aliases = { 'sh' },")))
      assert.same({ "bash" }, config.language_order)
      assert.same({ "bash", "-c", 'echo "a b" $HOME' }, { table.unpack(config.languages.bash.run) })
      assert.equal("bash", config.languages.bash.name)
    end)

    it("may have limits of their own", function()
      local languages = require "sandbox_runner.languages"
      local config = assert(settings.parse(BASH:format("limits = { memory = '1g', timeout_seconds = 5 },")))
      local limits = languages.run_limits(config, config.languages.bash)
      assert.same({ 1 << 30, 5, 128 }, { limits.memory, limits.timeout_seconds, limits.pids })
    end)

    for field, message in pairs {
      ["run2 = 1,"] = 'unknown field "run2"; did you mean "run"',
      ["image = 'x',"] = 'unknown field "image"; did you mean "images"',
      ["compile = 'gcc x',"] = "compile must be a list of words, got \"gcc x\"; write the command",
      ["compile = { 'cc' },"] = "compile needs artifact",
      ["artifact = 'a.out',"] = "artifact needs compile",
      ["env = { ['A-B'] = 'x' },"] = "must be a name like LC_ALL",
      ["aliases = { 'A' },"] = "aliases%[1%] must be a lower%-case name",
      ["aliases = { 'bash' },"] = 'the name "bash" already belongs to "bash"',
      ["limits = { memory = '16m' },"] = 'language "bash": scratch %+ tmp %+ shm = 144m must stay below',
      ["limits = { timeout_seconds = 31 },"] = "must not exceed limits.max_timeout_seconds = 30",
      ["limits = { code_bytes = 1 },"] = 'limits: unknown setting "code_bytes"',
    } do
      it("refuse " .. field, function() assert.matches(message, (refused(BASH:format(field)))) end)
    end

    it("refuse a file with folders, a command as text and a second definition", function()
      assert.matches("must be a plain file name", (refused((BASH:format(""):gsub("s%.sh", "../s.sh")))))
      assert.matches("run must be a list of words",
        (refused('language "b" { description = "b", images = {"i"}, file = "f", run = "b f" }')))
      assert.matches('init.lua:2: language "bash" is defined twice',
        (refused(BASH:format("") .. "\n" .. BASH:format(""))))
    end)
  end)

  describe("policy", function()
    it("gets the request and gives its verdict", function()
      local config = assert(settings.parse("policy = function(r) return nil, r.code .. '!' end"))
      local verdict, reason = config.policy { code = "x" }
      assert.is_nil(verdict)
      assert.equal("x!", reason)
    end)

    it("that never ends is stopped, with its line", function()
      local config = assert(settings.parse("policy = function()\nwhile true do end\nend"))
      local ok, message = pcall(config.policy, {})
      assert.is_false(ok)
      assert.matches("init.lua:2: this ran for more than", message)
    end)

    it("that waits is refused, and allows nothing", function()
      local config = assert(settings.parse("policy = function() print 'x' end"))
      local log = core.sys.log
      core.sys.log = coroutine.yield
      local ok, message = pcall(config.policy, {})
      core.sys.log = log
      assert.is_false(ok)
      assert.equal("init.lua: a configuration cannot wait", message)
    end)
  end)

  describe("file", function()
    it("is read", function()
      local path = file_with("limits.pids = 64")
      local config = assert(settings.load(path))
      assert.equal(64, config.limits.pids)
      assert.equal(path, config.file)
    end)

    it("that is absent or a folder is named", function()
      local _, err = settings.load("/nonexistent/init.lua")
      assert.equal("not_found", err.code)
      assert.matches("/nonexistent/init.lua", err.message)
      _, err = settings.load("/tmp")
      assert.matches("^/tmp: this is a folder", err.message)
    end)

    it("that others may write to is refused with the remedy", function()
      for _, mode in ipairs { "646", "666" } do
        local path = file_with("limits.pids = 64", mode)
        local _, err = settings.load(path)
        assert.equal("denied", err.code)
        assert.truthy(err.message:find("run: chmod go-w " .. path, 1, true))
      end
    end)

    it("that a group may write to is read only where the group is the owner's own", function()
      local path = file_with("limits.pids = 64", "664")
      local stat = core.sys.stat(path)
      local config, err = settings.load(path)
      if stat.gid == stat.uid then
        assert.is_nil(err)
        assert.equal(64, config.limits.pids)
      end
      if core.sys.uid() == 0 then
        os.execute(("chgrp 60001 '%s'"):format(path))
        config, err = settings.load(path)
        assert.is_nil(config)
        assert.equal("denied", err.code)
      end
    end)

    it("that belongs to a stranger is refused with the remedy", function()
      if core.sys.uid() ~= 0 then return end
      local path = file_with("limits.pids = 64", "644")
      os.execute(("chown 60001 '%s'"):format(path))
      local _, err = settings.load(path)
      assert.equal("denied", err.code)
      assert.matches("belongs to user 60001", err.message)
    end)
  end)

  it("document every node", function()
    for name, record in pairs(settings.tree) do
      for key, node in pairs(record.fields) do
        assert.truthy(node.doc, name .. "." .. key)
        assert.truthy(node.default ~= nil or node.optional)
        assert.is_string(schema.expected(node))
      end
    end
  end)
end)
