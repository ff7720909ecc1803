/* What is heard of an agent, fed by hand: every cut, hostile lengths, frames at the
 * wrong moment. */
#include "session_rig.h"

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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
