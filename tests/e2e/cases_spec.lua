-- The tables of cases themselves.
local FILES = { runs = "R", attacks = "A", arguments = "G" }

describe("the tables of cases", function()
  for name, letter in pairs(FILES) do
    it("give each case of " .. name .. " an id of its own", function()
      local seen = {}
      for _, group in ipairs(require("e2e.cases." .. name)) do
        for i = 2, #group do
          local id = group[i][1]:match("^" .. letter .. "%d%d%d ")
          assert.is_string(id, group[i][1])
          assert.is_nil(seen[id], id)
          seen[id] = true
        end
      end
      assert.is_truthy(next(seen))
    end)
  end
end)
