/* lua_docker.c - core.docker: the engine's verbs as awaitable methods.
 *
 * Each method starts one call and waits for it. Lua chooses names, sizes and
 * order; the body of a sandbox is written by spec.c alone, so that no script
 * can make a container below the floor. Times are milliseconds. */
#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <lua.h>
#include <string.h>
#include <unistd.h>

#include "lua_bind.h"
#include "lua_docker.h"
#include "spec.h"
#include "task.h"

#define CALL_MT "sr.call"
#define ANSWER_MAX (8u << 20)
#define SHORT_MS 5000   /* questions, kill, remove */
#define LONG_MS 30000   /* create and start: slow on a busy machine */
#define PULL_IDLE_MS 120000 /* silence of a registry that is taken for its end */
#define BUILD_IDLE_MS 600000 /* a step of a build says nothing while it goes on */

struct call_ud {
    struct sr_lua_op w;
    int (*push)(struct sr_lua_op *w, lua_State *L);
    struct sr_call call;
    struct sr_docker *docker;
    struct sr_buf path, body;
    int fd;
    bool started;
};

static void release(struct call_ud *u)
{
    if (u->started)
        sr_call_clear(&u->call);
    u->started = false;
    sr_buf_clear(&u->path);
    sr_buf_clear(&u->body);
    if (u->fd > 0)
        close(u->fd);
    u->fd = 0;
}

static int call_gc(lua_State *L)
{
    release(lua_touserdata(L, 1));
    return 0;
}

struct sr_docker *sr_lua_check_docker(lua_State *L, int arg)
{
    return luaL_checkudata(L, arg, SR_DOCKER_MT);
}

/* A call of the docker at argument 1, not yet started, on top of the stack. The
 * caller appends to path (the version's prefix is there) and body. */
static struct call_ud *new_call(lua_State *L, const char *method)
{
    struct sr_docker *d = sr_lua_check_docker(L, 1);
    struct call_ud *u = lua_newuserdatauv(L, sizeof *u, 1);

    memset(u, 0, sizeof *u);
    luaL_setmetatable(L, CALL_MT);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, 1);
    u->docker = d;
    u->call.method = method;
    u->call.body_cap = ANSWER_MAX;
    sr_buf_puts(&u->path, d->prefix);
    return u;
}

/* Starts the call on top of the stack: 0, or the number of results (nil, err). */
static int start_call(lua_State *L, struct call_ud *u, int64_t timeout_ms)
{
    struct sr_http *http;
    struct sr_err err;

    sr_buf_putc(&u->path, '\0');
    if (!sr_buf_ok(&u->path) || !sr_buf_ok(&u->body))
        return luaL_error(L, "out of memory");
    u->call.path = u->path.data;
    if (u->body.len) {
        u->call.body = u->body.data;
        u->call.body_len = u->body.len;
        if (!u->call.content_type)
            u->call.content_type = "application/json";
    }
    if (sr_vm_http(sr_vm_of(L), &http, &err) < 0 ||
        sr_call_start(http, &u->docker->target, &u->call, timeout_ms, &err) < 0)
        return sr_lua_push_err(L, &err);
    u->started = true;
    return 0;
}

static struct call_ud *call_of(struct sr_lua_op *w)
{
    return sr_container_of(w, struct call_ud, w);
}

/* The collector knows nothing of an answer's size, so it is not left to it. */
static int push_and_release(struct sr_lua_op *w, lua_State *L)
{
    int n = call_of(w)->push(w, L);

    release(call_of(w));
    return n;
}

/* Starts the call on top of the stack and waits for it. */
static int await_call(lua_State *L, struct call_ud *u, int64_t timeout_ms,
                      int (*push)(struct sr_lua_op *, lua_State *))
{
    int n = start_call(L, u, timeout_ms);

    if (n)
        return n;
    u->push = push;
    u->w = (struct sr_lua_op){&u->call.op, push_and_release};
    return sr_await(L, &u->w);
}

static int push_true(struct sr_lua_op *w, lua_State *L)
{
    struct sr_err err;

    if (sr_docker_check(&call_of(w)->call, &err) < 0)
        return sr_lua_push_err(L, &err);
    lua_pushboolean(L, 1);
    return 1;
}

