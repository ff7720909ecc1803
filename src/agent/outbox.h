/* outbox.h - frames on their way to the server.
 *
 * A fixed buffer behind a non-blocking descriptor: a server that does not read
 * costs neither memory nor the agent's attention. Payload frames are added
 * only while sr_outbox_full() is false; the small last frames always fit. */
#ifndef SR_OUTBOX_H
#define SR_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire.h"

#define SR_OUTBOX_SOFT (256u * 1024)

struct sr_outbox {
    size_t from, to; /* pending: data[from..to) */
    unsigned char data[SR_OUTBOX_SOFT + 3 * (SR_WIRE_HEAD + SR_WIRE_MAX)];
};

static inline bool sr_outbox_empty(const struct sr_outbox *o)
{
    return o->from == o->to;
}

static inline bool sr_outbox_full(const struct sr_outbox *o)
{
    return o->to - o->from > SR_OUTBOX_SOFT;
}

/* Room for a payload of SR_WIRE_MAX bytes, to be filled before
 * sr_outbox_commit() makes a frame of its first n bytes. */
unsigned char *sr_outbox_payload(struct sr_outbox *o);
void sr_outbox_commit(struct sr_outbox *o, uint8_t type, size_t n);

void sr_outbox_put(struct sr_outbox *o, uint8_t type, const void *payload, size_t n);

/* Writes what fd takes now. Returns -1 when nobody reads it any more. */
int sr_outbox_flush(struct sr_outbox *o, int fd);

#endif
