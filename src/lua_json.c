#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "lua_bind.h"

#define ARRAY_MT "sr.json.array" /* marks tables that are arrays even when empty */
#define ENCODED_MT "sr.json.encoded" /* the text of a value as its user value */
#define RAW_MT "sr.json.raw"     /* {token=text}, written as it is */
#define TREE_MT "sr.json.tree"   /* owns a parsed tree while it is converted */
#define OUT_MT "sr.json.out"     /* owns the text while it is written */
#define ENCODE_DEPTH 100

static void push_value(lua_State *L, const struct sr_json *v);

static void push_array(lua_State *L, const struct sr_json *v)
{
    lua_Integer n = 0;

    for (const struct sr_json *c = sr_json_first(v); c; c = sr_json_next(c))
        n++;
    lua_createtable(L, n < INT_MAX ? (int)n : 0, 0);
    n = 0;
    for (const struct sr_json *c = sr_json_first(v); c; c = sr_json_next(c)) {
        push_value(L, c); /* t v */
        lua_rawseti(L, -2, ++n);
    }
    luaL_setmetatable(L, ARRAY_MT);
}

static void push_object(lua_State *L, const struct sr_json *v)
{
    int n = 0;

    for (const struct sr_json *c = sr_json_first(v); c && n < INT_MAX; c = sr_json_next(c))
        n++;
    lua_createtable(L, 0, n);
    for (const struct sr_json *c = sr_json_first(v); c; c = sr_json_next(c)) {
        lua_pushstring(L, sr_json_key(c)); /* t k */
        lua_pushvalue(L, -1);
        if (lua_rawget(L, -3) != LUA_TNIL) { /* t k old: of duplicates the first wins */
            lua_pop(L, 2);
            continue;
        }
        lua_pop(L, 1);
        push_value(L, c); /* t k v */
        lua_rawset(L, -3);
    }
}

static void push_number(lua_State *L, const struct sr_json *v)
{
    int64_t i;
    double d = 0;

    if (sr_json_integer(v, &i)) {
        lua_pushinteger(L, (lua_Integer)i);
    } else {
        sr_json_number(v, &d);
        lua_pushnumber(L, d);
    }
}

/* Recurses as deep as the parser allowed. */
static void push_value(lua_State *L, const struct sr_json *v)
{
    luaL_checkstack(L, 4, "JSON value");
    switch (sr_json_type(v)) {
    case SR_JSON_NULL:
        lua_pushlightuserdata(L, NULL);
        break;
    case SR_JSON_FALSE:
    case SR_JSON_TRUE:
        lua_pushboolean(L, sr_json_type(v) == SR_JSON_TRUE);
        break;
    case SR_JSON_NUMBER:
        push_number(L, v);
        break;
    case SR_JSON_STRING:
        lua_pushstring(L, sr_json_string(v)); /* the parser refused NUL */
        break;
    case SR_JSON_ARRAY:
        push_array(L, v);
        break;
    case SR_JSON_OBJECT:
        push_object(L, v);
        break;
    }
}

static int tree_gc(lua_State *L)
{
    struct sr_json **tree = luaL_checkudata(L, 1, TREE_MT);

    sr_json_free(*tree);
    *tree = NULL;
    return 0;
}

static void check_decode_opts(lua_State *L, int arg, struct sr_json_opts *opts)
{
    if (lua_isnoneornil(L, arg))
        return;
    luaL_checktype(L, arg, LUA_TTABLE);
    if (lua_getfield(L, arg, "max_depth") != LUA_TNIL) {
        lua_Integer depth = lua_isinteger(L, -1) ? lua_tointeger(L, -1) : 0;

        luaL_argcheck(L, depth >= 1 && depth <= SR_JSON_DEPTH_MAX, arg, "bad max_depth");
        opts->max_depth = (unsigned)depth;
    }
    if (lua_getfield(L, arg, "nul") != LUA_TNIL) {
        const char *nul = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";

        luaL_argcheck(L, strcmp(nul, "replace") == 0, arg, "nul must be \"replace\"");
        opts->replace_nul = true;
    }
    lua_pop(L, 2);
}

