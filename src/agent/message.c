#include "message.h"

#include <stdarg.h>
#include <string.h>

void sr_message_join(struct sr_message *t, ...)
{
    va_list ap;
    const char *part;
    size_t len = 0;

    va_start(ap, t);
    while ((part = va_arg(ap, const char *))) {
        size_t n = strnlen(part, sizeof t->s - 1 - len);

        memcpy(t->s + len, part, n);
        len += n;
    }
    va_end(ap);
    t->s[len] = 0;
}
