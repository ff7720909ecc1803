/* session_rig.h - what an agent says, made by hand, and sessions at every stage. */
#ifndef SESSION_RIG_H
#define SESSION_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "session.h"

/* Engine frame around bytes of stream `stream`. */
static inline void put_engine(struct sr_buf *b, int stream, const void *data, size_t n)
{
    unsigned char head[8] = {(unsigned char)stream};

    sr_wire_put_u32(head + 4, (uint32_t)n);
    sr_buf_append(b, head, sizeof head);
    sr_buf_append(b, data, n);
}

/* Agent frame, bare. */
static inline void put_agent(struct sr_buf *b, uint8_t type, const void *data, size_t n)
{
    unsigned char head[SR_WIRE_HEAD];

    sr_wire_put_head(head, type, (uint32_t)n);
    sr_buf_append(b, head, sizeof head);
    sr_buf_append(b, data, n);
}

static inline void put_artifact(struct sr_buf *b, const char *path, uint64_t size)
{
    unsigned char p[64];

    sr_wire_put_u64(p, size);
    memcpy(p + 8, path, strlen(path));
    put_agent(b, SR_WIRE_ARTIFACT, p, 8 + strlen(path));
}

static inline void put_report(struct sr_buf *b, uint32_t code)
{
    unsigned char p[SR_WIRE_REPORT_SIZE];

    sr_wire_put_report(p, &(struct sr_report){.end = SR_END_EXIT, .code = code, .out_bytes = 99});
    put_agent(b, SR_WIRE_EXIT, p, sizeof p);
}

/* One agent frame in one engine frame, fed at once. */
static inline int feed(struct sr_session *s, uint8_t type, const void *data, size_t n)
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

static inline struct sr_order order_of(const char *const *want)
{
    return (struct sr_order){.argv = ARGV, .cwd = "/scratch", .uid = 60600, .wall_ms = 1000,
                             .out_cap = 10, .err_cap = 5, .want = want, .want_max = 100};
}

static inline void become_ready(struct sr_session *s)
{
    sr_session_init(s);
    assert_int_equal(feed(s, SR_WIRE_HELLO, "\1", 1), 0);
    assert_int_equal(s->state, SR_SESSION_READY);
}

static inline void become_running(struct sr_session *s, const char *const *want)
{
    struct sr_order o = order_of(want);

    become_ready(s);
    assert_int_equal(sr_session_start(s, &o, NULL), 0);
    assert_int_equal(s->state, SR_SESSION_RUNNING);
}

/* What an agent sends in one whole run, without the hello. */
static inline void put_run(struct sr_buf *b)
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
static inline void put_wrapped_run(struct sr_buf *b, size_t size)
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

static inline void check_run(const struct sr_session *s)
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

#endif
