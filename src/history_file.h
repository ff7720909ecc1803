/* history_file.h - the file of the history as the file system sees it: what may
 * be opened, who may read it, how it is moved out of the way. Private to
 * history.c, apart from sr_history_set_aside() (history.h), which also lives
 * here. Knows nothing of SQLite but the names of its companion files. */
#ifndef SR_HISTORY_FILE_H
#define SR_HISTORY_FILE_H

#include <limits.h>

#include "err.h"

#define SR_HISTORY_PATH PATH_MAX

/* Gives the path with its folder resolved: SQLite's no-follow flag refuses
 * symbolic links anywhere in a path, ours is about the last component only. */
int sr_history_file_resolve(const char *path, char full[static SR_HISTORY_PATH],
                            struct sr_err *err);

/* Makes an empty file (0600) if there is none; refuses (SR_INVALID) what is not
 * a regular file. SQLite gives -wal and -shm the mode of the file. */
int sr_history_file_create(const char *path, struct sr_err *err);

/* Takes away what group and others may do with the file and its companions. A
 * failure is ignored: the file may belong to somebody who let us write to it,
 * and then its mode is theirs to choose. */
void sr_history_file_narrow(const char *path);

#endif
