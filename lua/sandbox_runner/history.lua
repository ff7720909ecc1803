--- The record of runs, as the tools see it: opened at first use, never in the
-- way of a result. A run that cannot be recorded is answered all the same, with
-- a warning; the file is tried again a few seconds later.
local core = require "sandbox_runner.core"
local fault = require "sandbox_runner.fault"

local history = {}

local LOCK_PAUSES_MS = { 30, 60, 120, 240, 400 }
local RETRY_MS = 5000   -- pause after a failed attempt to open the file
local PRUNE_EVERY = 64  -- added rows between two looks at max_rows
local FOLDER_MODE = 448 -- 0700: code of the user is nobody else's business

local null = core.json.null

local Store = {}
Store.__index = Store

local function state_folder()
  local xdg = core.sys.getenv("XDG_STATE_HOME")
  if xdg and xdg:sub(1, 1) == "/" then return xdg .. "/sandbox-runner" end
  local home = core.sys.home()
  return home and home .. "/.local/state/sandbox-runner"
end

--- The absolute path of the history file: as configured when absolute, below
-- the home folder for "~/...", else in the state folder (XDG_STATE_HOME or
-- ~/.local/state, then sandbox-runner). Returns nil and a text when there is
-- no home folder.
function history.resolve(file)
  if file:sub(1, 1) == "/" then return file end
  local folder
  if file:sub(1, 2) == "~/" then
    folder, file = core.sys.home(), file:sub(3)
  else
    folder = state_folder()
  end
  if not folder then
    return nil, "there is no home folder; give history.file in init.lua as an absolute path"
  end
  return folder .. "/" .. file
end

-- Puts a damaged file aside and begins a new one. Under a lock, and after one
-- more look: two servers that meet the same damage must not move each other's
-- fresh file away.
local function replace(self, path)
  local lock <close>, lock_err = core.sys.lock(path .. ".lock")
  if not lock then return nil, lock_err end
  local db, err = core.history.open(path)
  if db or err.code ~= "corrupt" then return db, err end
  local moved, move_err = core.history.set_aside(path)
  if not moved then return nil, move_err end
  self.log(("history: %s was damaged (%s); it is kept as %s and a new file is begun")
    :format(path, err.message, moved), "warning")
  return core.history.open(path)
end

local function open_or_replace(self, path)
  local db, err = core.history.open(path)
  if db or err.code ~= "corrupt" then return db, err end
  return replace(self, path)
end

local function open_file(self)
  local path, text = history.resolve(self.config.history.file)
  if not path then return fault.new("not_found", text) end
  local ok, err = core.sys.mkdir_p(path:match("^(.*)/[^/]*$"), FOLDER_MODE)
  local db
  if ok then db, err = open_or_replace(self, path) end
  if not db then return fault.new(err.code, ("%s: %s"):format(path, err.message)) end
  local stat = core.sys.stat(path)
  self.path, self.ino = path, stat and stat.ino
  return db
end

-- Rows that go into a file which was removed or replaced are in no record.
local function is_still_there(self)
  local stat = core.sys.stat(self.path)
  return stat ~= nil and stat.ino == self.ino
end

-- Says each trouble once, not at every run.
local function note_trouble(self, text)
  if text and text ~= self.trouble then
    self.log("history is off: " .. text, "warning")
  elseif not text and self.trouble then
    self.log("history is on again")
  end
  self.trouble = text
end

local function prune(self)
  self.added = 0
  local _, err = self.db:prune(self.config.history.max_rows)
  if err then self.log("history: old rows were not removed: " .. err.message, "warning") end
end

-- The open database | nil, err.
local function database(self)
  if self.db and is_still_there(self) then return self.db end
  self:close()
  if self.trouble and core.loop.now_ms() < self.next_try then return fault.new("conflict", self.trouble) end
  local db, err = open_file(self)
  if not db then return nil, err end
  self.db = db
  prune(self)
  return db
end

-- A handle that failed is not used again; a damaged file is replaced at once,
-- other trouble is given time.
local function drop(self, err)
  self:close()
  if err.code == "conflict" then return nil, err.message end -- it is being given time
  self.next_try = err.code == "corrupt" and 0 or core.loop.now_ms() + RETRY_MS
  note_trouble(self, err.message)
  return nil, err.message
end

