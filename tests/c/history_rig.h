/* history_rig.h - a history in a folder of its own, and files as others make them. */
#ifndef HISTORY_RIG_H
#define HISTORY_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <sqlite3.h> /* to make files as the Python server and others make them */

#include "folder_rig.h"
#include "history.h"

#define PYTHON_SCHEMA "CREATE TABLE runs (id INTEGER PRIMARY KEY AUTOINCREMENT," \
    " timestamp REAL NOT NULL, language TEXT NOT NULL, code_snippet TEXT NOT NULL," \
    " status TEXT NOT NULL, exit_code INTEGER, duration_ms REAL NOT NULL," \
    " stdout_size INTEGER NOT NULL DEFAULT 0, stderr_size INTEGER NOT NULL DEFAULT 0);"

static inline struct sr_history_text text(const char *s)
{
    return (struct sr_history_text){s, strlen(s)};
}

static inline struct sr_history_row plain_row(void)
{
    return (struct sr_history_row){
        .timestamp = 1700000000.25,
        .language = text("python"),
        .code_snippet = text("print(1)"),
        .status = text("ok"),
        .duration_ms = 12.5,
    };
}

static inline struct sr_history *must_open(void)
{
    struct sr_history *h = NULL;
    struct sr_err err = {0};

    if (sr_history_open(&h, path, &err) < 0)
        fail_msg("%s", err.msg);
    return h;
}

static inline int64_t must_add(struct sr_history *h)
{
    struct sr_history_row row = plain_row();
    struct sr_err err = {0};
    int64_t id = -1;

    if (sr_history_add(h, &row, &id, &err) < 0)
        fail_msg("%s", err.msg);
    return id;
}

static inline int64_t count(struct sr_history *h)
{
    int64_t n = -1;

    assert_int_equal(sr_history_count(h, &n, NULL), 0);
    return n;
}

static inline void assert_open_fails(enum sr_code code)
{
    struct sr_history *h = NULL;
    struct sr_err err = {0};

    assert_int_equal(sr_history_open(&h, path, &err), -1);
    assert_null(h);
    if (err.code != code)
        fail_msg("%s: %s", sr_code_name(err.code), err.msg);
}

static inline void assert_text(struct sr_history_text got, const char *want, size_t n)
{
    assert_non_null(got.data);
    assert_int_equal(got.len, n);
    assert_memory_equal(got.data, want, n);
}

static inline void write_file(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(name, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* The bytes of the file, for the caller to free. */
static inline char *slurp(size_t *n)
{
    FILE *f = fopen(path, "r");
    char *data = malloc(1 << 20);

    assert_non_null(f);
    assert_non_null(data);
    *n = fread(data, 1, 1 << 20, f);
    fclose(f);
    return data;
}

/* Runs SQL on the file through SQLite itself. */
static inline void run_sql(const char *sql)
{
    sqlite3 *db = NULL;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

#define test_with_folder(f) cmocka_unit_test_setup_teardown(f, folder_setup, folder_teardown)

#endif
