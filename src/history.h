/* history.h - the log of past runs, one SQLite file.
 *
 * Several servers may share the file (WAL). The file may come from the older
 * Python server: its table `runs` is extended in place, its rows stay. Calls
 * block, but not for long: for locks half a second in all at open, a quarter
 * second later, and not at all at close. History never knows about containers, Lua or sockets.
 *
 * Codes: SR_UNAVAILABLE "locked", disk full, I/O; SR_CORRUPT damaged or no
 * database (the caller may sr_history_set_aside() it and open again);
 * SR_INVALID a healthy database that is not ours to write, or a bad row;
 * SR_DENIED permission. */
#ifndef SR_HISTORY_H
#define SR_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

#define SR_HISTORY_RECENT_MAX 1000   /* rows of one sr_history_recent() */
#define SR_HISTORY_PRUNE_BATCH 10000 /* rows deleted by one sr_history_prune() */
#define SR_HISTORY_FIND_MAX 10000    /* newest ids that one sr_history_find() looks at */

struct sr_history; /* an open database */

/* Text by length: NUL bytes count. data NULL = SQL NULL. Must be UTF-8. */
struct sr_history_text {
    const char *data;
    size_t len;
};

struct sr_history_int {
    bool set; /* false = SQL NULL */
    int64_t value;
};

struct sr_history_real {
    bool set;
    double value;
};

struct sr_history_row {
    int64_t id; /* ignored by sr_history_add() */
    double timestamp; /* unix seconds */
    struct sr_history_text language, code_snippet, status;
    struct sr_history_int exit_code;
    double duration_ms;
    int64_t stdout_size, stderr_size;
    /* from here on: not in files of the Python server until opened here */
    struct sr_history_text run_id, reason, signal;
    struct sr_history_real cpu_ms;
    struct sr_history_int peak_memory_bytes;
    struct sr_history_int truncated; /* 0 or 1 */
    struct sr_history_text image;
    struct sr_history_real timeout_seconds;
    char *store; /* memory of the texts in rows that were read; else unused */
};

struct sr_history_rows {
    struct sr_history_row *rows;
    size_t n;
};

/* Opens or creates (mode 0600) the file; its folder must exist. Refuses what is
 * no regular file, a symbolic link included. A wider mode is narrowed. */
int sr_history_open(struct sr_history **out, const char *path, struct sr_err *err);

/* Empties the WAL into the file, unless somebody else is at it, and closes.
 * Accepts NULL. */
void sr_history_close(struct sr_history *h);

/* Once this returned 0 the row survives a kill of the process. */
int sr_history_add(struct sr_history *h, const struct sr_history_row *row, int64_t *id,
                   struct sr_err *err);

/* The newest rows, newest first; limit is clamped to 0..SR_HISTORY_RECENT_MAX.
 * Fewer when their texts exceed 32 MiB. Free with sr_history_rows_clear(). */
int sr_history_recent(struct sr_history *h, int64_t limit, struct sr_history_rows *out,
                      struct sr_err *err);

/* The row with this id: one, or none when there is no such row. Free as above. */
int sr_history_get(struct sr_history *h, int64_t id, struct sr_history_rows *out,
                   struct sr_err *err);

/* The newest row of this run: one, or none when it is not among the newest
 * SR_HISTORY_FIND_MAX, for run ids have no index. Free as above. */
int sr_history_find(struct sr_history *h, struct sr_history_text run_id,
                    struct sr_history_rows *out, struct sr_err *err);

/* Frees the rows and makes *rows empty. */
void sr_history_rows_clear(struct sr_history_rows *rows);

/* Reads the whole table: for commands, not for every run. */
int sr_history_count(struct sr_history *h, int64_t *count, struct sr_err *err);

/* Deletes the oldest rows beyond the newest max_rows and wipes their text. At
 * most SR_HISTORY_PRUNE_BATCH at once, so that the loop is not held: call again
 * while *deleted equals that. Cheap while there is nothing to delete, else it
 * walks max_rows ids. max_rows 0 also empties the WAL, when it can. */
int sr_history_prune(struct sr_history *h, int64_t max_rows, int64_t *deleted,
                     struct sr_err *err);

/* Renames the file, with its -wal and -shm, to path.corrupt-YYYYMMDD-HHMMSS
 * (UTC; "-n" is added while that name is taken). Nobody may have it open. The
 * new name goes to new_path (cap bytes). */
int sr_history_set_aside(const char *path, char *new_path, size_t cap, struct sr_err *err);

#endif
