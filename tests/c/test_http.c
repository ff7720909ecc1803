/* The HTTP client against servers that behave badly: a thread plays the server
 * on a Unix socket in a folder of its own. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "http.h"

#define ANSWER(head, body) "HTTP/1.1 " head "\r\n\r\n" body

static struct sr_loop loop;
static struct sr_http *http;
static struct sr_target target;
static char folder[64], path[100];

/* The server: accepts `connections` times and calls serve for each. */
static struct server {
    pthread_t thread;
    int fd, connections;
    void (*serve)(int fd);
    const char *text;   /* what serve_text sends */
    int64_t received;   /* bytes that came in, when serve counts them */
    bool running;
} server;

static void *server_main(void *unused)
{
    (void)unused;
    for (int i = 0; i < server.connections; i++) {
        int fd = accept(server.fd, NULL, NULL);

        if (fd < 0)
            break;
        server.serve(fd);
        close(fd);
    }
    return NULL;
}

static void listen_at(const char *where)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    snprintf(addr.sun_path, sizeof addr.sun_path, "%s", where);
    unlink(where);
    server.fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(server.fd >= 0);
    assert_int_equal(bind(server.fd, (struct sockaddr *)&addr, sizeof addr), 0);
    assert_int_equal(listen(server.fd, 16), 0);
}

static void start_server(void (*serve)(int fd), int connections)
{
    server = (struct server){.connections = connections, .serve = serve};
    listen_at(path);
    assert_int_equal(pthread_create(&server.thread, NULL, server_main, NULL), 0);
    server.running = true;
}

static void stop_server(void)
{
    if (!server.running)
        return;
    shutdown(server.fd, SHUT_RDWR);
    pthread_join(server.thread, NULL);
    close(server.fd);
    server.running = false;
}

