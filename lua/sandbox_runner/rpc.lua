--- JSON-RPC 2.0: from one line of text to a message, and answers to text.
--
-- Ids are kept as the raw token of the line, because a number may have more
-- digits than a double holds.
local core = require "sandbox_runner.core"

local json = core.json

local LONG_BYTES = 65536

local rpc = {}

rpc.PARSE_ERROR, rpc.INVALID_REQUEST, rpc.METHOD_NOT_FOUND = -32700, -32600, -32601
rpc.INVALID_PARAMS, rpc.INTERNAL_ERROR = -32602, -32603
-- Of revision 2026-07-28.
rpc.HEADER_MISMATCH, rpc.MISSING_CAPABILITY, rpc.UNSUPPORTED_VERSION = -32020, -32021, -32022

--- Messages that one batch may hold; of a larger one none is read.
rpc.MAX_BATCH = 100

local MEMBERS = { jsonrpc = true, id = true, method = true, params = true }

--- Whether a decoded value is a JSON object (an empty one included).
function rpc.is_object(value)
  return type(value) == "table" and getmetatable(value) ~= json.array_mt
end

--- A decoded member, with JSON null read as absent.
function rpc.optional(value)
  if value == json.null then return nil end
  return value
end

--- A key for tables of ids: equal when type and value are. token is the raw
-- text, needed for integers beyond 2^53. Returns nil for what cannot be an id.
function rpc.key(value, token)
  if type(value) == "string" then return "s:" .. value end
  if math.type(value) == "integer" then return ("n:%d"):format(value) end
  if math.type(value) == "float" and token and token:find("^-?%d+$") then return "n:" .. token end
end

local function echo(token)
  return type(token) == "string" and json.raw(token) or token
end

--- The answer to the request whose raw id is token (text, or an `id` that one of
-- these two functions made).
function rpc.result(token, result)
  return { jsonrpc = "2.0", id = echo(token), result = result }
end

--- An error; token nil: the id could not be read, so there is none.
function rpc.error(token, code, message, data)
  return { jsonrpc = "2.0", id = echo(token),
    error = { code = code, message = message, data = data } }
end

function rpc.notification(method, params)
  return { jsonrpc = "2.0", method = method, params = params }
end

local function bad(code, message, token)
  return { kind = "bad", code = code, message = message, id = token }
end

local function unknown_member(object)
  for key in pairs(object) do
    if not MEMBERS[key] then return key end
  end
end

local function looks_like_response(object)
  return object.method == nil and (object.result ~= nil or object.error ~= nil)
end

-- Why a request with a usable id is none, or nil.
local function fault(object)
  if object.jsonrpc ~= "2.0" then return 'jsonrpc must be "2.0"' end
  if object.method == nil then return "method is missing" end
  if type(object.method) ~= "string" then return "method must be a string" end
  local key = unknown_member(object)
  if key then return ("unknown member %q in a request"):format(key) end
end

local function read_params(object)
  local params = rpc.optional(object.params)
  if params ~= nil and not rpc.is_object(params) then return nil, "params must be an object" end
  return params or {}
end

-- A progress token that no double holds comes back as it was written, like an id.
local function raw_progress_token(params, text)
  local meta = params._meta
  if not rpc.is_object(meta) or math.type(meta.progressToken) ~= "float" then return nil end
  local token = text:match('"progressToken"%s*:%s*(-?%d+)%s*[,}]')
  return token and json.raw(token)
end

local function read_request(object, text, token)
  local key = rpc.key(object.id, token)
  if not key then
    return bad(rpc.INVALID_REQUEST, "id must be a string or an integer")
  end
  local why = fault(object)
  if why then return bad(rpc.INVALID_REQUEST, why, token) end
  local params
  params, why = read_params(object)
  if not params then return bad(rpc.INVALID_PARAMS, why, token) end
  return { kind = "request", id = token, key = key, method = object.method, params = params, bytes = #text,
    progress_token = raw_progress_token(params, text) }
end

local function read_notification(object, text)
  if fault(object) then return { kind = "ignored" } end
  local params = read_params(object)
  if not params then return { kind = "ignored" } end
  return { kind = "notification", method = object.method, params = params, text = text }
end

local function read_response(object, token)
  local ok = rpc.is_object(object.result)
  return { kind = "response", key = rpc.key(object.id, token), result = ok and object.result or nil,
    error = not ok and (rpc.is_object(object.error) and object.error or { message = "no result" }) or nil }
