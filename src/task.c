#include "task.h"

#include <lauxlib.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "http.h"
#include "log.h"
#include "lua_bind.h"

#define VM_KEY "sr.vm"
#define TASK_MT "sr.task"
#define SLICE_MS 2000    /* of CPU time */
#define GRACE_MS 100     /* after an overrun: what __close handlers get */
#define GRACES 5         /* overruns after which not even they go on */
#define HOOK_COUNT 100000

/* What a thread's extra space points to. Threads made by hand inherit the main
 * thread's (no task), so an await there fails with a plain message. */
struct ctx {
    struct sr_vm *vm;
    struct sr_task *task;
};

struct vm_ud {
    struct sr_vm vm;
    struct ctx main_ctx;
};

struct sr_task {
    struct ctx ctx;
    lua_State *co;
    struct sr_op start;    /* ready when the task is to run for the first time */
    struct sr_op *waiting;
    bool done, cancel;
    int nargs;
    int overruns;          /* slices, and graces, that it ran out of */
    char reason[128];
};

static struct ctx **slot(lua_State *L)
{
    return (struct ctx **)lua_getextraspace(L);
}

static void make_task_mt(lua_State *L);

static int vm_gc(lua_State *L)
{
    struct vm_ud *ud = lua_touserdata(L, 1);

    sr_http_close(ud->vm.http);
    ud->vm.http = NULL;
    sr_loop_clear(&ud->vm.loop);
    return 0;
}

struct sr_vm *sr_vm_open(lua_State *L)
{
    struct vm_ud *ud;
    lua_State *main_thread;

    if (lua_getfield(L, LUA_REGISTRYINDEX, VM_KEY) == LUA_TUSERDATA) {
        ud = lua_touserdata(L, -1);
        lua_pop(L, 1);
        return &ud->vm;
    }
    lua_pop(L, 1);
    make_task_mt(L);
    lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_MAINTHREAD);
    main_thread = lua_tothread(L, -1);
    lua_pop(L, 1);
    ud = lua_newuserdatauv(L, sizeof *ud, 0);
    memset(ud, 0, sizeof *ud);
    sr_loop_init(&ud->vm.loop);
    ud->vm.L = main_thread;
    ud->main_ctx.vm = &ud->vm;
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, vm_gc);
    lua_setfield(L, -2, "__gc");
    lua_setmetatable(L, -2);
    lua_setfield(L, LUA_REGISTRYINDEX, VM_KEY);
    *slot(main_thread) = &ud->main_ctx;
    *slot(L) = &ud->main_ctx;
    return &ud->vm;
}

struct sr_vm *sr_vm_of(lua_State *L)
{
    return (*slot(L))->vm;
}

int sr_vm_http(struct sr_vm *vm, struct sr_http **out, struct sr_err *err)
{
    if (!vm->http && sr_http_open(&vm->http, &vm->loop, err) < 0)
        return -1;
    *out = vm->http;
    return 0;
}

/* CPU time: who was stopped, or waits for a busy machine, has not run away. */
static int64_t cpu_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Runs in the task's coroutine or in one that the task made. */
static void on_slice(lua_State *L, lua_Debug *ar)
{
    struct sr_vm *vm = sr_vm_of(L);
    int64_t now = cpu_ms();

    (void)ar;
    if (now < vm->slice_end_ms || !vm->running)
        return;
    if (vm->running->overruns < GRACES) {
        /* What the body holds is given back by its __close handlers, which need a moment. */
        vm->running->overruns++;
        vm->slice_end_ms = now + GRACE_MS;
    } else {
        /* From here on every line throws, so that pcall cannot swallow it. */
        lua_sethook(L, on_slice, LUA_MASKLINE | LUA_MASKCOUNT, 1);
    }
    luaL_error(L, "script ran for more than %d ms without waiting", SLICE_MS);
}

static bool is_cancelled(lua_State *L, int idx)
{
    bool yes = false;

    if (lua_istable(L, idx)) {
        lua_getfield(L, idx, "code");
        yes = lua_isstring(L, -1) && !strcmp(lua_tostring(L, -1), "cancelled");
        lua_pop(L, 1);
    }
    return yes;
}

static int on_body_error(lua_State *L)
{
    if (lua_type(L, 1) == LUA_TSTRING)
        luaL_traceback(L, L, lua_tostring(L, 1), 1);
    return 1;
}

static void log_failure(const char *why)
{
    char line[2048];
    int n = snprintf(line, sizeof line, "a task failed: %s", why);

    sr_log(line, n < (int)sizeof line ? (size_t)n : sizeof line - 1);
}

static int body_done_k(lua_State *L, int status, lua_KContext kctx)
{
    (void)kctx;
    if (status != LUA_OK && status != LUA_YIELD && !is_cancelled(L, -1)) {
        luaL_tolstring(L, -1, NULL);
        log_failure(lua_tostring(L, -1));
    }
    return 0;
}

static int body(lua_State *L)
{
    int n = lua_gettop(L) - 1;

    lua_pushcfunction(L, on_body_error);
    lua_insert(L, 1);
    return body_done_k(L, lua_pcallk(L, n, 0, 1, 0, body_done_k), 0);
}

static void start_abort(struct sr_op *op)
{
    (void)op;
}

static int task_gc(lua_State *L)
{
    struct sr_task *task = luaL_checkudata(L, 1, TASK_MT);

    sr_op_drop(&task->start);
    if (!task->done && task->waiting)
        sr_op_drop(task->waiting);
    task->waiting = NULL;
    task->done = true;
    return 0;
}

