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
        return sr_err_set(err, SR_INVALID, "Docker Engine 19.03 or the like is too old (its API "
                          "ends at 1.%d): update it to 20.10 or newer", minor);
    snprintf(d->prefix, sizeof d->prefix, "/v1.%d", minor > API_MAX ? API_MAX : minor);
    return 0;
}

static enum sr_code code_of(long status)
{
    if ((status >= 200 && status < 300) || status == 304)
        return SR_OK;
    switch (status) {
    case 400: return SR_INVALID;
    case 401:
    case 403: return SR_DENIED;
    case 404: return SR_NOT_FOUND;
    case 409: return SR_CONFLICT;
    case 503: return SR_UNAVAILABLE;
    default: return SR_INTERNAL;
    }
}

/* The engine explains a refusal as {"message": "..."} (Engine API, ErrorResponse). */
int sr_docker_check(const struct sr_call *call, struct sr_err *err)
{
    struct sr_json *root = NULL;
    const char *text = NULL;
    enum sr_code code = code_of(call->status);

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

int sr_docker_check_wait(const struct sr_call *call, struct sr_err *err)
{
    struct sr_json *root = NULL;
    const struct sr_json *fault = NULL;
    const char *text;
    int rc = 0;

    if (sr_docker_check(call, err) < 0)
        return -1;
    if (sr_json_parse(&root, call->answer.data, call->answer.len, NULL, NULL) == 0)
        fault = sr_json_get(root, "Error");
    text = sr_json_get_string(fault, "Message");
    if (text && *text)
        rc = sr_err_set(err, SR_INTERNAL, "wait: %s", text);
    sr_json_free(root);
    return rc;
}

void sr_docker_refused(const struct sr_stream *s, const char *body, size_t n, struct sr_err *err)
{
    struct sr_json *root = NULL;
    const char *text = NULL;
    enum sr_code code = code_of(s->status);

    if (sr_json_parse(&root, body, n, NULL, NULL) == 0)
        text = sr_json_get_string(root, "message");
    sr_err_set(err, code == SR_OK ? SR_PROTOCOL : code, "attach: %s (HTTP %ld)",
               text ? text : "refused", s->status);
    sr_json_free(root);
}

void sr_docker_put_url(struct sr_buf *out, const char *text)
{
    static const char hex[] = "0123456789ABCDEF";

    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
            strchr("-._~", c)) {
            sr_buf_putc(out, (char)c);
        } else {
            sr_buf_putc(out, '%');
            sr_buf_putc(out, hex[c >> 4]);
            sr_buf_putc(out, hex[c & 15]);
        }
    }
}
