#include "history_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "history.h"

int sr_history_file_resolve(const char *path, char full[static SR_HISTORY_PATH],
                            struct sr_err *err)
{
    char folder[SR_HISTORY_PATH], real[SR_HISTORY_PATH];
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    int n = slash ? snprintf(folder, sizeof folder, "%.*s", (int)(slash - path + 1), path)
                  : snprintf(folder, sizeof folder, ".");

    if (*name == '\0')
        return sr_err_set(err, SR_INVALID, "history: the path names no file");
    if (n < 0 || (size_t)n >= sizeof folder)
        return sr_err_set(err, SR_INVALID, "history: the path is too long");
    if (!realpath(folder, real))
        return sr_err_set(err, errno == EACCES ? SR_DENIED : SR_UNAVAILABLE,
                          "history: folder of the file: %s", strerror(errno));
    n = snprintf(full, SR_HISTORY_PATH, "%s/%s", strcmp(real, "/") == 0 ? "" : real, name);
    if (n < 0 || n >= SR_HISTORY_PATH)
        return sr_err_set(err, SR_INVALID, "history: the path is too long");
    return 0;
}

/* An existing file is only looked at: opening and closing it here would drop the
 * POSIX locks that another connection of this process holds on it. */
int sr_history_file_create(const char *path, struct sr_err *err)
{
    struct stat st;
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd >= 0) {
        close(fd);
        return 0;
    }
    if (errno != EEXIST)
        return sr_err_set(err, errno == EACCES || errno == EPERM ? SR_DENIED : SR_UNAVAILABLE,
                          "history: cannot create the file: %s", strerror(errno));
    if (lstat(path, &st) < 0)
        return sr_err_set(err, SR_UNAVAILABLE, "history: cannot examine the file: %s",
                          strerror(errno));
    if (!S_ISREG(st.st_mode))
        return sr_err_set(err, SR_INVALID, "history: %s",
                          S_ISLNK(st.st_mode) ? "the file is a symbolic link"
                                              : "the path is not a regular file");
    return 0;
}

static void narrow_mode(const char *path)
{
    char proc[64];
    struct stat st;
    int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC); /* holds no locks to drop */

    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 077)) {
        snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
        (void)!chmod(proc, st.st_mode & 0700);
    }
    close(fd);
}

void sr_history_file_narrow(const char *path)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};

    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        char name[SR_HISTORY_PATH + 16];

        snprintf(name, sizeof name, "%s%s", path, suffixes[i]);
        narrow_mode(name);
    }
}

/* Finds a free name for the file and its companions. */
static int free_name(const char *path, char *name, size_t cap, struct sr_err *err)
{
    char when[32];
    time_t now = time(NULL);
    struct tm tm;
    struct stat st;

    strftime(when, sizeof when, "%Y%m%d-%H%M%S", gmtime_r(&now, &tm));
    for (int i = 0; i < 1000; i++) {
        char tail[16] = "", wal[SR_HISTORY_PATH + 96];
        int n;

        if (i > 0)
            snprintf(tail, sizeof tail, "-%d", i);
        n = snprintf(name, cap, "%s.corrupt-%s%s", path, when, tail);
        if (n < 0 || (size_t)n >= cap || (size_t)n >= SR_HISTORY_PATH)
            return sr_err_set(err, SR_INVALID, "history: the path is too long");
        snprintf(wal, sizeof wal, "%s-wal", name);
        if (lstat(name, &st) < 0 && errno == ENOENT && lstat(wal, &st) < 0)
            return 0;
    }
    return sr_err_set(err, SR_CONFLICT, "history: no free name to move the damaged file to");
}

int sr_history_set_aside(const char *path, char *new_path, size_t cap, struct sr_err *err)
{
    /* The companions go first: SQLite would play a WAL left behind into the
     * new, empty file of that name. */
    static const char *const suffixes[] = {"-wal", "-shm", "-journal", ""};
    struct stat st;

    if (lstat(path, &st) < 0)
        return sr_err_set(err, errno == ENOENT ? SR_NOT_FOUND : SR_UNAVAILABLE,
                          "history: cannot move the damaged file: %s", strerror(errno));
    if (free_name(path, new_path, cap, err) < 0)
        return -1;
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        char from[SR_HISTORY_PATH + 16], to[SR_HISTORY_PATH + 16];

        snprintf(from, sizeof from, "%s%s", path, suffixes[i]);
        snprintf(to, sizeof to, "%s%s", new_path, suffixes[i]);
        if (rename(from, to) < 0 && (errno != ENOENT || !*suffixes[i]))
            return sr_err_set(err, SR_UNAVAILABLE, "history: cannot move the damaged file: %s",
                              strerror(errno));
    }
    return 0;
}
