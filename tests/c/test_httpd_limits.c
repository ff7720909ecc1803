/* What the HTTP server does to clients that send too much or what is no HTTP, and what
 * it goes on doing for all others meanwhile. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "http_rig.h"
#include "httpd_rig.h"

static char zeros[1 << 20];

/* Forks: true in the child; the parent waits for it to end with 0. */
static bool fork_is_child(void)
{
    pid_t child = fork();
    int status;

    if (child == 0)
        return true;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    return false;
}

/* A request whose body is refused, of that many bytes, on a connection that lives on. */
static void refuse_body(int fd, const char *head, size_t size)
{
    struct sr_request *rq;

    web.serve = NULL;
    web_send(fd, head);
    rq = web_take();
    assert_int_equal(web_read(rq, 1000, NULL, NULL), SR_TOO_LARGE);
    assert_int_equal(sr_httpd_stats(web.httpd).buffered, 0);
    web_respond(rq, 413, "too large");
    web_done(rq);
    for (size_t left = size; left;) {
        size_t n = left < sizeof zeros ? left : sizeof zeros;

        web_send_bytes(fd, zeros, n);
        left -= n;
    }
    assert_non_null(strstr(web_receive(fd, "too large"), " 413 "));
    web.serve = web_serve_target;
    assert_non_null(strstr(web_ask(fd, GET("/next"), "/next"), "200 OK"));
}

static void test_body_of_64_mb_is_dropped(void **state)
{
    enum { SIZE = 64 << 20 };
    char head[200];
    long before;
    int fd;

    (void)state;
    web_open();
    fd = web_connect();
    before = rig_memory_kib();
    snprintf(head, sizeof head, "POST / HTTP/1.1\r\n" HOST "Content-Length: %d\r\n\r\n", SIZE);
    refuse_body(fd, head, SIZE);
    rig_grown_less(before, 2048);
    close(fd);
}

static void test_chunked_body_is_counted(void **state)
{
    struct sr_read r = {0};
    struct sr_request *rq;
    int fd;

    (void)state;
    web_open();
    fd = web_connect();
    web_send(fd, POST_CHUNKED);
    rq = web_take();
    sr_request_read(rq, &r, &web.loop, 5000);
    for (int i = 0; i < 10; i++) {
        web_send(fd, "3e8\r\n");
        web_send_bytes(fd, zeros, 1000);
        web_send(fd, "\r\n");
    }
    web_run(20);
    assert_int_equal(r.op.state, SR_OP_READY);
    assert_int_equal(r.op.err.code, SR_TOO_LARGE);
    sr_op_drop(&r.op);
    assert_int_equal(sr_httpd_stats(web.httpd).buffered, 0);
    web_respond(rq, 413, "too large");
    web_done(rq);
    assert_non_null(strstr(web_ask(fd, "0\r\n\r\n", "too large"), " 413 "));
    web.serve = web_serve_target;
    assert_non_null(strstr(web_ask(fd, GET("/next"), "/next"), "200 OK"));
    close(fd);
}

/* Nobody reads for ever what nobody wants. */
static void test_longest_bodies_are_cut_off(void **state)
{
    struct sr_request *rq;
    char piece[65536 + 20];
    const char *answer;
    int fd;

    (void)state;
    web_open();
    fd = web_connect();
    web_send(fd, POST("99999999999"));
    rq = web_take();
    web_respond(rq, 413, "too large");
    web_done(rq);
    answer = web_receive(fd, NULL);
    assert_non_null(strstr(answer, " 413 "));
    assert_non_null(strstr(answer, "Connection: close"));
    close(fd);

    fd = web_connect();
    web_send(fd, POST_CHUNKED);
    rq = web_take();
    web_respond(rq, 413, "too large");
    web_done(rq);
    memset(piece, 'x', sizeof piece);
    memcpy(piece, "10000\r\n", 7);
    memcpy(piece + 7 + 65536, "\r\n", 2);
    for (int i = 0; i < 2100 && web_push(fd, "", 0) >= 0; i++)
        web_send_bytes(fd, piece, 65536 + 9);
    assert_true(web_is_closed(fd, 5000));
    close(fd);
}

