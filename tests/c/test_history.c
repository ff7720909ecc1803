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

static struct sr_history_text text(const char *s)
{
    return (struct sr_history_text){s, strlen(s)};
}

static struct sr_history_row plain_row(void)
{
    return (struct sr_history_row){
        .timestamp = 1700000000.25,
        .language = text("python"),
        .code_snippet = text("print(1)"),
        .status = text("ok"),
        .duration_ms = 12.5,
    };
}

static struct sr_history *must_open(void)
{
    struct sr_history *h = NULL;
    struct sr_err err = {0};

    if (sr_history_open(&h, path, &err) < 0)
        fail_msg("%s", err.msg);
    return h;
}

static int64_t must_add(struct sr_history *h)
{
    struct sr_history_row row = plain_row();
    struct sr_err err = {0};
    int64_t id = -1;

    if (sr_history_add(h, &row, &id, &err) < 0)
        fail_msg("%s", err.msg);
    return id;
}

static int64_t count(struct sr_history *h)
{
    int64_t n = -1;

    assert_int_equal(sr_history_count(h, &n, NULL), 0);
    return n;
}

static void assert_open_fails(enum sr_code code)
{
    struct sr_history *h = NULL;
    struct sr_err err = {0};

    assert_int_equal(sr_history_open(&h, path, &err), -1);
    assert_null(h);
    if (err.code != code)
        fail_msg("%s: %s", sr_code_name(err.code), err.msg);
}

