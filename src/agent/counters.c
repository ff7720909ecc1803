#include "counters.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define GROUP "/sys/fs/cgroup/"

/* The number after `key` in a small file, or at its start when key is "".
 * Returns 0, or -1 when there is no such file or key. */
static int read_number(const char *path, const char *key, uint64_t *value)
{
    char text[2048];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    const char *at;

    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return -1;
    text[n] = 0;
    at = strstr(text, key);
    if (!at)
        return -1;
    *value = strtoull(at + strlen(key), NULL, 10);
    return 0;
}

static uint64_t microseconds(struct timeval t)
{
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_usec;
}

void sr_counters_read(struct sr_counters *c)
{
    struct rusage use = {0};

    *c = (struct sr_counters){0};
    if (read_number(GROUP "memory.events", "oom_kill ", &c->oom_kills) < 0)
        read_number(GROUP "memory/memory.oom_control", "oom_kill ", &c->oom_kills);
    if (read_number(GROUP "memory.peak", "", &c->peak_bytes) < 0)
        read_number(GROUP "memory/memory.max_usage_in_bytes", "", &c->peak_bytes);
    getrusage(RUSAGE_CHILDREN, &use);
    c->cpu_us = microseconds(use.ru_utime) + microseconds(use.ru_stime);
    c->rss_bytes = (uint64_t)use.ru_maxrss * 1024;
}

uint64_t sr_counters_cpu_of(pid_t pid)
{
    struct timespec used;
    clockid_t clock;

    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) < 0)
        return 0;
    return (uint64_t)used.tv_sec * 1000000 + (uint64_t)used.tv_nsec / 1000;
}

uint64_t sr_counters_peak(const struct sr_counters *before, const struct sr_counters *after)
{
    uint64_t group = after->peak_bytes > before->peak_bytes ? after->peak_bytes : 0;

    return group > after->rss_bytes ? group : after->rss_bytes;
}
