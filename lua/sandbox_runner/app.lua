--- What the program does once the options are read: serve, check, fetch.

local core = require "sandbox_runner.core"
local defer = require "sandbox_runner.defer"
local later = require "sandbox_runner.later"
local settings = require "sandbox_runner.settings"

local loop, sys = core.loop, core.sys
local M = {}

local EXIT_CONFIG = 78 -- EX_CONFIG of sysexits.h
-- On stdio at most 1.5 s pass from the end of input to the exit: runs that end
-- within the first second are answered, the rest of the time removes the others.
local GRACE_MS, REMOVE_MS, FLUSH_MS = 1000, 350, 100
local HTTP_REMOVE_MS = 3000 -- nobody waits for us there

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

-- The agent's file: beside the program in a build tree, else in lib.
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

-- Memory that the runs have used goes back to the system once nothing has gone
-- on for a moment.
local function collector(server_of)
  local scheduled = false
  return function()
    if scheduled then return end
    scheduled = true
    loop.spawn(function()
      loop.sleep(IDLE_MS)
      scheduled = false
      if server_of():in_flight() > 0 then return end -- its end calls again
      collectgarbage()
      sys.trim()
    end)
  end
end

local function new_server(config, log, on_idle)
  local made
  local function engine_itself()
    made = made or new_engine(config, log)
    return made
  end
  local engine = later.object(engine_itself)
  local runner = later.object(function() return require("sandbox_runner.run").new(config, engine_itself(), log) end)
  local per_minute = config.limits.runs_per_minute
  local rate = per_minute and require("sandbox_runner.rate").new(per_minute, loop.now_ms) or nil
  return require("sandbox_runner.mcp").server {
    config = config, log = log, runner = runner, rate = rate,
    catalog = require("sandbox_runner.catalog").new(config),
    history = later.object(function() return require("sandbox_runner.history").open(config, log, loop.sleep) end),
    tasks = later.object(function()
      return require("sandbox_runner.tasks").new { config = config, spawn = loop.spawn, now_ms = loop.now_ms,
        wall = loop.wall }
    end),
    instructions = require("sandbox_runner.instructions").text(config),
    spawn = loop.spawn, now_ms = loop.now_ms, on_idle = on_idle,
  }, engine
end

-- The engine is asked for the first time when somebody has been answered, or may
-- be. Once more later: it may still have been making what its owner died over.
local function first_work(service)
  return function()
    loop.spawn(function()
      service.engine:sweep()
      service.server.runner:warm()
      loop.sleep(SWEEP_AGAIN_MS)
      service.engine:sweep()
    end)
  end
end

-- What the transports share: server, engine, over (an event: it is to end),
-- stopped() (whether a signal said so). A second signal ends the program at once;
-- sandboxes end with their streams.
local function new_service(config, log)
  local service = { config = config, log = log, over = loop.event(), drained = loop.event() }
  local collect = collector(function() return service.server end)
  service.server, service.engine = new_server(config, log, function()
    if service.over:is_set() then service.drained:set() end
    collect()
  end)
  local signalled = false
  function service.stopped() return signalled end
  loop.spawn(function()
    loop.wait_signal()
    signalled = true
    service.over:set()
    loop.wait_signal()
    os.exit(1, false)
  end)
  return service
end

-- No new work; what ends within grace_ms is answered; nothing is left behind,
-- as far as remove_ms allow.
local function wind_up(service, grace_ms, remove_ms)
  local server, engine, start = service.server, service.engine, loop.now_ms()
  server.runner:close()
  server:stop_listening()
  server.tasks:cancel_all("the server stops", true) -- nobody can ask for their results any more
  loop.sleep(0) -- for those who listened to be told
  if server:in_flight() > 0 then service.drained:wait(grace_ms) end
  server:cancel_all("the server stops")
  engine:wait_gone(math.max(0, start + grace_ms + remove_ms - loop.now_ms()))
  server.history:close()
  engine:close()
end

-- Serves one client on stdin and stdout until its input ends or a signal comes.
-- Returns false when an answer could not be written to its end.
local function serve_stdio(config)
  local service = new_service(config, logger(config))
  loop.spawn(function()
    local guard <close> = defer(function() service.over:set() end) -- whatever ends it
    require("sandbox_runner.stdio").serve(service.server, service.stopped, first_work(service))
  end)
  service.over:wait()
  local start = loop.now_ms()
  wind_up(service, GRACE_MS, REMOVE_MS)
  -- An answer that is half written is of no use to anybody: whatever time is left.
  local last = start + GRACE_MS + REMOVE_MS + FLUSH_MS
  local written, why = core.stdio.flush(math.max(FLUSH_MS, math.floor(last - loop.now_ms())))
  return written ~= nil or why == nil
end

-- Listens for HTTP; nil when that cannot be (said in the log).
local function listen(service, access, options)
  local front, why = require("sandbox_runner.http").listen { server = service.server, config = service.config,
    auth = access, sse_only = options.transport == "sse", host = options.host, port = options.port }
  if not front then
    service.log("cannot listen: " .. why.message, "error")
    return nil
  end
  service.server.metrics = require("sandbox_runner.metrics").new { runner = service.server.runner,
    rate = service.server.rate, auth = access, http = function() return front:stats() end }
  sys.log("listening on " .. front:url())
  return front
end

-- Serves HTTP clients until a signal comes. Returns false when it could not.
local function serve_http(config, access, options)
  local service = new_service(config, logger(config))
  local front = listen(service, access, options)
  if not front then
    wind_up(service, 0, 0)
    return false
  end
  first_work(service)()
  loop.spawn(function()
    local guard <close> = defer(function() service.over:set() end)
    front:serve()
  end)
  service.over:wait()
  front:stop()
  wind_up(service, config.http.grace_seconds * 1000, HTTP_REMOVE_MS)
  front:close()
  return true
end

local function load_config(options)
  local path = options.config or options.share .. "/init.lua"
  config_flag = options.config
  local config, why = settings.load(path)
  if config then return config end
  sys.log(why.message)
  return nil
end

-- Who may use the HTTP transport; nil when it must not be served like this.
local function load_access(config, options)
  local auth = require "sandbox_runner.auth"
  local access, why = auth.load(config)
  if not access then
    sys.log(why.message)
    return nil
  end
  local ok, text = auth.may_bind(options.host or config.http.host, access)
  if ok then return access end
  sys.log(text)
  return nil
end

local function get_images(config, options)
  local engine = new_engine(config, logger(config))
  local status = require("sandbox_runner.get_images").run(config, engine, options.share)
  engine:close()
  return status
end

--- options: {mode="serve"|"check-config"|"get-images", share=folder, config=path
-- or nil, transport="stdio"|"http"|"sse", host, port (number) or nil}. Returns the
-- exit status.
function M.main(options)
  local config = load_config(options)
  local access = config and (options.transport or "stdio") ~= "stdio" and load_access(config, options)
  if not config or access == nil then return EXIT_CONFIG end
  if options.mode == "check-config" then
    print(("%s: fine"):format(config.file))
    return 0
  end
  local status = 1 -- unless the task gets to its end
  loop.run(function()
    if options.mode == "get-images" then
      status = get_images(config, options)
    elseif access then
      status = serve_http(config, access, options) and 0 or 1
    else
      status = serve_stdio(config) and 0 or 1
    end
  end)
  return status
end

return M
