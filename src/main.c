/* main.c - the program: options, where the Lua files are, and one protected
 * call into sandbox_runner.app, which does the rest. */
#include <fcntl.h>
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <lua.h>
#include <lauxlib.h>
#include <lualib.h>
#include <malloc.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lua_bind.h"

#ifndef SR_PREFIX
#define SR_PREFIX "/usr/local"
#endif
#ifndef SR_VERSION
#define SR_VERSION "0.0.0"
#endif

#define EXIT_USAGE 64 /* EX_USAGE of sysexits.h */

static const char help[] =
    "usage: sandbox-runner [--config FILE] [--transport NAME [--host ADDRESS] [--port NUMBER]]\n"
    "       sandbox-runner --check-config | --get-images | --version | --help\n"
    "\n"
    "An MCP server that runs code snippets in disposable, locked-down containers.\n"
    "Without a command it speaks MCP (JSON-RPC, one message a line) on stdin and\n"
    "stdout until its input ends.\n"
    "\n"
    "  --config FILE    read this instead of the installed init.lua\n"
    "  --transport stdio|http|sse\n"
    "                   how clients reach it; http: Streamable HTTP at /mcp and the\n"
    "                   older HTTP+SSE at /sse and /messages/; sse: only the latter\n"
    "  --host ADDRESS   listen here, not at http.host of init.lua (127.0.0.1)\n"
    "  --port NUMBER    listen on this port, not on http.port (8000); 0 = any\n"
    "  --check-config   read the configuration, say whether it is sound, and end\n"
    "  --get-images     fetch or build the images that the languages need\n"
    "  --script FILE [ARG...]  run a Lua file in this host (tests, own tools)\n"
    "  --version        print the version\n"
    "  --help           print this\n"
    "\n"
    "Exit status: 0 fine, 1 trouble, 64 wrong usage, 78 a fault in the configuration.\n";

struct options {
    const char *config, *mode, *script;
    const char *transport, *host;
    int port; /* -1 = the configured one */
    char **script_args;
    int n_script_args;
};

/* value NULL: what is the whole text, else the text before it. */
static int wrong_usage(const char *what, const char *value)
{
    fprintf(stderr, "sandbox-runner: %s", what);
    if (value)
        fprintf(stderr, ", not \"%s\"", value);
    fputs("; try: sandbox-runner --help\n", stderr);
    return EXIT_USAGE;
}

/* Returns -1 when the options go together, or the exit status. */
static int check_options(struct options *o, const char *port)
{
    char *end;
    long n;

    if (strcmp(o->transport, "stdio") != 0 && strcmp(o->transport, "http") != 0 &&
        strcmp(o->transport, "sse") != 0)
        return wrong_usage("--transport is stdio, http or sse", o->transport);
    if ((o->host || port) && strcmp(o->transport, "stdio") == 0)
        return wrong_usage("--host and --port go with --transport http or sse", NULL);
    if (o->host && !*o->host)
        return wrong_usage("--host needs an address, such as 127.0.0.1", NULL);
    if (!port)
        return -1;
    n = strtol(port, &end, 10);
    if (*port < '0' || *port > '9' || *end || n > 65535)
        return wrong_usage("--port is a number from 0 to 65535", port);
    o->port = (int)n;
    return -1;
}

/* Returns -1 to go on, or the exit status. */
static int parse_options(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = {
        {"config", required_argument, NULL, 'c'},  {"check-config", no_argument, NULL, 'k'},
        {"get-images", no_argument, NULL, 'g'},    {"script", required_argument, NULL, 's'},
        {"version", no_argument, NULL, 'V'},       {"help", no_argument, NULL, 'h'},
        {"transport", required_argument, NULL, 't'}, {"host", required_argument, NULL, 'H'},
        {"port", required_argument, NULL, 'p'},    {NULL, 0, NULL, 0}};
    const char *port = NULL;
    int c;

    *o = (struct options){.mode = "serve", .transport = "stdio", .port = -1};
    while ((c = getopt_long(argc, argv, "+", longs, NULL)) != -1) {
        switch (c) {
        case 'c': o->config = optarg; break;
        case 'k': o->mode = "check-config"; break;
        case 'g': o->mode = "get-images"; break;
        case 't': o->transport = optarg; break;
        case 'H': o->host = optarg; break;
        case 'p': port = optarg; break;
        case 's':
            o->mode = "script";
            o->script = optarg;
            o->script_args = argv + optind;
            o->n_script_args = argc - optind;
            return -1;
        case 'V': puts("sandbox-runner " SR_VERSION); return 0;
        case 'h': fputs(help, stdout); return 0;
        default:
            fputs("try: sandbox-runner --help\n", stderr);
            return EXIT_USAGE;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "sandbox-runner: \"%s\" is no option; try: sandbox-runner --help\n",
                argv[optind]);
        return EXIT_USAGE;
    }
    return check_options(o, port);
}

/* The folder that holds lua/ and init.lua: beside the build folder of a source
 * tree, or share/sandbox-runner of an installation. Relative to the program, so
 * that a tree may be moved. */
