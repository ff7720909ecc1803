--- An init.lua whose tools need no sandbox: what is tested is the transport.
local client = require "e2e.client"

return client.no_pool .. [[

http.body = "64k"
tool "echo" { description = "says it again",
  input = { type = "object", properties = { text = { type = "string" } } },
  handler = function(arguments) return arguments.text or "" end }
tool "steps" { description = "tells how far it is",
  input = { type = "object", properties = {} },
  handler = function(_, ctx)
    for i = 1, 3 do
      ctx.progress(i, 3)
      ctx.sleep(30)
    end
    return "walked"
  end }
tool "slow" { description = "takes its time",
  input = { type = "object", properties = { ms = { type = "integer" } }, required = { "ms" } },
  handler = function(arguments, ctx)
    ctx.sleep(arguments.ms)
    return "slept"
  end }
tool "away" { description = "sends the client away meanwhile",
  input = { type = "object", properties = {} },
  handler = function(_, ctx)
    ctx.detach(20)
    ctx.sleep(100)
    return "back"
  end }
tool "ask" { description = "asks the client",
  input = { type = "object", properties = {} },
  handler = function(_, ctx) return ctx.elicit { message = "well?",
    requestedSchema = { type = "object", properties = { answer = { type = "string" } } } }.content.answer end }
tool "announce" { description = "tells all clients",
  input = { type = "object", properties = {} },
  handler = function(_, ctx)
    ctx.changed "tools"
    return "told"
  end }
tool "routed" { description = "has a parameter that headers repeat",
  input = { type = "object", properties = { region = { type = "string", ["x-mcp-header"] = "Region" } } },
  handler = function(arguments) return arguments.region or "none" end }
]]
