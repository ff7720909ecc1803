#include <stdbool.h>
#include <string.h>

#include "history.h"
#include "lua_bind.h"

#define HISTORY_MT "sr.history"
#define ROWS_MT "sr.history.rows" /* owns rows while they are converted */

struct history_ud {
    struct sr_history *db; /* NULL = closed */
};

static struct sr_history *check_history(lua_State *L, int arg)
{
    struct history_ud *ud = luaL_checkudata(L, arg, HISTORY_MT);

    luaL_argcheck(L, ud->db, arg, "history is closed");
    return ud->db;
}

static const char *check_path(lua_State *L, int arg)
{
    size_t n;
    const char *path = luaL_checklstring(L, arg, &n);

    luaL_argcheck(L, n == strlen(path), arg, "path holds a NUL");
    return path;
}

/* open(path) -> history | nil, err (unavailable: locked, no room; corrupt; denied;
 * invalid: not ours to write). Creates the file, not its folder. At most half a second
 * goes on locks; see history.h. */
static int history_open(lua_State *L)
{
    const char *path = check_path(L, 1);
    struct history_ud *ud = lua_newuserdatauv(L, sizeof *ud, 0);
    struct sr_err err;

    ud->db = NULL;
    luaL_setmetatable(L, HISTORY_MT);
    if (sr_history_open(&ud->db, path, &err) < 0)
        return sr_lua_push_err(L, &err);
    return 1;
}

/* history:close(): empties the write-ahead log into the file. Twice is harmless; any
 * other method throws afterwards. */
static int history_close(lua_State *L)
{
    struct history_ud *ud = luaL_checkudata(L, 1, HISTORY_MT);
    struct sr_history *db = ud->db;

    ud->db = NULL;
    sr_history_close(db);
    return 0;
}

static int history_tostring(lua_State *L)
{
    struct history_ud *ud = luaL_checkudata(L, 1, HISTORY_MT);

    lua_pushfstring(L, "history (%s)", ud->db ? "open" : "closed");
    return 1;
}

static int bad_field(lua_State *L, const char *name, const char *want)
{
    return luaL_error(L, "bad run: field '%s': %s expected, got %s", name, want,
                      luaL_typename(L, -1));
}

/* The field of the run at index 2. The string stays on the stack: an __index
 * may have made it, and then nothing else keeps it alive. */
static struct sr_history_text get_text(lua_State *L, const char *name, bool needed)
{
    struct sr_history_text text = {0};

    if (lua_getfield(L, 2, name) == LUA_TSTRING)
        text.data = lua_tolstring(L, -1, &text.len);
    else if (needed || !lua_isnil(L, -1))
        bad_field(L, name, "string");
    return text;
}

static struct sr_history_real get_real(lua_State *L, const char *name, bool needed)
{
    struct sr_history_real real = {0};

    if (lua_getfield(L, 2, name) == LUA_TNUMBER)
        real = (struct sr_history_real){true, lua_tonumber(L, -1)};
    else if (needed || !lua_isnil(L, -1))
        bad_field(L, name, "number");
    lua_pop(L, 1);
    return real;
}

/* A boolean counts as 0 or 1. */
static struct sr_history_int get_int(lua_State *L, const char *name)
{
    struct sr_history_int v = {0};
    int type = lua_getfield(L, 2, name), exact = 0;

    if (type == LUA_TBOOLEAN) {
        v = (struct sr_history_int){true, lua_toboolean(L, -1)};
    } else if (type != LUA_TNIL) {
        v.set = true;
        if (type == LUA_TNUMBER)
            v.value = lua_tointegerx(L, -1, &exact);
        if (!exact)
            bad_field(L, name, "integer");
    }
    lua_pop(L, 1);
    return v;
}

/* history:add(run) -> id | nil, err. Needed: timestamp (Unix seconds), duration_ms
 * (numbers), language, code_snippet, status (strings). Optional: exit_code, stdout_size,
 * stderr_size (bytes), run_id, reason, signal, cpu_ms, peak_memory_bytes, truncated
 * (boolean), image, timeout_seconds. Throws on a field of another type. */
