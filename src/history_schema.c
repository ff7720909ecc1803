#include "history_schema.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#define SCHEMA_VERSION 1 /* PRAGMA user_version; the Python server left it 0 */

#define BASE_COLUMNS 9
/* What the Python server made, then what came later, in this order. */
static const struct {
    const char *name, *type;
} columns[] = {
    {"id", "INTEGER PRIMARY KEY AUTOINCREMENT"},
    {"timestamp", "REAL NOT NULL"},
    {"language", "TEXT NOT NULL"},
    {"code_snippet", "TEXT NOT NULL"},
    {"status", "TEXT NOT NULL"},
    {"exit_code", "INTEGER"},
    {"duration_ms", "REAL NOT NULL"},
    {"stdout_size", "INTEGER NOT NULL DEFAULT 0"},
    {"stderr_size", "INTEGER NOT NULL DEFAULT 0"},
    {"run_id", "TEXT"},
    {"reason", "TEXT"},
    {"signal", "TEXT"},
    {"cpu_ms", "REAL"},
    {"peak_memory_bytes", "INTEGER"},
    {"truncated", "INTEGER"},
    {"image", "TEXT"},
    {"timeout_seconds", "REAL"},
};
#define N_COLUMNS (sizeof columns / sizeof columns[0])

/* What a look at the file before any write finds. */
struct schema {
    int64_t version;
    bool has_runs;           /* there is a table of that name */
    bool others;             /* there are other tables, views ... */
    bool has[N_COLUMNS];
    bool id_is_key;
};

static enum sr_code code_of(int rc)
{
    if (rc == SQLITE_IOERR_NOMEM)
        return SR_NO_MEMORY;
    switch (rc & 0xFF) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_PROTOCOL: /* a WAL lock race that did not settle */
        return SR_UNAVAILABLE;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return SR_CORRUPT;
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH:
        return SR_DENIED;
    case SQLITE_NOMEM:
        return SR_NO_MEMORY;
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
    case SQLITE_TOOBIG:
    case SQLITE_RANGE:
        return SR_INVALID;
    default:
        return SR_INTERNAL;
    }
}

int sr_history_fail(struct sqlite3 *db, int rc, const char *doing, struct sr_err *err)
{
    const char *why = sqlite3_errmsg(db);

    if ((rc & 0xFF) == SQLITE_BUSY)
        why = "locked by another process";
    if ((rc & 0xFF) == SQLITE_NOMEM)
        why = "out of memory";
    return sr_err_set(err, code_of(rc), "history: cannot %s: %s", doing, why);
}

int sr_history_exec(struct sqlite3 *db, const char *sql, const char *doing, struct sr_err *err)
{
    int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);

    return rc == SQLITE_OK ? 0 : sr_history_fail(db, rc, doing, err);
}

int sr_history_query_int(struct sqlite3 *db, const char *sql, int64_t *value, struct sr_err *err)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);

    if (rc == SQLITE_OK)
        rc = sqlite3_step(stmt);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
        sr_history_fail(db, rc, "read the file", err);
        sqlite3_finalize(stmt);
        return -1;
    }
    *value = rc == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;
    sqlite3_finalize(stmt);
    return 0;
}

static int read_columns(struct sqlite3 *db, struct schema *s, struct sr_err *err)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(db, "SELECT name, pk FROM pragma_table_info('runs')", -1, &stmt,
                                NULL);

    while (rc == SQLITE_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(stmt, 0);

        for (size_t i = 0; name && i < N_COLUMNS; i++)
            s->has[i] = s->has[i] || sqlite3_stricmp(name, columns[i].name) == 0;
        if (name && sqlite3_stricmp(name, "id") == 0)
            s->id_is_key = sqlite3_column_int(stmt, 1) == 1;
        rc = SQLITE_OK;
    }
    if (rc != SQLITE_DONE)
        sr_history_fail(db, rc, "read the file", err);
    sqlite3_finalize(stmt);
    return rc == SQLITE_DONE ? 0 : -1;
}

