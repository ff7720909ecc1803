/* lua_box.c - a box: the attach stream of one sandbox and the talk with its agent. */
#include <lauxlib.h>
#include <lua.h>
#include <string.h>

#include "lua_bind.h"
#include "lua_docker.h"
#include "session.h"
#include "spec.h"
#include "task.h"

#define BOX_MT "sr.box"
#define WAIT_MT "sr.box.wait"

struct box_wait;

struct box {
    struct sr_lua_op w;        /* waits for the stream to open */
    struct sr_stream stream;
    struct sr_session session;
    struct box_wait *waiter;
    bool ended;                /* the stream is over */
    struct sr_err err;         /* why, when it ended before the agent's report */
};

struct box_wait {
    struct sr_lua_op w;
    struct sr_op op;
    struct box *box;
    enum sr_session_state until; /* READY or DONE */
};

static bool reached(const struct box *b, enum sr_session_state until)
{
    if (b->session.state == SR_SESSION_DONE || b->ended)
        return true;
    return until == SR_SESSION_READY && b->session.state == SR_SESSION_READY;
}

static void notify(struct box *b)
{
    struct box_wait *w = b->waiter;

    if (!w || !reached(b, w->until))
        return;
    b->waiter = NULL;
    w->box = NULL;
    sr_op_finish(&w->op, NULL);
}

/* Moves what the session wants to say into the stream. */
static void pump(struct box *b)
{
    if (!b->session.out.len || b->ended)
        return;
    sr_buf_append(&b->stream.out, b->session.out.data, b->session.out.len);
    sr_buf_consume(&b->session.out, b->session.out.len);
    if (sr_buf_ok(&b->stream.out)) {
        sr_stream_flush(&b->stream);
        return;
    }
    sr_stream_close(&b->stream); /* half an order is worse than none */
    sr_err_set(&b->err, SR_NO_MEMORY, "no memory for what goes to the sandbox");
    b->ended = true;
    notify(b);
}

static void on_bytes(struct sr_stream *s, const void *data, size_t n, const struct sr_err *err)
{
    struct box *b = sr_container_of(s, struct box, stream);

    if (n && sr_session_feed(&b->session, data, n, &b->err) < 0) {
        sr_stream_close(s);
        b->ended = true;
    } else if (!n) {
        b->ended = true;
        if (err)
            b->err = *err;
        else
            sr_err_set(&b->err, SR_UNAVAILABLE, "the sandbox ended without a report");
    }
    notify(b);
}

static struct box *check_box(lua_State *L)
{
    return luaL_checkudata(L, 1, BOX_MT);
}

static int box_close(lua_State *L)
{
    struct box *b = check_box(L);

    sr_stream_close(&b->stream);
    if (!b->ended)
        sr_err_set(&b->err, SR_CANCELLED, "the connection to the sandbox was closed");
    b->ended = true;
    notify(b);
    return 0;
}

static int box_gc(lua_State *L)
{
    struct box *b = check_box(L);

    if (b->waiter)
        b->waiter->box = NULL;
    b->waiter = NULL;
    sr_op_drop(&b->stream.op);
    sr_stream_close(&b->stream);
    sr_session_clear(&b->session);
    b->ended = true;
    return 0;
}

static int push_box(struct sr_lua_op *w, lua_State *L)
{
    (void)w; /* the box is on top of the stack */
    (void)L;
    return 1;
}

int sr_lua_docker_attach(lua_State *L)
{
    struct sr_docker *d = sr_lua_check_docker(L, 1);
    const char *id = luaL_checkstring(L, 2);
    lua_Integer timeout = luaL_checkinteger(L, 3);
    struct box *b = lua_newuserdatauv(L, sizeof *b, 1);
    struct sr_buf path = {0};
    struct sr_http *http;
    struct sr_err err;
    int rc = -1;

    memset(b, 0, sizeof *b);
    sr_session_init(&b->session);
    luaL_setmetatable(L, BOX_MT);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, 1);
    b->stream.on_bytes = on_bytes;
    b->stream.on_refused = sr_docker_refused;
    b->w = (struct sr_lua_op){&b->stream.op, push_box};
    sr_buf_puts(&path, d->prefix);
    sr_buf_puts(&path, "/containers/");
    sr_docker_put_url(&path, id);
    sr_buf_puts(&path, "/attach?stream=1&stdin=1&stdout=1&stderr=1");
    sr_buf_putc(&path, '\0');
    if (!sr_buf_ok(&path))
        sr_err_set(&err, SR_NO_MEMORY, "out of memory");
    else if (sr_vm_http(sr_vm_of(L), &http, &err) == 0)
        rc = sr_stream_start(http, &d->target, &b->stream, path.data, timeout, &err);
    sr_buf_clear(&path);
    return rc < 0 ? sr_lua_push_err(L, &err) : sr_await(L, &b->w);
}

static void wait_abort(struct sr_op *op)
{
    struct box_wait *w = sr_container_of(op, struct box_wait, op);

    if (w->box)
        w->box->waiter = NULL;
    w->box = NULL;
}

