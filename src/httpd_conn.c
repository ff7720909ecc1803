/* httpd_conn.c - the server's connections: which go on, which wait, which have to go. */
#include "httpd_parts.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/epoll.h>

#define MIN_RATE 512 /* bytes a second that a client has to take of an answer */
#define EVENTS_AT_ONCE 64
#define WAKES_MAX 64 /* pieces that a line between chunks may come in */

static void arm_deadline(struct sr_httpd *h)
{
    const struct sr_due_list *lists[] = {&h->arriving, &h->idle, &h->sending, &h->leaving};
    int64_t first = INT64_MAX;

    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        if (lists[i]->first && lists[i]->first->due_ms < first)
            first = lists[i]->first->due_ms;
    if (first == INT64_MAX)
        sr_timer_remove(&h->deadline);
    else if (!h->deadline.link || h->deadline.due_ms > first) /* too early does no harm */
        sr_timer_add(h->loop, &h->deadline, first - sr_now_ms());
}

void sr_conn_clear_due(struct sr_conn *c)
{
    struct sr_due_list *list = c->due;

    if (!list)
        return;
    *(c->due_prev ? &c->due_prev->due_next : &list->first) = c->due_next;
    *(c->due_next ? &c->due_next->due_prev : &list->last) = c->due_prev;
    c->due = NULL;
}

void sr_conn_set_due(struct sr_conn *c, struct sr_due_list *list, int64_t delay_ms)
{
    struct sr_conn *after;

    sr_conn_clear_due(c);
    c->due = list;
    c->due_ms = sr_now_ms() + delay_ms;
    for (after = list->last; after && after->due_ms > c->due_ms; after = after->due_prev)
        ;
    c->due_prev = after;
    c->due_next = after ? after->due_next : list->first;
    *(c->due_prev ? &c->due_prev->due_next : &list->first) = c;
    *(c->due_next ? &c->due_next->due_prev : &list->last) = c;
    arm_deadline(c->h);
}

void sr_httpd_kick(struct sr_httpd *h)
{
    sr_timer_add(h->loop, &h->next_run, 0);
}

void sr_conn_suspend(struct sr_conn *c)
{
    c->suspended = true;
    MHD_suspend_connection(c->mhd);
}

/* MHD reads from a resumed connection before it calls, and closes it over the end of
 * what a client sends, even when the request is there as a whole and only the answer
 * was waited for. Those with a timeout of their own it visits first. */
static void set_hurried(struct sr_conn *c, bool hurried)
{
    c->hurried = hurried;
    MHD_set_connection_option(c->mhd, MHD_CONNECTION_OPTION_TIMEOUT, hurried ? 1000000u : 0u);
}

void sr_conn_hurry_end(struct sr_conn *c)
{
    set_hurried(c, true);
    sr_httpd_kick(c->h);
}

void sr_conn_on_call(struct sr_conn *c)
{
    c->moved = true;
    c->wakes = 0;
    if (c->hurried)
        set_hurried(c, false);
}

void sr_conn_resume(struct sr_conn *c)
{
    if (!c->suspended)
        return; /* it would corrupt MHD's lists */
    if (c->rq && (c->rq->phase == SR_PHASE_HEAD || c->rq->phase == SR_PHASE_END))
        set_hurried(c, true);
    c->suspended = c->parked = false;
    MHD_resume_connection(c->mhd);
    sr_httpd_kick(c->h);
}

void sr_conn_shut(struct sr_conn *c)
{
    if (!c->dying) {
        c->dying = true;
        c->h->n_dying++;
    }
    sr_conn_clear_due(c);
    shutdown(c->fd, SHUT_RDWR);
    sr_conn_resume(c);
    sr_httpd_kick(c->h);
}

/* Our own epoll set tells what MHD does not look at: the end of a connection that
 * is suspended, and the first byte of the next request on one that is kept alive. */
static void watch_socket(struct sr_conn *c, uint32_t events, int how)
{
    struct epoll_event event = {.events = events, .data.ptr = c};

    if (epoll_ctl(c->h->own_watch.fd, how, c->fd, &event) < 0)
        sr_conn_shut(c); /* no memory in the kernel: nothing would be noticed */
}

void sr_conn_watch_gone(struct sr_conn *c)
{
    /* A signal that is not looked at does not come again, and one is enough. */
    watch_socket(c, EPOLLRDHUP | EPOLLET, EPOLL_CTL_MOD);
}

static void list_chunked(struct sr_conn *c)
{
    struct sr_httpd *h = c->h;

    c->next_chunked = h->chunked;
    c->chunked_link = &h->chunked;
    if (c->next_chunked)
        c->next_chunked->chunked_link = &c->next_chunked;
    h->chunked = c;
}

static void unlist_chunked(struct sr_conn *c)
{
    if (!c->chunked_link)
        return;
    *c->chunked_link = c->next_chunked;
    if (c->next_chunked)
        c->next_chunked->chunked_link = c->chunked_link;
    c->chunked_link = NULL;
}

void sr_conn_begin_chunked(struct sr_conn *c)
{
    c->chunked = c->moved = true;
    c->wakes = 0;
    list_chunked(c);
    watch_socket(c, EPOLLIN | EPOLLRDHUP | EPOLLET, EPOLL_CTL_MOD);
}

void sr_conn_end_chunked(struct sr_conn *c)
{
    if (!c->chunked)
        return;
    c->chunked = c->parked = false;
    unlist_chunked(c);
    sr_conn_watch_gone(c);
}