static int task_cancel_m(lua_State *L)
{
    sr_task_cancel(sr_task_check(L, 1), luaL_optstring(L, 2, "cancelled"));
    return 0;
}

static int task_done_m(lua_State *L)
{
    lua_pushboolean(L, sr_task_done(sr_task_check(L, 1)));
    return 1;
}

static void make_task_mt(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"cancel", task_cancel_m}, {"done", task_done_m}, {NULL, NULL}};

    luaL_newmetatable(L, TASK_MT);
    lua_pushcfunction(L, task_gc);
    lua_setfield(L, -2, "__gc");
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, false);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
}

struct sr_task *sr_task_check(lua_State *L, int arg)
{
    return luaL_checkudata(L, arg, TASK_MT);
}

/* The registry keeps a task alive until it has ended: registry[task] = userdata. */
static void anchor(lua_State *L, struct sr_task *task, bool on)
{
    if (on)
        lua_pushvalue(L, -1);
    else
        lua_pushnil(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, task);
}

struct sr_task *sr_task_spawn(lua_State *L, int n)
{
    struct sr_vm *vm = sr_vm_of(L);
    struct sr_task *task = lua_newuserdatauv(L, sizeof *task, 1);

    memset(task, 0, sizeof *task);
    luaL_setmetatable(L, TASK_MT);
    task->ctx = (struct ctx){vm, task};
    task->nargs = n + 1;
    task->co = lua_newthread(L);
    lua_setiuservalue(L, -2, 1);
    if (!lua_checkstack(task->co, n + 2)) /* body, fn, args */
        luaL_error(L, "too many arguments for a task");
    *slot(task->co) = &task->ctx;
    lua_sethook(task->co, on_slice, LUA_MASKCOUNT, HOOK_COUNT);
    anchor(L, task, true);
    lua_insert(L, -(n + 2)); /* -- task fn args */
    lua_pushcfunction(task->co, body);
    lua_xmove(L, task->co, n + 1);
    vm->tasks++;
    sr_op_start(&vm->loop, &task->start, -1, start_abort);
    task->start.waiter = task;
    task->waiting = &task->start;
    sr_op_finish(&task->start, NULL);
    return task;
}

bool sr_task_done(const struct sr_task *task)
{
    return task->done;
}

void sr_task_cancel(struct sr_task *task, const char *reason)
{
    struct sr_err err;

    if (task->done || task->cancel)
        return;
    task->cancel = true;
    snprintf(task->reason, sizeof task->reason, "%s", reason);
    if (task->waiting && task->waiting->state == SR_OP_PENDING) {
        struct sr_op *op = task->waiting;

        op->abort(op);
        sr_err_set(&err, SR_CANCELLED, "%s", reason);
        sr_op_finish(op, &err);
    }
}

static void finish(struct sr_task *task)
{
    struct sr_vm *vm = task->ctx.vm;

    task->done = true;
    vm->tasks--;
    anchor(vm->L, task, false);
}

static void resume(struct sr_task *task)
{
    struct sr_vm *vm = task->ctx.vm;
    int n = task->nargs, nres = 0, status;

    task->nargs = 0;
    task->waiting = NULL;
    vm->running = task;
    vm->slice_end_ms = cpu_ms() + (task->overruns ? GRACE_MS : SLICE_MS);
    lua_sethook(task->co, on_slice, LUA_MASKCOUNT, HOOK_COUNT);
    status = lua_resume(task->co, vm->L, n, &nres);
    vm->running = NULL;
    if (status == LUA_YIELD && task->waiting)
        return;
    if (status == LUA_YIELD)
        log_failure("it called coroutine.yield");
    else if (status != LUA_OK)
        log_failure(lua_isstring(task->co, -1) ? lua_tostring(task->co, -1) : "unknown error");
    finish(task);
}

void sr_vm_turn(struct sr_vm *vm, int max_wait_ms)
{
    struct sr_op *op;

    sr_loop_turn(&vm->loop, max_wait_ms);
    while ((op = sr_loop_take_ready(&vm->loop))) {
        struct sr_task *task = op->waiter;

        op->state = SR_OP_SPENT;
        op->waiter = NULL;
        if (task && task->waiting == op)
            resume(task);
    }
}

static int throw_cancelled(lua_State *L, struct sr_task *task)
{
    struct sr_err err;

    task->cancel = false;
    sr_err_set(&err, SR_CANCELLED, "%s", task->reason);
    sr_lua_push_err(L, &err);
    return lua_error(L);
}

static int await_done_k(lua_State *L, int status, lua_KContext kctx)
{
    struct sr_lua_op *w = (struct sr_lua_op *)kctx;
    struct sr_task *task = (*slot(L))->task;

    (void)status;
    if (task->cancel)
        return throw_cancelled(L, task);
    if (w->op->err.code != SR_OK)
        return sr_lua_push_err(L, &w->op->err);
    return w->push(w, L);
}

int sr_await(lua_State *L, struct sr_lua_op *w)
{
    struct sr_task *task = (*slot(L))->task;

    if (!task || task->co != L) {
        sr_op_drop(w->op);
        return luaL_error(L, "async call outside a task (use loop.spawn or loop.run)");
    }
    if (!lua_isyieldable(L)) {
        sr_op_drop(w->op);
        return luaL_error(L, "async call where a coroutine cannot wait "
                          "(sort, gsub, error handler)");
    }
    if (task->cancel) {
        sr_op_drop(w->op);
        return throw_cancelled(L, task);
    }
    w->op->waiter = task;
    task->waiting = w->op;
    return lua_yieldk(L, 0, (lua_KContext)w, await_done_k);
}
