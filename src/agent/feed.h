/* feed.h - the program's standard input: a bounded queue before a pipe. */
#ifndef SR_FEED_H
#define SR_FEED_H

#include <stdbool.h>
#include <stddef.h>

#include "wire.h"

struct sr_feed {
    int fd;          /* non-blocking; -1: no pipe, or closed */
    bool ended;      /* close once the queue is empty */
    size_t from, to; /* queued: data[from..to) */
    unsigned char data[SR_WIRE_STDIN_QUEUE + SR_WIRE_MAX];
};

static inline bool sr_feed_empty(const struct sr_feed *f)
{
    return f->from == f->to;
}

/* While true, sr_feed_put() must not be called. */
static inline bool sr_feed_full(const struct sr_feed *f)
{
    return f->to - f->from > SR_WIRE_STDIN_QUEUE;
}

/* Queues at most SR_WIRE_MAX bytes; drops them when nobody will read them. */
void sr_feed_put(struct sr_feed *f, const unsigned char *p, size_t n);

/* No more input will come. */
void sr_feed_end(struct sr_feed *f);

/* Writes what the pipe takes now and closes it when that was all. */
void sr_feed_flush(struct sr_feed *f);

#endif
