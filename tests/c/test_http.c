/* The HTTP client's calls against servers that behave badly. */
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <curl/curl.h>

#include "http_rig.h"

static bool wait_fails;

/* Stands before libcurl's own. */
CURLMcode curl_multi_poll(CURLM *multi, struct curl_waitfd *fds, unsigned int n, int timeout_ms,
                          int *got)
{
    CURLMcode (*real)(CURLM *, struct curl_waitfd *, unsigned int, int, int *);

    if (wait_fails)
        return CURLM_OUT_OF_MEMORY;
    *(void **)&real = dlsym(RTLD_NEXT, "curl_multi_poll");
    return real(multi, fds, n, timeout_ms, got);
}

static struct sr_call get(size_t cap)
{
    return (struct sr_call){.method = "GET", .path = "/x", .body_cap = cap};
}

static void run_call(struct sr_call *call, int64_t timeout_ms)
{
    assert_int_equal(sr_call_start(rig.http, &rig.target, call, timeout_ms, NULL), 0);
    rig_run_until(&call->op);
}

/* The code of a GET that must fail. */
static enum sr_code failing(int64_t timeout_ms, size_t cap)
{
    struct sr_call call = get(cap);
    enum sr_code code;

    run_call(&call, timeout_ms);
    code = call.op.err.code;
    assert_true(code == SR_OK || call.op.err.msg[0]);
    assert_true(call.answer.len <= cap);
    sr_call_clear(&call);
    return code;
}

static void test_answer(void **state)
{
    struct sr_call call = get(100);

    (void)state;
    rig_answer(ANSWER("200 OK\r\nApi-Version: 1.41\r\nContent-Length: 5", "hello"));
    run_call(&call, 5000);
    assert_int_equal(call.op.err.code, SR_OK);
    assert_int_equal(call.status, 200);
    assert_memory_equal(call.answer.data, "hello", 5);
    assert_string_equal(call.api_version, "1.41");
    sr_call_clear(&call);
}

static void test_chunks_are_joined(void **state)
{
    struct sr_call call = get(100);

    (void)state;
    rig_answer(ANSWER("404 Not Found\r\napi-version:1.52\r\nTransfer-Encoding: chunked",
                       "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"));
    run_call(&call, 5000);
    assert_int_equal(call.op.err.code, SR_OK); /* an answer is an answer */
    assert_int_equal(call.status, 404);
    assert_int_equal(call.answer.len, 5);
    assert_string_equal(call.api_version, "1.52");
    sr_call_clear(&call);
}

static void test_long_version_header_is_cut(void **state)
{
    struct sr_call call = get(100);

    (void)state;
    rig_answer(ANSWER("200 OK\r\nApi-Version: 1.41111111111111111111111111\r\nContent-Length: 0", ""));
    run_call(&call, 5000);
    assert_int_equal(strlen(call.api_version), sizeof call.api_version - 1);
    sr_call_clear(&call);
}

static void echo_length(int fd)
{
    char buf[65536];
    size_t n = 0;
    ssize_t got;
    char *end = NULL;

    while (!end && n < sizeof buf && (got = read(fd, buf + n, sizeof buf - n)) > 0) {
        n += (size_t)got;
        end = memmem(buf, n, "\r\n\r\n", 4);
    }
    rig.server.received = end ? (int64_t)(n - (size_t)(end + 4 - buf)) : 0;
    while (rig.server.received < 3000000 && (got = read(fd, buf, sizeof buf)) > 0)
        rig.server.received += got;
    rig_send_text(fd, ANSWER("201 Created\r\nContent-Length: 2", "ok"));
    rig_wait_for_client(fd);
}

static void test_body_larger_than_the_socket_buffer(void **state)
{
    struct sr_call call = get(100);
    char *body = calloc(1, 3000000);

    (void)state;
    rig_start(echo_length, 1);
    call.method = "PUT";
    call.body = body;
    call.body_len = 3000000;
    call.content_type = "application/x-tar";
    run_call(&call, 10000);
    assert_int_equal(call.op.err.code, SR_OK);
    assert_int_equal(call.status, 201);
    assert_int_equal(rig.server.received, 3000000);
    sr_call_clear(&call);
    free(body);
}

