/* loop.h - one thread, one loop: descriptors, timers, and operations in flight.
 *
 * The loop waits with poll(2) until an HTTP client joins it; from then on with
 * the client's own wait (curl_multi_poll), which covers the client's sockets
 * too. Watches and timers are embedded in their owners' structs: the loop owns
 * no memory of theirs, and removing one that is not there is harmless.
 * Callbacks run inside sr_loop_turn and may add or remove watches and timers.
 * Lua never runs inside them: they mark operations as finished, and the task
 * scheduler resumes the waiting coroutines after the turn. */
#ifndef SR_LOOP_H
#define SR_LOOP_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

/* The struct of the given type that `ptr` is the given member of. */
#define sr_container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

struct sr_watch {
    int fd;
    short events; /* poll(2) bits; 0 still reports POLLERR and POLLHUP */
    void (*on_ready)(struct sr_watch *w, short revents);
    struct sr_watch *next, **link; /* link is NULL while not in a loop */
};

struct sr_timer {
    int64_t due_ms;
    void (*on_due)(struct sr_timer *t);
    struct sr_timer *next, **link;
};

/* What the HTTP client gives the loop when it joins. */
struct sr_poller {
    /* Like poll(2), but also waits for the client's own sockets. */
    int (*wait)(struct sr_poller *p, struct pollfd *fds, unsigned n, int timeout_ms);
    /* Moves the client's transfers on. */
    void (*perform)(struct sr_poller *p);
};

struct sr_loop {
    struct sr_watch *watches;
    struct sr_timer *timers; /* sorted by due_ms */
    struct sr_poller *poller;
    struct sr_op *ready;     /* finished operations, oldest first */
    struct sr_op **ready_tail;
    struct pollfd *fds;
    unsigned fds_cap;
};

/* clear takes out all watches and timers and drops what is ready; the loop is
 * then as after init. */
void sr_loop_init(struct sr_loop *loop);
void sr_loop_clear(struct sr_loop *loop);

/* CLOCK_MONOTONIC in milliseconds: no deadline moves when the wall clock does. */
int64_t sr_now_ms(void);

/* Watches w->fd for w->events from the next turn on. The events may be changed
 * while it is in the loop; one that is in already stays as it is. */
void sr_watch_add(struct sr_loop *loop, struct sr_watch *w);
void sr_watch_remove(struct sr_watch *w);

/* Calls t->on_due once, delay_ms from now; one that is in already is moved. */
void sr_timer_add(struct sr_loop *loop, struct sr_timer *t, int64_t delay_ms);
void sr_timer_remove(struct sr_timer *t);

/* Waits for the next event (at most max_wait_ms; -1 = as long as it takes) and
 * runs the callbacks it is for. Does not wait when an operation is ready. */
void sr_loop_turn(struct sr_loop *loop, int max_wait_ms);

/* An operation: asynchronous work that one task may wait for. */
enum sr_op_state { SR_OP_IDLE, SR_OP_PENDING, SR_OP_READY, SR_OP_SPENT };

struct sr_op {
    enum sr_op_state state;
    struct sr_err err;  /* err.code == SR_OK: it succeeded */
    struct sr_loop *loop;
    struct sr_timer deadline;
    void (*abort)(struct sr_op *op); /* stops the work; must not finish the op */
    void *waiter;                    /* the scheduler's */
    struct sr_op *next, **link;      /* ready queue */
};

/* Starts the clock of an operation whose work has begun. timeout_ms < 0: no
 * deadline. When the deadline passes, abort is called and the operation
 * finishes with SR_TIMEOUT. */
void sr_op_start(struct sr_loop *loop, struct sr_op *op, int64_t timeout_ms,
                 void (*abort_fn)(struct sr_op *op));

/* Marks a pending operation as finished; err NULL = success. A second call is
 * ignored: a late completion must not be able to corrupt anything. */
void sr_op_finish(struct sr_op *op, const struct sr_err *err);

/* Gives up on the operation: aborts the work when it is pending and takes it
 * out of the ready queue. Afterwards it is SPENT. */
void sr_op_drop(struct sr_op *op);

/* Takes the oldest finished operation out of the queue, or returns NULL. */
struct sr_op *sr_loop_take_ready(struct sr_loop *loop);

#endif
