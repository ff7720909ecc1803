/* Every allocation of Lua fails once: nothing may crash, and nothing may leak
 * (that part is the leak sanitizer's to say, for memory outside Lua, and the
 * counter's below, for Lua's own). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include <lauxlib.h>
#include <lualib.h>

#include "faulty_alloc.h"
#include "folder_rig.h"
#include "lua_bind.h"

static int run_chunk(lua_State *L)
{
    const char *chunk = lua_touserdata(L, 1);

    luaL_requiref(L, "_G", luaopen_base, 1);
    luaL_requiref(L, "string", luaopen_string, 1);
    sr_lua_open_err(L);
    sr_lua_open_text(L);
    lua_setglobal(L, "text");
    sr_lua_open_json(L);
    lua_setglobal(L, "json");
    sr_lua_open_history(L);
    lua_setglobal(L, "history");
    lua_pushstring(L, getenv("SR_TEST_DB"));
    lua_setglobal(L, "path");
    if (luaL_loadstring(L, chunk) != LUA_OK)
        return lua_error(L);
    lua_call(L, 0, 0);
    return 0;
}

/* One run in a fresh state. Returns whether a failure was injected. */
static bool run_once(const char *chunk, long nth, long fail)
{
    struct faults faults = {.countdown = -1, .fail = fail};
    lua_State *L = lua_newstate(faulty_alloc, &faults);
    int status;

    assert_non_null(L);
    faults.countdown = nth;
    lua_pushcfunction(L, run_chunk);
    lua_pushlightuserdata(L, (void *)(uintptr_t)chunk);
    status = lua_pcall(L, 1, 0, 0);
    faults.countdown = -1;
    if (status != LUA_OK && (status != LUA_ERRMEM || faults.hits == 0))
        fail_msg("allocation %ld: %s", nth, luaL_tolstring(L, -1, NULL));
    lua_close(L);
    assert_int_equal(faults.live, 0);
    return faults.hits > 0;
}

static void sweep(const char *chunk)
{
    sweep_faults(run_once, chunk);
}

static void test_text(void **state)
{
    (void)state;
    sweep("local s = ('a\\xFF\\x1B'):rep(2000) "
          "assert(text.is_utf8(text.repair(s))) text.visible(s) text.cut(s, 3000) "
          "text.prefix(s, 3000)");
}

static void test_decode(void **state)
{
    (void)state;
    sweep("local v = assert(json.decode('{\"a\":[1,2.5,\"x\",[[]]],\"b\":{\"c\":null},\"b\":1,"
          "\"long key that is no short string for Lua, as it has more than forty\":[true]}')) "
          "assert(v.a[4][1]) "
          "assert(json.decode('\"\\\\u0000\"', {nul = 'replace'}))");
}

static void test_decode_error(void **state)
{
    (void)state;
    sweep("local v, e = json.decode('\"\\\\u0000\"') assert(not v and e.nul and tostring(e)) "
          "assert(not json.decode('[1')) assert(json.raw_id('{\"id\":1}'))");
}

static void test_encode(void **state)
{
    (void)state;
    sweep("local t = {id = json.raw('12'), list = {1, 2.5, 'x'}, none = json.null, "
          "e = json.array()} "
          "for i = 1, 20 do t['key' .. i] = ('\\n'):rep(100) end assert(json.encode(t))");
}

static void test_encode_error(void **state)
{
    (void)state;
    sweep("local ok, m = pcall(json.encode, {a = {{b = print}}}) "
          "if not tostring(m):find('memory') then assert(m:find('a[1].b', 1, true)) "
          "else error(m, 0) end");
}

static void test_history(void **state)
{
    (void)state;
    sweep("local db <close> = assert(history.open(path)) "
          "db:prune(3) "
          "assert(db:add{timestamp = 1, language = 'c', code_snippet = ('x'):rep(300), "
          "status = 'ok', duration_ms = 1.5, truncated = true, run_id = 'r'}) "
          "local rows = assert(db:recent(2)) assert(rows[1].truncated == true) "
          "assert(db:get(rows[1].id).run_id == 'r' and db:get('r').id == rows[1].id) "
          "assert(db:count() > 0) assert(not history.open('/nowhere/at/all')) "
          "assert(tostring(db))");
}

/* Not a sweep: what the bindings refuse and give back. */
static void test_history_values(void **state)
{
    (void)state;
    run_once("local db = assert(history.open(path)) "
             "local run = {timestamp = 2.5, language = 'c', code_snippet = 'a\\0b', status = 'ok', "
             "duration_ms = 1, exit_code = 3, stdout_size = 4, truncated = false} "
             "local id = assert(db:add(run)) local r = db:recent(1)[1] "
             "assert(r.id == id and r.timestamp == 2.5 and r.code_snippet == 'a\\0b') "
             "assert(r.exit_code == 3 and r.stdout_size == 4 and r.stderr_size == 0) "
             "assert(r.truncated == false and r.reason == nil and r.cpu_ms == nil) "
             "assert(db:get(id).code_snippet == 'a\\0b' and select('#', db:get(id + 1)) == 1) "
             "assert(db:get(id + 1) == nil and db:get('x') == nil and db:get(tostring(id)) == nil) "
             "assert(not pcall(db.get, db, 1.5) and not pcall(db.get, db)) "
             "for k, v in next, {language = 1, timestamp = 'x', exit_code = 1.5, run_id = {}} do "
             "  local old = run[k] run[k] = v "
             "  local ok, m = pcall(db.add, db, run) run[k] = old "
             "  assert(not ok and m:find(k, 1, true), m) end "
             "run.duration_ms = 0/0 local n, e = db:add(run) "
             "assert(n == nil and e.code == 'invalid') "
             "assert(#db:recent(0) == 0 and not pcall(db.prune, db, -1)) "
             "assert(not pcall(history.open, 'a\\0b') and getmetatable(db) == false) "
             "db:close() db:close() local ok, m = pcall(db.count, db) "
             "assert(not ok and m:find('history is closed')) "
             "local aside = assert(history.set_aside(path)) "
             "assert(history.set_aside(path) == nil) "
             "assert(select(2, history.set_aside(path)).code == 'not_found') "
             "local moved <close> = assert(history.open(aside)) assert(moved:count() > 0)",
             -1, 0);
}

static int setup(void **state)
{
    return folder_setup(state) < 0 ? -1 : setenv("SR_TEST_DB", path, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_decode_error),
        cmocka_unit_test(test_encode),
        cmocka_unit_test(test_encode_error),
        cmocka_unit_test(test_history),
        cmocka_unit_test(test_history_values),
    };

    return cmocka_run_group_tests(tests, setup, folder_teardown);
}
