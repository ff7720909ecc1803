#include "http.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNECT_TIMEOUT_MS 2000L
#define HEAD_MAX 16384u  /* head of the answer to an upgrade */
#define READ_SIZE 65536u
#define READS_AT_ONCE 16
#define LAME_WAIT_MS 20  /* without curl's own wait, its sockets are looked at this often */

struct sr_http {
    struct sr_poller poller;
    CURLM *multi;
    struct sr_loop *loop;
    struct curl_waitfd *fds;
    unsigned fds_cap;
};

/* What a finished easy handle belongs to: CURLOPT_PRIVATE points to one. */
struct owner {
    void (*on_done)(struct owner *o, CURLcode code);
};

struct call_owner {
    struct owner owner;
    struct sr_call *call;
    char message[CURL_ERROR_SIZE];
};

struct stream_owner {
    struct owner owner;
    struct sr_stream *stream;
    char message[CURL_ERROR_SIZE];
};

static short to_curl(short events)
{
    return (short)((events & POLLIN ? CURL_WAIT_POLLIN : 0) |
                   (events & POLLPRI ? CURL_WAIT_POLLPRI : 0) |
                   (events & POLLOUT ? CURL_WAIT_POLLOUT : 0));
}

static bool grow_fds(struct sr_http *http, unsigned n)
{
    struct curl_waitfd *fds;

    if (n <= http->fds_cap)
        return true;
    fds = realloc(http->fds, n * sizeof *fds);
    if (!fds)
        return false;
    http->fds = fds;
    http->fds_cap = n;
    return true;
}

/* curl reports only the events that were asked for: POLLERR and POLLHUP of a
 * watched descriptor are asked of the kernel directly afterwards. */
static int poller_wait(struct sr_poller *p, struct pollfd *fds, unsigned n, int timeout_ms)
{
    struct sr_http *http = (struct sr_http *)p;
    CURLMcode code = CURLM_OUT_OF_MEMORY;

    if (grow_fds(http, n)) {
        for (unsigned i = 0; i < n; i++)
            http->fds[i] = (struct curl_waitfd){.fd = fds[i].fd, .events = to_curl(fds[i].events)};
        code = curl_multi_poll(http->multi, http->fds, n, timeout_ms < 0 ? 1 << 30 : timeout_ms,
                               NULL);
    }
    if (code == CURLM_OK)
        return poll(fds, n, 0);
    return poll(fds, n, timeout_ms < 0 || timeout_ms > LAME_WAIT_MS ? LAME_WAIT_MS : timeout_ms);
}

static void poller_perform(struct sr_poller *p)
{
    struct sr_http *http = (struct sr_http *)p;
    int running, left;
    CURLMsg *msg;

    curl_multi_perform(http->multi, &running);
    while ((msg = curl_multi_info_read(http->multi, &left))) {
        struct owner *o = NULL;

        if (msg->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &o);
        o->on_done(o, msg->data.result);
    }
}

int sr_http_open(struct sr_http **out, struct sr_loop *loop, struct sr_err *err)
{
    struct sr_http *http = calloc(1, sizeof *http);

    if (!http)
        return sr_err_set(err, SR_NO_MEMORY, "out of memory");
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0 || !(http->multi = curl_multi_init())) {
        free(http);
        return sr_err_set(err, SR_INTERNAL, "libcurl cannot be initialised");
    }
    curl_multi_setopt(http->multi, CURLMOPT_MAXCONNECTS, 4L);
    http->poller = (struct sr_poller){poller_wait, poller_perform};
    http->loop = loop;
    loop->poller = &http->poller;
    *out = http;
    return 0;
}

void sr_http_close(struct sr_http *http)
{
    if (!http)
        return;
    http->loop->poller = NULL;
    curl_multi_cleanup(http->multi);
    curl_global_cleanup();
    free(http->fds);
    free(http);
}

static char *join(const char *a, const char *b)
{
    char *s;

    return asprintf(&s, "%s%s", a, b) < 0 ? NULL : s;
}

