/* The real agent, as an ordinary process (not process 1), driven by a real
 * session over pipes. SR_AGENT names the binary. As root the programs run with
 * a uid of their own, as anybody else with the caller's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "session.h"

#define PROGRAM_UID 60600
#define GIVE_UP_MS 20000

struct rig {
    char scratch[64];
    pid_t pid;
    int to, from; /* the agent's stdin and stdout */
    bool hold;    /* do not read what the agent says */
    struct sr_session s;
};

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static const char *agent_path(void)
{
    const char *path = getenv("SR_AGENT");

    return path ? path : "build/sandbox-agent";
}

static void spawn(struct rig *r)
{
    int in[2], out[2];

    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    r->pid = fork();
    if (r->pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        execl(agent_path(), "agent", r->scratch, (char *)NULL);
        _exit(99);
    }
    assert_true(r->pid > 0);
    close(in[0]);
    close(out[1]);
    r->to = in[1];
    r->from = out[0];
    fcntl(r->to, F_SETFL, O_NONBLOCK);
    sr_session_init(&r->s);
}

static int setup(void **state)
{
    struct rig *r = calloc(1, sizeof *r);

    strcpy(r->scratch, "/tmp/sr-agent-XXXXXX");
    if (!mkdtemp(r->scratch) || chmod(r->scratch, 0755) < 0)
        return -1;
    if (getuid() == 0 && chown(r->scratch, PROGRAM_UID, PROGRAM_UID) < 0)
        return -1;
    spawn(r);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;
    char command[128];
    int rc;

    if (r->to >= 0)
        close(r->to);
    close(r->from);
    if (r->pid > 0)
        waitpid(r->pid, NULL, 0);
    snprintf(command, sizeof command, "rm -rf '%s'", r->scratch);
    rc = system(command);
    sr_session_clear(&r->s);
    free(r);
    return rc;
}

static void send_some(struct rig *r)
{
    ssize_t n = write(r->to, r->s.out.data, r->s.out.len);

    if (n < 0 && errno == EPIPE)
        n = (ssize_t)r->s.out.len; /* the agent is through; what it said counts */
    if (n > 0)
        sr_buf_consume(&r->s.out, (size_t)n);
}

/* Returns -1 at the end of what the agent says. */
static int hear_some(struct rig *r)
{
    unsigned char buf[8 + 8192] = {1};
    struct sr_err err;
    ssize_t n = read(r->from, buf + 8, sizeof buf - 8);

    if (n <= 0)
        return -1;
    sr_wire_put_u32(buf + 4, (uint32_t)n);
    if (sr_session_feed(&r->s, buf, 8 + (size_t)n, &err) < 0)
        fail_msg("%s", err.msg);
    return 0;
}

/* Serves the agent until the session is in that state, or for ms when ms > 0. */
static void drive(struct rig *r, enum sr_session_state until, int ms)
{
    int64_t end = now_ms() + (ms ? ms : GIVE_UP_MS);

    while (r->s.state != until && now_ms() < end) {
        struct pollfd p[2] = {{r->hold ? -1 : r->from, POLLIN, 0},
                              {r->s.out.len ? r->to : -1, POLLOUT, 0}};

        poll(p, 2, 5);
        if (p[1].revents)
            send_some(r);
        if (p[0].revents && hear_some(r) < 0)
            break;
    }
    if (!ms)
        assert_int_equal(r->s.state, until);
}

static struct sr_order order_of(const char *const *argv)
{
    static const char *const env[] = {"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C", NULL};

    return (struct sr_order){.argv = argv, .env = env, .cwd = "/", .uid = PROGRAM_UID,
                             .wall_ms = 10000, .out_cap = 1000, .err_cap = 1000};
}

static void start(struct rig *r, const struct sr_order *o)
{
    struct sr_err err;

    drive(r, SR_SESSION_READY, 0);
    if (sr_session_start(&r->s, o, &err) < 0)
        fail_msg("%s", err.msg);
}

/* Runs a shell script to its end with the order as `o` says. */
static void run_order(struct rig *r, struct sr_order *o)
{
    start(r, o);
    drive(r, SR_SESSION_DONE, 0);
}

