/* Upgraded streams against servers that behave badly. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include <curl/curl.h>

#include "docker.h"
#include "http_rig.h"

/* What is known of the writes, and how the next ones end. */
static struct {
    const void *at;     /* of the write that was to be tried again */
    size_t n;
    int refuse, agains; /* how many fail; how many were to be tried again */
    bool broken;
} writes;

/* Stands before libcurl's own: as strict about repeated writes as OpenSSL is. */
CURLcode curl_easy_send(CURL *easy, const void *data, size_t n, size_t *done)
{
    CURLcode (*real)(CURL *, const void *, size_t, size_t *);
    CURLcode code;

    if (writes.broken)
        return CURLE_SEND_ERROR;
    if (writes.at && (writes.at != data || writes.n != n))
        return CURLE_SEND_ERROR; /* "bad write retry" */
    *(void **)&real = dlsym(RTLD_NEXT, "curl_easy_send");
    code = writes.refuse > 0 ? CURLE_AGAIN : real(easy, data, n, done);
    if (writes.refuse > 0)
        writes.refuse--;
    writes.at = code == CURLE_AGAIN ? data : NULL;
    writes.n = n;
    writes.agains += code == CURLE_AGAIN;
    return code;
}

/* How far the test and its server are, where one has to wait for the other. */
static atomic_bool go, went;

static int set_up(void **state)
{
    memset(&writes, 0, sizeof writes);
    atomic_store(&go, false);
    atomic_store(&went, false);
    return rig_set_up(state);
}

static void await(atomic_bool *flag)
{
    for (int i = 0; i < 20000 && !atomic_load(flag); i++)
        usleep(1000);
}

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
    h->stream.on_refused = sr_docker_refused;
    assert_int_equal(sr_stream_start(rig.http, &rig.target, &h->stream, "/attach", timeout_ms, NULL), 0);
    rig_run_until(&h->stream.op);
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
    int64_t end = sr_now_ms() + 30000;

    while (!h->ended && sr_now_ms() < end)
        sr_loop_turn(&rig.loop, 100);
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
    rig_answer(ANSWER(UPGRADED, "first bytes"));
    h = open_stream(30000);
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
    rig_answer(ANSWER("200 OK\r\nContent-Type: application/vnd.docker.raw-stream", "raw"));
    h = open_stream(30000);
    assert_int_equal(h->stream.op.err.code, SR_OK);
    hear_until_end(h);
    assert_memory_equal(h->bytes, "raw", 3);
    free_stream(h);
}

static void serve_byte_by_byte(int fd)
{
    rig_read_request(fd);
    for (const char *p = rig.server.text; *p; p++) {
        rig_send(fd, p, 1);
        usleep(500);
    }
}

static void test_stream_whose_answer_comes_byte_by_byte(void **state)
{
    struct heard *h;

    (void)state;
    rig_start(serve_byte_by_byte, 1);
    rig.server.text = ANSWER(UPGRADED, "bytes");
    h = open_stream(30000);
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
        rig_start(slow ? serve_byte_by_byte : rig_serve_text_and_wait, 1);
        rig.server.text = text;
        assert_int_equal(failing_stream(5000, message), SR_NOT_FOUND);
        assert_string_equal(message, "attach: No such container: abc (HTTP 404)");
        rig_stop();
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

        rig_answer(table[i].text);
        code = failing_stream(5000, message);
        if (code != table[i].code)
            fail_msg("%s: %s %s", table[i].text, sr_code_name(code), message);
        rig_stop();
    }
}

static void test_stream_with_endless_head(void **state)
{
    long before = rig_memory_kib();

    (void)state;
    rig_start(rig_serve_endless_head, 1);
    assert_int_equal(failing_stream(5000, NULL), SR_PROTOCOL);
    rig_stop();
    assert_true(rig.server.received < (4 << 20));
    rig_grown_less(before, 5000);
}

