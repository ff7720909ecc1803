/* agent.c - process 1 of every sandbox: takes files and one start order, runs
 * the program under its limits, and reports. wire.h describes the frames.
 *
 * One poll loop, no heap, no thread. It runs as root with CAP_SETUID,
 * CAP_SETGID and CAP_KILL only. The program is its child with a uid of its
 * own, so it can neither signal, trace nor read the agent. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "child.h"
#include "counters.h"
#include "feed.h"
#include "held.h"
#include "job.h"
#include "message.h"
#include "outbox.h"
#include "transfer.h"
#include "wire.h"

#ifndef SR_SCRATCH
#define SR_SCRATCH "/scratch"
#endif

#define REAP_AT_ONCE 256 /* then look at the clock: zombies may come without end */

enum stage {
    WAITING,  /* for files and the start order */
    HELD,     /* the program waits for its script */
    RUNNING,  /* the program's first process lives */
    ENDING,   /* killing until no child is left */
    DRAINING, /* emptying the pipes that nobody can write to any more */
    SENDING,  /* the files that are wanted */
    FLUSHING, /* the last frame is queued */
    STAGES
};

struct stream {
    int fd;
    uint8_t type;
    uint32_t cap;
    uint64_t total; /* produced; the first `cap` of them are sent */
};

static struct agent {
    enum stage stage;
    int signals;
    struct sr_job job;
    struct sr_child child;
    struct stream out, err;
    /* the run */
    bool ended, judged; /* the first process ended; `report.end` is decided */
    int status;         /* of waitpid */
    uint64_t started_us, deadline_us;
    struct sr_counters before;
    struct sr_report report;
    struct sr_message failure; /* not empty: the last frame is SR_WIRE_FAILURE */
    int kill_pause_ms;
    bool reap_again;
    struct sr_transfer files;
    struct sr_held held;
    /* frames from the server */
    size_t in_len;
    unsigned char in[SR_WIRE_HEAD + SR_WIRE_MAX];
    struct sr_feed feed;
    struct sr_outbox outbox;
} agent;

static uint64_t now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* Nobody is left to report to. As process 1 our end takes everything along. */
static _Noreturn void die(void)
{
    for (int i = 0; i < 1000 && waitpid(-1, NULL, WNOHANG) >= 0; i++) {
        sr_child_kill_all();
        if (getpid() == 1)
            break;
        poll(NULL, 0, 1);
    }
    _exit(1);
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static bool failed(const struct agent *a)
{
    return a->failure.s[0];
}

/* Ends the run with the text in a->failure, whatever is going on. */
static void fail(struct agent *a)
{
    if (a->stage == FLUSHING)
        return; /* the report is on its way: too late */
    a->kill_pause_ms = 0;
    a->stage = ENDING;
}

#define FAIL(a, ...) (sr_message_join(&(a)->failure, __VA_ARGS__, NULL), fail(a))

/* The first verdict stays: a program that ended by itself was not killed. */
static void judge(struct agent *a, enum sr_end end, uint32_t code)
{
    if (a->judged)
        return;
    a->judged = true;
    a->report.end = (uint8_t)end;
    a->report.code = code;
    a->report.held = a->stage == HELD;
    a->kill_pause_ms = 0;
    a->stage = ENDING;
}

static void on_first_process_ended(struct agent *a, int status)
{
    a->ended = true;
    a->report.wall_us = now_us() - a->started_us;
    if (sr_child_trouble(&a->child, &a->job, &a->failure))
        fail(a);
    else if (WIFSIGNALED(status))
        judge(a, SR_END_SIGNAL, (uint32_t)WTERMSIG(status));
    else
        judge(a, SR_END_EXIT, (uint32_t)WEXITSTATUS(status));
}

/* Returns whether there is no child left at all. */
static bool reap(struct agent *a)
{
    a->reap_again = false;
    for (int i = 0; i < REAP_AT_ONCE; i++) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);

        if (pid <= 0)
            return pid < 0;
        if (pid == a->child.pid && !a->ended)
            on_first_process_ended(a, status);
    }
    a->reap_again = true;
    return false;
}

/* Orders of the server. */

static void on_file(struct agent *a, const unsigned char *p, size_t n)
{
    if (sr_transfer_begin(&a->files, &a->held, p, n, &a->failure) < 0)
        fail(a);
}

static void on_data(struct agent *a, const unsigned char *p, size_t n)
{
    if (sr_transfer_take(&a->files, p, n, &a->failure) < 0)
        fail(a);
}

