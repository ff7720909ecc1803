/* How the agent runs a program, limits it, ends it and reports. */
#include "agent_rig.h"

static void test_exit_code(void **state)
{
    struct rig *r = *state;

    run_shell(r, "echo out; echo err >&2; exit 42");
    check_end(r, SR_END_EXIT, 42);
    check_text(&r->s.stdout_, "out\n");
    check_text(&r->s.stderr_, "err\n");
    assert_true(r->s.report.out_bytes == 4 && r->s.report.err_bytes == 4);
    assert_in_range(r->s.report.wall_us, 1, 1000 * GIVE_UP_MS);
    assert_true(r->s.report.peak_bytes > 0);
    assert_int_equal(agent_status(r), 0);
}

static void test_signal(void **state)
{
    struct rig *r = *state;

    run_shell(r, "kill -ABRT $$");
    check_end(r, SR_END_SIGNAL, SIGABRT);
}

static void test_kill_9_is_a_signal(void **state)
{
    struct rig *r = *state;

    run_shell(r, "kill -KILL $$");
    check_end(r, SR_END_SIGNAL, SIGKILL);
}

static void test_caps_are_exact(void **state)
{
    struct rig *r = *state;

    run_shell(r, "head -c 5000000 /dev/zero; head -c 999 /dev/zero >&2; printf x");
    check_end(r, SR_END_EXIT, 0);
    assert_int_equal(r->s.stdout_.len, 1000);
    assert_int_equal(r->s.stderr_.len, 999);
    assert_true(r->s.report.out_bytes == 5000001);
    assert_true(r->s.report.err_bytes == 999);
}

static void test_large_output_arrives_whole(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "yes | head -c 5000000", NULL};
    struct sr_order o = order_of(argv);

    o.out_cap = 8000000;
    run_order(r, &o);
    assert_int_equal(r->s.stdout_.len, 5000000);
    for (size_t i = 0; i < r->s.stdout_.len; i++)
        assert_int_equal(r->s.stdout_.data[i], i % 2 ? '\n' : 'y');
    assert_true(r->s.report.out_bytes == 5000000);
}

static void test_wall_limit_keeps_output(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "echo before; sleep 60 & sleep 60; echo after", NULL};
    struct sr_order o = order_of(argv);
    int64_t from = now_ms();

    o.wall_ms = 300;
    run_order(r, &o);
    check_end(r, SR_END_WALL, 0);
    check_text(&r->s.stdout_, "before\n");
    assert_in_range(now_ms() - from, 250, GIVE_UP_MS); /* and not a minute */
    assert_in_range(r->s.report.wall_us, 300000, 1000 * GIVE_UP_MS);
}

static void test_kill_order(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "echo up; sleep 60", NULL};
    struct sr_order o = order_of(argv);

    start(r, &o);
    while (r->s.stdout_.len < 3)
        drive(r, SR_SESSION_DONE, 20);
    sr_session_kill(&r->s);
    drive(r, SR_SESSION_DONE, 0);
    check_end(r, SR_END_KILLED, 0);
    check_text(&r->s.stdout_, "up\n");
}

/* A server that does not read must not stop the clock. */
static void test_wall_limit_while_blocked(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "echo $$; yes & exec yes >&2", NULL};
    struct sr_order o = order_of(argv);
    int64_t from = now_ms(), unread_ms;
    pid_t pid;

    o.wall_ms = 500;
    o.out_cap = o.err_cap = 50000000;
    start(r, &o);
    while (r->s.stdout_.len < 9)
        drive(r, SR_SESSION_DONE, 5);
    r->hold = true;
    drive(r, SR_SESSION_DONE, 100);
    pid = printed_pid(&r->s.stdout_);
    assert_true(gone(pid));
    poll(NULL, 0, 500);
    unread_ms = now_ms() - from;
    r->hold = false;
    drive(r, SR_SESSION_DONE, 0);
    check_end(r, SR_END_WALL, 0);
    assert_in_range(r->s.report.wall_us, 500000, 1000 * unread_ms);
}

static void test_stdin_pipe(void **state)
{
    struct rig *r = *state;
    static char big[3000000];
    const char *const argv[] = {"wc", "-c", NULL};
    struct sr_order o = order_of(argv);

    o.stdin_pipe = true;
    start(r, &o);
    sr_session_stdin(&r->s, big, sizeof big);
    sr_session_stdin_eof(&r->s);
    drive(r, SR_SESSION_DONE, 0);
    check_end(r, SR_END_EXIT, 0);
    check_text(&r->s.stdout_, "3000000\n");
}

