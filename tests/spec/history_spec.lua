local core = require "sandbox_runner.core"
local history = require "sandbox_runner.history"
local settings = require "sandbox_runner.settings"

local null = core.json.null
local folder, lines

local function store_at(file, more)
  local config = assert(settings.parse(("history.file = %q\n%s"):format(file, more or "")))
  return history.open(config, function(text) lines[#lines + 1] = text end)
end

local function request(code)
  return { language = { name = "python" }, code = code or "print(1)", timeout_seconds = 10 }
end

local function answer(changes)
  local out = { status = "success", reason = "exit", exit_code = 0, duration_ms = 1.5, stdout_bytes = 2,
    stderr_bytes = 0, truncated = false, run_id = "r", image = "i" }
  for key, value in pairs(changes or {}) do out[key] = value end
  return out
end

local function write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
end

describe("history", function()
  before_each(function()
    folder, lines = os.tmpname(), {}
    os.remove(folder)
    assert(core.sys.mkdir_p(folder, 448))
  end)
  after_each(function() os.execute(("rm -rf '%s'"):format(folder)) end)

  it("resolves paths: absolute, home, state folder", function()
    assert.equal("/x/y.db", history.resolve("/x/y.db"))
    assert.matches("^/.*/h%.db$", history.resolve("~/h.db"))
    assert.matches("^/.*/sandbox%-runner/h%.db$", history.resolve("h.db"))
  end)

  it("writes times in ISO 8601, UTC", function()
    assert.equal("1970-01-01T00:00:00.000000+00:00", history.timestamp(0))
    assert.equal("2026-11-30T12:34:56.123456+00:00", history.timestamp(1796042096.123456))
    assert.equal("1970-01-01T00:00:02.000000+00:00", history.timestamp(1.9999999))
  end)

  it("keeps rows, newest first, exit_code null where there was none", function()
    local store = store_at(folder .. "/sub/h.db")
    assert.is_nil(store:record(request(), answer()))
    assert.is_nil(store:record(request "x'); DROP TABLE runs;--", answer { status = "timeout",
      reason = "timeout", exit_code = null }))
    local rows = assert(store:recent(20))
    assert.equal(2, #rows)
    assert.equal("x'); DROP TABLE runs;--", rows[1].code_snippet)
    assert.equal(null, rows[1].exit_code)
    assert.equal("timeout", rows[1].status)
    assert.equal(0, rows[2].exit_code)
    assert.matches("^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%d%.%d%d%d%d%d%d%+00:00$", rows[1].timestamp)
    assert.same({ 2, 0, 1.5 }, { rows[2].stdout_size, rows[2].stderr_size, rows[2].duration_ms })
    assert.equal(1, #store:recent(1))
    store:close()
    assert.equal(2, #store:recent(20))
    assert.same({}, lines)
  end)

  it("finds one run by its row and by its id", function()
    local store = store_at(folder .. "/h.db")
    for i = 1, 3 do
      store:record(request("print(" .. i .. ")"), answer { run_id = ("00000000000000a%d"):format(i), cpu_ms = i / 2 })
    end
    local row = assert(store:find "2")
    assert.same({ 2, "print(2)", "00000000000000a2", 1.0, "i", 10, false },
      { row.id, row.code_snippet, row.run_id, row.cpu_ms, row.image, row.timeout_seconds, row.truncated })
    assert.equal(3, store:find("00000000000000a3").id)
    store:record(request(), answer { run_id = "1234567890123456" }) -- no letter in it, as it may be
    assert.equal(4, store:find("1234567890123456").id)
    for _, id in ipairs { "5", "0", "-1", "02", "2.0", "", "'; DROP TABLE runs;--", "9999999999999999", "a2" } do
      assert.is_false(store:find(id))
    end
    local off = store_at(folder .. "/h.db", "history.enabled = false")
    local found, text = off:find "2"
    assert.is_nil(found)
    assert.matches("switched off", text)
  end)

  it("cuts the preview by characters", function()
    local store = store_at(folder .. "/h.db")
    store:record(request(("é"):rep(600)), answer())
    assert.equal(("é"):rep(500), store:recent(1)[1].code_snippet)
  end)

  it("keeps max_rows at most", function()
    local store = store_at(folder .. "/h.db", "history.max_rows = 5")
    for _ = 1, 64 do store:record(request(), answer()) end
    assert.equal(5, #store:recent(100))
  end)

  it("sets a damaged file aside and goes on with a new one", function()
    write(folder .. "/h.db", ("random bytes "):rep(400))
    local store = store_at(folder .. "/h.db")
    assert.is_nil(store:record(request(), answer()))
    assert.equal(1, #store:recent(5))
    assert.equal(1, #lines)
    assert.matches("was damaged.*kept as .*/h%.db%.corrupt", lines[1])
  end)

  it("takes an empty file as new", function()
    write(folder .. "/h.db", "")
    local store = store_at(folder .. "/h.db")
    assert.is_nil(store:record(request(), answer()))
    assert.same({}, lines)
  end)

  it("that cannot be opened warns each run, logs once, and heals", function()
    write(folder .. "/blocker", "a file where a folder should be")
    local now = 0
    local real = core.loop.now_ms
    core.loop.now_ms = function() return now end
    finally(function() core.loop.now_ms = real end)
    local store = store_at(folder .. "/blocker/h.db")
    for _ = 1, 3 do
      assert.matches("^This run was not recorded in the history: .*blocker", store:record(request(), answer()))
    end
    local rows, text = store:recent(5)
    assert.is_nil(rows)
    assert.matches("^The history is off: .*blocker", text)
    assert.equal(1, #lines)
    os.remove(folder .. "/blocker")
    assert.is_string(store:record(request(), answer()))
    now = 6000
    assert.is_nil(store:record(request(), answer()))
    assert.equal(1, #store:recent(5))
    assert.equal("history is on again", lines[2])
  end)

  it("that is switched off does not warn, and says so when asked", function()
    local store = store_at(folder .. "/h.db", "history.enabled = false")
    assert.is_nil(store:record(request(), answer()))
    local rows, text = store:recent(5)
    assert.is_nil(rows)
    assert.matches("switched off in init.lua", text)
    assert.is_nil(io.open(folder .. "/h.db"))
  end)

  it("opens nothing before its first use", function()
    store_at(folder .. "/h.db")
    assert.is_nil(io.open(folder .. "/h.db"))
  end)

  it("begins a new file when the old one was removed or replaced under it", function()
    local path = folder .. "/h.db"
    local store = store_at(path)
    assert.is_nil(store:record(request(), answer()))
    for _, replace in ipairs { function() end, function() write(path, "") end } do
      for _, suffix in ipairs { "", "-wal", "-shm" } do os.remove(path .. suffix) end
      replace()
      assert.is_nil(store:record(request(), answer()))
      local other = store_at(path)
      assert.equal(1, #assert(other:recent(10))) -- what is on disk
      other:close()
    end
    store:close()
  end)
end)