/* From here on the run counts. */
static void begin(struct agent *a, uint32_t wall_ms)
{
    sr_counters_read(&a->before);
    a->started_us = now_us();
    a->deadline_us = a->started_us + (uint64_t)wall_ms * 1000;
}

static void on_start(struct agent *a, const unsigned char *p, size_t n)
{
    if (a->files.file >= 0 || sr_job_parse(&a->job, p, n) < 0) {
        FAIL(a, "bad order: start");
        return;
    }
    if (a->job.held && sr_held_make(&a->held, &a->files.scratch, a->job.held) < 0) {
        FAIL(a, "cannot create \"", a->job.held, "\": ", strerror(errno));
        return;
    }
    a->out.cap = a->job.out_cap;
    a->err.cap = a->job.err_cap;
    begin(a, a->job.wall_ms);
    if (sr_child_start(&a->child, &a->job) < 0) {
        FAIL(a, "cannot start the program: ", strerror(errno));
        return;
    }
    a->feed.fd = a->child.in;
    a->out.fd = a->child.out;
    a->err.fd = a->child.err;
    a->stage = a->job.held ? HELD : RUNNING;
}

/* What is sent stays one piece: after the first byte that was dropped, nothing. */
static void change_cap(struct stream *s, uint32_t cap)
{
    if (s->total <= s->cap)
        s->cap = cap;
}

static void on_go(struct agent *a, const unsigned char *p, size_t n)
{
    if (n != SR_WIRE_GO_SIZE || a->files.file >= 0 || sr_wire_get_u32(p) == 0) {
        FAIL(a, "bad order: go");
        return;
    }
    reap(a);
    if (a->stage != HELD)
        return; /* it has ended without its script: that is what is reported */
    change_cap(&a->out, sr_wire_get_u32(p + 4));
    change_cap(&a->err, sr_wire_get_u32(p + 8));
    begin(a, sr_wire_get_u32(p));
    a->before.cpu_us += sr_counters_cpu_of(a->child.pid);
    a->stage = RUNNING;
    if (sr_held_release(&a->held, &a->files.scratch, a->child.pid) < 0)
        FAIL(a, "cannot hand the script over: ", strerror(errno));
}

static void on_stdin(struct agent *a, const unsigned char *p, size_t n)
{
    sr_feed_put(&a->feed, p, n);
}

static void on_stdin_eof(struct agent *a, const unsigned char *p, size_t n)
{
    (void)p;
    (void)n;
    sr_feed_end(&a->feed);
}

static void on_kill(struct agent *a, const unsigned char *p, size_t n)
{
    (void)p;
    (void)n;
    if (a->stage <= RUNNING)
        judge(a, SR_END_KILLED, 0);
}

static const struct {
    uint8_t type;
    enum stage first, last; /* when it may come */
    void (*handle)(struct agent *a, const unsigned char *p, size_t n);
} ORDERS[] = {
    {SR_WIRE_FILE, WAITING, HELD, on_file},
    {SR_WIRE_DATA, WAITING, HELD, on_data},
    {SR_WIRE_START, WAITING, WAITING, on_start},
    {SR_WIRE_GO, HELD, HELD, on_go},
    {SR_WIRE_STDIN, RUNNING, FLUSHING, on_stdin},
    {SR_WIRE_STDIN_EOF, RUNNING, FLUSHING, on_stdin_eof},
    {SR_WIRE_KILL, HELD, FLUSHING, on_kill},
};

static void obey(struct agent *a, const unsigned char *frame, size_t n)
{
    for (size_t i = 0; i < sizeof ORDERS / sizeof ORDERS[0]; i++) {
        if (ORDERS[i].type != frame[0])
            continue;
        if (a->stage >= ORDERS[i].first && a->stage <= ORDERS[i].last) {
            ORDERS[i].handle(a, frame + SR_WIRE_HEAD, n);
            return;
        }
        if (ORDERS[i].last == HELD && a->report.held)
            return; /* sent before the server knew that the program had ended */
    }
    FAIL(a, "bad order: unknown, or at the wrong moment");
}

/* Obeys the complete frames that have arrived. */
static void obey_arrived(struct agent *a)
{
    size_t at = 0;

    while (a->in_len - at >= SR_WIRE_HEAD && !sr_feed_full(&a->feed) && !failed(a)) {
        size_t n = sr_wire_get_u32(a->in + at + 1);

        if (n > SR_WIRE_MAX) {
            FAIL(a, "bad order: too long");
            break;
        }
        if (a->in_len - at - SR_WIRE_HEAD < n)
            break;
        obey(a, a->in + at, n);
        at += SR_WIRE_HEAD + n;
    }
    memmove(a->in, a->in + at, a->in_len - at);
    a->in_len -= at;
}