static int push_waited(struct sr_lua_op *w, lua_State *L)
{
    struct sr_err err;

    if (sr_docker_check_wait(&call_of(w)->call, &err) < 0)
        return sr_lua_push_err(L, &err);
    lua_pushboolean(L, 1);
    return 1;
}

static int push_text(struct sr_lua_op *w, lua_State *L)
{
    const struct sr_call *call = &call_of(w)->call;
    struct sr_err err;

    if (sr_docker_check(call, &err) < 0)
        return sr_lua_push_err(L, &err);
    lua_pushlstring(L, call->answer.data ? call->answer.data : "", call->answer.len);
    return 1;
}

static int push_ping(struct sr_lua_op *w, lua_State *L)
{
    struct call_ud *u = call_of(w);
    struct sr_err err;

    if (sr_docker_check(&u->call, &err) < 0 ||
        sr_docker_negotiate(u->docker, u->call.api_version, &err) < 0)
        return sr_lua_push_err(L, &err);
    lua_pushstring(L, u->docker->prefix + 2); /* behind "/v" */
    return 1;
}

/* ping([timeout_ms]) -> API version in use | nil, err. Negotiates; first call. */
static int docker_ping(lua_State *L)
{
    lua_Integer timeout = luaL_optinteger(L, 2, 2000);
    struct call_ud *u = new_call(L, "GET");

    sr_buf_clear(&u->path);
    sr_buf_puts(&u->path, "/_ping");
    return await_call(L, u, timeout, push_ping);
}

static int get_text(lua_State *L, const char *before, const char *name, const char *after)
{
    struct call_ud *u = new_call(L, "GET");

    sr_buf_puts(&u->path, before);
    if (name)
        sr_docker_put_url(&u->path, name);
    sr_buf_puts(&u->path, after);
    return await_call(L, u, SHORT_MS, push_text);
}

/* info() -> JSON text about the engine | nil, err. */
static int docker_info(lua_State *L)
{
    return get_text(L, "/info", NULL, "");
}

/* image(name) -> JSON text of the image's inspection | nil, err (not_found). */
static int docker_image(lua_State *L)
{
    return get_text(L, "/images/", luaL_checkstring(L, 2), "/json");
}

/* inspect(container) -> JSON text | nil, err (not_found). */
static int docker_inspect(lua_State *L)
{
    return get_text(L, "/containers/", luaL_checkstring(L, 2), "/json");
}

/* list() -> JSON text | nil, err: every container, running or not, that carries our label. */
static int docker_list(lua_State *L)
{
    return get_text(L, "/containers/json?all=1&filters=", "{\"label\":[\"" SR_LABEL "\"]}", "");
}

/* events(container, since, until) -> JSON lines of its oom and die events | nil, err.
 * Times are Unix seconds; it does not return before `until`. */
static int docker_events(lua_State *L)
{
    const char *id = luaL_checkstring(L, 2);
    char window[100];
    struct call_ud *u = new_call(L, "GET");

    snprintf(window, sizeof window, "/events?since=%.0f&until=%.0f&filters=",
             luaL_checknumber(L, 3), luaL_checknumber(L, 4));
    sr_buf_puts(&u->path, window);
    sr_docker_put_url(&u->path, "{\"event\":[\"oom\",\"die\"],\"container\":[\"");
    sr_docker_put_url(&u->path, id);
    sr_docker_put_url(&u->path, "\"]}");
    return await_call(L, u, SHORT_MS, push_text);
}

/* volume(name) -> JSON text | nil, err (not_found). */
static int docker_volume(lua_State *L)
{
    return get_text(L, "/volumes/", luaL_checkstring(L, 2), "");
}

/* volumes() -> JSON text | nil, err: every volume that carries our label. */
static int docker_volumes(lua_State *L)
{
    return get_text(L, "/volumes?filters=", "{\"label\":[\"" SR_LABEL "\"]}", "");
}

/* remove_volume(name) -> true | nil, err (conflict: in use). */
static int docker_remove_volume(lua_State *L)
{
    const char *name = luaL_checkstring(L, 2);
    struct call_ud *u = new_call(L, "DELETE");

    sr_buf_puts(&u->path, "/volumes/");
    sr_docker_put_url(&u->path, name);
    return await_call(L, u, SHORT_MS, push_true);
}