static int history_add(lua_State *L)
{
    struct sr_history_row row = {0};
    struct sr_history *db;
    struct sr_err err;
    int64_t id;

    check_history(L, 1); /* its fault comes first, whatever the row is like */
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    luaL_checkstack(L, 16, "run");
    row.timestamp = get_real(L, "timestamp", true).value;
    row.language = get_text(L, "language", true);
    row.code_snippet = get_text(L, "code_snippet", true);
    row.status = get_text(L, "status", true);
    row.exit_code = get_int(L, "exit_code");
    row.duration_ms = get_real(L, "duration_ms", true).value;
    row.stdout_size = get_int(L, "stdout_size").value;
    row.stderr_size = get_int(L, "stderr_size").value;
    row.run_id = get_text(L, "run_id", false);
    row.reason = get_text(L, "reason", false);
    row.signal = get_text(L, "signal", false);
    row.cpu_ms = get_real(L, "cpu_ms", false);
    row.peak_memory_bytes = get_int(L, "peak_memory_bytes");
    row.truncated = get_int(L, "truncated");
    row.image = get_text(L, "image", false);
    row.timeout_seconds = get_real(L, "timeout_seconds", false);
    db = check_history(L, 1); /* an __index may have closed it */
    if (sr_history_add(db, &row, &id, &err) < 0)
        return sr_lua_push_err(L, &err);
    lua_pushinteger(L, (lua_Integer)id);
    return 1;
}

/* Setters of the table on top; what is NULL in the file is absent. */
static void set_text(lua_State *L, const char *name, struct sr_history_text text)
{
    if (!text.data)
        return;
    lua_pushlstring(L, text.data, text.len);
    lua_setfield(L, -2, name);
}

static void set_int(lua_State *L, const char *name, int64_t v)
{
    lua_pushinteger(L, (lua_Integer)v);
    lua_setfield(L, -2, name);
}

static void set_opt_int(lua_State *L, const char *name, struct sr_history_int v)
{
    if (v.set)
        set_int(L, name, v.value);
}

static void set_opt_real(lua_State *L, const char *name, struct sr_history_real v)
{
    if (!v.set)
        return;
    lua_pushnumber(L, v.value);
    lua_setfield(L, -2, name);
}

static void push_row(lua_State *L, const struct sr_history_row *row)
{
    lua_createtable(L, 0, 17);
    set_int(L, "id", row->id);
    set_opt_real(L, "timestamp", (struct sr_history_real){true, row->timestamp});
    set_text(L, "language", row->language);
    set_text(L, "code_snippet", row->code_snippet);
    set_text(L, "status", row->status);
    set_opt_int(L, "exit_code", row->exit_code);
    set_opt_real(L, "duration_ms", (struct sr_history_real){true, row->duration_ms});
    set_int(L, "stdout_size", row->stdout_size);
    set_int(L, "stderr_size", row->stderr_size);
    set_text(L, "run_id", row->run_id);
    set_text(L, "reason", row->reason);
    set_text(L, "signal", row->signal);
    set_opt_real(L, "cpu_ms", row->cpu_ms);
    set_opt_int(L, "peak_memory_bytes", row->peak_memory_bytes);
    if (row->truncated.set) {
        lua_pushboolean(L, row->truncated.value != 0);
        lua_setfield(L, -2, "truncated");
    }
    set_text(L, "image", row->image);
    set_opt_real(L, "timeout_seconds", row->timeout_seconds);
}

static int rows_gc(lua_State *L)
{
    sr_history_rows_clear(luaL_checkudata(L, 1, ROWS_MT));
    return 0;
}

/* history:recent(limit) -> array of runs, newest first, with `id` and the fields of
 * add | nil, err. limit is clamped to 0..1000; what is unknown is absent. */
