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

/* Each of the steps of an open meets another lock; the wait is for all of them. */
static void test_open_gives_up_in_time(void **state)
{
    static const char *const locks[] = {
        "BEGIN EXCLUSIVE",                                         /* a rollback journal */
        "CREATE TABLE runs (x); BEGIN IMMEDIATE",                  /* ... that is read only */
        "PRAGMA journal_mode = WAL; PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE",
    };

    (void)state;
    for (size_t i = 0; i < sizeof locks / sizeof locks[0]; i++) {
        sqlite3 *db = locker(locks[i]);
        struct sr_history *h = NULL;
        struct sr_err err = {0};
        double start = now();

        if (i == 1) { /* the table is not ours: found without waiting for the writer */
            assert_int_equal(sr_history_open(&h, path, &err), -1);
            assert_int_equal(err.code, SR_INVALID);
        } else {
            assert_int_equal(sr_history_open(&h, path, &err), -1);
            assert_int_equal(err.code, SR_UNAVAILABLE);
            assert_non_null(strstr(err.msg, "locked"));
        }
        if (now() - start > 0.5)
            fail_msg("%s: %.2f s", locks[i], now() - start);
        sqlite3_close(db);
        unlink(path);
    }
}

/* The lock comes and goes: what is left of the time is what the last step gets. */
static void test_switching_the_journal_counts_too(void **state)
{
    sqlite3 *db = locker("CREATE TABLE runs (id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp REAL"
                         " NOT NULL, language TEXT NOT NULL, code_snippet TEXT NOT NULL, status TEXT"
                         " NOT NULL, exit_code INTEGER, duration_ms REAL NOT NULL, stdout_size"
                         " INTEGER NOT NULL DEFAULT 0, stderr_size INTEGER NOT NULL DEFAULT 0);"
                         " BEGIN IMMEDIATE"); /* readers are let in, the switch is not */
    struct sr_history *h = NULL;
    struct sr_err err = {0};
    double start = now();

    (void)state;
    assert_int_equal(sr_history_open(&h, path, &err), -1);
    assert_int_equal(err.code, SR_UNAVAILABLE);
    assert_non_null(strstr(err.msg, "locked"));
    if (now() - start > 0.5)
        fail_msg("%.2f s", now() - start);
    sqlite3_close(db);
    sr_history_close(must_open());
}

static void test_add_gives_up_in_time(void **state)
{
    struct sr_history *h = must_open();
    sqlite3 *db = locker("BEGIN IMMEDIATE");
    struct sr_err err = {0};
    double start = now();

    (void)state;
    assert_int_equal(add(h, &err), -1);
    assert_int_equal(err.code, SR_UNAVAILABLE);
    assert_true(now() - start > 0.015); /* others come and go */
    assert_true(now() - start < 0.3);   /* but nobody is held up */
    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    assert_int_equal(add(h, &err), 0);
    sqlite3_close(db);
    sr_history_close(h);
}

static void test_close_does_not_wait(void **state)
{
    double best = 1e9;

    (void)state;
    for (int i = 0; i < 5; i++) { /* the machine may be busy */
        struct sr_history *h = must_open();
        sqlite3 *db = locker("BEGIN IMMEDIATE");
        struct sr_err err = {0};
        double start;

        sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
        assert_int_equal(add(h, &err), 0);
        sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
        start = now();
        sr_history_close(h);
        best = now() - start < best ? now() - start : best;
        sqlite3_close(db);
    }
    if (best > 0.1)
        fail_msg("%.2f s", best);
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
