#include "session.h"

#include <stdlib.h>
#include <string.h>

#define ENGINE_HEAD 8
#define AT(state) (1u << (state))
#define STARTED (AT(SR_SESSION_HELD) | AT(SR_SESSION_RUNNING))

void sr_session_init(struct sr_session *s)
{
    *s = (struct sr_session){.state = SR_SESSION_OPENING};
}

static void free_artifacts(struct sr_session *s)
{
    for (size_t i = 0; i < s->n_artifacts; i++) {
        free(s->artifacts[i].path);
        sr_buf_clear(&s->artifacts[i].data);
    }
    free(s->artifacts);
    s->artifacts = NULL;
    s->n_artifacts = 0;
}

void sr_session_clear(struct sr_session *s)
{
    free_artifacts(s);
    free(s->failure);
    sr_buf_clear(&s->out);
    sr_buf_clear(&s->stdout_);
    sr_buf_clear(&s->stderr_);
    sr_buf_clear(&s->small);
    sr_session_init(s);
}

/* Receiving. A handler gets a piece of a streamed frame or the whole of a
 * small one, and returns -1 with s->err set to break the session. */

static int broken(struct sr_session *s, const char *what)
{
    return sr_err_set(&s->err, SR_PROTOCOL, "the agent broke the protocol: %s", what);
}

static int keep(struct sr_session *s, struct sr_buf *b, const unsigned char *p, size_t n)
{
    sr_buf_append(b, p, n);
    if (!sr_buf_ok(b))
        return sr_err_set(&s->err, SR_NO_MEMORY, "no memory for what the sandbox sent");
    return 0;
}

static int keep_capped(struct sr_session *s, struct sr_buf *b, size_t cap, const unsigned char *p,
                       size_t n)
{
    size_t room = cap > b->len ? cap - b->len : 0;

    return keep(s, b, p, n < room ? n : room);
}

static int on_stdout(struct sr_session *s, const unsigned char *p, size_t n)
{
    return keep_capped(s, &s->stdout_, s->out_cap, p, n);
}

static int on_stderr(struct sr_session *s, const unsigned char *p, size_t n)
{
    return keep_capped(s, &s->stderr_, s->err_cap, p, n);
}

/* The artifact that is still short of bytes, or NULL. */
static struct sr_artifact *open_artifact(struct sr_session *s)
{
    struct sr_artifact *a = s->n_answered ? &s->artifacts[s->n_answered - 1] : NULL;

    return a && a->missing < 0 && a->data.len < a->size ? a : NULL;
}

static int on_data(struct sr_session *s, const unsigned char *p, size_t n)
{
    struct sr_artifact *a = open_artifact(s);

    if (!a || n > a->size - a->data.len)
        return broken(s, "more bytes of a file than announced");
    return keep(s, &a->data, p, n);
}

/* The next artifact to be answered for, if that is `path`. */
static struct sr_artifact *next_artifact(struct sr_session *s, const unsigned char *path, size_t n)
{
    struct sr_artifact *a;

    if (open_artifact(s) || s->n_answered == s->n_artifacts)
        return NULL;
    a = &s->artifacts[s->n_answered];
    if (strlen(a->path) != n || memcmp(a->path, path, n) != 0)
        return NULL;
    s->n_answered++;
    return a;
}

static int on_artifact(struct sr_session *s, const unsigned char *p, size_t n)
{
    struct sr_artifact *a = next_artifact(s, p + 8, n - 8);

    if (!a)
        return broken(s, "a file that is not due");
    a->size = sr_wire_get_u64(p);
    if (a->size > s->want_max)
        return broken(s, "a file larger than wanted");
    a->missing = -1;
    return 0;
}

static int on_missing(struct sr_session *s, const unsigned char *p, size_t n)
{
    struct sr_artifact *a = next_artifact(s, p + 1, n - 1);

    if (!a || p[0] > SR_MISSING_TOO_LARGE)
        return broken(s, "an answer about a file that is not due");
    a->missing = p[0];
    return 0;
}

static int on_hello(struct sr_session *s, const unsigned char *p, size_t n)
{
    (void)n;
    if (p[0] != SR_WIRE_VERSION)
        return broken(s, "another version of it");
    s->state = SR_SESSION_READY;
    return 0;
}

static int on_exit_report(struct sr_session *s, const unsigned char *p, size_t n)
{
    if (open_artifact(s) || s->n_answered != s->n_artifacts)
        return broken(s, "a report before the files that were wanted");
    if (sr_wire_get_report(p, n, &s->report) < 0)
        return broken(s, "a report that cannot be read");
    s->state = SR_SESSION_DONE;
    return 0;
}

