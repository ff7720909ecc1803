-- init.lua, as the program takes it: faults stop the start with a place and a
-- remedy, languages are entries and nothing else, unusual paths work.
local client = require "e2e.client"
local core = require "sandbox_runner.core"

local sandboxes = require "e2e.sandboxes"

local quote = client.quote

-- A text that stands in init.lua from line 2 on.
local function line_two(text) return "-- a comment\n" .. text end

local FAULTS = {
  { "a syntax error", "config.timeout = = 5", "=" },
  { "a variable that does not exist", "limits.cpus = ture", { "ture", "true" } },
  { "an upper-case invention", "READ_ONLY = true", "READ_ONLY" },
  { "an unknown section", "config.timeout = 5", "config" },
  { "an unknown setting", 'limits.memroy = "512m"', { "memroy", "memory" } },
  { "a section as a whole", "limits = {}", "limits" },
  { "memory of zero", 'limits.memory = "0"', "limits.memory" },
  { "memory of less than zero", 'limits.memory = "-1"', "limits.memory" },
  { "memory in no unit known", 'limits.memory = "1x"', { "limits.memory", "1x" } },
  { "memory below all use", 'limits.memory = "1k"', "limits.memory" },
  { "memory without end", 'limits.memory = "unlimited"', "limits.memory" },
  { "no CPU", "limits.cpus = 0", "limits.cpus" },
  { "less than no CPU", "limits.cpus = -1", "limits.cpus" },
  { "an infinite CPU", "limits.cpus = math.huge", "limits.cpus" },
  { "no processes", "limits.pids = 0", "limits.pids" },
  { "no output", "limits.output_bytes = 0", "limits.output_bytes" },
  { "a number as text", 'limits.pids = "many"', "limits.pids" },
  { "a fraction of a process", "limits.pids = 20.5", "limits.pids" },
  { "a time limit of zero", "limits.timeout_seconds = 0", "limits.timeout_seconds" },
  { "a default above the ceiling", "limits.timeout_seconds = 31", { "timeout_seconds", "30" } },
  { "temporary space beyond memory", 'limits.tmp = "250m"', { "tmp", "memory" } },
  { "a value of no type", "limits.memory = nil", "limits.memory" },
  { "a thrown table", "error({ code = 7 })", "code = 7" },
  { "a thrown text", 'error "no way"', "no way" },
  { "a nil index", "local x = nil; x.y = 1", "nil" },
  { "an exit", "os.exit(3)", "os" },
  { "a file", 'io.open("/etc/passwd")', "io" },
  { "a module", 'require "os"', "require" },
  { "an endless loop", "while true do end", "never ends" },
  { "an endless loop with calls", "for i = 1, math.huge do local _ = tostring(i) end", "never ends" },
  { "a command as one text", 'language "sh" { description = "x", images = { "x" }, file = "x.sh", run = "sh x.sh" }',
    { "run", "list" } },
  { "a language without a command", 'language "sh" { description = "x", images = { "x" }, file = "x.sh" }', "run" },
  { "a file name with folders", 'language "sh" { description = "x", images = { "x" }, file = "../x", run = { "x" } }',
    "file" },
  { "an address of nonsense", 'engine.address = "localhost"', "engine.address" },
  { "an engine behind ssh", 'engine.address = "ssh://host"', { "ssh", "unix:///" } },
  { "plain tcp", 'engine.address = "tcp://127.0.0.1:2375"', "allow_plain_tcp" },
  { "a port beyond all ports", "http.port = 70000", { "http.port", "65535" } },
  { "more body than memory for it", 'http.body = "8m" http.body_budget = "4m"', "http.body_budget" },
  { "a tool without a handler", 'tool "x" { description = "d" }', { "handler", "function(arguments, ctx)" } },
  { "a tool with a name of two words", 'tool "x y" { description = "d", handler = print }', "name of a tool" },
  { "a schema with a misspelt word", 'tool "x" { description = "d", handler = print, input = { typ = "object" } }',
    { "input.typ", '"type"' } },
  { "a resource without an address", 'resource "notes" { text = "x" }', "notes://" },
  { "a prompt that is a text", 'prompt "x" { messages = "hi" }', "messages" },
  { "a policy that is none", 'policy = "yes"', "policy" },
}