static void test_budget_for_bodies(void **state)
{
    struct sr_read one = {0}, two = {0};
    struct sr_request *first, *second;
    int a, b;

    (void)state;
    web.config.body_budget = 100000;
    web_open();
    a = web_connect();
    b = web_connect();
    web_send(a, POST("80000"));
    first = web_take();
    sr_request_read(first, &one, &web.loop, 90000);
    web_send_bytes(a, zeros, 79999);
    web_run(20);
    web_send(b, POST("50000"));
    second = web_take();
    assert_int_equal(web_read(second, 90000, NULL, NULL), SR_UNAVAILABLE);
    web_respond(second, 503, "later");
    web_done(second);
    web_send_bytes(b, zeros, 50000);
    assert_non_null(strstr(web_receive(b, "later"), " 503 "));
    web_send(b, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n7530\r\n");
    second = web_take();
    sr_request_read(second, &two, &web.loop, 90000);
    web_send_bytes(b, zeros, 30000);
    web_run(20);
    assert_true(sr_httpd_stats(web.httpd).buffered <= 100000);
    web_send_bytes(a, zeros, 1);
    web_run(20);
    assert_int_equal(one.op.err.code, SR_OK);
    sr_op_drop(&one.op);
    web_done(first);
    sr_op_drop(&two.op);
    web_done(second);
    assert_int_equal(sr_httpd_stats(web.httpd).buffered, 0);
    close(a);
    close(b);
}

static void test_endless_heads(void **state)
{
    static const char *const starts[] = {("GET / HTTP/1.1\r\n" HOST "X: "), "GET /", "",
                                         ("GET / HTTP/1.1\r\n" HOST)};
    static char line[10000];
    long before;

    (void)state;
    web_open();
    web.serve = web_serve_target;
    before = rig_memory_kib();
    memset(line, 'h', sizeof line);
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        int fd = web_connect();

        web_send(fd, starts[i]);
        for (int j = 0; j < 1000 && web_push(fd, "", 0) >= 0 && !web_is_closed(fd, 0); j++)
            if (i < 3)
                web_send_bytes(fd, line, sizeof line);
            else
                web_send(fd, "a: b\r\na: b\r\na: b\r\na: b\r\n");
        assert_true(web_is_closed(fd, 5000));
        close(fd);
    }
    rig_grown_less(before, 2048);
    web_assert_served();
}

/* A head of that length with that many short headers. */
static const char *long_head(size_t length, int headers)
{
    static char head[16384 + 100];
    size_t n = (size_t)snprintf(head, sizeof head, "GET / HTTP/1.1\r\n" HOST);

    while (headers--)
        n += (size_t)snprintf(head + n, sizeof head - n, "a:\r\n");
    n += (size_t)snprintf(head + n, sizeof head - n, "X: ");
    memset(head + n, 'v', length - 4 - n);
    strcpy(head + length - 4, "\r\n\r\n");
    return head;
}

/* The limit is what it says, with what the answer needs beside it. */
static void test_longest_head(void **state)
{
    enum { ANSWER = 6000 }; /* longest headers of an answer */
    static char heads[ANSWER + 1];

    (void)state;
    web_open();
    memcpy(heads, "Y", 2);
    memset(heads + 2, 'y', ANSWER - 3);
    for (int i = 0; i < 3; i++) {
        int fd = web_connect();
        struct sr_request *rq;
        struct sr_err err;

        web_send(fd, long_head(web.config.header_bytes, i == 0 ? 0 : 98));
        web_push(fd, "G", 1); /* of the next one */
        rq = web_take();
        assert_int_equal(sr_request_respond(rq, 200, heads, ANSWER + 1, "", 0, &err), -1);
        assert_int_equal(err.code, SR_INVALID);
        if (i < 2) {
            assert_int_equal(sr_request_respond(rq, 200, heads, ANSWER, "fine", 4, NULL), 0);
        } else {
            assert_int_equal(sr_request_stream(rq, 200, heads, ANSWER, NULL), 0);
            assert_int_equal(sr_request_write(rq, "fine", 4, NULL), 0);
            sr_request_finish(rq);
        }
        web_done(rq);
        assert_non_null(strstr(web_receive(fd, i < 2 ? "\r\n\r\nfine" : "fine\r\n0\r\n\r\n"),
                               "200 OK"));
        close(fd);
    }
}