static void run_shell(struct rig *r, const char *script)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    struct sr_order o = order_of(argv);

    run_order(r, &o);
}

static void check_text(const struct sr_buf *b, const char *text)
{
    assert_int_equal(b->len, strlen(text));
    if (b->len)
        assert_memory_equal(b->data, text, b->len);
}

static void check_end(const struct rig *r, enum sr_end end, uint32_t code)
{
    if (r->s.failure)
        fail_msg("%s", r->s.failure);
    assert_int_equal(r->s.report.end, end);
    assert_int_equal(r->s.report.code, code);
}

/* The exit status of the agent itself. */
static int agent_status(struct rig *r)
{
    int status = -1;

    for (int i = 0; i < GIVE_UP_MS / 5; i++) {
        if (waitpid(r->pid, &status, WNOHANG) == r->pid) {
            r->pid = -1;
            return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
        }
        poll(NULL, 0, 5);
    }
    return -1;
}

static bool gone(pid_t pid)
{
    for (int i = 0; i < 400 && kill(pid, 0) == 0; i++)
        poll(NULL, 0, 5);
    return kill(pid, 0) < 0 && errno == ESRCH;
}

static pid_t printed_pid(struct sr_buf *b)
{
    sr_buf_putc(b, 0);
    return (pid_t)atol(b->data);
}

static void put(struct rig *r, const char *path, uint32_t mode, const char *text)
{
    drive(r, SR_SESSION_READY, 0);
    assert_int_equal(sr_session_put_file(&r->s, path, mode, text, strlen(text), NULL), 0);
}

static void test_exit_code(void **state)
{
    struct rig *r = *state;

    run_shell(r, "echo out; echo err >&2; exit 42");
    check_end(r, SR_END_EXIT, 42);
    check_text(&r->s.stdout_, "out\n");
    check_text(&r->s.stderr_, "err\n");
    assert_true(r->s.report.out_bytes == 4 && r->s.report.err_bytes == 4);
    assert_true(r->s.report.wall_us > 0 && r->s.report.wall_us < 5000000);
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
    assert_in_range(now_ms() - from, 250, 3000);
    assert_in_range(r->s.report.wall_us, 300000, 3000000);
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
    pid_t pid;

    o.wall_ms = 500;
    o.out_cap = o.err_cap = 50000000;
    start(r, &o);
    while (r->s.stdout_.len < 9)
        drive(r, SR_SESSION_DONE, 5);
    r->hold = true;
    drive(r, SR_SESSION_DONE, 1500);
    pid = printed_pid(&r->s.stdout_);
    assert_true(gone(pid));
    r->hold = false;
    drive(r, SR_SESSION_DONE, 0);
    check_end(r, SR_END_WALL, 0);
    assert_true(r->s.report.wall_us < 1400000);
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
                 "grep -c 'SigBlk:.0*$' /proc/self/status; grep -c 'SigIgn:.0*$' /proc/self/status;"
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
    assert_in_range(r->s.report.cpu_us, 900000, 2500000);
}

static void test_children_count_and_die(void **state)
{
    struct rig *r = *state;
    pid_t pid;

    run_shell(r, "setsid sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo $$;"
                 "exec sleep 60' & sleep 2; exit 5");
    check_end(r, SR_END_EXIT, 5);
    assert_true(r->s.report.cpu_us > 20000);
    assert_true(r->s.report.wall_us < 5000000);
    pid = printed_pid(&r->s.stdout_);
    assert_true(pid > 1 && gone(pid));
}

static void test_zombies_are_reaped(void **state)
{
    struct rig *r = *state;
    char path[64], script[300];

    snprintf(path, sizeof path, "%d", (int)r->pid);
    snprintf(script, sizeof script,
             "for i in 1 2 3 4 5 6 7 8 9; do (: & ); done; sleep 0.3;"
             "grep -l '^PPid:.%s$' /proc/[0-9]*/status 2>/dev/null | wc -l", path);
    run_shell(r, script);
    check_text(&r->s.stdout_, "1\n"); /* the shell itself */
}

