/* Programs that are started before their script exists: how it gets to them. */
#include "held_rig.h"

static void check_script(const struct rig *r, const char *text, size_t n)
{
    static char back[2 * BIG];
    struct stat st;
    int fd = open(script, O_RDONLY);

    (void)r;
    assert_true(fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode));
    assert_int_equal(st.st_size, n);
    assert_int_equal(read(fd, back, sizeof back), n);
    assert_memory_equal(back, text, n);
    close(fd);
}

static void test_waits_and_runs(void **state)
{
    struct rig *r = *state;
    const char text[] = "echo \"$0\"; stat -c '%F %a %u' \"$0\"; echo over >&2; ls -A; exit 42";
    char want[200];

    hold(r, SHELL);
    await_sleep(r);
    assert_int_equal(r->s.state, SR_SESSION_HELD);
    hand_over(r, text);
    check_end(r, SR_END_EXIT, 42);
    assert_false(r->s.report.held);
    snprintf(want, sizeof want, "%s\nregular file 644 %d\nscript\n", script,
             getuid() ? (int)getuid() : PROGRAM_UID);
    check_text(&r->s.stdout_, want);
    check_text(&r->s.stderr_, "over\n");
    check_script(r, text, strlen(text));
    assert_int_equal(agent_status(r), 0);
}

static void test_does_not_wait_for_the_opening(void **state)
{
    struct rig *r = *state;

    hold(r, SHELL);
    hand_over(r, "echo at once\n");
    check_end(r, SR_END_EXIT, 0);
    check_text(&r->s.stdout_, "at once\n");
}

static void test_empty(void **state)
{
    struct rig *r = *state;

    hold(r, SHELL);
    await_sleep(r);
    hand_over(r, "");
    check_end(r, SR_END_EXIT, 0);
    check_text(&r->s.stdout_, "");
    check_script(r, "", 0);
}

static void test_big(void **state)
{
    struct rig *r = *state;

    hold(r, SHELL);
    await_sleep(r);
    hand_over(r, big_script());
    check_end(r, SR_END_EXIT, 7);
    check_text(&r->s.stdout_, "first\nlast\n");
    check_script(r, big_script(), BIG);
}

static void test_late_opener(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "sleep 0.3; exec sh \"$0\"", script, NULL};

    hold(r, argv);
    hand_over(r, big_script());
    check_end(r, SR_END_EXIT, 7);
    check_text(&r->s.stdout_, "first\nlast\n");
    assert_in_range(r->s.report.wall_us, 250000, 1000 * GIVE_UP_MS);
}

/* At every moment between fork and sleep: none may be missed. */
static void test_any_moment(void **state)
{
    struct rig *r = *state;

    for (int us = 0; us < 6000; us += 60) {
        hold(r, SHELL);
        while (r->s.out.len)
            drive(r, SR_SESSION_DONE, 1);
        usleep((useconds_t)us);
        hand_over(r, "echo there\n");
        check_end(r, SR_END_EXIT, 0);
        check_text(&r->s.stdout_, "there\n");
        unlink(script);
        renew(r);
    }
}

/* One that has opened the path and reads it much later. */
static void test_late_reader(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "exec 5<\"$0\"; sleep 0.2; cat <&5", script, NULL};

    hold(r, argv);
    await_sleep(r);
    hand_over_limited(r, big_script(), BIG, 10000, 2 * BIG);
    drive(r, SR_SESSION_DONE, 0);
    check_end(r, SR_END_EXIT, 0);
    check_text(&r->s.stdout_, big_script());
}

/* A process of the program opens the path, not its first one. */
static void test_opened_by_a_child(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "sh \"$0\" a & sh \"$0\" b; wait", script, NULL};

    hold(r, argv);
    await_sleep(r);
    drive(r, SR_SESSION_DONE, 100);
    hand_over(r, "echo x");
    check_end(r, SR_END_EXIT, 0);
    check_text(&r->s.stdout_, "x\nx\n");
}

/* What the program opens is a file: it can go back in it. */
static void test_can_seek(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "exec 5<\"$0\"; head -c 1 <&5 >/dev/null;"
                                            "tail -c 3 <&5;"
                                            "stat -L -c %F /proc/self/fd/5", script, NULL};

    hold(r, argv);
    await_sleep(r);
    hand_over(r, big_script());
    check_text(&r->s.stdout_, " 7\nregular file\n");
}

