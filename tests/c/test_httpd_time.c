/* What the HTTP server does to clients that are slow, or idle, or too many. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "httpd_parts.h"
#include "httpd_rig.h"

static char zeros[1 << 20];

/* MHD cannot go on with a line that does not fit its memory, and asks to be run again
 * at once, for ever. */
static void test_endless_chunk_line_does_not_spin(void **state)
{
    struct sr_read r = {0};
    struct sr_request *rq;
    int fd;

    (void)state;
    web.config.request_ms = 1500;
    web_open();
    fd = web_connect();
    web_send(fd, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5;");
    rq = web_take();
    sr_request_read(rq, &r, &web.loop, 1000);
    memset(zeros, 'e', 60000);
    for (int i = 0; i < 20; i++) {
        web_push(fd, zeros, 60000);
        web_turn(5);
    }
    memset(zeros, 0, 60000);
    web.turns = 0;
    web_run(500);
    if (web.turns > 100)
        fail_msg("%ld turns in half a second", web.turns);
    assert_true(web_is_closed(fd, 5000));
    assert_int_equal(r.op.err.code, SR_TIMEOUT);
    sr_op_drop(&r.op);
    web_done(rq);
    close(fd);
}

/* Sends `bytes` one at a time every 20 ms until the server closes; how long that took. */
static int drip(int fd, const char *bytes, int most_ms)
{
    int64_t start = sr_now_ms();

    for (size_t i = 0; sr_now_ms() - start < most_ms; i++) {
        if (web_push(fd, &bytes[i % strlen(bytes)], 1) < 0 || web_is_closed(fd, 20))
            return (int)(sr_now_ms() - start);
    }
    return most_ms;
}

/* It may take much longer where the machine has other things to do. */
static void assert_about(int ms, int wanted)
{
    if (ms < wanted * 7 / 10 || ms > wanted + 2000)
        fail_msg("%d ms instead of %d", ms, wanted);
}

static void test_dripping_head_has_a_deadline(void **state)
{
    int fd;

    (void)state;
    web.config.request_ms = 400;
    web_open();
    web.serve = web_serve_target;
    fd = web_connect();
    assert_about(drip(fd, "GET / HTTP/1.1 and so on", 5000), 400);
    close(fd);
    fd = web_connect();
    web_send(fd, "GET / HTTP/1.1\r\n");
    assert_about(drip(fd, "X: y\r\n", 5000), 400);
    close(fd);
    fd = web_connect(); /* and one that says nothing */
    assert_about(drip(fd, "\r\n", 5000), 400);
    close(fd);
    fd = web_connect(); /* on a connection that was used before, from its first byte on */
    web_ask(fd, GET("/x"), "/x");
    web_run(600);
    assert_about(drip(fd, "GET / HTTP/1.1 and so on", 5000), 400);
    close(fd);
}

static void test_dripping_body_has_a_deadline(void **state)
{
    struct sr_read r = {0};
    struct sr_request *rq;
    int fd;

    (void)state;
    web.config.request_ms = 400;
    web_open();
    fd = web_connect();
    web_send(fd, POST("1000"));
    rq = web_take();
    web_run(600); /* nobody asks: not the client's fault */
    sr_request_read(rq, &r, &web.loop, 1000);
    assert_about(drip(fd, "x", 5000), 400);
    assert_int_equal(r.op.state, SR_OP_READY);
    assert_int_equal(r.op.err.code, SR_TIMEOUT);
    sr_op_drop(&r.op);
    assert_int_equal(sr_request_respond(rq, 408, "", 0, "", 0, NULL), -1);
    web_done(rq);
    close(fd);
    fd = web_connect(); /* the same while the body is only dropped */
    web_send(fd, POST("1000"));
    rq = web_take();
    web_respond(rq, 200, "unread");
    web_done(rq);
    assert_about(drip(fd, "x", 5000), 400);
    close(fd);
}

/* The same between chunks, and behind the last one. */
static void test_dripping_chunks_have_a_deadline(void **state)
{
    static const struct {
        const char *start, *rest;
    } cases[] = {{"", "0"}, {"5", ";"}, {"5;", "a"}, {"0\r\n", "X"}, {"0\r\nX: ", "y"},
                 {"0\r\n", "X: y\r\n"}};

    (void)state;
    web.config.request_ms = 400;
    web_open();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sr_read r = {0};
        struct sr_request *rq;
        int fd = web_connect();

        web_send(fd, POST_CHUNKED);
        rq = web_take();
        sr_request_read(rq, &r, &web.loop, 1000);
        web_send(fd, cases[i].start);
        if (i == 0) /* a size of many digits is malformed after a while */
            assert_true(drip(fd, cases[i].rest, 5000) < 2400);
        else
            assert_about(drip(fd, cases[i].rest, 5000), 400);
        assert_int_equal(r.op.state, SR_OP_READY);
        assert_true(r.op.err.code == SR_TIMEOUT || (i == 0 && r.op.err.code == SR_CONFLICT));
        sr_op_drop(&r.op);
        web_done(rq);
        close(fd);
    }
}