/* decode(text [, {max_depth=1..512 (64), nul="replace"}]) -> value | nil, err (invalid).
 * Null is json.null, arrays carry json.array_mt. A \u0000 in a string is refused, with
 * err.nul, or with nul="replace" becomes U+FFFD and a second result true says so. */
static int json_decode(lua_State *L)
{
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n);
    struct sr_json_opts opts = {0};
    struct sr_json **tree;
    struct sr_err err;

    check_decode_opts(L, 2, &opts);
    tree = lua_newuserdatauv(L, sizeof *tree, 0);
    *tree = NULL;
    luaL_setmetatable(L, TREE_MT);
    if (sr_json_parse(tree, text, n, &opts, &err) < 0) {
        sr_lua_push_err(L, &err);
        if (opts.nul && err.code == SR_INVALID) {
            lua_pushboolean(L, 1);
            lua_setfield(L, -2, "nul");
        }
        return 2;
    }
    push_value(L, *tree);
    sr_json_free(*tree); /* it may be large: do not wait for the collector */
    *tree = NULL;
    if (!opts.nul)
        return 1;
    lua_pushboolean(L, 1);
    return 2;
}

/* Where in the value the writer is; lives on the C stack, outermost last. */
struct place {
    const struct place *up;
    const char *key; /* NULL: index is meant */
    lua_Integer index;
    int depth;
};

static void put_value(lua_State *L, struct sr_buf *out, int at, const struct place *place);

/* Adds ".key" and "[index]" for each step, the outermost first. */
static void add_path(luaL_Buffer *b, const struct place *place)
{
    if (!place->up)
        return;
    add_path(b, place->up);
    if (place->key) {
        luaL_addchar(b, '.');
        luaL_addlstring(b, place->key, strnlen(place->key, 40));
    } else {
        lua_pushfstring(b->L, "[%I]", (LUAI_UACINT)place->index);
        luaL_addvalue(b);
    }
}

static int refuse(lua_State *L, const struct place *place, const char *why)
{
    luaL_Buffer b;

    luaL_checkstack(L, LUA_MINSTACK, "error message");
    luaL_buffinit(L, &b);
    luaL_addstring(&b, "cannot encode value");
    add_path(&b, place);
    luaL_addstring(&b, ": ");
    luaL_addstring(&b, why);
    luaL_pushresult(&b);
    return luaL_error(L, "%s", lua_tostring(L, -1));
}

struct key {
    const char *s;
    size_t n;
};

static int compare_keys(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    int order = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);

    return order ? order : (x->n > y->n) - (x->n < y->n);
}

/* Pushes the sorted keys of the table at `at` as one block; *n of them. The
 * strings stay alive as keys of the table, which nothing changes meanwhile. */
static const struct key *push_keys(lua_State *L, int at, size_t *n, const struct place *place)
{
    struct key *keys;
    size_t count = 0, i = 0;

    for (lua_pushnil(L); lua_next(L, at); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            refuse(L, place, "an object has a key that is not a string");
        count++;
    }
    keys = lua_newuserdatauv(L, count ? count * sizeof *keys : 1, 0); /* keys */
    for (lua_pushnil(L); i < count && lua_next(L, at); lua_pop(L, 1), i++)
        keys[i].s = lua_tolstring(L, -2, &keys[i].n);
    lua_pop(L, 1); /* the last key: the loop stops by count */
    qsort(keys, count, sizeof *keys, compare_keys);
    *n = count;
    return keys;
}

static void put_object(lua_State *L, struct sr_buf *out, int at, const struct place *place)
{
    size_t n;
    const struct key *keys = push_keys(L, at, &n, place); /* keys */

    sr_buf_putc(out, '{');
    for (size_t i = 0; i < n; i++) {
        struct place inner = {place, keys[i].s, 0, place->depth + 1};

        if (i > 0)
            sr_buf_putc(out, ',');
        sr_json_put_string(out, keys[i].s, keys[i].n);
        sr_buf_putc(out, ':');
        lua_pushlstring(L, keys[i].s, keys[i].n);
        lua_rawget(L, at); /* keys v */
        put_value(L, out, lua_gettop(L), &inner);
        lua_pop(L, 1);
    }
    sr_buf_putc(out, '}');
    lua_pop(L, 1);
}

