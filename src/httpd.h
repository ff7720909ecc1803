/* httpd.h - HTTP server: requests in, answers and streams out.
 *
 * The only file pair that knows libmicrohttpd, which runs without a thread: the
 * loop watches its epoll descriptor. A request is handed over as soon as its head
 * is there; its body is read only when somebody asks for it. Nothing here waits:
 * what has to be waited for is an operation of the loop. Knows no Lua.
 *
 * Memory is bounded: a connection takes some multiple of header_bytes, all bodies
 * together body_budget, a stream stream_bytes, an answer what it was given. Above
 * output_budget for all that waits to be sent, no stream may add to what its client
 * leaves unread. Time is bounded, too: a request has request_ms to arrive from its
 * first byte on, however it drips (time in which nobody asks for the body does not
 * count); an answer, or what waits in a stream, has to move at half a kilobyte a
 * second; a connection between requests has idle_ms. When all places are taken, a
 * newcomer gets the one of a client that has left, or of the one that has been
 * without a request the longest. */
#ifndef SR_HTTPD_H
#define SR_HTTPD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "loop.h"

struct sr_httpd;
struct sr_request;

struct sr_httpd_config {
    const char *host;     /* name, IPv4 or IPv6 address; needed only while opening */
    unsigned port;        /* 0: any free one */
    unsigned connections; /* fewer where the process may not open as many descriptors */
    size_t header_bytes;  /* of one request's head; one of more than a hundred headers may be
                             refused before, as each takes some 60 bytes beside */
    size_t body_budget;
    size_t stream_bytes;  /* written to one stream and not yet taken by the client; may take
                             up to four times as much memory */
    size_t output_budget; /* the same of all streams, and answers that are being sent */
    int64_t idle_ms, request_ms;
};

struct sr_httpd_stats {
    unsigned connections, requests; /* open; being answered */
    unsigned max_connections;       /* what holds, see sr_httpd_config */
    size_t buffered;                /* bytes: of request bodies in memory, ... */
    size_t unsent;                  /* ... of streams and answers on their way out */
};

/* Opens the sockets and joins the loop. Errors as of sr_listener_open. */
int sr_httpd_open(struct sr_httpd **out, struct sr_loop *loop,
                  const struct sr_httpd_config *config, struct sr_err *err);

/* Where the (first) socket listens; host is valid until the close. */
void sr_httpd_address(const struct sr_httpd *h, const char **host, unsigned *port);
struct sr_httpd_stats sr_httpd_stats(const struct sr_httpd *h);

/* No new connections and no new requests; those that are here go on. */
void sr_httpd_stop(struct sr_httpd *h);

/* Closes every connection at once and frees the server; accepts NULL. Waits end:
 * accept without a request, read with SR_CONFLICT, watch as gone. Requests stay
 * valid until they are released. */
void sr_httpd_close(struct sr_httpd *h);

/* Waiting for a request. The op finishes when sr_httpd_take has something to give
 * or never will have again. One at a time. */
struct sr_accept {
    struct sr_op op;
    struct sr_httpd *httpd;
};
void sr_httpd_accept(struct sr_httpd *h, struct sr_accept *a);

/* The next request, to be released by the caller, or NULL. */
struct sr_request *sr_httpd_take(struct sr_httpd *h);
bool sr_httpd_has_request(const struct sr_httpd *h);

/* One more holder of a request; the last one frees it. */
void sr_request_keep(struct sr_request *rq);
void sr_request_release(struct sr_request *rq);

/* What its owner does before the release: drops the body, and answers 500 unless it
 * was answered. A stream goes on as long as somebody else holds the request, and is
 * aborted when the last one lets go without having ended it. */
void sr_request_abandon(struct sr_request *rq);

/* Of the head, as the client sent it: valid as long as the request. */
const char *sr_request_method(const struct sr_request *rq);
const char *sr_request_target(const struct sr_request *rq);
const char *sr_request_peer(const struct sr_request *rq);

/* Walks the headers in order: start with *at NULL; false at the end. */
bool sr_request_next_header(const struct sr_request *rq, const char **at, const char **name,
                            const char **value);

/* Waiting for the body. When the op has succeeded, sr_request_body has it. Errors:
 * SR_TOO_LARGE (more than max; the rest is dropped as it comes), SR_UNAVAILABLE
 * (body_budget is used up), SR_CONFLICT (the client has gone, or the body was read
 * before), SR_TIMEOUT (request_ms passed; the connection is closed), SR_NO_MEMORY. */
struct sr_read {
    struct sr_op op;
    struct sr_request *request;
};
void sr_request_read(struct sr_request *rq, struct sr_read *r, struct sr_loop *loop, size_t max);
void sr_request_body(const struct sr_request *rq, const char **data, size_t *n);
void sr_request_drop_body(struct sr_request *rq);

/* Answers. heads: "name\0value\0name\0value\0", heads_len bytes in all; a header with
 * an empty value is left out. Both heads and body are copied. An unread body is read
 * and dropped first; one of more than 128 MiB closes the connection instead.
 * SR_INVALID: answered before, no such status, a header that cannot be sent, or headers
 * of more than 6000 bytes; SR_CONFLICT: the client has gone. */
int sr_request_respond(struct sr_request *rq, unsigned status, const char *heads,
                       size_t heads_len, const void *body, size_t n, struct sr_err *err);

/* Answers with a stream: errors as above, and SR_INVALID where an answer has no body (to
 * HEAD; 204 and 304). write: SR_CONFLICT also when the client
 * leaves stream_bytes unread, or anything at all while output_budget is used up, after
 * which the connection is closed. finish: what was written is still sent. abort: the
 * client sees a broken answer. Neither harms after the end. */
int sr_request_stream(struct sr_request *rq, unsigned status, const char *heads, size_t heads_len,
                      struct sr_err *err);
int sr_request_write(struct sr_request *rq, const void *data, size_t n, struct sr_err *err);
void sr_request_finish(struct sr_request *rq);
void sr_request_abort(struct sr_request *rq);

/* Waiting for the end: the op finishes when the client has closed the connection,
 * or its sending side, or the answer has been sent as a whole; sr_request_is_done
 * tells the two apart. A client that has closed its sending side only still gets an
 * answer that is given within request_ms; a stream that was begun before is broken
 * off. One at a time. */
struct sr_gone {
    struct sr_op op;
    struct sr_request *request;
};
void sr_request_watch(struct sr_request *rq, struct sr_gone *g, struct sr_loop *loop);
bool sr_request_is_done(const struct sr_request *rq);

#endif
