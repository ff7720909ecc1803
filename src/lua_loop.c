/* lua_loop.c - core.loop: tasks, sleep, events, signals, clocks. */
#include <errno.h>
#include <lauxlib.h>
#include <lua.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "lua_bind.h"
#include "task.h"

#define EVENT_MT "sr.event"
#define OP_MT "sr.op"
#define SIGNAL_MT "sr.signals"

static int push_true(struct sr_lua_op *w, lua_State *L)
{
    (void)w;
    lua_pushboolean(L, true);
    return 1;
}

/* What the operations of this file have in common. */
struct base_op {
    struct sr_lua_op w;
    struct sr_op op;
};

static int op_gc(lua_State *L)
{
    struct base_op *b = lua_touserdata(L, 1);

    sr_op_drop(&b->op);
    return 0;
}

/* A userdata of `size` bytes that begins with a base_op, zeroed, with a
 * finaliser that drops the operation. */
static void *new_op(lua_State *L, size_t size, int (*push)(struct sr_lua_op *, lua_State *))
{
    struct base_op *w = lua_newuserdatauv(L, size, 1);

    memset(w, 0, size);
    w->w = (struct sr_lua_op){&w->op, push};
    luaL_setmetatable(L, OP_MT);
    return w;
}

/* spawn(fn, ...) -> task. fn(...) starts in a later turn of the loop; what it
 * returns is dropped, what it throws is logged (but for "cancelled").
 * task:cancel([reason]) has its wait throw, once; task:done() -> boolean. */
static int loop_spawn(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    sr_task_spawn(L, lua_gettop(L) - 1);
    return 1;
}

struct sleep_op {
    struct base_op b;
    struct sr_timer timer;
};

static void on_slept(struct sr_timer *t)
{
    struct sleep_op *s = sr_container_of(t, struct sleep_op, timer);

    sr_op_finish(&s->b.op, NULL);
}

static void sleep_abort(struct sr_op *op)
{
    sr_timer_remove(&sr_container_of(op, struct sleep_op, b.op)->timer);
}

/* sleep(ms) -> true, no earlier than ms (whole, >= 0) milliseconds from now. */
static int loop_sleep(lua_State *L)
{
    lua_Number ms = luaL_checknumber(L, 1);
    struct sr_vm *vm = sr_vm_of(L);
    struct sleep_op *s;

    luaL_argcheck(L, ms >= 0 && ms < 1e12, 1, "milliseconds >= 0 expected");
    s = new_op(L, sizeof *s, push_true);
    s->timer.on_due = on_slept;
    sr_op_start(&vm->loop, &s->b.op, -1, sleep_abort);
    sr_timer_add(&vm->loop, &s->timer, (int64_t)ms);
    return sr_await(L, &s->b.w);
}

struct event_wait {
    struct base_op b;
    struct event_wait *next, **link;
};

struct event {
    struct event_wait *waiters;
    bool set;
};

static void event_abort(struct sr_op *op)
{
    struct event_wait *e = sr_container_of(op, struct event_wait, b.op);

    if (!e->link)
        return;
    *e->link = e->next;
    if (e->next)
        e->next->link = e->link;
    e->link = NULL;
}

/* The event (argument 1 of wait) is the op's user value: its value is read
 * when the waiter runs, and it cannot be collected before. */
static int push_event(struct sr_lua_op *w, lua_State *L)
{
    (void)w;
    lua_getiuservalue(L, 1, 1);
    return 1;
}

/* event:wait([timeout_ms]) -> value given to set | nil, err (timeout). */
static int event_wait(lua_State *L)
{
    struct event *ev = luaL_checkudata(L, 1, EVENT_MT);
    lua_Number timeout = luaL_optnumber(L, 2, -1);
    struct event_wait *e;

    luaL_argcheck(L, timeout > -1e12 && timeout < 1e12, 2, "milliseconds expected");
    if (ev->set) {
        lua_getiuservalue(L, 1, 1);
        return 1;
    }
    e = new_op(L, sizeof *e, push_event);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, 1);
    e->next = ev->waiters;
    e->link = &ev->waiters;
    if (e->next)
        e->next->link = &e->next;
    ev->waiters = e;
    sr_op_start(&sr_vm_of(L)->loop, &e->b.op, (int64_t)timeout, event_abort);
    return sr_await(L, &e->b.w);
}

/* event:set([value = true]): wakes every waiter; the first set wins. */
static int event_set(lua_State *L)
{
    struct event *ev = luaL_checkudata(L, 1, EVENT_MT);

    if (ev->set)
        return 0;
    lua_settop(L, 2);
    if (lua_isnil(L, 2)) {
        lua_pop(L, 1);
        lua_pushboolean(L, true);
    }
    lua_setiuservalue(L, 1, 1);
    ev->set = true;
    while (ev->waiters) {
        struct event_wait *e = ev->waiters;

        event_abort(&e->b.op);
        sr_op_finish(&e->b.op, NULL);
    }
    return 0;
}

/* event:is_set() -> boolean. */
static int event_is_set(lua_State *L)
{
    struct event *ev = luaL_checkudata(L, 1, EVENT_MT);

    lua_pushboolean(L, ev->set);
    return 1;
}