static void test_stream_that_is_never_answered(void **state)
{
    (void)state;
    rig_start(rig_wait_for_client, 1);
    assert_int_equal(failing_stream(200, NULL), SR_TIMEOUT);
    rig_stop(); /* the connection is gone */
}

static void test_stream_without_a_server(void **state)
{
    (void)state;
    assert_int_equal(failing_stream(3000, NULL), SR_UNAVAILABLE);
}

static void serve_upgrade_and_reset(int fd)
{
    struct linger hard = {.l_onoff = 1};

    rig_read_request(fd);
    rig_send_text(fd, ANSWER(UPGRADED, "x"));
    usleep(50000);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
}

static void test_stream_that_is_cut(void **state)
{
    struct heard *h;

    (void)state;
    rig_start(serve_upgrade_and_reset, 1);
    h = open_stream(30000);
    hear_until_end(h);
    assert_int_equal(h->n, 1);
    assert_false(h->stream.open);
    free_stream(h);
}

static void serve_slow_sink(int fd)
{
    static char buf[8192];
    ssize_t n;

    rig_read_request(fd);
    rig_send_text(fd, ANSWER(UPGRADED, ""));
    await(&go);
    while (rig.server.received < 4000000 && (n = read(fd, buf, sizeof buf)) > 0) {
        for (ssize_t i = 0; i < n; i++)
            if (buf[i] != (char)((rig.server.received + i) % 251))
                return; /* received stays short of the whole */
        rig.server.received += n;
    }
    rig_send_text(fd, "done");
}

static void fill(struct sr_buf *out, size_t from, size_t n)
{
    char *at = sr_buf_reserve(out, n);

    assert_non_null(at);
    for (size_t i = 0; i < n; i++)
        at[i] = (char)((from + i) % 251);
    out->len += n;
}

static void test_write_larger_than_the_socket_buffer(void **state)
{
    struct heard *h;

    (void)state;
    rig_start(serve_slow_sink, 1);
    h = open_stream(30000);
    fill(&h->stream.out, 0, 4000000);
    sr_stream_flush(&h->stream);
    assert_true(h->stream.out.len > 0); /* the rest goes when the socket takes it */
    atomic_store(&go, true);
    hear_until_end(h);
    assert_int_equal(rig.server.received, 4000000);
    assert_memory_equal(h->bytes, "done", 4);
    assert_int_equal(h->stream.out.len, 0);
    free_stream(h);
}

/* What is to be tried again stays where it is, whatever is queued meanwhile. */
static void test_write_is_tried_again_with_the_same_bytes(void **state)
{
    struct heard *h;
    size_t sent = 0;

    (void)state;
    rig_start(serve_slow_sink, 1);
    h = open_stream(30000);
    while (sent < 4000000) {
        atomic_store(&go, sent > 2000000);
        size_t n = sent < 3900000 ? 100000 + sent % 7919 : 4000000 - sent;

        if (n > 4000000 - sent)
            n = 4000000 - sent;
        fill(&h->stream.out, sent, n);
        sent += n;
        if (sent % 3 == 0)
            writes.refuse = 1;
        sr_stream_flush(&h->stream);
        sr_loop_turn(&rig.loop, 0);
    }
    hear_until_end(h);
    assert_false(h->failed);
    assert_int_equal(rig.server.received, 4000000);
    assert_true(writes.agains > 2);
    free_stream(h);
}

static void serve_last_words(int fd)
{
    rig_read_request(fd);
    rig_send_text(fd, ANSWER(UPGRADED, "first"));
    await(&go);
    rig_send_text(fd, "last words");
    atomic_store(&went, true);
    rig_wait_for_client(fd);
}

