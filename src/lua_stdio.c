/* lua_stdio.c - core.stdio: lines in from stdin, lines out to stdout.
 *
 * Neither descriptor is made non-blocking: the flag would belong to whoever
 * shares the open file too. A read after POLLIN and a write of at most PIPE_BUF
 * bytes after POLLOUT do not block on a pipe, which is what clients use; sockets
 * are written with MSG_DONTWAIT. A terminal or a file may hold a write up. */
#include <errno.h>
#include <lauxlib.h>
#include <limits.h>
#include <lua.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "lua_bind.h"
#include "task.h"

#define STDIO_KEY "sr.stdio"
#define IO_OP_MT "sr.stdio.op"
#define READ_SIZE 65536
#define LINE_HEAD 4096u     /* of an over-long line: enough to find whom to answer */
#define OUT_HIGH (8u << 20) /* bytes unread by the client: above, no new lines are taken */

struct stdio {
    struct sr_loop *loop;
    struct sr_watch in, out;
    struct sr_buf lines;      /* read, not yet handed out */
    size_t scanned;           /* of lines: holds no newline up to here */
    struct sr_buf pending;    /* to be written ... */
    size_t written;           /* ... but for its start of this length, which is */
    size_t max_line;
    bool skipping;            /* inside an over-long line */
    bool eof, broken;         /* no more input; nobody reads the output */
    bool out_is_socket;
    struct io_op *reader, *flusher;
};

/* A wait for a line or for the output to be gone. */
struct io_op {
    struct sr_lua_op w;
    struct sr_op op;
    struct stdio *io;
};

static size_t unwritten(const struct stdio *io)
{
    return io->pending.len - io->written;
}

static void notify_reader(struct stdio *io)
{
    if (io->reader)
        sr_op_finish(&io->reader->op, NULL);
    io->reader = NULL;
}

/* Watches stdin only while somebody waits for a line and the client reads. */
static void update_watches(struct stdio *io)
{
    /* While the client does not read, its end is noticed, but no line is taken. */
    io->in.events = unwritten(io) < OUT_HIGH ? POLLIN : 0;
    if (io->reader && !io->eof)
        sr_watch_add(io->loop, &io->in);
    else
        sr_watch_remove(&io->in);
    io->out.events = unwritten(io) ? POLLOUT : 0;
    if (io->broken)
        sr_watch_remove(&io->out);
    else
        sr_watch_add(io->loop, &io->out); /* even idle: POLLERR tells that the reader left */
}

static void break_out(struct stdio *io)
{
    io->broken = io->eof = true;
    sr_buf_clear(&io->pending);
    io->written = 0;
    notify_reader(io);
}

