/* How requests, connections and the server end: in whatever order, and with anything
 * in flight. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include <lauxlib.h>
#include <lualib.h>

#include "faulty_alloc.h"
#include "httpd_rig.h"
#include "lua_bind.h"

static void wait_for(const struct sr_op *op)
{
    int64_t end = sr_now_ms() + 5000;

    while (op->state == SR_OP_PENDING && sr_now_ms() < end)
        web_turn(20);
    assert_int_equal(op->state, SR_OP_READY);
}

/* How a client leaves. */
static void leave_fin(int fd)
{
    close(fd);
}

static void leave_half(int fd)
{
    shutdown(fd, SHUT_WR); /* the descriptor is closed by the test's end */
}

static void (*const leave[])(int fd) = {leave_fin, leave_half, web_reset};
#define WAYS (sizeof leave / sizeof leave[0])

static void test_client_leaves_while_nobody_answers(void **state)
{
    (void)state;
    web_open();
    for (size_t i = 0; i < WAYS; i++) {
        int fd = web_connect();
        struct sr_request *rq;
        struct sr_gone g = {0};
        struct sr_err err;

        web_send(fd, GET("/x"));
        rq = web_take();
        sr_request_watch(rq, &g, &web.loop);
        web_run(30);
        assert_int_equal(g.op.state, SR_OP_PENDING);
        leave[i](fd);
        wait_for(&g.op);
        assert_false(sr_request_is_done(rq));
        web_run(20);
        if (leave[i] == web_reset) {
            assert_int_equal(sr_httpd_stats(web.httpd).connections, 0); /* its place is free */
            assert_int_equal(sr_request_respond(rq, 200, "", 0, "", 0, &err), -1);
            assert_int_equal(err.code, SR_CONFLICT);
        }
        web_done(rq);
        web_run(20);
        assert_int_equal(sr_httpd_stats(web.httpd).connections, 0);
    }
}

/* Whoever says nothing more may still listen. */
static void test_half_closed_client_is_answered(void **state)
{
    static const char *const heads[] = {GET("/x"), POST("4") "note",
                                        POST_CHUNKED "4\r\nnote\r\n0\r\n\r\n"};

    int bystander;

    (void)state;
    web_open();
    bystander = web_connect(); /* MHD is kinder to the only one */
    for (size_t i = 0; i < 6; i++) {
        int fd = web_connect();
        struct sr_request *rq;
        struct sr_gone g = {0};

        web_push(fd, heads[i / 2], strlen(heads[i / 2]));
        leave_half(fd);
        rq = web_take();
        web_run(20);
        assert_int_equal(web_read(rq, 100, NULL, NULL), SR_OK);
        sr_request_watch(rq, &g, &web.loop);
        wait_for(&g.op);
        sr_op_drop(&g.op);
        web_run(20);
        if (i % 2) {
            assert_int_equal(sr_request_stream(rq, 200, "", 0, NULL), 0);
            assert_int_equal(sr_request_write(rq, "some ", 5, NULL), 0);
            web_run(20);
            assert_int_equal(sr_request_write(rq, "heard", 5, NULL), 0);
            sr_request_finish(rq);
        } else {
            web_respond(rq, 200, "heard");
        }
        web_done(rq);
        assert_non_null(strstr(web_receive(fd, NULL), "heard"));
        web_run(20);
        assert_int_equal(sr_httpd_stats(web.httpd).connections, 1);
        close(fd);
    }
    close(bystander);
}

/* Most have left for good: their places are not kept for long. */
static void test_half_closed_client_makes_room(void **state)
{
    struct sr_request *rq[2];
    struct sr_gone g[2] = {{.op.state = 0}};
    int fd[2], newcomer;

    (void)state;
    web.config.connections = 2;
    web.config.request_ms = 400;
    web_open();
    for (int i = 0; i < 2; i++) {
        fd[i] = web_connect();
        web_send(fd[i], GET("/x"));
        rq[i] = web_take();
        sr_request_watch(rq[i], &g[i], &web.loop);
    }
    for (int i = 0; i < 2; i++) {
        leave_half(fd[i]);
        wait_for(&g[i].op);
        sr_op_drop(&g[i].op);
    }
    web.serve = web_serve_target;
    newcomer = web_connect();
    web_ask(newcomer, GET("/new"), "/new");
    assert_true(web_is_closed(fd[0], 100));
    assert_false(web_is_closed(fd[1], 100));
    assert_true(web_is_closed(fd[1], 600));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sr_request_respond(rq[i], 200, "", 0, "", 0, NULL), -1);
        web_done(rq[i]);
        close(fd[i]);
    }
    close(newcomer);
}