static void test_silence_meets_the_deadline(void **state)
{
    int64_t start = sr_now_ms();

    (void)state;
    rig_start(rig_wait_for_client, 1);
    assert_int_equal(failing(200, 100), SR_TIMEOUT);
    assert_in_range(sr_now_ms() - start, 150, 15000);
}

/* Takes no connection at all: the kernel does, and nobody ever answers. */
static void test_silence_before_accept_meets_the_deadline(void **state)
{
    (void)state;
    rig_listen(rig.path);
    assert_int_equal(failing(200, 100), SR_TIMEOUT);
    close(rig.server.fd);
}

static void test_half_a_head_meets_the_deadline(void **state)
{
    (void)state;
    rig_start(rig_serve_text_and_wait, 1);
    rig.server.text = "HTTP/1.1 200 OK\r\nContent-Le";
    assert_int_equal(failing(200, 100), SR_TIMEOUT);
}

static void test_half_a_body_meets_the_deadline(void **state)
{
    (void)state;
    rig_start(rig_serve_text_and_wait, 1);
    rig.server.text = ANSWER("200 OK\r\nContent-Length: 50", "only this");
    assert_int_equal(failing(200, 100), SR_TIMEOUT);
}

static void test_broken_answers(void **state)
{
    static const char *const texts[] = {
        "",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "garbage\r\n\r\n",
        "\r\n\r\n\r\n\r\n",
        ANSWER("200 OK\r\nContent-Length: 50", "cut"),
        ANSWER("200 OK\r\nTransfer-Encoding: chunked", "zz\r\nhello\r\n"),
        ANSWER("200 OK\r\nTransfer-Encoding: chunked", "5\r\nhel"),
        ANSWER("200 OK\r\nTransfer-Encoding: chunked", "ffffffffffffffffff\r\nhello"),
        ANSWER("200 OK\r\nTransfer-Encoding: chunked", "5\r\nhello\r\n"),
        ANSWER("200 OK\r\nContent-Length: -5", "x"),
    };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        rig_answer(texts[i]);
        if (failing(3000, 100) != SR_UNAVAILABLE)
            fail_msg("%s", texts[i]);
        rig_stop();
    }
}

static void serve_endless_body(int fd)
{
    static char block[65536];

    rig_read_request(fd);
    rig_send_text(fd, ANSWER("200 OK\r\nContent-Length: 4294967296", ""));
    while (rig_send(fd, block, sizeof block))
        rig.server.received += sizeof block;
}

static void test_huge_body_stops_at_the_cap(void **state)
{
    long before = rig_memory_kib();

    (void)state;
    rig_start(serve_endless_body, 1);
    assert_int_equal(failing(10000, 100000), SR_TOO_LARGE);
    rig_stop();
    assert_true(rig.server.received < (16 << 20));
    rig_grown_less(before, 5000);
}

static void test_endless_head_is_given_up(void **state)
{
    struct sr_call call = get(100);
    long before = rig_memory_kib();

    (void)state;
    rig_start(rig_serve_endless_head, 1);
    run_call(&call, 5000);
    assert_int_not_equal(call.op.err.code, SR_OK);
    sr_call_clear(&call);
    rig_grown_less(before, 5000);
}

static void serve_reset(int fd)
{
    struct linger hard = {.l_onoff = 1};

    rig_read_request(fd);
    rig_send_text(fd, ANSWER("200 OK\r\nContent-Length: 50", "some"));
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
}

static void test_reset_in_the_middle_of_a_body(void **state)
{
    (void)state;
    rig_start(serve_reset, 1);
    assert_int_equal(failing(3000, 100), SR_UNAVAILABLE);
}

static void test_no_socket(void **state)
{
    (void)state;
    assert_int_equal(failing(3000, 100), SR_UNAVAILABLE);
}

static void test_refused(void **state)
{
    struct sr_call call = get(100);

    (void)state;
    rig_listen(rig.path);
    close(rig.server.fd);
    run_call(&call, 3000);
    assert_int_equal(call.op.err.code, SR_UNAVAILABLE);
    assert_string_equal(call.op.err.msg, strerror(ECONNREFUSED));
    sr_call_clear(&call);
}

static void test_permission_denied(void **state)
{
    enum sr_code code;
    bool root = geteuid() == 0;

    (void)state;
    rig_listen(rig.path);
    chmod(rig.path, 0);
    if (root && seteuid(65534) < 0)
        skip();
    code = failing(3000, 100);
    if (root)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(code, SR_DENIED);
    close(rig.server.fd);
}

