/* transfer.h - files in before the run, wanted files out after the end. */
#ifndef SR_TRANSFER_H
#define SR_TRANSFER_H

#include <stddef.h>
#include <stdint.h>

#include "held.h"
#include "job.h"
#include "message.h"
#include "outbox.h"
#include "place.h"

struct sr_transfer {
    struct sr_place scratch;
    int file;      /* the one that comes in or goes out, or -1 */
    uint64_t left; /* bytes of it to come or to go */
    size_t next;   /* wanted files that were answered for */
};

/* SR_WIRE_FILE and SR_WIRE_DATA. Return 0, or -1 with `why`. */
int sr_transfer_begin(struct sr_transfer *t, const struct sr_held *held, const unsigned char *p,
                      size_t n, struct sr_message *why);
int sr_transfer_take(struct sr_transfer *t, const unsigned char *p, size_t n,
                     struct sr_message *why);

/* Gives up a file that has come in only in part. */
void sr_transfer_drop(struct sr_transfer *t);

/* Queues the next frame about the wanted files; no process of the program may
 * be left, or the sizes could change. Returns 1, or 0 when all is queued, or
 * -1 with `why`. The outbox must not be full. */
int sr_transfer_send(struct sr_transfer *t, const struct sr_job *job, struct sr_outbox *o,
                     struct sr_message *why);

#endif
