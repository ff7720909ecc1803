-- The tools, resources and prompts that the official MCP conformance runner calls
-- by name, beside the built-in ones. Settings as in init.lua of the root folder.

-- Shorter than the shortest job below, so that it becomes a task.
tasks.after_seconds = 0.2

-- One red pixel, and one sample of silence.
local PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
local WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA=="

local function text(value) return { type = "text", text = value } end
local function image() return { type = "image", data = PNG, mimeType = "image/png" } end

local function embedded(uri, mime_type, value)
  return { type = "resource", resource = { uri = uri, mimeType = mime_type, text = value } }
end

local function message(content) return { role = "user", content = content } end

-- A request for one value of a form.
local function form(question, name, kind)
  return { method = "elicitation/create", params = { message = question, requestedSchema = { type = "object",
    properties = { [name] = { type = kind or "string" } }, required = { name } } } }
end

local function sampling(question, tokens)
  return { method = "sampling/createMessage", params = { messages = { message(text(question)) }, maxTokens = tokens } }
end

local ROOTS = { method = "roots/list", params = {} }

local function said(ctx, prefix, answer)
  return ("%s: action=%s, content=%s"):format(prefix, answer.action, ctx.json.encode(answer.content or {}))
end

-- Content of every kind

tool "test_simple_text" {
  description = "Answers with a text",
  handler = function() return "This is a simple text response for testing." end,
}

tool "test_image_content" {
  description = "Answers with an image",
  handler = function() return { content = { image() } } end,
}

tool "test_audio_content" {
  description = "Answers with a sound",
  handler = function() return { content = { { type = "audio", data = WAV, mimeType = "audio/wav" } } } end,
}

