/* Rows of the history: in, out, and away again. */
#include "history_rig.h"

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

static void add_with_run_id(struct sr_history *h, const char *run_id)
{
    struct sr_history_row row = plain_row();
    int64_t id;

    row.run_id = text(run_id);
    assert_int_equal(sr_history_add(h, &row, &id, NULL), 0);
}

/* The id of the one row found; 0 for none. */
static int64_t found_id(struct sr_history_rows *rows)
{
    int64_t id = rows->n > 0 ? rows->rows[0].id : 0;

    assert_true(rows->n <= 1);
    sr_history_rows_clear(rows);
    return id;
}

static void test_one_row(void **state)
{
    (void)state;
    struct sr_history *h = must_open();
    struct sr_history_rows rows;

    assert_int_equal(sr_history_find(h, text("a"), &rows, NULL), 0);
    assert_int_equal(found_id(&rows), 0); /* no rows at all */
    add_with_run_id(h, "a");
    add_with_run_id(h, "b");
    add_with_run_id(h, "a");
    must_add(h);
    for (int64_t id = -1; id < 7; id++) {
        assert_int_equal(sr_history_get(h, id, &rows, NULL), 0);
        assert_int_equal(found_id(&rows), id >= 1 && id <= 4 ? id : 0);
    }
    assert_int_equal(sr_history_find(h, text("a"), &rows, NULL), 0);
    assert_text(rows.rows[0].code_snippet, "print(1)", 8);
    assert_int_equal(found_id(&rows), 3);
    assert_int_equal(sr_history_find(h, text("b"), &rows, NULL), 0);
    assert_int_equal(found_id(&rows), 2);
    assert_int_equal(sr_history_find(h, text("2"), &rows, NULL), 0);
    assert_int_equal(found_id(&rows), 0);
    run_sql("UPDATE sqlite_sequence SET seq = 10001");
    must_add(h); /* 10002: now "b", of row 2, is one too far away, and 3 is not */
    assert_int_equal(sr_history_find(h, text("b"), &rows, NULL), 0);
    assert_int_equal(found_id(&rows), 0);
    assert_int_equal(sr_history_find(h, text("a"), &rows, NULL), 0);
    assert_int_equal(found_id(&rows), 3);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_with_folder(test_round_trip),
        test_with_folder(test_limits_of_recent),
        test_with_folder(test_one_row),
        test_with_folder(test_bad_rows),
        test_with_folder(test_prune),
        test_with_folder(test_prune_in_batches),
        test_with_folder(test_query_plan),
        test_with_folder(test_full_disk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
