/* agent_rig.h - the real agent, as an ordinary process (not process 1), driven
 * by a real session over pipes. SR_AGENT names the binary. As root the programs
 * run with a uid of their own, as anybody else with the caller's. */
#ifndef AGENT_RIG_H
#define AGENT_RIG_H

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

static inline int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static inline const char *agent_path(void)
{
    const char *path = getenv("SR_AGENT");

    return path ? path : "build/sandbox-agent";
}

static inline void spawn(struct rig *r)
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

static inline int setup(void **state)
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

static inline int teardown(void **state)
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

/* Another agent in the same folder. */
static inline void renew(struct rig *r)
{
    sr_session_clear(&r->s);
    close(r->to);
    close(r->from);
    if (r->pid > 0)
        waitpid(r->pid, NULL, 0);
    spawn(r);
}

static inline void send_some(struct rig *r)
{
    ssize_t n = write(r->to, r->s.out.data, r->s.out.len);

    if (n < 0 && errno == EPIPE)
        n = (ssize_t)r->s.out.len; /* the agent is through; what it said counts */
    if (n > 0)
        sr_buf_consume(&r->s.out, (size_t)n);
}

/* Returns -1 at the end of what the agent says. */
static inline int hear_some(struct rig *r)
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
static inline void drive(struct rig *r, enum sr_session_state until, int ms)
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

static inline struct sr_order order_of(const char *const *argv)
{
    static const char *const env[] = {"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C", NULL};

    return (struct sr_order){.argv = argv, .env = env, .cwd = "/", .uid = PROGRAM_UID,
                             .wall_ms = 10000, .out_cap = 1000, .err_cap = 1000};
}

static inline void start(struct rig *r, const struct sr_order *o)
{
    struct sr_err err;

    drive(r, SR_SESSION_READY, 0);
    if (sr_session_start(&r->s, o, &err) < 0)
        fail_msg("%s", err.msg);
}

/* Runs a shell script to its end with the order as `o` says. */
static inline void run_order(struct rig *r, struct sr_order *o)
{
    start(r, o);
    drive(r, SR_SESSION_DONE, 0);
}

static inline void run_shell(struct rig *r, const char *script)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    struct sr_order o = order_of(argv);

    run_order(r, &o);
}

static inline void check_text(const struct sr_buf *b, const char *text)
{
    assert_int_equal(b->len, strlen(text));
    if (b->len)
        assert_memory_equal(b->data, text, b->len);
}

static inline void check_end(const struct rig *r, enum sr_end end, uint32_t code)
{
    if (r->s.failure)
        fail_msg("%s", r->s.failure);
    assert_int_equal(r->s.report.end, end);
    assert_int_equal(r->s.report.code, code);
}

/* The exit status of the agent itself. */
static inline int agent_status(struct rig *r)
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

static inline bool gone(pid_t pid)
{
    for (int i = 0; i < GIVE_UP_MS / 5 && kill(pid, 0) == 0; i++)
        poll(NULL, 0, 5);
    return kill(pid, 0) < 0 && errno == ESRCH;
}

static inline pid_t printed_pid(struct sr_buf *b)
{
    sr_buf_putc(b, 0);
    return (pid_t)atol(b->data);
}

static inline void put(struct rig *r, const char *path, uint32_t mode, const char *text)
{
    drive(r, SR_SESSION_READY, 0);
    assert_int_equal(sr_session_put_file(&r->s, path, mode, text, strlen(text), NULL), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

#endif
