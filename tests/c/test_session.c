/* The conversation with an agent, fed by hand: every cut, hostile lengths,
 * frames at the wrong moment, and what is queued for sending. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "session.h"

/* Engine frame around bytes of stream `stream`. */
static void put_engine(struct sr_buf *b, int stream, const void *data, size_t n)
{
    unsigned char head[8] = {(unsigned char)stream};

    sr_wire_put_u32(head + 4, (uint32_t)n);
    sr_buf_append(b, head, sizeof head);
    sr_buf_append(b, data, n);
}

/* Agent frame, bare. */
static void put_agent(struct sr_buf *b, uint8_t type, const void *data, size_t n)
{
    unsigned char head[SR_WIRE_HEAD];

    sr_wire_put_head(head, type, (uint32_t)n);
    sr_buf_append(b, head, sizeof head);
    sr_buf_append(b, data, n);
}

static void put_artifact(struct sr_buf *b, const char *path, uint64_t size)
{
    unsigned char p[64];

    sr_wire_put_u64(p, size);
    memcpy(p + 8, path, strlen(path));
    put_agent(b, SR_WIRE_ARTIFACT, p, 8 + strlen(path));
}

static void put_report(struct sr_buf *b, uint32_t code)
{
    unsigned char p[SR_WIRE_REPORT_SIZE];

    sr_wire_put_report(p, &(struct sr_report){.end = SR_END_EXIT, .code = code, .out_bytes = 99});
    put_agent(b, SR_WIRE_EXIT, p, sizeof p);
}

/* One agent frame in one engine frame, fed at once. */
static int feed(struct sr_session *s, uint8_t type, const void *data, size_t n)
{
    struct sr_buf inner = {0}, outer = {0};
    struct sr_err err;
    int rc;

    put_agent(&inner, type, data, n);
    put_engine(&outer, 1, inner.data, inner.len);
    rc = sr_session_feed(s, outer.data, outer.len, &err);
    if (rc < 0) {
        assert_int_equal(s->state, SR_SESSION_BROKEN);
        assert_int_equal(err.code, SR_PROTOCOL);
        assert_true(err.msg[0]);
    }
    sr_buf_clear(&inner);
    sr_buf_clear(&outer);
    return rc;
}

static const char *const ARGV[] = {"python3", "main.py", NULL};
static const char *const WANT[] = {"a.out", "none", "dir/empty", NULL};

static struct sr_order order_of(const char *const *want)
{
    return (struct sr_order){.argv = ARGV, .cwd = "/scratch", .uid = 60600, .wall_ms = 1000,
                             .out_cap = 10, .err_cap = 5, .want = want, .want_max = 100};
}

static void become_ready(struct sr_session *s)
{
    sr_session_init(s);
    assert_int_equal(feed(s, SR_WIRE_HELLO, "\1", 1), 0);
    assert_int_equal(s->state, SR_SESSION_READY);
}

static void become_running(struct sr_session *s, const char *const *want)
{
    struct sr_order o = order_of(want);

    become_ready(s);
    assert_int_equal(sr_session_start(s, &o, NULL), 0);
    assert_int_equal(s->state, SR_SESSION_RUNNING);
}

/* What an agent sends in one whole run, without the hello. */
static void put_run(struct sr_buf *b)
{
    put_agent(b, SR_WIRE_STDOUT, "hello ", 6);
    put_agent(b, SR_WIRE_STDERR, "warn", 4);
    put_agent(b, SR_WIRE_STDOUT, NULL, 0);
    put_agent(b, SR_WIRE_STDOUT, "world, and more", 15);
    put_agent(b, SR_WIRE_STDERR, "ing", 3);
    put_artifact(b, "a.out", 7);
    put_agent(b, SR_WIRE_DATA, "\0bin", 4);
    put_agent(b, SR_WIRE_DATA, "ary", 3);
    put_agent(b, SR_WIRE_MISSING, "\2none", 5);
    put_artifact(b, "dir/empty", 0);
    put_report(b, 3);
}

/* The same in engine frames of `size` bytes, with words on stream 2 between. */
static void put_wrapped_run(struct sr_buf *b, size_t size)
{
    struct sr_buf inner = {0};

    put_run(&inner);
    for (size_t at = 0; at < inner.len; at += size) {
        put_engine(b, 1, inner.data + at, inner.len - at < size ? inner.len - at : size);
        put_engine(b, 2, "w", 1);
        put_engine(b, 1, NULL, 0);
    }
    sr_buf_clear(&inner);
}