void sr_httpd_park(struct sr_httpd *h)
{
    struct sr_conn *c, *next;

    for (c = h->chunked; c; c = next) {
        next = c->next_chunked;
        if (!c->moved && !c->dying) {
            unlist_chunked(c);
            sr_conn_suspend(c);
            c->parked = true;
        }
        c->moved = false;
    }
}

/* What was received is MHD's to look at, unless there have been too many looks for
 * nothing. */
static void wake(struct sr_conn *c)
{
    list_chunked(c);
    sr_conn_resume(c);
    if (++c->wakes > WAKES_MAX)
        sr_request_doom(c->rq);
}

/* Bytes that the other side has acknowledged. */
static uint64_t bytes_taken(const struct sr_conn *c)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof info;

    getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &len);
    return info.tcpi_bytes_acked;
}

void sr_conn_clock_sending(struct sr_conn *c)
{
    c->taken = bytes_taken(c);
    sr_conn_set_due(c, &c->h->sending, c->h->config.request_ms);
}

void sr_conn_await_next(struct sr_conn *c)
{
    free(c->target);
    c->target = NULL;
    if (c->dying)
        return;
    if (c->h->stopped) {
        sr_conn_shut(c);
        return;
    }
    sr_conn_set_due(c, &c->h->idle, c->h->config.idle_ms);
    watch_socket(c, EPOLLIN | EPOLLONESHOT, EPOLL_CTL_MOD);
    sr_listener_resume(&c->h->listener); /* a newcomer may have this place */
}

/* So that a client that vanished without a word is noticed while nothing is sent. */
static void keep_alive(int fd)
{
    static const struct {
        int name, value;
    } when[] = {{TCP_KEEPIDLE, 60}, {TCP_KEEPINTVL, 15}, {TCP_KEEPCNT, 4}};
    int on = 1;

    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    for (size_t i = 0; i < sizeof when / sizeof when[0]; i++)
        setsockopt(fd, IPPROTO_TCP, when[i].name, &when[i].value, sizeof when[i].value);
}

void sr_conn_start(struct sr_httpd *h, struct MHD_Connection *mhd, void **ctx)
{
    int fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    struct sr_conn *c = calloc(1, sizeof *c);
    struct sockaddr_storage addr;
    socklen_t len = sizeof addr;

    *ctx = c;
    if (!c) {
        shutdown(fd, SHUT_RDWR);
        return;
    }
    *c = (struct sr_conn){.h = h, .mhd = mhd, .fd = fd};
    c->next = h->conns;
    c->link = &h->conns;
    if (c->next)
        c->next->link = &c->next;
    h->conns = c;
    h->n_conns++;
    if (getpeername(fd, (struct sockaddr *)&addr, &len) == 0)
        sr_listener_peer(c->peer, sizeof c->peer, (struct sockaddr *)&addr, len);
    keep_alive(fd);
    sr_conn_set_due(c, &h->arriving, h->config.request_ms);
    watch_socket(c, EPOLLONESHOT, EPOLL_CTL_ADD);
}

void sr_conn_end(struct sr_httpd *h, struct sr_conn *c)
{
    sr_conn_clear_due(c);
    epoll_ctl(h->own_watch.fd, EPOLL_CTL_DEL, c->fd, NULL);
    unlist_chunked(c);
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    h->n_conns--;
    if (c->dying)
        h->n_dying--;
    free(c->target);
    free(c);
    if (!h->stopped)
        sr_listener_resume(&h->listener);
}

struct sr_conn *sr_httpd_idlest(const struct sr_httpd *h)
{
    struct sr_conn *c = h->idle.first;

    if (h->leaving.first)
        return h->leaving.first;
    for (c = c ? c : h->arriving.first; c && c->rq; c = c->due_next)
        ;
    return c;
}

static void on_late(struct sr_conn *c)
{
    struct sr_request *rq = c->rq;
    struct sr_httpd *h = c->h;

    if (c->due == &h->sending) {
        uint64_t taken = bytes_taken(c);

        if (taken - c->taken >= (uint64_t)h->config.request_ms * MIN_RATE / 1000) {
            c->taken = taken;
            sr_conn_set_due(c, &h->sending, h->config.request_ms);
            return;
        }
    }
    if (!rq) {
        sr_conn_shut(c);
        return;
    }
    if (rq->reader)
        sr_request_fail_read(rq, SR_TIMEOUT);
    sr_request_doom(rq);
}

void sr_httpd_on_deadline(struct sr_timer *t)
{
    struct sr_httpd *h = sr_container_of(t, struct sr_httpd, deadline);
    struct sr_due_list *lists[] = {&h->arriving, &h->idle, &h->sending, &h->leaving};
    int64_t now = sr_now_ms();

    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        while (lists[i]->first && lists[i]->first->due_ms <= now)
            on_late(lists[i]->first);
    arm_deadline(h);
}

/* MHD does not run in here, so that no connection of this batch can go meanwhile. */
void sr_httpd_look(struct sr_httpd *h)
{
    struct epoll_event events[EVENTS_AT_ONCE];
    int n = epoll_wait(h->own_watch.fd, events, EVENTS_AT_ONCE, 0);

    for (int i = 0; i < n; i++) {
        struct sr_conn *c = events[i].data.ptr;
        uint32_t what = events[i].events;

        if (c->parked)
            wake(c);
        if (c->rq && (what & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)))
            sr_request_on_gone(c->rq, !(what & (EPOLLHUP | EPOLLERR)));
        else if (!c->rq && c->due == &h->idle)
            sr_conn_set_due(c, &h->arriving, h->config.request_ms);
    }
}
