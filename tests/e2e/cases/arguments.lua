-- Arguments of the tools, good and bad. A case is { id and title, arguments =, tool =,
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
    { "G001 a numeric text counts as the number", arguments = timed "5", stdout = T },
    { "G002 an integral float", arguments = timed(5.0), stdout = T },
    { "G003 the ceiling itself", arguments = timed(30), stdout = T },
    { "G004 the least", arguments = timed(1), stdout = T },
    { "G005 null means the default", arguments = timed(NULL), stdout = T },
    { "G006 zero", arguments = timed(0), refused = { "timeout_seconds", "1" } },
    { "G007 negative", arguments = timed(-1), refused = "timeout_seconds" },
    { "G008 above the ceiling", arguments = timed(31), refused = { "timeout_seconds", "30" } },
    { "G009 astronomically large", arguments = timed(1e308), refused = "timeout_seconds" },
    { "G010 a fraction", arguments = timed(1.5), refused = "timeout_seconds" },
    { "G011 a number and a unit", arguments = timed "5s", refused = { "timeout_seconds", "5s" } },
    { "G012 a word", arguments = timed "soon", refused = "timeout_seconds" },
    { "G013 NaN as text", arguments = timed "NaN", refused = "timeout_seconds" },
    { "G014 infinity as text", arguments = timed "inf", refused = "timeout_seconds" },
    { "G015 hexadecimal text", arguments = timed "0x5", refused = "timeout_seconds" },
    { "G016 an empty text", arguments = timed "", refused = "timeout_seconds" },
    { "G017 a boolean", arguments = timed(true), refused = "timeout_seconds" },
    { "G018 a list", arguments = timed(json.array { 5 }), refused = "timeout_seconds" },
    { "G019 an object", arguments = timed {}, refused = "timeout_seconds" },
  },

  { "language",
    { "G020 an alias", arguments = run { language = "py" }, stdout = T, language = "python" },
    { "G021 another alias", arguments = run { language = "c++", code = "int main() {}" }, language = "cpp" },
    { "G022 capital letters", arguments = run { language = "PyThOn" }, stdout = T, language = "python" },
    { "G023 blanks around it", arguments = run { language = " cpp ", code = "int main() {}" }, language = "cpp" },
    { "G024 one that nobody knows", arguments = run { language = "cobol" }, refused = { "cobol", "python", "cpp" } },
    { "G025 a name that every Lua table has", arguments = run { language = "__index" }, refused = { "python", "cpp" } },
    { "G026 a name of the table library", arguments = run { language = "concat" }, refused = { "python", "cpp" } },
    { "G027 a path", arguments = run { language = "../../etc" }, refused = { "python", "cpp" } },
    { "G028 a number", arguments = run { language = 1 }, refused = "language" },
    { "G029 null", arguments = run { language = NULL }, refused = "language" },
    { "G030 an empty text", arguments = run { language = "" }, refused = "language" },
    { "G031 blanks alone", arguments = run { language = "  " }, refused = "language" },
    { "G032 a very long name", arguments = run { language = ("x"):rep(100000) }, refused = "python" },
    { "G033 control characters", arguments = run { language = "a\27[31m\nb" }, refused = "python" },
  },

  { "code",
    { "G034 empty", arguments = run { code = "" }, refused = { "code", "empty" } },
    { "G035 white space alone", arguments = run { code = " \n\t\n" }, refused = { "code", "empty" } },
    { "G036 one byte too long", arguments = run { code = "#" .. ("a"):rep(51200) },
      refused = { "code", "51200", "51201" } },
    { "G037 the limit counts bytes, not characters",
      arguments = run { code = "# " .. ("é"):rep(26000) .. "\nprint('x')" },
      refused = { "code", "51200" } },
    { "G038 300000 letters", arguments = run { code = "#" .. ("a"):rep(300000) }, refused = { "code", "51200" } },
    { "G039 a list of lines", arguments = run { code = json.array { "print(1)", "print(2)" } }, refused = "code" },
    { "G040 a number", arguments = run { code = 42 }, refused = "code" },
    { "G041 null", arguments = run { code = NULL }, refused = "code" },
    { "G042 a NUL character", arguments = run { code = "print('a\0b')" }, refused = { "code", "NUL" } },
    { "G043 a NUL character in the language", arguments = run { language = "python\0" }, refused = "NUL" },
    { "G044 missing", arguments = { language = "python" }, refused = "code" },
  },

  { "the arguments as a whole",
    { "G045 none", arguments = {}, refused = "missing" },
    { "G046 null", arguments = NULL, refused = "missing" },
    { "G047 an argument that nobody knows", arguments = run { timeout = 5 },
      refused = { "timeout", "timeout_seconds" } },
    { "G048 standard input is not dropped without a word", arguments = run { code = "print(input())", stdin = "hello" },
      refused = { "stdin", "standard input" } },
  },
}
