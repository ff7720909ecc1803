/* lua_httpd.c - core.httpd: a server, its requests, and streams as answers.
 *
 * The userdata of a request and the connection live apart: either may go first.
 * Operations lie in the userdata, so that they stay valid until the collector has
 * seen the last of them. */
#include <lauxlib.h>
#include <lua.h>
#include <string.h>
#include <strings.h>

#include "httpd.h"
#include "lua_bind.h"
#include "task.h"

#define SERVER_MT "sr.httpd"
#define REQUEST_MT "sr.httpd.request"
#define STREAM_MT "sr.httpd.stream"

struct server {
    struct sr_lua_op w;
    struct sr_accept accept;
    struct sr_httpd *httpd; /* NULL when closed */
    char host[64];
    unsigned port;
};

struct request {
    struct sr_request *rq; /* NULL when collected */
    struct sr_lua_op read_w, gone_w;
    struct sr_read read;
    struct sr_gone gone;
};

struct stream {
    struct sr_request *rq;
};

static bool is_busy(const struct sr_op *op)
{
    return op->state == SR_OP_PENDING || op->state == SR_OP_READY;
}

/* Listening. */

static lua_Integer opt_integer(lua_State *L, const char *name, lua_Integer def, lua_Integer min,
                               lua_Integer max)
{
    lua_Integer v = def;
    int whole = 1;

    if (lua_getfield(L, 1, name) != LUA_TNIL)
        v = lua_tointegerx(L, -1, &whole);
    if (!whole || v < min || v > max)
        luaL_error(L, "%s: a whole number from %I to %I expected", name, (LUAI_UACINT)min,
                   (LUAI_UACINT)max);
    lua_pop(L, 1);
    return v;
}

static int64_t opt_ms(lua_State *L, const char *name, lua_Number def)
{
    lua_Number seconds = def;
    int is_number = 1;

    if (lua_getfield(L, 1, name) != LUA_TNIL)
        seconds = lua_tonumberx(L, -1, &is_number);
    if (!is_number || !(seconds >= 0.01 && seconds <= 86400 * 366.0))
        luaL_error(L, "%s: seconds expected, at least 0.01", name);
    lua_pop(L, 1);
    return (int64_t)(seconds * 1000);
}

/* The options at argument 1; what host points to is left on the stack. */
static void check_config(lua_State *L, struct sr_httpd_config *c)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    c->port = (unsigned)opt_integer(L, "port", 0, 0, 65535);
    c->connections = (unsigned)opt_integer(L, "connections", 1000, 1, 100000);
    c->header_bytes = (size_t)opt_integer(L, "header_bytes", 16384, 1024, 1 << 20);
    c->body_budget = (size_t)opt_integer(L, "body_budget", 64 << 20, 0, INT64_C(1) << 40);
    c->stream_bytes = (size_t)opt_integer(L, "stream_bytes", 8 << 20, 1, INT64_C(1) << 40);
    c->output_budget =
        (size_t)opt_integer(L, "output_budget", 64 << 20, 1, INT64_C(1) << 40);
    c->idle_ms = opt_ms(L, "idle_seconds", 60);
    c->request_ms = opt_ms(L, "request_seconds", 30);
    lua_getfield(L, 1, "host");
    c->host = lua_isnil(L, -1) ? "127.0.0.1" : lua_tostring(L, -1);
    if (!c->host)
        luaL_error(L, "host: a string expected");
}

/* listen{host="127.0.0.1", port=0, connections=1000, header_bytes=16384,
 * body_budget=64m, stream_bytes=8m, output_budget=64m, idle_seconds=60,
 * request_seconds=30} -> server | nil, err (conflict: in use; denied; invalid: no such
 * host). Port 0: any free one. */
static int httpd_listen(lua_State *L)
{
    struct sr_httpd_config config;
    struct server *s;
    struct sr_err err;
    const char *host;

    check_config(L, &config);
    s = lua_newuserdatauv(L, sizeof *s, 0);
    memset(s, 0, sizeof *s);
    luaL_setmetatable(L, SERVER_MT);
    if (sr_httpd_open(&s->httpd, &sr_vm_of(L)->loop, &config, &err) < 0)
        return sr_lua_push_err(L, &err);
    sr_httpd_address(s->httpd, &host, &s->port);
    memcpy(s->host, host, strnlen(host, sizeof s->host - 1));
    return 1;
}