static void test_stdin_nobody_reads(void **state)
{
    struct rig *r = *state;
    static char big[900000];
    const char *const argv[] = {"sh", "-c", "exec <&-; sleep 0.2; echo done", NULL};
    struct sr_order o = order_of(argv);

    o.stdin_pipe = true;
    start(r, &o);
    sr_session_stdin(&r->s, big, sizeof big);
    sr_session_stdin_eof(&r->s);
    drive(r, SR_SESSION_DONE, 0);
    check_end(r, SR_END_EXIT, 0);
    check_text(&r->s.stdout_, "done\n");
}

static void test_stdin_null(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "cat; readlink /proc/self/fd/0", NULL};
    struct sr_order o = order_of(argv);

    start(r, &o);
    sr_session_stdin(&r->s, "lost", 4);
    drive(r, SR_SESSION_DONE, 0);
    check_text(&r->s.stdout_, "/dev/null\n");
}

static void test_missing_command(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"no-such-command", NULL};
    struct sr_order o = order_of(argv);

    run_order(r, &o);
    assert_non_null(r->s.failure);
    assert_string_equal(r->s.failure, "cannot run \"no-such-command\": No such file or directory");
    assert_int_equal(agent_status(r), 1);
}

/* What a shell would take for its own, execvpe(3) gives to one. */
static void test_text_is_no_program(void **state)
{
    struct rig *r = *state;

    for (int with_path = 0; with_path < 2; with_path++) {
        char path[128], file[128], want[200];
        const char *const argv[] = {with_path ? file : "tool", NULL};
        const char *const env[] = {path, NULL};
        struct sr_order o = order_of(argv);

        snprintf(path, sizeof path, "PATH=%s:/usr/bin:/bin", r->scratch);
        snprintf(file, sizeof file, "%s/tool", r->scratch);
        snprintf(want, sizeof want, "cannot run \"%s\": Exec format error", argv[0]);
        o.env = env;
        put(r, "tool", 0755, "echo BREACH\n");
        run_order(r, &o);
        assert_non_null(r->s.failure);
        assert_string_equal(r->s.failure, want);
        assert_int_equal(r->s.stdout_.len, 0);
        assert_int_equal(unlink(file), 0);
        renew(r);
    }
}

static void test_missing_folder(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"true", NULL};
    struct sr_order o = order_of(argv);

    o.cwd = "/no/such";
    run_order(r, &o);
    assert_non_null(r->s.failure);
    assert_string_equal(r->s.failure, "cannot enter \"/no/such\": No such file or directory");
}

static void test_args_cwd_and_path(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"tool", "a b", "", NULL};
    const char script[] = "#!/bin/sh\necho \"$#,$1,$2,$(pwd)\"; umask\n";
    char path[128], want[128];
    const char *const env[] = {path, NULL};
    struct sr_order o = order_of(argv);

    snprintf(path, sizeof path, "PATH=%s/bin:/usr/bin:/bin", r->scratch);
    o.env = env;
    o.cwd = r->scratch;
    put(r, "bin/tool", 0755, script);
    run_order(r, &o);
    check_end(r, SR_END_EXIT, 0);
    snprintf(want, sizeof want, "2,a b,,%s\n0022\n", r->scratch);
    check_text(&r->s.stdout_, want);
}

static void test_env_is_the_whole(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"env", NULL};
    const char *const env[] = {"PATH=/usr/bin:/bin", "X=1 2", "EMPTY=", NULL};
    struct sr_order o = order_of(argv);

    o.env = env;
    run_order(r, &o);
    check_text(&r->s.stdout_, "PATH=/usr/bin:/bin\nX=1 2\nEMPTY=\n");
}

static int own_oom_score(void)
{
    char text[16] = "";
    int fd = open("/proc/self/oom_score_adj", O_RDONLY);

    assert_true(read(fd, text, sizeof text - 1) > 0);
    close(fd);
    return atoi(text);
}

