/* Limits, clocks and ends of programs that are started before their script exists. */
#include "held_rig.h"

static void test_clock_and_cpu_begin_at_go(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done;"
                                            "echo up; . \"$0\"", script, NULL};
    int64_t from;

    hold(r, argv);
    while (r->s.stdout_.len == 0)
        drive(r, SR_SESSION_DONE, 20);
    await_sleep(r);
    drive(r, SR_SESSION_DONE, 1000);
    from = now_ms();
    hand_over_limited(r, "sleep 0.3", 9, 10000, 10);
    drive(r, SR_SESSION_DONE, 0);
    check_end(r, SR_END_EXIT, 0);
    assert_in_range(r->s.report.wall_us, 290000, 1000 * (now_ms() - from) + 1000);
    assert_in_range(r->s.report.cpu_us, 0, 60000); /* the loop takes far more */
}

/* What the waiting process used is subtracted, and nothing else. */
static void test_cpu_counts(void **state)
{
    struct rig *r = *state;

    hold(r, SHELL);
    await_sleep(r);
    hand_over(r, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; (while [ $i -lt 400000 ]; do "
                 "i=$((i+1)); done)");
    check_end(r, SR_END_EXIT, 0);
    assert_true(r->s.report.cpu_us > 30000);
    assert_true(r->s.report.cpu_us <= r->s.report.wall_us + 20000);
    assert_true(r->s.report.peak_bytes > 0);
}

static void test_wall_limit_of_go(void **state)
{
    struct rig *r = *state;

    hold(r, SHELL);
    await_sleep(r);
    hand_over_limited(r, "echo before; sleep 60", 21, 300, 100);
    drive(r, SR_SESSION_DONE, 0);
    check_end(r, SR_END_WALL, 0);
    assert_false(r->s.report.held);
    check_text(&r->s.stdout_, "before\n");
    assert_in_range(r->s.report.wall_us, 300000, 1000 * GIVE_UP_MS);
}

static void test_caps_of_go(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "printf early; exec sh \"$0\"", script, NULL};
    const char text[] = "head -c 3000 /dev/zero; printf 1234567 >&2";

    hold(r, argv);
    await_sleep(r);
    hand_over_limited(r, text, strlen(text), 10000, 6);
    drive(r, SR_SESSION_DONE, 0);
    assert_int_equal(r->s.stdout_.len, 6);
    assert_memory_equal(r->s.stdout_.data, "early\0", 6);
    check_text(&r->s.stderr_, "123456");
    assert_true(r->s.report.out_bytes == 3005 && r->s.report.err_bytes == 7);
}

static void test_larger_cap(void **state)
{
    struct rig *r = *state;

    hold(r, SHELL);
    await_sleep(r);
    hand_over_limited(r, "head -c 5000 /dev/zero", 22, 10000, 4000);
    drive(r, SR_SESSION_DONE, 0);
    assert_int_equal(r->s.stdout_.len, 4000);
    assert_true(r->s.report.out_bytes == 5000);
}

/* Nothing follows upon a gap. */
static void test_cap_passed_while_waiting(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "printf early; exec sh \"$0\"", script, NULL};
    struct sr_order o = order_of(argv);

    o.out_cap = 3;
    hold_order(r, &o);
    await_sleep(r);
    hand_over(r, "echo late; echo err >&2");
    check_text(&r->s.stdout_, "ear");
    check_text(&r->s.stderr_, "err\n");
    assert_true(r->s.report.out_bytes == 10);
}

static const char *const DIES[] = {"sh", "-c", "echo bye; sleep 0.1; exit 3", NULL};

static void test_ends_before_go(void **state)
{
    struct rig *r = *state;

    hold(r, DIES);
    drive(r, SR_SESSION_DONE, 0);
    check_end(r, SR_END_EXIT, 3);
    assert_true(r->s.report.held);
    check_text(&r->s.stdout_, "bye\n");
    assert_int_equal(sr_session_go(&r->s, 1000, 1, 1, NULL), -1);
    assert_int_equal(agent_status(r), 0);
}

/* Waits, without hearing the agent, until the program has printed something and ended. */
static void await_end_unheard(struct rig *r)
{
    struct pollfd said = {r->from, POLLIN, 0};

    r->hold = true;
    for (int i = 0; i < GIVE_UP_MS / 5 && poll(&said, 1, 0) == 0; i++)
        drive(r, SR_SESSION_DONE, 5);
    for (int i = 0; i < GIVE_UP_MS / 5 && child_of(r); i++)
        drive(r, SR_SESSION_DONE, 5);
    assert_true(said.revents & POLLIN);
    assert_int_equal(child_of(r), 0);
    r->hold = false;
}