/* Data that nobody reads lies before the end of what the client sends. */
static void test_client_leaves_behind_unread_data(void **state)
{
    static char more[20000]; /* what the server's kernel takes */

    (void)state;
    memset(more, 'm', sizeof more);
    web_open();
    for (size_t i = 0; i < WAYS; i++) {
        int fd = web_connect();
        struct sr_request *rq;
        struct sr_gone g = {0};

        web_send(fd, GET("/x"));
        rq = web_take();
        sr_request_watch(rq, &g, &web.loop);
        web_push(fd, more, sizeof more);
        web_run(30);
        assert_int_equal(g.op.state, SR_OP_PENDING);
        leave[i](fd);
        wait_for(&g.op);
        web_done(rq);
    }
}

static void test_client_leaves_a_stream(void **state)
{
    (void)state;
    web_open();
    for (size_t i = 0; i < WAYS; i++) {
        int fd = web_connect();
        struct sr_request *rq;
        struct sr_gone g = {0};
        struct sr_err err;

        web_send(fd, GET("/x"));
        rq = web_take();
        sr_request_watch(rq, &g, &web.loop);
        assert_int_equal(sr_request_stream(rq, 200, "", 0, NULL), 0);
        assert_int_equal(sr_request_write(rq, "first", 5, NULL), 0);
        web_receive(fd, "first");
        leave[i](fd);
        wait_for(&g.op);
        assert_int_equal(sr_request_write(rq, "more", 4, &err), -1);
        assert_int_equal(err.code, SR_CONFLICT);
        web_run(20);
        assert_int_equal(sr_httpd_stats(web.httpd).connections, 0);
        sr_request_finish(rq);
        web_done(rq);
    }
}

static void test_client_leaves_while_its_body_is_read(void **state)
{
    (void)state;
    web_open();
    for (size_t i = 0; i < WAYS; i++) {
        int fd = web_connect();
        struct sr_request *rq;
        struct sr_read r = {0};
        struct sr_gone g = {0};

        web_send(fd, POST("1000") "some");
        rq = web_take();
        sr_request_watch(rq, &g, &web.loop);
        sr_request_read(rq, &r, &web.loop, 1000);
        web_run(20);
        assert_true(sr_httpd_stats(web.httpd).buffered > 0);
        leave[i](fd);
        wait_for(&r.op);
        assert_int_equal(r.op.err.code, SR_CONFLICT);
        wait_for(&g.op);
        assert_int_equal(sr_httpd_stats(web.httpd).buffered, 0);
        web_done(rq);
    }
}

/* What was sent as a whole is read, even when its sender does not wait for an answer. */
static void test_client_leaves_at_once(void **state)
{
    (void)state;
    web_open();
    for (size_t i = 0; i < 2; i++) {
        int fd = web_connect();
        struct sr_request *rq;
        struct sr_gone g = {0};
        const char *body;
        size_t n;

        web_push(fd, POST("4") "note", strlen(POST("4") "note"));
        leave[i](fd);
        rq = web_take();
        web_run(20);
        assert_int_equal(web_read(rq, 100, &body, &n), SR_OK);
        assert_memory_equal(body, "note", 4);
        sr_request_watch(rq, &g, &web.loop);
        wait_for(&g.op);
        web_done(rq);
        web_run(20);
        assert_int_equal(sr_httpd_stats(web.httpd).connections, 0);
    }
}

static void test_client_leaves_before_it_is_accepted(void **state)
{
    int fd;

    (void)state;
    web_open();
    fd = web_connect();
    web_send(fd, GET("/x"));
    web_run(20);
    web_reset(fd);
    web_run(20);
    assert_int_equal(sr_httpd_stats(web.httpd).connections, 0);
    web_done(web_take());
    assert_false(sr_httpd_has_request(web.httpd));
}

