/* place.h - files below the scratch folder.
 *
 * The agent has no CAP_DAC_OVERRIDE and no CAP_CHOWN, so a file is created, or
 * opened, with the effective ids of whoever shall own it, or may read it. No
 * symbolic link is ever followed: the program can plant them anywhere below. */
#ifndef SR_PLACE_H
#define SR_PLACE_H

#include <stdint.h>
#include <sys/types.h>

struct sr_place {
    int fd; /* O_PATH */
    uid_t uid;
    gid_t gid;
};

/* Takes effective ids and gives them back; both do nothing for a process that
 * is not root, and end the process when root cannot be regained. */
void sr_ids_enter(uid_t uid, gid_t gid);
void sr_ids_leave(void);

/* Returns 0, or -1 with errno. */
int sr_place_open(struct sr_place *p, const char *path);

/* Creates the file `path` (see sr_wire_path_ok) with exactly this mode, owned
 * as the scratch folder is, and the folders above it. Returns a descriptor for
 * writing, or -1 with errno; EEXIST when anything has that name. */
int sr_place_create(const struct sr_place *p, const char *path, mode_t mode);

/* Makes the FIFO `path`, which everybody may read, owned as the scratch folder
 * is, and the folders above it. Returns 0, or -1 with errno. */
int sr_place_fifo(const struct sr_place *p, const char *path);

/* Lets the file `from` take the place of `path`, both in one folder. Returns 0,
 * or -1 with errno. */
int sr_place_replace(const struct sr_place *p, const char *path, const char *from);

/* Opens the regular file `path` for reading with the rights of uid. Returns a
 * descriptor and its size, or -1 with the SR_MISSING_* that says why not. */
int sr_place_read(const struct sr_place *p, const char *path, uid_t uid, uint64_t max,
                  uint64_t *size, int *missing);

#endif
