/* The server stops or closes, whatever is going on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "httpd_rig.h"

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
    assert_true(web_is_closed(idle, 5000));
    assert_true(web_is_closed(slow, 5000));
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
        assert_true(web_is_closed(fd[i], 5000));
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

#define T(name) cmocka_unit_test_setup_teardown(name, web_set_up, web_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_stop),
        T(test_close_with_all_in_flight),
        T(test_close_after_releases),
        T(test_body_outlives_the_server),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
