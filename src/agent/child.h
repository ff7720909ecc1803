/* child.h - starts the program and ends it, and everything it started. */
#ifndef SR_CHILD_H
#define SR_CHILD_H

#include <sys/types.h>

#include "job.h"
#include "message.h"

struct sr_child {
    pid_t pid;
    int in, out, err; /* our ends, non-blocking; in is -1 without a pipe */
    int trouble;      /* tells why the program could not be started; see below */
};

/* Forks and lets the child become the program. Returns 0, or -1 with errno
 * (nothing is left open). Trouble after the fork comes through `trouble`. */
int sr_child_start(struct sr_child *c, const struct sr_job *job);

/* To be called when the first process has ended: whether it ended before it
 * became the program, and then why, as one line. Closes `trouble`. */
int sr_child_trouble(struct sr_child *c, const struct sr_job *job, struct sr_message *why);

/* Sends SIGKILL to every process of the sandbox but the agent. Processes can
 * be added while it looks, so repeat until no child is left. */
void sr_child_kill_all(void);

#endif