static CURL *new_easy(const struct sr_target *t, const char *path, char *message)
{
    char *url = join(t->origin, path);
    CURL *easy = url ? curl_easy_init() : NULL;

    if (easy) {
        curl_easy_setopt(easy, CURLOPT_URL, url);
        curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, message);
        curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(easy, CURLOPT_PROXY, ""); /* never by way of http_proxy */
        curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1); /* 2 cannot upgrade */
        curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
        if (t->unix_path)
            curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, t->unix_path);
        if (t->ca) {
            curl_easy_setopt(easy, CURLOPT_CAINFO, t->ca);
            curl_easy_setopt(easy, CURLOPT_SSLCERT, t->cert);
            curl_easy_setopt(easy, CURLOPT_SSLKEY, t->key);
        }
    }
    free(url);
    return easy;
}

static void explain(CURL *easy, CURLcode code, const char *message, struct sr_err *err)
{
    long os_errno = 0;
    const char *text = message[0] ? message : curl_easy_strerror(code);

    curl_easy_getinfo(easy, CURLINFO_OS_ERRNO, &os_errno);
    if (code == CURLE_OUT_OF_MEMORY)
        sr_err_set(err, SR_NO_MEMORY, "out of memory");
    else if (code == CURLE_OPERATION_TIMEDOUT)
        sr_err_set(err, SR_TIMEOUT, "%s", text);
    else if (code == CURLE_COULDNT_CONNECT && (os_errno == EACCES || os_errno == EPERM))
        sr_err_set(err, SR_DENIED, "%s", strerror((int)os_errno));
    else if (code == CURLE_COULDNT_CONNECT && os_errno)
        sr_err_set(err, SR_UNAVAILABLE, "%s", strerror((int)os_errno));
    else
        sr_err_set(err, SR_UNAVAILABLE, "%s", text);
}

/* Bytes came or went: the silence, if it counts, begins anew. */
static void rearm(struct sr_call *call)
{
    if (call->idle_ms > 0)
        sr_timer_add(call->http->loop, &call->idle, call->idle_ms);
}

static size_t on_body(char *data, size_t size, size_t count, void *ud)
{
    struct sr_call *call = ud;
    size_t n = size * count;

    rearm(call);
    if (call->answer.len + n > call->body_cap)
        return 0; /* ends the transfer with CURLE_WRITE_ERROR */
    sr_buf_append(&call->answer, data, n);
    return sr_buf_ok(&call->answer) ? n : 0;
}

static size_t on_header(char *data, size_t size, size_t count, void *ud)
{
    struct sr_call *call = ud;
    size_t n = size * count, len;
    static const char name[] = "api-version:";

    rearm(call);
    if (n > 5 && !memcmp(data, "HTTP/", 5))
        call->head_ended = false;
    else if (n == 2 && data[0] == '\r')
        call->head_ended = true; /* curl itself is content with a connection that ends before */
    if (n > sizeof name - 1 && !strncasecmp(data, name, sizeof name - 1)) {
        const char *at = data + sizeof name - 1, *end = data + n;

        while (at < end && *at == ' ')
            at++;
        for (len = 0; at + len < end && len < sizeof call->api_version - 1 && at[len] > ' '; len++)
            call->api_version[len] = at[len];
        call->api_version[len] = '\0';
    }
    return n;
}

static size_t on_upload(char *dst, size_t size, size_t count, void *ud)
{
    struct sr_call *call = ud;
    ssize_t n = read(call->upload_fd, dst, size * count);

    rearm(call);
    return n < 0 ? CURL_READFUNC_ABORT : (size_t)n;
}

static void release_easy(struct sr_http *http, void **easy)
{
    void *owner = NULL;

    if (!*easy)
        return;
    curl_easy_getinfo((CURL *)*easy, CURLINFO_PRIVATE, &owner);
    curl_multi_remove_handle(http->multi, *easy);
    curl_easy_cleanup(*easy);
    free(owner);
    *easy = NULL;
}

static void end_transfer(struct sr_call *call)
{
    release_easy(call->http, &call->easy);
    sr_timer_remove(&call->idle);
    curl_slist_free_all(call->headers);
    call->headers = NULL;
}

