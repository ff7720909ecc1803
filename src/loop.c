#include "loop.h"

#include <limits.h>
#include <stdlib.h>
#include <time.h>

void sr_loop_init(struct sr_loop *loop)
{
    *loop = (struct sr_loop){0};
    loop->ready_tail = &loop->ready;
}

void sr_loop_clear(struct sr_loop *loop)
{
    while (loop->watches)
        sr_watch_remove(loop->watches);
    while (loop->timers)
        sr_timer_remove(loop->timers);
    while (loop->ready)
        sr_op_drop(loop->ready);
    free(loop->fds);
    sr_loop_init(loop);
}

int64_t sr_now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void sr_watch_add(struct sr_loop *loop, struct sr_watch *w)
{
    if (w->link)
        return;
    w->next = loop->watches;
    w->link = &loop->watches;
    if (w->next)
        w->next->link = &w->next;
    loop->watches = w;
}

void sr_watch_remove(struct sr_watch *w)
{
    if (!w->link)
        return;
    *w->link = w->next;
    if (w->next)
        w->next->link = w->link;
    w->link = NULL;
    w->next = NULL;
}

void sr_timer_add(struct sr_loop *loop, struct sr_timer *t, int64_t delay_ms)
{
    struct sr_timer **at = &loop->timers;

    sr_timer_remove(t);
    t->due_ms = sr_now_ms() + delay_ms;
    while (*at && (*at)->due_ms <= t->due_ms)
        at = &(*at)->next;
    t->next = *at;
    t->link = at;
    if (t->next)
        t->next->link = &t->next;
    *at = t;
}

void sr_timer_remove(struct sr_timer *t)
{
    if (!t->link)
        return;
    *t->link = t->next;
    if (t->next)
        t->next->link = t->link;
    t->link = NULL;
    t->next = NULL;
}

static int wait_ms(const struct sr_loop *loop, int max_wait_ms)
{
    int64_t wait;

    if (loop->ready)
        return 0;
    if (!loop->timers)
        return max_wait_ms;
    wait = loop->timers->due_ms - sr_now_ms();
    if (wait < 0)
        wait = 0;
    if (max_wait_ms >= 0 && wait > max_wait_ms)
        wait = max_wait_ms;
    return wait > INT_MAX ? INT_MAX : (int)wait;
}

static unsigned collect_fds(struct sr_loop *loop)
{
    unsigned n = 0;

    for (struct sr_watch *w = loop->watches; w; w = w->next) {
        if (n == loop->fds_cap) {
            unsigned cap = loop->fds_cap ? 2 * loop->fds_cap : 16;
            struct pollfd *fds = realloc(loop->fds, cap * sizeof *fds);

            if (!fds)
                break; /* the rest has its turn when memory is there again */
            loop->fds = fds;
            loop->fds_cap = cap;
        }
        loop->fds[n++] = (struct pollfd){.fd = w->fd, .events = w->events};
    }
    return n;
}

/* A callback may remove any watch, so each event looks its watch up anew. */
static void dispatch_fds(struct sr_loop *loop, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct sr_watch *w;

        if (!loop->fds[i].revents)
            continue;
        for (w = loop->watches; w && w->fd != loop->fds[i].fd; w = w->next)
            ;
        if (w)
            w->on_ready(w, loop->fds[i].revents);
    }
}

static void dispatch_timers(struct sr_loop *loop)
{
    int64_t now = sr_now_ms();

    while (loop->timers && loop->timers->due_ms <= now) {
        struct sr_timer *t = loop->timers;

        sr_timer_remove(t);
        t->on_due(t);
    }
}

void sr_loop_turn(struct sr_loop *loop, int max_wait_ms)
{
    unsigned n = collect_fds(loop);
    int timeout = wait_ms(loop, max_wait_ms);
    int got;

    if (loop->poller)
        got = loop->poller->wait(loop->poller, loop->fds, n, timeout);
    else
        got = poll(loop->fds, n, timeout);
    if (got > 0)
        dispatch_fds(loop, n);
    if (loop->poller)
        loop->poller->perform(loop->poller);
    dispatch_timers(loop);
}

static void on_deadline(struct sr_timer *t)
{
    struct sr_op *op = sr_container_of(t, struct sr_op, deadline);
    struct sr_err err;

    op->abort(op);
    sr_err_set(&err, SR_TIMEOUT, "no answer in time");
    sr_op_finish(op, &err);
}

void sr_op_start(struct sr_loop *loop, struct sr_op *op, int64_t timeout_ms,
                 void (*abort_fn)(struct sr_op *op))
{
    op->state = SR_OP_PENDING;
    op->err.code = SR_OK;
    op->loop = loop;
    op->abort = abort_fn;
    op->deadline.on_due = on_deadline;
    if (timeout_ms >= 0)
        sr_timer_add(loop, &op->deadline, timeout_ms);
}

void sr_op_finish(struct sr_op *op, const struct sr_err *err)
{
    if (op->state != SR_OP_PENDING)
        return;
    sr_timer_remove(&op->deadline);
    if (err)
        op->err = *err;
    op->state = SR_OP_READY;
    op->next = NULL;
    op->link = op->loop->ready_tail;
    *op->loop->ready_tail = op;
    op->loop->ready_tail = &op->next;
}

static void unqueue(struct sr_op *op)
{
    struct sr_loop *loop = op->loop;

    *op->link = op->next;
    if (op->next)
        op->next->link = op->link;
    else
        loop->ready_tail = op->link;
    op->link = NULL;
    op->next = NULL;
}

void sr_op_drop(struct sr_op *op)
{
    if (op->state == SR_OP_PENDING) {
        sr_timer_remove(&op->deadline);
        op->abort(op);
    } else if (op->state == SR_OP_READY && op->link) {
        unqueue(op);
    }
    op->state = SR_OP_SPENT;
}

struct sr_op *sr_loop_take_ready(struct sr_loop *loop)
{
    struct sr_op *op = loop->ready;

    if (op)
        unqueue(op);
    return op;
}