static int on_failure(struct sr_session *s, const unsigned char *p, size_t n)
{
    s->failure = strndup((const char *)p, n);
    if (!s->failure)
        return sr_err_set(&s->err, SR_NO_MEMORY, "no memory for what the sandbox sent");
    s->state = SR_SESSION_DONE;
    return 0;
}

static const struct frame_rule {
    uint8_t type;
    bool stream; /* handed on piece by piece; otherwise collected first */
    unsigned states;
    uint32_t min, max;
    int (*handle)(struct sr_session *s, const unsigned char *p, size_t n);
} RULES[] = {
    {SR_WIRE_HELLO, false, AT(SR_SESSION_OPENING), 1, 1, on_hello},
    {SR_WIRE_STDOUT, true, STARTED, 0, SR_WIRE_MAX, on_stdout},
    {SR_WIRE_STDERR, true, STARTED, 0, SR_WIRE_MAX, on_stderr},
    {SR_WIRE_ARTIFACT, false, STARTED, 9, 8 + SR_WIRE_PATH_MAX, on_artifact},
    {SR_WIRE_DATA, true, STARTED, 0, SR_WIRE_MAX, on_data},
    {SR_WIRE_MISSING, false, STARTED, 2, 1 + SR_WIRE_PATH_MAX, on_missing},
    {SR_WIRE_EXIT, false, STARTED, SR_WIRE_REPORT_SIZE, SR_WIRE_REPORT_SIZE, on_exit_report},
    {SR_WIRE_FAILURE, false, AT(SR_SESSION_OPENING) | AT(SR_SESSION_READY) | STARTED, 0,
     SR_WIRE_MAX, on_failure},
};

static const struct frame_rule *rule_of(uint8_t type)
{
    for (size_t i = 0; i < sizeof RULES / sizeof RULES[0]; i++)
        if (RULES[i].type == type)
            return &RULES[i];
    return NULL;
}

static int finish_frame(struct sr_session *s)
{
    const struct frame_rule *rule = rule_of(s->wtype);
    const unsigned char *p = (const unsigned char *)s->small.data;
    int rc = 0;

    s->whead_len = 0;
    if (!rule->stream)
        rc = rule->handle(s, p ? p : (const unsigned char *)"", s->small.len);
    s->small.len = 0;
    return rc;
}

static int begin_frame(struct sr_session *s)
{
    const struct frame_rule *rule = rule_of(s->whead[0]);

    s->wtype = s->whead[0];
    s->wleft = sr_wire_get_u32(s->whead + 1);
    if (!rule)
        return broken(s, "an unknown frame");
    if (!(rule->states & AT(s->state)))
        return broken(s, "a frame at the wrong moment");
    if (s->wleft < rule->min || s->wleft > rule->max)
        return broken(s, "a frame of a wrong length");
    return s->wleft ? 0 : finish_frame(s);
}

/* Fills a fixed-size head from the stream; returns the bytes taken. */
static size_t take_head(unsigned char *head, size_t *len, size_t want, const unsigned char *p,
                        size_t n)
{
    size_t take = want - *len < n ? want - *len : n;

    memcpy(head + *len, p, take);
    *len += take;
    return take;
}

static int feed_payload(struct sr_session *s, const unsigned char *p, size_t n)
{
    const struct frame_rule *rule = rule_of(s->wtype);
    int rc = rule->stream ? rule->handle(s, p, n) : keep(s, &s->small, p, n);

    s->wleft -= (uint32_t)n;
    if (rc == 0 && s->wleft == 0)
        rc = finish_frame(s);
    return rc;
}

static int feed_agent(struct sr_session *s, const unsigned char *p, size_t n)
{
    int rc = 0;

    while (n && rc == 0) {
        size_t take;

        if (s->whead_len < SR_WIRE_HEAD) {
            take = take_head(s->whead, &s->whead_len, SR_WIRE_HEAD, p, n);
            if (s->whead_len == SR_WIRE_HEAD)
                rc = begin_frame(s);
        } else {
            take = s->wleft < n ? s->wleft : n;
            rc = feed_payload(s, p, take);
        }
        p += take;
        n -= take;
    }
    return rc;
}

static int feed_words(struct sr_session *s, const unsigned char *p, size_t n)
{
    size_t room = sizeof s->words - 1 - s->words_len;
    size_t take = n < room ? n : room;

    memcpy(s->words + s->words_len, p, take);
    s->words_len += take;
    return 0;
}

static int begin_engine_frame(struct sr_session *s)
{
    s->stream = s->head[0];
    s->left = sr_wire_get_u32(s->head + 4);
    if ((s->stream != 1 && s->stream != 2) || s->head[1] || s->head[2] || s->head[3])
        return sr_err_set(&s->err, SR_PROTOCOL, "the engine sent bytes that are no attach stream");
    if (s->left == 0)
        s->head_len = 0;
    return 0;
}

