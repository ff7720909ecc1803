/* Requests, answers and streams of the HTTP server, over real sockets. */
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

#include "httpd_rig.h"

static void test_head_is_handed_over(void **state)
{
    struct sr_request *rq;
    int fd;

    (void)state;
    web_open();
    fd = web_connect();
    web_send(fd, "GET /a%20b?x=1&y=%2F HTTP/1.1\r\nHost: me:1\r\nX-One: 1\r\nx-empty:\r\n\r\n");
    rq = web_take();
    assert_string_equal(sr_request_method(rq), "GET");
    assert_string_equal(sr_request_target(rq), "/a%20b?x=1&y=%2F");
    assert_string_equal(sr_request_peer(rq), "127.0.0.1");
    assert_string_equal(web_header(rq, "host"), "me:1");
    assert_string_equal(web_header(rq, "X-ONE"), "1");
    assert_string_equal(web_header(rq, "X-Empty"), "");
    assert_null(web_header(rq, "X-Two"));
    assert_int_equal(sr_httpd_stats(web.httpd).requests, 1);
    web_respond(rq, 404, "no");
    web_done(rq);
    assert_non_null(strstr(web_receive(fd, "no"), "HTTP/1.1 404 "));
    web_run(20);
    assert_int_equal(sr_httpd_stats(web.httpd).requests, 0);
    assert_int_equal(sr_httpd_stats(web.httpd).connections, 1);
    close(fd);
    web_run(50);
    assert_int_equal(sr_httpd_stats(web.httpd).connections, 0);
}

/* One connection, request after request, however the body comes. */
static void test_bodies(void **state)
{
    static const struct {
        const char *head, *rest, *body;
    } cases[] = {
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello", "", "hello"},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhe", "llo", "hello"},
        {POST("0"), "", ""},
        {"POST / HTTP/1.1\r\n" HOST "\r\n", "", ""},
        {"PUT / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n",
         "3;ext=1\r\nllo\r\n0\r\n\r\n", "hello"},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n", "", ""},
        {POST_CHUNKED "3\r\nabc\r\n0\r\nX-Trailer: 1\r\n\r\n", "", "abc"},
    };
    int fd;

    (void)state;
    web_open();
    fd = web_connect();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sr_request *rq;
        const char *body = NULL;
        size_t n = 0;

        web_send(fd, cases[i].head);
        rq = web_take();
        web_send(fd, cases[i].rest);
        assert_int_equal(web_read(rq, 5, &body, &n), SR_OK);
        assert_int_equal(n, strlen(cases[i].body));
        assert_memory_equal(body, cases[i].body, n);
        sr_request_drop_body(rq);
        assert_int_equal(web_read(rq, 5, &body, &n), SR_CONFLICT); /* only once */
        web_respond(rq, 200, "ok");
        web_done(rq);
        assert_non_null(strstr(web_receive(fd, "ok"), "HTTP/1.1 200 "));
    }
    assert_int_equal(sr_httpd_stats(web.httpd).buffered, 0);
    close(fd);
}

/* Its lines cannot be checked, so nothing behind them is believed to be a request. */
static void test_trailer_is_the_end(void **state)
{
    struct sr_request *rq;
    const char *answer;
    int fd;

    (void)state;
    web_open();
    fd = web_connect();
    web_send(fd, POST_CHUNKED "0\r\nX: 1\r\n:\r\n" GET("/evil") "\r\n");
    rq = web_take();
    assert_int_equal(web_read(rq, 5, NULL, NULL), SR_OK);
    web_respond(rq, 200, "ok");
    web_done(rq);
    answer = web_receive(fd, NULL);
    assert_non_null(strstr(answer, "Connection: close"));
    assert_false(sr_httpd_has_request(web.httpd));
    close(fd);
}