/* event() -> event: something that happens once and that tasks wait for. */
static int loop_event(lua_State *L)
{
    struct event *ev = lua_newuserdatauv(L, sizeof *ev, 1);

    memset(ev, 0, sizeof *ev);
    luaL_setmetatable(L, EVENT_MT);
    return 1;
}

struct signal_op;

struct signals {
    struct sr_watch watch;
    struct signal_op *waiter;
    int fd;
};

struct signal_op {
    struct base_op b;
    struct signals *signals;
    int signo;
};

static void signal_abort(struct sr_op *op)
{
    struct signal_op *s = sr_container_of(op, struct signal_op, b.op);

    sr_watch_remove(&s->signals->watch);
    s->signals->waiter = NULL;
}

static int push_signal(struct sr_lua_op *w, lua_State *L)
{
    lua_pushinteger(L, ((struct signal_op *)w)->signo);
    return 1;
}

static void on_signal(struct sr_watch *watch, short revents)
{
    struct signals *sig = (struct signals *)watch;
    struct signal_op *s = sig->waiter;
    struct signalfd_siginfo info;

    (void)revents;
    if (read(sig->fd, &info, sizeof info) != sizeof info || !s)
        return;
    s->signo = (int)info.ssi_signo;
    signal_abort(&s->b.op);
    sr_op_finish(&s->b.op, NULL);
}

static int signals_gc(lua_State *L)
{
    struct signals *sig = lua_touserdata(L, 1);

    sr_watch_remove(&sig->watch);
    if (sig->fd >= 0)
        close(sig->fd);
    sig->fd = -1;
    return 0;
}

/* The one signalfd of the process, made and blocked on first use. */
static struct signals *get_signals(lua_State *L)
{
    struct signals *sig;
    sigset_t set;

    if (lua_getfield(L, LUA_REGISTRYINDEX, SIGNAL_MT) == LUA_TUSERDATA)
        return lua_touserdata(L, -1);
    lua_pop(L, 1);
    sig = lua_newuserdatauv(L, sizeof *sig, 0);
    memset(sig, 0, sizeof *sig);
    sig->fd = -1;
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, signals_gc);
    lua_setfield(L, -2, "__gc");
    lua_setmetatable(L, -2);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    sig->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (sig->fd < 0)
        luaL_error(L, "signalfd: %s", strerror(errno));
    sig->watch = (struct sr_watch){.fd = sig->fd, .events = POLLIN, .on_ready = on_signal};
    lua_pushvalue(L, -1);
    lua_setfield(L, LUA_REGISTRYINDEX, SIGNAL_MT);
    return sig;
}

/* wait_signal() -> number: waits for SIGTERM, SIGINT or SIGHUP, which from the
 * first call on no longer end the process. One waiter at a time. */
static int loop_wait_signal(lua_State *L)
{
    struct sr_vm *vm = sr_vm_of(L);
    struct signals *sig = get_signals(L);
    struct signal_op *s;

    if (sig->waiter)
        return luaL_error(L, "somebody waits for signals already");
    s = new_op(L, sizeof *s, push_signal);
    s->signals = sig;
    sig->waiter = s;
    sr_watch_add(&vm->loop, &sig->watch);
    sr_op_start(&vm->loop, &s->b.op, -1, signal_abort);
    return sr_await(L, &s->b.w);
}

/* run(fn, ...): runs the loop until the task made of fn has ended. Only for the
 * main thread; other tasks that are still alive stay suspended. */
static int loop_run(lua_State *L)
{
    struct sr_vm *vm = sr_vm_of(L);
    struct sr_task *task;

    luaL_checktype(L, 1, LUA_TFUNCTION);
    if (vm->running)
        return luaL_error(L, "loop.run inside a task: the loop runs already (use loop.spawn)");
    task = sr_task_spawn(L, lua_gettop(L) - 1);
    while (!sr_task_done(task))
        sr_vm_turn(vm, -1);
    return 0;
}

/* now_ms() -> milliseconds (a float) of the monotonic clock. */
static int loop_now_ms(lua_State *L)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    lua_pushnumber(L, (lua_Number)ts.tv_sec * 1000 + (lua_Number)ts.tv_nsec / 1e6);
    return 1;
}

/* wall() -> Unix time in seconds (a float). */
static int loop_wall(lua_State *L)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    lua_pushnumber(L, (lua_Number)ts.tv_sec + (lua_Number)ts.tv_nsec / 1e9);
    return 1;
}

int sr_lua_open_loop(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"spawn", loop_spawn},       {"sleep", loop_sleep}, {"event", loop_event},
        {"wait_signal", loop_wait_signal}, {"run", loop_run}, {"now_ms", loop_now_ms},
        {"wall", loop_wall},         {NULL, NULL}};
    static const luaL_Reg event_methods[] = {
        {"wait", event_wait}, {"set", event_set}, {"is_set", event_is_set}, {NULL, NULL}};

    sr_vm_open(L);
    luaL_newmetatable(L, OP_MT);
    lua_pushcfunction(L, op_gc);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    luaL_newmetatable(L, EVENT_MT);
    luaL_newlib(L, event_methods);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, false);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
    luaL_newlib(L, functions);
    return 1;
}
