/* httpd_parts.h - what httpd.c, httpd_conn.c, httpd_request.c and httpd_answer.c share.
 *
 * A request has two sides. MHD's (httpd_request.c) runs inside MHD_run and moves it
 * from phase to phase; the owner's (httpd_answer.c) runs from the outside, and has
 * MHD's side go on by resuming the connection. Callbacks only note what happened and
 * finish operations. */
#ifndef SR_HTTPD_PARTS_H
#define SR_HTTPD_PARTS_H

#include <microhttpd.h>

#include "buf.h"
#include "httpd.h"
#include "listener.h"

#define SR_DISCARD_MAX (128u << 20) /* of a body that nobody reads */
#define SR_BODY_FIRST 4096u         /* first piece of memory for a body */
#define SR_SLACK 64u                /* connections that are being closed and still count for MHD */
#define SR_PEER_MAX 48u             /* a numeric address */
#define SR_UNKNOWN UINT64_MAX

/* Connections that have to do something by a time, the most urgent first. All of a
 * list get the same time, or what is left of it, so that the place of a new one is
 * at the end or near it. */
struct sr_due_list {
    struct sr_conn *first, *last;
};

/* A connection: lives from MHD's notice of its start to that of its end. */
struct sr_conn {
    struct sr_httpd *h;
    struct MHD_Connection *mhd;
    int fd;
    struct sr_request *rq;   /* in flight, or NULL */
    char *target;            /* of the request whose head is arriving */
    bool suspended;          /* MHD leaves it alone */
    bool dying;              /* shut down by us, MHD will notice */
    bool chunked, parked;    /* see sr_httpd_park */
    bool hurried;            /* MHD calls before it reads */
    bool moved;              /* MHD has handed something over since it was asked last */
    unsigned wakes;          /* from being parked, since then */
    struct sr_conn *next_chunked, **chunked_link; /* those that are not parked */
    const char *target_at;   /* where MHD had the target, not to be read */
    uint64_t taken;          /* bytes that the client had acknowledged when last asked */
    struct sr_due_list *due; /* that it is in, or NULL */
    int64_t due_ms;
    struct sr_conn *due_prev, *due_next;
    struct sr_conn *next, **link; /* all of the server */
    char peer[SR_PEER_MAX];
};

/* What MHD says next about a request. */
enum sr_phase {
    SR_PHASE_HEAD,    /* suspended before the body */
    SR_PHASE_BODY,    /* the body arrives */
    SR_PHASE_END,     /* suspended behind the body, until there is an answer */
    SR_PHASE_SENDING, /* the answer is MHD's */
    SR_PHASE_OVER     /* there is no connection any more */
};

/* HERE: complete, GONE: handed out or dropped. */
enum sr_body_state { SR_BODY_UNREAD, SR_BODY_READING, SR_BODY_HERE, SR_BODY_GONE };

/* Held by MHD's side from its head to its end, and by its owner. */
struct sr_request {
    unsigned refs;
    struct sr_httpd *h;   /* NULL once the server is closed */
    struct sr_conn *conn; /* NULL in SR_PHASE_OVER */
    struct sr_request *next, **link; /* all of the server */
    struct sr_request *next_queued;
    enum sr_phase phase;
    bool published; /* it is, or was, in the queue */

    struct sr_buf head; /* method, target, then name and value of each header; NUL after each */
    char peer[SR_PEER_MAX];
    uint64_t declared;  /* length of the body; SR_UNKNOWN: chunked */
    bool expects_continue, is_old; /* is_old: of HTTP/1.0 */

    enum sr_body_state body_state;
    struct sr_read *reader;
    char *body;
    size_t body_len, body_cap, body_max;
    uint64_t discarded;
    size_t held;     /* bytes of the answer that count as unsent, when it is no stream */
    bool is_last;    /* what follows on the connection cannot be trusted */
    int64_t left_ms; /* to arrive, while the clock is stopped */

    bool answered, streaming, ended; /* ended: nothing more will be written */
    unsigned status;
    struct MHD_Response *answer; /* until it is MHD's */
    struct sr_buf out;           /* of a stream, to be sent ... */
    size_t sent;                 /* ... but for its start of this length */
    int64_t moved_ms;            /* when some of it was sent, or the first of it written */

    struct sr_gone *watcher;
    bool gone;   /* the client has closed its side, or the connection is broken */
    bool doomed; /* the connection is to be closed */
    bool done;   /* the answer was sent as a whole */
};