static void test_too_long_head(void **state)
{
    int fd;

    (void)state;
    web_open();
    fd = web_connect();
    web_send(fd, long_head(web.config.header_bytes + 1, 0));
    assert_non_null(strstr(web_receive(fd, NULL), " 431 "));
    close(fd);
    fd = web_connect();
    web_send(fd, long_head(web.config.header_bytes, 2000));
    assert_non_null(strstr(web_receive(fd, NULL), " 431 "));
    close(fd);
}

/* Heads that two servers could read differently, and what is no HTTP. */
static void test_ambiguous_heads(void **state)
{
    static const struct {
        const char *head, *status;
    } cases[] = {
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
         " 400 "},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\nContent-Length: 4\r\n\r\n", " 400 "},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\nContent-Length: 3\r\n\r\n", " 400 "},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length : 3\r\n\r\n", " 400 "},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip\r\n\r\n", " 501 "},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n", " 501 "},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n",
         " 400 "},
        {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", " 400 "},
        {POST("3x"), " 400 "},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: -3\r\n\r\n", " 400 "},
        {POST("99999999999999999999"), " 413 "},
        {POST("18446744073709551615"), " 413 "}, /* what MHD means unknown by */
        {POST("18446744073709551614"), " 413 "},
        {POST("9223372036854775808"), " 413 "},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\n", " 400 "},
        {"GET / HTTP/1.1\r\n" HOST ": x\r\n\r\n" GET("/evil"), " 400 "},
        {"GET / HTTP/1.1\r\n" HOST ":\r\n" GET("/evil"), " 400 "},
        {"GET / HTTP/1.1\r\n:\r\n" HOST "\r\n", " 400 "},
        {"GET / HTTP/1.1\r\n" HOST "X: a\r\n b\r\n\r\n", " 400 "},
        {"GET / HTTP/1.1\r\n" HOST "X: a\n\r\n", " 400 "},
        {"GET  / HTTP/1.1\r\n" HOST "\r\n", " 400 "},
        {"GET / HTTP/1.1\r\n\r\n", " 400 "}, /* no Host */
        {"GET / HTTP/1.1\r\nnonsense\r\n\r\n", " 400 "},
        {"GET / HTTP/9.9\r\n" HOST "\r\n", ""},
        {"\x16\x03\x01\x02\r\n\r\n", ""},
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""},
    };

    (void)state;
    web_open();
    web.serve = web_serve_target;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int fd = web_connect();
        const char *answer = web_ask(fd, cases[i].head, NULL);

        if (!strstr(answer, cases[i].status) || strstr(answer, "200 OK"))
            fail_msg("case %zu: %s", i, answer);
        close(fd);
    }
    web_assert_served();
}

/* A NUL does not hide what stands behind it. */
static void test_nul_in_head(void **state)
{
#define CASE(text) {text, sizeof text - 1}
    static const struct {
        const char *head;
        size_t n;
    } cases[] = {
        CASE("GET / HTTP/1.1\r\nHost: localhost\0evil\r\n\r\n"),
        CASE("GET / HTTP/1.1\r\n" HOST "Authorization: Bearer TOKEN\0junk\r\n\r\n"),
        CASE("GET / HTTP/1.1\r\n" HOST "Authorization: Bearer TOKEN\0\r\n\r\n"),
        CASE("GET / HTTP/1.1\r\nX: \0y\r\n" HOST "\r\n"),
        CASE("GET / HTTP/1.1\r\nX:\0\r\n" HOST "\r\n"),
        CASE("GET / HTTP/1.1\r\n" HOST "X\0: y\r\n\r\n"),
        CASE("GET / HTTP/1.1\r\n" HOST "\0X: y\r\n\r\n"),
        CASE("GET / HTTP/1.1\r\n" HOST "\0\r\n" GET("/evil")),
        CASE("GET /mcp\0 HTTP/1.1\r\n" HOST "\r\n"),
        CASE("GET /mcp\0/x?y=z HTTP/1.1\r\n" HOST "\r\n"),
        CASE("GET /mcp?y\0=z HTTP/1.1\r\n" HOST "\r\n"),
        CASE("GET\0 / HTTP/1.1\r\n" HOST "\r\n"),
        CASE("GET / HTTP/1.0\r\n\0X: y\r\n\r\n"),
    };
#undef CASE

    (void)state;
    web_open();
    web.serve = web_serve_target;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int fd = web_connect();
        const char *answer;

        web_send_bytes(fd, cases[i].head, cases[i].n);
        answer = web_receive(fd, NULL);
        if (!strstr(answer, " 400 ") || strstr(answer, "200 OK"))
            fail_msg("case %zu: %s", i, answer);
        close(fd);
    }
    web_assert_served();
}

