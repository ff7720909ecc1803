local fake = require "spec.support.fake"
local tar = require "sandbox_runner.tar"

local function listing(path, options)
  local pipe = assert(io.popen(("tar %s '%s' 2>&1"):format(options, path)))
  local text = pipe:read("a")
  return text, pipe:close()
end

describe("tar", function()
  local folder
  before_each(function() folder = fake.temporary_folder() end)
  after_each(function() os.execute(("rm -rf '%s'"):format(folder)) end)

  for _, size in ipairs { 0, 1, 511, 512, 513, 100000 } do
    it(("holds an executable of %d bytes that tar can read"):format(size), function()
      local data = ("\0x\255\n"):rep(size // 4 + 1):sub(1, size)
      local path = folder .. "/a.tar"
      local bytes = tar.executable("agent", data)
      assert.equal(0, #bytes % 512)
      fake.write(path, bytes)
      local text, ok = listing(path, "tvf")
      assert.is_true(ok, text)
      assert.matches("^%-rwxr%-xr%-x root/root%s+" .. size .. " [%d-]+ [%d:]+ %.agent%.new\n", text)
      assert.matches("\nhrwxr%-xr%-x root/root%s+0 [%d-]+ [%d:]+ agent link to %.agent%.new\n$", text)
      assert.is_true((os.execute(("tar xf '%s' -C '%s' --no-same-owner"):format(path, folder))))
      assert.equal(data, fake.read(folder .. "/agent"))
    end)
  end

  it("holds several files that tar can read", function()
    local path, long = folder .. "/a.tar", ("long\n"):rep(300)
    fake.write(path, tar.files { { "Dockerfile", "FROM x\n" }, { "empty", "" }, { "long", long } })
    local text, ok = listing(path, "tvf")
    assert.is_true(ok, text)
    assert.matches("^%-rw%-r%-%-r%-%- root/root%s+7 [%d-]+ [%d:]+ Dockerfile\n", text)
    assert.is_true((os.execute(("tar xf '%s' -C '%s' --no-same-owner"):format(path, folder))))
    assert.same({ "FROM x\n", "", long },
      { fake.read(folder .. "/Dockerfile"), fake.read(folder .. "/empty"), fake.read(folder .. "/long") })
  end)
end)