static void test_read_is_given_up(void **state)
{
    struct sr_request *rq;
    struct sr_read r = {0};
    int fd;

    (void)state;
    web_open();
    fd = web_connect();
    web_send(fd, POST("10") "half");
    rq = web_take();
    sr_request_read(rq, &r, &web.loop, 100);
    web_run(20);
    sr_op_drop(&r.op);
    assert_int_equal(sr_httpd_stats(web.httpd).buffered, 0);
    web_respond(rq, 200, "ok");
    web_done(rq);
    assert_non_null(strstr(web_ask(fd, "second", "ok"), "200 OK"));
    close(fd);
}

/* The answer is sent, the request has not been released yet, and the other way round. */
static void test_request_and_connection_end_apart(void **state)
{
    struct sr_request *rq;
    struct sr_gone g = {0};
    int fd;

    (void)state;
    web_open();
    fd = web_connect();
    web_send(fd, GET("/x"));
    rq = web_take();
    web_respond(rq, 200, "first");
    web_receive(fd, "first");
    close(fd);
    web_run(20);
    assert_string_equal(sr_request_target(rq), "/x"); /* still to be asked */
    sr_request_watch(rq, &g, &web.loop);
    assert_int_equal(g.op.state, SR_OP_READY);
    assert_true(sr_request_is_done(rq));
    sr_op_drop(&g.op);
    web_done(rq);
    fd = web_connect();
    web_send(fd, GET("/y"));
    rq = web_take();
    web_respond(rq, 200, "second");
    web_done(rq);
    web_receive(fd, "second");
    close(fd);
}

static void test_stop(void **state)
{
    struct sr_request *busy, *queued, *stream;
    struct sr_accept a = {0};
    const char *answer;
    int idle, slow, fd[3];

    (void)state;
    web_open();
    web.serve = web_serve_target;
    idle = web_connect();
    web_ask(idle, GET("/idle"), "/idle");
    slow = web_connect();
    web_send(slow, "GET /slow HT");
    web.serve = NULL;
    for (int i = 0; i < 3; i++)
        fd[i] = web_connect();
    web_send(fd[0], POST("4") "bo");
    busy = web_take();
    web_send(fd[1], GET("/stream"));
    stream = web_take();
    sr_request_stream(stream, 200, "", 0, NULL);
    web_send(fd[2], GET("/queued"));
    web_run(20);
    sr_httpd_stop(web.httpd);
    sr_httpd_stop(web.httpd);
    assert_true(web_is_closed(idle, 500));
    assert_true(web_is_closed(slow, 500));
    queued = web_take();
    sr_httpd_accept(web.httpd, &a); /* nothing more comes */
    assert_int_equal(a.op.state, SR_OP_READY);
    assert_null(sr_httpd_take(web.httpd));
    sr_op_drop(&a.op);
    web_respond(queued, 200, "queued too");
    web_done(queued);
    answer = web_receive(fd[2], NULL);
    assert_non_null(strstr(answer, "queued too"));
    assert_non_null(strstr(answer, "Connection: close"));
    web_send(fd[0], "dy");
    assert_int_equal(web_read(busy, 100, NULL, NULL), SR_OK);
    web_respond(busy, 200, "busy too");
    web_done(busy);
    assert_non_null(strstr(web_receive(fd[0], NULL), "busy too"));
    assert_int_equal(sr_request_write(stream, "still", 5, NULL), 0);
    web_receive(fd[1], "still");
    sr_request_finish(stream);
    web_done(stream);
    assert_non_null(strstr(web_receive(fd[1], NULL), "0\r\n\r\n"));
    assert_int_equal(sr_httpd_stats(web.httpd).connections, 0);
    close(idle);
    close(slow);
    for (int i = 0; i < 3; i++)
        close(fd[i]);
}

