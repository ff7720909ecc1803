/* core.httpd when memory fails and when its Lua state is closed. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include <lauxlib.h>
#include <lualib.h>

#include "faulty_alloc.h"
#include "httpd_rig.h"
#include "lua_bind.h"

static struct {
    pthread_t thread;
    unsigned port; /* 0: was not sent */
} visitor;

/* A client that says all there is to say, and reads until it is let go. */
static void *visit(void *unused)
{
    static const char text[] =
        GET("/stream") POST("5") "hello" "POST /c HTTP/1.1\r\n" HOST
        "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" GET("/dropped");
    struct timeval limit = {.tv_sec = 20};
    char sink[1000];
    int fd;

    (void)unused;
    web.port = visitor.port;
    fd = web_connect();
    fcntl(fd, F_SETFL, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (send(fd, text, sizeof text - 1, MSG_NOSIGNAL) > 0)
        while (recv(fd, sink, sizeof sink, 0) > 0)
            ;
    close(fd);
    return NULL;
}

/* visit(port): sends a client there. */
static int start_visit(lua_State *L)
{
    visitor.port = (unsigned)luaL_checkinteger(L, 1);
    assert_int_equal(pthread_create(&visitor.thread, NULL, visit, NULL), 0);
    return 0;
}

static int run_chunk(lua_State *L)
{
    luaL_requiref(L, "_G", luaopen_base, 1);
    luaL_requiref(L, "core", luaopen_sandbox_runner_core, 1);
    lua_pushcfunction(L, start_visit);
    lua_setglobal(L, "visit");
    if (luaL_loadstring(L, lua_touserdata(L, 1)) != LUA_OK)
        return lua_error(L);
    lua_call(L, 0, 0);
    return 0;
}

static bool run_once(const char *chunk, long nth, long fail)
{
    struct faults faults = {.countdown = -1, .fail = fail};
    lua_State *L = lua_newstate(faulty_alloc, &faults);
    int log = dup(STDERR_FILENO), nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC), status;

    assert_non_null(L);
    visitor.port = 0;
    dup2(nowhere, STDERR_FILENO);
    lua_pushcfunction(L, run_chunk);
    lua_pushlightuserdata(L, (void *)(uintptr_t)chunk);
    faults.countdown = nth;
    status = lua_pcall(L, 1, 0, 0);
    faults.countdown = -1;
    dup2(log, STDERR_FILENO);
    close(log);
    close(nowhere);
    if (status != LUA_OK && faults.hits == 0)
        fail_msg("allocation %ld: %s", nth, luaL_tolstring(L, -1, NULL));
    lua_close(L);
    if (visitor.port)
        pthread_join(visitor.thread, NULL); /* its connection was closed with the state */
    assert_int_equal(faults.live, 0);
    return faults.hits > 0;
}

static const char lua_server[] =
    "local loop = core.loop\n"
    "loop.run(function()\n"
    "  local s = assert(core.httpd.listen{port = 0})\n"
    "  local _, port = s:address()\n"
    "  visit(port)\n"
    "  local r = s:accept()\n"
    "  assert(r:method() == 'GET' and r:target() == '/stream' and r:peer() == '127.0.0.1')\n"
    "  assert(r:header('HOST') == 'a' and not r:header('x'))\n"
    "  loop.spawn(function() r:wait_gone() end)\n"
    "  local st <close> = r:stream(200, {['Content-Type'] = 'text/event-stream', X = 'y'})\n"
    "  st:write(('x'):rep(100))\n"
    "  loop.sleep(0)\n"
    "  st:close()\n"
    "  for i = 1, 2 do\n"
    "    r = s:accept()\n"
    "    local body = assert(r:read(1000))\n"
    "    assert(body == 'hello' or body == 'abc')\n"
    "    r:respond(200, {['Content-Type'] = 'text/plain'}, body)\n"
    "  end\n"
    "  r = s:accept()\n"
    "  s:stats()\n"
    "  r = nil\n"
    "  collectgarbage()\n"
    "end)\n";

static void test_lua_without_memory(void **state)
{
    (void)state;
    sweep_faults(run_once, lua_server);
}

/* The state is closed with tasks in the midst of everything. */
static void test_lua_state_is_closed(void **state)
{
    (void)state;
    run_once("local loop, s = core.loop\n"
             "loop.run(function()\n"
             "  s = assert(core.httpd.listen{port = 0})\n"
             "  visit(select(2, s:address()))\n"
             "  r = s:accept()\n"
             "  st = r:stream(200, {})\n"
             "  st:write('x')\n"
             "  loop.spawn(function() r:wait_gone() end)\n"
             "  loop.spawn(function() s:accept() end)\n"
             "  loop.spawn(function() loop.sleep(100000) end)\n"
             "  loop.sleep(10)\n"
             "end)\n", -1, 0);
    run_once("local loop = core.loop\n"
             "loop.run(function()\n"
             "  local s = assert(core.httpd.listen{port = 0})\n"
             "  visit(select(2, s:address()))\n"
             "  s:accept():respond(200, {}, 'first')\n"
             "  local r = s:accept()\n"
             "  loop.spawn(function() r:read(100) end)\n"
             "  local t = loop.spawn(function() r:wait_gone() end)\n"
             "  loop.spawn(function() s:accept() end)\n"
             "  loop.sleep(0)\n"
             "  t:cancel()\n"
             "  s:close()\n"
             "  s:close()\n"
             "  assert(s:accept() == false and s:stats().connections == 0)\n"
             "  assert(r:respond(200, {}, '') == nil)\n"
             "end)\n", -1, 0);
}

/* Made at the start, they cannot be left half made by a failure later on. */
static void test_metatables_are_there_from_the_start(void **state)
{
    static const char *const with_gc[] = {"sr.httpd", "sr.httpd.request", "sr.httpd.stream"};
    lua_State *L = luaL_newstate();

    (void)state;
    assert_non_null(L);
    luaL_requiref(L, "core", luaopen_sandbox_runner_core, 0);
    for (size_t i = 0; i < sizeof with_gc / sizeof with_gc[0]; i++)
        if (luaL_getmetatable(L, with_gc[i]) != LUA_TTABLE ||
            lua_getfield(L, -1, "__gc") != LUA_TFUNCTION)
            fail_msg("%s has no finaliser", with_gc[i]);
    lua_close(L);
}

#define T(name) cmocka_unit_test_setup_teardown(name, web_set_up, web_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_lua_without_memory),
        T(test_lua_state_is_closed),
        T(test_metatables_are_there_from_the_start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
