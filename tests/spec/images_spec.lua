-- Which image a run uses.
local engine_of = require "sandbox_runner.engine"
local fake = require "spec.support.fake"
local settings = require "sandbox_runner.settings"

local BOTH = { ["gcc:14"] = true, ["sandbox-runner/gcc:14"] = true }

--- What Engine:image says about these names, and what the fake engine was asked.
local function use(script, names)
  local engine <close> = fake.start(script)
  local config = assert(settings.parse(("engine.address = %q\n"):format(engine.address)))
  local image, why = engine_of.new({ config = config, log = print, agent = "/none" }):image(names)
  local asked = {}
  for _, entry in ipairs(engine:record()) do
    if entry.verb == "image" then asked[#asked + 1] = entry.name:gsub("%%(%x%x)", function(hex)
      return string.char(tonumber(hex, 16))
    end) end
  end
  return image, why, asked
end

describe("the image in use", function()
  it("is the first of the names that is present", fake.task(function()
    local image, _, asked = use({ images = { ["b:1"] = true } }, { "a:1", "b:1", "c:1" })
    assert.same({ name = "b:1", id = "sha256:b:1", volumes = {} }, image)
    assert.same({ "a:1", "b:1" }, asked)
  end))

  it("is none when none of them is", fake.task(function()
    local image, why = use({}, { "gcc:14" })
    assert.is_nil(image)
    assert.equal("not_found", why.code)
  end))

  it("is the faster one that was made of it", fake.task(function()
    local image = use({ images = BOTH, labels = { ["sandbox-runner/gcc:14"] =
      '{"sandbox-runner":"1","sandbox-runner.base":"sha256:gcc:14"}' } }, { "gcc:14", "sandbox-runner/gcc:local" })
    assert.same({ name = "sandbox-runner/gcc:14", id = "sha256:sandbox-runner/gcc:14", volumes = {},
      made_of = "gcc:14" }, image)
  end))

  it("is itself when the faster one is not there, or was made of another", fake.task(function()
    for _, script in ipairs {
      { images = { ["gcc:14"] = true } },
      { images = BOTH },
      { images = BOTH, labels = { ["sandbox-runner/gcc:14"] = '{"sandbox-runner.base":"sha256:older"}' } },
      { images = BOTH, labels = { ["sandbox-runner/gcc:14"] = '{"sandbox-runner.base":7}' } },
    } do
      local image = use(script, { "gcc:14" })
      assert.equal("sha256:gcc:14", image.id)
      assert.equal("gcc:14", image.name)
    end
  end))
end)