/* Everything there is at once: what waits is told, what is held stays valid. */
static void close_with_all_in_flight(bool release_first)
{
    enum { N = 9 };
    struct sr_request *rq[N];
    struct sr_read reads[2] = {{.op.state = 0}};
    struct sr_gone gone = {0};
    struct sr_accept a = {0};
    int fd[N + 3];

    web_open();
    for (int i = 0; i < N + 3; i++)
        fd[i] = web_connect();
    for (int i = 0; i < N; i++) {
        web_send(fd[i], i < 4 ? POST("100") "begin" : GET("/x"));
        rq[i] = web_take();
    }
    web_send(fd[N], GET("/queued"));
    web_send(fd[N + 1], "GET /half HT");
    sr_request_read(rq[0], &reads[0], &web.loop, 1000); /* body is coming */
    sr_request_read(rq[1], &reads[1], &web.loop, 1000);
    web_respond(rq[2], 200, "after the body");          /* body is dropped */
                                                        /* rq[3]: nothing asked yet */
    web_respond(rq[4], 200, "sent in the next turn");
    sr_request_stream(rq[5], 200, "", 0, NULL);
    sr_request_write(rq[5], "x", 1, NULL);
    sr_request_stream(rq[6], 200, "", 0, NULL);
    web_run(30);
    sr_request_watch(rq[7], &gone, &web.loop);
    while (sr_httpd_has_request(web.httpd) && release_first)
        web_done(sr_httpd_take(web.httpd));
    if (!sr_httpd_has_request(web.httpd))
        sr_httpd_accept(web.httpd, &a);
    sr_request_write(rq[5], "unsent", 6, NULL);
    if (release_first)
        for (int i = 2; i < 7; i++)
            web_done(rq[i]);
    sr_httpd_close(web.httpd);
    web.httpd = NULL;
    assert_int_equal(reads[0].op.state, SR_OP_READY);
    assert_int_equal(reads[0].op.err.code, SR_CONFLICT);
    assert_int_equal(gone.op.state, SR_OP_READY);
    assert_true(a.op.state == SR_OP_READY || !release_first);
    sr_op_drop(&a.op);
    for (int i = 0; i < N; i++)
        if (!release_first || i < 2 || i > 6) {
            struct sr_err err;

            assert_int_equal(*sr_request_target(rq[i]), '/');
            sr_request_write(rq[i], "x", 1, &err);
            web_done(rq[i]);
        }
    for (int i = 0; i < 2; i++)
        sr_op_drop(&reads[i].op);
    sr_op_drop(&gone.op);
    for (int i = 0; i < N + 3; i++) {
        assert_true(web_is_closed(fd[i], 500));
        close(fd[i]);
    }
}

static void test_close_with_all_in_flight(void **state)
{
    (void)state;
    close_with_all_in_flight(false);
}

static void test_close_after_releases(void **state)
{
    (void)state;
    close_with_all_in_flight(true);
}

/* A body that was read and not yet fetched outlives the server. */
static void test_body_outlives_the_server(void **state)
{
    struct sr_request *rq;
    const char *body;
    size_t n;
    int fd;

    (void)state;
    web_open();
    fd = web_connect();
    web_send(fd, POST("4") "body");
    rq = web_take();
    assert_int_equal(web_read(rq, 100, &body, &n), SR_OK);
    sr_httpd_close(web.httpd);
    web.httpd = NULL;
    sr_request_body(rq, &body, &n);
    assert_memory_equal(body, "body", 4);
    assert_int_equal(web_read(rq, 100, &body, &n), SR_OK);
    web_done(rq);
    close(fd);
}

/* Lua's side. */

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
        T(test_client_leaves_while_nobody_answers),
        T(test_half_closed_client_is_answered),
        T(test_half_closed_client_makes_room),
        T(test_client_leaves_behind_unread_data),
        T(test_client_leaves_a_stream),
        T(test_client_leaves_while_its_body_is_read),
        T(test_client_leaves_at_once),
        T(test_client_leaves_before_it_is_accepted),
        T(test_read_is_given_up),
        T(test_request_and_connection_end_apart),
        T(test_stop),
        T(test_close_with_all_in_flight),
        T(test_close_after_releases),
        T(test_body_outlives_the_server),
        T(test_lua_without_memory),
        T(test_lua_state_is_closed),
        T(test_metatables_are_there_from_the_start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
