/* docker.h - paths of the Docker Engine API that the bindings share.
 *
 * Knows the API's shape, neither Lua nor libcurl. Sources: Docker Engine API
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

#endif
