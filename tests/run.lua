-- Runs busted inside this program: build/sandbox-runner --script tests/run.lua [OPTION...] FILE|FOLDER...
--
-- The specs see sandbox_runner.core as the server does, and tests/ on the path.

local here = arg[0]:match("^(.*)/[^/]*$") or "."

-- Where Debian keeps the modules of Lua 5.4; the program's own path comes first.
package.path = table.concat({ package.path, here .. "/?.lua", "/usr/share/lua/5.4/?.lua",
  "/usr/share/lua/5.4/?/init.lua" }, ";")

-- busted ends with the number of failures, of which 256 would be taken for none.
local exit = os.exit
os.exit = function(code, close) -- luacheck: ignore 122
  if math.type(code) == "integer" and code ~= 0 then code = 1 end
  exit(code, close)
end

local ok, runner = pcall(require, "busted.runner")
if not ok then
  io.stderr:write("busted is missing: apt-get install lua-busted\n")
  os.exit(1)
end
runner { standalone = false }