/* A "100 Continue" that cannot be sent, because what came before it is not read, for a
 * request that has no body at all. */
static void test_unread_continue_has_a_deadline(void **state)
{
    int64_t start;
    int fd;

    (void)state;
    web.config.request_ms = 400;
    web_open();
    web.serve = web_serve_target;
    fd = web_connect();
    web_ask(fd, GET("/x"), "/x");
    for (int i = 0; i < 20; i++) { /* as many answers would do */
        while (send(web.httpd->conns->fd, zeros, sizeof zeros, MSG_DONTWAIT) > 0)
            ;
        web_run(5);
    }
    start = sr_now_ms();
    web_send(fd, "GET /x HTTP/1.1\r\n" HOST "Expect: 100-continue\r\n\r\n");
    while (sr_httpd_stats(web.httpd).connections && sr_now_ms() - start < 5000)
        web_turn(20);
    assert_about((int)(sr_now_ms() - start), 400);
    close(fd);
}

static void test_idle_connections_end(void **state)
{
    int64_t start;
    int fd;

    (void)state;
    web.config.idle_ms = 400;
    web_open();
    web.serve = web_serve_target;
    fd = web_connect();
    for (int i = 0; i < 4; i++) { /* use keeps it alive */
        web_ask(fd, GET("/x"), "/x");
        web_run(200);
    }
    web_ask(fd, GET("/x"), "/x");
    start = sr_now_ms();
    assert_true(web_is_closed(fd, 5000));
    assert_about((int)(sr_now_ms() - start), 400);
    close(fd);
}

static void test_nothing_to_do_is_no_work(void **state)
{
    int fd[3];

    (void)state;
    web_open();
    web.serve = web_serve_target;
    for (int i = 0; i < 3; i++) {
        fd[i] = web_connect();
        web_ask(fd[i], GET("/x"), "/x");
    }
    web_send(fd[1], "GET / HT");
    web_run(100);
    web.turns = 0;
    web_run(500);
    assert_true(web.turns <= 2);
    for (int i = 0; i < 3; i++)
        close(fd[i]);
}

/* Connections that are stuck in a line between chunks cost the others nothing: those
 * that have said all they want to, and those that go on. */
