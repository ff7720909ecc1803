-- <bits/stdc++.h> precompiled in an image: nobody is to see it but for the time.
local client = require "e2e.client"
local sandboxes = require "e2e.sandboxes"

local json = client.json

-- The same command three times: as shipped; with an empty file before all others, after which the
-- compiler takes nothing precompiled; and one that lists what it reads.
local LANGUAGES = [[
for name, words in pairs { shipped = {}, plain = { "-include", "/dev/null" }, listing = { "-H" } } do
  local compile = { "g++", "-std=c++17", "-O2" }
  for _, word in ipairs(words) do compile[#compile + 1] = word end
  for _, word in ipairs { "/scratch/snippet.cpp", "-o", "/scratch/a.out" } do compile[#compile + 1] = word end
  language(name) { description = "C++", images = { "gcc:14", "sandbox-runner/gcc:local" }, file = "snippet.cpp",
    artifact = "a.out", compile = compile, run = { "/scratch/a.out" } }
end
]]

local EVERYTHING = "#include <bits/stdc++.h>\n"
local PROGRAMS = {
  { "a program", EVERYTHING .. "int main() { std::vector<int> v{3, 1}; std::sort(v.begin(), v.end());\n"
    .. "std::cout << v[0] << __FILE__ << __LINE__ << __cplusplus << __COUNTER__; }" },
  { "errors", EVERYTHING .. "using namespace std;\nint main() {\n  string s = 5;\n  vector<int> v; v.foo();\n"
    .. "  return nothing;\n}" },
  { "warnings", EVERYTHING .. "#warning here\n#line 70 \"other.cpp\"\nint main() { printf(\"%ld\\n\", 5); }" },
  { "comments before it", "/* a */ // b\n\n  " .. EVERYTHING .. "int main() { return X; }" },
  { "macros before it", "#define int long long\n#define private public\n" .. EVERYTHING
    .. "signed main() { int x = 1LL << 40; std::cout << x; }" },
  { "the library's debug mode", "#define _GLIBCXX_DEBUG\n" .. EVERYTHING
    .. "int main() { std::vector<int> v; std::cout << typeid(v).name() << sizeof v; }" },
  { "pragmas before it", "#pragma GCC optimize(\"O3\")\n" .. EVERYTHING .. "int main() { std::cout << 7; }" },
  { "asserts switched off", "#define NDEBUG\n" .. EVERYTHING .. "int main() { assert(false); std::cout << 8; }" },
  { "other headers before it", "#include <cstdio>\n" .. EVERYTHING .. "int main() { std::puts(\"9\"); }" },
}

describe("the header of everything", function()
  local server
  setup(function() server = client.start { init = LANGUAGES .. client.no_pool, seconds = 120 } end)
  teardown(function() server:close() end)

  for _, program in ipairs(PROGRAMS) do
    it("means the same, precompiled or not: " .. program[1], function()
      local ids = {}
      for _, name in ipairs { "shipped", "plain" } do
        ids[name] = server:post("run_code", { language = name, code = program[2] })
      end
      local shipped = server:wait(ids.shipped).result.structuredContent
      local plain = server:wait(ids.plain).result.structuredContent
      for _, field in ipairs { "status", "reason", "exit_code", "signal", "stdout", "stderr", "compile_output" } do
        assert.same(plain[field], shipped[field])
      end
    end)
  end

  it("is taken as precompiled from the images that say they have it so", function()
    local result = assert(server:run("listing", EVERYTHING .. "int main() {}"))
    local labels = sandboxes.image(result.image).Config.Labels
    labels = labels ~= json.null and labels or {}
    local has = labels["sandbox-runner.base"] or (tonumber(labels["sandbox-runner.recipe"]) or 1) >= 2
    assert.equal(has and true or false, result.compile_output:find("! %S+/bits/stdc%+%+%.h%.gch/") ~= nil)
  end)
end)