static struct server *check_server(lua_State *L)
{
    return luaL_checkudata(L, 1, SERVER_MT);
}

/* address() -> host, port: where it listens, or has listened. */
static int server_address(lua_State *L)
{
    const struct server *s = check_server(L);

    lua_pushstring(L, s->host);
    lua_pushinteger(L, s->port);
    return 2;
}

static int push_request(struct sr_lua_op *w, lua_State *L)
{
    struct server *s = sr_container_of(w, struct server, w);
    struct request *r;

    if (!s->httpd || !sr_httpd_has_request(s->httpd)) {
        lua_pushboolean(L, 0);
        return 1;
    }
    r = lua_newuserdatauv(L, sizeof *r, 0);
    memset(r, 0, sizeof *r);
    luaL_setmetatable(L, REQUEST_MT);
    r->rq = sr_httpd_take(s->httpd);
    return 1;
}

/* accept() -> request, whose head is there and whose body nobody has read | false
 * when the server was stopped and all was handed over. Awaits; one waiter. */
static int server_accept(lua_State *L)
{
    struct server *s = check_server(L);

    if (is_busy(&s->accept.op))
        return luaL_error(L, "somebody accepts already");
    if (!s->httpd) {
        lua_pushboolean(L, 0);
        return 1;
    }
    s->w = (struct sr_lua_op){&s->accept.op, push_request};
    sr_httpd_accept(s->httpd, &s->accept);
    return sr_await(L, &s->w);
}

/* stop(): no new connections and requests; what is there goes on. */
static int server_stop(lua_State *L)
{
    struct server *s = check_server(L);

    if (s->httpd)
        sr_httpd_stop(s->httpd);
    return 0;
}

/* close(): every connection is closed at once. */
static int server_close(lua_State *L)
{
    struct server *s = check_server(L);
    struct sr_httpd *h = s->httpd;

    s->httpd = NULL;
    sr_httpd_close(h);
    return 0;
}

static int server_gc(lua_State *L)
{
    sr_op_drop(&check_server(L)->accept.op);
    return server_close(L);
}

/* stats() -> {connections=, max_connections=, requests=, buffered=, unsent=}: open, how
 * many there can be (fewer than asked for where descriptors lack), being answered, bytes
 * of bodies, and of streams and answers that are not sent yet. */
static int server_stats(lua_State *L)
{
    const struct server *s = check_server(L);
    struct sr_httpd_stats stats = {0};

    if (s->httpd)
        stats = sr_httpd_stats(s->httpd);
    lua_createtable(L, 0, 5);
    lua_pushinteger(L, (lua_Integer)stats.unsent);
    lua_setfield(L, -2, "unsent");
    lua_pushinteger(L, stats.max_connections);
    lua_setfield(L, -2, "max_connections");
    lua_pushinteger(L, stats.connections);
    lua_setfield(L, -2, "connections");
    lua_pushinteger(L, stats.requests);
    lua_setfield(L, -2, "requests");
    lua_pushinteger(L, (lua_Integer)stats.buffered);
    lua_setfield(L, -2, "buffered");
    return 1;
}

/* Requests. */

static struct request *check_request(lua_State *L)
{
    struct request *r = luaL_checkudata(L, 1, REQUEST_MT);

    luaL_argcheck(L, r->rq, 1, "the request was collected");
    return r;
}

static int request_gc(lua_State *L)
{
    struct request *r = luaL_checkudata(L, 1, REQUEST_MT);

    sr_op_drop(&r->read.op);
    sr_op_drop(&r->gone.op);
    if (r->rq) {
        sr_request_abandon(r->rq);
        sr_request_release(r->rq);
    }
    r->rq = NULL;
    return 0;
}

/* method() -> "POST", as the client wrote it. */
static int request_method(lua_State *L)
{
    lua_pushstring(L, sr_request_method(check_request(L)->rq));
    return 1;
}

/* target() -> "/mcp?x=1", as the client wrote it. */
static int request_target(lua_State *L)
{
    lua_pushstring(L, sr_request_target(check_request(L)->rq));
    return 1;
}

/* peer() -> "127.0.0.1", the client's numeric address. */
static int request_peer(lua_State *L)
{
    lua_pushstring(L, sr_request_peer(check_request(L)->rq));
    return 1;
}