/* Writes a piece if that does not block; what write(2) says, EAGAIN if it would. */
static ssize_t write_piece(const struct stdio *io)
{
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    const char *at = io->pending.data + io->written;
    size_t n = unwritten(io);

    if (io->out_is_socket)
        return send(STDOUT_FILENO, at, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (poll(&p, 1, 0) == 1 && (p.revents & (POLLOUT | POLLERR)))
        return write(STDOUT_FILENO, at, n < PIPE_BUF ? n : PIPE_BUF);
    errno = EAGAIN;
    return -1;
}

static void drain_out(struct stdio *io)
{
    while (unwritten(io)) {
        ssize_t done = write_piece(io);

        if (done < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (done < 0)
            break_out(io);
        else
            io->written += (size_t)done;
    }
    /* Moving what is left costs as much as it is long: only once for as many bytes written. */
    if (io->written >= unwritten(io)) {
        sr_buf_consume(&io->pending, io->written);
        io->written = 0;
    }
    if (!unwritten(io) && io->flusher) {
        sr_op_finish(&io->flusher->op, NULL);
        io->flusher = NULL;
    }
}

/* Throws away what belongs to an over-long line; true when its end was found. */
static bool skip_line(struct stdio *io)
{
    char *nl = io->lines.len ? memchr(io->lines.data, '\n', io->lines.len) : NULL;

    sr_buf_consume(&io->lines, nl ? (size_t)(nl - io->lines.data) + 1 : io->lines.len);
    io->scanned = 0;
    if (nl)
        io->skipping = false;
    return nl != NULL;
}

static char *find_line(struct stdio *io)
{
    char *nl = NULL;

    if (io->lines.len > io->scanned)
        nl = memchr(io->lines.data + io->scanned, '\n', io->lines.len - io->scanned);
    if (!nl)
        io->scanned = io->lines.len;
    return nl;
}

static bool has_answer(struct stdio *io)
{
    return find_line(io) || io->lines.len > io->max_line || io->eof;
}

/* Wakes the reader when there is something to hand out and the client reads. */
static void offer_line(struct stdio *io)
{
    if (io->eof || (!io->skipping && unwritten(io) < OUT_HIGH && has_answer(io)))
        notify_reader(io);
    update_watches(io);
}

static void on_out(struct sr_watch *w, short revents)
{
    struct stdio *io = sr_container_of(w, struct stdio, out);

    if (revents & (POLLERR | POLLHUP | POLLNVAL))
        break_out(io);
    drain_out(io);
    offer_line(io); /* one may have waited for the client to read */
}

/* The client has gone and left answers unread: what it still asked for is moot. */
static void hang_up(struct stdio *io)
{
    io->eof = true;
    io->skipping = false;
    io->scanned = 0;
    sr_buf_clear(&io->lines);
    offer_line(io);
}

static void on_in(struct sr_watch *w, short revents)
{
    struct stdio *io = sr_container_of(w, struct stdio, in);
    char *at;
    ssize_t n;

    if (!io->in.events) {
        if (revents & (POLLHUP | POLLERR))
            hang_up(io);
        return;
    }
    at = sr_buf_reserve(&io->lines, READ_SIZE);
    n = at ? read(STDIN_FILENO, at, READ_SIZE) : 0;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0)
        io->eof = true;
    else
        io->lines.len += (size_t)n;
    if (io->skipping && !skip_line(io) && !io->eof)
        return;
    offer_line(io);
}

static int io_gc(lua_State *L)
{
    struct stdio *io = lua_touserdata(L, 1);

    sr_watch_remove(&io->in);
    sr_watch_remove(&io->out);
    sr_buf_clear(&io->lines);
    sr_buf_clear(&io->pending);
    io->written = 0;
    io->eof = io->broken = true; /* operations that are collected later add no watch any more */
    return 0;
}

static struct stdio *get_io(lua_State *L)
{
    struct stdio *io;
    struct stat st;

    if (lua_getfield(L, LUA_REGISTRYINDEX, STDIO_KEY) == LUA_TUSERDATA) {
        io = lua_touserdata(L, -1);
        lua_pop(L, 1);
        return io;
    }
    lua_pop(L, 1);
    io = lua_newuserdatauv(L, sizeof *io, 0);
    memset(io, 0, sizeof *io);
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, io_gc);
    lua_setfield(L, -2, "__gc");
    lua_setmetatable(L, -2);
    lua_setfield(L, LUA_REGISTRYINDEX, STDIO_KEY);
    io->loop = &sr_vm_of(L)->loop;
    io->in = (struct sr_watch){.fd = STDIN_FILENO, .events = POLLIN, .on_ready = on_in};
    io->out = (struct sr_watch){.fd = STDOUT_FILENO, .on_ready = on_out};
    io->out_is_socket = fstat(STDOUT_FILENO, &st) == 0 && S_ISSOCK(st.st_mode);
    return io;
}

static int op_gc(lua_State *L)
{
    struct io_op *o = lua_touserdata(L, 1);

    sr_op_drop(&o->op);
    return 0;
}

