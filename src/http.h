/* http.h - HTTP client for the engine: calls and upgraded streams.
 *
 * The only file pair that knows libcurl. One client per program; it joins the
 * loop when the first engine is opened, so that a start that never touches an
 * engine pays nothing for it. Knows neither Lua nor the Engine API, apart from
 * the one header that names its version: what an answer means is docker.h's. */
#ifndef SR_HTTP_H
#define SR_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "err.h"
#include "loop.h"
#include "target.h"

struct sr_http;

/* Opens the client and joins the loop; free it before the loop is cleared. */
int sr_http_open(struct sr_http **out, struct sr_loop *loop, struct sr_err *err);
void sr_http_close(struct sr_http *http); /* accepts NULL */

/* One call. Zero-initialise, fill the first part, start; the struct must stay
 * where it is until the op is READY or dropped, then be cleared. */
struct sr_call {
    const char *method;
    const char *path;   /* with the query, percent-encoded; copied at the start */
    const void *body;   /* borrowed until the end, or NULL */
    size_t body_len;
    const char *content_type;
    int upload_fd;      /* > 0: send this file as the body instead (chunked); borrowed */
    size_t body_cap;    /* largest answer kept; more is SR_TOO_LARGE */
    int64_t idle_ms;    /* > 0: SR_TIMEOUT also after this long without a byte */

    struct sr_op op;
    long status;             /* HTTP status of the answer */
    struct sr_buf answer;
    char api_version[16];    /* the Api-Version header, "" if absent */
    bool head_ended;         /* the answer's head is complete */
    struct sr_http *http;
    struct sr_timer idle;
    void *easy;
    void *headers;
};

/* Starts the call; its op finishes with an error when there was no complete
 * answer. SR_UNAVAILABLE: cannot connect or connection lost; SR_DENIED: no
 * permission for the socket; SR_TIMEOUT: timeout_ms passed. */
int sr_call_start(struct sr_http *http, const struct sr_target *target, struct sr_call *call,
                  int64_t timeout_ms, struct sr_err *err);

/* Gives up on the call if it is under way and frees what it holds. Only for a
 * call that was started. */
void sr_call_clear(struct sr_call *call);

#define SR_STREAM_PIECE 16384u /* what one TLS record holds */

/* A connection that leaves HTTP after the head of the answer (101, or 200 with
 * a raw stream) and is a byte stream from then on. */
struct sr_stream {
    /* Bytes arrived (n > 0), or the stream ended (n == 0; err NULL for an
     * orderly end). Called from the loop; may close the stream. */
    void (*on_bytes)(struct sr_stream *s, const void *data, size_t n, const struct sr_err *err);
    /* Turns an answer that is neither 101 nor 200 into *err; s->status is set,
     * body is what came of its body. */
    void (*on_refused)(const struct sr_stream *s, const char *body, size_t n, struct sr_err *err);
    struct sr_buf out;  /* what is still to be written; append, then flush */
    struct sr_op op;    /* finishes when the stream is open, or cannot be opened */
    bool open;
    long status;

    struct sr_http *http;
    struct sr_loop *loop;
    struct sr_watch watch;
    struct sr_timer broken; /* due at once when a write has failed */
    struct sr_buf head;
    void *easy;
    /* What is being written, out of reach of a realloc: OpenSSL insists on the
     * same bytes at the same address until it has taken them (SSL_write(3)). */
    unsigned char piece[SR_STREAM_PIECE];
    size_t piece_len, piece_off;
};

/* Connects and sends `POST path` with an upgrade; zero-initialised struct with
 * on_bytes and on_refused set. The op's error is on_refused's when the answer is
 * neither 101 nor 200, SR_PROTOCOL when there was none or it is no HTTP, else as
 * for a call. */
int sr_stream_start(struct sr_http *http, const struct sr_target *target, struct sr_stream *s,
                    const char *path, int64_t timeout_ms, struct sr_err *err);

/* Writes as much of s->out as the socket takes and arranges for the rest. A
 * connection that is lost shows as an end, with SR_UNAVAILABLE, in a later turn. */
void sr_stream_flush(struct sr_stream *s);

/* Closes the connection; on_bytes is not called any more. Safe when closed. */
void sr_stream_close(struct sr_stream *s);

#endif
