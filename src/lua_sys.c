/* lua_sys.c - core.sys: what scripts need of the operating system. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <lua.h>
#include <malloc.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"
#include "lua_bind.h"

#define LOCK_MT "sr.lock"
#define DIR_MT "sr.dir"
#define LOCK_TRIES 10

static enum sr_code errno_code(int e)
{
    switch (e) {
    case ENOENT:
    case ENOTDIR: return SR_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS: return SR_DENIED;
    case EWOULDBLOCK: return SR_CONFLICT;
    case ENOMEM: return SR_NO_MEMORY;
    default: return SR_UNAVAILABLE;
    }
}

static int push_errno(lua_State *L, const char *what)
{
    struct sr_err err;

    sr_err_set(&err, errno_code(errno), "%s: %s", what, strerror(errno));
    return sr_lua_push_err(L, &err);
}

/* getenv(name) -> string | nil; an empty variable counts as unset. */
static int sys_getenv(lua_State *L)
{
    const char *v = getenv(luaL_checkstring(L, 1));

    if (v && *v)
        lua_pushstring(L, v);
    else
        luaL_pushfail(L);
    return 1;
}

/* home() -> the user's home folder, HOME or else from the user database. */
static int sys_home(lua_State *L)
{
    const char *home = getenv("HOME");
    const struct passwd *pw;

    if (!home || home[0] != '/')
        home = (pw = getpwuid(getuid())) ? pw->pw_dir : "/";
    lua_pushstring(L, home);
    return 1;
}

/* uid() -> number of the user that the process acts as. */
static int sys_uid(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)geteuid());
    return 1;
}

/* cpus() -> CPUs that this process may use. */
static int sys_cpus(lua_State *L)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);

    lua_pushinteger(L, n > 0 ? n : 1);
    return 1;
}

/* mkdir_p(path [, mode = 0700]) -> true | nil, err. Makes the folders that are missing;
 * the last one must then be writable for us. */
static int sys_mkdir_p(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    mode_t mode = (mode_t)luaL_optinteger(L, 2, 0700);
    char part[4096];
    size_t n = strlen(path);

    luaL_argcheck(L, n > 0 && n < sizeof part, 1, "path too long or empty");
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, mode) < 0 && errno != EEXIST && errno != EROFS && errno != EACCES)
            return push_errno(L, part);
    }
    if (access(path, W_OK | X_OK) < 0)
        return push_errno(L, path);
    lua_pushboolean(L, 1);
    return 1;
}

/* stat(path) -> {type="file"|"directory"|"socket"|"other", size in bytes, mode (the
 * permission bits), uid, gid, ino, mtime in Unix seconds} | nil, err. Follows links. */