static int wait_gc(lua_State *L)
{
    struct box_wait *w = lua_touserdata(L, 1);

    sr_op_drop(&w->op);
    return 0;
}

static int push_waited(struct sr_lua_op *w, lua_State *L)
{
    struct box *b = check_box(L);

    (void)w;
    if (b->ended && b->session.state != SR_SESSION_DONE)
        return sr_lua_push_err(L, &b->err);
    lua_pushboolean(L, 1);
    return 1;
}

/* wait("ready" | "done", timeout_ms) -> true | nil, err. timeout: still going on;
 * other codes: the stream ended before. One waiter at a time. */
static int box_wait_m(lua_State *L)
{
    static const char *const names[] = {"ready", "done", NULL};
    static const enum sr_session_state states[] = {SR_SESSION_READY, SR_SESSION_DONE};
    struct box *b = check_box(L);
    enum sr_session_state until = states[luaL_checkoption(L, 2, NULL, names)];
    lua_Integer timeout = luaL_checkinteger(L, 3);
    struct box_wait *w;

    if (reached(b, until))
        return push_waited(NULL, L);
    if (b->waiter)
        return luaL_error(L, "somebody waits for this box already");
    w = lua_newuserdatauv(L, sizeof *w, 0);
    memset(w, 0, sizeof *w);
    luaL_setmetatable(L, WAIT_MT);
    w->w = (struct sr_lua_op){&w->op, push_waited};
    w->box = b;
    w->until = until;
    b->waiter = w;
    sr_op_start(&sr_vm_of(L)->loop, &w->op, timeout, wait_abort);
    return sr_await(L, &w->w);
}

/* put_file(path, mode, data) -> true | nil, err. path is relative to the scratch folder. */
static int box_put_file(lua_State *L)
{
    struct box *b = check_box(L);
    const char *path = luaL_checkstring(L, 2);
    lua_Integer mode = luaL_checkinteger(L, 3);
    size_t n;
    const char *data = luaL_checklstring(L, 4, &n);
    struct sr_err err;

    if (sr_session_put_file(&b->session, path, (uint32_t)mode, data, n, &err) < 0)
        return sr_lua_push_err(L, &err);
    pump(b);
    lua_pushboolean(L, 1);
    return 1;
}

static lua_Integer int_field(lua_State *L, const char *name, lua_Integer fallback)
{
    lua_Integer v;

    lua_getfield(L, 2, name);
    v = luaL_optinteger(L, -1, fallback);
    lua_pop(L, 1);
    return v;
}

/* start{argv={...}, env={"NAME=value", ...}, cwd=, uid=, wall_ms=, cpu_seconds=,
 * stdout_cap=, stderr_cap=, stdin=bool, want={paths}, want_max=bytes, held=path} ->
 * true | nil, err. With `held` the program waits for that script: put_file(), then go(). */
static int box_start(lua_State *L)
{
    struct box *b = check_box(L);
    struct sr_order order = {0};
    struct sr_err err;

    luaL_checktype(L, 2, LUA_TTABLE);
    order.argv = sr_lua_list_field(L, 2, "argv");
    order.env = sr_lua_list_field(L, 2, "env");
    order.want = sr_lua_list_field(L, 2, "want");
    order.uid = (uint32_t)int_field(L, "uid", 0);
    order.wall_ms = (uint32_t)int_field(L, "wall_ms", 0);
    order.cpu_seconds = (uint32_t)int_field(L, "cpu_seconds", 0);
    order.out_cap = (uint32_t)int_field(L, "stdout_cap", 0);
    order.err_cap = (uint32_t)int_field(L, "stderr_cap", 0);
    order.want_max = (uint64_t)int_field(L, "want_max", 0);
    lua_getfield(L, 2, "stdin");
    order.stdin_pipe = lua_toboolean(L, -1);
    lua_getfield(L, 2, "cwd");
    order.cwd = luaL_optstring(L, -1, SR_SCRATCH);
    lua_getfield(L, 2, "held");
    order.held = luaL_optstring(L, -1, NULL);
    if (sr_session_start(&b->session, &order, &err) < 0)
        return sr_lua_push_err(L, &err);
    pump(b);
    lua_pushboolean(L, 1);
    return 1;
}

static uint32_t check_u32(lua_State *L, int arg)
{
    lua_Integer v = luaL_checkinteger(L, arg);

    luaL_argcheck(L, v >= 0 && v <= UINT32_MAX, arg, "out of range");
    return (uint32_t)v;
}

/* go(wall_ms, stdout_cap, stderr_cap) -> true | nil, err: the run of a held start begins.
 * "invalid": nothing waits (any more). */
static int box_go(lua_State *L)
{
    struct box *b = check_box(L);
    uint32_t wall_ms = check_u32(L, 2), out_cap = check_u32(L, 3), err_cap = check_u32(L, 4);
    struct sr_err err;

    if (sr_session_go(&b->session, wall_ms, out_cap, err_cap, &err) < 0)
        return sr_lua_push_err(L, &err);
    pump(b);
    lua_pushboolean(L, 1);
    return 1;
}