static void test_dropped_call_lets_go(void **state)
{
    struct sr_call call = get(100);

    (void)state;
    rig_start(rig_wait_for_client, 1);
    assert_int_equal(sr_call_start(rig.http, &rig.target, &call, 5000, NULL), 0);
    for (int i = 0; i < 5; i++)
        sr_loop_turn(&rig.loop, 10);
    sr_call_clear(&call);
    assert_int_equal(call.op.state, SR_OP_SPENT);
    assert_null(sr_loop_take_ready(&rig.loop));
    rig_stop(); /* would hang if the connection were still there */
}

static void test_connection_is_used_again(void **state)
{
    (void)state;
    rig_start(rig_serve_text_and_wait, 1);
    rig.server.text = ANSWER("200 OK\r\nContent-Length: 0", "");
    for (int i = 0; i < 2; i++) {
        struct sr_call call = get(100);

        assert_int_equal(sr_call_start(rig.http, &rig.target, &call, i ? 300 : 3000, NULL), 0);
        rig_run_until(&call.op);
        /* The second goes to the same connection, on which nobody answers any more. */
        assert_int_equal(call.op.err.code, i ? SR_TIMEOUT : SR_OK);
        sr_call_clear(&call);
    }
}

static void test_restarted_server_is_found_again(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct sr_call call = get(100);

        rig_answer(ANSWER("200 OK\r\nContent-Length: 2", "ok"));
        call.method = "POST";
        call.body = "{}";
        call.body_len = 2;
        run_call(&call, 3000);
        assert_int_equal(call.op.err.code, SR_OK);
        sr_call_clear(&call);
        shutdown(rig.server.fd, SHUT_RDWR);
        close(rig.server.fd);
        rig.server.running = false;
        pthread_detach(rig.server.thread);
    }
}

static void serve_many(int fd)
{
    for (int i = 0; i < 500; i++) {
        rig_read_request(fd);
        rig_send_text(fd, ANSWER("200 OK\r\nContent-Length: 5", "hello"));
    }
}

static void test_many_calls_leave_nothing_behind(void **state)
{
    long before = 0;

    (void)state;
    rig_start(serve_many, 1);
    for (int i = 0; i < 500; i++) {
        struct sr_call call = get(100);

        if (i == 50)
            before = rig_memory_kib();
        run_call(&call, 5000);
        assert_int_equal(call.op.err.code, SR_OK);
        sr_call_clear(&call);
        assert_ptr_equal(sr_loop_take_ready(&rig.loop), NULL);
    }
    rig_grown_less(before, 1000);
}

/* Longer in all than the silence that is allowed, but never long without a byte. */
static void serve_in_drops(int fd)
{
    rig_read_request(fd);
    rig_send_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n");
    for (int i = 0; i < 30; i++) {
        usleep(50000);
        rig_send(fd, "x", 1);
    }
}

static void test_silence_is_counted_from_the_last_byte(void **state)
{
    struct sr_call call = get(100);

    (void)state;
    call.idle_ms = 1200;
    rig_start(serve_in_drops, 1);
    run_call(&call, -1);
    assert_int_equal(call.op.err.code, SR_OK);
    assert_int_equal(call.answer.len, 30);
    sr_call_clear(&call);
    rig_stop();

    for (int with_head = 0; with_head < 2; with_head++) {
        call = get(100);
        call.idle_ms = 200;
        rig_start(with_head ? rig_serve_text_and_wait : rig_wait_for_client, 1);
        rig.server.text = ANSWER("200 OK\r\nContent-Length: 9", "half");
        run_call(&call, -1);
        assert_int_equal(call.op.err.code, SR_TIMEOUT);
        assert_non_null(strstr(call.op.err.msg, "silent"));
        sr_call_clear(&call);
        rig_stop();
    }
    call = get(100); /* dropped while it is silent: no timer stays behind */
    call.idle_ms = 100000;
    rig_start(rig_wait_for_client, 1);
    assert_int_equal(sr_call_start(rig.http, &rig.target, &call, -1, NULL), 0);
    sr_loop_turn(&rig.loop, 10);
    sr_call_clear(&call);
    assert_null(rig.loop.timers);
}

