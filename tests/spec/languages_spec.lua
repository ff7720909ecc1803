local languages = require "sandbox_runner.languages"
local settings = require "sandbox_runner.settings"

describe("languages", function()
  local config = settings.defaults()

  it("are found by name and alias; case and blanks do not matter", function()
    for _, name in ipairs { "python", "py", "PY", " Python3 ", "\tpython\n" } do
      assert.equal("python", languages.find(config, name).name)
    end
    for _, name in ipairs { "cpp", "C++", " cxx" } do
      assert.equal("cpp", languages.find(config, name).name)
    end
  end)

  it("are not found by what every table has, paths or other types", function()
    for _, name in ipairs { "__index", "../../etc", "", " ", "name", "rust", 1, true, {} } do
      assert.is_nil(languages.find(config, name))
    end
    assert.is_nil(languages.find(config, nil))
  end)

  it("are listed with image, description and aliases; each name is found", function()
    local list = languages.list(config)
    assert.same({ language = "cpp", image = "gcc:14", description = "C++17, compiled by GCC 14 with -O2",
      aliases = { "c++", "cxx", "cc", "cplusplus" } }, list[2])
    for _, row in ipairs(list) do
      assert.equal(row.language, languages.find(config, row.language).name)
      for _, alias in ipairs(row.aliases) do
        assert.equal(row.language, languages.find(config, alias).name)
      end
    end
  end)

  -- With other flags the compiler would not take what was precompiled, and say nothing.
  it("of C++ are compiled with the flags of the precompiled header", function()
    local script = assert(io.open("src/setup/precompile.sh"))
    local flags = script:read("a"):match("\n%[ $# %-gt 0 %] || set %-%- (%C+)\n")
    script:close()
    local compile = config.languages.cpp.compile
    assert.equal(("g++ %s /scratch/snippet.cpp -o /scratch/a.out"):format(flags), table.concat(compile, " "))
  end)

  it("name themselves for messages", function()
    assert.equal("python (also py, python3, py3) and cpp (also c++, cxx, cc, cplusplus)",
      languages.names(config))
  end)
end)
