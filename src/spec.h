/* spec.h - what a sandbox is made of, and the floor below which none is made.
 *
 * The caller chooses sizes within bounds; everything that isolates is written
 * here and cannot be chosen: network none, read-only root, all capabilities
 * dropped but the agent's three, no-new-privileges, memory = memory + swap,
 * pids limit, capped tmpfs, private namespaces, no log, labels, no host path.
 * Knows neither Lua nor sockets. */
#ifndef SR_SPEC_H
#define SR_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

/* The marker that every container, volume and image of ours carries. */
#define SR_LABEL "sandbox-runner"
#define SR_AGENT_DIR "/.sandbox" /* where the agent's volume is mounted, read-only */
#define SR_SCRATCH "/scratch"
#define SR_UID_FIRST 60600u /* 60578 to 61183 are free in systemd's table, and below 65536 */
#define SR_UID_COUNT 584u

struct sr_spec {
    const char *image;        /* id of the image, "sha256:..." */
    const char *agent_volume; /* name of the volume that holds the agent */
    const char *runtime;      /* OCI runtime, or NULL for the engine's default */
    uint32_t uid;             /* of the program; SR_UID_FIRST .. + SR_UID_COUNT - 1 */
    uint64_t memory;          /* bytes */
    uint64_t nano_cpus;       /* 1e9 = one CPU */
    uint32_t pids;
    uint32_t open_files;
    uint64_t file_size;       /* bytes, RLIMIT_FSIZE */
    uint64_t scratch, tmp, shm; /* bytes of each tmpfs */
    uint32_t files;           /* inodes of each tmpfs */
    bool scratch_writable;    /* for the program */
    const char *const *volumes; /* the image's declared volumes (NULL-terminated, or NULL):
                                   each is covered by a tmpfs, or the engine would make a disk;
                                   one that cannot be covered is SR_INVALID */
    const char *instance;     /* labels: who owns the sandbox ... */
    const char *run;          /* ... which run it is for ... */
    int64_t deadline;         /* ... and when (Unix seconds) it is over in any case */
};

/* Writes the body of the create call. Zero, "unlimited" and anything beyond the
 * bounds of spec.c is SR_INVALID, and *out is then to be thrown away. */
int sr_spec_write(struct sr_buf *out, const struct sr_spec *spec, struct sr_err *err);

/* The body for the container that is never started and only gives the archive
 * call a way into the agent's volume. */
void sr_spec_write_filler(struct sr_buf *out, const char *image, const char *agent_volume,
                          const char *instance, int64_t deadline);

#endif
