/* session.h - the conversation with one agent, without sockets.
 *
 * Bytes that arrive on the engine's attach stream go in (sr_session_feed),
 * bytes to be sent come out (`out`), and what the agent said is kept as state.
 * The attach stream wraps the container's stdout and stderr in frames of its
 * own: u8 stream (1 stdout, 2 stderr), three zero bytes, u32 big-endian length
 * (Docker Engine API, ContainerAttach, "Stream format"). Stream 1 carries the
 * agent's frames (wire.h); stream 2 is the runtime's or the agent's own last
 * words, of which the first bytes are kept for error messages.
 *
 * Lengths are consumed as they stream by and never allocated from: hostile
 * lengths cost nothing. Knows neither Lua nor sockets. */
#ifndef SR_SESSION_H
#define SR_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/wire.h"
#include "buf.h"
#include "err.h"

enum sr_session_state {
    SR_SESSION_OPENING, /* no hello yet */
    SR_SESSION_READY,   /* hello seen: files and the start order may be sent */
    SR_SESSION_HELD,    /* held start queued: files and the go may be sent */
    SR_SESSION_RUNNING, /* start order queued, or the go of a held one */
    SR_SESSION_DONE,    /* report or failure seen; nothing more is expected */
    SR_SESSION_BROKEN   /* the peer broke the protocol; see err */
};

struct sr_artifact {
    char *path;        /* as wanted */
    struct sr_buf data;
    uint64_t size;     /* announced size; complete when data.len == size */
    int missing;       /* -1, or SR_MISSING_*; SR_MISSING_ABSENT until the agent answers */
};

struct sr_session {
    enum sr_session_state state;
    struct sr_err err;       /* set when BROKEN */
    struct sr_buf out;       /* to be written to the stream; consume what was written */
    struct sr_buf stdout_;   /* what the program printed, at most out_cap bytes */
    struct sr_buf stderr_;
    size_t out_cap, err_cap;
    struct sr_artifact *artifacts; /* n_artifacts of them, in the order wanted */
    size_t n_artifacts;
    struct sr_report report; /* valid when DONE and !failure */
    char *failure;           /* text of SR_WIRE_FAILURE, or NULL */
    char words[512];         /* first bytes of stream 2, NUL-terminated */
    /* decoder; private to session.c */
    unsigned char head[8], whead[SR_WIRE_HEAD];
    size_t head_len, whead_len;
    uint32_t left;           /* bytes left in the engine's frame */
    int stream;
    uint32_t wleft;          /* bytes left in the agent's frame */
    uint8_t wtype;
    struct sr_buf small;     /* payload of a small agent frame being collected */
    size_t words_len;
    uint64_t want_max;       /* of the order */
    size_t n_answered;       /* artifacts announced or missing; SR_WIRE_DATA belong to the last */
};

/* A zeroed struct becomes an OPENING session. */
void sr_session_init(struct sr_session *s);
void sr_session_clear(struct sr_session *s);

/* Consumes n bytes of the attach stream, in order, cut anywhere. Returns 0, or
 * -1 (state BROKEN, s->err filled and copied to *err) on an unknown stream
 * number, non-zero padding, an unknown or oversized agent frame, a frame that
 * does not fit the state, or more artifact bytes than were wanted. Program
 * output beyond the caps is dropped, never kept. */
int sr_session_feed(struct sr_session *s, const void *data, size_t n, struct sr_err *err);

/* Queues a file below the scratch folder. path is relative, has no empty, "."
 * or ".." component and no NUL. Returns -1 SR_INVALID for a bad path or in a
 * state other than READY and HELD. */
int sr_session_put_file(struct sr_session *s, const char *path, uint32_t mode,
                        const void *data, size_t n, struct sr_err *err);

/* The start order. argv and env are NULL-terminated arrays. */
struct sr_order {
    const char *const *argv;
    const char *const *env; /* "NAME=value" */
    const char *cwd;
    uint32_t uid;
    uint32_t wall_ms;     /* with `held`: the longest wait for sr_session_go() */
    uint32_t cpu_seconds; /* RLIMIT_CPU, 0 = none */
    uint32_t out_cap, err_cap;
    bool stdin_pipe;
    const char *held;        /* NULL, or the path of the script that comes later */
    const char *const *want; /* NULL, or NULL-terminated paths to send back */
    uint64_t want_max;       /* largest size of each, bytes */
};

/* Queues the start order and moves READY to RUNNING, or to HELD when `held` is
 * set: the program is started, but waits for its script (wire.h). The encoded order must
 * fit one frame (SR_WIRE_MAX): SR_TOO_LARGE otherwise. SR_INVALID for a wrong
 * state, an empty argv, a relative cwd, uid 0, no wall limit or a bad path in
 * `want` or `held`; the session is then as before. */
int sr_session_start(struct sr_session *s, const struct sr_order *order, struct sr_err *err);

/* Hands over the script, which sr_session_put_file() has sent in state HELD, and
 * moves to RUNNING. The limits replace those of the start order. When the report
 * then says `held`, the program had ended before: nothing of the script has run.
 * SR_INVALID in a state other than HELD (DONE: the program has ended while it
 * waited) or without a wall limit. */
int sr_session_go(struct sr_session *s, uint32_t wall_ms, uint32_t out_cap, uint32_t err_cap,
                  struct sr_err *err);

/* Queues input for the program (split into frames), its end, or a kill. Calls
 * in a state other than RUNNING are ignored; a kill also counts in HELD. */
void sr_session_stdin(struct sr_session *s, const void *data, size_t n);
void sr_session_stdin_eof(struct sr_session *s);
void sr_session_kill(struct sr_session *s);

#endif
