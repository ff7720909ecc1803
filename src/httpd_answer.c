/* httpd_answer.c - requests as their owner sees them: what they say, and answers. */
#include "httpd_parts.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define STALL_MS 100 /* without a byte taken: the client does not read */
#define HEADS_MAX 6000u /* of an answer: what a connection's memory holds beside a longest head */

void sr_request_drop_output(struct sr_request *rq)
{
    if (rq->h)
        rq->h->unsent -= rq->out.len - rq->sent;
    sr_buf_clear(&rq->out);
    rq->sent = 0;
}

void sr_request_drop_body(struct sr_request *rq)
{
    if (rq->h)
        rq->h->buffered -= rq->body_cap;
    free(rq->body);
    rq->body = NULL;
    rq->body_len = rq->body_cap = 0;
    if (rq->body_state == SR_BODY_READING || rq->body_state == SR_BODY_HERE)
        rq->body_state = SR_BODY_GONE;
}

void sr_request_keep(struct sr_request *rq)
{
    rq->refs++;
}

void sr_request_release(struct sr_request *rq)
{
    rq->refs--;
    if (rq->refs == 1 && rq->conn) /* nobody but MHD: nothing more will be written */
        sr_request_abort(rq);
    if (rq->refs)
        return;
    sr_request_drop_body(rq);
    if (rq->answer)
        MHD_destroy_response(rq->answer);
    sr_buf_clear(&rq->out);
    sr_buf_clear(&rq->head);
    if (rq->link) {
        *rq->link = rq->next;
        if (rq->next)
            rq->next->link = rq->link;
    }
    free(rq);
}

/* Gives MHD more of a stream. */
static ssize_t on_stream(void *cls, uint64_t pos, char *to, size_t max)
{
    struct sr_request *rq = cls;
    size_t n = rq->out.len - rq->sent;

    (void)pos;
    rq->h->calls++;
    if (rq->doomed)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (!n && rq->ended)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (!n) {
        sr_conn_clear_due(rq->conn); /* nothing waits: it may be silent for ever */
        sr_conn_suspend(rq->conn);
        return 0;
    }
    if (n > max)
        n = max;
    memcpy(to, rq->out.data + rq->sent, n);
    rq->sent += n;
    rq->h->unsent -= n;
    rq->moved_ms = sr_now_ms();
    /* Moving the rest costs as much as it is long: only once for as many bytes sent. */
    if (rq->sent >= rq->out.len - rq->sent) {
        sr_buf_consume(&rq->out, rq->sent);
        rq->sent = 0;
    }
    return (ssize_t)n;
}

/* What belongs to the connection or to the length of the body is MHD's to say. */
static bool may_be_sent(const char *name, const char *value)
{
    return sr_httpd_is_token(name) && !strpbrk(value, "\r\n") &&
           strcasecmp(name, "Content-Length") != 0 && strcasecmp(name, "Transfer-Encoding") != 0 &&
           (strcasecmp(name, "Connection") != 0 || !strcasecmp(value, "close"));
}

/* What MHD might refuse for what it says is refused before: MHD_NO is lack of memory. */
static int add_headers(struct MHD_Response *r, const char *heads, size_t n, struct sr_err *err)
{
    const char *end = heads + n;

    while (heads < end) {
        const char *name = heads, *value = name + strlen(name) + 1;

        heads = value + strlen(value) + 1;
        if (!may_be_sent(name, value))
            return sr_err_set(err, SR_INVALID, "the header \"%.100s\" cannot be sent", name);
        if (*value && MHD_add_response_header(r, name, value) != MHD_YES)
            return sr_err_set(err, SR_NO_MEMORY, "out of memory");
    }
    return 0;
}

