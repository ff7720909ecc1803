/* Every allocation of Lua fails once under tasks, events, the engine's calls and
 * the system's: nothing may crash, hang or leak. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include <lauxlib.h>
#include <lualib.h>

#include "faulty_alloc.h"
#include "lua_bind.h"

static int run_chunk(lua_State *L)
{
    luaL_requiref(L, "_G", luaopen_base, 1);
    luaL_requiref(L, "core", luaopen_sandbox_runner_core, 1);
    if (luaL_loadstring(L, lua_touserdata(L, 1)) != LUA_OK)
        return lua_error(L);
    lua_call(L, 0, 0);
    return 0;
}

/* One run in a fresh state; whether a failure was injected. What failing tasks
 * say on stderr is not wanted here. */
static bool run_once(const char *chunk, long nth, long fail)
{
    struct faults faults = {.countdown = -1, .fail = fail};
    lua_State *L = lua_newstate(faulty_alloc, &faults);
    int log = dup(STDERR_FILENO), nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC), status;

    assert_non_null(L);
    /* A finaliser that finds no memory for its call is lost; that is Lua's way, and not
     * what is tested here. lua_close() runs them all, when memory is back. */
    lua_gc(L, LUA_GCSTOP);
    dup2(nowhere, STDERR_FILENO);
    lua_pushcfunction(L, run_chunk);
    lua_pushlightuserdata(L, (void *)(uintptr_t)chunk);
    faults.countdown = nth;
    status = lua_pcall(L, 1, 0, 0);
    faults.countdown = -1;
    dup2(log, STDERR_FILENO);
    close(log);
    close(nowhere);
    /* Not always LUA_ERRMEM: a stack that cannot grow is an error of its own. */
    if (status != LUA_OK && faults.hits == 0)
        fail_msg("allocation %ld: %s", nth, luaL_tolstring(L, -1, NULL));
    lua_close(L);
    assert_int_equal(faults.live, 0);
    return faults.hits > 0;
}

static void sweep(const char *chunk)
{
    sweep_faults(run_once, chunk);
}

static void test_tasks(void **state)
{
    (void)state;
    sweep("local loop = core.loop\n"
          "loop.run(function()\n"
          "  local ev = loop.event()\n"
          "  loop.spawn(function(a, b) ev:wait(5); return a, b end, 1, 2)\n"
          "  local task = loop.spawn(function()\n"
          "    local c <close> = setmetatable({}, {__close = function() loop.sleep(0) end})\n"
          "    loop.sleep(1000)\n"
          "  end)\n"
          "  loop.sleep(0)\n"
          "  task:cancel('enough')\n"
          "  ev:set({})\n"
          "  ev:wait()\n"
          "  loop.event():wait(1)\n"
          "end)\n");
}

static void test_engine(void **state)
{
    (void)state;
    sweep("core.loop.run(function()\n"
          "  core.docker.open('nonsense')\n"
          "  local d = core.docker.open('unix:///nowhere/engine.sock')\n"
          "  d:ping()\n"
          "  d:image('a/b')\n"
          "  d:create('n', {image = 'i', agent_volume = 'v', instance = 'x', run = 'r', uid = 60600,\n"
          "    memory = 1 << 28, nano_cpus = 10^9 // 1 | 0, pids = 64, open_files = 64,\n"
          "    file_size = 1 << 20, scratch = 1 << 20, tmp = 1 << 20, shm = 1 << 20, files = 64,\n"
          "    deadline = 1, volumes = {'/data', '/more'}})\n"
          "  d:put_archive('n', 'tar')\n"
          "  d:attach('n', 100)\n"
          "  local pull = d:pull('a', 'b')\n"
          "  if pull then core.loop.sleep(1); pull:read(); pull:finished() end\n"
          "  d:import('a', 'b', '/dev/null', 1)\n"
          "  d:build('a', 'b', 'tar')\n"
          "end)\n");
}

static void test_system(void **state)
{
    (void)state;
    sweep("local sys = core.sys\n"
          "sys.getenv('PATH'); sys.home(); sys.exe(); sys.digest('x'); sys.random_hex(16)\n"
          "sys.list('/'); sys.list('/nowhere'); sys.stat('/'); sys.stat('/nowhere')\n"
          "sys.lock('/nowhere/x')\n");
}

/* Made at the start, they cannot be left half made by a failure later on. */
static void test_metatables_are_there_from_the_start(void **state)
{
    static const char *const with_gc[] = {"sr.op", "sr.task", "sr.stdio.op", "sr.dir", "sr.lock",
                                          "sr.call", "sr.docker", "sr.box", "sr.history",
                                          "sr.json.out", "sr.json.tree"};
    lua_State *L = luaL_newstate();

    (void)state;
    assert_non_null(L);
    luaL_requiref(L, "core", luaopen_sandbox_runner_core, 0);
    for (size_t i = 0; i < sizeof with_gc / sizeof with_gc[0]; i++)
        if (luaL_getmetatable(L, with_gc[i]) != LUA_TTABLE ||
            lua_getfield(L, -1, "__gc") != LUA_TFUNCTION)
            fail_msg("%s has no finaliser", with_gc[i]);
    assert_int_equal(luaL_getmetatable(L, "sr.error"), LUA_TTABLE);
    assert_int_equal(lua_getfield(L, -1, "__tostring"), LUA_TFUNCTION);
    lua_close(L);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tasks),
        cmocka_unit_test(test_engine),
        cmocka_unit_test(test_system),
        cmocka_unit_test(test_metatables_are_there_from_the_start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
