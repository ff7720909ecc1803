-- get_images prints what it does, so each case runs in a process of its own.
local core = require "sandbox_runner.core"
local fake = require "spec.support.fake"

local GET = [[
local core = require "sandbox_runner.core"
local config = assert(require("sandbox_runner.settings").parse(arg[1]))
local status
core.loop.run(function()
  local engine = require("sandbox_runner.engine").new { config = config, log = print, agent = "/none" }
  status = require("sandbox_runner.get_images").run(config, engine, arg[2])
end)
return status
]]

--- Runs it for python alone, with this builder. Returns the output, the status (0, 1)
-- and the fake's record.
local function get(script, builder, precompiler)
  local engine <close> = fake.start(script)
  local folder = engine.folder
  assert(core.sys.mkdir_p(folder .. "/setup"))
  if builder then fake.write(folder .. "/setup/image-build.sh", builder) end
  if precompiler then fake.write(folder .. "/setup/precompile.sh", precompiler) end
  fake.write(folder .. "/get.lua", GET)
  local config = ("engine.address = %q\n"):format(engine.address)
  os.execute(("env TMPDIR='%s' '%s' --script '%s/get.lua' '%s' '%s' >'%s/out' 2>&1; echo $? >'%s/status'"):format(
    folder, core.sys.exe(), folder, config, folder, folder, folder))
  return fake.read(folder .. "/out"), tonumber(fake.read(folder .. "/status")), engine:record(),
    core.sys.list(folder)
end

