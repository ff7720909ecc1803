/* counters.h - what the control group says about memory.
 *
 * Reads cgroup v2 or v1 below /sys/fs/cgroup, whichever is there. Where
 * neither is (gVisor, for one), everything stays 0. */
#ifndef SR_COUNTERS_H
#define SR_COUNTERS_H

#include <stdint.h>
#include <sys/types.h>

struct sr_counters {
    uint64_t oom_kills;
    uint64_t peak_bytes; /* since the group was made, not since the start order */
    uint64_t cpu_us;     /* of all children that were waited for */
    uint64_t rss_bytes;  /* largest resident set of one of them */
};

void sr_counters_read(struct sr_counters *c);

/* CPU time that a process has used so far, its children not counted, in
 * microseconds; 0 when it is gone. */
uint64_t sr_counters_cpu_of(pid_t pid);

/* Peak memory of the program: the largest process, or the whole group where
 * that is more. The group's mark counts only when it moved since `before` (the
 * runtime that set the sandbox up has left one of its own), and alone it may be
 * too low: pages of files that another group read first are not charged here. */
uint64_t sr_counters_peak(const struct sr_counters *before, const struct sr_counters *after);

#endif
