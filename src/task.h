/* task.h - Lua tasks: one coroutine each, resumed only by the loop.
 *
 * A task's body runs under a protected call inside its coroutine, so that a
 * __close handler may await while an error unwinds. Cancelling resumes the
 * task with a thrown error whose code is "cancelled", once; what the body
 * awaits afterwards, in its cleanup, works as usual. A task that computes for
 * two seconds without waiting is ended by a thrown error; its __close handlers
 * then have a tenth of a second at a time. */
#ifndef SR_TASK_H
#define SR_TASK_H

#include <lua.h>
#include <stdbool.h>
#include <stdint.h>

#include "loop.h"

struct sr_http;
struct sr_task;

/* One per Lua state. Owned by the registry; its finaliser runs last. */
struct sr_vm {
    lua_State *L;         /* main thread */
    struct sr_loop loop;
    struct sr_http *http; /* NULL until an engine is opened */
    struct sr_task *running; /* NULL between tasks */
    int64_t slice_end_ms; /* CPU time; a task that runs longer without waiting is stopped */
    unsigned tasks;       /* alive */
};

/* Makes (once) the state of this Lua universe and returns it. May throw. */
struct sr_vm *sr_vm_open(lua_State *L);

/* The vm of any thread of an opened universe. */
struct sr_vm *sr_vm_of(lua_State *L);

/* The client, opened on first use: 0 or -1. */
int sr_vm_http(struct sr_vm *vm, struct sr_http **out, struct sr_err *err);

/* Pops a function and n arguments and makes a task of them, to be started by
 * the loop. Leaves the task's userdata on the stack. May throw. */
struct sr_task *sr_task_spawn(lua_State *L, int n);

/* Cancels the task (no-op when it has ended). reason: one line, copied. */
void sr_task_cancel(struct sr_task *task, const char *reason);

/* Whether the body has ended, in whatever way. */
bool sr_task_done(const struct sr_task *task);

/* The task at this argument; throws when it is something else. */
struct sr_task *sr_task_check(lua_State *L, int arg);

/* One turn of the loop, then resumes every task whose operation is ready. */
void sr_vm_turn(struct sr_vm *vm, int max_wait_ms);

/* An operation as Lua sees it. push puts the results of a success on the stack
 * and returns their number; the stack is as it was at the await. */
struct sr_lua_op {
    struct sr_op *op;
    int (*push)(struct sr_lua_op *w, lua_State *L);
};

/* Yields until w's operation (PENDING or READY) has finished; w and its op must
 * lie in a userdata on L's stack. Use as `return sr_await(L, w)`. Throws, with the
 * operation dropped, outside a task, below a C function that cannot wait (sort,
 * gsub), and when the task was cancelled. Results: those of push, or nil, err. */
int sr_await(lua_State *L, struct sr_lua_op *w);

#endif