/* The server has not yet heard of the end when it hands the script over. */
static void test_go_crosses_the_end(void **state)
{
    struct rig *r = *state;

    hold(r, DIES);
    await_end_unheard(r);
    hand_over(r, "echo never");
    check_end(r, SR_END_EXIT, 3);
    assert_true(r->s.report.held);
    check_text(&r->s.stdout_, "bye\n");
}

/* The same while the agent still has to get rid of what the program printed. */
static void test_go_crosses_the_output(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "head -c 200000 /dev/zero; exit 3", NULL};
    struct sr_order o = order_of(argv);

    o.out_cap = 300000;
    hold_order(r, &o);
    await_end_unheard(r);
    hand_over_limited(r, "echo never", 10, 1000, 300000);
    r->hold = true;
    drive(r, SR_SESSION_DONE, 100);
    r->hold = false;
    drive(r, SR_SESSION_DONE, 0);
    check_end(r, SR_END_EXIT, 3);
    assert_true(r->s.report.held);
    assert_int_equal(r->s.stdout_.len, 200000);
    assert_int_equal(agent_status(r), 0);
}

/* Waits, without hearing the agent, until a file has that size. */
static void await_size(struct rig *r, const char *path, off_t size)
{
    struct stat st = {0};

    r->hold = true;
    for (int i = 0; i < GIVE_UP_MS / 5 && (stat(path, &st) < 0 || st.st_size != size); i++)
        drive(r, SR_SESSION_DONE, 5);
    assert_int_equal(st.st_size, size);
}

/* Dies in the middle of the script's way in; the artifact goes out all the same. */
static void test_end_crosses_the_script(void **state)
{
    static const char *const want[] = {"a", NULL};
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "echo x >a; echo up; until [ -e end ]; do sleep 0.01;"
                                            "done; exit 3", NULL};
    struct sr_order o = order_of(argv);
    char path[96];

    o.want = want;
    o.want_max = 100;
    hold_order(r, &o);
    sr_buf_append(&r->s.out, "F\0\0\0\x12\0\0\1\xa4\0\0\0\0\0\0\0\4scriptD\0\0\0\2ec", 30);
    snprintf(path, sizeof path, "%s/.held-script", r->scratch);
    await_size(r, path, 2);
    sr_buf_append(&r->s.out, "D\0\0\0\1h", 6);
    await_size(r, path, 3);
    snprintf(path, sizeof path, "%s/end", r->scratch);
    assert_int_equal(close(open(path, O_CREAT | O_WRONLY, 0644)), 0);
    await_end_unheard(r);
    sr_buf_append(&r->s.out, "D\0\0\0\1o", 6);
    assert_int_equal(sr_session_go(&r->s, 1000, 100, 100, NULL), 0);
    drive(r, SR_SESSION_DONE, 0);
    check_end(r, SR_END_EXIT, 3);
    assert_true(r->s.report.held);
    check_text(&r->s.artifacts[0].data, "x\n");
}

static void test_kill_while_waiting(void **state)
{
    struct rig *r = *state;

    hold(r, SHELL);
    await_sleep(r);
    sr_session_kill(&r->s);
    drive(r, SR_SESSION_DONE, 0);
    check_end(r, SR_END_KILLED, 0);
    assert_true(r->s.report.held);
}

static void test_wait_is_limited(void **state)
{
    struct rig *r = *state;
    struct sr_order o = order_of(SHELL);
    int64_t from = now_ms();

    o.wall_ms = 300;
    hold_order(r, &o);
    drive(r, SR_SESSION_DONE, 0);
    check_end(r, SR_END_WALL, 0);
    assert_true(r->s.report.held);
    assert_in_range(now_ms() - from, 250, GIVE_UP_MS - 1);
}

static void test_end_of_input_while_waiting(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "echo $$; exec sh \"$0\"", script, NULL};

    hold(r, argv);
    while (r->s.stdout_.len == 0)
        drive(r, SR_SESSION_DONE, 20);
    await_sleep(r);
    close(r->to);
    r->to = -1;
    assert_int_equal(agent_status(r), 1);
    assert_true(gone(printed_pid(&r->s.stdout_)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_clock_and_cpu_begin_at_go),
        TEST(test_cpu_counts),
        TEST(test_wall_limit_of_go),
        TEST(test_caps_of_go),
        TEST(test_larger_cap),
        TEST(test_cap_passed_while_waiting),
        TEST(test_ends_before_go),
        TEST(test_go_crosses_the_end),
        TEST(test_go_crosses_the_output),
        TEST(test_end_crosses_the_script),
        TEST(test_kill_while_waiting),
        TEST(test_wait_is_limited),
        TEST(test_end_of_input_while_waiting),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