static void test_bad_chunks(void **state)
{
    static const char *const bodies[] = {"zz\r\nabc\r\n", "-1\r\n", "3\r\nabcdef\r\n", "\r\n\r\n",
                                         "ffffffffffffffffffff\r\n"};

    (void)state;
    web_open();
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        int fd = web_connect();
        struct sr_request *rq;

        web_send(fd, POST_CHUNKED);
        web_send(fd, bodies[i]);
        rq = web_take();
        assert_int_equal(web_read(rq, 1000, NULL, NULL), SR_CONFLICT);
        web_done(rq);
        assert_null(strstr(web_receive(fd, NULL), "200 OK"));
        close(fd);
    }
}

static void test_unread_stream_is_bounded(void **state)
{
    struct sr_request *rq;
    struct sr_err err;
    struct sr_gone g = {0};
    size_t written = 0;
    int fd;

    (void)state;
    web.config.stream_bytes = 300000;
    web_open();
    fd = web_connect();
    web_send(fd, GET("/"));
    rq = web_take();
    assert_int_equal(sr_request_stream(rq, 200, "", 0, &err), 0);
    sr_request_watch(rq, &g, &web.loop);
    while (sr_request_write(rq, zeros, 10000, &err) == 0) {
        written += 10000;
        web_turn(0);
        assert_true(written < 64 << 20); /* the kernel's buffers come on top */
    }
    assert_int_equal(err.code, SR_CONFLICT);
    web.serve = web_serve_target;
    web_assert_served();
    web_turn(0);
    assert_int_equal(g.op.state, SR_OP_READY);
    assert_false(sr_request_is_done(rq));
    sr_op_drop(&g.op);
    assert_int_equal(sr_request_write(rq, "x", 1, &err), -1);
    assert_int_equal(sr_httpd_stats(web.httpd).requests, 0);
    web_done(rq);
    close(fd);
}

/* A stream whose client has to be told something, and does not read: until that many
 * bytes wait here. */
static struct sr_request *unread_stream(int fd, size_t waiting)
{
    size_t before = sr_httpd_stats(web.httpd).unsent, left;
    struct sr_request *rq;

    web_send(fd, GET("/"));
    rq = web_take();
    assert_int_equal(sr_request_stream(rq, 200, "", 0, NULL), 0);
    do { /* fills the kernel's memory */
        left = sr_httpd_stats(web.httpd).unsent - before;
        if (left < waiting)
            assert_int_equal(sr_request_write(rq, zeros, waiting - left, NULL), 0);
        web_run(50);
    } while (sr_httpd_stats(web.httpd).unsent - before < waiting);
    return rq;
}

