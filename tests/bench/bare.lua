--- Programs of an image without any container: its file system is unpacked into a
-- folder, and chroot starts them there. The floor that isolation is compared with.

local core = require "sandbox_runner.core"
local shell = require "bench.shell"

local M = {}

local UNPACK = [[
set -e
export DOCKER_HOST=%s
mkdir %s
id=$(docker create %s true)
trap 'docker rm "$id" >/dev/null' EXIT
docker export "$id" | tar -xf - -C %s
]]

local function why_not()
  if core.sys.uid() ~= 0 then return "chroot needs root" end
  for _, program in ipairs { "docker", "chroot", "tar" } do
    if not shell.has(program) then return program .. " is not here" end
  end
  return nil
end

--- The folder of a language's image, made at the first call. Returns it | nil, text.
function M.root(bench, language)
  local why = why_not()
  if why then return nil, why end
  local folder = ("%s/root-%s"):format(bench.folder, language)
  if core.sys.stat(folder) then return folder end
  local path = shell.quote(folder)
  local ok, trouble = pcall(shell.timed, UNPACK:format(shell.quote(bench.address), path,
    shell.quote(bench.machine.images[language]), path))
  if not ok then return nil, "the image could not be unpacked: " .. trouble end
  return folder
end

--- A file in the folder; path begins with /.
function M.write(root, path, text)
  local file <close> = assert(io.open(root .. path, "w"))
  file:write(text)
end

function M.command(root, words)
  return shell.line(table.move(words, 1, #words, 3, { "chroot", root }))
end

return M