static int sys_stat(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    struct stat st;

    if (stat(path, &st) < 0)
        return push_errno(L, path);
    lua_createtable(L, 0, 6);
    lua_pushstring(L, S_ISREG(st.st_mode)    ? "file"
                      : S_ISDIR(st.st_mode)  ? "directory"
                      : S_ISSOCK(st.st_mode) ? "socket"
                                             : "other");
    lua_setfield(L, -2, "type");
    lua_pushinteger(L, (lua_Integer)st.st_size);
    lua_setfield(L, -2, "size");
    lua_pushinteger(L, (lua_Integer)(st.st_mode & 07777));
    lua_setfield(L, -2, "mode");
    lua_pushinteger(L, (lua_Integer)st.st_uid);
    lua_setfield(L, -2, "uid");
    lua_pushinteger(L, (lua_Integer)st.st_gid);
    lua_setfield(L, -2, "gid");
    lua_pushinteger(L, (lua_Integer)st.st_ino);
    lua_setfield(L, -2, "ino");
    lua_pushinteger(L, (lua_Integer)st.st_mtime);
    lua_setfield(L, -2, "mtime");
    return 1;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int dir_close(lua_State *L)
{
    DIR **dir = lua_touserdata(L, 1);

    if (*dir)
        closedir(*dir);
    *dir = NULL;
    return 0;
}

/* An empty handle on top of the stack, which closes what is put into it. */
static DIR **push_dir(lua_State *L)
{
    DIR **dir = lua_newuserdatauv(L, sizeof *dir, 0);

    *dir = NULL;
    luaL_setmetatable(L, DIR_MT);
    return dir;
}

/* list(path) -> sorted array of the names in a folder, hidden ones too, at most 4096 |
 * nil, err. */
static int sys_list(lua_State *L)
{
    enum { MAX = 4096 };
    const char *path = luaL_checkstring(L, 1);
    const char **names = lua_newuserdatauv(L, MAX * sizeof *names, 0);
    DIR **dir = push_dir(L);
    const struct dirent *e;
    size_t n = 0;

    luaL_checkstack(L, MAX + 8, "folder listing");
    *dir = opendir(path);
    if (!*dir)
        return push_errno(L, path);
    while (n < MAX && (e = readdir(*dir)))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            names[n++] = lua_pushstring(L, e->d_name);
    closedir(*dir);
    *dir = NULL;
    qsort(names, n, sizeof *names, by_name);
    lua_createtable(L, (int)n, 0);
    for (size_t i = 0; i < n; i++) {
        lua_pushstring(L, names[i]);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    return 1;
}

/* random_hex(n) (1 to 64) -> 2n hexadecimal digits from the kernel's generator. */
static int sys_random_hex(lua_State *L)
{
    unsigned char bytes[64];
    char text[2 * sizeof bytes + 1];
    lua_Integer n = luaL_checkinteger(L, 1);

    if (n < 1 || n > (lua_Integer)sizeof bytes)
        return luaL_argerror(L, 1, "1 to 64 expected");
    if (getrandom(bytes, (size_t)n, 0) != n)
        return luaL_error(L, "getrandom: %s", strerror(errno));
    for (lua_Integer i = 0; i < n; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    lua_pushlstring(L, text, (size_t)(2 * n));
    return 1;
}

/* digest(text) -> 16 hexadecimal digits (FNV-1a, 64 bits): names a version of a
 * file of ours. Not for anything that an adversary chooses. */
static int sys_digest(lua_State *L)
{
    size_t n;
    const unsigned char *s = (const unsigned char *)luaL_checklstring(L, 1, &n);
    uint64_t h = UINT64_C(14695981039346656037);
    char text[17];

    for (size_t i = 0; i < n; i++)
        h = (h ^ s[i]) * UINT64_C(1099511628211);
    snprintf(text, sizeof text, "%016llx", (unsigned long long)h);
    lua_pushstring(L, text);
    return 1;
}

/* log(text): one line on stderr; see log.h. */
static int sys_log(lua_State *L)
{
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n);

    sr_log(text, n);
    return 0;
}

static int *check_lock(lua_State *L)
{
    return luaL_checkudata(L, 1, LOCK_MT);
}

static int lock_close(lua_State *L)
{
    int *fd = check_lock(L);

    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return 0;
}

/* A locked descriptor, or -1 with errno. Between open and flock the owner before us
 * may have removed the file: a lock on that one would keep nobody out. */
static int open_locked(const char *path)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600), why;
        struct stat ours, there;

        if (fd < 0)
            return -1;
        if (flock(fd, LOCK_EX | LOCK_NB) < 0 || fstat(fd, &ours) < 0) {
            why = errno;
            close(fd);
            errno = why;
            return -1;
        }
        if (lstat(path, &there) == 0 && ours.st_dev == there.st_dev && ours.st_ino == there.st_ino)
            return fd;
        close(fd);
    }
    errno = EWOULDBLOCK;
    return -1;
}

/* lock(path) -> lock | nil, err. An exclusive flock on the file (created 0600),
 * held until lock:close() or the process ends; "conflict" when somebody else has it.
 * Whoever removes the file does so while holding the lock. */
static int sys_lock(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    int *fd = lua_newuserdatauv(L, sizeof *fd, 0);

    *fd = -1;
    luaL_setmetatable(L, LOCK_MT);
    *fd = open_locked(path);
    return *fd < 0 ? push_errno(L, path) : 1;
}

/* exe() -> absolute path of the running program | nil, err. */
static int sys_exe(lua_State *L)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path);

    if (n < 0)
        return push_errno(L, "/proc/self/exe");
    lua_pushlstring(L, path, (size_t)n);
    return 1;
}

/* trim(): gives freed memory back to the kernel. */
static int sys_trim(lua_State *L)
{
    (void)L;
    malloc_trim(0);
    return 0;
}

/* isatty(fd) -> whether the descriptor is a terminal. */
static int sys_isatty(lua_State *L)
{
    lua_pushboolean(L, isatty((int)luaL_checkinteger(L, 1)));
    return 1;
}

int sr_lua_open_sys(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"getenv", sys_getenv}, {"home", sys_home},     {"uid", sys_uid},
        {"cpus", sys_cpus},     {"mkdir_p", sys_mkdir_p}, {"stat", sys_stat},
        {"random_hex", sys_random_hex}, {"digest", sys_digest}, {"log", sys_log},
        {"lock", sys_lock},     {"list", sys_list},     {"exe", sys_exe},
        {"isatty", sys_isatty}, {"trim", sys_trim},     {NULL, NULL}};
    static const luaL_Reg lock_meta[] = {
        {"__gc", lock_close}, {"__close", lock_close}, {NULL, NULL}};

    luaL_newmetatable(L, DIR_MT);
    lua_pushcfunction(L, dir_close);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    luaL_newmetatable(L, LOCK_MT);
    luaL_setfuncs(L, lock_meta, 0);
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, lock_close);
    lua_setfield(L, -2, "close");
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    luaL_newlib(L, functions);
    return 1;
}
