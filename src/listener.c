#include "listener.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BACKLOG 512
#define AT_ONCE 32     /* connections taken in one turn: others want their turn, too */
#define RETRY_MS 200   /* until descriptors are looked for again */
#define PORT_TRIES 16  /* free ports of one address tried for the other ones */

static void watch_sockets(struct sr_listener *l)
{
    for (unsigned i = 0; i < l->n; i++)
        sr_watch_add(l->loop, &l->sockets[i].watch);
}

static void unwatch_sockets(struct sr_listener *l)
{
    for (unsigned i = 0; i < l->n; i++)
        sr_watch_remove(&l->sockets[i].watch);
}

void sr_listener_resume(struct sr_listener *l)
{
    if (!l->retry.link)
        watch_sockets(l);
}

static void on_retry(struct sr_timer *t)
{
    watch_sockets(sr_container_of(t, struct sr_listener, retry));
}

/* What is readable stays readable: without a pause the loop would spin. */
static void pause_for_descriptors(struct sr_listener *l)
{
    l->on_shortage(l);
    unwatch_sockets(l);
    sr_timer_add(l->loop, &l->retry, RETRY_MS);
}

static void on_ready(struct sr_watch *w, short revents)
{
    struct sr_listener *l = sr_container_of(w, struct sr_listener_socket, watch)->listener;

    (void)revents;
    for (int i = 0; i < AT_ONCE; i++) {
        struct sockaddr_storage addr;
        socklen_t len = sizeof addr;
        int fd;

        if (!l->has_room(l)) {
            unwatch_sockets(l);
            return;
        }
        fd = accept4(w->fd, (struct sockaddr *)&addr, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            l->on_socket(l, fd, (struct sockaddr *)&addr, len);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            pause_for_descriptors(l);
            return;
        } else if (errno == EAGAIN) {
            return;
        } /* else this one has gone again: on to the next */
    }
}

void sr_listener_peer(char *out, size_t size, const struct sockaddr *addr, socklen_t len)
{
    static const char mapped[] = "::ffff:"; /* an IPv4 client of a socket for both */
    char host[NI_MAXHOST], *scope;
    const char *from = host;

    if (getnameinfo(addr, len, host, sizeof host, NULL, 0, NI_NUMERICHOST) != 0)
        host[0] = '\0';
    scope = strchr(host, '%');
    if (scope)
        *scope = '\0';
    if (!strncmp(host, mapped, sizeof mapped - 1) && strchr(host, '.'))
        from += sizeof mapped - 1;
    snprintf(out, size, "%s", from);
}

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage largest;
};

/* Where the port of an address stands, in network order. */
static in_port_t *port_in(union address *addr)
{
    return addr->any.sa_family == AF_INET6 ? &addr->v6.sin6_port : &addr->v4.sin_port;
}

static int explain(int code, const char *host, unsigned port, struct sr_err *err)
{
    char place[320];

    snprintf(place, sizeof place, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
    switch (code) {
    case EADDRINUSE:
        return sr_err_set(err, SR_CONFLICT,
                          "%s is in use by another program; name another --port", place);
    case EACCES:
    case EPERM:
        return sr_err_set(err, SR_DENIED,
                          "%s may not be opened by this user; name a --port above 1023", place);
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT:
        return sr_err_set(err, SR_INVALID,
                          "no network of this machine has the address %s; name another --host",
                          host);
    default:
        return sr_err_set(err, SR_UNAVAILABLE, "%s cannot be opened: %s", place, strerror(code));
    }
}

/* A listening socket, or -1 with errno. */
static int listen_at(const struct addrinfo *at, unsigned port)
{
    union address addr;
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1, code;

    if (fd < 0)
        return -1;
    memset(&addr, 0, sizeof addr);
    memcpy(&addr, at->ai_addr, at->ai_addrlen);
    *port_in(&addr) = htons((uint16_t)port);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on); /* not for the minute of TIME_WAIT */
    if (bind(fd, &addr.any, at->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    code = errno;
    close(fd);
    errno = code;
    return -1;
}

static void keep_socket(struct sr_listener *l, int fd)
{
    struct sr_listener_socket *s = &l->sockets[l->n++];

    s->watch = (struct sr_watch){.fd = fd, .events = POLLIN, .on_ready = on_ready};
    s->listener = l;
    if (l->n == 1) {
        union address addr;
        socklen_t len = sizeof addr;

        memset(&addr, 0, sizeof addr);
        getsockname(fd, &addr.any, &len);
        l->port = ntohs(*port_in(&addr));
        sr_listener_peer(l->host, sizeof l->host, &addr.any, len);
    }
}

static void close_sockets(struct sr_listener *l)
{
    unwatch_sockets(l);
    while (l->n)
        close(l->sockets[--l->n].watch.fd);
}

/* /etc/hosts may name an address twice. */
static bool is_repeated(const struct addrinfo *list, const struct addrinfo *at)
{
    for (; list != at; list = list->ai_next)
        if (list->ai_addrlen == at->ai_addrlen &&
            !memcmp(list->ai_addr, at->ai_addr, at->ai_addrlen))
            return true;
    return false;
}

/* Opens a socket for each address: 0, or errno of the one that could not be
 * opened. An address that this machine lacks counts only when it is the only one. */
static int open_all(struct sr_listener *l, const struct addrinfo *list, unsigned port)
{
    int lacking = 0;

    for (const struct addrinfo *at = list; at && l->n < SR_LISTENER_SOCKETS; at = at->ai_next) {
        int fd;

        if (is_repeated(list, at))
            continue;
        fd = listen_at(at, l->n ? l->port : port);
        if (fd >= 0) {
            keep_socket(l, fd);
        } else if (errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT) {
            lacking = errno;
        } else {
            int code = errno;

            close_sockets(l);
            return code;
        }
    }
    return l->n ? 0 : lacking;
}

int sr_listener_open(struct sr_listener *l, struct sr_loop *loop, const char *host, unsigned port,
                     struct sr_err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int code = getaddrinfo(host, NULL, &hints, &list);

    if (code != 0)
        return sr_err_set(err, SR_INVALID, "the host \"%.200s\" is not known (%s)", host,
                          gai_strerror(code));
    l->loop = loop;
    l->retry.on_due = on_retry;
    for (int i = 0; i < PORT_TRIES; i++) {
        code = open_all(l, list, port);
        if (code != EADDRINUSE || port)
            break;
    }
    freeaddrinfo(list);
    if (code)
        return explain(code, host, port, err);
    watch_sockets(l);
    return 0;
}

void sr_listener_close(struct sr_listener *l)
{
    sr_timer_remove(&l->retry);
    close_sockets(l);
}
