-- The command line, and what keeps a server from starting. No engine is needed.
local client = require "e2e.client"
local http = require "e2e.http_client"

-- Runs the program with arguments for five seconds at most: exit status, and what
-- it wrote on both streams.
local function run(arguments, init, variables)
  local folder = client.folder()
  if init then
    client.write_file(folder .. "/init.lua", init)
    arguments = "--config " .. client.quote(folder .. "/init.lua") .. " " .. arguments
  end
  local command = ("env XDG_STATE_HOME=%s %s timeout 5 %s %s </dev/null >%s 2>&1"):format(client.quote(folder),
    variables or "", client.quote(client.program()), arguments, client.quote(folder .. "/out"))
  local _, _, status = os.execute(command)
  local text = client.read_file(folder .. "/out")
  client.remove(folder)
  return status, text
end

describe("the command line", function()
  it("refuses what makes no sense with 64, and says what would", function()
    for arguments, text in pairs {
      ["--transport tcp"] = "stdio, http or sse, not \"tcp\"", ["--transport ''"] = "stdio, http or sse",
      ["--port 80"] = "--transport http or sse", ["--host ::1"] = "--transport http or sse",
      ["--transport stdio --port 80"] = "--transport http or sse",
      ["--transport http --port 65536"] = "0 to 65535, not \"65536\"", ["--transport http --port -1"] = "0 to 65535",
      ["--transport http --port 8x"] = "0 to 65535", ["--transport http --port ''"] = "0 to 65535",
      ["--transport http --port 99999999999999999999"] = "0 to 65535", ["--transport http --host ''"] = "127.0.0.1",
      ["--transport http serve"] = "\"serve\" is no option", ["--nonsense"] = "unrecognized option" } do
      local status, out = run(arguments)
      assert.equal(64, status, arguments)
      assert.truthy(out:find(text, 1, true), out)
      assert.matches("%-%-help", out)
    end
  end)

  it("explains itself", function()
    local status, out = run "--help"
    assert.equal(0, status)
    for _, word in ipairs { "--config", "--transport", "--host", "--port", "--check-config", "/mcp", "/sse" } do
      assert.truthy(out:find(word, 1, true), word)
    end
  end)
end)

describe("a line on stdin that is too long", function()
  local server
  setup(function() server = client.start { init = client.no_pool } end)
  teardown(function() assert.equal(0, (server:close())) end)

  local function send(start) server:send(start .. ("x"):rep(4 << 20) .. '"}}') end

  it("is answered with its id, where that is one of a request", function()
    for id, answered in pairs { ["7"] = 7, ['"a"'] = "a" } do
      send(('{"jsonrpc":"2.0","id":%s,"method":"ping","params":{"x":"'):format(id))
      assert.equal(-32600, server:wait(answered).error.code)
    end
  end)

  it("is answered without an id, where there is none that a client would know", function()
    for _, start in ipairs { '{"jsonrpc":"2.0","id":null,"method":"ping","params":{"x":"',
      '{"jsonrpc":"2.0","id":1.5,"method":"ping","params":{"x":"', '{"jsonrpc":"2.0","id":8,"x":{"x":"',
      '{"method":"ping","params":{"x":"' } do
      send(start)
      local answer = server:other()
      assert.is_nil(answer.id)
      assert.equal(-32600, answer.error.code)
    end
  end)

  it("is not answered, where it is an answer itself", function()
    for _, start in ipairs { '{"jsonrpc":"2.0","id":9,"result":{"x":"', '{"id":9,"error":{"message":"',
      '{"result":{"method \\"method\\"":"' } do
      send(start)
    end
    server:ping()
    assert.same({}, server.others)
    assert.same({}, server.answers)
  end)
end)

describe("a server that others could reach", function()
  it("does not start without a token, and says how to give it one", function()
    for _, arguments in ipairs { "--transport http --host 0.0.0.0 --port 0", "--transport sse --host :: --port 0",
      "--transport http --host 192.0.2.1 --check-config" } do
      local status, out = run(arguments, "")
      assert.equal(78, status, arguments)
      assert.matches("http.token_file", out, 1, true)
      assert.matches("127.0.0.1", out, 1, true)
    end
    assert.equal(78, (run("--transport http --port 0", 'http.host = "0.0.0.0"')))
    assert.equal(0, (run("--check-config", 'http.host = "0.0.0.0"'))) -- stdio does not care
  end)

  it("starts with one", function()
    local server = http.start { args = { "--host", "0.0.0.0" }, init = client.no_pool,
      env = { SANDBOX_RUNNER_TOKEN = "0123456789abcdef0123456789abcdef" } }
    assert.equal("0.0.0.0", server.host)
    server.host = "127.0.0.1"
    assert.equal('{"status":"ok"}', server:http("GET", "/healthz", { Host = "localhost" }).body)
    assert.matches("version", server:http("GET", "/healthz", { Host = "localhost",
      Authorization = "Bearer 0123456789abcdef0123456789abcdef" }).body)
    assert.equal(401, server:post(http.initialize(), { Host = "localhost" }).status)
    assert.equal(403, server:post(http.initialize(), { Host = "0.0.0.0:" .. server.port }).status)
    assert.equal(0, (server:close()))
  end)

  it("does not start with a token that it cannot have", function()
    local status, out = run("--transport http --port 0", 'http.token_file = "/nowhere/at/all"')
    assert.equal(78, status)
    assert.matches("/nowhere/at/all", out, 1, true)
    status, out = run("--transport http --port 0", "", "SANDBOX_RUNNER_TOKEN=short")
    assert.equal(78, status)
    assert.is_nil(out:find("short", 1, true))
  end)
end)

describe("a place to listen", function()
  it("that is taken ends the start with 1 and the remedy", function()
    local first = http.start { init = client.no_pool }
    local status, out = run("--transport http --port " .. first.port, "")
    assert.equal(1, status)
    assert.truthy(out:find(tostring(first.port), 1, true), out)
    assert.matches("%-%-port", out)
    assert.equal(0, (first:close()))
  end)

  it("that does not exist does so, too", function()
    local status, out = run("--transport http --port 0 --host 192.0.2.1", "",
      "SANDBOX_RUNNER_TOKEN=0123456789abcdef0123456789abcdef")
    assert.equal(1, status)
    assert.matches("192.0.2.1", out, 1, true)
  end)

  it("may be an IPv6 address", function()
    local server = http.start { args = { "--host", "::1" }, init = client.no_pool }
    assert.matches("^http://%[::1%]:%d+/mcp$", server.url)
    assert.equal(0, (server:close()))
  end)

  it("comes from init.lua when the command line names none", function()
    local probe = http.start { init = client.no_pool }
    local port = probe.port
    probe:close()
    local process = client.start { mute = true, args = { "--transport", "http" },
      init = client.no_pool .. "\nhttp.port = " .. port }
    assert.is_truthy(client.eventually(5, function()
      return process:stderr():find("http://127.0.0.1:" .. port .. "/mcp", 1, true)
    end))
    process:signal "TERM"
    assert.equal(0, (process:close()))
  end)
end)