/* A new operation on top of the stack, which its finaliser drops. */
static struct io_op *new_op(lua_State *L, struct stdio *io,
                            int (*push)(struct sr_lua_op *, lua_State *))
{
    struct io_op *o = lua_newuserdatauv(L, sizeof *o, 0);

    memset(o, 0, sizeof *o);
    luaL_setmetatable(L, IO_OP_MT);
    o->w = (struct sr_lua_op){&o->op, push};
    o->io = io;
    return o;
}

static int push_line(struct sr_lua_op *w, lua_State *L)
{
    struct stdio *io = sr_container_of(w, struct io_op, w)->io;
    char *nl = find_line(io);
    size_t n = nl ? (size_t)(nl - io->lines.data) : io->lines.len;
    struct sr_err err;

    if (n > io->max_line) {
        sr_err_set(&err, SR_TOO_LARGE, "a line of more than %zu bytes", io->max_line);
        sr_lua_push_err(L, &err);
        lua_pushlstring(L, io->lines.data, n < LINE_HEAD ? n : LINE_HEAD);
        io->skipping = true;
        skip_line(io);
        return 3;
    }
    if (!nl && (n == 0 || io->broken)) {
        lua_pushboolean(L, false); /* end of input */
        return 1;
    }
    lua_pushlstring(L, io->lines.data, n > 0 && io->lines.data[n - 1] == '\r' ? n - 1 : n);
    sr_buf_consume(&io->lines, nl ? n + 1 : n);
    io->scanned = 0;
    return 1;
}

static void read_abort(struct sr_op *op)
{
    struct stdio *io = sr_container_of(op, struct io_op, op)->io;

    io->reader = NULL;
    update_watches(io);
}

/* read_line(max_bytes) -> line without its end | false at the end of input |
 * nil, err, start of the line (too_large; the line is skipped in constant
 * memory). A last line without newline counts. Also false once nobody reads stdout any more. */
static int stdio_read_line(lua_State *L)
{
    struct stdio *io = get_io(L);
    struct io_op *r;

    io->max_line = (size_t)luaL_checkinteger(L, 1);
    if (io->reader)
        return luaL_error(L, "somebody reads stdin already");
    r = new_op(L, io, push_line);
    sr_op_start(io->loop, &r->op, -1, read_abort);
    io->reader = r;
    offer_line(io);
    return sr_await(L, &r->w);
}

/* write(text): queues text for stdout and writes what goes without waiting. */
static int stdio_write(lua_State *L)
{
    struct stdio *io = get_io(L);
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n);

    if (io->broken)
        return 0;
    sr_buf_append(&io->pending, text, n);
    if (!sr_buf_ok(&io->pending))
        return luaL_error(L, "out of memory");
    drain_out(io);
    update_watches(io);
    return 0;
}

static int push_flushed(struct sr_lua_op *w, lua_State *L)
{
    lua_pushboolean(L, !sr_container_of(w, struct io_op, w)->io->broken);
    return 1;
}

static void flush_abort(struct sr_op *op)
{
    sr_container_of(op, struct io_op, op)->io->flusher = NULL;
}

/* flush(timeout_ms) -> true when all is written, false when nobody reads | nil, err
 * (timeout). One waiter at a time; a second one is told true at once. */
static int stdio_flush(lua_State *L)
{
    struct stdio *io = get_io(L);
    lua_Integer timeout = luaL_checkinteger(L, 1);
    struct io_op *f;

    drain_out(io);
    if (!unwritten(io) || io->flusher) {
        lua_pushboolean(L, !io->broken);
        return 1;
    }
    f = new_op(L, io, push_flushed);
    sr_op_start(io->loop, &f->op, timeout, flush_abort);
    io->flusher = f;
    update_watches(io);
    return sr_await(L, &f->w);
}

int sr_lua_open_stdio(lua_State *L)
{
    static const luaL_Reg functions[] = {{"read_line", stdio_read_line},
                                         {"write", stdio_write},
                                         {"flush", stdio_flush},
                                         {NULL, NULL}};

    luaL_newmetatable(L, IO_OP_MT);
    lua_pushcfunction(L, op_gc);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    luaL_newlib(L, functions);
    return 1;
}