/* create_volume(name) -> true | nil, err. An existing one is a success. */
static int docker_create_volume(lua_State *L)
{
    size_t n;
    const char *name = luaL_checklstring(L, 2, &n);
    struct call_ud *u = new_call(L, "POST");

    sr_buf_puts(&u->path, "/volumes/create");
    sr_buf_puts(&u->body, "{\"Labels\":{\"" SR_LABEL "\":\"1\"},\"Name\":\"");
    sr_docker_put_url(&u->body, name);
    sr_buf_puts(&u->body, "\"}");
    return await_call(L, u, SHORT_MS, push_true);
}

/* create_filler(name, image, volume, instance, deadline) -> true | nil, err. A container
 * that is never started: the way into the agent's volume. */
static int docker_create_filler(lua_State *L)
{
    const char *name = luaL_checkstring(L, 2), *image = luaL_checkstring(L, 3);
    const char *volume = luaL_checkstring(L, 4), *instance = luaL_checkstring(L, 5);
    struct call_ud *u = new_call(L, "POST");

    sr_buf_puts(&u->path, "/containers/create?name=");
    sr_docker_put_url(&u->path, name);
    sr_spec_write_filler(&u->body, image, volume, instance, (int64_t)luaL_checkinteger(L, 6));
    return await_call(L, u, LONG_MS, push_true);
}

/* put_archive(container, tar) -> true | nil, err. Unpacks the bytes of a tar file
 * into the agent's folder. */
static int docker_put_archive(lua_State *L)
{
    const char *id = luaL_checkstring(L, 2);
    size_t n;
    const char *tar = luaL_checklstring(L, 3, &n);
    struct call_ud *u = new_call(L, "PUT");

    sr_buf_puts(&u->path, "/containers/");
    sr_docker_put_url(&u->path, id);
    sr_buf_puts(&u->path, "/archive?path=" SR_AGENT_DIR);
    sr_buf_append(&u->body, tar, n);
    u->call.content_type = "application/x-tar";
    return await_call(L, u, LONG_MS, push_true);
}

/* create(name, spec) -> JSON text (Id, Warnings) | nil, err. Fields of spec as in
 * struct sr_spec. */
static int docker_create(lua_State *L)
{
    const char *name = luaL_checkstring(L, 2);
    struct sr_spec spec;
    struct sr_err err;
    struct call_ud *u;

    luaL_checktype(L, 3, LUA_TTABLE);
    lua_settop(L, 3);
    sr_lua_read_spec(L, 3, &spec);
    u = new_call(L, "POST");
    sr_buf_puts(&u->path, "/containers/create?name=");
    sr_docker_put_url(&u->path, name);
    if (sr_spec_write(&u->body, &spec, &err) < 0)
        return sr_lua_push_err(L, &err);
    return await_call(L, u, LONG_MS, push_text);
}

static int post(lua_State *L, const char *after, int64_t timeout_ms,
                int (*push)(struct sr_lua_op *, lua_State *))
{
    const char *id = luaL_checkstring(L, 2);
    struct call_ud *u = new_call(L, "POST");

    sr_buf_puts(&u->path, "/containers/");
    sr_docker_put_url(&u->path, id);
    sr_buf_puts(&u->path, after);
    return await_call(L, u, timeout_ms, push);
}

/* start(container) -> true | nil, err. */
static int docker_start(lua_State *L)
{
    return post(L, "/start", LONG_MS, push_true);
}

/* kill(container) -> true | nil, err. Close the box first: an attach stream
 * that nobody reads wedges this call (moby issue 41827). */
static int docker_kill(lua_State *L)
{
    return post(L, "/kill", SHORT_MS, push_true);
}

/* wait_removed(container, timeout_ms) -> true | nil, err (not_found: gone already;
 * internal: the engine failed at removing it). */
static int docker_wait_removed(lua_State *L)
{
    return post(L, "/wait?condition=removed", luaL_checkinteger(L, 3), push_waited);
}

