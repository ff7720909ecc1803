#include "held.h"

#include <signal.h>
#include <string.h>

#define BESIDE ".held-script"

int sr_held_make(struct sr_held *h, const struct sr_place *scratch, const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t folder = slash ? (size_t)(slash - path) + 1 : 0;

    memcpy(h->beside, path, folder);
    memcpy(h->beside + folder, BESIDE, sizeof BESIDE);
    h->path = path;
    return sr_place_fifo(scratch, path);
}

const char *sr_held_divert(const struct sr_held *h, const char *path)
{
    return h->path && strcmp(h->path, path) == 0 ? h->beside : path;
}

/* The rename comes first: an open() that has found the FIFO before it, but does
 * not sleep yet, is interrupted all the same. No group yet: it is before exec. */
int sr_held_release(const struct sr_held *h, const struct sr_place *scratch, pid_t pid)
{
    if (sr_place_replace(scratch, h->path, h->beside) < 0)
        return -1;
    kill(-pid, SIGSTOP);
    kill(-pid, SIGCONT);
    return 0;
}