static void test_files(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "cat a; stat -c '%n %a %u' a d d/e d/e/run empty;"
                                            "./d/e/run", NULL};
    struct sr_order o = order_of(argv);
    char want[200];
    int uid = getuid() ? (int)getuid() : PROGRAM_UID;

    put(r, "a", 0600, "text\n");
    put(r, "d/e/run", 0777, "#!/bin/sh\necho ran\n");
    put(r, "empty", 0444, "");
    o.cwd = r->scratch;
    run_order(r, &o);
    snprintf(want, sizeof want,
             "text\na 600 %d\nd 755 %d\nd/e 755 %d\nd/e/run 777 %d\nempty 444 %d\nran\n", uid, uid,
             uid, uid, uid);
    check_text(&r->s.stdout_, want);
    check_end(r, SR_END_EXIT, 0);
}

static void test_file_twice(void **state)
{
    struct rig *r = *state;

    put(r, "a", 0600, "1");
    put(r, "a", 0600, "2");
    drive(r, SR_SESSION_DONE, 0);
    assert_non_null(r->s.failure);
    assert_string_equal(r->s.failure, "cannot create \"a\": File exists");
    assert_int_equal(agent_status(r), 1);
}

static void test_file_through_link(void **state)
{
    struct rig *r = *state;
    char link[80];

    snprintf(link, sizeof link, "%s/way", r->scratch);
    assert_int_equal(symlink("/tmp", link), 0);
    put(r, "way/out", 0600, "1");
    drive(r, SR_SESSION_DONE, 0);
    assert_non_null(r->s.failure);
}

static void test_artifacts(void **state)
{
    static const char *const want[] = {"good", "empty", "link", "way/good", "fifo", "big",
                                       "absent", "dir", "dir/secret", "sock", NULL};
    static const int missing[] = {-1, -1, SR_MISSING_NOT_REGULAR, SR_MISSING_ABSENT,
                                  SR_MISSING_NOT_REGULAR, SR_MISSING_TOO_LARGE,
                                  SR_MISSING_ABSENT, SR_MISSING_NOT_REGULAR, -1,
                                  SR_MISSING_ABSENT};
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c",
                                "umask 077; head -c 1500000 /dev/zero >good; : >empty; ln -s "
                                "/etc/passwd link; mkdir dir; printf deep >dir/secret; ln -s . way;"
                                "mkfifo fifo; head -c 2000001 /dev/zero >big", NULL};
    struct sr_order o = order_of(argv);

    o.cwd = r->scratch;
    o.want = want;
    o.want_max = 2000000;
    run_order(r, &o);
    check_end(r, SR_END_EXIT, 0);
    assert_int_equal(r->s.n_artifacts, sizeof missing / sizeof missing[0]);
    for (size_t i = 0; i < r->s.n_artifacts; i++) {
        assert_int_equal(r->s.artifacts[i].missing, missing[i]);
        assert_true(r->s.artifacts[i].data.len == r->s.artifacts[i].size);
    }
    assert_int_equal(r->s.artifacts[0].size, 1500000);
    check_text(&r->s.artifacts[8].data, "deep");
}

/* With a wide pipe the agent is never held up between two pieces. */
static void test_artifact_to_fast_reader(void **state)
{
    static const char *const want[] = {"a", NULL};
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "head -c 20000000 /dev/zero >a", NULL};
    struct sr_order o = order_of(argv);

    fcntl(r->from, F_SETPIPE_SZ, 1 << 20);
    o.cwd = r->scratch;
    o.want = want;
    o.want_max = 20000000;
    run_order(r, &o);
    check_end(r, SR_END_EXIT, 0);
    assert_int_equal(r->s.artifacts[0].data.len, 20000000);
}

static void test_artifacts_after_timeout(void **state)
{
    static const char *const want[] = {"part", NULL};
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "echo half >part; sleep 60", NULL};
    struct sr_order o = order_of(argv);

    o.cwd = r->scratch;
    o.want = want;
    o.want_max = 100;
    o.wall_ms = 300;
    run_order(r, &o);
    check_end(r, SR_END_WALL, 0);
    check_text(&r->s.artifacts[0].data, "half\n");
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

