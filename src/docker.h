/* docker.h - the Docker Engine API: which version is spoken, how values go into
 * its paths, what its answers mean.
 *
 * Knows neither Lua nor libcurl; the bodies of sandboxes are spec.h's. Sources: Docker Engine API
 * v1.41 reference; moby's versioning rules for /vX.Y prefixes. */
#ifndef SR_DOCKER_H
#define SR_DOCKER_H

#include "buf.h"
#include "err.h"
#include "http.h"

struct sr_docker {
    struct sr_target target;
    char prefix[16]; /* "/v1.41" once negotiated, "" before */
};

/* Engines from 29 on refuse less than 1.44, 20.10 knows no more than 1.41: the
 * version is the engine's newest, but not above the newest that this client
 * was written for. SR_INVALID below 1.41 (no private cgroup namespace there). */
int sr_docker_negotiate(struct sr_docker *d, const char *api_version, struct sr_err *err);

/* Turns an answer that is no success into an error: the code of the status and
 * the engine's own message. Returns 0 for a success. */
int sr_docker_check(const struct sr_call *call, struct sr_err *err);

/* The same for POST /containers/ID/wait, whose 200 may carry a fault of the
 * engine in its body ("Error"): that is SR_INTERNAL. */
int sr_docker_check_wait(const struct sr_call *call, struct sr_err *err);

/* The same for an attach: for the on_refused of its stream. */
void sr_docker_refused(const struct sr_stream *s, const char *body, size_t n, struct sr_err *err);

/* Appends one value that may stand in a URL path or query: every byte that is
 * not unreserved (RFC 3986, 2.3) is percent-encoded. */
void sr_docker_put_url(struct sr_buf *out, const char *text);

#endif