/* After a failure the rest of the orders is read and thrown away, so that the
 * server does not hang in a write; end of file still ends us. */
static void hear(struct agent *a)
{
    ssize_t n;

    if (failed(a))
        a->in_len = 0;
    n = read(STDIN_FILENO, a->in + a->in_len, sizeof a->in - a->in_len);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        die();
    if (n > 0)
        a->in_len += (size_t)n;
}

/* The program's streams. */

static bool may_read(const struct agent *a, const struct stream *s)
{
    return s->fd >= 0 && (s->total >= s->cap || !sr_outbox_full(&a->outbox));
}

/* Moves one chunk; past the cap it is only counted. Returns whether there may
 * be more at once. */
static bool pump(struct agent *a, struct stream *s)
{
    unsigned char *to = sr_outbox_payload(&a->outbox);
    ssize_t n = read(s->fd, to, SR_WIRE_MAX);
    uint64_t room = s->total < s->cap ? s->cap - s->total : 0;
    size_t keep;

    if (n <= 0) {
        if (n == 0)
            close_fd(&s->fd);
        return false;
    }
    s->total += (uint64_t)n;
    keep = (size_t)n < room ? (size_t)n : (size_t)room;
    if (keep)
        sr_outbox_commit(&a->outbox, s->type, keep);
    return true;
}

/* The stages. Each step does what can be done now and may change a->stage. */

static void step_waiting(struct agent *a)
{
    (void)a;
}

static void step_running(struct agent *a)
{
    if (now_us() < a->deadline_us)
        return;
    reap(a); /* an end that has happened wins over the deadline */
    if (a->stage <= RUNNING)
        judge(a, SR_END_WALL, 0);
}

static void step_ending(struct agent *a)
{
    sr_child_kill_all();
    if (!reap(a)) {
        a->kill_pause_ms = a->kill_pause_ms < 16 ? a->kill_pause_ms * 2 + 1 : 16;
        return;
    }
    sr_transfer_drop(&a->files);
    a->stage = DRAINING;
}

/* No process is left, so an empty pipe stays empty even when its other end is
 * still open (in a socket's queue, say). */
static bool drained(struct agent *a, struct stream *s)
{
    while (may_read(a, s))
        if (!pump(a, s))
            close_fd(&s->fd);
    return s->fd < 0;
}

static void step_draining(struct agent *a)
{
    if (failed(a)) {
        sr_outbox_put(&a->outbox, SR_WIRE_FAILURE, a->failure.s, strlen(a->failure.s));
        a->stage = FLUSHING;
    } else if (drained(a, &a->out) && drained(a, &a->err)) {
        a->stage = SENDING;
    }
}

static void report(struct agent *a)
{
    unsigned char *to = sr_outbox_payload(&a->outbox);
    struct sr_counters after;

    sr_counters_read(&after);
    a->report.oom = after.oom_kills > a->before.oom_kills;
    a->report.cpu_us = after.cpu_us > a->before.cpu_us ? after.cpu_us - a->before.cpu_us : 0;
    a->report.peak_bytes = sr_counters_peak(&a->before, &after);
    a->report.out_bytes = a->out.total;
    a->report.err_bytes = a->err.total;
    sr_wire_put_report(to, &a->report);
    sr_outbox_commit(&a->outbox, SR_WIRE_EXIT, SR_WIRE_REPORT_SIZE);
}

static void step_sending(struct agent *a)
{
    int more = 1;

    while (more > 0 && !sr_outbox_full(&a->outbox))
        more = sr_transfer_send(&a->files, &a->job, &a->outbox, &a->failure);
    if (more < 0) {
        fail(a);
    } else if (more == 0) {
        report(a);
        a->stage = FLUSHING;
    }
}

static void step_flushing(struct agent *a)
{
    if (sr_outbox_flush(&a->outbox, STDOUT_FILENO) < 0)
        die();
    if (sr_outbox_empty(&a->outbox))
        _exit(failed(a) ? 1 : 0);
}

static void (*const STEPS[STAGES])(struct agent *a) = {
    [WAITING] = step_waiting, [HELD] = step_running,      [RUNNING] = step_running,
    [ENDING] = step_ending,   [DRAINING] = step_draining, [SENDING] = step_sending,
    [FLUSHING] = step_flushing,
};

