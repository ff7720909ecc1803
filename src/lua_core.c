/* lua_core.c - the module sandbox_runner.core, for our program and for any Lua 5.4. */
#include <lauxlib.h>
#include <lua.h>

#include "lua_bind.h"

#ifndef SR_VERSION
#define SR_VERSION "0.0.0"
#endif

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