static void test_program_world(void **state)
{
    struct rig *r = *state;
    char want[64];

    run_shell(r, "id -u; id -g; ls /proc/self/fd | wc -l; cat /proc/self/oom_score_adj;"
                 "grep -c 'SigBlk:.0*$' /proc/self/status; grep -cE 'SigIgn:.0{7}(00|18)0{7}$' /proc/self/status;"
                 "grep NoNewPrivs /proc/self/status | cut -f2; echo over >/dev/stderr;"
                 "echo out >/dev/stdout");
    /* 4: the three and that of ls itself. Only root can raise the OOM score, as
     * /proc/self of a process that cannot be dumped belongs to root. */
    snprintf(want, sizeof want, "%d\n%d\n4\n%d\n1\n1\n1\nout\n",
             getuid() ? (int)getuid() : PROGRAM_UID, getuid() ? (int)getgid() : PROGRAM_UID,
             getuid() ? own_oom_score() : 1000);
    check_text(&r->s.stdout_, want);
    check_text(&r->s.stderr_, "over\n");
}

static void test_cpu_limit(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "while :; do :; done", NULL};
    struct sr_order o = order_of(argv);

    o.cpu_seconds = 1;
    run_order(r, &o);
    check_end(r, SR_END_SIGNAL, SIGXCPU);
    assert_in_range(r->s.report.cpu_us, 700000, 2500000);
}

static void test_children_count_and_die(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c",
                                "mkfifo done; setsid sh -c 'i=0; while [ $i -lt 100000 ];"
                                "do i=$((i+1)); done; echo $$; echo >done; exec sleep 60' &"
                                "read x <done; exit 5", NULL};
    struct sr_order o = order_of(argv);
    pid_t pid;

    o.cwd = r->scratch;
    o.wall_ms = GIVE_UP_MS;
    run_order(r, &o);
    check_end(r, SR_END_EXIT, 5);
    assert_true(r->s.report.cpu_us > 20000);
    pid = printed_pid(&r->s.stdout_);
    assert_true(pid > 1 && gone(pid));
}

static void test_zombies_are_reaped(void **state)
{
    struct rig *r = *state;
    char path[64], script[300];

    snprintf(path, sizeof path, "%d", (int)r->pid);
    snprintf(script, sizeof script,
             "for i in 1 2 3 4 5 6 7 8 9; do (: & ); done; n=0;"
             "count() { grep -l '^PPid:.%s$' /proc/[0-9]*/status 2>/dev/null | wc -l; };"
             "while [ $(count) != 1 ] && [ $n -lt 50 ]; do sleep 0.1; n=$((n+1)); done; count",
             path);
    run_shell(r, script);
    check_text(&r->s.stdout_, "1\n"); /* the shell itself */
}

static void test_end_of_input_kills(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "echo $$; sleep 60 & sleep 60", NULL};
    struct sr_order o = order_of(argv);
    pid_t pid;

    start(r, &o);
    while (r->s.stdout_.len == 0)
        drive(r, SR_SESSION_DONE, 20);
    close(r->to);
    r->to = -1;
    assert_int_equal(agent_status(r), 1);
    pid = printed_pid(&r->s.stdout_);
    assert_true(pid > 1 && gone(pid));
    assert_int_not_equal(r->s.state, SR_SESSION_DONE);
}

static void test_end_of_input_before_start(void **state)
{
    struct rig *r = *state;

    drive(r, SR_SESSION_READY, 0);
    close(r->to);
    r->to = -1;
    assert_int_equal(agent_status(r), 1);
}

/* A bomb outside the process group of the program, at an ordinary deadline. */
static void test_runaway_forks(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c",
                                "f() { sleep 0.01; f & }; for i in 1 2 3 4 5; do setsid sh -c "
                                "'g() { sleep 0.01; g & }; g' & done; f; sleep 60", NULL};
    struct sr_order o = order_of(argv);

    o.wall_ms = 300;
    run_order(r, &o);
    check_end(r, SR_END_WALL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_exit_code),
        TEST(test_signal),
        TEST(test_kill_9_is_a_signal),
        TEST(test_caps_are_exact),
        TEST(test_large_output_arrives_whole),
        TEST(test_wall_limit_keeps_output),
        TEST(test_kill_order),
        TEST(test_wall_limit_while_blocked),
        TEST(test_stdin_pipe),
        TEST(test_stdin_nobody_reads),
        TEST(test_stdin_null),
        TEST(test_missing_command),
        TEST(test_text_is_no_program),
        TEST(test_missing_folder),
        TEST(test_args_cwd_and_path),
        TEST(test_env_is_the_whole),
        TEST(test_program_world),
        TEST(test_cpu_limit),
        TEST(test_children_count_and_die),
        TEST(test_zombies_are_reaped),
        TEST(test_end_of_input_kills),
        TEST(test_end_of_input_before_start),
        TEST(test_runaway_forks),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