static void step(struct agent *a)
{
    enum stage before;

    do {
        before = a->stage;
        STEPS[before](a);
    } while (a->stage != before);
}

/* The loop. */

static int poll_timeout(const struct agent *a)
{
    uint64_t now, ms;

    if (a->reap_again)
        return 0;
    if (a->stage == ENDING)
        return a->kill_pause_ms;
    if (a->stage > ENDING) /* with more to queue; a blocked outbox wakes us by POLLOUT */
        return sr_outbox_empty(&a->outbox) ? 0 : -1;
    if (a->stage == WAITING)
        return -1;
    now = now_us();
    if (now >= a->deadline_us)
        return 0;
    ms = (a->deadline_us - now + 999) / 1000;
    return ms < INT_MAX ? (int)ms : INT_MAX;
}

enum { SERVER_IN, SERVER_OUT, SIGNALS, PROGRAM_OUT, PROGRAM_ERR, PROGRAM_IN, WATCHED };

/* A descriptor that must not be read now is left out: it would only wake us. */
static void watch(const struct agent *a, struct pollfd w[WATCHED])
{
    w[SERVER_IN] = (struct pollfd){STDIN_FILENO, sr_feed_full(&a->feed) ? 0 : POLLIN, 0};
    w[SERVER_OUT] =
        (struct pollfd){STDOUT_FILENO, sr_outbox_empty(&a->outbox) ? 0 : POLLOUT, 0};
    w[SIGNALS] = (struct pollfd){a->signals, POLLIN, 0};
    w[PROGRAM_OUT] = (struct pollfd){may_read(a, &a->out) ? a->out.fd : -1, POLLIN, 0};
    w[PROGRAM_ERR] = (struct pollfd){may_read(a, &a->err) ? a->err.fd : -1, POLLIN, 0};
    w[PROGRAM_IN] = (struct pollfd){sr_feed_empty(&a->feed) ? -1 : a->feed.fd, POLLOUT, 0};
}

static void hear_signals(struct agent *a)
{
    struct signalfd_siginfo info[8];

    while (read(a->signals, info, sizeof info) > 0)
        ;
    reap(a);
}

static void serve(struct agent *a, const struct pollfd w[WATCHED])
{
    if (w[SERVER_OUT].revents & (POLLERR | POLLNVAL))
        die();
    if (w[SERVER_IN].revents & POLLIN)
        hear(a);
    else if (w[SERVER_IN].revents)
        die(); /* hung up; what was still to be read does not matter */
    if (w[SIGNALS].revents || a->reap_again)
        hear_signals(a);
    if (w[PROGRAM_OUT].revents && may_read(a, &a->out))
        pump(a, &a->out);
    if (w[PROGRAM_ERR].revents && may_read(a, &a->err))
        pump(a, &a->err);
    if (w[PROGRAM_IN].revents)
        sr_feed_flush(&a->feed);
    obey_arrived(a);
    step(a);
    if (sr_outbox_flush(&a->outbox, STDOUT_FILENO) < 0)
        die();
}

static void init(struct agent *a)
{
    sigset_t all, child;

    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); /* for tests; process 1 is one anyway */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    signal(SIGCHLD, SIG_DFL); /* an inherited SIG_IGN would hide the children's ends */
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    a->signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    umask(0);
    fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
    fcntl(STDOUT_FILENO, F_SETFL, fcntl(STDOUT_FILENO, F_GETFL) | O_NONBLOCK);
    a->files.file = a->feed.fd = -1;
    a->out = (struct stream){.fd = -1, .type = SR_WIRE_STDOUT};
    a->err = (struct stream){.fd = -1, .type = SR_WIRE_STDERR};
}

int main(int argc, char **argv)
{
    /* Process 1 takes no arguments: an image's Cmd could supply them. */
    const char *scratch = argc > 1 && getpid() != 1 ? argv[1] : SR_SCRATCH;
    struct agent *a = &agent;
    struct pollfd w[WATCHED];

    init(a);
    if (a->signals < 0 || sr_place_open(&a->files.scratch, scratch) < 0)
        FAIL(a, "cannot open \"", scratch, "\": ", strerror(errno));
    else
        sr_outbox_put(&a->outbox, SR_WIRE_HELLO, &(unsigned char){SR_WIRE_VERSION}, 1);
    for (;;) {
        step(a);
        if (sr_outbox_flush(&a->outbox, STDOUT_FILENO) < 0)
            die();
        watch(a, w);
        if (poll(w, WATCHED, poll_timeout(a)) < 0 && errno != EINTR)
            die();
        serve(a, w);
    }
}