/* However its lines are cut into pieces, and however long it pauses. */
static void test_chunks_in_pieces(void **state)
{
    static const char body[] = "5;a=b\r\nhello\r\n6\r\n world\r\n0\r\n";
    struct sr_request *rq;
    struct sr_read r = {0};
    const char *data;
    size_t n;
    int fd;

    (void)state;
    web_open();
    fd = web_connect();
    web_send(fd, POST_CHUNKED);
    rq = web_take();
    sr_request_read(rq, &r, &web.loop, 100);
    for (size_t i = 0; i < sizeof body - 1; i++) {
        web_send_bytes(fd, body + i, 1);
        web_run(3);
    }
    assert_int_equal(r.op.state, SR_OP_PENDING);
    web_send(fd, "\r\n");
    web_run(3);
    assert_int_equal(r.op.state, SR_OP_READY);
    assert_int_equal(r.op.err.code, SR_OK);
    sr_op_drop(&r.op);
    sr_request_body(rq, &data, &n);
    assert_int_equal(n, 11);
    assert_memory_equal(data, "hello world", 11);
    web_respond(rq, 200, "ok");
    web_done(rq);
    web_receive(fd, "ok");
    web.serve = web_serve_target;
    assert_non_null(strstr(web_ask(fd, GET("/n"), "/n"), "200 OK"));
    close(fd);
}

static void test_large_body(void **state)
{
    enum { SIZE = 3000000 };
    char *bytes = malloc(SIZE), head[200];
    const char *body;
    size_t n;
    struct sr_request *rq;
    int fd;

    (void)state;
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (char)(i * 7919 >> 3);
    web_open();
    fd = web_connect();
    snprintf(head, sizeof head, "POST / HTTP/1.1\r\n" HOST "Content-Length: %d\r\n\r\n", SIZE);
    web_send(fd, head);
    rq = web_take();
    {
        struct sr_read r = {0};

        sr_request_read(rq, &r, &web.loop, SIZE);
        web_send_bytes(fd, bytes, SIZE);
        while (r.op.state == SR_OP_PENDING)
            web_turn(20);
        sr_op_drop(&r.op);
        assert_int_equal(r.op.err.code, SR_OK);
    }
    sr_request_body(rq, &body, &n);
    assert_int_equal(n, SIZE);
    assert_memory_equal(body, bytes, SIZE);
    assert_int_equal(sr_httpd_stats(web.httpd).buffered, SIZE);
    web_done(rq); /* with the body still in it */
    assert_int_equal(sr_httpd_stats(web.httpd).buffered, 0);
    close(fd);
    free(bytes);
}

static void test_large_answer(void **state)
{
    enum { SIZE = 5000000 };
    char *bytes = malloc(SIZE + 1);
    struct sr_request *rq;
    size_t total = 0;
    int fd;

    (void)state;
    memset(bytes, 'x', SIZE);
    bytes[SIZE] = '\0';
    web_open();
    fd = web_connect();
    web_send(fd, GET("/"));
    rq = web_take();
    web_respond(rq, 200, bytes);
    web_done(rq);
    while (total < SIZE) {
        ssize_t got = read(fd, bytes, SIZE);

        if (got > 0)
            total += (size_t)got;
        else
            web_turn(5);
    }
    web.serve = web_serve_target;
    assert_non_null(strstr(web_ask(fd, GET("/next"), "/next"), "200 OK"));
    close(fd);
    free(bytes);
}

