#include "outbox.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

unsigned char *sr_outbox_payload(struct sr_outbox *o)
{
    if (sizeof o->data - o->to < SR_WIRE_HEAD + SR_WIRE_MAX) {
        memmove(o->data, o->data + o->from, o->to - o->from);
        o->to -= o->from;
        o->from = 0;
    }
    return o->data + o->to + SR_WIRE_HEAD;
}

void sr_outbox_commit(struct sr_outbox *o, uint8_t type, size_t n)
{
    sr_wire_put_head(o->data + o->to, type, (uint32_t)n);
    o->to += SR_WIRE_HEAD + n;
}

void sr_outbox_put(struct sr_outbox *o, uint8_t type, const void *payload, size_t n)
{
    memcpy(sr_outbox_payload(o), payload, n);
    sr_outbox_commit(o, type, n);
}

int sr_outbox_flush(struct sr_outbox *o, int fd)
{
    while (!sr_outbox_empty(o)) {
        ssize_t n = write(fd, o->data + o->from, o->to - o->from);

        if (n < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -1;
        o->from += (size_t)n;
    }
    o->from = o->to = 0;
    return 0;
}