static void call_done(struct owner *o, CURLcode code)
{
    struct call_owner *co = (struct call_owner *)o;
    struct sr_call *call = co->call;
    struct sr_err err = {.code = SR_OK};

    curl_easy_getinfo((CURL *)call->easy, CURLINFO_RESPONSE_CODE, &call->status);
    if (!sr_buf_ok(&call->answer))
        sr_err_set(&err, SR_NO_MEMORY, "out of memory");
    else if (code == CURLE_WRITE_ERROR)
        sr_err_set(&err, SR_TOO_LARGE, "the engine's answer is larger than %zu bytes",
                   call->body_cap);
    else if (code != CURLE_OK)
        explain(call->easy, code, co->message, &err);
    else if (!call->head_ended)
        sr_err_set(&err, SR_UNAVAILABLE, "the engine closed the connection");
    end_transfer(call);
    sr_op_finish(&call->op, err.code == SR_OK ? NULL : &err);
}

static void call_abort(struct sr_op *op)
{
    end_transfer(sr_container_of(op, struct sr_call, op));
}

static void on_idle(struct sr_timer *t)
{
    struct sr_call *call = sr_container_of(t, struct sr_call, idle);
    struct sr_err err;

    end_transfer(call);
    sr_err_set(&err, SR_TIMEOUT, "the engine was silent for %.0f seconds",
               (double)call->idle_ms / 1000);
    sr_op_finish(&call->op, &err);
}

static void set_body(CURL *easy, const struct sr_call *call)
{
    if (call->upload_fd > 0) {
        curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_upload);
        curl_easy_setopt(easy, CURLOPT_READDATA, call);
    } else if (call->body || !strcmp(call->method, "POST")) {
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, call->body ? call->body : "");
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body_len);
    }
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, call->method);
}

static void set_headers(struct sr_call *call)
{
    struct curl_slist *list = curl_slist_append(NULL, "Expect:"); /* no 100-continue round trip */

    if (call->content_type && list) {
        char *line = join("Content-Type: ", call->content_type);

        if (line)
            curl_slist_append(list, line); /* appends in place; fails only for want of memory */
        free(line);
    }
    call->headers = list;
    curl_easy_setopt((CURL *)call->easy, CURLOPT_HTTPHEADER, list);
}

int sr_call_start(struct sr_http *http, const struct sr_target *target, struct sr_call *call,
                  int64_t timeout_ms, struct sr_err *err)
{
    struct call_owner *co = calloc(1, sizeof *co);
    CURL *easy = co ? new_easy(target, call->path, co->message) : NULL;

    if (!easy) {
        free(co);
        return sr_err_set(err, SR_NO_MEMORY, "out of memory");
    }
    co->owner.on_done = call_done;
    co->call = call;
    call->http = http;
    call->easy = easy;
    curl_easy_setopt(easy, CURLOPT_PRIVATE, co);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, call);
    set_body(easy, call);
    set_headers(call);
    if (!call->headers || curl_multi_add_handle(http->multi, easy) != CURLM_OK) {
        end_transfer(call);
        return sr_err_set(err, SR_NO_MEMORY, "out of memory");
    }
    call->idle.on_due = on_idle;
    rearm(call);
    sr_op_start(http->loop, &call->op, timeout_ms, call_abort);
    return 0;
}

void sr_call_clear(struct sr_call *call)
{
    sr_op_drop(&call->op);
    sr_buf_clear(&call->answer);
}

static void stream_fail(struct sr_stream *s, const struct sr_err *err)
{
    bool was_open = s->open;
    struct sr_err copy = *err;

    sr_stream_close(s);
    if (was_open)
        s->on_bytes(s, NULL, 0, &copy);
    else
        sr_op_finish(&s->op, &copy);
}

/* The status of "HTTP/1.x NNN ...", or -1. */
static long head_status(const char *head, size_t n)
{
    long status = 0;

    if (n < 13 || memcmp(head, "HTTP/1.", 7) != 0 || head[8] != ' ' ||
        (head[12] != ' ' && head[12] != '\r'))
        return -1;
    for (const char *at = head + 9; at < head + 12; at++) {
        if (*at < '0' || *at > '9')
            return -1;
        status = 10 * status + (*at - '0');
    }
    return status;
}