static void check_run(const struct sr_session *s)
{
    assert_int_equal(s->state, SR_SESSION_DONE);
    assert_null(s->failure);
    assert_int_equal(s->stdout_.len, 10);
    assert_memory_equal(s->stdout_.data, "hello worl", 10);
    assert_int_equal(s->stderr_.len, 5);
    assert_memory_equal(s->stderr_.data, "warni", 5);
    assert_int_equal(s->n_artifacts, 3);
    assert_string_equal(s->artifacts[0].path, "a.out");
    assert_int_equal(s->artifacts[0].missing, -1);
    assert_int_equal(s->artifacts[0].data.len, 7);
    assert_memory_equal(s->artifacts[0].data.data, "\0binary", 7);
    assert_int_equal(s->artifacts[1].missing, SR_MISSING_TOO_LARGE);
    assert_int_equal(s->artifacts[2].missing, -1);
    assert_int_equal(s->artifacts[2].data.len, 0);
    assert_int_equal(s->report.code, 3);
    assert_true(s->report.out_bytes == 99);
    assert_int_equal(s->words[0], 'w');
}

static void test_every_cut(void **state)
{
    struct sr_session s;
    struct sr_buf b = {0};

    (void)state;
    put_wrapped_run(&b, 9);
    for (size_t cut = 0; cut <= b.len; cut++) {
        become_running(&s, WANT);
        assert_int_equal(sr_session_feed(&s, b.data, cut, NULL), 0);
        assert_int_equal(sr_session_feed(&s, b.data + cut, b.len - cut, NULL), 0);
        check_run(&s);
        sr_session_clear(&s);
    }
    sr_buf_clear(&b);
}

static void test_byte_by_byte(void **state)
{
    (void)state;
    for (size_t size = 1; size < 40; size++) {
        struct sr_session s;
        struct sr_buf b = {0};

        put_wrapped_run(&b, size);
        become_running(&s, WANT);
        for (size_t i = 0; i < b.len; i++)
            assert_int_equal(sr_session_feed(&s, b.data + i, 1, NULL), 0);
        check_run(&s);
        sr_session_clear(&s);
        sr_buf_clear(&b);
    }
}

static void test_random_cuts(void **state)
{
    struct sr_buf b = {0};

    (void)state;
    put_wrapped_run(&b, 23);
    srand(7);
    for (int round = 0; round < 2000; round++) {
        struct sr_session s;
        size_t at = 0;

        become_running(&s, WANT);
        while (at < b.len) {
            size_t n = (size_t)rand() % 31;

            if (n > b.len - at)
                n = b.len - at;
            assert_int_equal(sr_session_feed(&s, b.data + at, n, NULL), 0);
            at += n;
        }
        check_run(&s);
        sr_session_clear(&s);
    }
    sr_buf_clear(&b);
}

/* Damage must end in BROKEN or in a sound state, never in a bad access. */
static void test_random_damage(void **state)
{
    struct sr_buf b = {0};

    (void)state;
    put_wrapped_run(&b, 17);
    srand(11);
    for (int round = 0; round < 20000; round++) {
        struct sr_session s;
        size_t at = (size_t)rand() % b.len;
        char was = b.data[at];

        b.data[at] = (char)rand();
        become_running(&s, WANT);
        if (sr_session_feed(&s, b.data, b.len, NULL) < 0)
            assert_int_equal(s.state, SR_SESSION_BROKEN);
        assert_true(s.stdout_.len <= 10 && s.stderr_.len <= 5);
        sr_session_clear(&s);
        b.data[at] = was;
    }
    sr_buf_clear(&b);
}

static void check_broken(struct sr_session *s, const void *data, size_t n)
{
    struct sr_err err = {0};

    assert_int_equal(sr_session_feed(s, data, n, &err), -1);
    assert_int_equal(s->state, SR_SESSION_BROKEN);
    assert_int_equal(err.code, SR_PROTOCOL);
    assert_string_equal(err.msg, s->err.msg);
    err = (struct sr_err){0};
    assert_int_equal(sr_session_feed(s, "", 1, &err), -1); /* and stays so */
    assert_int_equal(err.code, SR_PROTOCOL);
    sr_session_clear(s);
}