static void test_stuck_chunk_lines_are_no_work(void **state)
{
    enum { STUCK = 300, ASKED = 50 };
    static struct sr_request *rq[STUCK];
    static struct sr_read reads[STUCK];
    static int fd[STUCK];
    clock_t cpu;
    double ms;

    (void)state;
    web.config.connections = 2 * STUCK;
    web_open();
    memset(zeros, 'e', 60000);
    for (int i = 0; i < STUCK; i++) {
        fd[i] = web_connect();
        web_send(fd[i], POST_CHUNKED "5;");
        rq[i] = web_take();
        memset(&reads[i], 0, sizeof reads[i]);
        sr_request_read(rq[i], &reads[i], &web.loop, 1000);
        web_push(fd[i], zeros, 60000);
    }
    web_run(100);
    web.serve = web_serve_target;
    cpu = clock();
    for (int i = 0; i < ASKED; i++)
        web_assert_served();
    ms = (double)(clock() - cpu) * 1000 / CLOCKS_PER_SEC;
    if (ms > 10 * ASKED)
        fail_msg("%.0f ms for %d requests", ms, (int)ASKED);
    web.turns = 0;
    web_run(300);
    assert_true(web.turns < 20);
    setsockopt(fd[0], IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    for (int i = 0; i < 200 && !web_is_closed(fd[0], 0); i++) {
        web_push(fd[0], "e", 1);
        web_run(2);
    }
    assert_true(web_is_closed(fd[0], 5000));
    for (int i = 0; i < STUCK; i++) {
        close(fd[i]);
        web_run(1);
        sr_op_drop(&reads[i].op);
        web_done(rq[i]);
    }
    memset(zeros, 0, 60000);
}

/* What waits in a stream has to move; where nothing waits, nothing has to. */
static void test_open_streams(void **state)
{
    struct sr_request *rq[2], *deaf, *silent;
    struct sr_err err;
    int fd[2];

    (void)state;
    web.config.request_ms = 300;
    web_open();
    for (int i = 0; i < 2; i++) {
        fd[i] = web_connect();
        web_send(fd[i], GET("/"));
        rq[i] = web_take();
        assert_int_equal(sr_request_stream(rq[i], 200, "", 0, NULL), 0);
        assert_int_equal(sr_request_write(rq[i], "first", 5, NULL), 0);
        web_receive(fd[i], "first");
    }
    deaf = rq[0];
    silent = rq[1];
    while (sr_httpd_stats(web.httpd).unsent < 100000) {
        assert_int_equal(sr_request_write(deaf, zeros, 50000, NULL), 0);
        web_run(2);
    }
    web_run(800);
    assert_int_equal(sr_httpd_stats(web.httpd).requests, 1);
    assert_int_equal(sr_httpd_stats(web.httpd).unsent, 0);
    assert_int_equal(sr_request_write(deaf, "x", 1, &err), -1);
    assert_int_equal(err.code, SR_CONFLICT);
    assert_int_equal(sr_request_write(silent, "later", 5, NULL), 0);
    web_receive(fd[1], "later");
    assert_int_equal(sr_request_write(silent, zeros, 500000, NULL), 0); /* read at once */
    assert_int_equal(sr_request_write(silent, "end", 3, NULL), 0);
    web_receive(fd[1], "end");
    web_run(600);
    assert_int_equal(sr_request_write(silent, "after", 5, NULL), 0);
    web_receive(fd[1], "after");
    web_done(deaf);
    web_done(silent);
    close(fd[0]);
    close(fd[1]);
}

/* An answer, or the rest of a stream, that stays unread is given up after a while;
 * one that is read slowly is not. */
static void unread_rest(bool stream, bool reads)
{
    enum { SIZE = 12 << 20 };
    char *bytes = calloc(1, SIZE);
    struct sr_request *rq;
    struct sr_gone g = {0};
    int64_t start;
    int fd, small = 4096;

    web.config.request_ms = 300;
    web.config.stream_bytes = SIZE;
    web_open();
    fd = web_connect();
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    web_send(fd, GET("/"));
    rq = web_take();
    if (stream) {
        assert_int_equal(sr_request_stream(rq, 200, "", 0, NULL), 0);
        assert_int_equal(sr_request_write(rq, bytes, SIZE, NULL), 0);
        sr_request_finish(rq);
    } else {
        assert_int_equal(sr_request_respond(rq, 200, "", 0, bytes, SIZE, NULL), 0);
    }
    free(bytes);
    sr_request_watch(rq, &g, &web.loop);
    start = sr_now_ms();
    while (g.op.state == SR_OP_PENDING && sr_now_ms() - start < (reads ? 1500 : 5000)) {
        char some[4096];

        if (reads)
            (void)!read(fd, some, sizeof some);
        web_turn(5);
    }
    assert_int_equal(g.op.state, reads ? SR_OP_PENDING : SR_OP_READY);
    assert_false(sr_request_is_done(rq));
    sr_op_drop(&g.op);
    web_done(rq);
    close(fd);
}

static void test_unread_answer_ends(void **state)
{
    (void)state;
    unread_rest(false, false);
}

static void test_unread_rest_of_a_stream_ends(void **state)
{
    (void)state;
    unread_rest(true, false);
}

static void test_slowly_read_answer_goes_on(void **state)
{
    (void)state;
    unread_rest(false, true);
}

static void test_newcomer_gets_the_place_of_the_idlest(void **state)
{
    enum { IDLE = 200, SLOW = 50 };
    static int fd[IDLE + SLOW];
    int newcomers[20];

    (void)state;
    web.config.connections = IDLE + SLOW;
    web_open();
    web.serve = web_serve_target;
    for (int i = 0; i < IDLE + SLOW; i++)
        fd[i] = web_connect();
    for (int i = 0; i < IDLE; i++)
        web_ask(fd[i], GET("/x"), "/x");
    for (int i = IDLE; i < IDLE + SLOW; i++)
        web_send(fd[i], "POST / HTTP/1.1\r\nContent-Le");
    assert_int_equal(sr_httpd_stats(web.httpd).connections, IDLE + SLOW);
    web_assert_served();
    assert_true(web_is_closed(fd[0], 5000)); /* the one whose last request is longest ago */
    web_run(20);
    assert_false(web_is_closed(fd[1], 0));
    for (int i = 0; i < 20; i++) /* more than one at a time */
        newcomers[i] = web_connect();
    for (int i = 0; i < 20; i++)
        web_send(newcomers[i], GET("/new"));
    for (int i = 0; i < 20; i++)
        web_receive(newcomers[i], "/new");
    assert_int_equal(sr_httpd_stats(web.httpd).connections, IDLE + SLOW);
    web_run(20);
    for (int i = IDLE; i < IDLE + SLOW; i++)
        assert_false(web_is_closed(fd[i], 0));
    for (int i = 0; i < 20; i++)
        close(newcomers[i]);
    for (int i = 0; i < IDLE + SLOW; i++)
        close(fd[i]);
}

/* Where all are slow, the slowest has to go. */
static void test_newcomer_among_slow_ones(void **state)
{
    int fd[10];

    (void)state;
    web.config.connections = 10;
    web_open();
    web.serve = web_serve_target;
    for (int i = 0; i < 10; i++) {
        fd[i] = web_connect();
        web_send(fd[i], "GET / HT");
    }
    web_assert_served();
    assert_true(web_is_closed(fd[0], 5000));
    web_run(20);
    assert_false(web_is_closed(fd[1], 0));
    for (int i = 0; i < 10; i++)
        close(fd[i]);
}

/* Nobody who is being served has to go: the newcomer waits, and waiting is no work. */
static void test_newcomer_waits_for_a_place(void **state)
{
    struct sr_request *rq[4];
    int fd[4], newcomer;

    (void)state;
    web.config.connections = 4;
    web_open();
    for (int i = 0; i < 4; i++) {
        fd[i] = web_connect();
        web_send(fd[i], GET("/x"));
        rq[i] = web_take();
    }
    newcomer = web_connect();
    web_send(newcomer, GET("/new"));
    web_run(50);
    web.turns = 0;
    web_run(300);
    assert_true(web.turns <= 2);
    web_respond(rq[2], 200, "done");
    web.serve = web_serve_target;
    web_receive(fd[2], "done");
    assert_non_null(strstr(web_receive(newcomer, "/new"), "200 OK"));
    for (int i = 0; i < 4; i++) {
        web_done(rq[i]);
        close(fd[i]);
    }
    close(newcomer);
}

static void test_out_of_descriptors_does_not_spin(void **state)
{
    struct rlimit limit, low;
    int fd[4], lowest;

    (void)state;
    web_open();
    web.serve = web_serve_target;
    fd[0] = web_connect();
    web_ask(fd[0], GET("/x"), "/x");
    for (int i = 1; i < 4; i++)
        fd[i] = web_connect();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    lowest = dup(0);
    close(lowest);
    low = (struct rlimit){(rlim_t)lowest, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    web.turns = 0;
    web_run(1000);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    if (web.turns > 40)
        fail_msg("%ld turns in a second", web.turns);
    assert_true(web_is_closed(fd[0], 5000)); /* an idle one gave its descriptor */
    for (int i = 1; i < 4; i++)
        assert_non_null(strstr(web_ask(fd[i], GET("/late"), "/late"), "200 OK"));
    for (int i = 0; i < 4; i++)
        close(fd[i]);
}

#define T(name) cmocka_unit_test_setup_teardown(name, web_set_up, web_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_endless_chunk_line_does_not_spin),
        T(test_dripping_head_has_a_deadline),
        T(test_dripping_body_has_a_deadline),
        T(test_dripping_chunks_have_a_deadline),
        T(test_unread_continue_has_a_deadline),
        T(test_idle_connections_end),
        T(test_nothing_to_do_is_no_work),
        T(test_stuck_chunk_lines_are_no_work),
        T(test_open_streams),
        T(test_unread_answer_ends),
        T(test_unread_rest_of_a_stream_ends),
        T(test_slowly_read_answer_goes_on),
        T(test_newcomer_gets_the_place_of_the_idlest),
        T(test_newcomer_among_slow_ones),
        T(test_newcomer_waits_for_a_place),
        T(test_out_of_descriptors_does_not_spin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