static void test_signal(void **state)
{
    struct rig *r = *state;

    hold(r, SHELL);
    await_sleep(r);
    hand_over(r, "kill -ABRT $$");
    check_end(r, SR_END_SIGNAL, SIGABRT);
    assert_false(r->s.report.held);
}

static void test_in_a_folder(void **state)
{
    struct rig *r = *state;
    struct sr_order o = order_of(SHELL);

    o.held = "d/e/script";
    hold_order(r, &o);
    await_sleep(r);
    hand_over(r, "echo \"${0#$PWD/}\"; ls -A d/e");
    check_text(&r->s.stdout_, "d/e/script\nscript\n");
}

static void test_other_files(void **state)
{
    struct rig *r = *state;

    put(r, "before", 0644, "echo before");
    hold(r, SHELL);
    assert_int_equal(sr_session_put_file(&r->s, "d/between", 0600, "echo between", 12, NULL), 0);
    await_sleep(r);
    hand_over(r, ". ./before; . d/between; stat -c %a d/between");
    check_text(&r->s.stdout_, "before\nbetween\n600\n");
}

static void test_input_and_artifact(void **state)
{
    static const char *const want[] = {"copy", NULL};
    struct rig *r = *state;
    struct sr_order o = order_of(SHELL);

    o.stdin_pipe = true;
    o.want = want;
    o.want_max = 100;
    hold_order(r, &o);
    await_sleep(r);
    hand_over_limited(r, "cat >copy", 9, 10000, 10);
    sr_session_stdin(&r->s, "typed", 5);
    sr_session_stdin_eof(&r->s);
    drive(r, SR_SESSION_DONE, 0);
    check_end(r, SR_END_EXIT, 0);
    check_text(&r->s.artifacts[0].data, "typed");
}

static void test_missing_command(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"no-such-command", script, NULL};

    hold(r, argv);
    drive(r, SR_SESSION_DONE, 0);
    assert_non_null(r->s.failure);
    assert_string_equal(r->s.failure, "cannot run \"no-such-command\": No such file or directory");
}

/* A scratch folder that is not the program's: it can neither feed nor replace
 * what it waits for. */
static void test_read_only_scratch(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "(: <>\"$0\") 2>/dev/null || echo not fed;"
                                            "rm -f \"$0\" 2>/dev/null || echo not removed;"
                                            "exec sh \"$0\"", script, NULL};

    if (getuid() != 0)
        skip();
    assert_int_equal(chown(r->scratch, 0, 0), 0);
    renew(r);
    hold(r, argv);
    await_sleep(r);
    hand_over(r, "stat -c '%F %U %a' \"$0\"; (: >>\"$0\") 2>/dev/null || echo not written");
    check_end(r, SR_END_EXIT, 0);
    check_text(&r->s.stdout_, "not fed\nnot removed\nregular file root 644\nnot written\n");
}

static void test_perl(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"perl", script, NULL};

    if (system("perl -e 1 2>/dev/null") != 0)
        skip();
    hold(r, argv);
    await_sleep(r);
    hand_over(r, "print \"$0|\", -f $0 ? 1 : 0, \"|\", <DATA>; seek DATA, 0, 0; print <DATA>;"
                 "exit 4;\n__END__\nd");
    check_end(r, SR_END_EXIT, 4);
    sr_buf_putc(&r->s.stdout_, 0);
    assert_non_null(strstr(r->s.stdout_.data, "/script|1|dprint")); /* back to its first byte */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_waits_and_runs),
        TEST(test_does_not_wait_for_the_opening),
        TEST(test_empty),
        TEST(test_big),
        TEST(test_late_opener),
        TEST(test_late_reader),
        TEST(test_any_moment),
        TEST(test_opened_by_a_child),
        TEST(test_can_seek),
        TEST(test_signal),
        TEST(test_in_a_folder),
        TEST(test_other_files),
        TEST(test_input_and_artifact),
        TEST(test_missing_command),
        TEST(test_read_only_scratch),
        TEST(test_perl),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
