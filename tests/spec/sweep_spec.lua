local core = require "sandbox_runner.core"
local fake = require "spec.support.fake"
local sweep = require "sandbox_runner.sweep"

local sys = core.sys
local DEAD, ALIVE, STRANGER = ("d"):rep(32), ("a"):rep(32), ("5"):rep(32)

local function container(id, instance, deadline, labels)
  labels = labels or { ["sandbox-runner"] = "1", ["sandbox-runner.instance"] = instance,
    ["sandbox-runner.deadline"] = deadline and tostring(deadline) }
  return { Id = id, Labels = labels }
end

--- Sweeps what a fake engine lists. fn(state folder, owner) may prepare. Returns the
-- ids that were removed, as one text, and the state folder.
local function swept(list, prepare, script)
  script = script or {}
  script.containers = core.json.encode(core.json.array(list))
  local engine <close> = fake.start(script)
  local docker = assert(core.docker.open(engine.address))
  assert(docker:ping())
  local owner = sweep.owner(engine.folder .. "/state", error)
  if prepare then prepare(engine.folder .. "/state", owner) end
  local count, why = sweep.run(docker, owner)
  local removed = {}
  for _, entry in ipairs(engine:record()) do
    if entry.verb == "remove" then removed[#removed + 1] = entry.name end
  end
  local locks = sys.list(engine.folder .. "/state/instances")
  sweep.release(owner)
  return table.concat(removed, " "), count, locks, why
end

--- A lock file that nobody holds, two minutes old.
local function old_lock(state, name)
  local path = ("%s/instances/%s.lock"):format(state, name)
  fake.write(path, "")
  os.execute(("touch -d '2 minutes ago' '%s'"):format(path))
end

local function dead_lock(state) old_lock(state, DEAD) end

describe("sweep", function()
  it("removes what a dead owner left, and its lock file", fake.task(function()
    local removed, _, locks = swept({ container("c1", DEAD, os.time() + 1000), container("c2", DEAD) }, dead_lock)
    assert.equal("c1 c2", removed)
    assert.equal(1, #locks) -- our own
  end))

  it("keeps what a living owner has, in this process or another", fake.task(function()
    local other
    local removed, count, locks = swept({ container("c1", ALIVE, os.time() - 1000) }, function(state)
      other = assert(sys.lock(("%s/instances/%s.lock"):format(state, ALIVE)))
    end)
    other:close()
    assert.equal("", removed)
    assert.equal(0, count)
    assert.equal(2, #locks)
  end))

  it("keeps what is its own", fake.task(function()
    local list = { container("c1", nil, os.time() - 1000) }
    local removed = swept({}, nil, {})
    assert.equal("", removed)
    local engine <close> = fake.start {}
    local owner = sweep.owner(engine.folder .. "/state", error)
    list[1].Labels["sandbox-runner.instance"] = owner.instance
    engine:set { containers = core.json.encode(list) }
    local docker = assert(core.docker.open(engine.address))
    assert(docker:ping())
    assert.equal(0, sweep.run(docker, owner))
    sweep.release(owner)
    assert.same({}, sys.list(engine.folder .. "/state/instances"))
  end))

  it("keeps what nobody here knows until half a minute after its deadline", fake.task(function()
    local now = os.time()
    assert.equal("late", swept {
      container("early", STRANGER, now + 100), container("recent", STRANGER, now - 10),
      container("late", STRANGER, now - 60) })
  end))

  it("goes by the engine's clock", fake.task(function()
    local list = { container("c", STRANGER, 1700000000) }
    assert.equal("", swept(list, nil, { clock = "2023-11-14T22:13:40.5Z" })) -- 20 s later
    assert.equal("c", swept(list, nil, { clock = "2023-11-14T22:14:00.5Z" })) -- 40 s later
    assert.equal("c", swept(list, nil, { clock = "nonsense" }))
  end))

  it("never takes a label for a path", fake.task(function()
    local hostile = { "../../../etc/passwd", "/etc/passwd", "..", "", "%s", "a/b", "\27[31m", "x\0y", ("f"):rep(5000) }
    local list = {}
    for i, name in ipairs(hostile) do list[i] = container("c" .. i, name, os.time() + 100) end
    local removed, count = swept(list, function(state)
      assert(sys.mkdir_p(state .. "/instances/a"))
      fake.write(state .. "/instances/a/b.lock", "")
      fake.write(state .. "/x.lock", "")
    end)
    assert.equal("", removed)
    assert.equal(0, count)
  end))

  it("leaves alone what carries no labels of ours, or odd ones", fake.task(function()
    assert.equal("", swept { container("c1", nil, nil, {}), { Id = "c2" }, { Id = "c3", Labels = core.json.null },
      container("c4", nil, nil, { ["sandbox-runner.instance"] = 5, ["sandbox-runner.deadline"] = 5 }),
      container("c5", STRANGER, "soon"), container("c6", STRANGER, "nan"), container("c7", STRANGER) })
  end))

  it("counts what is gone meanwhile, keeps the lock of what stays", fake.task(function()
    local list = { container("c1", DEAD) }
    local _, count, locks = swept(list, dead_lock, { remove = { status = 404 } })
    assert.equal(1, count)
    assert.equal(1, #locks)
    _, count, locks = swept(list, dead_lock, { remove = { status = 500 } })
    assert.equal(0, count)
    assert.equal(2, #locks) -- the next sweep tries again
  end))

  it("cleans lock files without sandboxes and nothing else", fake.task(function()
    local _, _, locks = swept({}, function(state)
      dead_lock(state)
      fake.write(state .. "/instances/notes.txt", "mine")
      fake.write(state .. "/instances/nothex.lock", "")
    end)
    assert.equal(3, #locks)
    local text = table.concat(locks, " ")
    assert.matches("notes.txt", text, 1, true)
    assert.matches("nothex.lock", text, 1, true)
    assert.not_matches(DEAD, text, 1, true)
  end))

  it("removes agents of other versions when they are a day old, by the engine's clock", fake.task(function()
    local function volume(name, hours)
      return { Name = name, CreatedAt = os.date("!%Y-%m-%dT%H:%M:%SZ", os.time() - hours * 3600) }
    end
    local engine <close> = fake.start { volume_list = core.json.encode { Volumes = core.json.array {
      volume("kept", 48), volume("old", 25), volume("new", 23), { Name = "odd", CreatedAt = "yesterday" } } } }
    local docker = assert(core.docker.open(engine.address))
    assert(docker:ping())
    local owner = sweep.owner(engine.folder .. "/state", error)
    assert.equal(0, sweep.run(docker, owner, "kept"))
    sweep.release(owner)
    local removed = {}
    for _, entry in ipairs(engine:record()) do
      if entry.verb == "remove_volume" then removed[#removed + 1] = entry.name end
    end
    assert.same({ "old" }, removed)
  end))

  it("leaves alone what ends by itself: removals under way, and young ones that run", fake.task(function()
    local function left(id, state, age)
      local c = container(id, DEAD)
      c.State, c.Created = state, os.time() - age
      return c
    end
    local removed = swept({ left("removing", "removing", 500), left("young", "running", 5), left("old", "running", 90),
      left("made", "created", 5), left("over", "exited", 5) }, dead_lock)
    assert.equal("old made over", removed)
  end))

  it("keeps the lock file of an owner that died a moment ago: the engine may not be done", fake.task(function()
    local _, _, locks = swept({}, function(state) fake.write(("%s/instances/%s.lock"):format(state, DEAD), "") end)
    assert.equal(2, #locks)
  end))

  it("reads the engine's clock in any time zone", fake.task(function()
    for zone, shift in pairs { ["Z"] = 0, ["+02:00"] = 7200, ["-07:00"] = -25200, ["+05:30"] = 19800 } do
      local clock = os.date("!%Y-%m-%dT%H:%M:%S.5", os.time() + shift) .. zone
      local removed = swept({ container("over", STRANGER, os.time() - 60), container("not", STRANGER, os.time() + 60) },
        nil, { clock = clock })
      assert.equal("over", removed)
    end
  end))

  it("says what went wrong with the list", fake.task(function()
    local _, count, _, why = swept({}, nil, { list = { status = 500, message = "no list" } })
    assert.is_nil(count)
    assert.equal("no list", why.message)
    for _, body in ipairs { "nonsense", "5", '"text"' } do
      _, count, _, why = swept({}, nil, { list = { body = body } })
      assert.is_nil(count)
      assert.equal("protocol", why.code)
    end
  end))

  it("works without a state folder by deadlines alone", fake.task(function()
    local engine <close> = fake.start { containers = core.json.encode {
      container("old", STRANGER, os.time() - 100), container("new", STRANGER, os.time() + 100) } }
    local docker = assert(core.docker.open(engine.address))
    assert(docker:ping())
    local owner = sweep.owner(nil, error)
    assert.matches("^%x+$", owner.instance)
    assert.equal(1, sweep.run(docker, owner))
    sweep.release(owner)
  end))

  it("says when there can be no lock file", function()
    local said
    local owner = sweep.owner("/proc/nowhere", function(text) said = text end)
    assert.is_nil(owner.lock)
    assert.matches("no lock file", said)
    sweep.release(owner)
  end)
end)
