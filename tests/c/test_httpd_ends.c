/* How requests, connections and the server end: in whatever order, and with anything
 * in flight. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "httpd_parts.h"
#include "httpd_rig.h"

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

/* An older client between requests: MHD looks at what it closed itself when that has
 * been quiet for longer than all others. */
static int idle_client(void)
{
    int fd = web_connect();

    web.serve = web_serve_target;
    web_ask(fd, GET("/idle"), "/idle");
    web.serve = NULL;
    return fd;
}

/* That all but n connections have been closed, not only given up. */
static void assert_left(unsigned n)
{
    int64_t end = sr_now_ms() + 2000;

    while (web.httpd->n_conns != n && sr_now_ms() < end)
        web_turn(20);
    assert_int_equal(web.httpd->n_conns, n);
    assert_int_equal(web.httpd->n_dying, 0);
    assert_int_equal(sr_httpd_stats(web.httpd).connections, n);
}

static void test_client_leaves_while_nobody_answers(void **state)
{
    int idle;

    (void)state;
    web_open();
    idle = idle_client();
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
            assert_left(1); /* its place is free */
            assert_int_equal(sr_request_respond(rq, 200, "", 0, "", 0, &err), -1);
            assert_int_equal(err.code, SR_CONFLICT);
        }
        web_done(rq);
        assert_left(1);
    }
    close(idle);
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

/* Stands before MHD's own, for the server in this program. */
static bool no_responses;

struct MHD_Response *MHD_create_response_from_buffer(size_t size, void *buffer,
                                                     enum MHD_ResponseMemoryMode mode)
{
    static struct MHD_Response *(*real)(size_t, void *, enum MHD_ResponseMemoryMode);

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "MHD_create_response_from_buffer");
    return no_responses ? NULL : real(size, buffer, mode);
}

/* Where there is no memory for an answer the client must not wait for one. */
static void test_no_memory_for_the_last_answer(void **state)
{
    static const char *const heads[] = {GET("/x"), POST("4"), POST("4") "note"};

    (void)state;
    web_open();
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        int fd = web_connect();
        struct sr_request *rq;

        web_send(fd, heads[i]);
        rq = web_take();
        no_responses = true;
        web_done(rq);
        no_responses = false;
        assert_string_equal(web_receive(fd, NULL), "");
        assert_left(0);
        close(fd);
    }
}

/* Nobody is left who could end the stream. */
static void test_stream_that_nobody_holds(void **state)
{
    struct sr_request *rq;
    int fd;

    (void)state;
    web_open();
    fd = web_connect();
    web_send(fd, GET("/x"));
    rq = web_take();
    assert_int_equal(sr_request_stream(rq, 200, "", 0, NULL), 0);
    sr_request_keep(rq);
    web_done(rq);
    assert_int_equal(sr_request_write(rq, "first", 5, NULL), 0); /* somebody is, still */
    web_receive(fd, "first");
    web_run(20);
    assert_int_equal(sr_httpd_stats(web.httpd).connections, 1);
    sr_request_release(rq);
    assert_string_equal(web_receive(fd, NULL), "");
    assert_left(0);
    close(fd);
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
    assert_true(web_is_closed(fd[0], 5000));
    assert_false(web_is_closed(fd[1], 100));
    assert_true(web_is_closed(fd[1], 5000));
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
    int idle;

    (void)state;
    web_open();
    idle = idle_client();
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
        assert_left(1);
        sr_request_finish(rq);
        web_done(rq);
    }
    close(idle);
}

/* However often streams end, and whoever ends them. */
static void test_streams_leave_no_connection(void **state)
{
    enum { QUIET, OLD, ABORTED, WAYS_TO_END };
    int idle;

    (void)state;
    web.config.connections = 4;
    web_open();
    idle = idle_client();
    for (int i = 0; i < 30 * WAYS_TO_END; i++) {
        int fd = web_connect(), how = i % WAYS_TO_END;
        struct sr_request *rq;

        web_send(fd, how == OLD ? "GET / HTTP/1.0\r\n\r\n" : GET("/x"));
        rq = web_take();
        assert_int_equal(sr_request_stream(rq, 200, "", 0, NULL), 0);
        assert_int_equal(sr_request_write(rq, "first", 5, NULL), 0);
        web_receive(fd, "first");
        if (how == QUIET)
            leave[i / WAYS_TO_END % WAYS](fd);
        else if (how == OLD)
            sr_request_finish(rq);
        else
            sr_request_abort(rq);
        assert_left(1);
        sr_request_finish(rq);
        web_done(rq);
        if (how != QUIET)
            assert_true(web_is_closed(fd, 0));
        if (how != QUIET || leave[i / WAYS_TO_END % WAYS] == leave_half)
            close(fd);
    }
    close(idle);
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

#define T(name) cmocka_unit_test_setup_teardown(name, web_set_up, web_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_client_leaves_while_nobody_answers),
        T(test_half_closed_client_is_answered),
        T(test_no_memory_for_the_last_answer),
        T(test_stream_that_nobody_holds),
        T(test_half_closed_client_makes_room),
        T(test_client_leaves_behind_unread_data),
        T(test_client_leaves_a_stream),
        T(test_streams_leave_no_connection),
        T(test_client_leaves_while_its_body_is_read),
        T(test_client_leaves_at_once),
        T(test_client_leaves_before_it_is_accepted),
        T(test_read_is_given_up),
        T(test_request_and_connection_end_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
