--- What the program does once the options are read: serve, check, fetch.

local core = require "sandbox_runner.core"
local settings = require "sandbox_runner.settings"

local loop, stdio, sys = core.loop, core.stdio, core.sys
local M = {}

local EXIT_CONFIG = 78 -- EX_CONFIG of sysexits.h
local MAX_LINE = 4 * 1024 * 1024
-- From the end of input to the exit at most 1.5 s pass: runs that end within
-- the first second are answered, the rest of the time removes the others.
local GRACE_MS, END_MS = 1000, 1350

local IDLE_MS = 300
local SWEEP_AGAIN_MS = 60000

local LEVELS = { error = 1, warning = 2, info = 3, debug = 4 }

local function logger(config)
  local most = LEVELS[config.log.level] or LEVELS.info
  return function(text, level)
    if (LEVELS[level or "info"]) <= most then sys.log(core.text.visible(text)) end
  end
end

local function state_folder()
  local history = require "sandbox_runner.history"
  local path = history.resolve("x")
  return path and path:match("^(.*)/x$")
end

--- The agent's file: beside the program in a build tree, else in lib.
local function agent_path()
  local dir = sys.exe():match("^(.*)/[^/]*$")
  for _, path in ipairs { dir .. "/sandbox-agent", dir .. "/../lib/sandbox-runner/sandbox-agent" } do
    if sys.stat(path) then return path end
  end
  return dir .. "/sandbox-agent"
end

local function new_engine(config, log)
  return require("sandbox_runner.engine").new {
    config = config, log = log, agent = agent_path(), state = state_folder(),
  }
end

local function until_true(condition, deadline_ms)
  while not condition() and loop.now_ms() < deadline_ms do loop.sleep(5) end
end

--- No new work; what ends soon is answered; nothing is left behind.
local function shut_down(session, engine, patience_ms)
  local start = loop.now_ms()
  until_true(function() return session:in_flight() == 0 end, start + patience_ms)
  session:close("the server stops")
  until_true(function() return session:in_flight() == 0 and engine.active == 0 end, start + END_MS)
  stdio.flush(100)
  session.history:close()
  if engine.active == 0 then engine:close() end
end

local function read_loop(session, stopped)
  while not stopped() do
    local line, _, head = stdio.read_line(MAX_LINE)
    if line == false then return end
    if stopped() then return end
    if line then session:handle(line) else session:oversized(MAX_LINE, core.json.raw_id(head)) end
    if session.after_first then
      session.after_first()
      session.after_first = nil
    end
  end
end

--- A function to be called after each answer: once nothing has gone on for a
-- moment, the memory that the runs have used goes back to the system.
local function idle_collector(session)
  local scheduled = false
  return function()
    if scheduled then return end
    scheduled = true
    loop.spawn(function()
      repeat loop.sleep(IDLE_MS) until session:in_flight() == 0
      scheduled = false
      collectgarbage()
      sys.trim()
    end)
  end
end

local function new_session(config, log)
  local engine = new_engine(config, log)
  local answered
  local session = require("sandbox_runner.mcp").new {
    config = config, log = log,
    tools = require("sandbox_runner.tools").list(config),
    runner = require("sandbox_runner.run").new(config, engine, log),
    history = require("sandbox_runner.history").open(config, log),
    send = function(text)
      stdio.write(text .. "\n")
      answered()
    end,
    spawn = loop.spawn, now_ms = loop.now_ms,
  }
  answered = idle_collector(session)
  return session, engine
end

--- Serves one client on stdin and stdout until its input ends or a signal comes.
local function serve(config)
  local log = logger(config)
  local session, engine = new_session(config, log)
  local over, signalled = loop.event(), false
  -- The engine is asked for the first time when the client has its first answer.
  -- Once more later: it may still have been making what its owner died over.
  session.after_first = function()
    loop.spawn(function()
      engine:sweep()
      loop.sleep(SWEEP_AGAIN_MS)
      engine:sweep()
    end)
  end
  loop.spawn(function()
    loop.wait_signal()
    signalled = true
    over:set()
    loop.wait_signal() -- a second one: at once; sandboxes end with their streams
    os.exit(1, false)
  end)
  loop.spawn(function()
    read_loop(session, function() return signalled end)
    over:set()
  end)
  over:wait()
  shut_down(session, engine, GRACE_MS)
end

local function load_config(options)
  local path = options.config or options.share .. "/init.lua"
  local config, why = settings.load(path)
  if config then return config end
  sys.log(why.message)
  return nil
end

--- options: {mode="serve"|"check-config"|"get-images", share=folder, config=path
-- or nil}. Returns the exit status.
function M.main(options)
  local config = load_config(options)
  if not config then return EXIT_CONFIG end
  if options.mode == "check-config" then
    print(("%s: fine"):format(config.file))
    return 0
  end
  local status = 0
  loop.run(function()
    if options.mode == "get-images" then
      local engine = new_engine(config, logger(config))
      status = require("sandbox_runner.get_images").run(config, engine, options.share)
      engine:close()
    else
      serve(config)
    end
  end)
  return status
end

return M