static void test_engine_head(void **state)
{
    static const char *const bad[] = {"\0\0\0\0\0\0\0\1", "\3\0\0\0\0\0\0\1", "\1\1\0\0\0\0\0\1",
                                      "\1\0\1\0\0\0\0\1", "\2\0\0\1\0\0\0\1", "HTTP/1.1"};
    struct sr_session s;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        sr_session_init(&s);
        check_broken(&s, bad[i], 8);
    }
}

/* A head may announce 4 GiB: that alone costs nothing. */
static void test_engine_length_is_not_believed(void **state)
{
    struct sr_session s;

    (void)state;
    sr_session_init(&s);
    assert_int_equal(sr_session_feed(&s, "\1\0\0\0\xff\xff\xff\xff", 8, NULL), 0);
    assert_int_equal(sr_session_feed(&s, "H\0\0\0\1\1", 6, NULL), 0);
    assert_int_equal(s.state, SR_SESSION_READY);
    assert_true(s.small.cap < 1024);
    sr_session_clear(&s);
}

static void test_agent_lengths(void **state)
{
    static const char *const bad[] = {
        "O\0\1\0\1", "O\xff\xff\xff\xff", "D\x7f\0\0\0", "H\0\0\0\0", "H\0\0\0\2",
        "X\0\0\0\x2d", "X\0\0\0\x2f", "B\0\0\0\10", "N\0\0\0\1", "!\0\1\0\1",
        "Z\0\0\0\1", "\0\0\0\0\1", "S\0\0\0\1",
    };
    struct sr_session s;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (bad[i][0] == 'H')
            sr_session_init(&s);
        else
            become_running(&s, WANT);
        assert_int_equal(sr_session_feed(&s, "\1\0\0\0\0\0\1\0", 8, NULL), 0);
        check_broken(&s, bad[i], SR_WIRE_HEAD);
    }
}

static void test_wrong_moment(void **state)
{
    static const char late[] = "HORBDNX!";
    struct sr_session s;
    unsigned char p[64] = {SR_WIRE_VERSION};

    (void)state;
    for (const char *type = "ORBDNX"; *type; type++) {
        sr_session_init(&s);
        assert_int_equal(feed(&s, (uint8_t)*type, p, SR_WIRE_REPORT_SIZE), -1);
        sr_session_clear(&s);
        become_ready(&s);
        assert_int_equal(feed(&s, (uint8_t)*type, p, SR_WIRE_REPORT_SIZE), -1);
        sr_session_clear(&s);
    }
    become_running(&s, NULL);
    assert_int_equal(feed(&s, SR_WIRE_HELLO, p, 1), -1);
    sr_session_clear(&s);
    for (size_t i = 0; i < sizeof late - 1; i++) {
        become_running(&s, NULL);
        assert_int_equal(feed(&s, SR_WIRE_FAILURE, "no", 2), 0);
        assert_int_equal(s.state, SR_SESSION_DONE);
        assert_int_equal(feed(&s, (uint8_t)late[i], p, SR_WIRE_REPORT_SIZE), -1);
        assert_string_equal(s.failure, "no");
        sr_session_clear(&s);
    }
}

static void test_version(void **state)
{
    struct sr_session s;

    (void)state;
    sr_session_init(&s);
    assert_int_equal(feed(&s, SR_WIRE_HELLO, "\2", 1), -1);
    sr_session_clear(&s);
}

static void test_failure_text(void **state)
{
    struct sr_session s;

    (void)state;
    sr_session_init(&s);
    assert_int_equal(feed(&s, SR_WIRE_FAILURE, NULL, 0), 0);
    assert_int_equal(s.state, SR_SESSION_DONE);
    assert_string_equal(s.failure, "");
    sr_session_clear(&s);
    become_ready(&s);
    assert_int_equal(feed(&s, SR_WIRE_FAILURE, "disk\0full", 9), 0);
    assert_string_equal(s.failure, "disk");
    sr_session_clear(&s);
}

static int feed_buf(struct sr_session *s, struct sr_buf *inner)
{
    struct sr_buf outer = {0};
    int rc;

    put_engine(&outer, 1, inner->data, inner->len);
    rc = sr_session_feed(s, outer.data, outer.len, NULL);
    sr_buf_clear(&outer);
    sr_buf_clear(inner);
    return rc;
}