static int feed_engine_payload(struct sr_session *s, const unsigned char *p, size_t n)
{
    s->left -= (uint32_t)n;
    if (s->left == 0)
        s->head_len = 0;
    return s->stream == 1 ? feed_agent(s, p, n) : feed_words(s, p, n);
}

static int feed_engine(struct sr_session *s, const unsigned char *p, size_t n)
{
    int rc = 0;

    while (n && rc == 0) {
        size_t take;

        if (s->head_len < ENGINE_HEAD) {
            take = take_head(s->head, &s->head_len, ENGINE_HEAD, p, n);
            if (s->head_len == ENGINE_HEAD)
                rc = begin_engine_frame(s);
        } else {
            take = s->left < n ? s->left : n;
            rc = feed_engine_payload(s, p, take);
        }
        p += take;
        n -= take;
    }
    return rc;
}

int sr_session_feed(struct sr_session *s, const void *data, size_t n, struct sr_err *err)
{
    if (s->state != SR_SESSION_BROKEN && feed_engine(s, data, n) == 0)
        return 0;
    s->state = SR_SESSION_BROKEN;
    if (err)
        *err = s->err;
    return -1;
}

/* Sending. */

static void put_frame(struct sr_buf *b, uint8_t type, const void *data, size_t n)
{
    unsigned char head[SR_WIRE_HEAD];

    sr_wire_put_head(head, type, (uint32_t)n);
    sr_buf_append(b, head, sizeof head);
    sr_buf_append(b, data, n);
}

static void put_chunks(struct sr_buf *b, uint8_t type, const char *p, size_t n)
{
    while (n) {
        size_t take = n < SR_WIRE_MAX ? n : SR_WIRE_MAX;

        put_frame(b, type, p, take);
        p += take;
        n -= take;
    }
}

static int check_memory(const struct sr_session *s, struct sr_err *err)
{
    if (sr_buf_ok(&s->out))
        return 0;
    return sr_err_set(err, SR_NO_MEMORY, "no memory for what goes to the sandbox");
}

static int check_path(const char *path, struct sr_err *err)
{
    if (sr_wire_path_ok(path, strlen(path)))
        return 0;
    return sr_err_set(err, SR_INVALID, "\"%.200s\" is no path below the scratch folder", path);
}

int sr_session_put_file(struct sr_session *s, const char *path, uint32_t mode, const void *data,
                        size_t n, struct sr_err *err)
{
    unsigned char head[SR_WIRE_HEAD + 12];
    size_t path_len = strlen(path);

    if (s->state != SR_SESSION_READY && s->state != SR_SESSION_HELD)
        return sr_err_set(err, SR_INVALID, "files can be sent only before the run");
    if (check_path(path, err) < 0)
        return -1;
    sr_wire_put_head(head, SR_WIRE_FILE, (uint32_t)(12 + path_len));
    sr_wire_put_u32(head + SR_WIRE_HEAD, mode);
    sr_wire_put_u64(head + SR_WIRE_HEAD + 4, n);
    sr_buf_append(&s->out, head, sizeof head);
    sr_buf_append(&s->out, path, path_len);
    put_chunks(&s->out, SR_WIRE_DATA, data, n);
    return check_memory(s, err);
}

/* A field has the layout of a frame. */
static void put_text(struct sr_buf *b, uint8_t tag, const char *text)
{
    put_frame(b, tag, text, strlen(text));
}

static void put_number(struct sr_buf *b, uint8_t tag, uint32_t v)
{
    unsigned char p[4];

    sr_wire_put_u32(p, v);
    put_frame(b, tag, p, sizeof p);
}

static void put_want(struct sr_buf *b, const char *path, uint64_t max)
{
    unsigned char p[SR_WIRE_HEAD + 8];
    size_t n = strlen(path);

    sr_wire_put_head(p, SR_FIELD_WANT, (uint32_t)(8 + n));
    sr_wire_put_u64(p + SR_WIRE_HEAD, max);
    sr_buf_append(b, p, sizeof p);
    sr_buf_append(b, path, n);
}

static void encode_order(struct sr_buf *b, const struct sr_order *o)
{
    static const char *const none[] = {NULL};
    unsigned char piped = o->stdin_pipe;

    for (const char *const *p = o->argv; *p; p++)
        put_text(b, SR_FIELD_ARG, *p);
    for (const char *const *p = o->env ? o->env : none; *p; p++)
        put_text(b, SR_FIELD_ENV, *p);
    put_text(b, SR_FIELD_CWD, o->cwd);
    put_number(b, SR_FIELD_UID, o->uid);
    put_number(b, SR_FIELD_WALL, o->wall_ms);
    if (o->cpu_seconds)
        put_number(b, SR_FIELD_CPU, o->cpu_seconds);
    put_number(b, SR_FIELD_OUT, o->out_cap);
    put_number(b, SR_FIELD_ERR, o->err_cap);
    put_frame(b, SR_FIELD_STDIN, &piped, 1);
    if (o->held)
        put_text(b, SR_FIELD_HELD, o->held);
    for (const char *const *p = o->want ? o->want : none; *p; p++)
        put_want(b, *p, o->want_max);
}

