/* lua_docker.h - what the binding files of core.docker share. */
#ifndef SR_LUA_DOCKER_H
#define SR_LUA_DOCKER_H

#include <lua.h>

#include "docker.h"
#include "spec.h"

#define SR_DOCKER_MT "sr.docker"

/* The docker at this argument; throws when it is something else. */
struct sr_docker *sr_lua_check_docker(lua_State *L, int arg);

/* Field `name` of the table at index t: an array of strings (or nil) as a
 * NULL-terminated array in a userdata, which is left on top of the stack. The
 * strings belong to the table. Throws on an element of another type. */
const char *const *sr_lua_list_field(lua_State *L, int t, const char *name);

/* Fills spec from the fields, of the same names, of the table at index t; throws on one
 * of another type. Texts belong to the table, the list of volumes is left on the stack. */
void sr_lua_read_spec(lua_State *L, int t, struct sr_spec *spec);

/* docker:attach(container, timeout_ms) -> box | nil, err; see lua_box.c. */
int sr_lua_docker_attach(lua_State *L);

/* Registers the metatable of boxes. */
void sr_lua_open_box(lua_State *L);

#endif
