/* httpd_request.c - requests as MHD sees them: head, body, answer, end. */
#include "httpd_parts.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

void sr_request_finish_read(struct sr_request *rq)
{
    struct sr_read *r = rq->reader;

    rq->reader = NULL;
    if (r)
        sr_op_finish(&r->op, NULL);
}

static const char *why_unread(const struct sr_request *rq, enum sr_code code)
{
    switch (code) {
    case SR_TOO_LARGE: return "the body is longer than allowed";
    case SR_UNAVAILABLE: return "too many bodies are arriving; try again later";
    case SR_TIMEOUT: return "the body did not arrive in time";
    case SR_CONFLICT:
        return rq->conn && !rq->doomed ? "the body was read or dropped before"
                                       : "the client has gone";
    default: return "out of memory";
    }
}

void sr_request_fail_read(struct sr_request *rq, enum sr_code code)
{
    struct sr_read *r = rq->reader;
    struct sr_err err;

    sr_request_drop_body(rq);
    rq->reader = NULL;
    if (!r)
        return;
    sr_err_set(&err, code, "%s", why_unread(rq, code));
    sr_op_finish(&r->op, &err);
}

void sr_request_finish_watch(struct sr_request *rq)
{
    struct sr_gone *g = rq->watcher;

    rq->watcher = NULL;
    if (g)
        sr_op_finish(&g->op, NULL);
}

void sr_request_doom(struct sr_request *rq)
{
    rq->doomed = true;
    sr_request_drop_output(rq);
    if (rq->conn)
        sr_conn_shut(rq->conn);
}

static struct sr_request *new_request(struct sr_conn *c)
{
    struct sr_httpd *h = c->h;
    struct sr_request *rq = calloc(1, sizeof *rq);

    if (!rq)
        return NULL;
    rq->refs = 1;
    rq->h = h;
    memcpy(rq->peer, c->peer, sizeof rq->peer);
    rq->next = h->requests;
    rq->link = &h->requests;
    if (rq->next)
        rq->next->link = &rq->next;
    h->requests = rq;
    return rq;
}

/* MHD finds it out by itself where it reads or writes. A client that closes its
 * sending side may still read, or have left for good: nothing tells the two apart
 * before something is sent. */
void sr_request_on_gone(struct sr_request *rq, bool half)
{
    bool waits = rq->phase == SR_PHASE_END && !rq->answer;

    rq->gone = true;
    sr_request_finish_watch(rq);
    if (waits && half)
        sr_conn_set_due(rq->conn, &rq->h->leaving, rq->h->config.request_ms);
    else if (waits || (rq->phase == SR_PHASE_SENDING && rq->streaming && !rq->ended))
        sr_request_doom(rq);
}

/* Hands a request over to whoever accepts. */
static void publish(struct sr_request *rq)
{
    struct sr_httpd *h = rq->h;

    if (rq->published)
        return;
    rq->published = true;
    sr_request_keep(rq);
    rq->next_queued = NULL;
    *h->queue_tail = rq;
    h->queue_tail = &rq->next_queued;
    if (h->acceptor)
        sr_op_finish(&h->acceptor->op, NULL);
    h->acceptor = NULL;
}

struct head {
    struct sr_buf *text;
    const char *length;      /* value of Content-Length */
    const char *next;        /* where the next line has to be */
    unsigned codings, lengths;
    bool chunked, malformed, hidden, expects_continue;
};

bool sr_httpd_is_token(const char *s)
{
    static const char others[] = "!#$%&'*+-.^_`|~";

    if (!*s)
        return false;
    for (; *s; s++)
        if (!((*s >= '0' && *s <= '9') || (*s >= 'A' && *s <= 'Z') || (*s >= 'a' && *s <= 'z') ||
              strchr(others, *s)))
            return false;
    return true;
}

static void put_text(struct sr_buf *b, const char *text)
{
    sr_buf_append(b, text ? text : "", (text ? strlen(text) : 0) + 1);
}

