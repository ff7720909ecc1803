#include "history.h"

#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "history_file.h"
#include "history_schema.h"

/* For locks, in all: whoever serves is held up meanwhile. Callers that can wait
 * without that try again on SR_UNAVAILABLE. */
#define OPEN_WAIT_MS 40
#define WAIT_MS 20 /* the same for one call later */
#define RETRY_MS 20
#define CHECK_MAX (16 << 20)   /* bytes; larger files are not checked at open */
#define RECENT_BYTES (32 << 20)

enum col {
    COL_ID, COL_TIMESTAMP, COL_LANGUAGE, COL_CODE, COL_STATUS, COL_EXIT, COL_DURATION, COL_STDOUT,
    COL_STDERR, COL_RUN_ID, COL_REASON, COL_SIGNAL, COL_CPU, COL_PEAK, COL_TRUNCATED, COL_IMAGE,
    COL_TIMEOUT
};

#define READ_COLUMNS "timestamp, language, code_snippet, status, exit_code, duration_ms," \
    " stdout_size, stderr_size, run_id, reason, signal, cpu_ms, peak_memory_bytes, truncated," \
    " image, timeout_seconds"

enum { ADD, RECENT, GET, FIND, COUNT, SPAN, PRUNE, N_STATEMENTS };

static const char *const statements[N_STATEMENTS] = {
    [ADD] = ("INSERT INTO runs (" READ_COLUMNS ")"
             " VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16)"),
    [RECENT] = "SELECT id, " READ_COLUMNS " FROM runs ORDER BY id DESC LIMIT ?1",
    [GET] = "SELECT id, " READ_COLUMNS " FROM runs WHERE id = ?1",
    [FIND] = ("SELECT id, " READ_COLUMNS " FROM runs WHERE run_id = ?1"
              " AND id > (SELECT max(id) FROM runs) - ?2 ORDER BY id DESC LIMIT 1"),
    [COUNT] = "SELECT count(*) FROM runs",
    [SPAN] = "SELECT coalesce((SELECT max(id) FROM runs) - (SELECT min(id) FROM runs) + 1, 0)",
    [PRUNE] = ("DELETE FROM runs WHERE id IN (SELECT id FROM runs WHERE id <="
               " (SELECT id FROM runs ORDER BY id DESC LIMIT 1 OFFSET ?1) ORDER BY id LIMIT ?2)"),
};

struct sr_history {
    sqlite3 *db;
    sqlite3_stmt *stmt[N_STATEMENTS];
    int64_t give_up_ms; /* when the call that goes on stops waiting for locks */
};

static int64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void may_wait(struct sr_history *h, int ms)
{
    h->give_up_ms = now_ms() + ms;
}

/* SQLite's own busy timeout counts anew for each lock; this one is for the call. */
static int on_busy(void *ud, int count)
{
    const struct sr_history *h = ud;

    (void)count;
    if (now_ms() + RETRY_MS > h->give_up_ms)
        return 0;
    sqlite3_sleep(RETRY_MS);
    return 1;
}