/* Raw bytes of a server gone mad; each must be answered with a failure. */
static void check_bad_order(void **state, const char *bytes, size_t n)
{
    struct rig *r = *state;

    drive(r, SR_SESSION_READY, 0);
    sr_buf_append(&r->s.out, bytes, n);
    drive(r, SR_SESSION_DONE, 0);
    assert_non_null(r->s.failure);
    assert_memory_equal(r->s.failure, "bad order", 9);
    assert_int_equal(agent_status(r), 1);
    sr_session_clear(&r->s);
    close(r->to);
    close(r->from);
    spawn(r);
}

static void test_bad_orders(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
    } bad[] = {
        {"Z\0\0\0\0", 5},
        {"\0\0\0\0\0", 5},
        {"F\0\1\0\1", 5},
        {"F\xff\xff\xff\xff", 5},
        {"F\0\0\0\0", 5},
        {"F\0\0\0\x0f\0\0\1\xa4\0\0\0\0\0\0\0\1../", 20},
        {"F\0\0\0\x0e\0\0\1\xa4\0\0\0\0\0\0\0\1/x", 19},
        {"F\0\0\0\x0d\0\0\1\xa4\0\0\0\0\0\0\0\1\0", 18},
        {"F\0\0\0\x0d\0\0\1\xa4\0\0\0\0\0\0\0\1xD\0\0\0\2ab", 25},
        {"F\0\0\0\x0d\0\0\1\xa4\0\0\0\0\0\0\0\1yS\0\0\0\0", 23},
        {"D\0\0\0\1x", 6},
        {"I\0\0\0\1x", 6},
        {"K\0\0\0\0", 5},
        {"S\0\0\0\0", 5},
        {"S\0\0\0\6a\0\0\0\2x", 11},
        {"S\0\0\0\4a\0\0\0", 9},
        {"S\0\0\0\6q\0\0\0\1x", 11},
        {"S\0\0\0\7a\0\0\0\2x\0", 12},
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        check_bad_order(state, bad[i].bytes, bad[i].n);
}

static void test_bad_order_kills_the_program(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "echo $$; exec sleep 60", NULL};
    struct sr_order o = order_of(argv);

    start(r, &o);
    while (r->s.stdout_.len == 0)
        drive(r, SR_SESSION_DONE, 20);
    sr_buf_append(&r->s.out, "D\0\0\0\1x", 6);
    drive(r, SR_SESSION_DONE, 0);
    assert_non_null(r->s.failure);
    assert_true(gone(printed_pid(&r->s.stdout_)));
}

/* Orders may arrive in any pieces. */
static void test_orders_byte_by_byte(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"cat", "f", NULL};
    struct sr_order o = order_of(argv);

    put(r, "f", 0644, "slowly");
    o.cwd = r->scratch;
    start(r, &o);
    for (size_t i = 0; i < r->s.out.len; i++) {
        assert_int_equal(write(r->to, r->s.out.data + i, 1), 1);
        if (i % 16 == 0)
            poll(NULL, 0, 1);
    }
    sr_buf_consume(&r->s.out, r->s.out.len);
    drive(r, SR_SESSION_DONE, 0);
    check_text(&r->s.stdout_, "slowly");
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

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

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
        TEST(test_missing_folder),
        TEST(test_args_cwd_and_path),
        TEST(test_env_is_the_whole),
        TEST(test_program_world),
        TEST(test_cpu_limit),
        TEST(test_children_count_and_die),
        TEST(test_zombies_are_reaped),
        TEST(test_files),
        TEST(test_file_twice),
        TEST(test_file_through_link),
        TEST(test_artifacts),
        TEST(test_artifact_to_fast_reader),
        TEST(test_artifacts_after_timeout),
        TEST(test_end_of_input_kills),
        TEST(test_end_of_input_before_start),
        TEST(test_bad_orders),
        TEST(test_bad_order_kills_the_program),
        TEST(test_orders_byte_by_byte),
        TEST(test_runaway_forks),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
