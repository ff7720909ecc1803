/* Programs that are started before their script exists. */
#include "agent_rig.h"

#include <dirent.h>

#define BIG 200000

static char script[80]; /* absolute path of the script in the rig's scratch folder */

/* Starts argv, which waits for the file `held` that stands in its place. */
static void hold_order(struct rig *r, struct sr_order *o)
{
    o->cwd = r->scratch;
    if (!o->held)
        o->held = "script";
    snprintf(script, sizeof script, "%s/%s", r->scratch, o->held);
    start(r, o);
    assert_int_equal(r->s.state, SR_SESSION_HELD);
}

static void hold(struct rig *r, const char *const *argv)
{
    struct sr_order o = order_of(argv);

    hold_order(r, &o);
}

static const char *const SHELL[] = {"sh", script, NULL};

static void hand_over_limited(struct rig *r, const char *text, size_t n, uint32_t wall_ms,
                              uint32_t cap)
{
    const char *name = script + strlen(r->scratch) + 1;
    struct sr_err err;

    if (sr_session_put_file(&r->s, name, 0644, text, n, &err) < 0 ||
        sr_session_go(&r->s, wall_ms, cap, cap, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(r->s.state, SR_SESSION_RUNNING);
}

static void hand_over(struct rig *r, const char *text)
{
    hand_over_limited(r, text, strlen(text), 10000, 1000);
    drive(r, SR_SESSION_DONE, 0);
}

/* The program's process, or 0. */
static long child_of(const struct rig *r)
{
    char path[64];
    long pid = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)r->pid, (int)r->pid);
    f = fopen(path, "r");
    if (f && fscanf(f, "%ld", &pid) != 1)
        pid = 0;
    if (f)
        fclose(f);
    return pid;
}

/* Whether the agent's child has become the program and sleeps. */
static bool is_asleep(const struct rig *r)
{
    char path[64], name[32] = "", life = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%ld/stat", child_of(r));
    f = fopen(path, "r");
    if (f && fscanf(f, "%*d (%31[^)]) %c", name, &life) != 2)
        life = 0;
    if (f)
        fclose(f);
    return life == 'S' && !strstr(name, "agent");
}

/* Most programs here sleep for nothing but the script; that of the others is a
 * late one if this is too early. */
static void await_sleep(struct rig *r)
{
    for (int i = 0; i < 1000 && !is_asleep(r); i++)
        drive(r, SR_SESSION_DONE, 5);
    assert_true(is_asleep(r));
}

static void respawn(struct rig *r)
{
    sr_session_clear(&r->s);
    close(r->to);
    close(r->from);
    if (r->pid > 0)
        waitpid(r->pid, NULL, 0);
    spawn(r);
}

/* Waits for its end without hearing the agent. */
static void await_end_unheard(struct rig *r)
{
    r->hold = true;
    for (int i = 0; i < 1000 && child_of(r); i++)
        drive(r, SR_SESSION_DONE, 5);
    assert_int_equal(child_of(r), 0);
    r->hold = false;
}

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

/* A script of BIG bytes that says something at both ends. */
static const char *big_script(void)
{
    static char text[BIG + 1];
    const char *first = "echo first\n", *last = "\necho last; exit 7\n";

    for (size_t i = 0; i < BIG; i++)
        text[i] = i % 80 == 0 ? '\n' : i % 80 == 1 ? '#' : 'x';
    memcpy(text, first, strlen(first));
    memcpy(text + BIG - strlen(last), last, strlen(last));
    return text;
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
    assert_in_range(r->s.report.wall_us, 250000, 5000000);
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
        respawn(r);
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

static void test_clock_and_cpu_begin_at_go(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done;"
                                            ". \"$0\"", script, NULL};
    struct sr_order o = order_of(argv);

    hold_order(r, &o);
    await_sleep(r);
    drive(r, SR_SESSION_DONE, 1500);
    hand_over_limited(r, "sleep 0.3", 9, 1400, 10);
    drive(r, SR_SESSION_DONE, 0);
    check_end(r, SR_END_EXIT, 0);
    assert_in_range(r->s.report.wall_us, 290000, 1400000);
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
    assert_in_range(r->s.report.wall_us, 300000, 3000000);
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

/* The server has not yet heard of the end when it hands the script over. */
static void test_go_crosses_the_end(void **state)
{
    struct rig *r = *state;

    hold(r, DIES);
    drive(r, SR_SESSION_DONE, 50);
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
    r->hold = true;
    drive(r, SR_SESSION_DONE, 50);
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

/* Dies in the middle of the script's way in; the artifact goes out all the same. */
static void test_end_crosses_the_script(void **state)
{
    static const char *const want[] = {"a", NULL};
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "echo x >a; sleep 0.5; exit 3", NULL};
    struct sr_order o = order_of(argv);

    o.want = want;
    o.want_max = 100;
    hold_order(r, &o);
    sr_buf_append(&r->s.out, "F\0\0\0\x12\0\0\1\xa4\0\0\0\0\0\0\0\4scriptD\0\0\0\2ec", 30);
    drive(r, SR_SESSION_DONE, 200);
    sr_buf_append(&r->s.out, "D\0\0\0\1h", 6);
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
    assert_in_range(now_ms() - from, 250, 3000);
}

static void test_end_of_input_while_waiting(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "echo $$; exec sh \"$0\"", script, NULL};

    hold(r, argv);
    await_sleep(r);
    close(r->to);
    r->to = -1;
    assert_int_equal(agent_status(r), 1);
    assert_true(gone(printed_pid(&r->s.stdout_)));
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
    respawn(r);
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

static void check_failure(struct rig *r, const char *text)
{
    drive(r, SR_SESSION_DONE, 0);
    assert_non_null(r->s.failure);
    assert_string_equal(r->s.failure, text);
    respawn(r);
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
        TEST(test_missing_command),
        TEST(test_read_only_scratch),
        TEST(test_perl),
        TEST(test_bad_orders),
        TEST(test_bad_held_field),
        TEST(test_script_twice),
        TEST(test_go_twice),
        TEST(test_byte_by_byte),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