/* header(name) -> value | nil. Case does not matter; the values of a header that
 * was sent several times are joined with ", " (RFC 9110 section 5.3). */
static int request_header(lua_State *L)
{
    const struct request *r = check_request(L);
    const char *wanted = luaL_checkstring(L, 2), *at = NULL, *name, *value;
    luaL_Buffer all;
    int found = 0;

    luaL_buffinit(L, &all);
    while (sr_request_next_header(r->rq, &at, &name, &value)) {
        if (strcasecmp(name, wanted) != 0)
            continue;
        if (found++)
            luaL_addstring(&all, ", ");
        luaL_addstring(&all, value);
    }
    luaL_pushresult(&all);
    if (!found)
        lua_pushnil(L);
    return 1;
}

static int push_body(struct sr_lua_op *w, lua_State *L)
{
    struct request *r = sr_container_of(w, struct request, read_w);
    const char *data;
    size_t n;

    sr_request_body(r->rq, &data, &n);
    lua_pushlstring(L, data, n);
    sr_request_drop_body(r->rq);
    return 1;
}

/* read(max_bytes) -> body ("" when there is none) | nil, err: too_large (what is
 * left of it is dropped as it comes), unavailable (body_budget is used up), conflict
 * (the client has gone; the body was read before), timeout. Awaits. After any of
 * these the request can still be answered, if the client is there. */
static int request_read(lua_State *L)
{
    struct request *r = check_request(L);
    lua_Integer max = luaL_checkinteger(L, 2);

    luaL_argcheck(L, max >= 0, 2, "bytes >= 0 expected");
    if (is_busy(&r->read.op))
        return luaL_error(L, "somebody reads this request already");
    r->read_w = (struct sr_lua_op){&r->read.op, push_body};
    sr_request_read(r->rq, &r->read, &sr_vm_of(L)->loop, (size_t)max);
    return sr_await(L, &r->read_w);
}

/* Walks the headers at argument 3: their length as "name\\0value\\0..."; written to
 * `to`, of `room` bytes, unless that is NULL. */
static size_t put_headers(lua_State *L, char *to, size_t room)
{
    size_t total = 0;

    lua_pushnil(L);
    while (lua_next(L, 3)) {
        const char *name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : NULL;
        const char *value = lua_tostring(L, -1); /* a number is fine, too */
        size_t n, m;

        if (!name || !value)
            return (size_t)luaL_error(L, "headers: names and values are strings");
        n = strlen(name) + 1;
        m = strlen(value) + 1;
        if (n - 1 != lua_rawlen(L, -2) || m - 1 != lua_rawlen(L, -1) || strpbrk(value, "\r\n"))
            luaL_error(L, "header %s: a line end or a NUL cannot be sent", name);
        if (to && n + m > room - total) /* a finaliser has added to the table */
            luaL_error(L, "headers: the table changed");
        if (to) {
            memcpy(to + total, name, n);
            memcpy(to + total + n, value, m);
        }
        total += n + m;
        lua_pop(L, 1);
    }
    return total;
}

/* The status at argument 2 and the headers at argument 3, the latter in memory of
 * Lua's on top of the stack. */
static const char *check_answer(lua_State *L, unsigned *status, size_t *heads_len)
{
    lua_Integer s = luaL_checkinteger(L, 2);
    size_t measured;
    char *heads;

    luaL_argcheck(L, s >= 200 && s <= 599, 2, "a status from 200 to 599 expected");
    *status = (unsigned)s;
    *heads_len = 0;
    if (lua_isnoneornil(L, 3))
        return "";
    luaL_checktype(L, 3, LUA_TTABLE);
    measured = put_headers(L, NULL, 0);
    heads = lua_newuserdatauv(L, measured, 0);
    *heads_len = put_headers(L, heads, measured);
    return heads;
}

/* After an answer: true | nil, err; misuse throws. */
static int answered(lua_State *L, int rc, const struct sr_err *err)
{
    if (rc < 0 && err->code == SR_INVALID)
        return luaL_error(L, "%s", err->msg);
    if (rc < 0)
        return sr_lua_push_err(L, err);
    lua_pushboolean(L, 1);
    return 1;
}

/* respond(status, headers, body) -> true | nil, err (conflict: the client has gone).
 * Once. headers: {["Content-Type"] = "text/plain"}; one with an empty value is left
 * out, one that cannot be sent throws. */