static void test_artifacts_misused(void **state)
{
    struct sr_session s;
    struct sr_buf b = {0};

    (void)state;
    become_running(&s, WANT); /* larger than wanted */
    put_artifact(&b, "a.out", 101);
    assert_int_equal(feed_buf(&s, &b), -1);
    sr_session_clear(&s);
    become_running(&s, WANT); /* not the next one */
    put_artifact(&b, "none", 1);
    assert_int_equal(feed_buf(&s, &b), -1);
    sr_session_clear(&s);
    become_running(&s, NULL); /* none is wanted */
    put_artifact(&b, "a.out", 1);
    assert_int_equal(feed_buf(&s, &b), -1);
    sr_session_clear(&s);
    become_running(&s, WANT); /* bytes before any */
    assert_int_equal(feed(&s, SR_WIRE_DATA, "x", 1), -1);
    sr_session_clear(&s);
    become_running(&s, WANT); /* reason that does not exist */
    assert_int_equal(feed(&s, SR_WIRE_MISSING, "\3a.out", 6), -1);
    sr_session_clear(&s);
}

static void test_artifact_bytes(void **state)
{
    struct sr_session s;
    struct sr_buf b = {0};

    (void)state;
    become_running(&s, WANT); /* one byte too many */
    put_artifact(&b, "a.out", 3);
    put_agent(&b, SR_WIRE_DATA, "abc", 3);
    put_agent(&b, SR_WIRE_DATA, "d", 1);
    assert_int_equal(feed_buf(&s, &b), -1);
    assert_int_equal(s.artifacts[0].data.len, 3);
    sr_session_clear(&s);
    become_running(&s, WANT); /* the next begins too early */
    put_artifact(&b, "a.out", 3);
    put_agent(&b, SR_WIRE_DATA, "ab", 2);
    put_agent(&b, SR_WIRE_MISSING, "\0none", 5);
    assert_int_equal(feed_buf(&s, &b), -1);
    sr_session_clear(&s);
    become_running(&s, WANT); /* the report comes before the last */
    put_artifact(&b, "a.out", 0);
    put_report(&b, 0);
    assert_int_equal(feed_buf(&s, &b), -1);
    assert_int_equal(s.artifacts[1].missing, SR_MISSING_ABSENT);
    sr_session_clear(&s);
}

static void test_words_are_bounded(void **state)
{
    struct sr_session s;
    struct sr_buf b = {0};
    char many[700];

    (void)state;
    memset(many, 'x', sizeof many);
    sr_session_init(&s);
    put_engine(&b, 2, many, sizeof many);
    put_engine(&b, 2, many, sizeof many);
    put_engine(&b, 1, "H\0\0\0\1\1", 6);
    assert_int_equal(sr_session_feed(&s, b.data, b.len, NULL), 0);
    assert_int_equal(strlen(s.words), sizeof s.words - 1);
    assert_int_equal(s.state, SR_SESSION_READY);
    sr_buf_clear(&b);
    sr_session_clear(&s);
}

static void test_flood_stays_capped(void **state)
{
    static char chunk[SR_WIRE_MAX];
    struct sr_session s;

    (void)state;
    become_running(&s, NULL);
    for (int i = 0; i < 200; i++)
        assert_int_equal(feed(&s, SR_WIRE_STDOUT, chunk, sizeof chunk), 0);
    assert_int_equal(s.stdout_.len, 10);
    assert_true(s.stdout_.cap <= 1024);
    sr_session_clear(&s);
}

static void test_put_file(void **state)
{
    struct sr_session s;
    static char big[SR_WIRE_MAX + 3];
    struct sr_err err;
    const unsigned char *p;

    (void)state;
    sr_session_init(&s);
    assert_int_equal(sr_session_put_file(&s, "a", 0644, "x", 1, &err), -1);
    assert_int_equal(err.code, SR_INVALID);
    become_ready(&s);
    assert_int_equal(sr_session_put_file(&s, "../a", 0644, "x", 1, &err), -1);
    assert_int_equal(err.code, SR_INVALID);
    assert_int_equal(s.out.len, 0);
    assert_int_equal(sr_session_put_file(&s, "d/a", 0644, big, sizeof big, &err), 0);
    p = (const unsigned char *)s.out.data;
    assert_memory_equal(p, "F\0\0\0\x0f\0\0\1\xa4\0\0\0\0\0\1\0\3d/a", 20);
    assert_memory_equal(p + 20, "D\0\1\0\0", 5);
    assert_memory_equal(p + 25 + SR_WIRE_MAX, "D\0\0\0\3", 5);
    assert_int_equal(s.out.len, 20 + 5 + SR_WIRE_MAX + 5 + 3);
    sr_session_clear(&s);
}