static void write_file(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(name, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Runs SQL on the file through SQLite itself. */
static void run_sql(const char *sql)
{
    sqlite3 *db = NULL;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void assert_text(struct sr_history_text got, const char *want, size_t n)
{
    assert_non_null(got.data);
    assert_int_equal(got.len, n);
    assert_memory_equal(got.data, want, n);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct sr_history *h = must_open();
    struct sr_history_rows rows;
    struct sr_history_row row = plain_row();
    int64_t id;

    must_add(h);
    row.code_snippet = (struct sr_history_text){"a\0b'); DROP TABLE runs;--\xC3\xA9", 26};
    row.exit_code = (struct sr_history_int){true, -9};
    row.stdout_size = INT64_C(1) << 40;
    row.run_id = text("r1");
    row.reason = text("");
    row.cpu_ms = (struct sr_history_real){true, 1.25};
    row.peak_memory_bytes = (struct sr_history_int){true, 0};
    row.truncated = (struct sr_history_int){true, 1};
    row.timeout_seconds = (struct sr_history_real){true, 30};
    assert_int_equal(sr_history_add(h, &row, &id, NULL), 0);
    assert_int_equal(id, 2);
    sr_history_close(h);

    h = must_open();
    assert_int_equal(sr_history_recent(h, 10, &rows, NULL), 0);
    assert_int_equal(rows.n, 2);
    assert_int_equal(rows.rows[0].id, 2);
    assert_text(rows.rows[0].code_snippet, row.code_snippet.data, 26);
    assert_text(rows.rows[0].run_id, "r1", 2);
    assert_text(rows.rows[0].reason, "", 0);
    assert_null(rows.rows[0].signal.data);
    assert_true(rows.rows[0].exit_code.set && rows.rows[0].exit_code.value == -9);
    assert_true(rows.rows[0].stdout_size == INT64_C(1) << 40);
    assert_true(rows.rows[0].cpu_ms.set && rows.rows[0].cpu_ms.value == 1.25);
    assert_true(rows.rows[0].peak_memory_bytes.set && rows.rows[0].truncated.value == 1);
    assert_true(rows.rows[0].timeout_seconds.value == 30);
    assert_true(rows.rows[1].timestamp == 1700000000.25 && rows.rows[1].duration_ms == 12.5);
    assert_text(rows.rows[1].language, "python", 6);
    assert_false(rows.rows[1].exit_code.set || rows.rows[1].truncated.set);
    sr_history_rows_clear(&rows);
    sr_history_close(h);
}

static void test_limits_of_recent(void **state)
{
    (void)state;
    struct sr_history *h = must_open();
    struct sr_history_rows rows;

    for (int i = 0; i < SR_HISTORY_RECENT_MAX + 5; i++)
        must_add(h);
    assert_int_equal(sr_history_recent(h, INT64_MAX, &rows, NULL), 0);
    assert_int_equal(rows.n, SR_HISTORY_RECENT_MAX);
    sr_history_rows_clear(&rows);
    assert_int_equal(sr_history_recent(h, -1, &rows, NULL), 0);
    assert_int_equal(rows.n, 0);
    sr_history_rows_clear(&rows);
    assert_int_equal(sr_history_recent(h, 3, &rows, NULL), 0);
    assert_int_equal(rows.n, 3);
    assert_int_equal(rows.rows[2].id, SR_HISTORY_RECENT_MAX + 3);
    sr_history_rows_clear(&rows);
    sr_history_close(h);
}

static void test_bad_rows(void **state)
{
    (void)state;
    struct sr_history *h = must_open();
    struct sr_history_row row = plain_row();
    struct sr_err err;
    int64_t id;

    row.duration_ms = NAN;
    assert_int_equal(sr_history_add(h, &row, &id, &err), -1);
    assert_int_equal(err.code, SR_INVALID);
    row = plain_row();
    row.language.data = NULL;
    assert_int_equal(sr_history_add(h, &row, &id, &err), -1);
    assert_int_equal(err.code, SR_INVALID);
    must_add(h);
    assert_int_equal(count(h), 1);
    sr_history_close(h);
}

static void test_private_file(void **state)
{
    (void)state;
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    mode_t old = umask(0);
    struct sr_history *h = must_open();

    must_add(h);
    for (size_t i = 0; i < 3; i++) {
        char name[300];
        struct stat st;

        snprintf(name, sizeof name, "%s%s", path, suffixes[i]);
        assert_int_equal(stat(name, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
    }
    sr_history_close(h);
    umask(old);
}

static void test_extends_a_python_file(void **state)
{
    (void)state;
    struct sr_history *h;
    struct sr_history_rows rows;
    struct stat st;

    run_sql(PYTHON_SCHEMA "INSERT INTO runs (timestamp, language, code_snippet, status, exit_code,"
            " duration_ms, stdout_size) VALUES (1.5, 'cpp', 'int main(){}', 'success', 0, 3.5, 7),"
            " (2.5, 'python', 'x', 'timeout', NULL, 4.5, 0)");
    assert_int_equal(chmod(path, 0644), 0);
    h = must_open();
    assert_int_equal(must_add(h), 3);
    assert_int_equal(sr_history_recent(h, 10, &rows, NULL), 0);
    assert_int_equal(rows.n, 3);
    assert_text(rows.rows[2].code_snippet, "int main(){}", 12);
    assert_true(rows.rows[2].exit_code.set && rows.rows[2].stdout_size == 7);
    assert_false(rows.rows[1].exit_code.set);
    assert_null(rows.rows[1].run_id.data);
    sr_history_rows_clear(&rows);
    sr_history_close(h);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    /* the old server can still write */
    run_sql("INSERT INTO runs (timestamp, language, code_snippet, status, duration_ms)"
            " VALUES (3, 'c', 'y', 'success', 1)");
    h = must_open();
    assert_int_equal(count(h), 4);
    sr_history_close(h);
}

static void test_completes_a_half_extended_file(void **state)
{
    (void)state;
    run_sql(PYTHON_SCHEMA "ALTER TABLE runs ADD COLUMN reason TEXT");
    sr_history_close(must_open());
    sr_history_close(must_open());
}

static char *slurp(size_t *n)
{
    FILE *f = fopen(path, "r");
    char *data = malloc(1 << 20);

    assert_non_null(f);
    assert_non_null(data);
    *n = fread(data, 1, 1 << 20, f);
    fclose(f);
    return data;
}

/* What is healthy but not ours is refused, and not a byte of it changes. */
static void test_leaves_others_alone(void **state)
{
    (void)state;
    static const char *const files[] = {
        "CREATE TABLE bookmarks (url TEXT)",
        "CREATE TABLE runs (id INTEGER PRIMARY KEY, timestamp REAL)",
        "CREATE TABLE other (x); CREATE VIEW runs AS SELECT * FROM other",
        PYTHON_SCHEMA "PRAGMA user_version = 2",
        PYTHON_SCHEMA "PRAGMA user_version = 1",
        "PRAGMA user_version = 9; CREATE TABLE x (a); DROP TABLE x",
        ("CREATE TABLE runs (id TEXT, timestamp, language, code_snippet, status, exit_code,"
         " duration_ms, stdout_size, stderr_size)"),
    };

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        size_t n, m;
        char *before, *after;

        run_sql(files[i]);
        before = slurp(&n);
        assert_open_fails(SR_INVALID);
        after = slurp(&m);
        assert_int_equal(n, m);
        assert_memory_equal(before, after, n);
        free(before);
        free(after);
        unlink(path);
    }
}

static void test_refuses_odd_paths(void **state)
{
    (void)state;
    char target[256];
    struct stat st;

    snprintf(target, sizeof target, "%s/target", folder);
    write_file(target, "", 0);
    assert_int_equal(symlink(target, path), 0);
    assert_open_fails(SR_INVALID);
    assert_int_equal(stat(target, &st), 0);
    assert_int_equal(st.st_size, 0);
    unlink(target);
    assert_open_fails(SR_INVALID); /* dangling */
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_open_fails(SR_INVALID);
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_open_fails(SR_INVALID);
    rmdir(path);
    snprintf(path, sizeof path, "%s/", folder);
    assert_open_fails(SR_INVALID);
    snprintf(path, sizeof path, "%s/none/history.db", folder);
    assert_open_fails(SR_UNAVAILABLE);
    path[0] = '\0';
    assert_open_fails(SR_INVALID);
}

/* A link in the folder part is the user's business. */
static void test_follows_a_linked_folder(void **state)
{
    (void)state;
    char link[192];

    snprintf(link, sizeof link, "%s/link", folder);
    assert_int_equal(symlink(folder, link), 0);
    snprintf(path, sizeof path, "%s/history.db", link);
    sr_history_close(must_open());
    snprintf(link, sizeof link, "%s/history.db", folder);
    assert_int_equal(access(link, F_OK), 0);
}

static void test_damaged_files(void **state)
{
    (void)state;
    char junk[8192];
    struct sr_history *h;
    FILE *f;

    memset(junk, 'x', sizeof junk);
    write_file(path, junk, 3);
    assert_open_fails(SR_CORRUPT);
    write_file(path, junk, sizeof junk);
    assert_open_fails(SR_CORRUPT);
    unlink(path);

    h = must_open();
    for (int i = 0; i < 500; i++)
        must_add(h);
    sr_history_close(h);
    f = fopen(path, "r+");
    assert_non_null(f);
    fseek(f, 4096 + 100, SEEK_SET);
    fwrite(junk, 1, sizeof junk, f);
    fclose(f);
    assert_open_fails(SR_CORRUPT);

    write_file(path, "", 0); /* empty = new */
    h = must_open();
    assert_int_equal(must_add(h), 1);
    sr_history_close(h);
}

/* Random damage: any answer but a crash, and no lie about locks. */
static void test_random_damage(void **state)
{
    (void)state;
    size_t n;
    char *good;
    struct sr_history *h = must_open();

    for (int i = 0; i < 100; i++)
        must_add(h);
    sr_history_close(h);
    good = slurp(&n);
    srand(7);
    for (int round = 0; round < 150; round++) {
        struct sr_history_row row = plain_row();
        struct sr_history_rows rows;
        struct sr_err err = {0};
        int64_t id;
        char *bad = malloc(n);

        assert_non_null(bad);
        memcpy(bad, good, n);
        for (int i = 0; i < 1 + round % 20; i++)
            bad[(size_t)rand() % (round % 2 ? n : 120)] = (char)rand();
        write_file(path, bad, n);
        free(bad);
        if (sr_history_open(&h, path, &err) == 0) {
            if (sr_history_recent(h, 1000, &rows, &err) == 0)
                sr_history_rows_clear(&rows);
            sr_history_add(h, &row, &id, &err);
            sr_history_prune(h, 10, &id, &err);
            sr_history_close(h);
        }
        assert_int_not_equal(err.code, SR_UNAVAILABLE);
    }
    free(good);
}

static void test_set_aside(void **state)
{
    (void)state;
    char first[320], second[320], wal[400];
    struct sr_err err;

    assert_int_equal(sr_history_set_aside(path, first, sizeof first, &err), -1);
    assert_int_equal(err.code, SR_NOT_FOUND);
    write_file(path, "junk", 4);
    snprintf(wal, sizeof wal, "%s-wal", path);
    write_file(wal, "wal", 3);
    assert_int_equal(sr_history_set_aside(path, first, sizeof first, &err), 0);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(access(wal, F_OK), -1);
    snprintf(wal, sizeof wal, "%s-wal", first);
    assert_int_equal(access(wal, F_OK), 0);
    assert_int_equal(strncmp(first + strlen(path), ".corrupt-20", 11), 0);
    for (int i = 0; i < 3; i++) { /* within one second the names must differ */
        write_file(path, "junk", 4);
        assert_int_equal(sr_history_set_aside(path, second, sizeof second, &err), 0);
        assert_string_not_equal(first, second);
    }
    write_file(path, "junk", 4);
    assert_int_equal(sr_history_set_aside(path, second, 20, &err), -1);
    assert_int_equal(err.code, SR_INVALID);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void test_locked_is_not_corrupt(void **state)
{
    (void)state;
    struct sr_history *h = must_open();
    struct sr_history_row row = plain_row();
    struct sr_err err = {0};
    sqlite3 *db = NULL;
    double start;
    int64_t id;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    start = now();
    assert_int_equal(sr_history_add(h, &row, &id, &err), -1);
    assert_true(now() - start < 1.0);
    assert_int_equal(err.code, SR_UNAVAILABLE);
    assert_non_null(strstr(err.msg, "locked"));
    assert_int_equal(count(h), 0); /* reading goes on */
    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    sqlite3_close(db);
    must_add(h);
    sr_history_close(h);

    /* A file of the Python server, not yet WAL, being written right now. */
    unlink(path);
    run_sql(PYTHON_SCHEMA);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
    start = now();
    assert_open_fails(SR_UNAVAILABLE);
    sqlite3_exec(db, "COMMIT; BEGIN; SELECT * FROM runs", NULL, NULL, NULL);
    assert_open_fails(SR_UNAVAILABLE); /* readable, but the journal cannot be switched */
    assert_true(now() - start < 3.0);
    sqlite3_close(db);
    sr_history_close(must_open());
}

static void test_prune(void **state)
{
    (void)state;
    struct sr_history *h = must_open();
    struct sr_history_row row = plain_row();
    struct sr_history_rows rows;
    int64_t n;
    size_t size;
    char *data;

    for (int i = 0; i < 20; i++)
        must_add(h);
    assert_int_equal(sr_history_prune(h, 20, &n, NULL), 0);
    assert_int_equal(n, 0);
    assert_int_equal(sr_history_prune(h, 5, &n, NULL), 0);
    assert_int_equal(n, 15);
    assert_int_equal(sr_history_recent(h, 10, &rows, NULL), 0);
    assert_int_equal(rows.n, 5);
    assert_int_equal(rows.rows[4].id, 16);
    sr_history_rows_clear(&rows);

    row.code_snippet = text("SECRET-TOKEN-42");
    assert_int_equal(sr_history_add(h, &row, &n, NULL), 0);
    assert_int_equal(sr_history_prune(h, 0, &n, NULL), 0);
    assert_int_equal(n, 6);
    assert_int_equal(count(h), 0);
    data = slurp(&size);
    assert_null(memmem(data, size, "SECRET", 6));
    free(data);
    strcat(path, "-wal");
    data = slurp(&size);
    assert_int_equal(size, 0);
    free(data);
    path[strlen(path) - 4] = '\0';
    assert_int_equal(must_add(h), 22); /* ids are not used again */
    assert_int_equal(sr_history_prune(h, -1, &n, NULL), -1);
    sr_history_close(h);
}

static void test_prune_in_batches(void **state)
{
    (void)state;
    struct sr_history *h;
    int64_t n;

    sr_history_close(must_open());
    run_sql("WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 25000)"
            " INSERT INTO runs (timestamp, language, code_snippet, status, duration_ms)"
            " SELECT i, 'c', 'x', 'ok', 1 FROM c");
    h = must_open();
    assert_int_equal(sr_history_prune(h, 100, &n, NULL), 0);
    assert_int_equal(n, SR_HISTORY_PRUNE_BATCH);
    assert_int_equal(sr_history_prune(h, 100, &n, NULL), 0);
    assert_int_equal(sr_history_prune(h, 100, &n, NULL), 0);
    assert_int_equal(n, 4900);
    assert_int_equal(count(h), 100);
    sr_history_close(h);
}

/* "Newest N" must walk the key from its end, not sort a million rows. */
static void test_query_plan(void **state)
{
    (void)state;
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    int lines = 0;

    sr_history_close(must_open());
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "EXPLAIN QUERY PLAN SELECT id, code_snippet FROM runs"
                                        " ORDER BY id DESC LIMIT 10", -1, &stmt, NULL), SQLITE_OK);
    for (; sqlite3_step(stmt) == SQLITE_ROW; lines++)
        assert_null(strstr((const char *)sqlite3_column_text(stmt, 3), "TEMP B-TREE"));
    assert_int_equal(lines, 1);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
}

/* Adds rows until killed, naming each id on fd once it is stored. */
static void add_for_ever(int fd)
{
    struct sr_history *h = NULL;
    struct sr_history_row row = plain_row();

    if (sr_history_open(&h, path, NULL) < 0)
        _exit(1);
    for (int64_t id;;)
        if (sr_history_add(h, &row, &id, NULL) < 0 || write(fd, &id, sizeof id) != sizeof id)
            _exit(1);
}

static void test_kill_loses_nothing(void **state)
{
    (void)state;
    for (int round = 0; round < 5; round++) {
        struct sr_history *h;
        struct sr_history_rows rows;
        int64_t id, last = 0;
        int fds[2], status;
        pid_t pid;

        assert_int_equal(pipe(fds), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            add_for_ever(fds[1]);
        close(fds[1]);
        for (int i = 0; i < 50 + 37 * round; i++)
            assert_int_equal(read(fds[0], &last, sizeof last), sizeof last);
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        assert_true(WIFSIGNALED(status));
        while (read(fds[0], &id, sizeof id) == sizeof id)
            last = id;
        close(fds[0]);

        h = must_open();
        assert_true(count(h) >= last);
        assert_int_equal(sr_history_recent(h, 1, &rows, NULL), 0);
        assert_true(rows.rows[0].id >= last);
        sr_history_rows_clear(&rows);
        sr_history_close(h);
    }
}

static void child_opens_and_adds(int n)
{
    struct sr_history *h = NULL;
    struct sr_history_row row = plain_row();
    struct sr_err err = {0};
    int64_t id;

    while (sr_history_open(&h, path, &err) < 0) { /* locked: the caller tries again */
        if (err.code != SR_UNAVAILABLE) {
            fprintf(stderr, "open: %s\n", err.msg);
            _exit(1);
        }
        usleep(20000);
    }
    while (n > 0) {
        if (sr_history_add(h, &row, &id, &err) == 0)
            n--;
        else if (err.code != SR_UNAVAILABLE)
            _exit(2);
    }
    sr_history_close(h);
    _exit(0);
}

/* Several servers start on one file, new or old, and write at once. */
static void test_many_processes(void **state)
{
    (void)state;
    enum { N = 4, ROWS = 100, ROUNDS = 10 };

    for (int round = 0; round < ROUNDS; round++) {
        struct sr_history *h;
        pid_t pids[N];

        unlink(path);
        if (round % 2)
            run_sql(PYTHON_SCHEMA);
        for (int i = 0; i < N; i++) {
            pids[i] = fork();
            assert_true(pids[i] >= 0);
            if (pids[i] == 0)
                child_opens_and_adds(ROWS);
        }
        for (int i = 0; i < N; i++) {
            int status = -1;

            waitpid(pids[i], &status, 0);
            assert_int_equal(status, 0);
        }
        h = must_open();
        assert_int_equal(count(h), N * ROWS);
        sr_history_close(h);
    }
}

static void test_two_connections_in_one_process(void **state)
{
    (void)state;
    struct sr_history *a = must_open(), *b = must_open();

    for (int i = 0; i < 100; i++) {
        must_add(a);
        must_add(b);
    }
    assert_int_equal(count(a), 200);
    sr_history_close(a);
    must_add(b);
    assert_int_equal(count(b), 201);
    sr_history_close(b);
}

/* RLIMIT_FSIZE stands in for a full disk: writes fail in the same places. */
static void test_full_disk(void **state)
{
    (void)state;
    static char big[40000];
    struct sr_history *h = must_open();
    struct sr_history_row row = plain_row();
    struct rlimit old, small;
    struct sr_err err = {0};
    int64_t id = 0, kept = 0;

    memset(big, 'x', sizeof big);
    row.code_snippet = (struct sr_history_text){big, sizeof big};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 400000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    while (kept < 1000 && sr_history_add(h, &row, &id, &err) == 0)
        kept++;
    setrlimit(RLIMIT_FSIZE, &old);
    assert_true(kept > 0 && kept < 1000);
    assert_int_equal(err.code, SR_UNAVAILABLE);
    assert_int_equal(count(h), kept);
    must_add(h);
    assert_int_equal(count(h), kept + 1);
    sr_history_close(h);
}

#define test_with_folder(f) cmocka_unit_test_setup_teardown(f, folder_setup, folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_with_folder(test_round_trip),
        test_with_folder(test_limits_of_recent),
        test_with_folder(test_bad_rows),
        test_with_folder(test_private_file),
        test_with_folder(test_extends_a_python_file),
        test_with_folder(test_completes_a_half_extended_file),
        test_with_folder(test_leaves_others_alone),
        test_with_folder(test_refuses_odd_paths),
        test_with_folder(test_follows_a_linked_folder),
        test_with_folder(test_damaged_files),
        test_with_folder(test_random_damage),
        test_with_folder(test_set_aside),
        test_with_folder(test_locked_is_not_corrupt),
        test_with_folder(test_prune),
        test_with_folder(test_prune_in_batches),
        test_with_folder(test_query_plan),
        test_with_folder(test_kill_loses_nothing),
        test_with_folder(test_many_processes),
        test_with_folder(test_two_connections_in_one_process),
        test_with_folder(test_full_disk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