static int find_share(char *out, size_t size)
{
    static const char *const below[] = {"/..", "/../..", "/../share/sandbox-runner"};
    char exe[PATH_MAX], place[PATH_MAX + 64], probe[PATH_MAX + 128], real[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    const char *dir;

    exe[n > 0 ? n : 0] = '\0';
    dir = n > 0 ? dirname(exe) : ".";
    for (size_t i = 0; i <= sizeof below / sizeof below[0]; i++) {
        if (i < sizeof below / sizeof below[0])
            snprintf(place, sizeof place, "%s%s", dir, below[i]);
        else
            snprintf(place, sizeof place, "%s/share/sandbox-runner", SR_PREFIX);
        snprintf(probe, sizeof probe, "%s/lua/sandbox_runner/app.lua", place);
        if (access(probe, R_OK) == 0 && realpath(place, real)) {
            snprintf(out, size, "%s", real);
            return 0;
        }
    }
    return -1;
}

static void set_paths(lua_State *L, const char *share, bool script)
{
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "path");
    /* The server loads nothing but its own files; a script may use the system's modules. */
    lua_pushfstring(L, "%s/lua/?.lua%s%s", share, script ? ";" : "",
                    script ? lua_tostring(L, -1) : "");
    lua_setfield(L, -3, "path");
    lua_pop(L, 1);
    if (!script) {
        lua_pushliteral(L, "");
        lua_setfield(L, -2, "cpath");
    }
    lua_getfield(L, -1, "preload");
    lua_pushcfunction(L, luaopen_sandbox_runner_core);
    lua_setfield(L, -2, "sandbox_runner.core");
    lua_pop(L, 2);
}

static int on_error(lua_State *L)
{
    const char *text = luaL_tolstring(L, 1, NULL);

    luaL_traceback(L, L, text, 1);
    return 1;
}

static int run_script(lua_State *L, const struct options *o)
{
    lua_createtable(L, o->n_script_args, 1);
    lua_pushstring(L, o->script);
    lua_rawseti(L, -2, 0);
    for (int i = 0; i < o->n_script_args; i++) {
        lua_pushstring(L, o->script_args[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setglobal(L, "arg");
    if (luaL_loadfile(L, o->script) != LUA_OK)
        return lua_error(L);
    lua_call(L, 0, 1);
    return 1;
}

/* Puts what app.main takes on the stack. */
static void push_options(lua_State *L, const struct options *o, const char *share)
{
    const struct { const char *name, *value; } texts[] = {
        {"mode", o->mode}, {"share", share}, {"config", o->config},
        {"transport", o->transport}, {"host", o->host}};

    lua_createtable(L, 0, 6);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        lua_pushstring(L, texts[i].value);
        lua_setfield(L, -2, texts[i].name);
    }
    if (o->port >= 0) {
        lua_pushinteger(L, o->port);
        lua_setfield(L, -2, "port");
    }
}

/* The arguments are (options, share); returns the exit status. */
static int protected_main(lua_State *L)
{
    const struct options *o = lua_touserdata(L, 1);
    const char *share = lua_touserdata(L, 2);

    luaL_openlibs(L);
    set_paths(L, share, o->script != NULL);
    if (o->script)
        return run_script(L, o);
    lua_getglobal(L, "require");
    lua_pushliteral(L, "sandbox_runner.app");
    lua_call(L, 1, 1);
    lua_getfield(L, -1, "main");
    push_options(L, o, share);
    lua_call(L, 1, 1);
    return 1;
}

/* A closed standard descriptor would be given to the next file that is opened,
 * and answers or log lines would go into that. */
static void open_standard_fds(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

static void harden(void)
{
    struct rlimit none = {0, 0};

    open_standard_fds();
    signal(SIGPIPE, SIG_IGN);
    setrlimit(RLIMIT_CORE, &none); /* code and output of others may be in memory */
    /* Large blocks go back to the kernel at once: a run's output is short-lived. */
    mallopt(M_MMAP_THRESHOLD, 64 * 1024);
    mallopt(M_TRIM_THRESHOLD, 128 * 1024);
}

int main(int argc, char **argv)
{
    struct options o;
    char share[PATH_MAX];
    int status = parse_options(argc, argv, &o);
    lua_State *L;

    if (status >= 0)
        return status;
    harden();
    if (find_share(share, sizeof share) < 0) {
        fputs("sandbox-runner: its Lua files are not where they should be (../lua beside the "
              "program, or " SR_PREFIX "/share/sandbox-runner); install again\n", stderr);
        return 1;
    }
    L = luaL_newstate();
    if (!L) {
        fputs("sandbox-runner: out of memory\n", stderr);
        return 1;
    }
    lua_pushcfunction(L, on_error);
    lua_pushcfunction(L, protected_main);
    lua_pushlightuserdata(L, &o);
    lua_pushlightuserdata(L, share);
    if (lua_pcall(L, 2, 1, 1) != LUA_OK) {
        fprintf(stderr, "sandbox-runner: %s\n", lua_tostring(L, -1));
        status = 1;
    } else {
        status = lua_isinteger(L, -1) ? (int)lua_tointeger(L, -1) : 0;
    }
    lua_close(L);
    return status;
}
