/* text.h - one-line messages without stdio and without the heap. */
#ifndef SR_TEXT_H
#define SR_TEXT_H

#include <stddef.h>

struct sr_text {
    char s[512]; /* NUL-terminated */
};

/* Joins the strings up to NULL, cut at the size. */
void sr_text_join(struct sr_text *t, ...) __attribute__((sentinel));

#endif
