/* history_schema.h - the table of the history: whether a file holds it, and how
 * an older or an empty file is made to. Private to history.c, and so are the
 * helpers below that both need. Knows neither Lua nor sockets. */
#ifndef SR_HISTORY_SCHEMA_H
#define SR_HISTORY_SCHEMA_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"

struct sqlite3;

/* Decides, without writing, whether the file is ours to extend (else
 * SR_INVALID). *current: it is as this version wants it. */
int sr_history_schema_check(struct sqlite3 *db, bool *current, struct sr_err *err);

/* Creates the table or adds the columns that it lacks, in one transaction;
 * several servers may do so at once. */
int sr_history_schema_migrate(struct sqlite3 *db, struct sr_err *err);

/* Turns SQLite's result code into *err: "history: cannot <doing>: <why>". -1. */
int sr_history_fail(struct sqlite3 *db, int rc, const char *doing, struct sr_err *err);

int sr_history_exec(struct sqlite3 *db, const char *sql, const char *doing, struct sr_err *err);

/* First column of the first row; 0 when there is none. */
int sr_history_query_int(struct sqlite3 *db, const char *sql, int64_t *value, struct sr_err *err);

#endif
