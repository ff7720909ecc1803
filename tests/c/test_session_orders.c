/* What is queued for an agent: files, orders, input. */
#include "session_rig.h"

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
