/* httpd_rig.h - a server and its clients in one thread, for the tests of the HTTP server.
 *
 * Clients are non-blocking sockets; whatever waits for one of them turns the
 * server's loop meanwhile. */
#ifndef SR_HTTPD_RIG_H
#define SR_HTTPD_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "httpd.h"

#define HOST "Host: a\r\n"
#define GET(target) "GET " target " HTTP/1.1\r\n" HOST "\r\n"
#define POST(length) "POST / HTTP/1.1\r\n" HOST "Content-Length: " length "\r\n\r\n"
#define POST_CHUNKED "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"

struct web {
    struct sr_loop loop;
    struct sr_httpd_config config; /* change it before web_open */
    struct sr_httpd *httpd;
    unsigned port;
    void (*serve)(struct sr_request *rq); /* NULL: web_take is used */
    long turns;
};

extern struct web web;

/* Set-up (defaults in config, nothing open yet) and tear-down of a test. */
int web_set_up(void **state);
int web_tear_down(void **state);
void web_open(void);

/* Turns the loop for that long, or once. */
void web_turn(int max_wait_ms);
void web_run(int ms);

/* The next request, which the caller releases. */
struct sr_request *web_take(void);

/* Handlers for web.serve; they release the request. */
void web_serve_target(struct sr_request *rq); /* 200 with the target as its body */

/* respond with a short text; the request is released by web_done. */
void web_respond(struct sr_request *rq, unsigned status, const char *body);
void web_done(struct sr_request *rq);
const char *web_header(const struct sr_request *rq, const char *name);

/* Waits for the body: its code; *body is valid until the next read. */
enum sr_code web_read(struct sr_request *rq, size_t max, const char **body, size_t *n);

/* Clients. */
int web_connect(void);
void web_send(int fd, const char *text);
void web_send_bytes(int fd, const void *data, size_t n); /* waits until all is taken */
long web_push(int fd, const void *data, size_t n); /* what is taken at once, -1: closed */

/* Everything received on fd until `end` has come, or the server closed ("" or NULL:
 * only then); fails after 10 s. Valid until the next call. */
const char *web_receive(int fd, const char *end);
const char *web_ask(int fd, const char *text, const char *end); /* send, then receive */
void web_assert_served(void); /* that an ordinary client gets its answer, and soon */
bool web_is_closed(int fd, int within_ms); /* reads and drops what comes before */
void web_reset(int fd); /* closes with RST */

#endif