static int request_respond(lua_State *L)
{
    struct request *r = check_request(L);
    size_t n, heads_len;
    const char *body = luaL_optlstring(L, 4, "", &n);
    unsigned status;
    const char *heads = check_answer(L, &status, &heads_len);
    struct sr_err err;

    return answered(L, sr_request_respond(r->rq, status, heads, heads_len, body, n, &err), &err);
}

/* stream(status, headers) -> stream | nil, err, as respond; throws where an answer has no
 * body (to HEAD; 204 and 304). */
static int request_stream(lua_State *L)
{
    struct request *r = check_request(L);
    size_t heads_len;
    unsigned status;
    const char *heads = check_answer(L, &status, &heads_len);
    struct stream *s = lua_newuserdatauv(L, sizeof *s, 0);
    struct sr_err err;
    int rc;

    s->rq = NULL;
    luaL_setmetatable(L, STREAM_MT);
    rc = sr_request_stream(r->rq, status, heads, heads_len, &err);
    if (rc < 0)
        return answered(L, rc, &err);
    s->rq = r->rq;
    sr_request_keep(s->rq);
    return 1;
}

static int push_end(struct sr_lua_op *w, lua_State *L)
{
    struct request *r = sr_container_of(w, struct request, gone_w);

    lua_pushstring(L, sr_request_is_done(r->rq) ? "done" : "gone");
    return 1;
}

/* wait_gone() -> "gone": the client has closed the connection or its sending side,
 * or the server was closed | "done": the answer was sent as a whole. Who has closed the
 * sending side only still gets what respond is given. Awaits; one waiter. */
static int request_wait_gone(lua_State *L)
{
    struct request *r = check_request(L);

    if (is_busy(&r->gone.op))
        return luaL_error(L, "somebody waits for the end of this request already");
    r->gone_w = (struct sr_lua_op){&r->gone.op, push_end};
    sr_request_watch(r->rq, &r->gone, &sr_vm_of(L)->loop);
    return sr_await(L, &r->gone_w);
}

/* Streams. */

static struct stream *check_stream(lua_State *L)
{
    return luaL_checkudata(L, 1, STREAM_MT);
}

/* write(text) -> true | nil, err (conflict: the client has gone, or left stream_bytes
 * unread, or less while output_budget is used up; the connection is closed then). Never
 * waits. */
static int stream_write(lua_State *L)
{
    struct stream *s = check_stream(L);
    size_t n;
    const char *text = luaL_checklstring(L, 2, &n);
    struct sr_err err;

    luaL_argcheck(L, s->rq, 1, "the stream is closed");
    return answered(L, sr_request_write(s->rq, text, n, &err), &err);
}

static int let_go(lua_State *L, void (*how)(struct sr_request *))
{
    struct stream *s = check_stream(L);
    struct sr_request *rq = s->rq;

    s->rq = NULL;
    if (rq) {
        how(rq);
        sr_request_release(rq);
    }
    return 0;
}

/* close(): the answer ends; what was written is still sent. */
static int stream_close(lua_State *L)
{
    return let_go(L, sr_request_finish);
}

/* Nobody closed it: the client must not take the answer for a whole one. */
static int stream_gc(lua_State *L)
{
    return let_go(L, sr_request_abort);
}

int sr_lua_open_httpd(lua_State *L)
{
    static const luaL_Reg functions[] = {{"listen", httpd_listen}, {NULL, NULL}};
    static const luaL_Reg server[] = {
        {"address", server_address}, {"accept", server_accept}, {"stop", server_stop},
        {"close", server_close},     {"stats", server_stats},   {NULL, NULL}};
    static const luaL_Reg request[] = {
        {"method", request_method}, {"target", request_target},   {"header", request_header},
        {"peer", request_peer},     {"read", request_read},       {"respond", request_respond},
        {"stream", request_stream}, {"wait_gone", request_wait_gone}, {NULL, NULL}};
    static const luaL_Reg stream[] = {
        {"write", stream_write}, {"close", stream_close}, {NULL, NULL}};

    sr_lua_new_class(L, SERVER_MT, server, server_gc, server_close);
    sr_lua_new_class(L, REQUEST_MT, request, request_gc, NULL);
    sr_lua_new_class(L, STREAM_MT, stream, stream_gc, stream_close);
    luaL_newlib(L, functions);
    return 1;
}
