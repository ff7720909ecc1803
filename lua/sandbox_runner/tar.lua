--- A tar archive in memory, just enough to hand small files to an engine.

local M = {}

-- POSIX.1-1988 ustar: the checksum is computed with its own field as blanks.
local function header(name, mode, size, kind, link)
  local head = string.pack("c100c8c8c8c12c12", name, ("%07o"):format(mode), "0000000", "0000000",
    ("%011o"):format(size), "00000000000")
  local tail = string.pack("c1c100c6c2c32c32c8c8c155c12", kind, link, "ustar", "00", "root", "root", "", "", "", "")
  local sum = 8 * 32
  for _, part in ipairs { head, tail } do
    for i = 1, #part do sum = sum + part:byte(i) end
  end
  return head .. ("%06o\0 "):format(sum) .. tail
end

local function padded(data)
  return data .. ("\0"):rep(-#data % 512)
end

--- Archive of plain files that all may read: a list of { name, data }.
function M.files(list)
  local parts = {}
  for i, file in ipairs(list) do parts[i] = header(file[1], 420, #file[2], "0", "") .. padded(file[2]) end
  return table.concat(parts) .. ("\0"):rep(1024)
end

--- Archive of one executable that appears under its name all at once: first
-- under another name, then as a hard link to that. An interrupted transfer
-- thus leaves no half program behind.
function M.executable(name, data)
  local temporary = "." .. name .. ".new"
  return header(temporary, 493, #data, "0", "") .. padded(data)
    .. header(name, 493, 0, "1", temporary) .. ("\0"):rep(1024)
end

return M
