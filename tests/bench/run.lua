--- make bench: the figures that the project promises, measured here and now.
--
--   sandbox-runner --script tests/bench/run.lua [--quick] [--strict] [--publish] [PART...]
--
-- --quick takes fewer samples; --strict makes a missed bar the exit status 1;
-- --publish writes the table into README.md, and the picture beside this file.
-- A part is a file of this folder that returns function(bench) and adds rows.

local here = arg[0]:match("^(.*)/[^/]*$") or "."
package.path = here .. "/../?.lua;" .. package.path

local core = require "sandbox_runner.core"
local client = require "bench.client"
local machine = require "bench.machine"
local picture = require "bench.picture"
local publish = require "bench.publish"
local report = require "bench.report"
local shell = require "bench.shell"

local EXIT_USAGE = 64 -- EX_USAGE of sysexits.h
local PARTS = { "startup", "warm", "cold", "cpp", "throughput", "pings", "memory", "idle", "tools", "history" }

--- Returns the options and the names of the parts | nil, text.
local function parse(args)
  local options, parts = { quick = false, strict = false, publish = false }, {}
  for _, word in ipairs(args) do
    local name = word:match("^%-%-(%a+)$")
    if name and options[name] ~= nil then
      options[name] = true
    elseif not name and core.sys.stat(("%s/%s.lua"):format(here, word)) then
      parts[#parts + 1] = word
    else
      return nil, ("%s is neither an option (--quick, --strict, --publish) nor a part (%s)"):format(word,
        table.concat(PARTS, ", "))
    end
  end
  if options.publish and (options.quick or #parts > 0) then
    return nil, "--publish goes with neither --quick nor parts: the README gets all figures"
  end
  return options, #parts > 0 and parts or PARTS
end

local function scratch_folder()
  local path = ("%s/sandbox-runner-bench-%s"):format(core.sys.getenv("TMPDIR") or "/tmp", core.sys.random_hex(4))
  assert(core.sys.mkdir_p(path, 448))
  return path
end

local function new_bench(options)
  local facts, address = machine.describe()
  local bench = { machine = facts, address = address, report = report.new(), folder = scratch_folder(),
    program = core.sys.exe() }
  function bench.samples(full, quick) return options.quick and quick or full end
  --- config: path of an init.lua, or nil for the one that the program ships.
  function bench.start_client(config)
    return client.start { program = bench.program, folder = bench.folder, config = config }
  end
  --- The same for the server that these words start.
  function bench.start_other(words)
    return client.start { words = words, folder = bench.folder }
  end
  --- A file with these settings, all others as built in. Returns its path.
  function bench.config(text)
    local path = ("%s/%s.lua"):format(bench.folder, core.sys.random_hex(4))
    local file <close> = assert(io.open(path, "w"))
    file:write(text, "\n")
    return path
  end
  return bench
end

local function measure(bench, parts)
  bench.machine.load_before = machine.load()
  for _, name in ipairs(parts) do
    io.stderr:write("  bench  ", name, "\n")
    require("bench." .. name)(bench)
  end
  bench.machine.load_after = machine.load()
end

local function write_files(bench, options)
  local folder = bench.program:match("^(.*)/")
  assert(bench.report:write(folder .. "/bench.json", bench.machine, { quick = options.quick, version = core.version }))
  local svg = picture.svg(bench.report.rows)
  if svg then
    local file <close> = assert(io.open(folder .. "/bench.svg", "w"))
    file:write(svg)
  end
  if options.publish then print("\n" .. publish.write(here, bench, svg)) end
  return folder
end

local function show(bench, options)
  local m, rows = bench.machine, bench.report
  print(machine.text(m))
  print(("program: sandbox-runner %s; load of the machine %.1f before, %.1f after\n"):format(core.version,
    m.load_before, m.load_after))
  print(rows:table() .. "\n")
  for _, note in ipairs(rows.notes) do print("- " .. note) end
  print(("\nbars missed: %d; all samples are in %s/bench.json"):format(rows:missed(), write_files(bench, options)))
end

local function message(e)
  return type(e) == "string" and e or debug.traceback(tostring(e))
end

local function main(options, parts)
  local bench = new_bench(options)
  local ok, why = xpcall(measure, message, bench, parts)
  -- After an error the folder with the server's log stays, the images' files do not.
  os.execute("rm -rf " .. shell.quote(bench.folder) .. (ok and "" or "/root-*"))
  if not ok then error(why, 0) end
  show(bench, options)
  return options.strict and bench.report:missed() > 0 and 1 or 0
end

local options, parts = parse(arg)
if not options then
  io.stderr:write("bench: ", parts, "\n")
  return EXIT_USAGE
end
local ok, status = xpcall(main, message, options, parts)
if not ok then
  io.stderr:write("bench: ", status, "\n")
  return 1
end
return status