static void test_want_of_memory_has_its_own_words(void **state)
{
    struct sr_call call = get(100);

    (void)state;
    rig_answer(ANSWER("200 OK\r\nContent-Length: 5", "hello"));
    call.answer.failed = true; /* as after an allocation that failed */
    run_call(&call, 5000);
    assert_int_equal(call.op.err.code, SR_NO_MEMORY);
    assert_string_equal(call.op.err.msg, "out of memory");
    sr_call_clear(&call);
}

static void on_readable(struct sr_watch *w, short revents)
{
    (void)revents;
    sr_watch_remove(w);
}

static void test_loop_goes_on_at_ease_without_curls_wait(void **state)
{
    struct sr_call call = get(100);
    struct sr_watch watch = {.events = POLLIN, .on_ready = on_readable};
    int ends[2], turns = 0;
    int64_t end = sr_now_ms() + 300;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    watch.fd = ends[0];
    sr_watch_add(&rig.loop, &watch);
    wait_fails = true;
    for (; sr_now_ms() < end; turns++)
        sr_loop_turn(&rig.loop, 1000);
    assert_in_range(turns, 1, 100);
    rig_answer(ANSWER("200 OK\r\nContent-Length: 5", "hello"));
    run_call(&call, 5000);
    assert_int_equal(call.op.err.code, SR_OK);
    sr_call_clear(&call);
    assert_int_equal(write(ends[1], "x", 1), 1);
    sr_loop_turn(&rig.loop, 1000);
    wait_fails = false;
    assert_null(watch.link);
    close(ends[0]);
    close(ends[1]);
}

static void test_addresses(void **state)
{
    static const char *const bad[] = {"", "unix://", "unix://x", "tcp://", "tcp:///", "ssh://host", "/var/run/x",
                                      "http://host", "UNIX:///x"};
    struct sr_target t;
    struct sr_err err;

    (void)state;
    assert_int_equal(sr_target_parse(&t, "unix:///a/b.sock", NULL, &err), 0);
    assert_string_equal(t.unix_path, "/a/b.sock");
    sr_target_clear(&t);
    assert_int_equal(sr_target_parse(&t, "unix:///a/b.sock", "/tls", &err), 0);
    assert_null(t.ca);
    sr_target_clear(&t);
    assert_int_equal(sr_target_parse(&t, "tcp://h:2375", NULL, &err), 0);
    assert_string_equal(t.origin, "http://h:2375");
    sr_target_clear(&t);
    assert_int_equal(sr_target_parse(&t, "tcp://h:2375//", NULL, &err), 0);
    assert_string_equal(t.origin, "http://h:2375");
    sr_target_clear(&t);
    assert_int_equal(sr_target_parse(&t, "tcp://h:2376/", "/tls", &err), 0);
    assert_string_equal(t.origin, "https://h:2376");
    assert_string_equal(t.ca, "/tls/ca.pem");
    assert_string_equal(t.cert, "/tls/cert.pem");
    assert_string_equal(t.key, "/tls/key.pem");
    sr_target_clear(&t);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(sr_target_parse(&t, bad[i], NULL, &err), -1);
        assert_int_equal(err.code, SR_INVALID);
        sr_target_clear(&t);
    }
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, rig_set_up, rig_tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),
        T(test_answer),
        T(test_chunks_are_joined),
        T(test_long_version_header_is_cut),
        T(test_body_larger_than_the_socket_buffer),
        T(test_silence_meets_the_deadline),
        T(test_silence_before_accept_meets_the_deadline),
        T(test_half_a_head_meets_the_deadline),
        T(test_half_a_body_meets_the_deadline),
        T(test_broken_answers),
        T(test_huge_body_stops_at_the_cap),
        T(test_endless_head_is_given_up),
        T(test_reset_in_the_middle_of_a_body),
        T(test_no_socket),
        T(test_refused),
        T(test_permission_denied),
        T(test_dropped_call_lets_go),
        T(test_connection_is_used_again),
        T(test_restarted_server_is_found_again),
        T(test_many_calls_leave_nothing_behind),
        T(test_silence_is_counted_from_the_last_byte),
        T(test_want_of_memory_has_its_own_words),
        T(test_loop_goes_on_at_ease_without_curls_wait),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