--- Unix seconds -> "2026-11-30T12:34:56.123456+00:00".
function history.timestamp(seconds)
  -- Within the years 1970 to 9999, whatever a foreign row holds.
  if not (seconds >= 0 and seconds < 253402300800) then seconds = 0 end
  local micro = math.floor(seconds * 1e6 + 0.5)
  return os.date("!%Y-%m-%dT%H:%M:%S", micro // 1000000)
    .. (".%06d+00:00"):format(micro % 1000000)
end

local function value_or_nil(value)
  if value == null then return nil end
  return value
end

local function to_row(self, request, result)
  return {
    timestamp = core.loop.wall(),
    language = request.language.name,
    code_snippet = core.text.prefix(core.text.repair(request.code),
      self.config.history.preview_characters),
    status = result.status,
    exit_code = value_or_nil(result.exit_code),
    duration_ms = result.duration_ms or 0,
    stdout_size = result.stdout_bytes or 0,
    stderr_size = result.stderr_bytes or 0,
    run_id = result.run_id, reason = result.reason, signal = result.signal,
    cpu_ms = result.cpu_ms, peak_memory_bytes = result.peak_memory_bytes,
    truncated = result.truncated, image = result.image,
    timeout_seconds = request.timeout_seconds,
  }
end

local function from_row(row)
  local exit_code = row.exit_code
  if exit_code == nil then exit_code = null end
  return { id = row.id, timestamp = history.timestamp(row.timestamp or 0),
    language = row.language or "", code_snippet = row.code_snippet or "",
    status = row.status or "", exit_code = exit_code, duration_ms = row.duration_ms or 0,
    stdout_size = row.stdout_size or 0, stderr_size = row.stderr_size or 0,
    run_id = row.run_id, reason = row.reason, signal = row.signal }
end

local function add_once(self, row)
  local db, err = database(self)
  if not db then return nil, err end
  return db:add(row)
end

-- A lock of another process is waited for here, not in SQLite: the server goes
-- on meanwhile.
local function add(self, row)
  local id, err = add_once(self, row)
  for _, pause_ms in ipairs(self.sleep and LOCK_PAUSES_MS or {}) do
    if id or err.code ~= "unavailable" then break end
    self.sleep(pause_ms)
    id, err = add_once(self, row)
  end
  if not id and err.code == "corrupt" then
    drop(self, err)
    id, err = add_once(self, row)
  end
  if not id then return drop(self, err) end
  return id
end

--- Records a run: request as of request.check, result as of result.build.
-- Returns nil, or a warning for the user when the row could not be written.
function Store:record(request, result)
  if not self.config.history.enabled then return nil end
  local id, text = add(self, to_row(self, request, result))
  if not id then return "This run was not recorded in the history: " .. text end
  note_trouble(self, nil)
  self.added = self.added + 1
  if self.added >= PRUNE_EVERY then prune(self) end
  return nil
end

-- query(db) -> answer | nil, err, on the open file. Returns true, answer; or false
-- and a text.
local function ask(self, query)
  if not self.config.history.enabled then
    return false, "The history is switched off in init.lua (history.enabled = false)."
  end
  local db, err = database(self)
  local answer
  if db then answer, err = query(db) end
  if err then
    drop(self, err)
    return false, ("The history is off: %s."):format(err.message)
  end
  note_trouble(self, nil)
  return true, answer
end

--- The newest rows, newest first: a JSON array of { id, timestamp, language,
-- code_snippet, status, exit_code (null when there was none), duration_ms,
-- stdout_size, stderr_size, run_id, reason, signal }; or nil and a text.
function Store:recent(limit)
  local ok, rows = ask(self, function(db) return db:recent(limit) end)
  if not ok then return nil, rows end
  local out = core.json.array {}
  for i, row in ipairs(rows) do out[i] = from_row(row) end
  return out
end

-- A row's number has fewer digits than a run's id, which is hexadecimal besides.
local function row_or_run(id)
  local row = #id <= 15 and id:find("^[1-9]%d*$") and math.tointeger(tonumber(id))
  return row or id
end

--- The run with this id (text: the number of its row, or its run_id): a row as
-- in recent, with cpu_ms, peak_memory_bytes, truncated, image and timeout_seconds
-- where they are known. false: there is none. Or nil and a text. A run_id is
-- looked for among the newest 10000 rows.
function Store:find(id)
  local ok, row = ask(self, function(db) return db:get(row_or_run(id)) end)
  if not ok then return nil, row end
  if not row then return false end
  local out = from_row(row)
  for _, name in ipairs { "cpu_ms", "peak_memory_bytes", "truncated", "image", "timeout_seconds" } do
    out[name] = row[name]
  end
  return out
end

--- Closes the file; it is opened again at the next use.
function Store:close()
  local db = self.db
  self.db = nil
  if db then db:close() end
end

--- A store for config.history. log is function(text, level); sleep(ms) awaits,
-- and without it a locked file is not waited for. Nothing is opened yet, so that
-- the start needs no disk.
function history.open(config, log, sleep)
  return setmetatable({ config = config, log = log, sleep = sleep, next_try = 0, added = 0 }, Store)
end

return history
