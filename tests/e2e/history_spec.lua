-- The record of runs, over the protocol: what is in it, which files it takes,
-- and that trouble with it never costs a result.
local client = require "e2e.client"
local core = require "sandbox_runner.core"

local json = client.json
local quote = client.quote

-- The table as the first SandboxRunner, in Python, made it.
local ORIGINAL = [[
CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    timestamp REAL NOT NULL,
    language TEXT NOT NULL,
    code_snippet TEXT NOT NULL,
    status TEXT NOT NULL,
    exit_code INTEGER,
    duration_ms REAL NOT NULL,
    stdout_size INTEGER NOT NULL DEFAULT 0,
    stderr_size INTEGER NOT NULL DEFAULT 0
);
INSERT INTO runs (timestamp, language, code_snippet, status, exit_code, duration_ms, stdout_size, stderr_size)
VALUES (1700000000.25, 'python', 'print("old")', 'success', 0, 123.5, 4, 0),
       (1700000001.5, 'cpp', 'int main() {}', 'timeout', NULL, 10000.0, 0, 0);
]]

local folder, path

local function sql(text)
  local file = assert(io.popen(("sqlite3 %s %s 2>&1"):format(quote(path), quote(text))))
  local out = file:read("a")
  assert(file:close(), out)
  return (out:gsub("\n$", ""))
end

local function init_with(more)
  return ("history.file = %q\n%s"):format(path, more or "")
end

-- Calls fn(server) with a server on this spec's history file.
local function with(options, fn)
  options.init = options.init or init_with()
  local server = client.start(options)
  local ok, why = pcall(fn, server)
  local status = server:close()
  if not ok then error(why, 0) end
  assert.equal(0, status)
end

local function warning_of(result) return result.warnings and result.warnings[1] end