/* Throws unless the keys of the table are exactly 1..n. */
static void check_sequence(lua_State *L, int at, lua_Unsigned n, const struct place *place)
{
    lua_Unsigned count = 0;

    for (lua_pushnil(L); lua_next(L, at); lua_pop(L, 1)) {
        if (!lua_isinteger(L, -2) || (lua_Unsigned)lua_tointeger(L, -2) - 1 >= n)
            refuse(L, place, "an array has other keys than 1..n");
        count++;
    }
    if (count != n)
        refuse(L, place, "an array has holes");
}

static void put_array(lua_State *L, struct sr_buf *out, int at, const struct place *place)
{
    lua_Unsigned n = lua_rawlen(L, at);

    check_sequence(L, at, n, place);
    sr_buf_putc(out, '[');
    for (lua_Unsigned i = 1; i <= n; i++) {
        struct place inner = {place, NULL, (lua_Integer)i, place->depth + 1};

        if (i > 1)
            sr_buf_putc(out, ',');
        lua_rawgeti(L, at, (lua_Integer)i);
        put_value(L, out, lua_gettop(L), &inner);
        lua_pop(L, 1);
    }
    sr_buf_putc(out, ']');
}

/* Whether the value at `at` has the metatable called name. */
static bool has_mt(lua_State *L, int at, const char *name)
{
    bool same;

    if (!lua_getmetatable(L, at))
        return false;
    luaL_getmetatable(L, name);
    same = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
    return same;
}

static void put_raw(lua_State *L, struct sr_buf *out, int at, const struct place *place)
{
    size_t n = 0;
    const char *token;

    lua_pushliteral(L, "token");
    token = lua_rawget(L, at) == LUA_TSTRING ? lua_tolstring(L, -1, &n) : NULL;
    if (!token || !sr_json_is_token(token, n))
        refuse(L, place, "damaged raw token");
    sr_buf_append(out, token, n);
    lua_pop(L, 1);
}

static void put_table(lua_State *L, struct sr_buf *out, int at, const struct place *place)
{
    luaL_checkstack(L, 8, "JSON value");
    if (place->depth >= ENCODE_DEPTH)
        refuse(L, place, "nested too deep, or a cycle");
    if (has_mt(L, at, RAW_MT)) {
        put_raw(L, out, at, place);
    } else if (lua_rawlen(L, at) > 0 || has_mt(L, at, ARRAY_MT)) {
        put_array(L, out, at, place);
    } else {
        /* The table is read raw: a stand-in for another one would come out
         * as an empty object without a word. */
        if (luaL_getmetafield(L, at, "__pairs") != LUA_TNIL)
            refuse(L, place, "a table with __pairs");
        put_object(L, out, at, place);
    }
}

static void put_number(lua_State *L, struct sr_buf *out, int at, const struct place *place)
{
    if (lua_isinteger(L, at)) {
        sr_json_put_integer(out, lua_tointeger(L, at));
        return;
    }
    if (!isfinite(lua_tonumber(L, at)))
        refuse(L, place, "not a finite number");
    sr_json_put_number(out, lua_tonumber(L, at));
}

/* at is an absolute index. Text goes to *out, which Lua owns. */
static void put_value(lua_State *L, struct sr_buf *out, int at, const struct place *place)
{
    size_t n;
    const char *s;

    switch (lua_type(L, at)) {
    case LUA_TBOOLEAN:
        sr_buf_puts(out, lua_toboolean(L, at) ? "true" : "false");
        break;
    case LUA_TNUMBER:
        put_number(L, out, at, place);
        break;
    case LUA_TSTRING:
        s = lua_tolstring(L, at, &n);
        sr_json_put_string(out, s, n);
        break;
    case LUA_TTABLE:
        put_table(L, out, at, place);
        break;
    case LUA_TUSERDATA:
        luaL_checkstack(L, 4, "JSON value");
        if (!luaL_testudata(L, at, ENCODED_MT))
            refuse(L, place, "a userdata");
        lua_getiuservalue(L, at, 1);
        s = lua_tolstring(L, -1, &n);
        sr_buf_append(out, s, n);
        lua_pop(L, 1);
        break;
    case LUA_TLIGHTUSERDATA:
        if (lua_touserdata(L, at))
            refuse(L, place, "a light userdata");
        sr_buf_puts(out, "null");
        break;
    default:
        luaL_checkstack(L, 2, "error message");
        refuse(L, place, lua_pushfstring(L, "a %s", luaL_typename(L, at)));
    }
}