static int set_up(void **state)
{
    char address[120];

    (void)state;
    strcpy(folder, "/tmp/sr-http-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/engine.sock", folder);
    snprintf(address, sizeof address, "unix://%s", path);
    sr_loop_init(&loop);
    return sr_http_open(&http, &loop, NULL) || sr_target_parse(&target, address, NULL, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    sr_http_close(http);
    stop_server();
    sr_loop_clear(&loop);
    sr_target_clear(&target);
    unlink(path);
    rmdir(folder);
    return 0;
}

/* Reads a request up to the end of its head. */
static void read_request(int fd)
{
    char buf[4096];
    size_t len = 0;

    while (len < sizeof buf) {
        ssize_t n = read(fd, buf + len, sizeof buf - len);

        if (n <= 0)
            return;
        len += (size_t)n;
        if (memmem(buf, len, "\r\n\r\n", 4))
            return;
    }
}

static bool send_all(int fd, const char *data, size_t n)
{
    while (n) {
        ssize_t done = send(fd, data, n, MSG_NOSIGNAL);

        if (done <= 0)
            return false;
        data += done;
        n -= (size_t)done;
    }
    return true;
}

static void send_text(int fd, const char *text)
{
    send_all(fd, text, strlen(text));
}

/* Keeps the connection until the client has gone. */
static void wait_for_client(int fd)
{
    char buf[4096];

    while (read(fd, buf, sizeof buf) > 0)
        ;
}

static void serve_text(int fd)
{
    read_request(fd);
    send_text(fd, server.text);
}

static void serve_text_and_wait(int fd)
{
    read_request(fd);
    send_text(fd, server.text);
    wait_for_client(fd);
}

static void answer_with(const char *text)
{
    start_server(serve_text, 1);
    server.text = text;
}

static long max_rss_kib(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

/* The high-water mark of memory; a sanitizer's own bookkeeping is not ours. */
static void assert_grown_less(long before, long kib)
{
#ifdef __SANITIZE_ADDRESS__
    kib *= 20;
#endif
    if (max_rss_kib() - before > kib)
        fail_msg("memory grew by %ld KiB", max_rss_kib() - before);
}

static void run_until(const struct sr_op *op)
{
    int64_t end = sr_now_ms() + 20000;

    while (op->state == SR_OP_PENDING && sr_now_ms() < end)
        sr_loop_turn(&loop, 100);
    assert_int_equal(op->state, SR_OP_READY);
}

static struct sr_call get(size_t cap)
{
    return (struct sr_call){.method = "GET", .path = "/x", .body_cap = cap};
}

static void run_call(struct sr_call *call, int64_t timeout_ms)
{
    assert_int_equal(sr_call_start(http, &target, call, timeout_ms, NULL), 0);
    run_until(&call->op);
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
    answer_with(ANSWER("200 OK\r\nApi-Version: 1.41\r\nContent-Length: 5", "hello"));
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
    answer_with(ANSWER("404 Not Found\r\napi-version:1.52\r\nTransfer-Encoding: chunked",
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
    answer_with(ANSWER("200 OK\r\nApi-Version: 1.41111111111111111111111111\r\nContent-Length: 0", ""));
    run_call(&call, 5000);
    assert_int_equal(strlen(call.api_version), sizeof call.api_version - 1);
    sr_call_clear(&call);
}

static void echo_length(int fd)
{
    char buf[65536], answer[200];
    size_t n = 0;
    ssize_t got;
    char *end = NULL;

    while (!end && n < sizeof buf && (got = read(fd, buf + n, sizeof buf - n)) > 0) {
        n += (size_t)got;
        end = memmem(buf, n, "\r\n\r\n", 4);
    }
    server.received = end ? (int64_t)(n - (size_t)(end + 4 - buf)) : 0;
    while (server.received < 3000000 && (got = read(fd, buf, sizeof buf)) > 0)
        server.received += got;
    snprintf(answer, sizeof answer, ANSWER("201 Created\r\nContent-Length: 2", "ok"));
    send_text(fd, answer);
    wait_for_client(fd);
}

static void test_body_larger_than_the_socket_buffer(void **state)
{
    struct sr_call call = get(100);
    char *body = calloc(1, 3000000);

    (void)state;
    start_server(echo_length, 1);
    call.method = "PUT";
    call.body = body;
    call.body_len = 3000000;
    call.content_type = "application/x-tar";
    run_call(&call, 10000);
    assert_int_equal(call.op.err.code, SR_OK);
    assert_int_equal(call.status, 201);
    assert_int_equal(server.received, 3000000);
    sr_call_clear(&call);
    free(body);
}

static void test_silence_meets_the_deadline(void **state)
{
    int64_t start = sr_now_ms();

    (void)state;
    start_server(wait_for_client, 1);
    assert_int_equal(failing(200, 100), SR_TIMEOUT);
    assert_in_range(sr_now_ms() - start, 150, 2000);
}

/* Takes no connection at all: the kernel does, and nobody ever answers. */
static void test_silence_before_accept_meets_the_deadline(void **state)
{
    (void)state;
    listen_at(path);
    assert_int_equal(failing(200, 100), SR_TIMEOUT);
    close(server.fd);
}

static void test_half_a_head_meets_the_deadline(void **state)
{
    (void)state;
    start_server(serve_text_and_wait, 1);
    server.text = "HTTP/1.1 200 OK\r\nContent-Le";
    assert_int_equal(failing(200, 100), SR_TIMEOUT);
}

static void test_half_a_body_meets_the_deadline(void **state)
{
    (void)state;
    start_server(serve_text_and_wait, 1);
    server.text = ANSWER("200 OK\r\nContent-Length: 50", "only this");
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
        answer_with(texts[i]);
        if (failing(3000, 100) != SR_UNAVAILABLE)
            fail_msg("%s", texts[i]);
        stop_server();
    }
}

static void serve_endless_body(int fd)
{
    static char block[65536];

    read_request(fd);
    send_text(fd, ANSWER("200 OK\r\nContent-Length: 4294967296", ""));
    while (send_all(fd, block, sizeof block))
        server.received += sizeof block;
}

static void test_huge_body_stops_at_the_cap(void **state)
{
    long before = max_rss_kib();

    (void)state;
    start_server(serve_endless_body, 1);
    assert_int_equal(failing(10000, 100000), SR_TOO_LARGE);
    stop_server();
    assert_true(server.received < (16 << 20));
    assert_grown_less(before, 5000);
}

static void serve_endless_head(int fd)
{
    static char line[4096];

    read_request(fd);
    memset(line, 'h', sizeof line);
    memcpy(line, "X: ", 3);
    memcpy(line + sizeof line - 2, "\r\n", 2);
    send_text(fd, "HTTP/1.1 200 OK\r\n");
    while (server.received < (INT64_C(1) << 30) && send_all(fd, line, sizeof line))
        server.received += sizeof line;
}

static void test_endless_head_is_given_up(void **state)
{
    struct sr_call call = get(100);
    long before = max_rss_kib();

    (void)state;
    start_server(serve_endless_head, 1);
    run_call(&call, 5000);
    assert_int_not_equal(call.op.err.code, SR_OK);
    sr_call_clear(&call);
    assert_grown_less(before, 5000);
}

static void serve_reset(int fd)
{
    struct linger hard = {.l_onoff = 1};

    read_request(fd);
    send_text(fd, ANSWER("200 OK\r\nContent-Length: 50", "some"));
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
}

static void test_reset_in_the_middle_of_a_body(void **state)
{
    (void)state;
    start_server(serve_reset, 1);
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
    listen_at(path);
    close(server.fd);
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
    listen_at(path);
    chmod(path, 0);
    if (root && seteuid(65534) < 0)
        skip();
    code = failing(3000, 100);
    if (root)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(code, SR_DENIED);
    close(server.fd);
}

static void test_dropped_call_lets_go(void **state)
{
    struct sr_call call = get(100);

    (void)state;
    start_server(wait_for_client, 1);
    assert_int_equal(sr_call_start(http, &target, &call, 5000, NULL), 0);
    for (int i = 0; i < 5; i++)
        sr_loop_turn(&loop, 10);
    sr_call_clear(&call);
    assert_int_equal(call.op.state, SR_OP_SPENT);
    assert_null(sr_loop_take_ready(&loop));
    stop_server(); /* would hang if the connection were still there */
}

static void test_connection_is_used_again(void **state)
{
    (void)state;
    start_server(serve_text_and_wait, 1);
    server.text = ANSWER("200 OK\r\nContent-Length: 0", "");
    for (int i = 0; i < 2; i++) {
        struct sr_call call = get(100);

        assert_int_equal(sr_call_start(http, &target, &call, i ? 300 : 3000, NULL), 0);
        run_until(&call.op);
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

        answer_with(ANSWER("200 OK\r\nContent-Length: 2", "ok"));
        call.method = "POST";
        call.body = "{}";
        call.body_len = 2;
        run_call(&call, 3000);
        assert_int_equal(call.op.err.code, SR_OK);
        sr_call_clear(&call);
        shutdown(server.fd, SHUT_RDWR);
        close(server.fd);
        server.running = false;
        pthread_detach(server.thread);
    }
}

static void serve_many(int fd)
{
    for (int i = 0; i < 500; i++) {
        read_request(fd);
        send_text(fd, ANSWER("200 OK\r\nContent-Length: 5", "hello"));
    }
}

static void test_many_calls_leave_nothing_behind(void **state)
{
    long before = 0;

    (void)state;
    start_server(serve_many, 1);
    for (int i = 0; i < 500; i++) {
        struct sr_call call = get(100);

        if (i == 50)
            before = max_rss_kib();
        run_call(&call, 5000);
        assert_int_equal(call.op.err.code, SR_OK);
        sr_call_clear(&call);
        assert_ptr_equal(sr_loop_take_ready(&loop), NULL);
    }
    assert_grown_less(before, 1000);
}

/* Streams. */

struct heard {
    struct sr_stream stream;
    char bytes[1 << 16];
    size_t n, total;
    bool ended, failed, close_at_once;
};

static void on_bytes(struct sr_stream *s, const void *data, size_t n, const struct sr_err *err)
{
    struct heard *h = sr_container_of(s, struct heard, stream);

    assert_false(h->ended); /* nothing follows the end */
    if (n && h->n + n <= sizeof h->bytes) {
        memcpy(h->bytes + h->n, data, n);
        h->n += n;
    }
    h->total += n;
    h->ended = n == 0;
    h->failed = err != NULL;
    if (h->close_at_once) {
        sr_stream_close(s);
        h->ended = true;
    }
}

static struct heard *open_stream(int64_t timeout_ms)
{
    struct heard *h = calloc(1, sizeof *h);

    assert_non_null(h);
    h->stream.on_bytes = on_bytes;
    assert_int_equal(sr_stream_start(http, &target, &h->stream, "/attach", timeout_ms, NULL), 0);
    run_until(&h->stream.op);
    return h;
}

static void free_stream(struct heard *h)
{
    sr_op_drop(&h->stream.op);
    sr_stream_close(&h->stream);
    free(h);
}

static void hear_until_end(struct heard *h)
{
    int64_t end = sr_now_ms() + 10000;

    while (!h->ended && sr_now_ms() < end)
        sr_loop_turn(&loop, 100);
    assert_true(h->ended);
}

static enum sr_code failing_stream(int64_t timeout_ms, char message[512])
{
    struct heard *h = open_stream(timeout_ms);
    enum sr_code code = h->stream.op.err.code;

    assert_true(code != SR_OK || h->stream.open);
    assert_int_equal(h->total, 0);
    if (message)
        strcpy(message, h->stream.op.err.msg);
    free_stream(h);
    return code;
}

#define UPGRADED "101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp"

static void test_stream_with_bytes_behind_the_head(void **state)
{
    struct heard *h;

    (void)state;
    answer_with(ANSWER(UPGRADED, "first bytes"));
    h = open_stream(5000);
    assert_int_equal(h->stream.op.err.code, SR_OK);
    assert_int_equal(h->stream.status, 101);
    hear_until_end(h);
    assert_false(h->failed);
    assert_int_equal(h->n, 11);
    assert_memory_equal(h->bytes, "first bytes", 11);
    free_stream(h);
}

static void test_stream_without_upgrade(void **state)
{
    struct heard *h;

    (void)state;
    answer_with(ANSWER("200 OK\r\nContent-Type: application/vnd.docker.raw-stream", "raw"));
    h = open_stream(5000);
    assert_int_equal(h->stream.op.err.code, SR_OK);
    hear_until_end(h);
    assert_memory_equal(h->bytes, "raw", 3);
    free_stream(h);
}

static void serve_byte_by_byte(int fd)
{
    read_request(fd);
    for (const char *p = server.text; *p; p++) {
        send_all(fd, p, 1);
        usleep(500);
    }
}

static void test_stream_whose_answer_comes_byte_by_byte(void **state)
{
    struct heard *h;

    (void)state;
    start_server(serve_byte_by_byte, 1);
    server.text = ANSWER(UPGRADED, "bytes");
    h = open_stream(5000);
    assert_int_equal(h->stream.op.err.code, SR_OK);
    hear_until_end(h);
    assert_memory_equal(h->bytes, "bytes", 5);
    free_stream(h);
}

static void test_refusal_of_a_stream_carries_the_message(void **state)
{
    static const char text[] =
        ANSWER("404 Not Found\r\ncontent-length: 36", "{\"message\":\"No such container: abc\"}");
    char message[512];

    (void)state;
    for (int slow = 0; slow < 2; slow++) {
        start_server(slow ? serve_byte_by_byte : serve_text_and_wait, 1);
        server.text = text;
        assert_int_equal(failing_stream(5000, message), SR_NOT_FOUND);
        assert_string_equal(message, "attach: No such container: abc (HTTP 404)");
        stop_server();
    }
}

static void test_refusals_of_a_stream(void **state)
{
    static const struct {
        const char *text;
        enum sr_code code;
    } table[] = {
        {ANSWER("409 Conflict\r\nContent-Length: 0", ""), SR_CONFLICT},
        {ANSWER("500 Oh", "<html>"), SR_INTERNAL},
        {ANSWER("404 Not Found\r\nContent-Length: 999", "{\"mess"), SR_NOT_FOUND},
        {ANSWER("503 Later\r\nContent-Length: 99999999999999999999", ""), SR_UNAVAILABLE},
        {ANSWER("100 Continue", ""), SR_INTERNAL},
        {"", SR_PROTOCOL},
        {"HTTP/1.1 101 UPG", SR_PROTOCOL},
        {"garbage garbage garbage\r\n\r\n", SR_PROTOCOL},
        {"\r\n\r\n11111101", SR_PROTOCOL},
        {"HTTP/1.1 2000000000000000000000\r\n\r\n", SR_PROTOCOL},
        {"HTTP/1.1 1x1 UPGRADED\r\n\r\n", SR_PROTOCOL},
        {"HTTP/2.0 101 UPGRADED\r\n\r\n", SR_PROTOCOL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char message[512];
        enum sr_code code;

        answer_with(table[i].text);
        code = failing_stream(5000, message);
        if (code != table[i].code)
            fail_msg("%s: %s %s", table[i].text, sr_code_name(code), message);
        stop_server();
    }
}

static void test_stream_with_endless_head(void **state)
{
    long before = max_rss_kib();

    (void)state;
    start_server(serve_endless_head, 1);
    assert_int_equal(failing_stream(5000, NULL), SR_PROTOCOL);
    stop_server();
    assert_true(server.received < (4 << 20));
    assert_grown_less(before, 5000);
}

static void test_stream_that_is_never_answered(void **state)
{
    (void)state;
    start_server(wait_for_client, 1);
    assert_int_equal(failing_stream(200, NULL), SR_TIMEOUT);
    stop_server(); /* the connection is gone */
}

static void test_stream_without_a_server(void **state)
{
    (void)state;
    assert_int_equal(failing_stream(3000, NULL), SR_UNAVAILABLE);
}

static void serve_upgrade_and_reset(int fd)
{
    struct linger hard = {.l_onoff = 1};

    read_request(fd);
    send_text(fd, ANSWER(UPGRADED, "x"));
    usleep(50000);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
}

static void test_stream_that_is_cut(void **state)
{
    struct heard *h;

    (void)state;
    start_server(serve_upgrade_and_reset, 1);
    h = open_stream(5000);
    hear_until_end(h);
    assert_int_equal(h->n, 1);
    assert_false(h->stream.open);
    free_stream(h);
}

static void serve_slow_sink(int fd)
{
    static char buf[8192];
    ssize_t n;

    read_request(fd);
    send_text(fd, ANSWER(UPGRADED, ""));
    usleep(100000);
    while (server.received < 4000000 && (n = read(fd, buf, sizeof buf)) > 0) {
        for (ssize_t i = 0; i < n; i++)
            if (buf[i] != (char)((server.received + i) % 251))
                return; /* received stays short of the whole */
        server.received += n;
    }
    send_text(fd, "done");
}

static void test_write_larger_than_the_socket_buffer(void **state)
{
    struct heard *h;
    char *at;

    (void)state;
    start_server(serve_slow_sink, 1);
    h = open_stream(5000);
    at = sr_buf_reserve(&h->stream.out, 4000000);
    assert_non_null(at);
    for (int i = 0; i < 4000000; i++)
        at[i] = (char)(i % 251);
    h->stream.out.len += 4000000;
    sr_stream_flush(&h->stream);
    assert_true(h->stream.out.len > 0); /* the rest goes when the socket takes it */
    hear_until_end(h);
    assert_int_equal(server.received, 4000000);
    assert_memory_equal(h->bytes, "done", 4);
    assert_int_equal(h->stream.out.len, 0);
    free_stream(h);
}

static void test_write_to_one_that_left(void **state)
{
    struct heard *h;

    (void)state;
    start_server(serve_upgrade_and_reset, 1);
    h = open_stream(5000);
    usleep(100000);
    for (int i = 0; i < 100; i++) {
        sr_buf_puts(&h->stream.out, "hello");
        sr_stream_flush(&h->stream);
    }
    assert_int_equal(h->stream.out.len, 0);
    hear_until_end(h);
    sr_stream_flush(&h->stream); /* closed: nothing happens */
    free_stream(h);
}

static void serve_much(int fd)
{
    static char block[65536];

    read_request(fd);
    send_text(fd, ANSWER(UPGRADED, ""));
    for (int i = 0; i < 1024 && send_all(fd, block, sizeof block); i++)
        server.received += sizeof block;
}

static void test_much_is_read_in_constant_memory(void **state)
{
    struct heard *h;
    long before;

    (void)state;
    start_server(serve_much, 1);
    h = open_stream(5000);
    before = max_rss_kib();
    hear_until_end(h);
    assert_int_equal(h->total, 1024 * 65536);
    assert_grown_less(before, 1000);
    free_stream(h);
}

static void test_close_inside_on_bytes(void **state)
{
    (void)state;
    for (int behind_head = 0; behind_head < 2; behind_head++) {
        struct heard *h = calloc(1, sizeof *h);

        answer_with(behind_head ? ANSWER(UPGRADED, "bytes") : NULL);
        if (!behind_head)
            server.serve = serve_much;
        assert_non_null(h);
        h->stream.on_bytes = on_bytes;
        h->close_at_once = true;
        assert_int_equal(sr_stream_start(http, &target, &h->stream, "/attach", 5000, NULL), 0);
        hear_until_end(h);
        assert_false(h->stream.open);
        assert_int_equal(h->stream.op.err.code, SR_OK);
        for (int i = 0; i < 5; i++)
            sr_loop_turn(&loop, 5);
        free_stream(h);
        stop_server();
    }
}

static void test_dropping_a_stream_that_opens(void **state)
{
    struct heard *h = calloc(1, sizeof *h);

    (void)state;
    assert_non_null(h);
    start_server(wait_for_client, 1);
    h->stream.on_bytes = on_bytes;
    assert_int_equal(sr_stream_start(http, &target, &h->stream, "/attach", 5000, NULL), 0);
    sr_loop_turn(&loop, 10);
    sr_loop_turn(&loop, 10);
    free_stream(h);
    stop_server();
}

static void test_addresses(void **state)
{
    static const char *const bad[] = {"", "unix://", "unix://x", "tcp://", "ssh://host", "/var/run/x",
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
    assert_int_equal(sr_target_parse(&t, "tcp://h:2376", "/tls", &err), 0);
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
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
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
        T(test_stream_with_bytes_behind_the_head),
        T(test_stream_without_upgrade),
        T(test_stream_whose_answer_comes_byte_by_byte),
        T(test_refusal_of_a_stream_carries_the_message),
        T(test_refusals_of_a_stream),
        T(test_stream_with_endless_head),
        T(test_stream_that_is_never_answered),
        T(test_stream_without_a_server),
        T(test_stream_that_is_cut),
        T(test_write_larger_than_the_socket_buffer),
        T(test_write_to_one_that_left),
        T(test_much_is_read_in_constant_memory),
        T(test_close_inside_on_bytes),
        T(test_dropping_a_stream_that_opens),
    };
    const struct CMUnitTest plain[] = {cmocka_unit_test(test_addresses)};

    return cmocka_run_group_tests(tests, NULL, NULL) + cmocka_run_group_tests(plain, NULL, NULL);
}