describe("a fault in init.lua", function()
  for _, fault in ipairs(FAULTS) do
    it("stops the start: " .. fault[1], function()
      local server = client.start { init = line_two(fault[2]), mute = true }
      server:write '{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
      assert.is_nil(server:read()) -- nothing on stdout
      local status = server:finish()
      local log = server:stderr()
      server:close()
      assert.equal(78, status)
      assert.is_truthy(log:find("/init.lua:2: ", 1, true), log)
      for _, text in ipairs(type(fault[3]) == "table" and fault[3] or { fault[3] }) do
        assert.is_truthy(log:find(text, 1, true), log)
      end
      assert.is_nil(log:find("stack traceback", 1, true), log)
    end)
  end

  local function start_with(path)
    local server = client.start { config = path, mute = true }
    local said = server:read()
    local status = server:finish()
    local log = server:stderr()
    server:close()
    return status, log, said
  end

  it("that is not there, or a folder, is named", function()
    local status, log = start_with "/nowhere/init.lua"
    assert.equal(78, status)
    assert.matches("/nowhere/init.lua", log, 1, true)
    status, log = start_with "/tmp"
    assert.equal(78, status)
    assert.matches("/tmp", log, 1, true)
  end)

  it("that others may write to is not trusted", function()
    local folder = client.folder()
    local path = folder .. "/init.lua"
    client.write_file(path, "")
    os.execute("chmod 666 " .. quote(path))
    local status, log = start_with(path)
    client.remove(folder)
    assert.equal(78, status)
    assert.matches("chmod", log)
  end)

  it("is found by --check-config, too", function()
    local folder = client.folder()
    local path = folder .. "/init.lua"
    local function check(text)
      client.write_file(path, text)
      local file = io.popen(("%s --config %s --check-config 2>&1"):format(quote(client.program()), quote(path)))
      local out = file:read("a")
      local _, _, code = file:close()
      return code, out
    end
    local code, out = check "limits.memory = '512m'"
    assert.equal(0, code)
    assert.matches("fine", out)
    code, out = check "\n\nlimits.memory = 0"
    assert.equal(78, code)
    assert.matches("init.lua:3: ", out, 1, true)
    client.remove(folder)
  end)
end)

-- Sizes that are right, however they are written.
it("a size may be written in every usual way", function()
  local server = client.start { init = 'limits.memory = "256M"\ncompile.memory = "1g"\nlimits.tmp = 64 * 1024 * 1024' }
  assert.equal("1\n", assert(server:run("python", "print(1)")).stdout)
  assert.equal(0, (server:close()))
end)

it("what init.lua prints goes to stderr", function()
  local server = client.start { init = 'print("hello", 1, nil)' }
  assert.matches("hello 1 nil", server:stderr())
  assert.equal(0, (server:close()))
end)

local PYTHON = 'images = { "python:3.12-slim", "sandbox-runner/python:local" }'
local GCC = 'images = { "gcc:14", "sandbox-runner/gcc:local" }'

local LANGUAGES = ([[
language "bash" {
  description = "Bash with the usual Debian tools", aliases = { "sh" },
  PYTHON, file = "snippet.sh", run = { "bash", "/scratch/snippet.sh" },
}
language "perl" {
  description = "Perl 5", aliases = { "pl" },
  GCC, file = "snippet.pl", run = { "perl", "/scratch/snippet.pl" },
}
language "cpp20" {
  description = "C++20", aliases = { "c++20" },
  GCC, file = "snippet.cpp", artifact = "a.out",
  compile = { "g++", "-std=c++20", "-O1", "-fsanitize=address", "/scratch/snippet.cpp", "-o", "/scratch/a.out" },
  run = { "/scratch/a.out" }, compile_limits = { cpus = 1.5 },
}
language "words" {
  description = "Shows its arguments",
  PYTHON, file = "x.sh", env = { GREETING = "hi there; $HOME" },
  run = { "bash", "-c", 'for w in "$@"; do echo "<$w>"; done; echo "$GREETING"', "name",
          "a b", "$HOME", "`id`", "'", "*", "", "ünï" },
}
language "small" {
  description = "Python with little memory",
  PYTHON, file = "snippet.py", run = { "python", "/scratch/snippet.py" },
  limits = { memory = "64m", tmp = "8m", scratch = "8m", shm = "4m", timeout_seconds = 2, pids = 20 },
}
language "absent" {
  description = "A program that no image has",
  PYTHON, file = "x", run = { "/no/such/program" },
}
]]):gsub("PYTHON", PYTHON):gsub("GCC", GCC)

