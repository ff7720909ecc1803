-- Plays a session against the real server on stdio and prints it for people:
-- build/sandbox-runner --script tests/e2e/demo.lua [PROGRAM]. Status 1 when an
-- answer is not what it should be.

local here = arg[0]:match("^(.*)/[^/]*$") or "."
package.path = here .. "/../?.lua;" .. package.path

local core = require "sandbox_runner.core"
local client = require "e2e.client"

local json = client.json
local program = arg[1] or client.program()

local LONGEST = 300 -- characters of a text that are shown
local COLOURS = core.sys.isatty(1)

local failed = {}

local function colour(code, text)
  return COLOURS and ("\27[%sm%s\27[0m"):format(code, text) or text
end

local function say(text, ...) io.stdout:write(text:format(...), "\n") end

-- As a line of JSON would have it, or with its own line ends when it has several.
local function show_text(text, indent)
  text = core.text.repair(text)
  local rest = utf8.len(text) - LONGEST
  if rest > 0 then
    local cut = text:find("\n", 1, true) and "\n" or " "
    text = core.text.prefix(text, LONGEST):gsub("%s*$", "") .. ("%s... (%d more characters)"):format(cut, rest)
  end
  if not text:find("\n", 1, true) then return json.encode(text):gsub("\\u0022", '\\"'):gsub("\\u005c", "\\\\") end
  local lines = {}
  for line in (text:gsub("\n$", "") .. "\n"):gmatch("([^\n]*)\n") do
    lines[#lines + 1] = indent .. "    | " .. core.text.visible(line)
  end
  return "\n" .. table.concat(lines, "\n")
end

local show

local function show_list(list, indent)
  if #list == 0 then return "[]" end
  local parts = {}
  for i, element in ipairs(list) do
    parts[i] = indent .. "  - " .. show(element, indent .. "  "):gsub("^\n%s*", "")
  end
  return "\n" .. table.concat(parts, "\n")
end

-- Indented, names sorted, strings of several lines as a block.
function show(value, indent)
  if type(value) == "string" then return show_text(value, indent) end
  if type(value) ~= "table" or value == json.null then return tostring(value) end
  if getmetatable(value) == json.array_mt or value[1] ~= nil then return show_list(value, indent) end
  local names = {}
  for name in pairs(value) do names[#names + 1] = name end
  table.sort(names)
  if #names == 0 then return "{}" end
  local parts = {}
  for i, name in ipairs(names) do
    local text = show(value[name], indent .. "  ")
    parts[i] = ("%s  %s:%s%s"):format(indent, name, text:find("^\n") and "" or " ", text)
  end
  return "\n" .. table.concat(parts, "\n")
end

local function expect(what, got, wanted)
  if got == wanted then return end
  failed[#failed + 1] = ("%s: %s, expected %s"):format(what, tostring(got), tostring(wanted))
end

local server

-- One request and its answer, printed. The text part of a tool's answer is its
-- structured part once more, so it is left out. Returns the result.
local function play(title, method, params, shown)
  say("\n%s", colour("1", "--- " .. title))
  say("%s %s%s", colour("36", ">>>"), method, params and show(params, "") or "")
  local started = client.now_ms()
  local answer = server:wait(server:request(method, params))
  local took = client.now_ms() - started
  local result = answer.result or answer.error
  say("%s %.0f ms%s", colour("32", "<<<"), took, show(shown and shown(result) or result, ""))
  expect(title, answer.error, nil)
  return answer.result or {}
end

local function structured(result) return result.structuredContent or result end

local function call(title, name, arguments)
  return structured(play(title, "tools/call", { name = name, arguments = arguments }, structured))
end

local function tool_names(result)
  local tools = json.array()
  for i, tool in ipairs(result.tools) do
    tools[i] = { name = tool.name, description = tool.description, arguments = tool.inputSchema.properties }
  end
  return { tools = tools }
end

local PYTHON = [[
import sys, platform
squares = [n * n for n in range(10)]
print("squares:", squares)
print("sum:", sum(squares))
print("Python", platform.python_version(), file=sys.stderr)
]]

-- The README's program and what it says about it.
local function readme_example()
  local text = client.read_file(here .. "/../../README.md") or ""
  local code = text:match("```cpp\n(.-)```")
  return assert(code, "README.md has no C++ program"), text:match("It prints `([^`]+)`")
end

local BROKEN = [[
#include <iostream>
int main() {
    std::cout << "no semicolon" << std::endl
}
]]

local ENDLESS = [[
import time
print("working ...", flush=True)
while True:
    time.sleep(0.1)
]]

local function session()
  say("A session with %s on stdin and stdout.", program)
  server = client.start { program = program, mute = true, seconds = 120 }
  local hello = play("The handshake", "initialize", { protocolVersion = "2025-11-25", capabilities = {},
    clientInfo = { name = "demo", version = "1" } })
  expect("protocol version", hello.protocolVersion, "2025-11-25")
  server:notify("notifications/initialized")
  expect("number of tools", #play("What the server can do", "tools/list", nil, tool_names).tools, 3)

  local result = call("A Python program", "run_code", { language = "python", code = PYTHON })
  expect("Python", result.stdout, "squares: [0, 1, 4, 9, 16, 25, 36, 49, 64, 81]\nsum: 285\n")
  local code, printed = readme_example()
  result = call("The README's C++ program", "run_code", { language = "cpp", code = code })
  expect("C++", result.status, "success")
  if printed then expect("C++", tostring(result.stdout):match("^(.-)%s*$"), printed) end
  result = call("A program that does not compile", "run_code", { language = "cpp", code = BROKEN })
  expect("compile error", result.status, "compile_error")
  result = call("A program that does not end", "run_code",
    { language = "python", code = ENDLESS, timeout_seconds = 2 })
  expect("time-out", result.status, "timeout")
  expect("what it printed until then", result.stdout, "working ...\n")
  result = call("The record of these runs", "get_execution_history", { limit = 10 })
  expect("rows", result.result and #result.result, 4)

  local status, took = server:close()
  say("\nThe input ends, and so does the server: status %d after %.0f ms.", status, took)
  expect("exit status", status, 0)
end

local ok, why = pcall(session)
if not ok then failed[#failed + 1] = tostring(why) end
for _, text in ipairs(failed) do say("%s %s", colour("31", "WRONG"), text) end
say("%s", #failed == 0 and colour("32", "All went well.") or "Something went wrong: see above.")
return #failed == 0 and 0 or 1