static int connect_db(struct sr_history *h, const char *path, struct sr_err *err)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE;
    int rc = sqlite3_open_v2(path, &h->db, flags, NULL);

    if (!h->db)
        return sr_err_set(err, SR_NO_MEMORY, "history: out of memory");
    if (rc != SQLITE_OK)
        return sr_history_fail(h->db, rc, "open the file", err);
    sqlite3_busy_handler(h->db, on_busy, h);
    sqlite3_db_config(h->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(h->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(h->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    sqlite3_db_config(h->db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
    sqlite3_limit(h->db, SQLITE_LIMIT_ATTACHED, 0);
    if (sqlite3_db_readonly(h->db, "main") == 1)
        return sr_err_set(err, SR_DENIED, "history: the file is not writable");
    return 0;
}

/* Cheap for small files only, and large ones show damage when it is met. */
static int check_pages(struct sr_history *h, struct sr_err *err)
{
    sqlite3_stmt *stmt = NULL;
    const unsigned char *text = NULL;
    int64_t size;
    int rc;

    if (sr_history_query_int(h->db, "SELECT page_count * page_size"
                             " FROM pragma_page_count, pragma_page_size", &size, err) < 0)
        return -1;
    if (size == 0 || size > CHECK_MAX)
        return 0;
    rc = sqlite3_prepare_v2(h->db, "PRAGMA quick_check(1)", -1, &stmt, NULL);
    if (rc == SQLITE_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW)
        text = sqlite3_column_text(stmt, 0);
    if (rc != SQLITE_ROW)
        sr_history_fail(h->db, rc, "check the file", err);
    else if (!text || strcmp((const char *)text, "ok") != 0)
        rc = sr_err_set(err, SR_CORRUPT, "history: the file is damaged: %s",
                        text ? (const char *)text : "unknown");
    sqlite3_finalize(stmt);
    return rc == SQLITE_ROW ? 0 : -1;
}

/* One attempt; *wal tells what the mode is now. */
static int try_wal(struct sr_history *h, bool *wal)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(h->db, "PRAGMA journal_mode = WAL", -1, &stmt, NULL);

    if (rc == SQLITE_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        const char *mode = (const char *)sqlite3_column_text(stmt, 0);

        *wal = mode && strcmp(mode, "wal") == 0;
    }
    sqlite3_finalize(stmt);
    return rc;
}

/* WAL lets readers and one writer work side by side and makes a commit free of
 * fsync; where the file system cannot do it, only FULL keeps what was told. */
static int set_modes(struct sr_history *h, struct sr_err *err)
{
    bool wal = false;
    int rc;

    /* SQLite gives up at once, without its busy handler, where two processes
     * switch the mode of one file against each other: so the waiting is here. */
    sqlite3_busy_timeout(h->db, 0);
    do
        rc = try_wal(h, &wal);
    while ((rc & 0xFF) == SQLITE_BUSY && on_busy(h, 0));
    sqlite3_busy_handler(h->db, on_busy, h);
    if (rc != SQLITE_ROW)
        return sr_history_fail(h->db, rc, "switch its journal", err);
    if (sr_history_exec(h->db, "PRAGMA secure_delete = ON; PRAGMA cell_size_check = ON",
                        "set its modes", err) < 0)
        return -1;
    return sr_history_exec(h->db, wal ? "PRAGMA synchronous = NORMAL" : "PRAGMA synchronous = FULL",
                           "set its modes", err);
}

static int prepare_statements(struct sr_history *h, struct sr_err *err)
{
    for (int i = 0; i < N_STATEMENTS; i++) {
        int rc = sqlite3_prepare_v3(h->db, statements[i], -1, SQLITE_PREPARE_PERSISTENT,
                                    &h->stmt[i], NULL);

        if (rc != SQLITE_OK)
            return sr_history_fail(h->db, rc, "prepare", err);
    }
    return 0;
}

int sr_history_open(struct sr_history **out, const char *path, struct sr_err *err)
{
    char full[SR_HISTORY_PATH];
    bool current;
    struct sr_history *h;

    if (sr_history_file_resolve(path, full, err) < 0 || sr_history_file_create(full, err) < 0)
        return -1;
    h = calloc(1, sizeof *h);
    if (!h)
        return sr_err_set(err, SR_NO_MEMORY, "history: out of memory");
    may_wait(h, OPEN_WAIT_MS);
    if (connect_db(h, full, err) < 0 || sr_history_schema_check(h->db, &current, err) < 0 ||
        check_pages(h, err) < 0)
        goto fail;
    sr_history_file_narrow(full);
    if (set_modes(h, err) < 0 || (!current && sr_history_schema_migrate(h->db, err) < 0) ||
        prepare_statements(h, err) < 0)
        goto fail;
    *out = h;
    return 0;
fail:
    sr_history_close(h);
    return -1;
}

void sr_history_close(struct sr_history *h)
{
    if (!h)
        return;
    /* The last one to close empties the WAL anyway; this does it also while
     * other servers keep the file open, when it can without waiting. */
    sqlite3_busy_timeout(h->db, 0);
    if (h->stmt[N_STATEMENTS - 1])
        sqlite3_wal_checkpoint_v2(h->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    for (int i = 0; i < N_STATEMENTS; i++)
        sqlite3_finalize(h->stmt[i]);
    sqlite3_close(h->db);
    free(h);
}

static void bind_text(sqlite3_stmt *stmt, int at, struct sr_history_text text)
{
    if (text.data)
        sqlite3_bind_text64(stmt, at, text.data, text.len, SQLITE_STATIC, SQLITE_UTF8);
    else
        sqlite3_bind_null(stmt, at);
}

static void bind_int(sqlite3_stmt *stmt, int at, struct sr_history_int v)
{
    if (v.set)
        sqlite3_bind_int64(stmt, at, v.value);
}

static void bind_real(sqlite3_stmt *stmt, int at, struct sr_history_real v)
{
    if (v.set)
        sqlite3_bind_double(stmt, at, v.value);
}

/* A bind that fails (too long a text) leaves NULL there: NOT NULL or the
 * length check of the caller catches the required ones. */
static void bind_row(sqlite3_stmt *stmt, const struct sr_history_row *row)
{
    sqlite3_bind_double(stmt, COL_TIMESTAMP, row->timestamp);
    bind_text(stmt, COL_LANGUAGE, row->language);
    bind_text(stmt, COL_CODE, row->code_snippet);
    bind_text(stmt, COL_STATUS, row->status);
    bind_int(stmt, COL_EXIT, row->exit_code);
    sqlite3_bind_double(stmt, COL_DURATION, row->duration_ms);
    sqlite3_bind_int64(stmt, COL_STDOUT, row->stdout_size);
    sqlite3_bind_int64(stmt, COL_STDERR, row->stderr_size);
    bind_text(stmt, COL_RUN_ID, row->run_id);
    bind_text(stmt, COL_REASON, row->reason);
    bind_text(stmt, COL_SIGNAL, row->signal);
    bind_real(stmt, COL_CPU, row->cpu_ms);
    bind_int(stmt, COL_PEAK, row->peak_memory_bytes);
    bind_int(stmt, COL_TRUNCATED, row->truncated);
    bind_text(stmt, COL_IMAGE, row->image);
    bind_real(stmt, COL_TIMEOUT, row->timeout_seconds);
}

/* SQLite would store NaN as NULL, and JSON has no infinity. */
static bool all_finite(const struct sr_history_row *row)
{
    return isfinite(row->timestamp) && isfinite(row->duration_ms) &&
           (!row->cpu_ms.set || isfinite(row->cpu_ms.value)) &&
           (!row->timeout_seconds.set || isfinite(row->timeout_seconds.value));
}

int sr_history_add(struct sr_history *h, const struct sr_history_row *row, int64_t *id,
                   struct sr_err *err)
{
    sqlite3_stmt *stmt = h->stmt[ADD];
    int rc;

    if (!all_finite(row))
        return sr_err_set(err, SR_INVALID, "history: a number of the run is not finite");
    may_wait(h, WAIT_MS);
    bind_row(stmt, row);
    rc = sqlite3_step(stmt);
    if (rc == SQLITE_DONE)
        *id = sqlite3_last_insert_rowid(h->db);
    else
        sr_history_fail(h->db, rc, "add a run", err);
    sqlite3_reset(stmt);
    sqlite3_clear_bindings(stmt); /* they point into *row */
    return rc == SQLITE_DONE ? 0 : -1;
}

/* The room for the texts of one row. */
struct store {
    char *at, *end;
};

static struct sr_history_text copy_text(sqlite3_stmt *stmt, enum col col, struct store *store)
{
    struct sr_history_text text = {0};
    const void *data = sqlite3_column_text(stmt, col);
    size_t n = (size_t)sqlite3_column_bytes(stmt, col);

    /* Room was measured by the same calls, but they convert and may fail. */
    if (!data || n > (size_t)(store->end - store->at))
        return text;
    memcpy(store->at, data, n);
    text.data = store->at;
    text.len = n;
    store->at += n;
    return text;
}

static struct sr_history_int int_of(sqlite3_stmt *stmt, enum col col)
{
    bool set = sqlite3_column_type(stmt, col) != SQLITE_NULL;

    return (struct sr_history_int){set, set ? sqlite3_column_int64(stmt, col) : 0};
}

static struct sr_history_real real_of(sqlite3_stmt *stmt, enum col col)
{
    bool set = sqlite3_column_type(stmt, col) != SQLITE_NULL;

    return (struct sr_history_real){set, set ? sqlite3_column_double(stmt, col) : 0};
}

/* Bytes of the row's texts, as text whatever their stored type. */
static size_t text_size(sqlite3_stmt *stmt)
{
    static const enum col texts[] = {COL_LANGUAGE, COL_CODE,   COL_STATUS, COL_RUN_ID,
                                     COL_REASON,   COL_SIGNAL, COL_IMAGE};
    size_t size = 0;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        sqlite3_column_text(stmt, texts[i]);
        size += (size_t)sqlite3_column_bytes(stmt, texts[i]);
    }
    return size;
}

/* Copies the current row; adds the size of its texts to *bytes. */
static int read_row(sqlite3_stmt *stmt, struct sr_history_row *row, size_t *bytes)
{
    size_t size = text_size(stmt);
    char *data = malloc(size + 1);
    struct store store;

    if (!data)
        return -1;
    store = (struct store){data, data + size};
    *bytes += size;
    *row = (struct sr_history_row){.store = data};
    row->id = sqlite3_column_int64(stmt, COL_ID);
    row->timestamp = sqlite3_column_double(stmt, COL_TIMESTAMP);
    row->language = copy_text(stmt, COL_LANGUAGE, &store);
    row->code_snippet = copy_text(stmt, COL_CODE, &store);
    row->status = copy_text(stmt, COL_STATUS, &store);
    row->exit_code = int_of(stmt, COL_EXIT);
    row->duration_ms = sqlite3_column_double(stmt, COL_DURATION);
    row->stdout_size = sqlite3_column_int64(stmt, COL_STDOUT);
    row->stderr_size = sqlite3_column_int64(stmt, COL_STDERR);
    row->run_id = copy_text(stmt, COL_RUN_ID, &store);
    row->reason = copy_text(stmt, COL_REASON, &store);
    row->signal = copy_text(stmt, COL_SIGNAL, &store);
    row->cpu_ms = real_of(stmt, COL_CPU);
    row->peak_memory_bytes = int_of(stmt, COL_PEAK);
    row->truncated = int_of(stmt, COL_TRUNCATED);
    row->image = copy_text(stmt, COL_IMAGE, &store);
    row->timeout_seconds = real_of(stmt, COL_TIMEOUT);
    return 0;
}

/* Reads what a bound query yields, `limit` rows at most, and resets it. */
static int read_rows(struct sr_history *h, sqlite3_stmt *stmt, int64_t limit,
                     struct sr_history_rows *out, struct sr_err *err)
{
    struct sr_history_rows rows = {.rows = calloc((size_t)limit + 1, sizeof *rows.rows)};
    size_t bytes = 0;
    int rc = SQLITE_NOMEM;

    while (rows.rows && (rc = sqlite3_step(stmt)) == SQLITE_ROW && bytes < RECENT_BYTES) {
        if (read_row(stmt, &rows.rows[rows.n], &bytes) < 0) {
            rc = SQLITE_NOMEM;
            break;
        }
        rows.n++;
    }
    if (rc != SQLITE_DONE && rc != SQLITE_ROW) {
        sr_history_fail(h->db, rc, "read runs", err);
        sr_history_rows_clear(&rows);
    }
    sqlite3_reset(stmt);
    if (!rows.rows)
        return -1;
    *out = rows;
    return 0;
}

int sr_history_recent(struct sr_history *h, int64_t limit, struct sr_history_rows *out,
                      struct sr_err *err)
{
    if (limit < 0)
        limit = 0;
    if (limit > SR_HISTORY_RECENT_MAX)
        limit = SR_HISTORY_RECENT_MAX;
    may_wait(h, WAIT_MS);
    sqlite3_bind_int64(h->stmt[RECENT], 1, limit);
    return read_rows(h, h->stmt[RECENT], limit, out, err);
}

int sr_history_get(struct sr_history *h, int64_t id, struct sr_history_rows *out,
                   struct sr_err *err)
{
    may_wait(h, WAIT_MS);
    sqlite3_bind_int64(h->stmt[GET], 1, id);
    return read_rows(h, h->stmt[GET], 1, out, err);
}

int sr_history_find(struct sr_history *h, struct sr_history_text run_id,
                    struct sr_history_rows *out, struct sr_err *err)
{
    int rc;

    may_wait(h, WAIT_MS);
    bind_text(h->stmt[FIND], 1, run_id);
    sqlite3_bind_int64(h->stmt[FIND], 2, SR_HISTORY_FIND_MAX);
    rc = read_rows(h, h->stmt[FIND], 1, out, err);
    sqlite3_clear_bindings(h->stmt[FIND]); /* they point into run_id */
    return rc;
}

void sr_history_rows_clear(struct sr_history_rows *rows)
{
    for (size_t i = 0; i < rows->n; i++)
        free(rows->rows[i].store);
    free(rows->rows);
    *rows = (struct sr_history_rows){0};
}

/* Runs a prepared query for one integer. */
static int step_int(struct sr_history *h, int which, int64_t *value, struct sr_err *err)
{
    sqlite3_stmt *stmt = h->stmt[which];
    int rc = sqlite3_step(stmt);

    if (rc == SQLITE_ROW)
        *value = sqlite3_column_int64(stmt, 0);
    else
        sr_history_fail(h->db, rc, "read runs", err);
    sqlite3_reset(stmt);
    return rc == SQLITE_ROW ? 0 : -1;
}

int sr_history_count(struct sr_history *h, int64_t *count, struct sr_err *err)
{
    may_wait(h, WAIT_MS);
    return step_int(h, COUNT, count, err);
}

int sr_history_prune(struct sr_history *h, int64_t max_rows, int64_t *deleted,
                     struct sr_err *err)
{
    sqlite3_stmt *stmt = h->stmt[PRUNE];
    int64_t span, n = 0;
    int rc;

    if (max_rows < 0)
        return sr_err_set(err, SR_INVALID, "history: cannot keep fewer than 0 runs");
    may_wait(h, WAIT_MS);
    if (step_int(h, SPAN, &span, err) < 0)
        return -1;
    if (span > max_rows) {
        sqlite3_bind_int64(stmt, 1, max_rows);
        sqlite3_bind_int64(stmt, 2, SR_HISTORY_PRUNE_BATCH);
        rc = sqlite3_step(stmt);
        if (rc != SQLITE_DONE)
            sr_history_fail(h->db, rc, "delete old runs", err);
        sqlite3_reset(stmt);
        if (rc != SQLITE_DONE)
            return -1;
        n = sqlite3_changes64(h->db);
    }
    /* The old text is also in the WAL; a reader may keep us from emptying it. */
    if (max_rows == 0 && n < SR_HISTORY_PRUNE_BATCH)
        sqlite3_wal_checkpoint_v2(h->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    *deleted = n;
    return 0;
}
