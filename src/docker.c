#include "docker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

#define API_MIN 41
#define API_MAX 47

/* "1.NN" and nothing else: the minor number, or -1. */
static int parse_version(const char *text)
{
    size_t digits = strncmp(text, "1.", 2) == 0 ? strspn(text + 2, "0123456789") : 0;

    if (digits == 0 || digits > 4 || text[2 + digits] != '\0')
        return -1;
    return (int)strtol(text + 2, NULL, 10);
}

int sr_docker_negotiate(struct sr_docker *d, const char *api_version, struct sr_err *err)
{
    int minor = parse_version(api_version);

    if (minor < 0)
        return sr_err_set(err, SR_PROTOCOL, "the engine names API version \"%.12s\"; this "
                          "program speaks 1.%d to 1.%d", api_version, API_MIN, API_MAX);
    if (minor < API_MIN)
        return sr_err_set(err, SR_INVALID, "the engine's API ends at 1.%d; 1.%d is needed "
                          "(Docker Engine 20.10 or newer)", minor, API_MIN);
    snprintf(d->prefix, sizeof d->prefix, "/v1.%d", minor > API_MAX ? API_MAX : minor);
    return 0;
}

int sr_docker_check(const struct sr_call *call, struct sr_err *err)
{
    struct sr_json *root = NULL;
    const char *text = NULL;
    enum sr_code code = sr_http_code(call->status);

    if (code == SR_OK)
        return 0;
    if (sr_json_parse(&root, call->answer.data, call->answer.len, NULL, NULL) == 0)
        text = sr_json_get_string(root, "message");
    if (text)
        sr_err_set(err, code, "%s", text);
    else
        sr_err_set(err, code, "the engine answered HTTP %ld without an explanation", call->status);
    sr_json_free(root);
    return -1;
}
