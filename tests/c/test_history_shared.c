/* One history and several who use it, and some who die. */
#include "history_rig.h"
#include "history_schema.h"

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
    assert_true(now() - start < 20); /* how long exactly: test_history_locks.c */
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
    assert_true(now() - start < 20);
    sqlite3_close(db);
    sr_history_close(must_open());
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

/* Makes the table, as another server would, when the last but one question is asked. */
static int make_table_meanwhile(unsigned type, void *done, void *stmt, void *sql)
{
    (void)type;
    (void)stmt;
    if (strstr(sql, "NOT LIKE") && !*(bool *)done) {
        *(bool *)done = true;
        run_sql(PYTHON_SCHEMA);
    }
    return 0;
}

/* What is found at a look holds for one moment, whatever others do in between. */
static void test_look_while_another_makes_the_table(void **state)
{
    (void)state;
    struct sr_err err = {0};
    sqlite3 *db = NULL;
    bool made = false, current = true;

    run_sql("PRAGMA journal_mode = WAL;");
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_trace_v2(db, SQLITE_TRACE_STMT, make_table_meanwhile, &made);
    if (sr_history_schema_check(db, &current, &err) < 0)
        fail_msg("%s", err.msg);
    assert_true(made);
    assert_false(current);
    assert_true(sqlite3_get_autocommit(db)); /* no transaction is left open */
    sqlite3_close(db);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_with_folder(test_locked_is_not_corrupt),
        test_with_folder(test_kill_loses_nothing),
        test_with_folder(test_many_processes),
        test_with_folder(test_look_while_another_makes_the_table),
        test_with_folder(test_two_connections_in_one_process),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
