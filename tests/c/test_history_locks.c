/* How long the history waits for others that hold the file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <sqlite3.h> /* the others */

#include "folder_rig.h"
#include "history.h"

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct sr_history *must_open(void)
{
    struct sr_history *h = NULL;
    struct sr_err err = {0};

    if (sr_history_open(&h, path, &err) < 0)
        fail_msg("%s", err.msg);
    return h;
}

static int add(struct sr_history *h, struct sr_err *err)
{
    struct sr_history_row row = {.timestamp = 1, .language = {"c", 1}, .code_snippet = {"x", 1},
                                 .status = {"ok", 2}};
    int64_t id;

    return sr_history_add(h, &row, &id, err);
}

static sqlite3 *locker(const char *sql)
{
    sqlite3 *db = NULL;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    return db;
}

/* The shortest of some tries: the machine may be busy, and its disk too. */
static double shortest(double (*try)(size_t), size_t which, double limit)
{
    double best = 1e9;

    for (int i = 0; i < 8 && best > limit; i++) {
        double took = try(which);

        best = took < best ? took : best;
        unlink(path);
    }
    return best;
}

/* Each of the steps of an open meets another lock; the wait is for all of them. */
static double open_locked(size_t which)
{
    static const char *const locks[] = {
        "BEGIN EXCLUSIVE",                                         /* a rollback journal */
        "CREATE TABLE runs (x); BEGIN IMMEDIATE",                  /* ... that is read only */
        "PRAGMA journal_mode = WAL; PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE",
    };

    sqlite3 *db = locker(locks[which]);
    struct sr_history *h = NULL;
    struct sr_err err = {0};
    double start = now(), took;

    assert_int_equal(sr_history_open(&h, path, &err), -1);
    took = now() - start;
    if (which == 1) { /* the table is not ours: found without waiting for the writer */
        assert_int_equal(err.code, SR_INVALID);
    } else {
        assert_int_equal(err.code, SR_UNAVAILABLE);
        assert_non_null(strstr(err.msg, "locked"));
    }
    sqlite3_close(db);
    return took;
}

static void test_open_gives_up_in_time(void **state)
{
    (void)state;
    for (size_t which = 0; which < 3; which++) {
        double took = shortest(open_locked, which, 0.5);

        if (took > 0.5)
            fail_msg("lock %zu: %.2f s", which, took);
    }
}

/* The lock comes and goes: what is left of the time is what the last step gets. */
static double switch_locked(size_t which)
{
    sqlite3 *db = locker("CREATE TABLE runs (id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp REAL"
                         " NOT NULL, language TEXT NOT NULL, code_snippet TEXT NOT NULL, status TEXT"
                         " NOT NULL, exit_code INTEGER, duration_ms REAL NOT NULL, stdout_size"
                         " INTEGER NOT NULL DEFAULT 0, stderr_size INTEGER NOT NULL DEFAULT 0);"
                         " BEGIN IMMEDIATE"); /* readers are let in, the switch is not */
    struct sr_history *h = NULL;
    struct sr_err err = {0};
    double start = now(), took;

    (void)which;
    assert_int_equal(sr_history_open(&h, path, &err), -1);
    took = now() - start;
    assert_int_equal(err.code, SR_UNAVAILABLE);
    assert_non_null(strstr(err.msg, "locked"));
    sqlite3_close(db);
    sr_history_close(must_open());
    return took;
}

static void test_switching_the_journal_counts_too(void **state)
{
    double took = shortest(switch_locked, 0, 0.5);

    (void)state;
    if (took > 0.5)
        fail_msg("%.2f s", took);
}

static double add_locked(size_t which)
{
    struct sr_history *h = must_open();
    sqlite3 *db = locker("BEGIN IMMEDIATE");
    struct sr_err err = {0};
    double start = now(), took;

    (void)which;
    assert_int_equal(add(h, &err), -1);
    took = now() - start;
    assert_int_equal(err.code, SR_UNAVAILABLE);
    assert_true(took > 0.015); /* others come and go */
    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    assert_int_equal(add(h, &err), 0);
    sqlite3_close(db);
    sr_history_close(h);
    return took;
}

static void test_add_gives_up_in_time(void **state)
{
    double took = shortest(add_locked, 0, 0.3);

    (void)state;
    if (took > 0.3) /* nobody is held up */
        fail_msg("%.2f s", took);
}

static double close_locked(size_t which)
{
    struct sr_history *h = must_open();
    sqlite3 *db = locker("BEGIN IMMEDIATE");
    struct sr_err err = {0};
    double start, took;

    (void)which;
    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    assert_int_equal(add(h, &err), 0);
    sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    start = now();
    sr_history_close(h);
    took = now() - start;
    sqlite3_close(db);
    return took;
}

static void test_close_does_not_wait(void **state)
{
    double took = shortest(close_locked, 0, 0.1);

    (void)state;
    if (took > 0.1)
        fail_msg("%.2f s", took);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, folder_setup, folder_teardown)
    const struct CMUnitTest tests[] = {
        T(test_open_gives_up_in_time),
        T(test_switching_the_journal_counts_too),
        T(test_add_gives_up_in_time),
        T(test_close_does_not_wait),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
