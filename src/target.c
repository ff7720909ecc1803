#include "target.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *join(const char *a, const char *b)
{
    char *s;

    return asprintf(&s, "%s%s", a, b) < 0 ? NULL : s;
}

/* "http://" or "https://" and the host of "tcp://host:port/", without the slashes
 * at its end: paths begin with one. NULL: no memory. */
static char *origin_of(const char *address, bool tls)
{
    char *origin = join(tls ? "https://" : "http://", address + strlen("tcp://"));
    size_t n = origin ? strlen(origin) : 0;

    while (n > 0 && origin[n - 1] == '/')
        origin[--n] = '\0';
    return origin;
}

int sr_target_parse(struct sr_target *t, const char *address, const char *tls_dir,
                    struct sr_err *err)
{
    bool is_unix = !strncmp(address, "unix://", 7);

    *t = (struct sr_target){0};
    if (is_unix) {
        if (address[7] != '/')
            return sr_err_set(err, SR_INVALID,
                              "engine address \"%s\": write unix:///path/of/socket", address);
        t->unix_path = strdup(address + 7);
        t->origin = strdup("http://localhost");
    } else if (!strncmp(address, "tcp://", 6) && address[6] && address[6] != '/') {
        t->origin = origin_of(address, tls_dir != NULL);
        if (tls_dir) {
            t->ca = join(tls_dir, "/ca.pem");
            t->cert = join(tls_dir, "/cert.pem");
            t->key = join(tls_dir, "/key.pem");
        }
    } else {
        return sr_err_set(err, SR_INVALID, "engine address \"%s\": unix:///path or "
                          "tcp://host:port is needed", address);
    }
    if (t->origin && !is_unix == !t->unix_path &&
        (is_unix || !tls_dir || (t->ca && t->cert && t->key)))
        return 0;
    sr_target_clear(t);
    return sr_err_set(err, SR_NO_MEMORY, "out of memory");
}

void sr_target_clear(struct sr_target *t)
{
    free(t->unix_path);
    free(t->origin);
    free(t->ca);
    free(t->cert);
    free(t->key);
    *t = (struct sr_target){0};
}
