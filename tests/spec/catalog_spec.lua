local catalog = require "sandbox_runner.catalog"
local settings = require "sandbox_runner.settings"

local function new(text) return catalog.new(assert(settings.parse(text or ""))) end

local function names(list, key)
  local out = {}
  for i, entry in ipairs(list) do out[i] = entry[key or "name"] end
  return out
end

local OWN = [[
tool "b" { description = "d", handler = function() end }
tool "a" { description = "d", handler = function() end }
resource "x:1" { text = "one" }
resource_template "x:{id}" { read = function(uri, variables) return { text = variables.id } end }
resource_template "y://{host}/p/{id}" { read = function() end }
resource_template "z:(.-)%{v}" { read = function() end }
prompt "p" { messages = function() return "hi" end }
]]

describe("the catalog", function()
  it("has the server's own entries, then those of the file, in their order", function()
    local all = new(OWN)
    assert.same({ "run_code", "list_supported_languages", "get_execution_history", "b", "a" }, names(all.tools))
    assert.same({ "history://runs", "x:1" }, names(all.resources, "uri"))
    assert.same({ "history://runs/{id}", "x:{id}", "y://{host}/p/{id}", "z:(.-)%{v}" },
      names(all.templates, "uri_template"))
    assert.same({ "run_program", "fix_failed_run", "p" }, names(all.prompts))
  end)

  it("says nothing of a history that is off", function()
    local all = new "history.enabled = false"
    assert.same({}, names(all.resources))
    assert.same({}, names(all.templates))
    assert.same({ "run_program" }, names(all.prompts))
  end)

  it("finds entries by name", function()
    local all = new(OWN)
    assert.equal(all.tools[4], all:tool "b")
    assert.equal(all.prompts[3], all:prompt "p")
    for _, name in ipairs { "c", "", "__index" } do
      assert.is_nil(all:tool(name))
      assert.is_nil(all:prompt(name))
      assert.is_nil(all:template(name))
    end
  end)

  it("finds what answers for an address: the resource, else the first template", function()
    local all = new(OWN)
    local entry, variables = all:resource "x:1"
    assert.same({ "x:1", {} }, { entry.uri, variables })
    for uri, want in pairs {
      ["x:2"] = { "x:{id}", { id = "2" } }, ["x:a%20b%2Fc"] = { "x:{id}", { id = "a b/c" } },
      ["x:%zz"] = { "x:{id}", { id = "%zz" } }, ["y://h:1/p/ü"] = { "y://{host}/p/{id}", { host = "h:1", id = "ü" } },
      ["z:(.-)%7"] = { "z:(.-)%{v}", { v = "7" } }, ["history://runs/3"] = { "history://runs/{id}", { id = "3" } },
    } do
      entry, variables = all:resource(uri)
      assert.same(want, { entry and entry.uri_template, variables }, uri)
    end
    for _, uri in ipairs { "x:", "x:a/b", "x:a?b", "y://h/q/1", "y://h/p/", "y:///p/1", "z:abc%7", "",
      "history://runs/", "history://runs/1/2", "__index" } do
      assert.is_nil((all:resource(uri)), uri)
    end
  end)

  it("gives a variable all that it can have, the first one first", function()
    local all = new [[resource_template "n:{a}-{b}--{c}" { read = function() end }
      resource_template "m:{a}/{b}.x" { read = function() end }]]
    for uri, want in pairs { ["n:1-2--3"] = { a = "1", b = "2", c = "3" },
      ["n:1-2-3--4"] = { a = "1-2", b = "3", c = "4" }, ["n:1-2--3--4"] = { a = "1-2-", b = "3", c = "4" },
      ["n:1---2--3"] = { a = "1--", b = "2", c = "3" }, ["n:-----%2D"] = { a = "-", b = "-", c = "-" },
      ["n:------%2D"] = { a = "--", b = "-", c = "-" }, ["n:----%2D-"] = false, ["n:1-2--"] = false,
      ["n:-2--3"] = false, ["n:1--2-3"] = false, ["m:a/b.x.x"] = { a = "a", b = "b.x" }, ["m:a/.x"] = false,
      ["m:/b.x"] = false, ["m:a/b/c.x"] = false, ["m:a/b.xx"] = false, ["m:b.x"] = false, ["m:"] = false } do
      local entry, variables = all:resource(uri)
      assert.same(want, entry and variables or false, uri)
    end
  end)

  it("looks an address up in linear time, and takes none that is too long", function()
    local all = new [[resource_template "n:{a}-{b}-{c}-{d}" { read = function() end }
      resource_template "x:{id}" { read = function() end }]]
    assert.truthy((all:resource("x:" .. ("a"):rep(1998))))
    assert.is_nil((all:resource("x:" .. ("a"):rep(1999))))
    for _, uri in ipairs { ("-"):rep(1997) .. "/", ("a-"):rep(998) .. "/", ("-"):rep(4 << 20) .. "/" } do
      uri = "n:" .. uri
      local start = os.clock()
      assert.is_nil((all:resource(uri)))
      assert.is_true(os.clock() - start < 0.005, os.clock() - start)
    end
  end)

  it("tells who listens, until they do not", function()
    local all, heard = new(), {}
    local function listener(name)
      return function(kind, uri) heard[#heard + 1] = ("%s %s %s"):format(name, kind, tostring(uri)) end
    end
    local stop_a, stop_b = all:listen(listener "a"), all:listen(listener "b")
    all:changed "tools"
    all:updated "x:1"
    stop_a()
    stop_a()
    all:changed "prompts"
    stop_b()
    all:changed "resources"
    assert.same({ "a tools nil", "b tools nil", "a updated x:1", "b updated x:1", "b prompts nil" }, heard)
    assert.has_error(function() all:changed "everything" end)
  end)

  it("may be left by a listener while it tells", function()
    local all, heard = new(), 0
    local stop
    stop = all:listen(function() heard = heard + 1 stop() end)
    all:listen(function() heard = heard + 10 end)
    all:changed "tools"
    all:changed "tools"
    assert.equal(21, heard)
  end)

  it("takes the same function twice", function()
    local all, heard = new(), 0
    local function hear() heard = heard + 1 end
    local stop = all:listen(hear)
    all:listen(hear)
    stop()
    all:updated "x"
    assert.equal(1, heard)
  end)

  it("makes a list once for each revision, and anew after a change", function()
    local all, made = new(), 0
    local rules, other = {}, {}
    local function make() made = made + 1 return made end
    assert.equal(1, all:published("tools", "tools/list", rules, make))
    assert.equal(1, all:published("tools", "tools/list", rules, make))
    assert.equal(2, all:published("tools", "tools/list", other, make))
    all:changed "prompts"
    assert.equal(1, all:published("tools", "tools/list", rules, make))
    all:changed "tools"
    assert.equal(3, all:published("tools", "tools/list", rules, make))
  end)
end)
