--- C++: the first time beside the compiler in a container with the same CPUs, and
-- again, from the cache, beside the program alone; the header of everything with and
-- without what the image has precompiled.

local bare = require "bench.bare"
local settings = require "sandbox_runner.settings"
local shell = require "bench.shell"
local stats = require "bench.stats"

local SOURCE = '#include <iostream>\nint main() { std::cout << "hello" << std::endl; } // %d\n'
local EVERYTHING = '#include <bits/stdc++.h>\nint main() { std::cout << "hello" << std::endl; } // %d\n'
local FIRST_PAUSE_MS = 700 -- two sandboxes are to be made ready again
local AGAIN_PAUSE_MS = 450
local FIRST = { name = "C++ first time / docker run of g++ and program", bar = { op = "<=", limit = 1.1 } }
local AGAIN = { name = "C++ again, above the bare program", bar = { op = "<=", limit = 5 } }

-- Inside, the compiler and the program alone are timed as well, in microseconds.
local SCRIPT = [[printf %%s "$0" >snippet.cpp; s=$(date +%%s%%N)
%s && ./a.out || exit 1
echo $((($(date +%%s%%N) - s) / 1000))]]

local function compile_words()
  return settings.defaults().languages.cpp.compile
end

local function docker_command(bench, source)
  local compile = shell.line(compile_words()):gsub("^exec ", "")
  return shell.line({ "docker", "run", "--rm", "--network", "none", "--memory", "1g", "--cpus", "1", "--read-only",
    "--tmpfs", "/tmp:size=256m", "--tmpfs", "/scratch:exec,size=128m", "-w", "/scratch", bench.machine.images.cpp,
    "sh", "-c", SCRIPT:format(compile), source }, { DOCKER_HOST = bench.address })
end

local function first_time(bench, server)
  local ours, theirs, inside = {}, {}, {}
  for i = 0, bench.samples(10, 3) do
    local source = SOURCE:format(i)
    local docker_ms, output
    if shell.has "docker" then
      shell.pause(FIRST_PAUSE_MS)
      docker_ms, output = shell.timed_hello(docker_command(bench, source))
    end
    shell.pause(FIRST_PAUSE_MS)
    local result, ms = server:run("cpp", source)
    if result.cached then error("a new program came from the cache", 0) end
    if i > 0 then
      ours[i], theirs[i], inside[i] = ms, docker_ms, output and tonumber(output:match("(%d+)%s*$")) / 1000
    end
  end
  return ours, theirs, inside
end

local function again(bench, server, command)
  local ours, theirs = {}, {}
  for i = 1, bench.samples(30, 8) do
    shell.pause(AGAIN_PAUSE_MS)
    theirs[i] = command and shell.timed_hello(command)
    local result, ms = server:run("cpp", SOURCE:format(1))
    if not result.cached then error("the same program was compiled again", 0) end
    ours[i] = ms
  end
  return ours, theirs
end

--- Compiles the program in the image's files. Returns the command | nil, text.
local function bare_program(bench)
  local root, why = bare.root(bench, "cpp")
  if not root then return nil, why end
  shell.timed("mkdir -p " .. shell.quote(root .. "/scratch"))
  bare.write(root, "/scratch/snippet.cpp", SOURCE:format(1))
  shell.timed(bare.command(root, compile_words()))
  local command = bare.command(root, { "/scratch/a.out" })
  shell.timed_hello(command)
  return command
end

-- An init.lua in which an empty file stands before all headers: the compiler then takes
-- nothing that is precompiled.
local function plain_config(bench)
  local entry, words = settings.defaults().languages.cpp, {}
  for i, word in ipairs(compile_words()) do words[i] = ("%q"):format(word) end
  table.insert(words, 2, '"-include", "/dev/null"')
  return bench.config(([[language "cpp" { description = "C++", images = { %q }, file = %q, artifact = %q,
    compile = { %s }, run = { %q } }]]):format(bench.machine.images.cpp, entry.file, entry.artifact,
    table.concat(words, ", "), entry.run[1]))
end

local function everything(bench, server)
  local plain = bench.start_client(plain_config(bench))
  local ours, without = {}, {}
  for i = 0, bench.samples(10, 3) do
    for _, side in ipairs { { server, ours }, { plain, without } } do
      shell.pause(FIRST_PAUSE_MS)
      local _, ms = side[1]:run("cpp", EVERYTHING:format(i))
      if i > 0 then side[2][i] = ms end -- the first one stocks the pool
    end
  end
  plain:close()
  return ours, without
end

local function report_everything(report, ours, without)
  report:add { name = "C++ <bits/stdc++.h>, first time", unit = "ms", samples = ours, ours = true }
  report:add { name = "  with nothing precompiled", unit = "ms", samples = without, ours = true }
  report:add_ratio("  precompiled / not", ours, without)
end

local function report_first(report, ours, theirs, inside)
  report:add { name = "C++ <iostream>, first time", unit = "ms", samples = ours, picture = "C++, first time",
    ours = true }
  if #theirs == 0 then return report:skip(FIRST.name, FIRST.bar, "docker is not here") end
  report:add { name = "docker run of g++ and program", unit = "ms", samples = theirs, picture = "docker run g++" }
  report:add { name = "  g++ and program alone, in there", unit = "ms", samples = inside }
  report:add_ratio(FIRST.name, ours, theirs, FIRST.bar)
  report:add_ratio("  / g++ and program alone, in there", ours, inside)
end

local function report_again(report, ours, theirs, why)
  report:add { name = "C++ again, from the cache", unit = "ms", samples = ours, picture = "C++, again", ours = true }
  if why then return report:skip(AGAIN.name, AGAIN.bar, why) end
  report:add { name = "the bare program, no container", unit = "ms", samples = theirs, picture = "bare C++ program" }
  report:add { name = AGAIN.name, unit = "ms", bar = AGAIN.bar, value = stats.median(ours) - stats.median(theirs) }
end

return function(bench)
  local command, why = bare_program(bench)
  local server = bench.start_client()
  report_first(bench.report, first_time(bench, server))
  report_everything(bench.report, everything(bench, server))
  local ours, theirs = again(bench, server, command)
  server:close()
  report_again(bench.report, ours, theirs, why)
  bench.report:note "C++: both compile with one CPU and the settings' flags; ours in one sandbox, and runs in another."
end
