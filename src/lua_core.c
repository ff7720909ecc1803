/* lua_core.c - the module sandbox_runner.core, for our program and for any Lua 5.4. */
#include <lauxlib.h>
#include <lua.h>

#include "lua_bind.h"

#ifndef SR_VERSION
#define SR_VERSION "0.0.0"
#endif

void sr_lua_new_class(lua_State *L, const char *name, const luaL_Reg *methods, lua_CFunction gc,
                      lua_CFunction close)
{
    luaL_newmetatable(L, name);
    lua_pushcfunction(L, gc);
    lua_setfield(L, -2, "__gc");
    if (close) {
        lua_pushcfunction(L, close);
        lua_setfield(L, -2, "__close");
    }
    lua_newtable(L);
    luaL_setfuncs(L, methods, 0);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
}

int luaopen_sandbox_runner_core(lua_State *L)
{
    static const luaL_Reg parts[] = {
        {"loop", sr_lua_open_loop}, /* first: it makes the vm that the others use */
        {"json", sr_lua_open_json},     {"text", sr_lua_open_text},
        {"history", sr_lua_open_history}, {"docker", sr_lua_open_docker},
        {"stdio", sr_lua_open_stdio},   {"sys", sr_lua_open_sys},
        {"httpd", sr_lua_open_httpd},   {"crypto", sr_lua_open_crypto},
        {NULL, NULL}};

    sr_lua_open_err(L);
    lua_newtable(L);
    for (const luaL_Reg *p = parts; p->name; p++) {
        lua_pushcfunction(L, p->func);
        lua_call(L, 0, 1);
        lua_setfield(L, -2, p->name);
    }
    lua_pushstring(L, SR_VERSION);
    lua_setfield(L, -2, "version");
    return 1;
}
