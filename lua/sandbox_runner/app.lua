--- What the program does once the options are read: serve, check, fetch.

local core = require "sandbox_runner.core"
local defer = require "sandbox_runner.defer"
local settings = require "sandbox_runner.settings"

local loop, stdio, sys = core.loop, core.stdio, core.sys
local M = {}

local EXIT_CONFIG = 78 -- EX_CONFIG of sysexits.h
local MAX_LINE = 4 * 1024 * 1024
-- From the end of input to the exit at most 1.5 s pass: runs that end within
-- the first second are answered, the rest of the time removes the others.
local GRACE_MS, END_MS, FLUSH_MS = 1000, 1350, 1450

local IDLE_MS = 300
local SWEEP_AGAIN_MS = 60000

local config_flag -- what --config named, for messages

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
    config = config, log = log, agent = agent_path(), state = state_folder(), fetch = config_flag
      and ("sandbox-runner --config %s --get-images"):format(config_flag),
  }
end

--- Memory that the runs have used goes back to the system once nothing has gone
-- on for a moment.
local function collector(session_of)
  local scheduled = false
  return function()
    if scheduled then return end
    scheduled = true
    loop.spawn(function()
      loop.sleep(IDLE_MS)
      scheduled = false
      if session_of():in_flight() > 0 then return end -- its end calls again
      collectgarbage()
      sys.trim()
    end)
  end
end

--- No new work; what ends soon is answered; nothing is left behind. Returns
-- false when the client did not read all of the answers.
local function shut_down(session, engine, drained)
  local start = loop.now_ms()
  session.runner:close()
  if session:in_flight() > 0 then drained:wait(GRACE_MS) end
  session:close("the server stops")
  engine:wait_gone(math.max(0, start + END_MS - loop.now_ms()))
  session.history:close()
  engine:close()
  -- An answer that is half written is of no use to anybody: whatever time is left.
  local written, why = stdio.flush(math.max(100, math.floor(start + FLUSH_MS - loop.now_ms())))
  return written ~= nil or why == nil
end

--- on_first is called when the first message has been answered.
local function read_loop(session, stopped, on_first)
  while not stopped() do
    local line, _, head = stdio.read_line(MAX_LINE)
    if line == false or stopped() then return end
    if line then session:handle(line) else session:oversized(MAX_LINE, core.json.raw_id(head)) end
    if on_first then on_first() end
    on_first = nil
  end
end

local function new_session(config, log, on_idle)
  local engine = new_engine(config, log)
  local session = require("sandbox_runner.mcp").new {
    config = config, log = log,
    tools = require("sandbox_runner.tools").list(config),
    runner = require("sandbox_runner.run").new(config, engine, log),
    history = require("sandbox_runner.history").open(config, log, loop.sleep),
    send = function(text) stdio.write(text .. "\n") end,
    spawn = loop.spawn, now_ms = loop.now_ms, on_idle = on_idle,
  }
  return session, engine
end

--- The engine is asked for the first time when the client has its first answer.
-- Once more later: it may still have been making what its owner died over.
local function first_work(session, engine)
  return function()
    loop.spawn(function()
      engine:sweep()
      session.runner:warm()
      loop.sleep(SWEEP_AGAIN_MS)
      engine:sweep()
    end)
  end
end

--- Serves one client on stdin and stdout until its input ends or a signal comes.
-- Returns false when an answer could not be written to its end.
local function serve(config)
  local log = logger(config)
  local over, drained, signalled = loop.event(), loop.event(), false
  local session, engine
  local collect = collector(function() return session end)
  session, engine = new_session(config, log, function()
    if over:is_set() then drained:set() end
    collect()
  end)
  loop.spawn(function()
    loop.wait_signal()
    signalled = true
    over:set()
    loop.wait_signal() -- a second one: at once; sandboxes end with their streams
    os.exit(1, false)
  end)
  loop.spawn(function()
    local guard <close> = defer(function() over:set() end) -- whatever ends it
    read_loop(session, function() return signalled end, first_work(session, engine))
  end)
  over:wait()
  return shut_down(session, engine, drained)
end

local function load_config(options)
  local path = options.config or options.share .. "/init.lua"
  config_flag = options.config
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
  local status = 1 -- unless the task gets to its end
  loop.run(function()
    if options.mode == "get-images" then
      local engine = new_engine(config, logger(config))
      status = require("sandbox_runner.get_images").run(config, engine, options.share)
      engine:close()
    else
      status = serve(config) and 0 or 1
    end
  end)
  return status
end

return M
