/* http_rig.h - a server that behaves badly, for the tests of the HTTP client.
 *
 * A thread plays it on a Unix socket in a folder of its own; the client and its
 * loop are here too. One at a time. */
#ifndef SR_HTTP_RIG_H
#define SR_HTTP_RIG_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "http.h"

#define ANSWER(head, body) "HTTP/1.1 " head "\r\n\r\n" body

/* Accepts `connections` times and calls serve for each. */
struct rig_server {
    pthread_t thread;
    int fd, connections;
    void (*serve)(int fd);
    const char *text;   /* what rig_serve_text sends */
    int64_t received;   /* bytes that came in or went out, when serve counts them */
    bool running;
};

struct rig {
    struct sr_loop loop;
    struct sr_http *http;
    struct sr_target target;
    struct rig_server server;
    char folder[64], path[100];
};

extern struct rig rig;

/* Set-up and tear-down of a test. */
int rig_set_up(void **state);
int rig_tear_down(void **state);

void rig_listen(const char *where);
void rig_start(void (*serve)(int fd), int connections);
void rig_stop(void);

/* One connection that gets this text as its answer and is closed. */
void rig_answer(const char *text);

/* What servers are made of. */
void rig_read_request(int fd);
bool rig_send(int fd, const char *data, size_t n);
void rig_send_text(int fd, const char *text);
void rig_wait_for_client(int fd);
void rig_serve_text(int fd);
void rig_serve_text_and_wait(int fd);
void rig_serve_endless_head(int fd);

/* Turns the loop until the operation has finished. */
void rig_run_until(const struct sr_op *op);

/* The high-water mark of memory, and an assertion about its growth. */
long rig_memory_kib(void);
void rig_grown_less(long before, long kib);

#endif