static void test_start_is_checked(void **state)
{
    static const char *const none[] = {NULL}, *const up[] = {"../x", NULL};
    struct sr_session s;
    struct sr_err err;

    (void)state;
    become_ready(&s);
    for (int i = 0; i < 7; i++) {
        struct sr_order o = order_of(NULL);

        if (i == 0)
            o.argv = none;
        if (i == 1)
            o.cwd = "scratch";
        if (i == 2)
            o.uid = 0;
        if (i == 3)
            o.wall_ms = 0;
        if (i == 4)
            o.want = up;
        if (i == 5)
            o.cwd = NULL;
        if (i == 6)
            o.held = "a/../b";
        assert_int_equal(sr_session_start(&s, &o, &err), -1);
        assert_int_equal(err.code, SR_INVALID);
        assert_int_equal(s.state, SR_SESSION_READY);
        assert_int_equal(s.out.len, 0);
    }
    sr_session_clear(&s);
}

/* An order that fills one frame exactly is sent; one byte more is not. */
static void test_start_size(void **state)
{
    static char text[SR_WIRE_MAX];
    const char *const argv[] = {text, NULL};
    struct sr_order o = order_of(NULL);
    struct sr_session s;
    struct sr_err err;
    size_t rest;

    (void)state;
    text[0] = 'a';
    o.argv = argv;
    become_ready(&s);
    assert_int_equal(sr_session_start(&s, &o, &err), 0);
    rest = SR_WIRE_MAX - (s.out.len - SR_WIRE_HEAD);
    assert_int_equal(sr_session_start(&s, &o, &err), -1); /* only once */
    assert_int_equal(err.code, SR_INVALID);
    sr_session_clear(&s);
    memset(text, 'a', rest + 1);
    become_ready(&s);
    assert_int_equal(sr_session_start(&s, &o, &err), 0);
    assert_int_equal(s.out.len, SR_WIRE_HEAD + SR_WIRE_MAX);
    sr_session_clear(&s);
    text[rest + 1] = 'a';
    become_ready(&s);
    assert_int_equal(sr_session_start(&s, &o, &err), -1);
    assert_int_equal(err.code, SR_TOO_LARGE);
    assert_int_equal(s.out.len, 0);
    assert_int_equal(s.n_artifacts, 0);
    sr_session_clear(&s);
}

static void become_held(struct sr_session *s)
{
    struct sr_order o = order_of(WANT);

    o.held = "d/main.py";
    become_ready(s);
    assert_int_equal(sr_session_start(s, &o, NULL), 0);
    assert_int_equal(s->state, SR_SESSION_HELD);
    assert_non_null(memmem(s->out.data, s->out.len, "h\0\0\0\x09" "d/main.py", 14));
    sr_buf_consume(&s->out, s->out.len);
}

static void test_held_run(void **state)
{
    struct sr_session s;
    struct sr_buf b = {0};

    (void)state;
    become_held(&s);
    assert_int_equal(sr_session_put_file(&s, "d/main.py", 0644, "x", 1, NULL), 0);
    assert_memory_equal(s.out.data, "F\0\0\0\x15", 5);
    sr_buf_consume(&s.out, s.out.len);
    sr_session_stdin(&s, "x", 1);
    sr_session_stdin_eof(&s);
    assert_int_equal(s.out.len, 0);
    assert_int_equal(sr_session_go(&s, 0x102, 10, 5, NULL), 0);
    assert_int_equal(s.state, SR_SESSION_RUNNING);
    assert_int_equal(s.out.len, 17);
    assert_memory_equal(s.out.data, "G\0\0\0\x0c\0\0\1\2\0\0\0\x0a\0\0\0\5", 17);
    put_wrapped_run(&b, 7);
    assert_int_equal(sr_session_feed(&s, b.data, b.len, NULL), 0);
    check_run(&s);
    sr_buf_clear(&b);
    sr_session_clear(&s);
}