/* remove(container) -> true | nil, err. By force, with its anonymous volumes. */
static int docker_remove(lua_State *L)
{
    const char *id = luaL_checkstring(L, 2);
    struct call_ud *u = new_call(L, "DELETE");

    sr_buf_puts(&u->path, "/containers/");
    sr_docker_put_url(&u->path, id);
    sr_buf_puts(&u->path, "?force=1&v=1");
    return await_call(L, u, SHORT_MS, push_true);
}

/* update(container, { nano_cpus = number or nil, memory = bytes or nil }) -> true | nil, err.
 * 10^9 nano_cpus = one CPU; swap is none, as in the spec. Unlimited is refused. */
static int docker_update(lua_State *L)
{
    const char *id = luaL_checkstring(L, 2), *comma = "";
    struct call_ud *u;
    lua_Integer nano = 0, memory = 0;

    luaL_checktype(L, 3, LUA_TTABLE);
    if (lua_getfield(L, 3, "nano_cpus") != LUA_TNIL)
        luaL_argcheck(L, (nano = lua_tointeger(L, -1)) > 0, 3, "nano_cpus must be above 0");
    if (lua_getfield(L, 3, "memory") != LUA_TNIL)
        luaL_argcheck(L, (memory = lua_tointeger(L, -1)) > 0, 3, "memory must be above 0");
    lua_settop(L, 2);
    u = new_call(L, "POST");
    sr_buf_puts(&u->path, "/containers/");
    sr_docker_put_url(&u->path, id);
    sr_buf_puts(&u->path, "/update");
    sr_buf_puts(&u->body, "{");
    if (nano) {
        sr_buf_printf(&u->body, "\"NanoCpus\":%lld", (long long)nano);
        comma = ",";
    }
    if (memory)
        sr_buf_printf(&u->body, "%s\"Memory\":%lld,\"MemorySwap\":%lld", comma, (long long)memory,
                      (long long)memory);
    sr_buf_puts(&u->body, "}");
    return await_call(L, u, SHORT_MS, push_true);
}

/* import(repository, tag, path, recipe) -> text | nil, err, within ten minutes. The tar
 * of a root file system at path becomes an image with our label; recipe, an integer,
 * is the value of its label .recipe. */
static int docker_import(lua_State *L)
{
    const char *repository = luaL_checkstring(L, 2), *tag = luaL_checkstring(L, 3);
    const char *path = luaL_checkstring(L, 4);
    lua_Integer recipe = luaL_checkinteger(L, 5);
    struct call_ud *u = new_call(L, "POST");
    char labels[100];
    struct sr_err err;

    u->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (u->fd < 0) {
        sr_err_set(&err, SR_NOT_FOUND, "%s: %s", path, strerror(errno));
        return sr_lua_push_err(L, &err);
    }
    u->call.upload_fd = u->fd;
    u->call.content_type = "application/x-tar";
    sr_buf_puts(&u->path, "/images/create?fromSrc=-&repo=");
    sr_docker_put_url(&u->path, repository);
    sr_buf_puts(&u->path, "&tag=");
    sr_docker_put_url(&u->path, tag);
    sr_buf_puts(&u->path, "&changes=");
    snprintf(labels, sizeof labels, "LABEL " SR_LABEL "=1 " SR_LABEL ".recipe=%lld",
             (long long)recipe);
    sr_docker_put_url(&u->path, labels);
    return await_call(L, u, 600000, push_text);
}

/* build(name, base, tar) -> transfer | nil, err. Makes an image of ours with that name
 * by the Dockerfile in the bytes of a tar file, without a network; base is the value of
 * its label .base. Only starts, like pull. */
static int docker_build(lua_State *L)
{
    size_t n;
    const char *name = luaL_checkstring(L, 2), *base = luaL_checkstring(L, 3);
    const char *tar = luaL_checklstring(L, 4, &n);
    struct call_ud *u = new_call(L, "POST");
    int failed;

    sr_buf_puts(&u->path, "/build?rm=1&forcerm=1&networkmode=none&t=");
    sr_docker_put_url(&u->path, name);
    sr_buf_puts(&u->path, "&labels=");
    sr_docker_put_url(&u->path, "{\"" SR_LABEL "\":\"1\",\"" SR_LABEL ".base\":\"");
    sr_docker_put_url(&u->path, base);
    sr_docker_put_url(&u->path, "\"}");
    sr_buf_append(&u->body, tar, n);
    u->call.content_type = "application/x-tar";
    u->call.idle_ms = BUILD_IDLE_MS;
    failed = start_call(L, u, -1);
    return failed ? failed : 1;
}