/* The read side, as over TLS, shows nothing of it. */
static void test_failed_write_ends_the_stream_after_the_last_words(void **state)
{
    struct heard *h;
    int64_t end = sr_now_ms() + 30000;

    (void)state;
    rig_start(serve_last_words, 1);
    h = open_stream(30000);
    while (h->n < 5 && sr_now_ms() < end)
        sr_loop_turn(&rig.loop, 10);
    atomic_store(&go, true);
    await(&went);
    writes.broken = true;
    sr_buf_puts(&h->stream.out, "hello");
    sr_stream_flush(&h->stream);
    assert_int_equal(h->n, 5); /* nothing is heard from inside a flush */
    assert_false(h->ended);
    hear_until_end(h);
    assert_true(h->failed);
    assert_memory_equal(h->bytes, "firstlast words", 15);
    assert_int_equal(h->stream.out.len, 0);
    sr_buf_puts(&h->stream.out, "hello");
    sr_stream_flush(&h->stream); /* closed: nothing happens */
    free_stream(h);
}

static void test_failed_write_of_the_request(void **state)
{
    struct heard *h = calloc(1, sizeof *h);

    (void)state;
    assert_non_null(h);
    rig_start(rig_wait_for_client, 1);
    h->stream.on_bytes = on_bytes;
    writes.broken = true;
    assert_int_equal(sr_stream_start(rig.http, &rig.target, &h->stream, "/attach", 5000, NULL), 0);
    rig_run_until(&h->stream.op);
    assert_int_equal(h->stream.op.err.code, SR_UNAVAILABLE);
    free_stream(h);
}

static void test_write_to_one_that_left(void **state)
{
    struct heard *h;

    (void)state;
    rig_start(serve_upgrade_and_reset, 1);
    h = open_stream(30000);
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

    rig_read_request(fd);
    rig_send_text(fd, ANSWER(UPGRADED, ""));
    for (int i = 0; i < 1024 && rig_send(fd, block, sizeof block); i++)
        rig.server.received += sizeof block;
}

static void test_much_is_read_in_constant_memory(void **state)
{
    struct heard *h;
    long before;

    (void)state;
    rig_start(serve_much, 1);
    h = open_stream(30000);
    before = rig_memory_kib();
    hear_until_end(h);
    assert_int_equal(h->total, 1024 * 65536);
    rig_grown_less(before, 1000);
    free_stream(h);
}

static void test_close_inside_on_bytes(void **state)
{
    (void)state;
    for (int behind_head = 0; behind_head < 2; behind_head++) {
        struct heard *h = calloc(1, sizeof *h);

        rig_answer(behind_head ? ANSWER(UPGRADED, "bytes") : NULL);
        if (!behind_head)
            rig.server.serve = serve_much;
        assert_non_null(h);
        h->stream.on_bytes = on_bytes;
        h->close_at_once = true;
        assert_int_equal(sr_stream_start(rig.http, &rig.target, &h->stream, "/attach", 5000, NULL), 0);
        hear_until_end(h);
        assert_false(h->stream.open);
        assert_int_equal(h->stream.op.err.code, SR_OK);
        for (int i = 0; i < 5; i++)
            sr_loop_turn(&rig.loop, 5);
        free_stream(h);
        rig_stop();
    }
}

static void test_dropping_a_stream_that_opens(void **state)
{
    struct heard *h = calloc(1, sizeof *h);

    (void)state;
    assert_non_null(h);
    rig_start(rig_wait_for_client, 1);
    h->stream.on_bytes = on_bytes;
    assert_int_equal(sr_stream_start(rig.http, &rig.target, &h->stream, "/attach", 5000, NULL), 0);
    sr_loop_turn(&rig.loop, 10);
    sr_loop_turn(&rig.loop, 10);
    free_stream(h);
    rig_stop();
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, rig_tear_down)
    const struct CMUnitTest tests[] = {
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
        T(test_write_is_tried_again_with_the_same_bytes),
        T(test_failed_write_ends_the_stream_after_the_last_words),
        T(test_failed_write_of_the_request),
        T(test_write_to_one_that_left),
        T(test_much_is_read_in_constant_memory),
        T(test_close_inside_on_bytes),
        T(test_dropping_a_stream_that_opens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