static void test_continue_is_asked_for(void **state)
{
    struct sr_request *rq;
    struct sr_read r = {0};
    int fd;

    (void)state;
    web_open();
    fd = web_connect();
    web_send(fd, "POST / HTTP/1.1\r\n" HOST "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    rq = web_take();
    web_run(30); /* nobody has asked for the body yet */
    assert_int_equal(recv(fd, &(char){0}, 1, 0), -1);
    sr_request_read(rq, &r, &web.loop, 10);
    assert_string_equal(web_receive(fd, "\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    web_send(fd, "hi");
    while (r.op.state == SR_OP_PENDING)
        web_turn(5);
    sr_op_drop(&r.op);
    assert_int_equal(r.op.err.code, SR_OK);
    web_respond(rq, 200, "ok");
    web_done(rq);
    assert_non_null(strstr(web_receive(fd, "ok"), "HTTP/1.1 200 "));
    close(fd);
}

/* The client is told before it sends what would be dropped. */
static void test_continue_is_refused(void **state)
{
    struct sr_request *rq;
    const char *answer;
    int fd;

    (void)state;
    web_open();
    fd = web_connect();
    web_send(fd, "POST / HTTP/1.1\r\n" HOST "Content-Length: 200\r\nExpect: 100-continue\r\n\r\n");
    rq = web_take();
    assert_int_equal(web_read(rq, 100, NULL, NULL), SR_TOO_LARGE);
    web_respond(rq, 413, "no");
    web_done(rq);
    answer = web_receive(fd, NULL);
    assert_non_null(strstr(answer, "HTTP/1.1 413 "));
    assert_non_null(strstr(answer, "Connection: close"));
    close(fd);
}

static void test_pipeline_is_answered_in_order(void **state)
{
    static const char *const wanted[] = {"one", "two", "three"};
    const char *at;
    int fd;

    (void)state;
    web_open();
    web.serve = web_serve_target;
    fd = web_connect();
    at = web_ask(fd, "GET /one HTTP/1.1\r\n" HOST "\r\nPOST /two HTTP/1.1\r\n" HOST
                 "Content-Length: 3\r\n\r\nabcGET /three HTTP/1.1\r\n" HOST "\r\n", "/three");
    for (size_t i = 0; i < 3; i++) {
        at = strstr(at, wanted[i]);
        assert_non_null(at);
    }
    close(fd);
}

static void test_head_and_bodiless_answers(void **state)
{
    struct sr_request *rq;
    const char *answer;
    int fd;

    (void)state;
    web_open();
    fd = web_connect();
    web_send(fd, "HEAD / HTTP/1.1\r\n" HOST "\r\n");
    rq = web_take();
    assert_string_equal(sr_request_method(rq), "HEAD");
    web_respond(rq, 200, "four");
    web_done(rq);
    web_run(50);
    answer = web_receive(fd, "\r\n\r\n");
    assert_non_null(strstr(answer, "Content-Length: 4\r\n"));
    assert_null(strstr(answer, "four"));
    web_send(fd, "DELETE /x HTTP/1.1\r\n" HOST "\r\n");
    rq = web_take();
    assert_string_equal(sr_request_method(rq), "DELETE");
    assert_int_equal(sr_request_respond(rq, 204, "", 0, NULL, 0, NULL), 0);
    web_done(rq);
    assert_null(strstr(web_receive(fd, "\r\n\r\n"), "Content-Length"));
    web.serve = web_serve_target; /* the connection is still in step */
    assert_non_null(strstr(web_ask(fd, GET("/z"), "/z"), "200 OK"));
    close(fd);
}

/* An answer without a body cannot be a stream; it can still be an answer. */
static void test_streams_that_cannot_be(void **state)
{
    static const struct {
        const char *head;
        unsigned status;
    } cases[] = {{"HEAD / HTTP/1.1\r\n" HOST "\r\n", 200}, {GET("/"), 204}, {GET("/"), 304}};
    int fd;

    (void)state;
    web_open();
    fd = web_connect();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sr_request *rq;
        struct sr_err err;

        web_send(fd, cases[i].head);
        rq = web_take();
        assert_int_equal(sr_request_stream(rq, cases[i].status, "", 0, &err), -1);
        assert_int_equal(err.code, SR_INVALID);
        assert_int_equal(sr_request_respond(rq, cases[i].status, "", 0, "", 0, &err), 0);
        web_done(rq);
        web_receive(fd, "\r\n\r\n");
    }
    web.serve = web_serve_target;
    assert_memory_equal(web_ask(fd, GET("/z"), "/z"), "HTTP/1.1 200 OK", 15);
    close(fd);
}

static void test_old_and_closing_clients(void **state)
{
    const char *answer;
    int fd;

    (void)state;
    web_open();
    web.serve = web_serve_target;
    fd = web_connect();
    answer = web_ask(fd, "GET /old HTTP/1.0\r\n\r\n", NULL);
    assert_non_null(strstr(answer, "/old"));
    close(fd);
    fd = web_connect();
    answer = web_ask(fd, "GET /last HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n", NULL);
    assert_non_null(strstr(answer, "Connection: close"));
    assert_non_null(strstr(answer, "/last"));
    close(fd);
}

static void test_answers_that_cannot_be(void **state)
{
    static const char split[] = "X\0a\r\nSet-Cookie: b", length[] = "Content-Length\0004";
    static const char name[] = "a b\0c", other[] = "Transfer-Encoding\0identity";
    struct sr_request *rq;
    struct sr_err err;
    int fd;

    (void)state;
    web_open();
    fd = web_connect();
    web_send(fd, GET("/"));
    rq = web_take();
    assert_int_equal(sr_request_respond(rq, 200, split, sizeof split, "", 0, &err), -1);
    assert_int_equal(err.code, SR_INVALID);
    assert_int_equal(sr_request_respond(rq, 200, name, sizeof name, "", 0, &err), -1);
    assert_int_equal(sr_request_respond(rq, 200, length, sizeof length, "", 0, &err), -1);
    assert_int_equal(sr_request_stream(rq, 200, other, sizeof other, &err), -1);
    assert_int_equal(sr_request_respond(rq, 99, "", 0, "", 0, &err), -1);
    assert_int_equal(sr_request_write(rq, "x", 1, &err), -1); /* no stream yet */
    assert_int_equal(err.code, SR_INVALID);
    web_respond(rq, 200, "fine");
    assert_int_equal(sr_request_respond(rq, 200, "", 0, "", 0, &err), -1);
    assert_int_equal(err.code, SR_INVALID);
    assert_non_null(strstr(web_receive(fd, "fine"), "200 OK"));
    assert_int_equal(sr_request_respond(rq, 200, "", 0, "", 0, &err), -1);
    web_done(rq);
    close(fd);
}

static void test_unanswered_is_an_error(void **state)
{
    int fd;

    (void)state;
    web_open();
    web.serve = web_done;
    fd = web_connect();
    assert_non_null(strstr(web_ask(fd, GET("/"), "answer.\n"), " 500 "));
    assert_non_null(strstr(web_ask(fd, "POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc",
                                   "answer.\n"), " 500 "));
    close(fd);
}

static void test_stream(void **state)
{
    struct sr_request *rq;
    const char *answer;
    struct sr_gone g = {0};
    int fd;

    (void)state;
    web_open();
    fd = web_connect();
    web_send(fd, POST("3"));
    rq = web_take();
    assert_int_equal(sr_request_stream(rq, 200, "X\0y", 4, NULL), 0);
    sr_request_watch(rq, &g, &web.loop);
    assert_int_equal(sr_request_write(rq, "", 0, NULL), 0);
    assert_int_equal(sr_request_write(rq, "early ", 6, NULL), 0); /* the body is not dropped yet */
    web_run(30);
    assert_int_equal(recv(fd, &(char){0}, 1, 0), -1);
    answer = web_ask(fd, "abc", "early ");
    assert_non_null(strstr(answer, "Transfer-Encoding: chunked\r\n"));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sr_request_write(rq, "tick", 4, NULL), 0);
        assert_string_equal(web_receive(fd, "\r\ntick\r\n"), "4\r\ntick\r\n");
    }
    assert_int_equal(g.op.state, SR_OP_PENDING);
    assert_int_equal(sr_request_write(rq, "last", 4, NULL), 0);
    sr_request_finish(rq);
    assert_int_equal(sr_request_write(rq, "more", 4, NULL), -1);
    assert_string_equal(web_receive(fd, "0\r\n\r\n"), "4\r\nlast\r\n0\r\n\r\n");
    web_turn(0);
    assert_int_equal(g.op.state, SR_OP_READY);
    assert_true(sr_request_is_done(rq));
    sr_op_drop(&g.op);
    web_done(rq);
    web.serve = web_serve_target;
    assert_non_null(strstr(web_ask(fd, GET("/n"), "/n"), "200 OK"));
    close(fd);
}

