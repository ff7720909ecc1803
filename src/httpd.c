#include "httpd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "httpd_parts.h"

/* In a connection's memory, beside the head: what MHD notes of each header (up to 64
 * bytes), and the head of the answer. */
#define POOL_EXTRA 16384u
#define SPARE_FDS 200u   /* descriptors left for the rest of the program */
#define FRUITLESS_MAX 16 /* runs at once for nothing */
#define STUCK_MS 20      /* until the next one, after that */

static void on_connection(void *cls, struct MHD_Connection *mhd, void **ctx,
                          enum MHD_ConnectionNotificationCode what)
{
    struct sr_httpd *h = cls;

    h->calls++;
    if (what == MHD_CONNECTION_NOTIFY_STARTED)
        sr_conn_start(h, mhd, ctx);
    else if (*ctx)
        sr_conn_end(h, *ctx);
}

static bool has_room(struct sr_listener *l)
{
    struct sr_httpd *h = sr_container_of(l, struct sr_httpd, listener);

    if (h->n_conns >= h->config.connections + SR_SLACK)
        return false;
    return h->n_conns - h->n_dying < h->config.connections || sr_httpd_idlest(h);
}

static void on_socket(struct sr_listener *l, int fd, const struct sockaddr *addr, socklen_t len)
{
    struct sr_httpd *h = sr_container_of(l, struct sr_httpd, listener);

    if (h->n_conns - h->n_dying >= h->config.connections)
        sr_conn_shut(sr_httpd_idlest(h));
    MHD_add_connection(h->daemon, fd, addr, len); /* closes fd when it fails */
    sr_httpd_kick(h);
}

static void on_shortage(struct sr_listener *l)
{
    struct sr_httpd *h = sr_container_of(l, struct sr_httpd, listener);

    if (h->idle.first) /* no newcomer: it would have to make way for the next one */
        sr_conn_shut(h->idle.first);
}

/* MHD asks for another run when it has not looked at all there is, but also for a
 * connection that is stuck, again and again until that one's time is up. */
static void run(struct sr_httpd *h)
{
    MHD_UNSIGNED_LONG_LONG wait_ms;
    unsigned long before = h->calls;

    sr_timer_remove(&h->next_run);
    sr_httpd_look(h); /* first: a byte that MHD has read is not seen any more */
    MHD_run(h->daemon);
    sr_httpd_park(h);
    if (MHD_get_timeout(h->daemon, &wait_ms) != MHD_YES) {
        h->fruitless = 0;
    } else {
        h->fruitless = h->calls == before ? h->fruitless + 1 : 0;
        sr_timer_add(h->loop, &h->next_run, h->fruitless > FRUITLESS_MAX ? STUCK_MS : 0);
    }
}

static void on_own(struct sr_watch *w, short revents)
{
    (void)revents;
    sr_httpd_look(sr_container_of(w, struct sr_httpd, own_watch));
}

static void on_mhd(struct sr_watch *w, short revents)
{
    (void)revents;
    run(sr_container_of(w, struct sr_httpd, mhd_watch));
}

static void on_next_run(struct sr_timer *t)
{
    run(sr_container_of(t, struct sr_httpd, next_run));
}

static void silent(void *cls, const char *format, va_list args)
{
    (void)cls;
    (void)format;
    (void)args;
}

/* Raises the soft limit of descriptors; where the hard one is too low there are
 * fewer connections, so that the rest of the program still gets its own. */
static void fit_descriptors(struct sr_httpd_config *config)
{
    rlim_t want = config->connections + SR_SLACK + SPARE_FDS;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= want)
        return;
    limit.rlim_cur = limit.rlim_max < want ? limit.rlim_max : want;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < want) {
        rlim_t fit = limit.rlim_cur / 2;

        if (fit + SR_SLACK + SPARE_FDS < limit.rlim_cur)
            fit = limit.rlim_cur - SR_SLACK - SPARE_FDS;
        config->connections = fit < config->connections ? (unsigned)fit : config->connections;
    }
}

static int start_daemon(struct sr_httpd *h, struct sr_err *err)
{
    const unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET;
    const union MHD_DaemonInfo *info = NULL;

    h->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, sr_httpd_on_request, h,
        MHD_OPTION_EXTERNAL_LOGGER, silent, NULL,
        MHD_OPTION_URI_LOG_CALLBACK, sr_httpd_on_target, NULL,
        MHD_OPTION_NOTIFY_COMPLETED, sr_httpd_on_completed, NULL,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
        MHD_OPTION_CONNECTION_LIMIT, h->config.connections + SR_SLACK + 1,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, h->config.header_bytes + POOL_EXTRA,
        MHD_OPTION_CONNECTION_TIMEOUT, 0u,
        MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_END);
    if (h->daemon)
        info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info || info->epoll_fd < 0)
        return sr_err_set(err, SR_INTERNAL, "libmicrohttpd cannot be started");
    h->mhd_watch = (struct sr_watch){.fd = info->epoll_fd, .events = POLLIN, .on_ready = on_mhd};
    sr_watch_add(h->loop, &h->mhd_watch);
    return 0;
}

