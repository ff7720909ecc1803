#include "lua_bind.h"

#define ERROR_MT "sr.error"

/* "code: message"; also for error tables made by hand, where a field may be
 * missing or of another type. */
static int error_tostring(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_getfield(L, 1, "code");
    luaL_tolstring(L, -1, NULL);
    lua_pushliteral(L, ": ");
    lua_getfield(L, 1, "message");
    luaL_tolstring(L, -1, NULL);
    lua_remove(L, -2); /* code "code" ": " "message" */
    lua_concat(L, 3);
    return 1;
}

void sr_lua_open_err(lua_State *L)
{
    luaL_newmetatable(L, ERROR_MT);
    lua_pushcfunction(L, error_tostring);
    lua_setfield(L, -2, "__tostring");
    lua_pop(L, 1);
}

int sr_lua_push_err(lua_State *L, const struct sr_err *err)
{
    luaL_checkstack(L, 6, "error value");
    luaL_pushfail(L);
    lua_createtable(L, 0, 2);
    lua_pushstring(L, sr_code_name(err->code));
    lua_setfield(L, -2, "code");
    lua_pushstring(L, err->msg);
    lua_setfield(L, -2, "message");
    luaL_setmetatable(L, ERROR_MT);
    return 2;
}