/* Much more than one piece, in one write. */
static void test_stream_of_size(void **state)
{
    enum { SIZE = 900000 };
    struct sr_request *rq;
    char *bytes = malloc(SIZE);
    const char *answer;
    size_t found = 0;
    int fd;

    (void)state;
    memset(bytes, '.', SIZE);
    web_open();
    fd = web_connect();
    web_send(fd, GET("/"));
    rq = web_take();
    assert_int_equal(sr_request_stream(rq, 200, "", 0, NULL), 0);
    assert_int_equal(sr_request_write(rq, bytes, SIZE, NULL), 0);
    sr_request_finish(rq);
    web_done(rq);
    answer = web_receive(fd, "\r\n0\r\n\r\n");
    for (const char *at = strstr(answer, "\r\n\r\n"); *at; at++)
        found += *at == '.';
    assert_int_equal(found, SIZE);
    close(fd);
    free(bytes);
}

static void test_stream_for_an_old_client(void **state)
{
    struct sr_request *rq;
    const char *answer;
    int fd;

    (void)state;
    web_open();
    fd = web_connect();
    web_send(fd, "GET / HTTP/1.0\r\n\r\n");
    rq = web_take();
    assert_int_equal(sr_request_stream(rq, 200, "", 0, NULL), 0);
    assert_int_equal(sr_request_write(rq, "plain", 5, NULL), 0);
    web_receive(fd, "plain");
    assert_int_equal(sr_request_write(rq, " text", 5, NULL), 0);
    sr_request_finish(rq);
    web_done(rq);
    answer = web_receive(fd, NULL);
    assert_string_equal(answer, " text");
    close(fd);
}