static int look(struct sqlite3 *db, struct schema *s, struct sr_err *err)
{
    int64_t tables, all;

    *s = (struct schema){0};
    if (sr_history_query_int(db, "PRAGMA user_version", &s->version, err) < 0 ||
        sr_history_query_int(db, "SELECT count(*) FROM sqlite_schema WHERE type = 'table'"
                             " AND lower(name) = 'runs'", &tables, err) < 0 ||
        sr_history_query_int(db, "SELECT count(*) FROM sqlite_schema"
                             " WHERE name NOT LIKE 'sqlite%'", &all, err) < 0)
        return -1;
    s->has_runs = tables > 0;
    s->others = all > tables;
    return read_columns(db, s, err);
}

/* Decides, before anything is written, whether the file is ours to extend. */
static int check_schema(const struct schema *s, struct sr_err *err)
{
    size_t need = s->version >= SCHEMA_VERSION ? N_COLUMNS : BASE_COLUMNS;

    if (!s->has_runs && s->others)
        return sr_err_set(err, SR_INVALID, "history: the file is a database of another program");
    if (s->version > SCHEMA_VERSION)
        return sr_err_set(err, SR_INVALID,
                          "history: written by a newer version (schema %lld, this one knows %d)",
                          (long long)s->version, SCHEMA_VERSION);
    if (!s->has_runs)
        return 0;
    for (size_t i = 0; i < need; i++)
        if (!s->has[i])
            return sr_err_set(err, SR_INVALID, "history: table runs has no column %s",
                              columns[i].name);
    if (!s->id_is_key)
        return sr_err_set(err, SR_INVALID, "history: column id of table runs is not its key");
    return 0;
}

static int create_runs(struct sqlite3 *db, struct sr_err *err)
{
    char sql[1024];
    size_t n = (size_t)snprintf(sql, sizeof sql, "CREATE TABLE runs (");

    for (size_t i = 0; i < N_COLUMNS; i++)
        n += (size_t)snprintf(sql + n, sizeof sql - n, "%s%s %s", i > 0 ? ", " : "",
                              columns[i].name, columns[i].type);
    snprintf(sql + n, sizeof sql - n, ")");
    return sr_history_exec(db, sql, "create its table", err);
}

/* Inside a write transaction: only one of several servers does the work. */
static int migrate_locked(struct sqlite3 *db, struct sr_err *err)
{
    struct schema s;
    char sql[128];

    if (look(db, &s, err) < 0 || check_schema(&s, err) < 0)
        return -1;
    if (!s.has_runs && create_runs(db, err) < 0)
        return -1;
    for (size_t i = BASE_COLUMNS; s.has_runs && i < N_COLUMNS; i++) {
        if (s.has[i])
            continue;
        snprintf(sql, sizeof sql, "ALTER TABLE runs ADD COLUMN %s %s", columns[i].name,
                 columns[i].type);
        if (sr_history_exec(db, sql, "extend its table", err) < 0)
            return -1;
    }
    snprintf(sql, sizeof sql, "PRAGMA user_version = %d", SCHEMA_VERSION);
    if (sr_history_exec(db, sql, "set its version", err) < 0)
        return -1;
    return sr_history_exec(db, "COMMIT", "extend its table", err);
}

/* In one read transaction: the answers must be of one moment, or a table that another
 * server makes meanwhile is taken for another program's. */
static int look_once(struct sqlite3 *db, struct schema *s, struct sr_err *err)
{
    int rc;

    if (sr_history_exec(db, "BEGIN", "read the file", err) < 0)
        return -1;
    rc = look(db, s, err);
    sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

int sr_history_schema_check(struct sqlite3 *db, bool *current, struct sr_err *err)
{
    struct schema s;

    if (look_once(db, &s, err) < 0 || check_schema(&s, err) < 0)
        return -1;
    *current = s.has_runs && s.version == SCHEMA_VERSION;
    return 0;
}

int sr_history_schema_migrate(struct sqlite3 *db, struct sr_err *err)
{
    if (sr_history_exec(db, "BEGIN IMMEDIATE", "extend its table", err) < 0)
        return -1;
    if (migrate_locked(db, err) < 0) {
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
        return -1;
    }
    return 0;
}

