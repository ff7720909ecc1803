--- Sealed text that a client keeps for us: the requestState of an
-- InputRequiredResult (2026-07-28, "Multi Round-Trip Requests").
--
-- "v1." base64(JSON of { e = expiry, v = value }) "." hex(HMAC-SHA-256). The code
-- covers the text as it is sent, so that no second spelling of it is valid, and
-- the text that it is bound to, which is not sent. The value can be read by
-- whoever has the text: it is protected against change, not against reading.
local core = require "sandbox_runner.core"

local state = {}

local State = {}
State.__index = State

local VERSION = "v1"
local MAX_BYTES = 65536

-- The length keeps a piece of the bound text from passing for sealed text.
local function code_of(self, body, bound_text)
  return core.crypto.hmac_sha256(self.secret, ("%s:%d:%s:%s"):format(VERSION, #bound_text, bound_text, body))
end

--- A sealer. secret: the key, the same wherever the text may come back, at
-- least 16 bytes. wall (optional): a clock of Unix seconds.
function state.new(secret, wall)
  assert(type(secret) == "string" and #secret >= 16, "a secret of 16 bytes or more is needed")
  return setmetatable({ secret = secret, wall = wall or core.loop.wall }, State)
end

--- Text that stands for a value (what JSON can hold, not nil) for ttl_s seconds.
-- bound_text: what it may be used for, and by whom; open wants the same. Throws
-- when the value cannot be sealed: it is too large, or JSON cannot give it back.
function State:seal(value, bound_text, ttl_s)
  assert(value ~= nil, "there is no state to seal")
  local json = core.json.encode { v = value, e = self.wall() + ttl_s }
  assert(core.json.decode(json))
  local body = core.crypto.base64(json)
  local text = ("%s.%s.%s"):format(VERSION, body, code_of(self, body, bound_text))
  if #text > MAX_BYTES then
    error(("the state takes %d bytes, of at most %d; keep less in it"):format(#text, MAX_BYTES), 2)
  end
  return text
end

local function payload_of(self, body)
  local json = core.crypto.unbase64(body)
  local payload = json and core.json.decode(json)
  if type(payload) ~= "table" or type(payload.e) ~= "number" then return nil, "the state is malformed" end
  if self.wall() >= payload.e then return nil, "the state has expired; make the call again without it" end
  return payload
end

--- The value that was sealed; or nil and why not. Never throws for what text is.
function State:open(text, bound_text)
  if type(text) ~= "string" then return nil, "the state must be a string" end
  if #text > MAX_BYTES then return nil, "the state is too long" end
  local version, body, code = text:match("^(v%d+)%.([%w+/=]+)%.(%x+)$")
  if version ~= VERSION then return nil, "the state is malformed" end
  if not core.crypto.equal(code, code_of(self, body, bound_text)) then
    return nil, "the state was not issued for this request by this server"
  end
  local payload, why = payload_of(self, body)
  if not payload then return nil, why end
  return payload.v
end

return state