tool "test_embedded_resource" {
  description = "Answers with a resource",
  handler = function()
    return { content = { embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.") } }
  end,
}

tool "test_multiple_content_types" {
  description = "Answers with a text, an image and a resource",
  handler = function()
    return { content = { text "Multiple content types test:", image(),
      embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}') } }
  end,
}

tool "test_error_handling" {
  description = "Always fails",
  handler = function() return nil, "This tool intentionally returns an error for testing" end,
}

tool "json_schema_2020_12_tool" {
  description = "Has a schema of JSON Schema 2020-12",
  portable = false,
  input = {
    ["$schema"] = "https://json-schema.org/draft/2020-12/schema",
    type = "object",
    ["$defs"] = { address = { ["$anchor"] = "addressDef", type = "object",
      properties = { street = { type = "string" }, city = { type = "string" } } } },
    properties = {
      name = { type = "string" },
      address = { ["$ref"] = "#/$defs/address" },
      contactMethod = { type = "string", enum = { "phone", "email" } },
      phone = { type = "string" },
      email = { type = "string" },
    },
    allOf = { { anyOf = { { required = { "phone" } }, { required = { "email" } } } } },
    ["if"] = { properties = { contactMethod = { const = "phone" } }, required = { "contactMethod" } },
    ["then"] = { required = { "phone" } },
    ["else"] = { required = { "email" } },
    additionalProperties = false,
  },
  handler = function(arguments, ctx) return ctx.json.encode(arguments) end,
}

tool "test_x_mcp_header" {
  description = "Has a parameter that is repeated in a header",
  input = { type = "object", required = { "region" }, properties = {
    region = { type = "string", description = "Where to look", ["x-mcp-header"] = "Region" },
  } },
  handler = function(arguments) return "Region: " .. arguments.region end,
}

-- What a call tells meanwhile

tool "test_tool_with_logging" {
  description = "Logs three times",
  handler = function(_, ctx)
    ctx.log("info", "Tool execution started")
    ctx.sleep(50)
    ctx.log("info", "Tool processing data")
    ctx.sleep(50)
    ctx.log("info", "Tool execution completed")
    return "Logged."
  end,
}

tool "test_logging_tool" {
  description = "Logs once",
  handler = function(_, ctx)
    ctx.log("info", "for those who asked for it")
    return "Logged."
  end,
}

tool "test_tool_with_progress" {
  description = "Reports its progress three times",
  handler = function(_, ctx)
    for _, done in ipairs { 0, 50, 100 } do
      ctx.progress(done, 100)
      ctx.sleep(50)
    end
    return "Done."
  end,
}

tool "test_reconnection" {
  description = "Ends its stream before it answers",
  handler = function(_, ctx)
    ctx.detach(100)
    ctx.sleep(200)
    return "Answered after the reconnection."
  end,
}

for kind, plural in pairs { tool = "tools", prompt = "prompts" } do
  tool("test_trigger_" .. kind .. "_change") {
    description = "Tells that the list of " .. plural .. " has changed",
      handler = function(_, ctx)
      ctx.changed(plural)
      return "Told."
    end,
  }
end

-- For the tests of other clients.
tool "touch_watched_resource" {
  description = "Tells that the watched resource has changed",
  handler = function(_, ctx)
    ctx.updated "test://watched-resource"
    return "Told."
  end,
}

-- Requests to the client, in every era

tool "test_sampling" {
  description = "Asks the client's model",
  input = { type = "object", properties = { prompt = { type = "string" } }, required = { "prompt" } },
  handler = function(arguments, ctx)
    local answer = ctx.sample(sampling(arguments.prompt, 100).params)
    return "LLM response: " .. tostring((answer.content[1] or answer.content).text)
  end,
}

tool "test_elicitation" {
  description = "Asks the user",
  input = { type = "object", properties = { message = { type = "string" } }, required = { "message" } },
  handler = function(arguments, ctx)
    return said(ctx, "User response", ctx.elicit { message = arguments.message, requestedSchema = { type = "object",
      properties = { username = { type = "string", description = "User's response" },
        email = { type = "string", description = "User's email address" } },
      required = { "username", "email" } } })
  end,
}

tool "test_elicitation_sep1034_defaults" {
  description = "Asks the user, with defaults of every type",
  handler = function(_, ctx)
    return said(ctx, "Elicitation completed", ctx.elicit { message = "Please review the defaults",
      requestedSchema = { type = "object", properties = {
        name = { type = "string", default = "John Doe" },
        age = { type = "integer", default = 30 },
        score = { type = "number", default = 95.5 },
        status = { type = "string", enum = { "active", "inactive", "pending" }, default = "active" },
        verified = { type = "boolean", default = true },
      } } })
  end,
}

tool "test_elicitation_sep1330_enums" {
  description = "Asks the user, with choices of every kind",
  handler = function(_, ctx)
    local options = { "option1", "option2", "option3" }
    local titled = { { const = "value1", title = "First" }, { const = "value2", title = "Second" },
      { const = "value3", title = "Third" } }
    return said(ctx, "Elicitation completed", ctx.elicit { message = "Please choose",
      requestedSchema = { type = "object", properties = {
        untitledSingle = { type = "string", enum = options },
        titledSingle = { type = "string", oneOf = titled },
        legacyEnum = { type = "string", enum = { "opt1", "opt2", "opt3" }, enumNames = { "One", "Two", "Three" } },
        untitledMulti = { type = "array", items = { type = "string", enum = options } },
        titledMulti = { type = "array", items = { anyOf = titled } },
      } } })
  end,
}

tool "test_missing_capability" {
  description = "Needs a client that can sample",
  handler = function(_, ctx)
    ctx.require "sampling"
    return "The client can sample."
  end,
}

tool "test_streaming_elicitation" {
  description = "Asks the user after some progress",
  handler = function(_, ctx)
    ctx.progress(1, 2)
    return said(ctx, "Elicitation completed", ctx.elicit(form("Go on?", "ok", "boolean").params))
  end,
}

-- Requests to the client as an answer (2026-07-28)

local NAME = form("What is your name?", "name")

tool "test_input_required_result_elicitation" {
  description = "Greets who says a name",
  handler = function(_, ctx)
    return ("Hello, %s!"):format(ctx.ask({ user_name = NAME }).user_name.content.name)
  end,
}

tool "test_input_required_result_sampling" {
  description = "Has the client's model name a capital",
  handler = function(_, ctx)
    local answer = ctx.ask({ capital_question = sampling("What is the capital of France?", 100) }).capital_question
    return answer.content.text
  end,
}

tool "test_input_required_result_list_roots" {
  description = "Lists the client's roots",
  handler = function(_, ctx) return ctx.json.encode(ctx.ask({ client_roots = ROOTS }).client_roots.roots) end,
}

tool "test_input_required_result_multiple_inputs" {
  description = "Asks for three things at once",
  handler = function(_, ctx)
    local answers = ctx.ask({ user_name = NAME, greeting = sampling("Generate a greeting", 50), client_roots = ROOTS },
      { of = "multiple inputs" })
    return ctx.json.encode(answers)
  end,
}

local CONFIRM = form("Please confirm", "ok", "boolean")

for _, name in ipairs { "request_state", "tampered_state" } do
  tool("test_input_required_result_" .. name) {
    description = "Checks that the state comes back as it was given",
      handler = function(_, ctx)
      ctx.ask({ confirm = CONFIRM }, { of = name })
      if ctx.state and ctx.state.of ~= name then return nil, "that is another state" end
      return "state-ok"
    end,
  }
end

tool "test_input_required_result_multi_round" {
  description = "Asks two questions in turn",
  handler = function(_, ctx)
    local name = ctx.state and ctx.state.name
    if not name then
      name = ctx.ask({ step1 = form("Step 1: What is your name?", "name") }, { round = 1 }).step1.content.name
    end
    local answers = ctx.ask({ step2 = form("Step 2: What is your favorite color?", "color") }, { name = name })
    return ("%s likes %s."):format(name, answers.step2.content.color)
  end,
}

tool "test_input_required_result_capabilities" {
  description = "Asks only for what the client can do",
  handler = function(_, ctx)
    local requests, can = {}, ctx.client.capabilities
    if can.sampling then requests.capital_question = sampling("What is the capital of France?", 100) end
    if can.elicitation then requests.user_name = NAME end
    return ctx.json.encode(ctx.ask(requests))
  end,
}

-- Tasks

tool "greet" {
  description = "Greets",
  input = { type = "object", properties = { name = { type = "string" } }, required = { "name" } },
  handler = function(arguments) return ("Hello, %s!"):format(arguments.name) end,
}

tool "slow_compute" {
  description = "Takes as long as it is told to",
  input = { type = "object", required = { "seconds" },
    properties = { seconds = { type = "number", minimum = 0, maximum = 3600 }, label = { type = "string" } } },
  task = "slow",
  handler = function(arguments, ctx)
    ctx.sleep(math.floor(arguments.seconds * 1000))
    return ("computed %s"):format(arguments.label or "")
  end,
}

tool "failing_job" {
  description = "Fails as a task",
  task = "always",
  handler = function() return nil, "the job failed, as it always does" end,
}

tool "protocol_error_job" {
  description = "Ends with a protocol error as a task",
  task = "always",
  handler = function(_, ctx) ctx.protocol_error(-32603, "the job broke, as it always does") end,
}

tool "confirm_delete" {
  description = "Asks before it pretends to delete a file",
  input = { type = "object", properties = { filename = { type = "string" } }, required = { "filename" } },
  task = "always",
  handler = function(arguments, ctx)
    local answer = ctx.ask({ confirm = form(("Delete %s?"):format(arguments.filename), "confirm", "boolean") }).confirm
    local deleted = answer.action == "accept" and answer.content.confirm
    return (deleted and "deleted " or "kept ") .. arguments.filename
  end,
}

tool "multi_input" {
  description = "Asks for two things at once as a task",
  task = "always",
  handler = function(_, ctx)
    return ctx.json.encode(ctx.ask { first = form("First name?", "name"), second = form("Second name?", "name") })
  end,
}

tool "test_tool_with_task" {
  description = "Asks for a name, then goes on as a task",
  task = "slow",
  handler = function(_, ctx)
    local name = ctx.ask({ user_name = NAME }).user_name.content.name
    ctx.sleep(500)
    return ("Hello, %s!"):format(name)
  end,
}

-- Resources

resource "test://static-text" {
  name = "static-text",
  description = "A text",
  mime_type = "text/plain",
  text = "This is the content of the static text resource.",
}

resource "test://static-binary" {
  name = "static-binary",
  description = "An image",
  mime_type = "image/png",
  read = function() return { blob = PNG } end,
}

resource "test://watched-resource" {
  name = "watched-resource",
  description = "A text that can be watched",
  mime_type = "text/plain",
  text = "Watched.",
}

resource_template "test://template/{id}/data" {
  name = "template",
  description = "Data of an id",
  mime_type = "application/json",
  complete = { id = { "123", "456" } },
  read = function(_, variables, ctx)
    return { text = ctx.json.encode { id = variables.id, templateTest = true, data = "Data for ID: " .. variables.id } }
  end,
}

-- Prompts

prompt "test_simple_prompt" {
  description = "A text",
  messages = function() return "This is a simple prompt for testing." end,
}

prompt "test_prompt_with_arguments" {
  description = "A text with two arguments in it",
  arguments = { { name = "arg1", description = "The first", required = true },
    { name = "arg2", description = "The second", required = true } },
  complete = { arg1 = { "paris", "park", "party", "test" } },
  messages = function(arguments)
    return ("Prompt with arguments: arg1='%s', arg2='%s'"):format(arguments.arg1, arguments.arg2)
  end,
}

prompt "test_prompt_with_embedded_resource" {
  description = "A resource and a text",
  arguments = { { name = "resourceUri", description = "The resource", required = true } },
  messages = function(arguments)
    return { message(embedded(arguments.resourceUri, "text/plain", "Embedded resource content for testing.")),
      message(text "Please process the embedded resource above.") }
  end,
}

prompt "test_prompt_with_image" {
  description = "An image and a text",
  messages = function() return { message(image()), message(text "Please analyze the image above.") } end,
}

prompt "test_input_required_result_prompt" {
  description = "Asks for its context",
  messages = function(_, ctx)
    local answer = ctx.ask({ user_context = form("What context should the prompt use?", "context") }).user_context
    return "Context: " .. answer.content.context
  end,
}
