#include "job.h"

#include <string.h>

/* Strings get their NUL by moving one byte down, over the length that has been
 * read: the byte behind them already belongs to the next field. */
static char *terminate(char *p, size_t n)
{
    if (memchr(p, 0, n))
        return NULL;
    memmove(p - 1, p, n);
    p[n - 1] = 0;
    return p - 1;
}

static int on_arg(struct sr_job *j, char *p, size_t n)
{
    j->argv[j->n_argv] = terminate(p, n);
    return j->argv[j->n_argv++] ? 0 : -1;
}

static int on_env(struct sr_job *j, char *p, size_t n)
{
    j->env[j->n_env] = terminate(p, n);
    return j->env[j->n_env++] ? 0 : -1;
}

static int on_cwd(struct sr_job *j, char *p, size_t n)
{
    j->cwd = terminate(p, n);
    return j->cwd && j->cwd[0] == '/' ? 0 : -1;
}

static int on_want(struct sr_job *j, char *p, size_t n)
{
    struct sr_want *w = &j->want[j->n_want++];

    if (!sr_wire_path_ok(p + 8, n - 8))
        return -1;
    w->max = sr_wire_get_u64((unsigned char *)p);
    w->path = terminate(p + 8, n - 8);
    return 0;
}

static int on_held(struct sr_job *j, char *p, size_t n)
{
    if (j->held || !sr_wire_path_ok(p, n))
        return -1;
    j->held = terminate(p, n);
    return 0;
}

static int on_stdin(struct sr_job *j, char *p, size_t n)
{
    (void)n;
    j->stdin_pipe = p[0] == 1;
    return p[0] == 0 || p[0] == 1 ? 0 : -1;
}

static int on_number(uint32_t *to, const char *p)
{
    *to = sr_wire_get_u32((const unsigned char *)p);
    return 0;
}

static int on_uid(struct sr_job *j, char *p, size_t n)
{
    (void)n;
    return on_number(&j->uid, p);
}

static int on_wall(struct sr_job *j, char *p, size_t n)
{
    (void)n;
    return on_number(&j->wall_ms, p);
}

static int on_cpu(struct sr_job *j, char *p, size_t n)
{
    (void)n;
    return on_number(&j->cpu_seconds, p);
}

static int on_out(struct sr_job *j, char *p, size_t n)
{
    (void)n;
    return on_number(&j->out_cap, p);
}

static int on_err(struct sr_job *j, char *p, size_t n)
{
    (void)n;
    return on_number(&j->err_cap, p);
}

static const struct {
    char tag;
    size_t min, max;
    int (*parse)(struct sr_job *j, char *p, size_t n);
} FIELDS[] = {
    {SR_FIELD_ARG, 0, SR_WIRE_MAX, on_arg},
    {SR_FIELD_ENV, 0, SR_WIRE_MAX, on_env},
    {SR_FIELD_CWD, 1, SR_WIRE_PATH_MAX, on_cwd},
    {SR_FIELD_UID, 4, 4, on_uid},
    {SR_FIELD_WALL, 4, 4, on_wall},
    {SR_FIELD_CPU, 4, 4, on_cpu},
    {SR_FIELD_OUT, 4, 4, on_out},
    {SR_FIELD_ERR, 4, 4, on_err},
    {SR_FIELD_STDIN, 1, 1, on_stdin},
    {SR_FIELD_HELD, 1, SR_WIRE_PATH_MAX, on_held},
    {SR_FIELD_WANT, 9, 8 + SR_WIRE_PATH_MAX, on_want},
};

static int parse_field(struct sr_job *j, char tag, char *p, size_t n)
{
    for (size_t i = 0; i < sizeof FIELDS / sizeof FIELDS[0]; i++)
        if (FIELDS[i].tag == tag)
            return n < FIELDS[i].min || n > FIELDS[i].max ? -1 : FIELDS[i].parse(j, p, n);
    return -1;
}

int sr_job_parse(struct sr_job *j, const unsigned char *p, size_t n)
{
    size_t at = 0;

    if (n > sizeof j->text)
        return -1;
    memcpy(j->text, p, n);
    while (at < n) {
        size_t len;

        if (n - at < SR_WIRE_HEAD)
            return -1;
        len = sr_wire_get_u32(p + at + 1);
        if (len > n - at - SR_WIRE_HEAD)
            return -1;
        if (parse_field(j, (char)p[at], j->text + at + SR_WIRE_HEAD, len) < 0)
            return -1;
        at += SR_WIRE_HEAD + len;
    }
    /* uid 0 would put the program beside the agent, not below it. */
    return j->n_argv && j->argv[0][0] && j->cwd && j->uid && j->wall_ms ? 0 : -1;
}