static void test_held_ends_early(void **state)
{
    struct sr_session s;
    struct sr_buf b = {0};
    struct sr_err err;

    (void)state;
    become_held(&s);
    sr_session_kill(&s);
    assert_int_equal(s.out.len, 5);
    assert_memory_equal(s.out.data, "K\0\0\0\0", 5);
    put_wrapped_run(&b, 7);
    assert_int_equal(sr_session_feed(&s, b.data, b.len, NULL), 0);
    check_run(&s);
    assert_int_equal(sr_session_go(&s, 1, 1, 1, &err), -1);
    assert_int_equal(err.code, SR_INVALID);
    assert_int_equal(sr_session_put_file(&s, "a", 0644, "x", 1, &err), -1);
    assert_int_equal(err.code, SR_INVALID);
    sr_buf_clear(&b);
    sr_session_clear(&s);
}

static void test_caps_of_go(void **state)
{
    struct sr_session s;

    (void)state;
    become_held(&s);
    assert_int_equal(feed(&s, SR_WIRE_STDOUT, "early", 5), 0);
    assert_int_equal(feed(&s, SR_WIRE_STDERR, "early", 5), 0);
    assert_int_equal(sr_session_go(&s, 1, 3, 7, NULL), 0);
    assert_int_equal(feed(&s, SR_WIRE_STDOUT, "late", 4), 0);
    assert_int_equal(feed(&s, SR_WIRE_STDERR, "late", 4), 0);
    assert_int_equal(s.stdout_.len, 3);
    assert_int_equal(s.stderr_.len, 7);
    assert_memory_equal(s.stderr_.data, "earlyla", 7);
    sr_session_clear(&s);
}

static void test_go_needs_a_held_start(void **state)
{
    struct sr_session s;
    struct sr_err err;

    (void)state;
    for (int i = 0; i < 4; i++) {
        if (i == 0)
            sr_session_init(&s);
        if (i == 1)
            become_ready(&s);
        if (i == 2)
            become_running(&s, NULL);
        if (i == 3)
            become_held(&s);
        sr_buf_consume(&s.out, s.out.len);
        err.code = SR_OK;
        assert_int_equal(sr_session_go(&s, i == 3 ? 0 : 1000, 1, 1, &err), -1);
        assert_int_equal(err.code, SR_INVALID);
        assert_int_equal(s.out.len, 0);
        sr_session_clear(&s);
    }
}

static void test_input_needs_a_run(void **state)
{
    struct sr_session s;

    (void)state;
    become_ready(&s);
    sr_session_stdin(&s, "x", 1);
    sr_session_stdin_eof(&s);
    sr_session_kill(&s);
    assert_int_equal(s.out.len, 0);
    sr_session_clear(&s);
    become_running(&s, NULL);
    sr_buf_consume(&s.out, s.out.len);
    sr_session_stdin(&s, "", 0);
    sr_session_stdin(&s, "xy", 2);
    sr_session_stdin_eof(&s);
    sr_session_kill(&s);
    assert_int_equal(s.out.len, 17);
    assert_memory_equal(s.out.data, "I\0\0\0\2xyE\0\0\0\0K\0\0\0\0", 17);
    sr_session_clear(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_byte_by_byte),
        cmocka_unit_test(test_random_cuts),
        cmocka_unit_test(test_random_damage),
        cmocka_unit_test(test_engine_head),
        cmocka_unit_test(test_engine_length_is_not_believed),
        cmocka_unit_test(test_agent_lengths),
        cmocka_unit_test(test_wrong_moment),
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_failure_text),
        cmocka_unit_test(test_artifacts_misused),
        cmocka_unit_test(test_artifact_bytes),
        cmocka_unit_test(test_words_are_bounded),
        cmocka_unit_test(test_flood_stays_capped),
        cmocka_unit_test(test_put_file),
        cmocka_unit_test(test_start_is_checked),
        cmocka_unit_test(test_start_size),
        cmocka_unit_test(test_input_needs_a_run),
        cmocka_unit_test(test_held_run),
        cmocka_unit_test(test_held_ends_early),
        cmocka_unit_test(test_caps_of_go),
        cmocka_unit_test(test_go_needs_a_held_start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
