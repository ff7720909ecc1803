#include "lua_bind.h"
#include "text.h"

typedef size_t transform(char *dst, const char *s, size_t n);

/* Pushes what `change` makes of s; the first pass measures, so that the memory
 * is right-sized and Lua's own from the start. */
static int push_changed(lua_State *L, transform *change, const char *s, size_t n)
{
    luaL_Buffer out;
    size_t size = change(NULL, s, n);
    char *dst = luaL_buffinitsize(L, &out, size);

    luaL_pushresultsize(&out, change(dst, s, n));
    return 1;
}

/* repair(bytes) -> UTF-8: each invalid sequence becomes U+FFFD; valid text as it is. */
static int text_repair(lua_State *L)
{
    size_t n;
    const char *s = luaL_checklstring(L, 1, &n);

    lua_settop(L, 1);
    if (sr_text_is_utf8(s, n))
        return 1;
    return push_changed(L, sr_text_repair, s, n);
}

/* is_utf8(bytes) -> boolean. */
static int text_is_utf8(lua_State *L)
{
    size_t n;
    const char *s = luaL_checklstring(L, 1, &n);

    lua_pushboolean(L, sr_text_is_utf8(s, n));
    return 1;
}

/* Shared by cut and prefix: both keep a start of s. */
static int push_start(lua_State *L, size_t measure(const char *, size_t, size_t))
{
    size_t n;
    const char *s = luaL_checklstring(L, 1, &n);
    lua_Integer limit = luaL_checkinteger(L, 2);

    luaL_argcheck(L, limit >= 0, 2, "must not be negative");
    lua_pushlstring(L, s, measure(s, n, (size_t)limit));
    return 1;
}

/* cut(text, n) -> the longest start of at most n bytes that ends between characters.
 * text must be UTF-8, n >= 0. */
static int text_cut(lua_State *L)
{
    return push_start(L, sr_text_cut);
}

/* prefix(bytes, n) -> the first n (>= 0) characters; an invalid sequence counts as one. */
static int text_prefix(lua_State *L)
{
    return push_start(L, sr_text_prefix);
}

/* visible(bytes) -> one line for logs: controls and what is no UTF-8 are written out
 * (\n, \xNN, \u{NNNN}). */
static int text_visible(lua_State *L)
{
    size_t n;
    const char *s = luaL_checklstring(L, 1, &n);

    return push_changed(L, sr_text_visible, s, n);
}

static const luaL_Reg text_module[] = {
    {"repair", text_repair}, {"is_utf8", text_is_utf8}, {"cut", text_cut},
    {"prefix", text_prefix}, {"visible", text_visible}, {NULL, NULL},
};

int sr_lua_open_text(lua_State *L)
{
    luaL_newlib(L, text_module);
    return 1;
}
