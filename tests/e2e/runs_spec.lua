-- Programs of many kinds, run side by side over one server.
local check = require "e2e.check"
local client = require "e2e.client"
local sandboxes = require "e2e.sandboxes"

local WIDTH = 8

local function flatten(groups)
  local cases = {}
  for _, group in ipairs(groups) do
    for i = 2, #group do
      if not group[i].alone then cases[#cases + 1] = group[i] end
    end
  end
  return cases
end

for _, name in ipairs { "runs", "attacks" } do
  describe(name, function()
    local groups, server, outcomes, instance = require("e2e.cases." .. name), nil, nil, nil

    setup(function()
      server = client.start { seconds = 300, init = client.no_pool }
      instance = server:instance()
      outcomes = check.run_all(server, flatten(groups), WIDTH)
    end)
    teardown(function() server:close() end)

    for _, group in ipairs(groups) do
      describe(group[1], function()
        for i = 2, #group do
          local case = group[i]
          it(case[1], function()
            if case.alone then outcomes[case] = check.run_all(server, { case }, 1)[case] end
            assert.is_nil(check.verdict(server, case, outcomes[case]))
          end)
        end
      end)
    end

    it("leaves no container behind, and the server well", function()
      assert.equal("still well\n", assert(server:run("python", "print('still well')")).stdout)
      assert.is_truthy(sandboxes.gone_after(instance, 3))
      assert.is_true(server:alive())
    end)
  end)
end
