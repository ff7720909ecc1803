--- The language table: what an entry may say, the two built-in entries, and
-- how a name given by a client finds its entry.
local schema = require "sandbox_runner.schema"

local languages = {}

local WORDS_HINT = 'write the command as a list of words, like { "python", "/scratch/snippet.py" }'

local function words(spec)
  local word = schema.string { pattern = "^[^\0]*$", like = "a string without NUL" }
  return schema.array(word, { min_items = 1, max_items = 256, like = "a list of words",
    hint = WORDS_HINT, optional = spec.optional, doc = spec.doc })
end

local function file_name(spec)
  spec.pattern, spec.max_bytes = "^[%w_][%w_.-]*$", 64
  spec.like = 'a plain file name like "snippet.py", without folders'
  return schema.string(spec)
end

--- A language's own name and its aliases: lower case, no blanks.
languages.name_node = schema.string { pattern = "^[%l%d][%l%d_+#.-]*$", max_bytes = 32,
  like = 'a lower-case name like "python" or "c++"' }

--- The fields of `language "name" { ... }`, but for limits and compile_limits,
-- which settings.lua adds.
languages.fields = {
  description = schema.string { min_bytes = 1, max_bytes = 500,
    doc = "one sentence for the model", hint = "say in one sentence what the language is" },
  aliases = schema.array(languages.name_node, { optional = true, doc = "other names" }),
  images = schema.array(
    schema.string { pattern = "^[%w][%w_.:/@-]*$", like = 'an image name like "gcc:14"',
      max_bytes = 255 },
    { min_items = 1, like = "a list of image names", hint = 'write { "python:3.12-slim" }',
      doc = "images in order of preference; the first present one is used" }),
  file = file_name { doc = "name of the source file in /scratch" },
  run = words { doc = "the command that runs the program" },
  compile = words { optional = true, doc = "the command that builds it, if any" },
  artifact = file_name { optional = true, doc = "the file in /scratch that the compiler writes" },
  env = schema.map(schema.string { pattern = "^[^\0]*$", like = "a string without NUL" }, {
    key = schema.string { pattern = "^[%a_][%w_]*$", like = "a name like LC_ALL" },
    optional = true, doc = "environment variables of the program" }),
  prestart = schema.boolean { default = false,
    doc = "the interpreter may be started before the code is there" },
}

--- The built-in entries, used when init.lua names no language at all.
languages.defaults = {
  { "python", {
    description = "CPython 3 with its standard library (3.12 in the official image)",
    aliases = { "py", "python3", "py3" },
    images = { "python:3.12-slim", "sandbox-runner/python:local" },
    file = "snippet.py",
    run = { "python", "/scratch/snippet.py" },
    env = { PYTHONUNBUFFERED = "1" }, -- what was printed is there when the time is up
    prestart = true,
  } },
  { "cpp", {
    description = "C++17, compiled by GCC 14 with -O2",
    aliases = { "c++", "cxx", "cc", "cplusplus" },
    images = { "gcc:14", "sandbox-runner/gcc:local" },
    file = "snippet.cpp",
    compile = { "g++", "-std=c++17", "-O2", "/scratch/snippet.cpp", "-o", "/scratch/a.out" },
    artifact = "a.out",
    run = { "/scratch/a.out" },
  } },
}

--- Checks an entry against its node (the fields above and the limits).
-- Returns a copy with its name, or nil and a message.
function languages.check(node, name, fields)
  local path = ("language %q"):format(name)
  local entry, message = schema.check(node, fields, path)
  if not entry then return nil, message end
  if entry.compile and not entry.artifact then
    return nil, path .. ": compile needs artifact, the file that the compiler writes into /scratch"
  elseif entry.artifact and not entry.compile then
    return nil, path .. ": artifact needs compile, the command that writes it"
  elseif entry.compile_limits and not entry.compile then
    return nil, path .. ": compile_limits needs compile"
  elseif entry.artifact == entry.file then
    return nil, path .. ": artifact and file must differ"
  end
  entry.name = name
  return entry
end

--- The entry for a name or alias; case and blanks around it do not matter.
-- Returns nil when there is none.
function languages.find(config, name)
  if type(name) ~= "string" then return nil end
  name = schema.trim(name):lower()
  for _, known in ipairs(config.language_order) do
    local entry = config.languages[known]
    if name == known then return entry end
    for _, alias in ipairs(entry.aliases or {}) do
      if name == alias then return entry end
    end
  end
  return nil
end

--- The answer of list_supported_languages: an array of
-- { language, image, description, aliases, image_in_use }. image is the
-- preferred one; find(images), if given, tells which of them a run would use.
function languages.list(config, find)
  local out = {}
  for i, name in ipairs(config.language_order) do
    local entry = config.languages[name]
    local aliases = { table.unpack(entry.aliases or {}) }
    out[i] = { language = name, image = entry.images[1], description = entry.description,
      aliases = #aliases > 0 and aliases or nil, image_in_use = find and find(entry.images) or nil }
  end
  return out
end

--- The known names for a message: "python (also py, python3) and cpp (also c++)".
function languages.names(config)
  local out = {}
  for i, name in ipairs(config.language_order) do
    local aliases = config.languages[name].aliases or {}
    out[i] = #aliases > 0 and ("%s (also %s)"):format(name, table.concat(aliases, ", ")) or name
  end
  return schema.listing(out)
end

local function merged(base, overrides)
  local out = {}
  for key, value in pairs(base) do out[key] = value end
  for key, value in pairs(overrides or {}) do out[key] = value end
  return out
end

--- The limits of an entry's run stage: config.limits with the entry's own on top,
-- and on top of those the ones of a single request, if it has any.
function languages.run_limits(config, entry, own)
  return merged(merged(config.limits, entry.limits), own)
end

--- The limits of an entry's compile stage.
function languages.compile_limits(config, entry)
  return merged(config.compile, entry.compile_limits)
end

return languages
