/* held.h - the script of a program that was started before its code existed.
 *
 * Until the code comes there is a FIFO under the script's path that nobody
 * writes to: whoever opens it to read sleeps in open(). At the hand-over a
 * regular file with the code takes over the path, and the program is stopped
 * and continued at once. That interrupts the open(), and since no handler has
 * run the kernel starts it again (signal(7), SA_RESTART): it walks the path anew
 * and finds the file. So the interpreter gets just what it gets at a plain start,
 * a file that it can map and seek in; one that was late, likewise. Bytes fed
 * through the FIFO would not do: Python goes back in a script that names its
 * encoding, perl in its DATA. */
#ifndef SR_HELD_H
#define SR_HELD_H

#include <sys/types.h>

#include "place.h"
#include "wire.h"

struct sr_held {
    const char *path; /* the script; NULL: nothing is held */
    char beside[SR_WIRE_PATH_MAX + 16]; /* where its file is collected */
};

/* Makes the FIFO. h is zeroed, `path` must outlive it. Returns 0, or -1 with
 * errno. */
int sr_held_make(struct sr_held *h, const struct sr_place *scratch, const char *path);

/* Where a file for `path` has to be created: beside the FIFO if it is the
 * held script, else under its own name. */
const char *sr_held_divert(const struct sr_held *h, const char *path);

/* The hand-over to the program that leads the process group `pid`: the collected
 * file takes the FIFO's place. Returns 0, or -1 with errno. */
int sr_held_release(const struct sr_held *h, const struct sr_place *scratch, pid_t pid);

#endif
