#include "err.h"

#include <stdarg.h>
#include <stdio.h>

int sr_err_set(struct sr_err *err, enum sr_code code, const char *fmt, ...)
{
    if (err) {
        va_list ap;

        err->code = code;
        va_start(ap, fmt);
        vsnprintf(err->msg, sizeof err->msg, fmt, ap);
        va_end(ap);
    }
    return -1;
}

const char *sr_code_name(enum sr_code code)
{
    static const char *const names[] = {
        [SR_OK] = "ok",
        [SR_INVALID] = "invalid",
        [SR_NOT_FOUND] = "not_found",
        [SR_UNAVAILABLE] = "unavailable",
        [SR_TIMEOUT] = "timeout",
        [SR_TOO_LARGE] = "too_large",
        [SR_PROTOCOL] = "protocol",
        [SR_CANCELLED] = "cancelled",
        [SR_CONFLICT] = "conflict",
        [SR_DENIED] = "denied",
        [SR_CORRUPT] = "corrupt",
        [SR_NO_MEMORY] = "no_memory",
        [SR_INTERNAL] = "internal",
    };

    return (unsigned)code < sizeof names / sizeof names[0] ? names[code] : "internal";
}