local function verbs(record)
  local list = {}
  for _, entry in ipairs(record) do
    if entry.verb ~= "ping" and entry.verb ~= "image" then list[#list + 1] = entry.verb end
  end
  return table.concat(list, " ")
end

local BUILDER = 'echo "built $1"; printf "tar of %s" "$1" >"$2"'

describe("get_images", function()
  it("does nothing when all are there", fake.task(function()
    local out, status, record = get { images = { ["python:3.12-slim"] = true, ["sandbox-runner/gcc:local"] = true } }
    assert.equal(0, status, out)
    assert.equal("", verbs(record))
    assert.matches("python: python:3.12-slim\n", out, 1, true)
    assert.matches("cpp: sandbox-runner/gcc:local\n", out, 1, true)
  end))

  it("pulls what is missing", fake.task(function()
    local out, status, record = get { images = { ["python:3.12-slim"] = true },
      pull_text = '{"status":"Pulling","id":"a","progressDetail":{"current":1,"total":2000000}}\r\n'
        .. '{"status":"Done","id":"a","progressDetail":{}}\r\n' }
    assert.equal(0, status, out)
    assert.equal("pull", verbs(record))
    assert.matches("pulling gcc:14\n", out, 1, true)
    assert.matches("cpp: gcc:14\n", out, 1, true)
  end))

  it("builds under a name of its own what cannot be pulled", fake.task(function()
    local out, status, record, files = get({ images = { ["gcc:14"] = true },
      pull_text = '{"status":"Pulling"}\r\n{"errorDetail":{"message":"no route"},"error":"no route to registry"}\r\n' },
      BUILDER)
    assert.equal(0, status, out)
    assert.equal("pull import imported", verbs(record))
    assert.matches("no route to registry", out, 1, true)
    assert.matches("built python", out, 1, true)
    assert.matches("python: sandbox-runner/python:local\n", out, 1, true)
    for _, entry in ipairs(record) do
      if entry.verb == "import" then
        assert.matches("repo=sandbox-runner%2Fpython&tag=local", entry.name, 1, true)
        assert.matches("LABEL%20sandbox-runner%3D1%20sandbox-runner.recipe%3D1", entry.name, 1, true)
      elseif entry.verb == "imported" then
        assert.equal("13 tar of python", entry.name)
      end
    end
    assert.not_matches("%.tar", table.concat(files, " ")) -- the large file is gone
  end))

  it("takes the last line of a pull without a newline for an error too", fake.task(function()
    local out, status = get { images = { ["gcc:14"] = true }, pull_text = '{"error":"cut off"}' }
    assert.equal(1, status)
    assert.matches("cut off", out, 1, true)
  end))

  it("reports a refused pull, a failing builder, a failing import", fake.task(function()
    local there = { ["gcc:14"] = true }
    local out, status, record, files = get({ images = there, pull = { status = 404, message = "pull access denied" } },
      'echo "no debootstrap" >&2; echo half >"$2"; exit 1')
    assert.equal(1, status)
    assert.equal("pull", verbs(record))
    assert.matches("pull access denied", out, 1, true)
    assert.matches("no debootstrap", out, 1, true)
    assert.matches("none of its images could be had", out, 1, true)
    assert.not_matches("%.tar", table.concat(files, " "))
    out, status = get({ images = there, pull = { status = 500 },
      import = { status = 500, message = "disk full" } }, BUILDER)
    assert.equal(1, status)
    assert.matches("disk full", out, 1, true)
    out, status = get({ images = there, pull = { status = 500 },
      import_text = '{"status":"x"}\r\n{"error":"bad tar"}\r\n' }, BUILDER)
    assert.equal(1, status)
    assert.matches("bad tar", out, 1, true)
  end))

  it("says when there is the script that builds it is missing", fake.task(function()
    local out, status = get { images = { ["gcc:14"] = true }, pull = { status = 500 } }
    assert.equal(1, status)
    assert.matches("the script that builds it is missing", out, 1, true)
  end))

  local GCC = { ["python:3.12-slim"] = true, ["gcc:14"] = true }

  it("makes a faster image of the official compiler's", fake.task(function()
    local out, status, record = get({ images = GCC }, nil, "echo 'a script'")
    assert.equal(0, status, out)
    assert.equal("build built", verbs(record))
    assert.matches("precompiling <bits/stdc++.h> of gcc:14 in sandbox-runner/gcc:14\n", out, 1, true)
    assert.matches("cpp: gcc:14\n", out, 1, true)
    for _, entry in ipairs(record) do
      if entry.verb == "build" then
        assert.matches("networkmode=none&t=sandbox-runner%2Fgcc%3A14&labels=", entry.name, 1, true)
        assert.matches("sandbox-runner.base%22%3A%22sha256%3Agcc%3A14", entry.name, 1, true)
      elseif entry.verb == "built" then
        assert.matches("FROM sha256:gcc:14 COPY precompile.sh", entry.name, 1, true)
        assert.matches("echo 'a script'", entry.name, 1, true)
      end
    end
  end))

  it("makes no second one of the same image, and a new one of another", fake.task(function()
    local images = { ["python:3.12-slim"] = true, ["gcc:14"] = true, ["sandbox-runner/gcc:14"] = true }
    local labels = { ["sandbox-runner/gcc:14"] = '{"sandbox-runner.base":"sha256:gcc:14"}' }
    local out, _, record = get({ images = images, labels = labels }, nil, "a script")
    assert.equal("", verbs(record))
    assert.matches("cpp: gcc:14\n", out, 1, true)
    labels["sandbox-runner/gcc:14"] = '{"sandbox-runner.base":"sha256:older"}'
    _, _, record = get({ images = images, labels = labels }, nil, "a script")
    assert.equal("build built", verbs(record))
  end))

  it("goes on with the official image when the faster one cannot be made", fake.task(function()
    local out, status = get({ images = GCC,
      build_text = '{"stream":"x"}\r\n{"error":"returned a non-zero code: 1"}\r\n' }, nil, "a script")
    assert.equal(0, status)
    assert.matches("sandbox-runner/gcc:14: returned a non-zero code: 1; gcc:14 is used as it is\n", out, 1, true)
    out, status = get({ images = GCC, build = { status = 501, message = "not here" } }, nil, "a script")
    assert.equal(0, status)
    assert.matches("not here; gcc:14 is used as it is\n", out, 1, true)
  end))

  it("says how to renew an image of ours that is of an older version", fake.task(function()
    local images = { ["python:3.12-slim"] = true, ["sandbox-runner/gcc:local"] = true }
    local out, status, record = get { images = images }
    assert.equal(0, status)
    assert.equal("", verbs(record)) -- nothing is rebuilt unasked
    assert.matches("sandbox-runner/gcc:local is of an older version, and works.", out, 1, true)
    assert.matches("docker image rm sandbox-runner/gcc:local", out, 1, true)
    out = get { images = images, labels = { ["sandbox-runner/gcc:local"] = '{"sandbox-runner.recipe":"2"}' } }
    assert.not_matches("older", out)
  end))

  it("says when there is no engine", fake.task(function()
    local out, status = get { ping = { status = 500, message = "not now" } }
    assert.equal(1, status)
    assert.matches("No container engine can be used", out, 1, true)
  end))
end)