/* kill(): asks the agent to end the program; its report follows. */
static int box_kill(lua_State *L)
{
    struct box *b = check_box(L);

    sr_session_kill(&b->session);
    pump(b);
    return 0;
}

static void set_number(lua_State *L, const char *name, lua_Number v)
{
    lua_pushnumber(L, v);
    lua_setfield(L, -2, name);
}

static void set_integer(lua_State *L, const char *name, uint64_t v)
{
    lua_pushinteger(L, (lua_Integer)v);
    lua_setfield(L, -2, name);
}

/* report() -> {finish="exit"|"signal"|"wall"|"killed", code=, oom=, held=, wall_ms=,
 * cpu_ms=, peak_bytes=, stdout_bytes=, stderr_bytes=} | nil, err: not done yet,
 * or the program could not be started (code "invalid", the agent's words). held: it
 * ended before the go() that may have been sent, nothing of its script has run. */
static int box_report(lua_State *L)
{
    static const char *const ends[] = {"exit", "signal", "wall", "killed"};
    struct box *b = check_box(L);
    const struct sr_report *r = &b->session.report;
    struct sr_err err;

    if (b->session.state != SR_SESSION_DONE)
        sr_err_set(&err, SR_CONFLICT, "the run is not over");
    else if (b->session.failure)
        sr_err_set(&err, SR_INVALID, "%s", b->session.failure);
    else
        err.code = SR_OK;
    if (err.code != SR_OK)
        return sr_lua_push_err(L, &err);
    lua_createtable(L, 0, 10);
    lua_pushstring(L, ends[r->end]);
    lua_setfield(L, -2, "finish");
    lua_pushboolean(L, r->oom);
    lua_setfield(L, -2, "oom");
    lua_pushboolean(L, r->held);
    lua_setfield(L, -2, "held");
    set_integer(L, "code", r->code);
    set_number(L, "wall_ms", (lua_Number)r->wall_us / 1000);
    set_number(L, "cpu_ms", (lua_Number)r->cpu_us / 1000);
    set_integer(L, "peak_bytes", r->peak_bytes);
    set_integer(L, "stdout_bytes", r->out_bytes);
    set_integer(L, "stderr_bytes", r->err_bytes);
    return 1;
}

static void push_buf(lua_State *L, const struct sr_buf *b)
{
    lua_pushlstring(L, b->data ? b->data : "", b->len);
}

/* output() -> stdout, stderr: raw bytes so far, at most the caps. */
static int box_output(lua_State *L)
{
    struct box *b = check_box(L);

    push_buf(L, &b->session.stdout_);
    push_buf(L, &b->session.stderr_);
    return 2;
}

/* artifact(i) -> data | nil, "absent" | "not_regular" | "too_large" | "incomplete". */
static int box_artifact(lua_State *L)
{
    static const char *const reasons[] = {"absent", "not_regular", "too_large"};
    struct box *b = check_box(L);
    lua_Integer i = luaL_checkinteger(L, 2);
    const struct sr_artifact *a;

    luaL_argcheck(L, i >= 1 && (size_t)i <= b->session.n_artifacts, 2, "no such artifact");
    a = &b->session.artifacts[i - 1];
    if (a->missing < 0 && a->data.len == a->size) {
        push_buf(L, &a->data);
        return 1;
    }
    luaL_pushfail(L);
    lua_pushstring(L, a->missing >= 0 && a->missing < 3 ? reasons[a->missing] : "incomplete");
    return 2;
}

/* state() -> "opening" | "ready" | "held" | "running" | "done" | "broken" as in
 * session.h, or "ended": the stream is over. */
static int box_state(lua_State *L)
{
    static const char *const names[] = {
        [SR_SESSION_OPENING] = "opening", [SR_SESSION_READY] = "ready",
        [SR_SESSION_HELD] = "held",       [SR_SESSION_RUNNING] = "running",
        [SR_SESSION_DONE] = "done",       [SR_SESSION_BROKEN] = "broken"};
    const struct box *b = check_box(L);

    lua_pushstring(L, b->ended ? "ended" : names[b->session.state]);
    return 1;
}

/* words() -> what the runtime or the agent said outside the protocol. */
static int box_words(lua_State *L)
{
    lua_pushstring(L, check_box(L)->session.words);
    return 1;
}

void sr_lua_open_box(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"wait", box_wait_m},     {"put_file", box_put_file}, {"start", box_start},
        {"go", box_go},           {"kill", box_kill},         {"report", box_report},
        {"output", box_output},   {"artifact", box_artifact}, {"state", box_state},
        {"words", box_words},     {"close", box_close},       {NULL, NULL}};

    luaL_newmetatable(L, WAIT_MT);
    lua_pushcfunction(L, wait_gc);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    luaL_newmetatable(L, BOX_MT);
    lua_pushcfunction(L, box_gc);
    lua_setfield(L, -2, "__gc");
    lua_pushcfunction(L, box_close);
    lua_setfield(L, -2, "__close");
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
}
