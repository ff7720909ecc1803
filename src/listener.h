/* listener.h - the listening sockets of one address.
 *
 * A name like "localhost" may stand for several addresses (::1 and 127.0.0.1):
 * each gets a socket, all the same port. Accepts from the loop, and leaves
 * connections in the kernel's queue while there is no room or no descriptor for
 * them. Knows nothing of what is spoken over them. */
#ifndef SR_LISTENER_H
#define SR_LISTENER_H

#include <stdbool.h>
#include <sys/socket.h>

#include "err.h"
#include "loop.h"

#define SR_LISTENER_SOCKETS 4

struct sr_listener;

struct sr_listener_socket {
    struct sr_watch watch;
    struct sr_listener *listener;
};

/* Zero-initialise and set the callbacks, then open. */
struct sr_listener {
    /* Whether one more connection may be taken. After false nothing is accepted
     * before sr_listener_resume. */
    bool (*has_room)(struct sr_listener *l);
    /* A connection; the callee owns fd. */
    void (*on_socket)(struct sr_listener *l, int fd, const struct sockaddr *addr, socklen_t len);
    /* The process or the system is out of descriptors: close one if you can. */
    void (*on_shortage)(struct sr_listener *l);

    struct sr_loop *loop;
    struct sr_listener_socket sockets[SR_LISTENER_SOCKETS];
    unsigned n;
    struct sr_timer retry;
    char host[64]; /* numeric, of the first socket */
    unsigned port;
};

/* Binds and listens; port 0 takes a free one. SR_CONFLICT: in use; SR_DENIED: not
 * for this user; SR_INVALID: no such host or no such address here. */
int sr_listener_open(struct sr_listener *l, struct sr_loop *loop, const char *host, unsigned port,
                     struct sr_err *err);

/* Accepts again after has_room said no. */
void sr_listener_resume(struct sr_listener *l);

/* Closes the sockets; harmless when closed. host and port stay. */
void sr_listener_close(struct sr_listener *l);

/* The numeric host of an address, without a scope, "" when there is none. */
void sr_listener_peer(char *out, size_t size, const struct sockaddr *addr, socklen_t len);

#endif