/* Bytes of body that the head announces, 0 if it does not say. The head ends
 * with an empty line, so that no look-up runs past its end. */
static size_t announced_body(const char *head, size_t n)
{
    static const char name[] = "\r\ncontent-length:";

    for (const char *at = head; at + sizeof name < head + n; at++)
        if (!strncasecmp(at, name, sizeof name - 1))
            return strtoul(at + sizeof name - 1, NULL, 10);
    return 0;
}

/* The connection leaves HTTP here: head_len bytes of head, then the stream. */
static void go_open(struct sr_stream *s, size_t head_len)
{
    struct sr_buf rest = {0};
    struct sr_err err;

    sr_buf_append(&rest, s->head.data + head_len, s->head.len - head_len);
    if (!sr_buf_ok(&rest)) {
        sr_err_set(&err, SR_NO_MEMORY, "out of memory");
        stream_fail(s, &err);
        return;
    }
    s->open = true;
    sr_buf_clear(&s->head);
    sr_op_finish(&s->op, NULL);
    if (rest.len)
        s->on_bytes(s, rest.data, rest.len, NULL);
    sr_buf_clear(&rest);
}

/* Looks at what has arrived of the answer's head. ended: nothing follows. */
static void check_head(struct sr_stream *s, bool ended)
{
    const char *head = s->head.data;
    const char *end = s->head.len ? memmem(head, s->head.len, "\r\n\r\n", 4) : NULL;
    size_t head_len = end ? (size_t)(end - head) + 4 : 0;
    size_t body_len = s->head.len - head_len;
    struct sr_err err = {.code = SR_OK};

    if (s->head.len > HEAD_MAX || !sr_buf_ok(&s->head))
        ended = true;
    s->status = end ? head_status(head, head_len) : -1;
    if (end && (s->status == 101 || s->status == 200)) {
        go_open(s, head_len);
        return;
    }
    if (!end && ended)
        sr_err_set(&err, SR_PROTOCOL, s->head.len
                   ? "the engine's answer has no end of its head"
                   : "the engine closed the connection");
    else if (end && s->status < 0)
        sr_err_set(&err, SR_PROTOCOL, "the engine's answer is no HTTP");
    else if (end && (ended || body_len >= announced_body(head, head_len)))
        s->on_refused(s, head + head_len, body_len, &err);
    if (err.code != SR_OK)
        stream_fail(s, &err);
}

/* Takes what has arrived; false when that is nothing, or the stream's end. */
static bool stream_read(struct sr_stream *s)
{
    static char chunk[READ_SIZE]; /* one thread, never kept across a call */
    struct sr_err err;
    size_t n = 0;
    CURLcode code = curl_easy_recv(s->easy, chunk, sizeof chunk, &n);

    if (code == CURLE_AGAIN)
        return false;
    if (code != CURLE_OK) {
        sr_err_set(&err, SR_UNAVAILABLE, "connection to the engine lost");
        stream_fail(s, &err);
    } else if (n == 0 && s->open) {
        sr_stream_close(s);
        s->on_bytes(s, NULL, 0, NULL);
    } else if (s->open) {
        s->on_bytes(s, chunk, n, NULL);
    } else {
        sr_buf_append(&s->head, chunk, n);
        check_head(s, n == 0);
    }
    return n > 0 && s->easy;
}

/* More than once, as a TLS library may hold bytes that the socket no longer
 * shows; not without end, as the loop has others to look after. */
static void stream_read_all(struct sr_stream *s)
{
    for (int i = 0; i < READS_AT_ONCE && stream_read(s); i++)
        ;
}

static void stream_ready(struct sr_watch *w, short revents)
{
    struct sr_stream *s = sr_container_of(w, struct sr_stream, watch);

    if (revents & POLLOUT)
        sr_stream_flush(s);
    if (s->easy && (revents & (POLLIN | POLLHUP | POLLERR)))
        stream_read_all(s);
}

/* After a write that failed: what the peer said before it left comes first, and
 * may be the end already. Over TLS the read side need not show the failure. */