describe("a language that init.lua adds", function()
  local server
  setup(function() server = client.start { init = LANGUAGES } end)
  teardown(function() server:close() end)

  it("is listed, and the built-in ones are not when it names its own", function()
    local names = {}
    for i, entry in ipairs(server:call("list_supported_languages", {}).structuredContent.result) do
      names[i] = entry.language
    end
    assert.same({ "bash", "perl", "cpp20", "words", "small", "absent" }, names)
    local _, text = server:run("python", "print(1)")
    assert.matches("bash", text)
  end)

  it("runs: bash", function()
    local result = assert(server:run("sh", 'set -e; for i in 1 2 3; do echo "line $i"; done; ls /scratch; exit 5'))
    assert.same({ "bash", "line 1\nline 2\nline 3\nsnippet.sh\n", 5 },
      { result.language, result.stdout, result.exit_code })
  end)

  it("runs: perl", function()
    local code = 'use strict; my @a = map { $_ * $_ } 1..5; print "@a\\n"; warn "uh\\n"; die "end"'
    local result = assert(server:run("perl", code))
    assert.equal("1 4 9 16 25\n", result.stdout)
    assert.equal("uh\nend at /scratch/snippet.pl line 1.\n", result.stderr)
    assert.equal(255, result.exit_code)
  end)

  it("runs: another standard of C++, with a sanitizer", function()
    local code = [[
#include <concepts>
#include <iostream>
#include <vector>
template <std::integral T> T twice(T v) { return v + v; }
int main() { std::vector<int> v(10); v[3] = 21; std::cout << twice(v[3]) << "\n"; }]]
    local result = assert(server:run("C++20", code))
    assert.same({ "success", "42\n", "" }, { result.status, result.stdout, result.stderr })
  end)

  it("gets its words and its environment unchanged", function()
    local result = assert(server:run("words", "x"))
    assert.equal("<a b>\n<$HOME>\n<`id`>\n<'>\n<*>\n<>\n<ünï>\nhi there; $HOME\n", result.stdout)
  end)

  it("has limits of its own", function()
    local result = assert(server:run("small", "b = b'x' * 100_000_000\nprint('BREACH')"))
    assert.equal("", result.stdout)
    assert.is_true(result.reason == "oom" or result.stderr:find("MemoryError", 1, true) ~= nil, result.reason)
    result = assert(server:run("small", "import time; time.sleep(9)"))
    assert.equal("timeout", result.status)
    assert.is_true(result.duration_ms >= 2000 and result.duration_ms < 8000)
  end)

  it("whose program is not there says so", function()
    local result, text = server:run("absent", "x")
    assert.is_nil(result)
    assert.matches("/no/such/program", text, 1, true)
  end)
end)

