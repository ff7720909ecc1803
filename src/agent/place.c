#include "place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h> /* renameat() */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wire.h"

void sr_ids_enter(uid_t uid, gid_t gid)
{
    if (getuid() != 0 || uid == 0)
        return;
    if (setegid(gid) < 0 || seteuid(uid) < 0)
        _exit(1);
}

void sr_ids_leave(void)
{
    if (getuid() != 0 || geteuid() == 0)
        return;
    if (seteuid(0) < 0 || setegid(0) < 0)
        _exit(1);
}

int sr_place_open(struct sr_place *p, const char *path)
{
    struct stat st;

    p->fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (p->fd < 0 || fstat(p->fd, &st) < 0)
        return -1;
    p->uid = st.st_uid;
    p->gid = st.st_gid;
    return 0;
}

/* Opens one folder; `at` is closed unless it is the root of the walk. */
static int step_into(const struct sr_place *p, int at, const char *name, int create)
{
    int fd = -1;

    if (!create || mkdirat(at, name, 0755) == 0 || errno == EEXIST)
        fd = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (at != p->fd) {
        int saved = errno;

        close(at);
        errno = saved;
    }
    return fd;
}

/* Opens the folder that `path` is in, walking one component at a time so that
 * no link on the way is followed. `last` gets the last component. */
static int open_folder(const struct sr_place *p, const char *path, int create, const char **last)
{
    int at = p->fd;
    const char *slash;

    while (at >= 0 && (slash = strchr(path, '/'))) {
        char name[256];

        memcpy(name, path, (size_t)(slash - path));
        name[slash - path] = 0;
        at = step_into(p, at, name, create);
        path = slash + 1;
    }
    *last = path;
    return at;
}

static void close_folder(const struct sr_place *p, int at)
{
    int saved = errno;

    if (at != p->fd)
        close(at);
    errno = saved;
}

static int open_below(const struct sr_place *p, const char *path, int flags, mode_t mode)
{
    const char *last;
    int at = open_folder(p, path, flags & O_CREAT, &last), fd;

    if (at < 0)
        return -1;
    fd = openat(at, last, flags | O_NOFOLLOW | O_CLOEXEC, mode);
    close_folder(p, at);
    return fd;
}

int sr_place_create(const struct sr_place *p, const char *path, mode_t mode)
{
    int fd, saved;

    sr_ids_enter(p->uid, p->gid);
    fd = open_below(p, path, O_WRONLY | O_CREAT | O_EXCL, mode & 0777);
    saved = errno;
    sr_ids_leave();
    errno = saved;
    return fd;
}

int sr_place_fifo(const struct sr_place *p, const char *path)
{
    const char *last;
    int at, rc = -1, saved;

    sr_ids_enter(p->uid, p->gid);
    at = open_folder(p, path, 1, &last);
    if (at >= 0) {
        rc = mkfifoat(at, last, 0444);
        close_folder(p, at);
    }
    saved = errno;
    sr_ids_leave();
    errno = saved;
    return rc;
}

int sr_place_replace(const struct sr_place *p, const char *path, const char *from)
{
    const char *last, *slash = strrchr(from, '/');
    int at, rc = -1, saved;

    sr_ids_enter(p->uid, p->gid);
    at = open_folder(p, path, 0, &last);
    if (at >= 0) {
        rc = renameat(at, slash ? slash + 1 : from, at, last);
        close_folder(p, at);
    }
    saved = errno;
    sr_ids_leave();
    errno = saved;
    return rc;
}

int sr_place_read(const struct sr_place *p, const char *path, uid_t uid, uint64_t max,
                  uint64_t *size, int *missing)
{
    struct stat st;
    int fd, saved;

    sr_ids_enter(uid, uid);
    /* O_NONBLOCK: a FIFO must not hold the agent up. */
    fd = open_below(p, path, O_RDONLY | O_NONBLOCK, 0);
    saved = errno;
    sr_ids_leave();
    if (fd < 0) {
        *missing = saved == ELOOP || saved == ENXIO ? SR_MISSING_NOT_REGULAR : SR_MISSING_ABSENT;
        return -1;
    }
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        *missing = SR_MISSING_NOT_REGULAR;
    } else if ((uint64_t)st.st_size > max) {
        *missing = SR_MISSING_TOO_LARGE;
    } else {
        *size = (uint64_t)st.st_size;
        return fd;
    }
    close(fd);
    return -1;
}
