--- Compares a result of run_code with what a case expects, and runs tables of cases.
--
-- Words of an expectation: any field of the result by its name (a list means any
-- of them, false means absent; status is "success" and exit_code 0 when neither
-- is named); out_has, err_has, hint_has (one text or several); lacks (texts in
-- neither stream); stdout_length, stdout_max, stderr_max (bytes); within
-- (seconds until the answer); check (function(result) -> nil or what is wrong);
-- refused (texts of the refusal: the run must not start).
local client = require "e2e.client"
local json = require "e2e.json"

local check = {}

local function list(value)
  return type(value) == "table" and value ~= json.null and value or { value }
end

local function show(value)
  local text = type(value) == "string" and ("%q"):format(value):gsub("\\\n", "\\n") or tostring(value)
  return #text > 400 and text:sub(1, 400) .. "..." or text
end

local FIELDS = { "status", "reason", "exit_code", "signal", "stdout", "stderr", "stdout_bytes", "stderr_bytes",
  "truncated", "oom_killed", "language", "image", "compile_output" }

local function any_of(values, got)
  for _, value in ipairs(values) do
    if value == got or (value == false and got == nil) then return true end
  end
  return false
end

local function check_fields(add, case, result)
  local expected = {}
  for _, name in ipairs(FIELDS) do expected[name] = case[name] end
  if case.status == nil and case.exit_code == nil then expected.status, expected.exit_code = "success", 0 end
  for name, value in pairs(expected) do
    if not any_of(list(value), result[name]) then
      local wanted = {}
      for i, v in ipairs(list(value)) do wanted[i] = show(v) end
      add("%s is %s, wanted %s", name, show(result[name]), table.concat(wanted, " or "))
    end
  end
end

local function check_texts(add, case, result)
  for word, field in pairs { out_has = "stdout", err_has = "stderr", hint_has = "hint" } do
    for _, text in ipairs(case[word] and list(case[word]) or {}) do
      if not tostring(result[field]):find(text, 1, true) then
        add("%s lacks %s: %s", field, show(text), show(result[field]))
      end
    end
  end
  for _, text in ipairs(case.lacks or {}) do
    if (result.stdout .. result.stderr):find(text, 1, true) then add("the output has %s", show(text)) end
  end
end

local function check_sizes(add, case, result)
  if case.stdout_length and #result.stdout ~= case.stdout_length then
    add("stdout has %d bytes, wanted %d", #result.stdout, case.stdout_length)
  end
  for word, field in pairs { stdout_max = "stdout", stderr_max = "stderr" } do
    if case[word] and #result[field] > case[word] then
      add("%s has %d bytes, at most %d wanted", field, #result[field], case[word])
    end
  end
end

-- What holds for every result, whatever was run.
local function check_shape(add, outcome)
  local result = outcome.answer.structuredContent
  if json.encode(result) ~= json.encode(json.decode(outcome.answer.content[1].text)) then
    add("the text part differs from the structured one")
  end
  for _, name in ipairs { "stdout", "stderr", "status", "reason", "language", "run_id" } do
    if type(result[name]) ~= "string" then add("%s is %s", name, show(result[name])) end
  end
  for _, name in ipairs { "duration_ms", "stdout_bytes", "stderr_bytes" } do
    if type(result[name]) ~= "number" then add("%s is %s", name, show(result[name])) end
  end
  if result.exit_code == nil then add("exit_code is missing") end
end

local function check_refusal(add, case, outcome)
  if not outcome.answer.isError then return add("it ran: %s", show(outcome.answer.content[1].text)) end
  if outcome.answer.structuredContent then add("a refusal has structured content") end
  for _, text in ipairs(list(case.refused)) do
    if not outcome.answer.content[1].text:find(text, 1, true) then
      add("the refusal lacks %s: %s", show(text), show(outcome.answer.content[1].text))
    end
  end
end

--- Whether an answer took longer than the case allows, be it by a busy machine.
function check.is_late(case, outcome)
  return case.within ~= nil and outcome ~= nil and outcome.seconds ~= nil
    and outcome.seconds > case.within * client.slow
end

--- What is wrong with an outcome {answer = result of the call, seconds}, or nil.
function check.fault(case, outcome)
  local faults = {}
  local function add(...) faults[#faults + 1] = (...):format(select(2, ...)) end
  if not outcome then return "it was not run" end
  if outcome.failure then return outcome.failure end
  if check.is_late(case, outcome) then
    add("it took %.1f s, at most %g wanted", outcome.seconds, case.within)
  end
  if case.refused then
    check_refusal(add, case, outcome)
  elseif outcome.answer.isError then
    add("it was refused: %s", outcome.answer.content[1].text)
  else
    local result = outcome.answer.structuredContent
    check_shape(add, outcome)
    check_fields(add, case, result)
    check_texts(add, case, result)
    check_sizes(add, case, result)
    if case.check then
      local what = case.check(result)
      if what then add("%s", what) end
    end
  end
  return faults[1] and table.concat(faults, "; ")
end

local function arguments_of(case)
  if case.arguments then return case.arguments end
  return { language = case.py and "python" or "cpp", code = case.py or case.cpp, timeout_seconds = case.timeout }
end

--- The fault, if any, of a case that was run; an answer that came late is asked for
-- again, with nothing beside it.
function check.verdict(server, case, outcome)
  for _ = 1, 3 do
    if not check.is_late(case, outcome) then break end
    outcome = check.run_all(server, { case }, 1)[case]
  end
  return check.fault(case, outcome)
end

--- Runs all cases over one server, `width` at a time. Returns case -> outcome.
function check.run_all(server, cases, width)
  local outcomes, started, by_id, next_case, open = {}, {}, {}, 1, 0
  while next_case <= #cases or open > 0 do
    while open < width and next_case <= #cases do
      local case = cases[next_case]
      local id = server:post(case.tool or "run_code", arguments_of(case))
      by_id[id], started[id], open, next_case = case, client.now_ms(), open + 1, next_case + 1
    end
    assert(server:read(), "the server ended")
    for id, case in pairs(by_id) do
      local answer = server.answers[id]
      if answer then
        server.answers[id], by_id[id], open = nil, nil, open - 1
        outcomes[case] = { answer = answer.result, seconds = (client.now_ms() - started[id]) / 1000,
          failure = answer.error and "protocol error: " .. json.encode(answer.error) or nil }
      end
    end
  end
  return outcomes
end

return check