static void test_budget_for_output(void **state)
{
    struct sr_request *one, *two, *three;
    struct sr_err err;
    size_t unsent;
    int fd[3];

    (void)state;
    web.config.output_budget = 600000;
    web_open();
    for (int i = 0; i < 3; i++)
        fd[i] = web_connect();
    one = unread_stream(fd[0], 400000);
    two = unread_stream(fd[1], 150000);
    web_send(fd[2], GET("/"));
    three = web_take();
    assert_int_equal(sr_request_stream(three, 200, "", 0, NULL), 0);
    web_run(20);
    /* Nothing waits: let through. Its client reads: more than one thing may wait. */
    assert_int_equal(sr_request_write(three, zeros, 200000, NULL), 0);
    assert_true(sr_httpd_stats(web.httpd).unsent > 600000);
    assert_int_equal(sr_request_write(three, "more", 4, NULL), 0);
    web_receive(fd[2], "more");
    assert_int_equal(sr_request_write(three, zeros, 900000, NULL), 0);
    unsent = sr_httpd_stats(web.httpd).unsent;
    assert_int_equal(sr_request_write(three, zeros, 1, &err), -1); /* far too much */
    assert_int_equal(err.code, SR_CONFLICT);
    assert_int_equal(sr_httpd_stats(web.httpd).unsent, unsent - 900000);
    web_run(150);
    assert_int_equal(sr_request_write(two, zeros, 300000, &err), -1);
    assert_int_equal(err.code, SR_CONFLICT);
    assert_true(sr_httpd_stats(web.httpd).unsent <= 400000);
    assert_int_equal(sr_request_write(one, zeros, 10000, NULL), 0);
    assert_true(web_is_closed(fd[1], 5000));
    web_reset(fd[0]);
    web_run(20);
    assert_int_equal(sr_httpd_stats(web.httpd).unsent, 0);
    web_done(one);
    web_done(two);
    web_done(three);
    close(fd[1]);
    close(fd[2]);
}

static void test_answers_are_counted(void **state)
{
    static char bytes[12 << 20];
    struct sr_request *rq;
    int fd;

    (void)state;
    web_open();
    fd = web_connect();
    web_send(fd, GET("/"));
    rq = web_take();
    assert_int_equal(sr_request_respond(rq, 200, "", 0, bytes, sizeof bytes, NULL), 0);
    assert_int_equal(sr_request_respond(rq, 200, "", 0, bytes, sizeof bytes, NULL), -1);
    web_done(rq);
    web_run(20);
    assert_int_equal(sr_httpd_stats(web.httpd).unsent, sizeof bytes);
    web_reset(fd);
    web_run(20);
    assert_int_equal(sr_httpd_stats(web.httpd).unsent, 0);
    fd = web_connect();
    web.serve = web_serve_target;
    web_ask(fd, GET("/x"), "/x");
    web_run(20);
    assert_int_equal(sr_httpd_stats(web.httpd).unsent, 0);
    close(fd);
}

/* Where the hard limit of descriptors is too low, that shows. */
static void test_number_of_connections_shows(void **state)
{
    struct rlimit limit, low;

    (void)state;
    web_open();
    assert_int_equal(sr_httpd_stats(web.httpd).max_connections, web.config.connections);
    sr_httpd_close(web.httpd);
    web.httpd = NULL;
    if (fork_is_child()) {
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
        low = (struct rlimit){400, 400};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        web.config.connections = 1000;
        web_open();
        _exit(sr_httpd_stats(web.httpd).max_connections == 200 ? 0 : 1);
    }
}

/* No program that is started meanwhile may inherit a socket. */
static void test_descriptors_are_close_on_exec(void **state)
{
    struct sr_request *rq;
    int fd;

    (void)state;
    web_open();
    fd = web_connect();
    web_send(fd, GET("/"));
    rq = web_take();
    for (int i = 3; i < 1000; i++) {
        int flags = fcntl(i, F_GETFD);

        if (flags >= 0 && !(flags & FD_CLOEXEC)) {
            char link[64], what[256] = "";

            snprintf(link, sizeof link, "/proc/self/fd/%d", i);
            (void)!readlink(link, what, sizeof what - 1);
            if (strstr(what, "socket") || strstr(what, "anon_inode"))
                fail_msg("descriptor %d (%s) would be inherited", i, what);
        }
    }
    web_done(rq);
    close(fd);
}

#define T(name) cmocka_unit_test_setup_teardown(name, web_set_up, web_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_body_of_64_mb_is_dropped),
        T(test_chunked_body_is_counted),
        T(test_longest_bodies_are_cut_off),
        T(test_budget_for_bodies),
        T(test_endless_heads),
        T(test_longest_head),
        T(test_too_long_head),
        T(test_ambiguous_heads),
        T(test_nul_in_head),
        T(test_bad_chunks),
        T(test_unread_stream_is_bounded),
        T(test_budget_for_output),
        T(test_answers_are_counted),
        T(test_number_of_connections_shows),
        T(test_descriptors_are_close_on_exec),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