describe("settings", function()
  local function with(init, fn)
    local server = client.start { init = init }
    local ok, why = pcall(fn, server)
    server:close()
    if not ok then error(why, 0) end
  end

  it("change the time limits, and what the tool says about them", function()
    with("limits.timeout_seconds = 1\nlimits.max_timeout_seconds = 2", function(server)
      local tools = server:wait(server:request("tools/list")).result.tools
      local node = tools[1].inputSchema.properties.timeout_seconds
      assert.same({ 1, 2 }, { node.default, node.maximum })
      local result = assert(server:run("python", "import time; time.sleep(9)"))
      assert.is_true(result.duration_ms >= 1000 and result.duration_ms < 8000)
      local _, text = server:run("python", "1", 3)
      assert.matches("2", text)
    end)
  end)

  it("change the size of code and output", function()
    with("limits.code_bytes = 100\nlimits.output_bytes = 10", function(server)
      local result = assert(server:run("python", "print('0123456789abcdef')"))
      assert.matches("^0123456789\n", result.stdout)
      assert.same({ true, 17 }, { result.truncated, result.stdout_bytes })
      result = assert(server:run("python", "print('ééééééé')"))
      assert.matches("^ééééé\n", result.stdout)
      result = assert(server:run("python", "print('aéééééé')"))
      assert.matches("^aéééé\n", result.stdout)
      local _, text = server:run("python", "#" .. ("x"):rep(100))
      assert.matches("100", text)
    end)
  end)

  it("let a compiler that hits its memory limit be told from a crash", function()
    local init = 'compile.memory = "64m"\ncompile.tmp = "16m"\ncompile.scratch = "16m"\ncompile.artifact = "8m"'
    with(init, function(server)
      local code = "#include <regex>\n#include <iostream>\n#include <map>\nint main() { std::regex r(\"a\"); }"
      local result = assert(server:run("cpp", code))
      assert.same({ "compile_error", "compile_oom" }, { result.status, result.reason })
      assert.matches("memory limit of 64m", result.hint)
    end)
  end)

  it("give the compiler a time limit of its own", function()
    with("compile.timeout_seconds = 1\ncompile.cpus = 0.1", function(server)
      local result = assert(server:run("cpp", client.slow_cpp, 30))
      assert.same({ "timeout", "compile_timeout" }, { result.status, result.reason })
      assert.matches("compiler", result.hint)
    end)
  end)

  it("may hold a policy that refuses and rewrites", function()
    local init = [[
policy = function(request)
  if request.code:find("import socket", 1, true) then return nil, "no sockets here" end
  if request.code:find("loop", 1, true) then while true do end end
  if request.code:find("fail", 1, true) then local x = nil; return x.y end
  if request.timeout_seconds > 5 then request.timeout_seconds = 1 return request end
end]]
    with(init, function(server)
      local _, text = server:run("python", "import socket")
      assert.matches("no sockets here", text)
      for _, code in ipairs { "loop", "fail" } do
        local result
        result, text = server:run("python", code)
        assert.is_nil(result)
        assert.matches("policy", text)
      end
      assert.equal("timeout", assert(server:run("python", "import time; time.sleep(4)", 20)).status)
      assert.equal("success", assert(server:run("python", "pass", 5)).status)
      assert.equal(2, #server:history())
    end)
  end)

  it("may hold a policy that sets the limits of one run, in a waiting sandbox and in a fresh one", function()
    local hungry = "x = bytearray(%d << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint(len(x))"
    for pool, name in pairs { ["pool.size = 0"] = "/sandbox%-runner%-%x+%-r1", ['pool.warm = "start"'] = "%-pool%-" } do
      with(pool .. [[

policy = function(request)
  local memory = request.code:match "# memory (%w+)"
  if memory then request.memory, request.cpus = memory, 0.25 return request end
end]], function(server)
        server:run("python", "pass")
        client.sleep(1)
        assert.equal("success", assert(server:run("python", hungry:format(180))).status)
        client.sleep(1)
        assert.equal("oom", assert(server:run("python", "# memory 160m\n" .. hungry:format(180))).reason)
        client.sleep(1)
        assert.equal("success", assert(server:run("python", "# memory 600m\n" .. hungry:format(400))).status)
        client.sleep(1)
        local id, found = server:begin { language = "python", code = "# memory 300m\nimport time; time.sleep(2)" }, nil
        for _, container in ipairs(sandboxes.of(server:instance())) do
          local info = sandboxes.inspect(container.Id)
          if info.HostConfig.Memory == 300 << 20 then found = info end
        end
        assert.matches(name, found.Name)
        assert.equal(300 << 20, found.HostConfig.MemorySwap)
        assert.equal(250000000, found.HostConfig.NanoCpus)
        server:wait(id)
      end)
    end
  end)
end)

describe("unusual paths", function()
  it("with blanks and letters beyond ASCII work for everything", function()
    local folder = client.folder()
    local place = folder .. "/Über uns 1 'x' $y"
    assert(core.sys.mkdir_p(place, 448))
    client.write_file(place .. "/init.lua", ("history.file = %q"):format(place .. "/my history.db"))
    local server = client.start { config = place .. "/init.lua", state = place, cwd = place }
    assert.equal("1\n", assert(server:run("python", "print(1)")).stdout)
    assert.equal(1, #server:history())
    assert.equal(0, (server:close()))
    assert.is_truthy(core.sys.stat(place .. "/my history.db"))
    client.remove(folder)
  end)

  it("relative ones are taken from where the server starts", function()
    local folder = client.folder()
    client.write_file(folder .. "/my init.lua", "limits.timeout_seconds = 7")
    local server = client.start { config = "my init.lua", cwd = folder }
    local tools = server:wait(server:request("tools/list")).result.tools
    assert.equal(7, tools[1].inputSchema.properties.timeout_seconds.default)
    assert.equal(0, (server:close()))
    client.remove(folder)
  end)

  it("the program works from any folder and through a link", function()
    local folder = client.folder()
    os.execute(("ln -s %s %s"):format(quote(client.program()), quote(folder .. "/a link")))
    local server = client.start { program = folder .. "/a link", cwd = "/" }
    assert.equal("1\n", assert(server:run("python", "print(1)")).stdout)
    assert.equal(0, (server:close()))
    client.remove(folder)
  end)
end)

describe("a standard descriptor that is closed at the start", function()
  -- The policy prints, once files of the server are open: they would have got the descriptor.
  local INIT = 'policy = function() print "WORD" return nil, "as a test" end'
  local CALLS = ('{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}\n'):rep(3):format(1, "initialize",
    '{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}',
    2, "tools/call", '{"name":"run_code","arguments":{"language":"python","code":"1"}}',
    3, "tools/call", '{"name":"get_execution_history","arguments":{}}')
  local folder
  before_each(function() folder = client.folder() end)
  after_each(function() client.remove(folder) end)

  local function lines_of(command)
    local pipe = assert(io.popen(command))
    local text = pipe:read("a")
    pipe:close()
    return text
  end

  for _, closing in ipairs { ">&-", "2>&-", ">&- 2>&-" } do
    it("leads nowhere, and not into a file of the server's: " .. closing, function()
      client.write_file(folder .. "/closed.sh", 'exec "$@" ' .. closing .. "\n")
      local server = client.start { init = INIT, mute = true, before = "sh " .. quote(folder .. "/closed.sh") }
      server:write(CALLS)
      local history = server.state .. "/sandbox-runner/sandbox_history.db"
      assert.is_truthy(client.eventually(30, function() return core.sys.stat(history) end))
      for fd in closing:gsub("^>", "1>"):gmatch "(%d)>" do
        assert.equal("/dev/null\n", lines_of(("readlink /proc/%d/fd/%s"):format(server:pid(), fd)))
      end
      local files = lines_of(("find %s -type f -exec cat {} +"):format(quote(server.state .. "/sandbox-runner")))
      for _, word in ipairs { "WORD", "jsonrpc" } do assert.is_nil(files:find(word, 1, true), word) end
      assert.equal(0, (server:finish()))
      assert.equal(closing == "2>&-", server.answers[2] ~= nil)
      server:close()
    end)
  end

  it("is the end of input when it is the input", function()
    client.write_file(folder .. "/init.lua", INIT)
    local _, kind, status = os.execute(("XDG_STATE_HOME=%s timeout 60 %s --config %s <&-"):format(quote(folder),
      quote(client.program()), quote(folder .. "/init.lua")))
    assert.same({ "exit", 0 }, { kind, status })
  end)
end)

describe("the command line", function()
  local function run(words, program)
    local file = io.popen(("%s %s 2>&1 </dev/null"):format(quote(program or client.program()), words))
    local out = file:read("a")
    local _, _, code = file:close()
    return code, out
  end

  it("has --help and --version", function()
    local code, out = run "--help"
    assert.equal(0, code)
    assert.matches("usage: sandbox%-runner", out)
    code, out = run "--version"
    assert.equal(0, code)
    assert.matches("^sandbox%-runner %S+\n$", out)
  end)

  it("ends with 1 when a command fails inside", function()
    local folder = client.folder()
    local program = client.program()
    local copied = os.execute(("mkdir %s/build && cp %s %s/build/ && cp -R %s/lua %s/"):format(quote(folder),
      quote(program), quote(folder), quote(program:match "^(.-)/build/"), quote(folder)))
    assert.is_true(copied)
    client.write_file(folder .. "/lua/sandbox_runner/get_images.lua", "return { run = function() error 'a slip' end }")
    client.write_file(folder .. "/init.lua", "")
    local code, out = run("--get-images", folder .. "/build/sandbox-runner")
    client.remove(folder)
    assert.equal(1, code)
    assert.matches("a slip", out)
  end)

  it("refuses what it does not know", function()
    for _, words in ipairs { "--nonsense", "serve", "--config" } do
      local code, out = run(words)
      assert.equal(64, code)
      assert.matches("--help", out, 1, true)
    end
  end)
end)