/* Takes over r, NULL when there was no memory for it. */
static int answer(struct sr_request *rq, unsigned status, struct MHD_Response *r,
                  const char *heads, size_t heads_len, struct sr_err *err)
{
    int rc = -1;

    if (!r)
        return sr_err_set(err, SR_NO_MEMORY, "out of memory");
    if (heads_len > HEADS_MAX) {
        sr_err_set(err, SR_INVALID, "headers of more than %u bytes cannot be sent", HEADS_MAX);
    } else if (rq->answered) {
        sr_err_set(err, SR_INVALID, "the request was answered already");
    } else if (status < 200 || status > 599) {
        sr_err_set(err, SR_INVALID, "%u is no status of an answer", status);
    } else if (add_headers(r, heads, heads_len, err) == 0) {
        rq->answered = true;
        rc = rq->conn && !rq->conn->dying
                 ? 0 : sr_err_set(err, SR_CONFLICT, "the client has gone");
    }
    if (rc < 0) {
        MHD_destroy_response(r);
        return -1;
    }
    if (rq->h->stopped)
        MHD_add_response_header(r, "Connection", "close");
    rq->status = status;
    rq->answer = r;
    if (rq->phase == SR_PHASE_HEAD || rq->phase == SR_PHASE_END)
        sr_conn_resume(rq->conn);
    return 0;
}

int sr_request_respond(struct sr_request *rq, unsigned status, const char *heads,
                       size_t heads_len, const void *body, size_t n, struct sr_err *err)
{
    struct MHD_Response *r =
        MHD_create_response_from_buffer(n, (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY);

    if (answer(rq, status, r, heads, heads_len, err) < 0)
        return -1;
    rq->held = n;
    rq->h->unsent += n;
    return 0;
}

int sr_request_stream(struct sr_request *rq, unsigned status, const char *heads, size_t heads_len,
                      struct sr_err *err)
{
    struct MHD_Response *r;

    /* MHD would send the end of a stream behind the head. */
    if (!strcmp(sr_request_method(rq), "HEAD") || status == MHD_HTTP_NO_CONTENT ||
        status == MHD_HTTP_NOT_MODIFIED)
        return sr_err_set(err, SR_INVALID, "an answer without a body cannot be a stream");
    r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, SR_BODY_FIRST, on_stream, rq, NULL);
    if (answer(rq, status, r, heads, heads_len, err) < 0)
        return -1;
    rq->streaming = true;
    return 0;
}

/* Whether the client has to be given up before n more bytes wait for it. Above the
 * budget that is everyone who has not taken any of what waits for a while, and at
 * twice as much everyone for whom something waits. */
static bool is_unread(const struct sr_request *rq, size_t n)
{
    const struct sr_httpd *h = rq->h;
    size_t waiting = rq->out.len - rq->sent, budget = h->config.output_budget;

    if (n > h->config.stream_bytes || waiting > h->config.stream_bytes - n)
        return true;
    if (!waiting || h->unsent + n <= budget)
        return false;
    return sr_now_ms() - rq->moved_ms >= STALL_MS || h->unsent + n > 2 * budget;
}

int sr_request_write(struct sr_request *rq, const void *data, size_t n, struct sr_err *err)
{
    if (!rq->streaming || rq->ended)
        return sr_err_set(err, SR_INVALID, "the stream is closed");
    if (!rq->conn || rq->conn->dying)
        return sr_err_set(err, SR_CONFLICT, "the client has gone");
    if (is_unread(rq, n)) {
        sr_request_doom(rq);
        return sr_err_set(err, SR_CONFLICT, "the client did not read what was sent");
    }
    if (rq->out.len == rq->sent)
        rq->moved_ms = sr_now_ms();
    sr_buf_append(&rq->out, data, n);
    if (!sr_buf_ok(&rq->out)) {
        sr_request_doom(rq);
        return sr_err_set(err, SR_NO_MEMORY, "no memory for what goes to the client");
    }
    rq->h->unsent += n;
    if (n && rq->phase == SR_PHASE_SENDING) {
        if (!rq->conn->due)
            sr_conn_clock_sending(rq->conn);
        sr_conn_resume(rq->conn);
    }
    return 0;
}

