/* message.h - one-line messages without stdio and without the heap. */
#ifndef SR_MESSAGE_H
#define SR_MESSAGE_H

#include <stddef.h>

struct sr_message {
    char s[512]; /* NUL-terminated */
};

/* Joins the strings up to NULL, cut at the size. */
void sr_message_join(struct sr_message *t, ...) __attribute__((sentinel));

#endif
