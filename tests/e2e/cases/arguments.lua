-- Arguments of the tools, good and bad. A case is { title, arguments =, tool =,
-- and what is expected }: see check.lua; refused = texts that the refusal holds.
local json = require "e2e.json"

local NULL = json.null

local function run(changes)
  local arguments = { language = "python", code = "print('t')" }
  for name, value in pairs(changes) do arguments[name] = value end
  return arguments
end

local function timed(value) return run { timeout_seconds = value } end
local T = "t\n"

return {
  { "timeout_seconds",
    { "a numeric text counts as the number", arguments = timed "5", stdout = T },
    { "an integral float", arguments = timed(5.0), stdout = T },
    { "the ceiling itself", arguments = timed(30), stdout = T },
    { "the least", arguments = timed(1), stdout = T },
    { "null means the default", arguments = timed(NULL), stdout = T },
    { "zero", arguments = timed(0), refused = { "timeout_seconds", "1" } },
    { "negative", arguments = timed(-1), refused = "timeout_seconds" },
    { "above the ceiling", arguments = timed(31), refused = { "timeout_seconds", "30" } },
    { "astronomically large", arguments = timed(1e308), refused = "timeout_seconds" },
    { "a fraction", arguments = timed(1.5), refused = "timeout_seconds" },
    { "a number and a unit", arguments = timed "5s", refused = { "timeout_seconds", "5s" } },
    { "a word", arguments = timed "soon", refused = "timeout_seconds" },
    { "NaN as text", arguments = timed "NaN", refused = "timeout_seconds" },
    { "infinity as text", arguments = timed "inf", refused = "timeout_seconds" },
    { "hexadecimal text", arguments = timed "0x5", refused = "timeout_seconds" },
    { "an empty text", arguments = timed "", refused = "timeout_seconds" },
    { "a boolean", arguments = timed(true), refused = "timeout_seconds" },
    { "a list", arguments = timed(json.array { 5 }), refused = "timeout_seconds" },
    { "an object", arguments = timed {}, refused = "timeout_seconds" },
  },

  { "language",
    { "an alias", arguments = run { language = "py" }, stdout = T, language = "python" },
    { "another alias", arguments = run { language = "c++", code = "int main() {}" }, language = "cpp" },
    { "capital letters", arguments = run { language = "PyThOn" }, stdout = T, language = "python" },
    { "blanks around it", arguments = run { language = " cpp ", code = "int main() {}" }, language = "cpp" },
    { "one that nobody knows", arguments = run { language = "cobol" }, refused = { "cobol", "python", "cpp" } },
    { "a name that every Lua table has", arguments = run { language = "__index" }, refused = { "python", "cpp" } },
    { "a name of the table library", arguments = run { language = "concat" }, refused = { "python", "cpp" } },
    { "a path", arguments = run { language = "../../etc" }, refused = { "python", "cpp" } },
    { "a number", arguments = run { language = 1 }, refused = "language" },
    { "null", arguments = run { language = NULL }, refused = "language" },
    { "an empty text", arguments = run { language = "" }, refused = "language" },
    { "blanks alone", arguments = run { language = "  " }, refused = "language" },
    { "a very long name", arguments = run { language = ("x"):rep(100000) }, refused = "python" },
    { "control characters", arguments = run { language = "a\27[31m\nb" }, refused = "python" },
  },

  { "code",
    { "empty", arguments = run { code = "" }, refused = { "code", "empty" } },
    { "white space alone", arguments = run { code = " \n\t\n" }, refused = { "code", "empty" } },
    { "one byte too long", arguments = run { code = "#" .. ("a"):rep(51200) },
      refused = { "code", "51200", "51201" } },
    { "the limit counts bytes, not characters", arguments = run { code = "# " .. ("é"):rep(26000) .. "\nprint('x')" },
      refused = { "code", "51200" } },
    { "300000 letters", arguments = run { code = "#" .. ("a"):rep(300000) }, refused = { "code", "51200" } },
    { "a list of lines", arguments = run { code = json.array { "print(1)", "print(2)" } }, refused = "code" },
    { "a number", arguments = run { code = 42 }, refused = "code" },
    { "null", arguments = run { code = NULL }, refused = "code" },
    { "a NUL character", arguments = run { code = "print('a\0b')" }, refused = { "code", "NUL" } },
    { "a NUL character in the language", arguments = run { language = "python\0" }, refused = "NUL" },
    { "missing", arguments = { language = "python" }, refused = "code" },
  },

  { "the arguments as a whole",
    { "none", arguments = {}, refused = "missing" },
    { "null", arguments = NULL, refused = "missing" },
    { "an argument that nobody knows", arguments = run { timeout = 5 }, refused = { "timeout", "timeout_seconds" } },
    { "standard input is not dropped without a word", arguments = run { code = "print(input())", stdin = "hello" },
      refused = { "stdin", "standard input" } },
  },
}
