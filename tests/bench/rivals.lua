--- What one would do without this program: the docker client, the engine's API.

local core = require "sandbox_runner.core"
local shell = require "bench.shell"

local M = {}

M.PROGRAM = 'print("hello")'

--- The words of `docker run` for a program that prints hello.
function M.docker_words(bench)
  return { "docker", "run", "--rm", "--network", "none", "--memory", "256m", "--cpus", "0.5", "--read-only",
    bench.machine.images.python, "python", "-c", M.PROGRAM }
end

function M.docker_command(bench)
  return shell.line(M.docker_words(bench), { DOCKER_HOST = bench.address })
end

--- n of them, four at a time.
function M.docker_many(bench, n)
  return ("export DOCKER_HOST=%s; seq %d | xargs -P 4 -I{} %s"):format(shell.quote(bench.address), n,
    (shell.line(M.docker_words(bench)):gsub("^exec ", "")))
end

--- Create, start, wait, logs, remove in one curl, which keeps the connection.
function M.api_command(bench)
  local name = "sandbox-runner-bench-" .. core.sys.random_hex(8)
  local body = core.json.encode { Image = bench.machine.images.python,
    Cmd = core.json.array { "python", "-c", M.PROGRAM },
    HostConfig = { NetworkMode = "none", Memory = 256 << 20, NanoCpus = 500000000, ReadonlyRootfs = true } }
  local base = "http://engine/containers/"
  local function call(method, path) return { "-s", "--fail", "-X", method, base .. path } end
  local create = call("POST", "create?name=" .. name)
  table.move({ "-H", "Content-Type: application/json", "-d", body }, 1, 4, #create + 1, create)
  local words = { "curl" }
  for i, part in ipairs { create, call("POST", name .. "/start"), call("POST", name .. "/wait"),
    call("GET", name .. "/logs?stdout=1"), call("DELETE", name) } do
    if i > 1 then words[#words + 1] = "--next" end
    table.move({ "--unix-socket", bench.address:match("^unix://(.*)$") }, 1, 2, #words + 1, words)
    table.move(part, 1, #part, #words + 1, words)
  end
  return shell.line(words)
end

return M