static int check_order(const struct sr_session *s, const struct sr_order *o, struct sr_err *err)
{
    if (s->state != SR_SESSION_READY)
        return sr_err_set(err, SR_INVALID, "the sandbox is not ready for a start order");
    if (!o->argv || !o->argv[0] || !o->argv[0][0])
        return sr_err_set(err, SR_INVALID, "the start order names no command");
    if (!o->cwd || o->cwd[0] != '/')
        return sr_err_set(err, SR_INVALID, "the working directory must be absolute");
    if (o->uid == 0 || o->wall_ms == 0)
        return sr_err_set(err, SR_INVALID, "a program needs a uid other than 0 and a wall limit");
    for (const char *const *p = o->want; p && *p; p++)
        if (check_path(*p, err) < 0)
            return -1;
    return o->held ? check_path(o->held, err) : 0;
}

static int expect_artifacts(struct sr_session *s, const struct sr_order *o)
{
    size_t n = 0;

    while (o->want && o->want[n])
        n++;
    s->artifacts = n ? calloc(n, sizeof *s->artifacts) : NULL;
    if (n && !s->artifacts)
        return -1;
    for (; s->n_artifacts < n; s->n_artifacts++) {
        struct sr_artifact *a = &s->artifacts[s->n_artifacts];

        a->missing = SR_MISSING_ABSENT;
        a->path = strdup(o->want[s->n_artifacts]);
        if (!a->path) {
            free_artifacts(s);
            return -1;
        }
    }
    return 0;
}

int sr_session_start(struct sr_session *s, const struct sr_order *order, struct sr_err *err)
{
    struct sr_buf b = {0};
    int rc = -1;

    if (check_order(s, order, err) < 0)
        return -1;
    encode_order(&b, order);
    if (!sr_buf_ok(&b)) {
        sr_err_set(err, SR_NO_MEMORY, "no memory for the start order");
    } else if (b.len > SR_WIRE_MAX) {
        sr_err_set(err, SR_TOO_LARGE, "arguments and environment take %zu bytes, more than %u",
                   b.len, SR_WIRE_MAX);
    } else if (expect_artifacts(s, order) < 0) {
        sr_err_set(err, SR_NO_MEMORY, "no memory for the start order");
    } else {
        put_frame(&s->out, SR_WIRE_START, b.data, b.len);
        s->out_cap = order->out_cap;
        s->err_cap = order->err_cap;
        s->want_max = order->want_max;
        s->state = order->held ? SR_SESSION_HELD : SR_SESSION_RUNNING;
        rc = check_memory(s, err);
    }
    sr_buf_clear(&b);
    return rc;
}

static void change_cap(struct sr_buf *kept, size_t *cap, size_t to)
{
    *cap = to;
    if (kept->len > to)
        kept->len = to;
}

int sr_session_go(struct sr_session *s, uint32_t wall_ms, uint32_t out_cap, uint32_t err_cap,
                  struct sr_err *err)
{
    unsigned char p[SR_WIRE_GO_SIZE];

    if (s->state != SR_SESSION_HELD)
        return sr_err_set(err, SR_INVALID, "no program of this sandbox waits for its script");
    if (wall_ms == 0)
        return sr_err_set(err, SR_INVALID, "a program needs a wall limit");
    sr_wire_put_u32(p, wall_ms);
    sr_wire_put_u32(p + 4, out_cap);
    sr_wire_put_u32(p + 8, err_cap);
    put_frame(&s->out, SR_WIRE_GO, p, sizeof p);
    change_cap(&s->stdout_, &s->out_cap, out_cap);
    change_cap(&s->stderr_, &s->err_cap, err_cap);
    s->state = SR_SESSION_RUNNING;
    return check_memory(s, err);
}

void sr_session_stdin(struct sr_session *s, const void *data, size_t n)
{
    if (s->state == SR_SESSION_RUNNING)
        put_chunks(&s->out, SR_WIRE_STDIN, data, n);
}

void sr_session_stdin_eof(struct sr_session *s)
{
    if (s->state == SR_SESSION_RUNNING)
        put_frame(&s->out, SR_WIRE_STDIN_EOF, NULL, 0);
}

void sr_session_kill(struct sr_session *s)
{
    if (s->state == SR_SESSION_HELD || s->state == SR_SESSION_RUNNING)
        put_frame(&s->out, SR_WIRE_KILL, NULL, 0);
}