/* pull(repository, tag) -> transfer | nil, err. Only starts: see the transfer, which
 * fails with "timeout" after two minutes of silence. */
static int docker_pull(lua_State *L)
{
    const char *repository = luaL_checkstring(L, 2), *tag = luaL_checkstring(L, 3);
    struct call_ud *u = new_call(L, "POST");
    int n;

    sr_buf_puts(&u->path, "/images/create?fromImage=");
    sr_docker_put_url(&u->path, repository);
    sr_buf_puts(&u->path, "&tag=");
    sr_docker_put_url(&u->path, tag);
    u->call.idle_ms = PULL_IDLE_MS;
    n = start_call(L, u, -1);
    return n ? n : 1;
}

/* transfer:read() -> what arrived since the last read ("" if nothing). */
static int transfer_read(lua_State *L)
{
    struct call_ud *u = luaL_checkudata(L, 1, CALL_MT);

    lua_pushlstring(L, u->call.answer.data ? u->call.answer.data : "", u->call.answer.len);
    sr_buf_consume(&u->call.answer, u->call.answer.len);
    return 1;
}

/* transfer:finished() -> false: under way | true | nil, err. True says that the answer
 * is there: a failed pull tells so in its last line. */
static int transfer_finished(lua_State *L)
{
    struct call_ud *u = luaL_checkudata(L, 1, CALL_MT);
    struct sr_err err;

    if (u->call.op.state == SR_OP_PENDING) {
        lua_pushboolean(L, 0);
        return 1;
    }
    if (u->call.op.err.code != SR_OK)
        return sr_lua_push_err(L, &u->call.op.err);
    if (sr_docker_check(&u->call, &err) < 0)
        return sr_lua_push_err(L, &err);
    lua_pushboolean(L, 1);
    return 1;
}

static int docker_gc(lua_State *L)
{
    sr_target_clear(&((struct sr_docker *)lua_touserdata(L, 1))->target);
    return 0;
}

/* open(address [, tls_dir]) -> docker | nil, err (invalid address). No I/O. */
static int docker_open(lua_State *L)
{
    const char *address = luaL_checkstring(L, 1), *tls = luaL_optstring(L, 2, NULL);
    struct sr_docker *d = lua_newuserdatauv(L, sizeof *d, 0);
    struct sr_err err;

    memset(d, 0, sizeof *d);
    luaL_setmetatable(L, SR_DOCKER_MT);
    if (sr_target_parse(&d->target, address, tls, &err) < 0)
        return sr_lua_push_err(L, &err);
    return 1;
}

int sr_lua_open_docker(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"ping", docker_ping},       {"info", docker_info},
        {"image", docker_image},     {"inspect", docker_inspect},
        {"list", docker_list},       {"events", docker_events},
        {"volume", docker_volume},   {"create_volume", docker_create_volume},
        {"volumes", docker_volumes}, {"remove_volume", docker_remove_volume},
        {"create_filler", docker_create_filler}, {"put_archive", docker_put_archive},
        {"create", docker_create},   {"attach", sr_lua_docker_attach},
        {"start", docker_start},     {"kill", docker_kill},
        {"wait_removed", docker_wait_removed}, {"remove", docker_remove},
        {"update", docker_update}, {"import", docker_import},
        {"pull", docker_pull},       {"build", docker_build},
        {NULL, NULL}};
    static const luaL_Reg transfer[] = {
        {"read", transfer_read}, {"finished", transfer_finished}, {NULL, NULL}};
    static const luaL_Reg functions[] = {{"open", docker_open}, {NULL, NULL}};

    sr_lua_new_class(L, SR_DOCKER_MT, methods, docker_gc, NULL);
    sr_lua_new_class(L, CALL_MT, transfer, call_gc, NULL);
    sr_lua_open_box(L);
    luaL_newlib(L, functions);
    return 1;
}