describe("history", function()
  before_each(function()
    folder = client.folder()
    path = folder .. "/history.db"
  end)
  after_each(function() client.remove(folder) end)

  it("has the four statuses, and no row for a call that was refused", function()
    with({}, function(server)
      local function status_of(...) return assert(server:run(...)).status end
      assert.equal("success", status_of("python", "print(1)"))
      assert.equal("error", status_of("python", "raise SystemExit(3)"))
      assert.equal("timeout", status_of("python", "import time; time.sleep(9)", 1))
      assert.equal("compile_error", status_of("cpp", "int main() { return x; }"))
      assert.is_true(server:call("run_code", { language = "cobol", code = "x" }).isError)
      local rows = server:history(100)
      local seen = {}
      for i, row in ipairs(rows) do
        assert.is_true(row.exit_code ~= nil, "exit_code is absent")
        seen[i] = { row.status, row.exit_code }
      end
      assert.same({ { "compile_error", 1 }, { "timeout", json.null }, { "error", 3 }, { "success", 0 } }, seen)
    end)
    -- The same in the file, for those who read it themselves.
    assert.equal("success,0 error,3 timeout,NULL compile_error,1",
      (sql("SELECT status || ',' || ifnull(exit_code, 'NULL') FROM runs ORDER BY id"):gsub("\n", " ")))
  end)

  it("has a row for each run, newest first, and none for what was refused", function()
    with({}, function(server)
      server:run("python", "print('héllo')")
      server:run("python", "import sys; print('x', file=sys.stderr); sys.exit(3)")
      server:run("python", "import time; time.sleep(9)", 1)
      server:run("cpp", "int main() { x }")
      server:run("python", "import os; os.abort()")
      assert.is_nil((server:run("cobol", "x")))
      assert.is_nil((server:run("python", "")))
      local rows = server:history()
      local said = {}
      for i, row in ipairs(rows) do
        said[i] = ("%s %s %s"):format(row.language, row.status, tostring(row.exit_code))
        assert.matches("^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%d%.%d+%+00:00$", row.timestamp)
        assert.is_true(row.duration_ms >= 0)
      end
      assert.same({ "python error 134", "cpp compile_error 1", "python timeout null", "python error 3",
        "python success 0" }, said)
      assert.is_true(rows[1].id > rows[5].id and rows[1].timestamp > rows[5].timestamp)
      assert.same({ 7, 0 }, { rows[5].stdout_size, rows[5].stderr_size })
      assert.same({ 0, 2 }, { rows[4].stdout_size, rows[4].stderr_size })
      assert.same({ "SIGABRT", "signal" }, { rows[1].signal, rows[1].reason })
    end)
  end)

  it("says python when py was asked for", function()
    with({}, function(server)
      server:run("py", "pass")
      assert.equal("python", server:history()[1].language)
    end)
  end)

  it("keeps quotes and SQL word for word", function()
    local code = "print(\"x'); DROP TABLE runs;--\")\n# \\ % ? :a @b $c"
    with({}, function(server)
      server:run("python", code)
      assert.equal(code, server:history()[1].code_snippet)
    end)
    assert.equal("1", sql "SELECT count(*) FROM runs")
  end)

  it("cuts the code at 500 characters, not bytes", function()
    for _, letter in ipairs { "é", "漢", "😀" } do
      with({}, function(server)
        server:run("python", "#" .. letter:rep(700))
        local row = server:history()[1]
        assert.equal("#" .. letter:rep(499), row.code_snippet)
      end)
    end
  end)

  it("survives the server", function()
    with({}, function(server) server:run("python", "print(1)") end)
    with({}, function(server) assert.equal("print(1)", server:history()[1].code_snippet) end)
    assert.equal("wal", sql "PRAGMA journal_mode")
  end)

  it("is by default in the user's state folder, for nobody else to read", function()
    local server = client.start()
    server:run("python", "print(1)")
    local state = server.state .. "/sandbox-runner"
    local file = core.sys.stat(state .. "/sandbox_history.db")
    assert.is_truthy(file)
    assert.equal(0, file.mode & 63, "others may read it")
    assert.equal(0, core.sys.stat(state).mode & 63)
    assert.equal(0, (server:close()))
  end)

  it("opens what the original wrote and keeps its rows", function()
    sql(ORIGINAL)
    with({}, function(server)
      local rows = server:history()
      assert.equal(2, #rows)
      assert.same({ 2, "cpp", "timeout", json.null, 10000 },
        { rows[1].id, rows[1].language, rows[1].status, rows[1].exit_code, rows[1].duration_ms })
      assert.same({ 1, 'print("old")', 0, 4 },
        { rows[2].id, rows[2].code_snippet, rows[2].exit_code, rows[2].stdout_size })
      assert.equal("2023-11-14T22:13:20.250000+00:00", rows[2].timestamp)
      server:run("python", "print('new')")
      assert.equal(3, #server:history())
    end)
    assert.equal("print(\"old\")|success\nint main() {}|timeout\nprint('new')|success",
      sql "SELECT code_snippet, status FROM runs ORDER BY id")
    -- What the original itself writes still fits.
    sql "INSERT INTO runs (timestamp, language, code_snippet, status, duration_ms) VALUES (1, 'cpp', 'x', 'error', 2)"
    with({}, function(server) assert.equal(4, #server:history()) end)
  end)

  it("is shared by two servers", function()
    local one, two = client.start { init = init_with() }, client.start { init = init_with() }
    for i = 1, 10 do
      one:post("run_code", { language = "python", code = "print('one')" .. (" "):rep(i) })
      two:post("run_code", { language = "python", code = "print('two')" .. (" "):rep(i) })
    end
    for id = 2, 11 do
      for _, server in ipairs { one, two } do
        assert.is_nil(warning_of(server:wait(id).result.structuredContent))
      end
    end
    assert.equal(20, #one:history(100))
    assert.equal(20, #two:history(100))
    assert.equal(0, (one:close()))
    assert.equal(0, (two:close()))
  end)

  it("moves a damaged file aside, says so, and begins a new one", function()
    local noise = {}
    for i = 1, 4096 do noise[i] = string.char(i * 7919 % 251) end
    client.write_file(path, table.concat(noise))
    with({}, function(server)
      assert.equal("1\n", assert(server:run("python", "print(1)")).stdout)
      assert.equal(1, #server:history())
      assert.matches("damaged", server:stderr())
      local kept = 0
      for _, name in ipairs(core.sys.list(folder)) do
        if name:find("corrupt", 1, true) then
          assert.is_true(table.concat(noise) == client.read_file(folder .. "/" .. name), name .. " is not the file")
          kept = kept + 1
        end
      end
      assert.equal(1, kept)
    end)
  end)

  it("uses an empty file as a new one", function()
    client.write_file(path, "")
    with({}, function(server)
      assert.is_nil(warning_of(assert(server:run("python", "print(1)"))))
      assert.equal(1, #server:history())
    end)
    assert.same({ "history.db" }, core.sys.list(folder))
  end)

  it("leaves a locked file alone, answers with a warning, and goes on when it is free", function()
    sql(ORIGINAL)
    local lock = assert(io.popen(("sqlite3 %s >%s"):format(quote(path), quote(path .. ".mark")), "w"))
    lock:write("BEGIN EXCLUSIVE;\n.print locked\n")
    lock:flush()
    assert.is_true(client.eventually(30, function() return client.read_file(path .. ".mark") == "locked\n" end))
    with({}, function(server)
      local result = assert(server:run("python", "print('all the same')"))
      assert.equal("all the same\n", result.stdout)
      assert.matches("not recorded", warning_of(result))
      lock:write("ROLLBACK;\n")
      lock:close()
      assert.equal("2", sql "SELECT count(*) FROM runs")
      client.sleep(5.2) -- then the file is tried again
      assert.is_nil(warning_of(assert(server:run("python", "print('recorded')"))))
      assert.equal(3, #server:history())
    end)
    assert.is_nil(client.read_file(path .. ".damaged"))
  end)

  it("leaves a database of somebody else alone", function()
    sql "CREATE TABLE bookmarks (url TEXT); INSERT INTO bookmarks VALUES ('x')"
    with({}, function(server)
      assert.matches("not recorded", warning_of(assert(server:run("python", "print(1)"))))
      local rows, text = server:history()
      assert.is_nil(rows)
      assert.matches("off", text)
    end)
    assert.equal("CREATE TABLE bookmarks (url TEXT);", sql ".schema")
  end)

  it("that is a folder, or below a file, costs a warning", function()
    assert(core.sys.mkdir_p(path, 448))
    with({}, function(server) assert.matches("not recorded", warning_of(assert(server:run("python", "1")))) end)
    client.write_file(folder .. "/plain", "x")
    with({ init = ("history.file = %q"):format(folder .. "/plain/history.db") }, function(server)
      local result = assert(server:run("python", "print('fine')"))
      assert.equal("fine\n", result.stdout)
      assert.matches("not recorded", warning_of(result))
    end)
  end)

  it("that cannot be written costs a warning, once in the log", function()
    if core.sys.uid() ~= 0 then
      os.execute("chmod 500 " .. quote(folder))
    else
      path = "/proc/history.db" -- root writes anywhere else
    end
    with({}, function(server)
      for _ = 1, 3 do
        local result = assert(server:run("python", "print('fine')"))
        assert.equal("fine\n", result.stdout)
        assert.matches("not recorded", warning_of(result))
      end
      local _, count = server:stderr():gsub("history is off", "")
      assert.equal(1, count)
      local _, text = server:history()
      assert.matches("off", text)
      assert.is_falsy(server:call("list_supported_languages", {}).isError)
    end)
    os.execute("chmod 700 " .. quote(folder))
  end)

  it("on a full disk costs a warning", function()
    if core.sys.uid() ~= 0 then return pending "needs root to mount a small tmpfs" end
    local disk = folder .. "/disk"
    assert(core.sys.mkdir_p(disk, 448))
    if not os.execute(("mount -t tmpfs -o size=128k tmpfs %s 2>/dev/null"):format(quote(disk))) then
      return pending "mounting a tmpfs is not allowed here"
    end
    local ok, why = pcall(function()
      path = disk .. "/history.db"
      with({}, function(server)
        assert.is_nil(warning_of(assert(server:run("python", "print(1)"))))
        os.execute(("cat /dev/zero >%s 2>/dev/null"):format(quote(disk .. "/fill")))
        local warned
        for _ = 1, 4 do
          local result = assert(server:run("python", "print('whole')\n#" .. ("x"):rep(5000)))
          assert.equal("whole\n", result.stdout)
          warned = warned or warning_of(result)
        end
        assert.matches("not recorded", warned)
        os.remove(disk .. "/fill")
        client.sleep(5.2)
        assert.is_nil(warning_of(assert(server:run("python", "print('again')"))))
        assert.equal("print('again')", server:history(1)[1].code_snippet)
      end)
    end)
    os.execute("umount " .. quote(disk))
    if not ok then error(why, 0) end
  end)

  it("can be switched off", function()
    with({ init = "history.enabled = false" }, function(server)
      assert.is_nil(warning_of(assert(server:run("python", "print(1)"))))
      local _, text = server:history()
      assert.matches("switched off", text)
      assert.is_nil(client.read_file(server.state .. "/sandbox-runner/sandbox_history.db"))
    end)
  end)

  it("keeps no more rows than init.lua says", function()
    with({ init = init_with "history.max_rows = 5" }, function(server)
      for i = 1, 8 do server:run("python", "pass #" .. i) end
    end)
    with({ init = init_with "history.max_rows = 5" }, function(server)
      local rows = server:history(100)
      assert.equal(5, #rows)
      assert.equal("pass #8", rows[1].code_snippet)
    end)
  end)

  it("does not keep the server from starting in / or with a home that is none", function()
    for _, options in ipairs { { cwd = "/" }, { before = "env -u XDG_STATE_HOME HOME=/proc/none" } } do
      options.init = ""
      with(options, function(server) assert.equal("1\n", assert(server:run("python", "print(1)")).stdout) end)
    end
  end)
end)
