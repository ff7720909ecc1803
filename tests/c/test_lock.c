/* sys.lock against an owner that removes the file just before ours is locked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include <lauxlib.h>
#include <lualib.h>

#include "lua_bind.h"

static char folder[64], path[96];
static int removals; /* how many of the next locks find the file gone */

/* Stands before the one of the C library. */
int flock(int fd, int operation)
{
    if (removals > 0) {
        removals--;
        unlink(path);
    }
    return (int)syscall(SYS_flock, fd, operation);
}

/* The code of the error, or "locked". */
static const char *try_lock(lua_State *L)
{
    lua_getfield(L, 1, "lock");
    lua_pushstring(L, path);
    lua_call(L, 1, 2);
    if (lua_isuserdata(L, -2)) {
        lua_pop(L, 1); /* the lock stays on the stack, and so held */
        return "locked";
    }
    lua_getfield(L, -1, "code");
    return lua_tostring(L, -1);
}

static lua_State *new_state(void)
{
    lua_State *L = luaL_newstate();

    assert_non_null(L);
    sr_lua_open_err(L);
    sr_lua_open_sys(L);
    return L;
}

static void test_removed_file_is_not_the_lock(void **state)
{
    lua_State *L = new_state();
    struct stat st;

    (void)state;
    removals = 3;
    assert_string_equal(try_lock(L), "locked");
    assert_int_equal(stat(path, &st), 0); /* the file that is there is the one that is locked */
    assert_string_equal(try_lock(L), "conflict");
    lua_close(L);
}

static void test_file_that_is_always_removed(void **state)
{
    lua_State *L = new_state();

    (void)state;
    removals = 1000;
    assert_string_equal(try_lock(L), "conflict");
    assert_true(removals > 900);
    removals = 0;
    assert_string_equal(try_lock(L), "locked");
    lua_close(L);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/sr-lock-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/lock", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_removed_file_is_not_the_lock, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_file_that_is_always_removed, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