/* An answer that breaks off must not look like a whole one. */
static void test_stream_that_is_given_up(void **state)
{
    struct sr_request *rq;
    int fd;

    (void)state;
    web_open();
    fd = web_connect();
    web_send(fd, GET("/"));
    rq = web_take();
    assert_int_equal(sr_request_stream(rq, 200, "", 0, NULL), 0);
    assert_int_equal(sr_request_write(rq, "half", 4, NULL), 0);
    web_receive(fd, "half");
    sr_request_abort(rq);
    web_done(rq);
    assert_null(strstr(web_receive(fd, NULL), "0\r\n"));
    close(fd);
}

static void test_two_servers_one_port(void **state)
{
    struct sr_httpd *second = NULL;
    struct sr_httpd_config config = web.config;
    struct sr_err err;
    char text[100];

    (void)state;
    web_open();
    config = web.config;
    config.host = "127.0.0.1";
    config.port = web.port;
    assert_int_equal(sr_httpd_open(&second, &web.loop, &config, &err), -1);
    assert_int_equal(err.code, SR_CONFLICT);
    snprintf(text, sizeof text, "127.0.0.1:%u is in use by another program; name another --port",
             web.port);
    assert_string_equal(err.msg, text);
    config.host = "192.0.2.1"; /* TEST-NET-1: nobody's */
    assert_int_equal(sr_httpd_open(&second, &web.loop, &config, &err), -1);
    assert_int_equal(err.code, SR_INVALID);
    config.host = "no such host";
    assert_int_equal(sr_httpd_open(&second, &web.loop, &config, &err), -1);
    assert_int_equal(err.code, SR_INVALID);
    assert_null(second);
}

static void test_hosts(void **state)
{
    const char *host;
    unsigned port;

    (void)state;
    web.config.host = "localhost";
    web_open();
    sr_httpd_address(web.httpd, &host, &port);
    assert_true(!strcmp(host, "127.0.0.1") || !strcmp(host, "::1"));
    assert_true(port > 0);
    sr_httpd_close(web.httpd);
    web.config.host = "::1";
    if (sr_httpd_open(&web.httpd, &web.loop, &web.config, NULL) < 0) {
        web.httpd = NULL;
        skip(); /* a machine without IPv6 */
    }
    sr_httpd_address(web.httpd, &host, &port);
    assert_string_equal(host, "::1");
}

#define T(name) cmocka_unit_test_setup_teardown(name, web_set_up, web_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_head_is_handed_over),
        T(test_bodies),
        T(test_trailer_is_the_end),
        T(test_chunks_in_pieces),
        T(test_large_body),
        T(test_large_answer),
        T(test_continue_is_asked_for),
        T(test_continue_is_refused),
        T(test_pipeline_is_answered_in_order),
        T(test_head_and_bodiless_answers),
        T(test_streams_that_cannot_be),
        T(test_old_and_closing_clients),
        T(test_answers_that_cannot_be),
        T(test_unanswered_is_an_error),
        T(test_stream),
        T(test_stream_of_size),
        T(test_stream_for_an_old_client),
        T(test_stream_that_is_given_up),
        T(test_two_servers_one_port),
        T(test_hosts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