int sr_httpd_open(struct sr_httpd **out, struct sr_loop *loop,
                  const struct sr_httpd_config *config, struct sr_err *err)
{
    struct sr_httpd *h = calloc(1, sizeof *h);

    if (!h)
        return sr_err_set(err, SR_NO_MEMORY, "out of memory");
    h->loop = loop;
    h->config = *config;
    h->queue_tail = &h->queue;
    h->next_run.on_due = on_next_run;
    h->deadline.on_due = sr_httpd_on_deadline;
    h->listener = (struct sr_listener){
        .has_room = has_room, .on_socket = on_socket, .on_shortage = on_shortage};
    fit_descriptors(&h->config);
    h->own_watch = (struct sr_watch){
        .fd = epoll_create1(EPOLL_CLOEXEC), .events = POLLIN, .on_ready = on_own};
    if (h->own_watch.fd < 0) {
        sr_err_set(err, SR_UNAVAILABLE, "epoll: %s", strerror(errno));
        goto fail;
    }
    sr_watch_add(loop, &h->own_watch);
    if (start_daemon(h, err) < 0 ||
        sr_listener_open(&h->listener, loop, config->host, config->port, err) < 0)
        goto fail;
    h->config.host = NULL;
    *out = h;
    return 0;
fail:
    sr_httpd_close(h);
    return -1;
}

void sr_httpd_address(const struct sr_httpd *h, const char **host, unsigned *port)
{
    *host = h->listener.host;
    *port = h->listener.port;
}

struct sr_httpd_stats sr_httpd_stats(const struct sr_httpd *h)
{
    return (struct sr_httpd_stats){.connections = h->n_conns - h->n_dying,
                                   .requests = h->n_requests,
                                   .max_connections = h->config.connections,
                                   .buffered = h->buffered,
                                   .unsent = h->unsent};
}

static void accept_abort(struct sr_op *op)
{
    struct sr_accept *a = sr_container_of(op, struct sr_accept, op);

    if (a->httpd)
        a->httpd->acceptor = NULL;
    a->httpd = NULL;
}

void sr_httpd_accept(struct sr_httpd *h, struct sr_accept *a)
{
    a->httpd = h;
    sr_op_start(h->loop, &a->op, -1, accept_abort);
    if (h->queue || h->stopped)
        sr_op_finish(&a->op, NULL);
    else
        h->acceptor = a;
}

bool sr_httpd_has_request(const struct sr_httpd *h)
{
    return h->queue != NULL;
}

struct sr_request *sr_httpd_take(struct sr_httpd *h)
{
    struct sr_request *rq = h->queue;

    if (!rq)
        return NULL;
    h->queue = rq->next_queued;
    if (!h->queue)
        h->queue_tail = &h->queue;
    return rq;
}

void sr_httpd_stop(struct sr_httpd *h)
{
    h->stopped = true;
    sr_listener_close(&h->listener);
    if (h->acceptor)
        sr_op_finish(&h->acceptor->op, NULL);
    h->acceptor = NULL;
    for (struct sr_conn *c = h->conns; c; c = c->next)
        if (!c->rq)
            sr_conn_shut(c);
}

void sr_httpd_close(struct sr_httpd *h)
{
    struct sr_request *rq;

    if (!h)
        return;
    sr_httpd_stop(h);
    /* MHD would abort over a suspended one. */
    for (struct sr_conn *c = h->conns; c; c = c->next)
        sr_conn_shut(c);
    if (h->daemon)
        MHD_stop_daemon(h->daemon);
    while ((rq = sr_httpd_take(h)))
        sr_request_release(rq);
    while ((rq = h->requests)) {
        h->requests = rq->next;
        rq->h = NULL;
        rq->link = NULL;
        rq->next = NULL;
    }
    sr_watch_remove(&h->mhd_watch);
    sr_watch_remove(&h->own_watch);
    sr_timer_remove(&h->next_run);
    sr_timer_remove(&h->deadline);
    if (h->own_watch.fd >= 0)
        close(h->own_watch.fd);
    free(h);
}