static enum MHD_Result on_header(void *cls, enum MHD_ValueKind kind, const char *name,
                                 const char *value)
{
    struct head *head = cls;

    (void)kind;
    if (!value)
        value = "";
    head->hidden |= name != head->next;
    head->next = value + strlen(value) + 2;
    put_text(head->text, name);
    put_text(head->text, value);
    if (!sr_httpd_is_token(name))
        head->malformed = true; /* some would read "Content-Length :" as a length */
    if (!strcasecmp(name, "Transfer-Encoding")) {
        head->codings++;
        head->chunked = !strcasecmp(value, "chunked");
    } else if (!strcasecmp(name, "Content-Length")) {
        head->lengths++;
        head->length = value;
    } else if (!strcasecmp(name, "Expect")) {
        head->expects_continue = !strcasecmp(value, "100-continue");
    }
    return MHD_YES;
}

/* Up to 0.9.77, MHD takes a NUL for the end of a value, and a line that begins with a
 * NUL or a colon for the end of the head. It parses in place and puts NULs where the
 * ":" and line ends were: what was left out shows by the distance between two strings
 * that should follow each other, as do folded lines and bare line feeds. (Not a NUL or
 * colon before a bare line feed, which look like CRLF then.) Later ones refuse all that
 * by themselves, and keep their lines in other ways. */
static bool shows_its_lines(void)
{
    return !strncmp(MHD_get_version(), "0.", 2);
}

/* Longer than anybody has, or than a whole number of Lua's. */
static bool is_absurd(const char *length)
{
    return strtoull(length, NULL, 10) > INT64_MAX;
}

/* The status of a refusal, or 0. A body whose length has two readings is how
 * requests are smuggled past a proxy (RFC 9112 section 6.3). */
static unsigned check_head(const struct sr_httpd *h, struct MHD_Connection *mhd,
                           const struct head *head, const char *version)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);

    if (!info || info->header_size > h->config.header_bytes)
        return MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE;
    if (head->malformed || (head->hidden && shows_its_lines()))
        return MHD_HTTP_BAD_REQUEST;
    if (head->lengths > 1 || head->codings > 1 || (head->lengths && head->codings) ||
        (head->codings && !strcmp(version, "HTTP/1.0")))
        return MHD_HTTP_BAD_REQUEST;
    if (head->codings && !head->chunked)
        return MHD_HTTP_NOT_IMPLEMENTED;
    if (head->lengths && is_absurd(head->length))
        return MHD_HTTP_CONTENT_TOO_LARGE;
    return 0;
}

static const char *why_refused(unsigned status)
{
    switch (status) {
    case MHD_HTTP_BAD_REQUEST:
        return "The head of the request can be read in more than one way: send plain header names "
               "and values, each on one line that ends with CRLF, and one length, Content-Length "
               "or chunked.\n";
    case MHD_HTTP_CONTENT_TOO_LARGE:
        return "No body is as long as this Content-Length.\n";
    case MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE:
        return "The head of the request is too long: send fewer or shorter headers.\n";
    case MHD_HTTP_NOT_IMPLEMENTED:
        return "The only Transfer-Encoding known here is chunked.\n";
    default:
        return "The server lacks memory: try again later.\n";
    }
}

/* Answers in the head's stead, which closes the connection. */
static enum MHD_Result refuse(struct MHD_Connection *mhd, unsigned status)
{
    const char *text = why_refused(status);
    struct MHD_Response *r = MHD_create_response_from_buffer(
        strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_PERSISTENT);
    enum MHD_Result queued = MHD_NO;

    if (r) {
        MHD_add_response_header(r, "Content-Type", "text/plain; charset=utf-8");
        queued = MHD_queue_response(mhd, status, r);
        MHD_destroy_response(r);
    }
    return queued;
}

/* Walks the headers; what stands before, between and behind them besides is noted. */
static void find_hidden(const struct sr_conn *c, const char *method, const char *version,
                        struct head *head)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);

    head->hidden = method + strlen(method) + 1 != c->target_at ||
                   c->target_at + strlen(c->target) + 1 != version;
    head->next = version + strlen(version) + 2;
    MHD_get_connection_values(c->mhd, MHD_HEADER_KIND, on_header, head);
    head->hidden |= !info || head->next + 2 != method + info->header_size;
}

/* The head is complete: a request with a body waits here until somebody asks for
 * the body, any other one behind the body that it does not have. */