struct sr_httpd {
    struct sr_loop *loop;
    struct MHD_Daemon *daemon;
    struct sr_listener listener;
    struct sr_watch mhd_watch;
    struct sr_watch own_watch; /* sockets whose end or first byte MHD does not tell of */
    struct sr_timer next_run, deadline;
    struct sr_due_list arriving, idle, sending;
    struct sr_due_list leaving; /* closed by the client on its side, and not answered */
    struct sr_conn *conns, *chunked;
    struct sr_request *requests;
    struct sr_request *queue, **queue_tail;
    struct sr_accept *acceptor;
    struct sr_httpd_config config;
    unsigned n_conns, n_dying, n_requests;
    size_t buffered, unsent;
    unsigned long calls; /* of ours by MHD */
    unsigned fruitless;  /* runs in a row without one, although MHD had asked for it */
    bool stopped;
};

/* Connections (httpd_conn.c). */

/* MHD's notices. */
void sr_conn_start(struct sr_httpd *h, struct MHD_Connection *mhd, void **ctx);
void sr_conn_end(struct sr_httpd *h, struct sr_conn *c);

/* Has MHD leave it alone, from a callback of MHD's, and go on with it; to resume one
 * that is not suspended is harmless. */
void sr_conn_suspend(struct sr_conn *c);
void sr_conn_resume(struct sr_conn *c);

/* MHD has ended a request, and closed the connection over it. It frees one that it has
 * closed by itself when it sees it next, which may be never: it is made to look. */
void sr_conn_hurry_end(struct sr_conn *c);

/* MHD has called about the connection's request. */
void sr_conn_on_call(struct sr_conn *c);

/* Closes a connection by way of its socket: MHD sees the end in its next run. */
void sr_conn_shut(struct sr_conn *c);

/* What has to happen by when, one thing at a time. */
void sr_conn_set_due(struct sr_conn *c, struct sr_due_list *list, int64_t delay_ms);
void sr_conn_clear_due(struct sr_conn *c);
void sr_conn_clock_sending(struct sr_conn *c); /* the rest of an answer has to move */

/* A request begins: its client's leaving is to be noticed. A chunked body begins, and
 * ends. The request is over: the next one is awaited. */
void sr_conn_watch_gone(struct sr_conn *c);
void sr_conn_begin_chunked(struct sr_conn *c);
void sr_conn_end_chunked(struct sr_conn *c);
void sr_conn_await_next(struct sr_conn *c);

/* The connection to be closed for a newcomer, or NULL: one whose client has left, or
 * that has been without a (whole) request the longest. */
struct sr_conn *sr_httpd_idlest(const struct sr_httpd *h);

/* After a run of MHD: suspends ("parks") each connection with a chunked body of which
 * nothing has come in that run, until more is received. MHD would look again at all
 * it has of an unfinished chunk line in every run. */
void sr_httpd_park(struct sr_httpd *h);

/* Has MHD run in the next turn. */
void sr_httpd_kick(struct sr_httpd *h);

/* Looks which clients have left, and which have begun another request. */
void sr_httpd_look(struct sr_httpd *h);

/* Callback of the loop. */
void sr_httpd_on_deadline(struct sr_timer *t);

/* Requests, MHD's side (httpd_request.c). */

enum MHD_Result sr_httpd_on_request(void *cls, struct MHD_Connection *mhd, const char *url,
                                    const char *method, const char *version, const char *data,
                                    size_t *size, void **ctx);
void *sr_httpd_on_target(void *cls, const char *uri, struct MHD_Connection *mhd);
void sr_httpd_on_completed(void *cls, struct MHD_Connection *mhd, void **ctx,
                           enum MHD_RequestTerminationCode how);

/* The connection is broken, or the client has closed its side only (half). */
void sr_request_on_gone(struct sr_request *rq, bool half);

/* Forgets what a stream has not sent. */
void sr_request_drop_output(struct sr_request *rq);

/* Closes the request's connection without an answer, or in the midst of it. */
void sr_request_doom(struct sr_request *rq);

/* End what somebody waits for, if somebody does. */
void sr_request_finish_read(struct sr_request *rq);
void sr_request_fail_read(struct sr_request *rq, enum sr_code code);
void sr_request_finish_watch(struct sr_request *rq);

/* A name as of a header (RFC 9110 section 5.6.2). */
bool sr_httpd_is_token(const char *s);

#endif
