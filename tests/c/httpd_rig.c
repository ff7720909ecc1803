#include "httpd_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_MS 10000

struct web web;
static char received[1 << 20];
static struct sr_read reading;

int web_set_up(void **state)
{
    (void)state;
    web = (struct web){.config = {.host = "127.0.0.1", .connections = 100, .header_bytes = 16384,
                                  .body_budget = 8 << 20, .stream_bytes = 1 << 20,
                                  .output_budget = 64 << 20,
                                  .idle_ms = 60000, .request_ms = 30000}};
    sr_loop_init(&web.loop);
    return 0;
}

int web_tear_down(void **state)
{
    (void)state;
    sr_httpd_close(web.httpd);
    sr_loop_clear(&web.loop);
    return 0;
}

void web_open(void)
{
    struct sr_err err = {.code = SR_OK};
    const char *host;

    if (sr_httpd_open(&web.httpd, &web.loop, &web.config, &err) < 0)
        fail_msg("%s", err.msg);
    sr_httpd_address(web.httpd, &host, &web.port);
}

void web_turn(int max_wait_ms)
{
    struct sr_request *rq;

    web.turns++;
    sr_loop_turn(&web.loop, max_wait_ms);
    while (sr_loop_take_ready(&web.loop))
        ;
    while (web.serve && web.httpd && (rq = sr_httpd_take(web.httpd)))
        web.serve(rq);
}

void web_run(int ms)
{
    int64_t end = sr_now_ms() + ms, left;

    while ((left = end - sr_now_ms()) > 0)
        web_turn((int)left);
}

struct sr_request *web_take(void)
{
    int64_t end = sr_now_ms() + PATIENCE_MS;

    while (!sr_httpd_has_request(web.httpd) && sr_now_ms() < end)
        web_turn(20);
    if (!sr_httpd_has_request(web.httpd))
        fail_msg("no request came");
    return sr_httpd_take(web.httpd);
}

void web_respond(struct sr_request *rq, unsigned status, const char *body)
{
    static const char heads[] = "Content-Type\0text/plain";

    assert_int_equal(
        sr_request_respond(rq, status, heads, sizeof heads, body, strlen(body), NULL), 0);
}

void web_done(struct sr_request *rq)
{
    sr_request_abandon(rq);
    sr_request_release(rq);
}

void web_serve_target(struct sr_request *rq)
{
    web_respond(rq, 200, sr_request_target(rq));
    web_done(rq);
}

const char *web_header(const struct sr_request *rq, const char *wanted)
{
    const char *at = NULL, *name, *value;

    while (sr_request_next_header(rq, &at, &name, &value))
        if (!strcasecmp(name, wanted))
            return value;
    return NULL;
}

enum sr_code web_read(struct sr_request *rq, size_t max, const char **body, size_t *n)
{
    int64_t end = sr_now_ms() + PATIENCE_MS;

    sr_request_read(rq, &reading, &web.loop, max);
    while (reading.op.state == SR_OP_PENDING && sr_now_ms() < end)
        web_turn(20);
    if (reading.op.state == SR_OP_PENDING)
        fail_msg("the body did not come");
    sr_op_drop(&reading.op);
    if (reading.op.err.code == SR_OK && body)
        sr_request_body(rq, body, n);
    return reading.op.err.code;
}

int web_connect(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((uint16_t)web.port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    if (connect(fd, (struct sockaddr *)&addr, sizeof addr) < 0)
        fail_msg("connect: %s", strerror(errno));
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

long web_push(int fd, const void *data, size_t n)
{
    ssize_t done = send(fd, data, n, MSG_NOSIGNAL);

    return done < 0 && errno == EAGAIN ? 0 : done;
}

void web_send_bytes(int fd, const void *data, size_t n)
{
    const char *at = data;
    int64_t end = sr_now_ms() + PATIENCE_MS;

    while (n) {
        long done = web_push(fd, at, n);

        if (done < 0)
            return; /* what the server said before it closed is still to be received */
        if (sr_now_ms() > end)
            fail_msg("the server takes no more");
        at += done;
        n -= (size_t)done;
        web_turn(0);
    }
}

void web_send(int fd, const char *text)
{
    web_send_bytes(fd, text, strlen(text));
}

const char *web_receive(int fd, const char *end)
{
    int64_t until = sr_now_ms() + PATIENCE_MS;
    size_t n = 0;

    received[0] = '\0';
    while (sr_now_ms() < until) {
        ssize_t got = recv(fd, received + n, sizeof received - 1 - n, 0);

        if (got == 0 || (got < 0 && errno != EAGAIN))
            return received;
        if (got > 0) {
            n += (size_t)got;
            received[n] = '\0';
            if (end && *end && memmem(received, n, end, strlen(end)))
                return received;
        } else {
            web_turn(5);
        }
    }
    fail_msg("waited for \"%s\", got \"%s\"", end ? end : "the end", received);
    return NULL;
}

const char *web_ask(int fd, const char *text, const char *end)
{
    web_send(fd, text);
    return web_receive(fd, end);
}

bool web_is_closed(int fd, int within_ms)
{
    int64_t until = sr_now_ms() + within_ms;
    static char sink[65536];

    for (;;) {
        ssize_t got = recv(fd, sink, sizeof sink, 0);

        if (got == 0 || (got < 0 && errno != EAGAIN))
            return true;
        if (sr_now_ms() >= until)
            return false;
        if (got < 0)
            web_turn(5);
    }
}

void web_reset(int fd)
{
    struct linger hard = {.l_onoff = 1, .l_linger = 0};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(fd);
}

void web_assert_served(void)
{
    int64_t start = sr_now_ms();
    int fd = web_connect();

    assert_non_null(strstr(web_ask(fd, GET("/alive"), "/alive"), "200 OK"));
    close(fd);
    if (sr_now_ms() - start > 5000)
        fail_msg("served after %d ms", (int)(sr_now_ms() - start));
}