static enum MHD_Result begin(struct sr_httpd *h, struct sr_conn *c, const char *method,
                             const char *version, void **ctx)
{
    /* All that had no request when the server was stopped are dying. */
    struct sr_request *rq = c->target && !c->dying ? new_request(c) : NULL;
    struct head head = {0};
    unsigned status;

    if (!rq)
        return MHD_NO;
    head.text = &rq->head;
    put_text(head.text, method);
    put_text(head.text, c->target);
    find_hidden(c, method, version, &head);
    status = sr_buf_ok(&rq->head) ? check_head(h, c->mhd, &head, version)
                                  : MHD_HTTP_SERVICE_UNAVAILABLE;
    if (status) {
        sr_request_release(rq);
        return refuse(c->mhd, status);
    }
    rq->declared = head.codings ? SR_UNKNOWN : head.lengths ? strtoull(head.length, NULL, 10) : 0;
    rq->expects_continue = head.expects_continue;
    rq->is_old = !strcmp(version, "HTTP/1.0");
    rq->conn = c;
    rq->left_ms = c->due == &h->arriving ? c->due_ms - sr_now_ms() : h->config.request_ms;
    sr_conn_set_due(c, &h->arriving, rq->left_ms); /* a "100 Continue" may have to wait */
    c->rq = rq;
    h->n_requests++;
    *ctx = rq;
    sr_conn_watch_gone(c);
    if (rq->declared) {
        rq->phase = SR_PHASE_HEAD;
        sr_conn_clear_due(c);
        publish(rq);
        sr_conn_suspend(c);
    } else {
        rq->phase = SR_PHASE_BODY;
    }
    return MHD_YES;
}

/* Room for n more bytes of the body: SR_OK or what is lacking. */
static enum sr_code grow_body(struct sr_request *rq, size_t n)
{
    size_t need = rq->body_len + n, cap = rq->body_cap ? 2 * rq->body_cap : SR_BODY_FIRST;
    size_t most = rq->declared < rq->body_max ? (size_t)rq->declared : rq->body_max;
    char *body;

    if (need <= rq->body_cap)
        return SR_OK;
    if (cap > most)
        cap = most;
    if (cap < need)
        cap = need;
    if (cap - rq->body_cap > rq->h->config.body_budget - rq->h->buffered)
        return SR_UNAVAILABLE;
    body = realloc(rq->body, cap);
    if (!body)
        return SR_NO_MEMORY;
    rq->h->buffered += cap - rq->body_cap;
    rq->body = body;
    rq->body_cap = cap;
    return SR_OK;
}

static enum MHD_Result take_body(struct sr_request *rq, const char *data, size_t n)
{
    if (rq->doomed)
        return MHD_NO;
    if (rq->body_state == SR_BODY_READING) {
        enum sr_code code = n > rq->body_max - rq->body_len ? SR_TOO_LARGE : grow_body(rq, n);

        if (code == SR_OK) {
            memcpy(rq->body + rq->body_len, data, n);
            rq->body_len += n;
            return MHD_YES;
        }
        sr_request_fail_read(rq, code);
    }
    rq->discarded += n;
    return rq->discarded > SR_DISCARD_MAX ? MHD_NO : MHD_YES;
}

/* Hands the answer to MHD, which takes it only before the body and behind it. */
static enum MHD_Result send_answer(struct sr_request *rq)
{
    enum MHD_Result queued;

    if (rq->is_last)
        MHD_add_response_header(rq->answer, "Connection", "close");
    queued = MHD_queue_response(rq->conn->mhd, rq->status, rq->answer);
    MHD_destroy_response(rq->answer);
    rq->answer = NULL;
    rq->phase = SR_PHASE_SENDING;
    if (!rq->streaming || rq->ended || rq->out.len > rq->sent)
        sr_conn_clock_sending(rq->conn);
    else
        sr_conn_clear_due(rq->conn);
    return queued;
}

/* Whether to answer without the body: the client waits for leave to send it, or it
 * is too long to be dropped. MHD closes the connection then. */
static bool body_is_refused(const struct sr_request *rq)
{
    return rq->answered && rq->body_state != SR_BODY_READING &&
           (rq->expects_continue || (rq->declared != SR_UNKNOWN && rq->declared > SR_DISCARD_MAX));
}