static void on_broken(struct sr_timer *t)
{
    struct sr_stream *s = sr_container_of(t, struct sr_stream, broken);
    struct sr_err err;

    stream_read_all(s);
    if (!s->easy)
        return;
    sr_err_set(&err, SR_UNAVAILABLE, "connection to the engine lost");
    stream_fail(s, &err);
}

static CURLcode send_piece(struct sr_stream *s)
{
    while (s->piece_off < s->piece_len) {
        size_t n = 0;
        CURLcode code = curl_easy_send(s->easy, s->piece + s->piece_off,
                                       s->piece_len - s->piece_off, &n);

        if (code != CURLE_OK)
            return code;
        s->piece_off += n;
    }
    return CURLE_OK;
}

void sr_stream_flush(struct sr_stream *s)
{
    size_t taken = 0;
    CURLcode code = CURLE_OK;

    if (!s->easy || !s->watch.link)
        return;
    while ((code = send_piece(s)) == CURLE_OK && taken < s->out.len) {
        size_t left = s->out.len - taken;

        s->piece_len = left < sizeof s->piece ? left : sizeof s->piece;
        s->piece_off = 0;
        memcpy(s->piece, s->out.data + taken, s->piece_len);
        taken += s->piece_len;
    }
    sr_buf_consume(&s->out, taken);
    s->watch.events = (short)(POLLIN | (code == CURLE_AGAIN ? POLLOUT : 0));
    if (code != CURLE_OK && code != CURLE_AGAIN) {
        sr_buf_clear(&s->out);
        s->piece_len = s->piece_off = 0;
        s->broken.on_due = on_broken; /* not from here: the caller is no callback of the loop */
        sr_timer_add(s->loop, &s->broken, 0);
    }
}

static void stream_connected(struct owner *o, CURLcode code)
{
    struct stream_owner *so = (struct stream_owner *)o;
    struct sr_stream *s = so->stream;
    curl_socket_t fd = CURL_SOCKET_BAD;
    struct sr_err err;

    if (code != CURLE_OK) {
        explain(s->easy, code, so->message, &err);
        stream_fail(s, &err);
        return;
    }
    curl_easy_getinfo((CURL *)s->easy, CURLINFO_ACTIVESOCKET, &fd);
    s->watch = (struct sr_watch){.fd = fd, .events = POLLIN, .on_ready = stream_ready};
    sr_watch_add(s->loop, &s->watch);
    sr_stream_flush(s);
}

static void stream_abort(struct sr_op *op)
{
    sr_stream_close(sr_container_of(op, struct sr_stream, op));
}

int sr_stream_start(struct sr_http *http, const struct sr_target *target, struct sr_stream *s,
                    const char *path, int64_t timeout_ms, struct sr_err *err)
{
    struct stream_owner *so = calloc(1, sizeof *so);
    CURL *easy = so ? new_easy(target, "/", so->message) : NULL;

    if (!easy) {
        free(so);
        return sr_err_set(err, SR_NO_MEMORY, "out of memory");
    }
    so->owner.on_done = stream_connected;
    so->stream = s;
    s->http = http;
    s->loop = http->loop;
    s->easy = easy;
    sr_buf_printf(&s->out, "POST %s HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\n"
                  "Upgrade: tcp\r\nContent-Length: 0\r\n\r\n", path);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, so);
    curl_easy_setopt(easy, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
    if (!sr_buf_ok(&s->out) || curl_multi_add_handle(http->multi, easy) != CURLM_OK) {
        sr_stream_close(s);
        return sr_err_set(err, SR_NO_MEMORY, "out of memory");
    }
    sr_op_start(http->loop, &s->op, timeout_ms, stream_abort);
    return 0;
}

void sr_stream_close(struct sr_stream *s)
{
    sr_watch_remove(&s->watch);
    sr_timer_remove(&s->broken);
    if (s->easy)
        release_easy(s->http, &s->easy);
    sr_buf_clear(&s->out);
    sr_buf_clear(&s->head);
    s->piece_len = s->piece_off = 0;
    s->open = false;
}
