/* Orders about a script that comes later, and those that are none. */
#include "held_rig.h"

static void check_failure(struct rig *r, const char *text)
{
    drive(r, SR_SESSION_DONE, 0);
    assert_non_null(r->s.failure);
    assert_string_equal(r->s.failure, text);
    renew(r);
}

#define GO "G\0\0\0\x0c\0\0\3\xe8\0\0\0\1\0\0\0\1"

static void test_bad_orders(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *text;
    } bad[] = {
        {GO, 17, "cannot hand the script over: No such file or directory"},
        {"G\0\0\0\0", 5, "bad order: go"},
        {"G\0\0\0\x0c\0\0\0\0\0\0\0\1\0\0\0\1", 17, "bad order: go"},
        {"F\0\0\0\x12\0\0\1\xa4\0\0\0\0\0\0\0\1script" GO, 40, "bad order: go"},
        {"I\0\0\0\1x", 6, "bad order: unknown, or at the wrong moment"},
        {"S\0\0\0\0", 5, "bad order: unknown, or at the wrong moment"},
    };
    struct rig *r = *state;

    drive(r, SR_SESSION_READY, 0);
    sr_buf_append(&r->s.out, GO, 17);
    check_failure(r, "bad order: unknown, or at the wrong moment");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char path[80];

        hold(r, SHELL);
        sr_buf_append(&r->s.out, bad[i].bytes, bad[i].n);
        check_failure(r, bad[i].text);
        snprintf(path, sizeof path, "%s/.held-script", r->scratch);
        unlink(path);
        unlink(script);
    }
}

static void test_bad_held_field(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
    } bad[] = {
        {"S\0\0\0\x0b" "a\0\0\0\1xh\0\0\0\0", 16},
        {"S\0\0\0\x0d" "a\0\0\0\1xh\0\0\0\2..", 18},
        {"S\0\0\0\x12" "a\0\0\0\1xh\0\0\0\1xh\0\0\0\1x", 23},
    };
    struct rig *r = *state;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        drive(r, SR_SESSION_READY, 0);
        sr_buf_append(&r->s.out, bad[i].bytes, bad[i].n);
        check_failure(r, "bad order: start");
    }
}

static void test_script_twice(void **state)
{
    struct rig *r = *state;

    hold(r, SHELL);
    assert_int_equal(sr_session_put_file(&r->s, "script", 0644, "1", 1, NULL), 0);
    assert_int_equal(sr_session_put_file(&r->s, "script", 0644, "2", 1, NULL), 0);
    check_failure(r, "cannot create \"script\": File exists");
    put(r, "x", 0644, "1");
    hold_order(r, &(struct sr_order){.argv = SHELL, .uid = PROGRAM_UID, .wall_ms = 1000,
                                     .held = "x"});
    check_failure(r, "cannot create \"x\": File exists");
}

static void test_go_twice(void **state)
{
    struct rig *r = *state;

    hold(r, SHELL);
    await_sleep(r);
    hand_over_limited(r, "echo $$; sleep 60", 17, 10000, 100);
    while (r->s.stdout_.len == 0)
        drive(r, SR_SESSION_DONE, 20);
    sr_buf_append(&r->s.out, GO, 17);
    drive(r, SR_SESSION_DONE, 0);
    assert_non_null(r->s.failure);
    assert_true(gone(printed_pid(&r->s.stdout_)));
}

/* Orders may arrive in any pieces. */
static void test_byte_by_byte(void **state)
{
    struct rig *r = *state;

    hold(r, SHELL);
    hand_over_limited(r, "echo slowly", 11, 10000, 100);
    for (size_t i = 0; i < r->s.out.len; i++) {
        assert_int_equal(write(r->to, r->s.out.data + i, 1), 1);
        if (i % 8 == 0)
            poll(NULL, 0, 1);
    }
    sr_buf_consume(&r->s.out, r->s.out.len);
    drive(r, SR_SESSION_DONE, 0);
    check_text(&r->s.stdout_, "slowly\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_bad_orders),
        TEST(test_bad_held_field),
        TEST(test_script_twice),
        TEST(test_go_twice),
        TEST(test_byte_by_byte),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
