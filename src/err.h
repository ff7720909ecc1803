/* err.h - the one error value that crosses the modules of the core.
 *
 * Convention: int f(..., struct sr_err *err) returns 0, or -1 with *err
 * filled; outputs go through pointers and are untouched on failure. Knows
 * neither Lua nor sockets. */
#ifndef SR_ERR_H
#define SR_ERR_H

enum sr_code {
    SR_OK = 0,
    SR_INVALID,     /* the caller asked for something that cannot be */
    SR_NOT_FOUND,   /* image, container, file: named but not there */
    SR_UNAVAILABLE, /* the engine or a file system cannot be reached */
    SR_TIMEOUT,     /* a deadline passed */
    SR_TOO_LARGE,   /* over a size limit */
    SR_PROTOCOL,    /* the peer sent what its protocol forbids */
    SR_CANCELLED,   /* somebody who may do so gave up on it */
    SR_CONFLICT,    /* right request, wrong moment (HTTP 409) */
    SR_DENIED,      /* permission refused */
    SR_CORRUPT,     /* a file is damaged */
    SR_NO_MEMORY,
    SR_INTERNAL     /* our own fault */
};

struct sr_err {
    enum sr_code code;
    char msg[512]; /* one line, no final full stop, UTF-8 */
};

/* Fills *err (printf style, cut at its size). err may be NULL. Returns -1, so
 * that a function can end with `return sr_err_set(...)`. */
int sr_err_set(struct sr_err *err, enum sr_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The stable name that Lua and messages use: "timeout", "not_found" ... */
const char *sr_code_name(enum sr_code code);

#endif
