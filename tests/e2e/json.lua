--- A strict JSON reader and a writer, apart from the ones under test.
--
-- What a client of any make would choke on is an error here: bad UTF-8, raw
-- control characters, lone surrogates, duplicate names, NaN, trailing bytes.
-- Strings may hold U+0000. Objects and arrays become tables (arrays have the
-- metatable json.array_mt), null becomes json.null.
local json = {}

json.null = setmetatable({}, { __tostring = function() return "null" end })
json.array_mt = {}

--- Marks a table as an array, for an empty one or in place of a guess.
function json.array(t) return setmetatable(t or {}, json.array_mt) end

local function fail(text, at, what)
  error({ message = ("%s at byte %d: %q"):format(what, at, text:sub(math.max(1, at - 20), at + 20)) }, 0)
end

local ESCAPES = { ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }

local function skip(text, at) return text:match("^[ \t\r\n]*()", at) end

local function read_unicode(text, at)
  local code = tonumber(text:match("^%x%x%x%x", at) or fail(text, at, "bad \\u escape"), 16)
  if code >= 0xDC00 and code <= 0xDFFF then fail(text, at, "lone surrogate") end
  if code < 0xD800 or code > 0xDBFF then return utf8.char(code), at + 4 end
  local low = tonumber(text:match("^\\u([dD][c-fC-F]%x%x)", at + 4) or fail(text, at, "lone surrogate"), 16)
  return utf8.char(0x10000 + (code - 0xD800) * 0x400 + low - 0xDC00), at + 10
end

local function read_string(text, at)
  local parts = {}
  at = at + 1
  while true do
    local stop = text:find('["\\%c]', at) or fail(text, at, "unfinished string")
    parts[#parts + 1] = text:sub(at, stop - 1)
    local c = text:sub(stop, stop)
    if c == '"' then return table.concat(parts), stop + 1 end
    if c ~= "\\" then fail(text, stop, "raw control character") end
    local e = text:sub(stop + 1, stop + 1)
    if e == "u" then
      parts[#parts + 1], at = read_unicode(text, stop + 2)
    else
      parts[#parts + 1] = ESCAPES[e] or fail(text, stop, "bad escape")
      at = stop + 2
    end
  end
end

local function read_number(text, at)
  local token = text:match("^-?%d+%.?%d*[eE]?[+-]?%d*", at) or fail(text, at, "no value")
  if token:find("^-?0%d") or token:find("%.$") or token:find("%.[eE]") or token:find("[eE+-]$") then
    fail(text, at, "bad number")
  end
  return tonumber(token), at + #token
end

local read_value

local function read_array(text, at)
  local out = json.array()
  at = skip(text, at + 1)
  if text:sub(at, at) == "]" then return out, at + 1 end
  while true do
    out[#out + 1], at = read_value(text, at)
    at = skip(text, at)
    local c = text:sub(at, at)
    if c == "]" then return out, at + 1 end
    if c ~= "," then fail(text, at, "comma or ] expected") end
    at = at + 1
  end
end

local function read_object(text, at)
  local out = {}
  at = skip(text, at + 1)
  if text:sub(at, at) == "}" then return out, at + 1 end
  while true do
    at = skip(text, at)
    if text:sub(at, at) ~= '"' then fail(text, at, "name expected") end
    local name
    name, at = read_string(text, at)
    if out[name] ~= nil then fail(text, at, "duplicate name") end
    at = skip(text, at)
    if text:sub(at, at) ~= ":" then fail(text, at, "colon expected") end
    out[name], at = read_value(text, at + 1)
    at = skip(text, at)
    local c = text:sub(at, at)
    if c == "}" then return out, at + 1 end
    if c ~= "," then fail(text, at, "comma or } expected") end
    at = at + 1
  end
end

local WORDS = { { "true", true }, { "false", false }, { "null", json.null } }

function read_value(text, at)
  at = skip(text, at)
  local c = text:sub(at, at)
  if c == '"' then return read_string(text, at) end
  if c == "{" then return read_object(text, at) end
  if c == "[" then return read_array(text, at) end
  for _, word in ipairs(WORDS) do
    if text:sub(at, at + #word[1] - 1) == word[1] then return word[2], at + #word[1] end
  end
  return read_number(text, at)
end

--- Reads one JSON text. Returns the value, or nil and a text.
function json.decode(text)
  local valid, bad = utf8.len(text)
  if not valid then return nil, ("bad UTF-8 at byte %d"):format(bad) end
  local ok, value, at = pcall(read_value, text, 1)
  if not ok then return nil, type(value) == "table" and value.message or tostring(value) end
  if skip(text, at) <= #text then return nil, ("trailing bytes at %d"):format(at) end
  return value
end

local function quote(s)
  return '"' .. s:gsub('[%c"\\]', function(c)
    return ("\\u%04x"):format(c:byte())
  end) .. '"'
end

--- Writes a value; names of objects are sorted. A table is an array when it has
-- a first element or json.array_mt.
function json.encode(value)
  if value == json.null then return "null" end
  if type(value) == "string" then return quote(value) end
  if type(value) ~= "table" then return tostring(value) end
  local parts = {}
  if getmetatable(value) == json.array_mt or value[1] ~= nil then
    for i, element in ipairs(value) do parts[i] = json.encode(element) end
    return "[" .. table.concat(parts, ",") .. "]"
  end
  for name, element in pairs(value) do parts[#parts + 1] = quote(name) .. ":" .. json.encode(element) end
  table.sort(parts)
  return "{" .. table.concat(parts, ",") .. "}"
end

return json
