/* target.h - where an engine listens: what an address means to the HTTP client.
 *
 * Knows neither libcurl nor Lua. */
#ifndef SR_TARGET_H
#define SR_TARGET_H

#include "err.h"

/* Where the engine listens. Strings are owned by whoever owns the target and
 * must outlive every call and stream that uses it. */
struct sr_target {
    char *unix_path; /* absolute path of a socket, or NULL */
    char *origin;    /* "http://localhost", "http://host:2375", "https://host:2376" */
    char *ca, *cert, *key; /* PEM files for https, or NULL */
};

/* Copies address ("unix:///path", "tcp://host:port") into *t. tls_dir: NULL, or
 * the folder with ca.pem, cert.pem and key.pem, which turns tcp into https. Slashes
 * at the end of a tcp address do not count. SR_INVALID: neither of the two forms. */
int sr_target_parse(struct sr_target *t, const char *address, const char *tls_dir,
                    struct sr_err *err);

/* Frees the strings. Harmless on a zeroed or cleared target. */
void sr_target_clear(struct sr_target *t);

#endif