static enum MHD_Result wait_for_answer(struct sr_request *rq)
{
    if (rq->conn->dying)
        return MHD_NO;
    if (rq->answer)
        return send_answer(rq);
    sr_conn_suspend(rq->conn);
    return MHD_YES;
}

static enum MHD_Result after_head(struct sr_request *rq)
{
    if (rq->conn->dying)
        return MHD_NO;
    if (body_is_refused(rq))
        return send_answer(rq);
    if (rq->body_state == SR_BODY_READING || rq->answered) {
        rq->phase = SR_PHASE_BODY;
        sr_conn_set_due(rq->conn, &rq->h->arriving, rq->left_ms);
        if (rq->declared == SR_UNKNOWN)
            sr_conn_begin_chunked(rq->conn);
    } else {
        sr_conn_suspend(rq->conn);
    }
    return MHD_YES;
}

static enum MHD_Result after_body(struct sr_request *rq)
{
    rq->phase = SR_PHASE_END;
    sr_conn_clear_due(rq->conn);
    sr_conn_end_chunked(rq->conn);
    /* The lines of a trailer are not checked as those of the head are. MHD also tells
     * of one when the two bytes of the last line come apart; that does no harm. */
    rq->is_last = MHD_get_connection_values(rq->conn->mhd, MHD_FOOTER_KIND, NULL, NULL) > 0;
    if (rq->declared == 0)
        rq->body_state = SR_BODY_HERE;
    if (rq->body_state == SR_BODY_READING) {
        rq->body_state = SR_BODY_HERE;
        sr_request_finish_read(rq);
    }
    publish(rq);
    return wait_for_answer(rq);
}

/* What MHD calls: once for the head, again after each resume, with each piece of
 * the body, and behind the body. */
enum MHD_Result sr_httpd_on_request(void *cls, struct MHD_Connection *mhd, const char *url,
                                    const char *method, const char *version, const char *data,
                                    size_t *size, void **ctx)
{
    struct sr_httpd *h = cls;
    struct sr_request *rq = *ctx;
    enum MHD_Result result = MHD_YES;

    (void)url;
    h->calls++;
    if (!rq) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

        return info && info->socket_context ? begin(h, info->socket_context, method, version, ctx)
                                            : MHD_NO;
    }
    sr_conn_on_call(rq->conn);
    if (*size) {
        result = take_body(rq, data, *size);
        *size = 0;
    } else if (rq->phase == SR_PHASE_HEAD) {
        result = after_head(rq);
    } else if (rq->phase == SR_PHASE_BODY) {
        result = after_body(rq);
    } else if (rq->phase == SR_PHASE_END) {
        result = wait_for_answer(rq);
    }
    return result;
}

void *sr_httpd_on_target(void *cls, const char *uri, struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct sr_conn *c = info ? info->socket_context : NULL;

    (void)cls;
    if (c) {
        free(c->target);
        c->target = strdup(uri ? uri : "");
        c->target_at = uri;
    }
    return NULL;
}

void sr_httpd_on_completed(void *cls, struct MHD_Connection *mhd, void **ctx,
                           enum MHD_RequestTerminationCode how)
{
    struct sr_request *rq = *ctx;
    struct sr_conn *c;

    (void)cls;
    (void)mhd;
    if (!rq)
        return;
    c = rq->conn;
    *ctx = NULL;
    rq->done = rq->phase == SR_PHASE_SENDING && how == MHD_REQUEST_TERMINATED_COMPLETED_OK;
    rq->gone = !rq->done;
    rq->phase = SR_PHASE_OVER;
    rq->conn = NULL;
    if (rq->reader)
        sr_request_fail_read(rq, SR_CONFLICT);
    sr_request_finish_watch(rq);
    sr_request_drop_output(rq);
    rq->h->unsent -= rq->held;
    rq->held = 0;
    rq->h->n_requests--;
    sr_conn_end_chunked(c);
    if (how != MHD_REQUEST_TERMINATED_COMPLETED_OK || (rq->streaming && rq->is_old))
        sr_conn_hurry_end(c);
    c->rq = NULL;
    sr_request_release(rq);
    sr_conn_await_next(c);
}