void sr_request_finish(struct sr_request *rq)
{
    if (!rq->streaming || rq->ended)
        return;
    rq->ended = true;
    if (rq->phase == SR_PHASE_SENDING) {
        sr_conn_clock_sending(rq->conn);
        sr_conn_resume(rq->conn);
    }
}

void sr_request_abort(struct sr_request *rq)
{
    if (rq->streaming && !rq->ended)
        sr_request_doom(rq);
    rq->ended = true;
}

void sr_request_abandon(struct sr_request *rq)
{
    static const char heads[] = "Content-Type\0text/plain; charset=utf-8";
    static const char text[] = "The server failed to answer.\n";

    sr_request_drop_body(rq);
    if (!rq->answered && sr_request_respond(rq, MHD_HTTP_INTERNAL_SERVER_ERROR, heads, sizeof heads,
                                            text, sizeof text - 1, NULL) < 0)
        sr_request_doom(rq); /* no memory: it would wait for ever */
}

static void read_abort(struct sr_op *op)
{
    struct sr_request *rq = sr_container_of(op, struct sr_read, op)->request;

    rq->reader = NULL;
    if (rq->body_state == SR_BODY_READING)
        sr_request_drop_body(rq);
}

/* What keeps a body from being read, or SR_OK. */
static enum sr_code check_read(const struct sr_request *rq, size_t max)
{
    if (rq->body_state == SR_BODY_HERE)
        return rq->body_len > max ? SR_TOO_LARGE : SR_OK;
    if (!rq->conn || rq->doomed || rq->answered || rq->body_state != SR_BODY_UNREAD)
        return SR_CONFLICT;
    if (rq->declared != SR_UNKNOWN && rq->declared > max)
        return SR_TOO_LARGE;
    if (rq->declared != SR_UNKNOWN && rq->declared > rq->h->config.body_budget - rq->h->buffered)
        return SR_UNAVAILABLE;
    return SR_OK;
}

void sr_request_read(struct sr_request *rq, struct sr_read *r, struct sr_loop *loop, size_t max)
{
    enum sr_code code = check_read(rq, max);

    r->request = rq;
    sr_op_start(loop, &r->op, -1, read_abort);
    rq->reader = r;
    if (code != SR_OK) {
        sr_request_fail_read(rq, code);
    } else if (rq->body_state == SR_BODY_HERE) {
        sr_request_finish_read(rq);
    } else {
        rq->body_state = SR_BODY_READING;
        rq->body_max = max;
        sr_conn_resume(rq->conn);
    }
}

void sr_request_body(const struct sr_request *rq, const char **data, size_t *n)
{
    *data = rq->body ? rq->body : "";
    *n = rq->body_len;
}

static void watch_abort(struct sr_op *op)
{
    sr_container_of(op, struct sr_gone, op)->request->watcher = NULL;
}

void sr_request_watch(struct sr_request *rq, struct sr_gone *g, struct sr_loop *loop)
{
    g->request = rq;
    sr_op_start(loop, &g->op, -1, watch_abort);
    rq->watcher = g;
    if (rq->gone || !rq->conn)
        sr_request_finish_watch(rq);
}

bool sr_request_is_done(const struct sr_request *rq)
{
    return rq->done;
}

const char *sr_request_method(const struct sr_request *rq)
{
    return rq->head.data;
}

static const char *next_text(const char *text)
{
    return text + strlen(text) + 1;
}

const char *sr_request_target(const struct sr_request *rq)
{
    return next_text(rq->head.data);
}

const char *sr_request_peer(const struct sr_request *rq)
{
    return rq->peer;
}

bool sr_request_next_header(const struct sr_request *rq, const char **at, const char **name,
                            const char **value)
{
    const char *next = *at ? *at : next_text(sr_request_target(rq));

    if (next == rq->head.data + rq->head.len)
        return false;
    *name = next;
    *value = next_text(*name);
    *at = next_text(*value);
    return true;
}
