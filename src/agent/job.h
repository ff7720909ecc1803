/* job.h - a start order, parsed. Points into its own copy of the order. */
#ifndef SR_JOB_H
#define SR_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire.h"

/* As many as one frame can hold, so that no count has to be refused. */
#define SR_JOB_FIELDS (SR_WIRE_MAX / SR_WIRE_HEAD)
#define SR_JOB_WANTS (SR_WIRE_MAX / (SR_WIRE_HEAD + 9))

struct sr_want {
    const char *path;
    uint64_t max;
};

struct sr_job {
    char *argv[SR_JOB_FIELDS + 1];
    char *env[SR_JOB_FIELDS + 1];
    struct sr_want want[SR_JOB_WANTS];
    size_t n_argv, n_env, n_want;
    const char *cwd;
    const char *held; /* path of the script that comes later, or NULL */
    uid_t uid;
    uint32_t wall_ms, cpu_seconds;
    uint32_t out_cap, err_cap;
    bool stdin_pipe;
    char text[SR_WIRE_MAX];
};

/* Parses the payload of SR_WIRE_START into a zeroed job. Returns 0, or -1 when
 * a field is unknown, damaged or missing. */
int sr_job_parse(struct sr_job *j, const unsigned char *p, size_t n);

#endif