end

local function read_object(object, text, token)
  if looks_like_response(object) then return read_response(object, token) end
  if object.id ~= nil then return read_request(object, text, token) end
  if object.method ~= nil then return read_notification(object, text) end
  return bad(rpc.INVALID_REQUEST, "not a request: method is missing")
end

-- The texts of the elements of a valid JSON array.
local function split_array(text)
  local items, depth, start, at = {}, 0, nil, 1
  while true do
    local here = text:find('["%[%]{},]', at)
    if not here then return items end
    local c = text:sub(here, here)
    at = here + 1
    if c == '"' then
      repeat
        local stop = text:find('["\\]', at)
        at = stop + (text:sub(stop, stop) == "\\" and 2 or 1)
      until text:sub(stop, stop) == '"'
    elseif c == "[" or c == "{" then
      depth = depth + 1
      start = start or at
    elseif c ~= "," then
      depth = depth - 1
    end
    if (c == "," and depth == 1) or depth == 0 then
      items[#items + 1] = text:sub(start, here - 1)
      start = at
      if depth == 0 then return items end
    end
  end
end

local function read_value(value, text, nul, token)
  local message
  if rpc.is_object(value) then
    message = read_object(value, text, token)
  else
    message = bad(rpc.INVALID_REQUEST, "a message must be a JSON object")
  end
  message.nul = nul
  return message
end

-- The text of an id that the decoder has kept whole, or nil.
local function token_of(id)
  if type(id) == "string" or math.type(id) == "integer" then return json.encode(id) end
end

local function has_large_ids(values)
  for _, value in ipairs(values) do
    if rpc.is_object(value) and math.type(value.id) == "float" then return true end
  end
end

-- Taking an array apart once more is for the few ids that need it, and for short ones.
local function read_batch(values, text, nul)
  local batch = { kind = "batch", items = {}, count = #values }
  if batch.count > rpc.MAX_BATCH then return batch end
  local texts = #text <= LONG_BYTES and has_large_ids(values) and split_array(text) or {}
  for i, value in ipairs(values) do
    local token = rpc.is_object(value) and (token_of(value.id) or texts[i] and json.raw_id(texts[i])) or nil
    batch.items[i] = read_value(value, texts[i] or "", nul, token)
    batch.items[i].bytes = #text // batch.count
  end
  return batch
end

--- The raw id of a text that is no JSON (or only the start of one), when its
-- brackets still make sense and it looks like a request; or nil.
function rpc.salvage_id(text)
  if not text:find('"method"', 1, true) then return nil end
  local token = json.raw_id(text)
  if token and (token:find('^"') or token:find("^-?%d+$")) then return token end
end

--- Reads one message. Returns a table with `kind`:
--   "request"      id (raw token), key (see rpc.key), method, params (a table)
--   "notification" method, params, text
--   "batch"        items, a list of such tables, and count, how many there were
--   "bad"          code, message and, where it can be read, id: to be answered
--   "response"     key, and result (an object) or error (an object)
--   "ignored", "blank": nothing to do.
-- A request has bytes, the length of its text, and progress_token when that is an
-- integer beyond 2^53 (params holds it rounded then). nul = true marks a message in
-- whose strings U+0000 was replaced by U+FFFD.
-- batches: whether they are served; a long one that is not is not even read.
function rpc.parse(text, batches)
  if not text:find("%S") then return { kind = "blank" } end
  if not batches and #text > LONG_BYTES and text:find("^%s*%[") then
    return { kind = "batch", items = {}, count = 0 }
  end
  local value, err = json.decode(text)
  local nul
  if value == nil and err.nul then
    value, err = json.decode(text, { nul = "replace" })
    nul = true
  end
  if value == nil then
    return bad(rpc.PARSE_ERROR, "not JSON: " .. err.message, rpc.salvage_id(text))
  end
  if getmetatable(value) == json.array_mt then return read_batch(value, text, nul) end
  return read_value(value, text, nul, rpc.is_object(value) and value.id ~= nil and json.raw_id(text) or nil)
end

--- The key of params.requestId of a notifications/cancelled.
function rpc.cancelled_key(message)
  local value = message.params.requestId
  local token
  if math.type(value) == "float" then
    token = message.text:match('"requestId"%s*:%s*(-?%d+)')
  end
  return rpc.key(value, token)
end

return rpc
