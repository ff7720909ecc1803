/* lua_spec.c - a sandbox's description, from a Lua table to struct sr_spec. */
#include <lauxlib.h>
#include <lua.h>

#include "lua_docker.h"

static uint64_t size_field(lua_State *L, int t, const char *name)
{
    lua_Integer v;

    lua_getfield(L, t, name);
    v = luaL_checkinteger(L, -1);
    lua_pop(L, 1);
    if (v <= 0)
        luaL_error(L, "sandbox: %s must be above zero", name);
    return (uint64_t)v;
}

static const char *text_field(lua_State *L, int t, const char *name, const char *fallback)
{
    const char *v;

    lua_getfield(L, t, name);
    /* A number would be converted on the stack only, and its text lost with it. */
    if (lua_type(L, -1) != LUA_TSTRING && !(lua_isnil(L, -1) && fallback))
        luaL_error(L, "sandbox: %s must be a string", name);
    v = lua_isnil(L, -1) ? fallback : lua_tostring(L, -1);
    lua_pop(L, 1); /* the table keeps it alive */
    return v;
}

const char *const *sr_lua_list_field(lua_State *L, int t, const char *name)
{
    const char **list;
    lua_Integer n;

    lua_getfield(L, t, name);
    n = lua_istable(L, -1) ? luaL_len(L, -1) : 0;
    list = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof *list, 0);
    for (lua_Integer i = 0; i < n; i++) {
        lua_geti(L, -2, i + 1);
        if (lua_type(L, -1) != LUA_TSTRING) /* a number's text would not outlive the stack */
            luaL_error(L, "%s[%d] must be a string", name, (int)i + 1);
        list[i] = lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    list[n] = NULL;
    lua_remove(L, -2); /* -- list */
    return list;
}

void sr_lua_read_spec(lua_State *L, int t, struct sr_spec *spec)
{
    const char *runtime = text_field(L, t, "runtime", "");

    spec->image = text_field(L, t, "image", NULL);
    spec->agent_volume = text_field(L, t, "agent_volume", NULL);
    spec->instance = text_field(L, t, "instance", NULL);
    spec->run = text_field(L, t, "run", NULL);
    spec->runtime = runtime[0] ? runtime : NULL;
    spec->uid = (uint32_t)size_field(L, t, "uid");
    spec->memory = size_field(L, t, "memory");
    spec->nano_cpus = size_field(L, t, "nano_cpus");
    spec->pids = (uint32_t)size_field(L, t, "pids");
    spec->open_files = (uint32_t)size_field(L, t, "open_files");
    spec->file_size = size_field(L, t, "file_size");
    spec->scratch = size_field(L, t, "scratch");
    spec->tmp = size_field(L, t, "tmp");
    spec->shm = size_field(L, t, "shm");
    spec->files = (uint32_t)size_field(L, t, "files");
    spec->deadline = (int64_t)size_field(L, t, "deadline");
    lua_getfield(L, t, "scratch_writable");
    spec->scratch_writable = lua_toboolean(L, -1);
    lua_pop(L, 1);
    spec->volumes = sr_lua_list_field(L, t, "volumes");
}