static int out_gc(lua_State *L)
{
    sr_buf_clear(luaL_checkudata(L, 1, OUT_MT));
    return 0;
}

/* encode(value) -> text. Throws, with the place, on what JSON has no word for: functions,
 * NaN, holes, keys that are no strings, cycles (more than 100 deep). Keys come sorted. */
static int json_encode(lua_State *L)
{
    struct place top = {0};
    struct sr_buf *out;

    luaL_checkany(L, 1);
    lua_settop(L, 1);
    out = lua_newuserdatauv(L, sizeof *out, 0);
    *out = (struct sr_buf){0};
    luaL_setmetatable(L, OUT_MT);
    put_value(L, out, 1, &top);
    if (!sr_buf_ok(out))
        return luaL_error(L, "not enough memory");
    lua_pushlstring(L, out->data, out->len);
    sr_buf_clear(out);
    return 1;
}

/* array([t = {}]) -> t, which is an array from now on, even when it is empty. */
static int json_array(lua_State *L)
{
    if (lua_isnoneornil(L, 1)) {
        lua_settop(L, 0);
        lua_newtable(L);
    }
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    luaL_setmetatable(L, ARRAY_MT);
    return 1;
}

/* raw_id(text) -> the token of the top-level member "id", as written | nil: none, or
 * no scalar. text need not be sound otherwise. */
static int json_raw_id(lua_State *L)
{
    size_t n, len;
    const char *text = luaL_checklstring(L, 1, &n);
    const char *token;

    if (!sr_json_raw_id(text, n, &token, &len))
        lua_pushnil(L);
    else
        lua_pushlstring(L, token, len);
    return 1;
}

/* raw(token) -> a value that encode writes as it is; throws unless token is one scalar. */
static int json_raw(lua_State *L)
{
    size_t n;
    const char *token = luaL_checklstring(L, 1, &n);

    luaL_argcheck(L, sr_json_is_token(token, n), 1, "JSON scalar expected");
    lua_createtable(L, 0, 1);
    lua_pushvalue(L, 1);
    lua_setfield(L, -2, "token");
    luaL_setmetatable(L, RAW_MT);
    return 1;
}

/* encoded(value) -> the value, encoded once: encode then only copies it. A
 * userdata, so that no script can put other text in. */
static int json_encoded(lua_State *L)
{
    json_encode(L); /* value text */
    lua_newuserdatauv(L, 0, 1);
    lua_insert(L, -2);
    lua_setiuservalue(L, -2, 1);
    luaL_setmetatable(L, ENCODED_MT);
    return 1;
}

static const luaL_Reg json_module[] = {
    {"decode", json_decode}, {"encode", json_encode}, {"array", json_array},
    {"raw_id", json_raw_id}, {"raw", json_raw},
    {"encoded", json_encoded}, {NULL, NULL},
};

static void new_owner_mt(lua_State *L, const char *name, lua_CFunction gc)
{
    luaL_newmetatable(L, name);
    lua_pushcfunction(L, gc);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
}

int sr_lua_open_json(lua_State *L)
{
    new_owner_mt(L, TREE_MT, tree_gc);
    new_owner_mt(L, OUT_MT, out_gc);
    luaL_newmetatable(L, RAW_MT);
    lua_pop(L, 1);
    luaL_newmetatable(L, ENCODED_MT);
    lua_pushboolean(L, false);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
    luaL_newlib(L, json_module);
    luaL_newmetatable(L, ARRAY_MT);
    lua_setfield(L, -2, "array_mt");
    lua_pushlightuserdata(L, NULL);
    lua_setfield(L, -2, "null");
    return 1;
}
