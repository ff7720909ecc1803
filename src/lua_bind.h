/* lua_bind.h - what every binding file (lua_*.c) shares.
 *
 * Binding files are the only ones that include Lua headers. Rules: wrong type
 * or closed handle throws (luaL_arg*); trouble of the world is returned as
 * nil, err. Memory that must survive a Lua call that may throw belongs to Lua
 * (userdata, luaL_Buffer), never to malloc. */
#ifndef SR_LUA_BIND_H
#define SR_LUA_BIND_H

#include <lauxlib.h>
#include <lua.h>

#include "err.h"

/* Pushes fail and an error table {code=string, message=string} whose
 * metatable "sr.error" gives it __tostring "code: message". Returns 2. */
int sr_lua_push_err(lua_State *L, const struct sr_err *err);

/* Registers that metatable. */
void sr_lua_open_err(lua_State *L);

/* Registers the metatable of a class of userdata: methods, __gc, and __close (NULL: none);
 * scripts cannot get at it. */
void sr_lua_new_class(lua_State *L, const char *name, const luaL_Reg *methods, lua_CFunction gc,
                      lua_CFunction close);

/* Openers, one per Lua table of sandbox_runner.core; each returns its table. */
int sr_lua_open_json(lua_State *L);
int sr_lua_open_text(lua_State *L);
int sr_lua_open_history(lua_State *L);
int sr_lua_open_loop(lua_State *L);
int sr_lua_open_docker(lua_State *L);
int sr_lua_open_stdio(lua_State *L);
int sr_lua_open_sys(lua_State *L);
int sr_lua_open_httpd(lua_State *L);
int sr_lua_open_crypto(lua_State *L);

/* The module sandbox_runner.core: a table with the fields json, text,
 * history, loop, docker, stdio, sys, httpd and crypto, and `version`. */
int luaopen_sandbox_runner_core(lua_State *L);

#endif