static int history_recent(lua_State *L)
{
    struct sr_history *db = check_history(L, 1);
    lua_Integer limit = luaL_checkinteger(L, 2);
    struct sr_history_rows *rows = lua_newuserdatauv(L, sizeof *rows, 0);
    struct sr_err err;

    *rows = (struct sr_history_rows){0};
    luaL_setmetatable(L, ROWS_MT);
    if (sr_history_recent(db, limit, rows, &err) < 0)
        return sr_lua_push_err(L, &err);
    lua_createtable(L, (int)rows->n, 0);
    for (size_t i = 0; i < rows->n; i++) {
        push_row(L, &rows->rows[i]); /* rows t row */
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    sr_history_rows_clear(rows);
    return 1;
}

/* history:get(id) -> run as in recent, or nil when there is none | nil, err. id: the
 * number of the row, or the run_id (a string) of one of the newest 10000. */
static int history_get(lua_State *L)
{
    struct sr_history *db = check_history(L, 1);
    bool by_row = lua_type(L, 2) == LUA_TNUMBER;
    int64_t id = by_row ? luaL_checkinteger(L, 2) : 0;
    struct sr_history_text run_id = {0};
    struct sr_history_rows *rows;
    struct sr_err err;

    if (!by_row)
        run_id.data = luaL_checklstring(L, 2, &run_id.len);
    rows = lua_newuserdatauv(L, sizeof *rows, 0);
    *rows = (struct sr_history_rows){0};
    luaL_setmetatable(L, ROWS_MT);
    if ((by_row ? sr_history_get(db, id, rows, &err) : sr_history_find(db, run_id, rows, &err)) < 0)
        return sr_lua_push_err(L, &err);
    if (rows->n > 0)
        push_row(L, &rows->rows[0]);
    else
        lua_pushnil(L);
    sr_history_rows_clear(rows);
    return 1;
}

/* history:count() -> number of runs | nil, err. Reads the whole table. */
static int history_count(lua_State *L)
{
    struct sr_err err;
    int64_t n;

    if (sr_history_count(check_history(L, 1), &n, &err) < 0)
        return sr_lua_push_err(L, &err);
    lua_pushinteger(L, (lua_Integer)n);
    return 1;
}

/* history:prune(max_rows) -> number of old runs deleted, at most 10000 at once |
 * nil, err. */
static int history_prune(lua_State *L)
{
    struct sr_history *db = check_history(L, 1);
    lua_Integer max_rows = luaL_checkinteger(L, 2);
    struct sr_err err;
    int64_t n;

    luaL_argcheck(L, max_rows >= 0, 2, "must not be negative");
    if (sr_history_prune(db, max_rows, &n, &err) < 0)
        return sr_lua_push_err(L, &err);
    lua_pushinteger(L, (lua_Integer)n);
    return 1;
}

/* set_aside(path) -> new path | nil, err: renames a damaged file and its companions. */
static int history_set_aside(lua_State *L)
{
    const char *path = check_path(L, 1);
    char new_path[4096];
    struct sr_err err;

    if (sr_history_set_aside(path, new_path, sizeof new_path, &err) < 0)
        return sr_lua_push_err(L, &err);
    lua_pushstring(L, new_path);
    return 1;
}

static const luaL_Reg history_meta[] = {
    {"__gc", history_close},
    {"__close", history_close},
    {"__tostring", history_tostring},
    {NULL, NULL},
};

static const luaL_Reg history_methods[] = {
    {"add", history_add},     {"recent", history_recent}, {"get", history_get},
    {"count", history_count}, {"prune", history_prune},   {"close", history_close},
    {NULL, NULL},
};

static const luaL_Reg history_module[] = {
    {"open", history_open},
    {"set_aside", history_set_aside},
    {NULL, NULL},
};

int sr_lua_open_history(lua_State *L)
{
    luaL_newmetatable(L, ROWS_MT);
    lua_pushcfunction(L, rows_gc);
    lua_setfield(L, -2, "__gc");
    luaL_newmetatable(L, HISTORY_MT);
    luaL_setfuncs(L, history_meta, 0);
    luaL_newlib(L, history_methods);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable"); /* scripts cannot call __gc by hand */
    lua_pop(L, 2);
    luaL_newlib(L, history_module);
    return 1;
}
