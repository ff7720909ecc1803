#include "http_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

struct rig rig;

static void *server_main(void *unused)
{
    (void)unused;
    for (int i = 0; i < rig.server.connections; i++) {
        int fd = accept(rig.server.fd, NULL, NULL);

        if (fd < 0)
            break;
        rig.server.serve(fd);
        close(fd);
    }
    return NULL;
}

void rig_listen(const char *where)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    snprintf(addr.sun_path, sizeof addr.sun_path, "%s", where);
    unlink(where);
    rig.server.fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(rig.server.fd >= 0);
    assert_int_equal(bind(rig.server.fd, (struct sockaddr *)&addr, sizeof addr), 0);
    assert_int_equal(listen(rig.server.fd, 16), 0);
}

void rig_start(void (*serve)(int fd), int connections)
{
    rig.server = (struct rig_server){.connections = connections, .serve = serve};
    rig_listen(rig.path);
    assert_int_equal(pthread_create(&rig.server.thread, NULL, server_main, NULL), 0);
    rig.server.running = true;
}

void rig_stop(void)
{
    if (!rig.server.running)
        return;
    shutdown(rig.server.fd, SHUT_RDWR);
    pthread_join(rig.server.thread, NULL);
    close(rig.server.fd);
    rig.server.running = false;
}

int rig_set_up(void **state)
{
    char address[120];

    (void)state;
    strcpy(rig.folder, "/tmp/sr-http-XXXXXX");
    if (!mkdtemp(rig.folder))
        return -1;
    snprintf(rig.path, sizeof rig.path, "%s/engine.sock", rig.folder);
    snprintf(address, sizeof address, "unix://%s", rig.path);
    sr_loop_init(&rig.loop);
    return sr_http_open(&rig.http, &rig.loop, NULL) || sr_target_parse(&rig.target, address, NULL, NULL);
}

int rig_tear_down(void **state)
{
    (void)state;
    sr_http_close(rig.http);
    rig_stop();
    sr_loop_clear(&rig.loop);
    sr_target_clear(&rig.target);
    unlink(rig.path);
    rmdir(rig.folder);
    return 0;
}

/* Reads a request up to the end of its head. */
void rig_read_request(int fd)
{
    char buf[4096];
    size_t len = 0;

    while (len < sizeof buf) {
        ssize_t n = read(fd, buf + len, sizeof buf - len);

        if (n <= 0)
            return;
        len += (size_t)n;
        if (memmem(buf, len, "\r\n\r\n", 4))
            return;
    }
}

bool rig_send(int fd, const char *data, size_t n)
{
    while (n) {
        ssize_t done = send(fd, data, n, MSG_NOSIGNAL);

        if (done <= 0)
            return false;
        data += done;
        n -= (size_t)done;
    }
    return true;
}

void rig_send_text(int fd, const char *text)
{
    rig_send(fd, text, strlen(text));
}

/* Keeps the connection until the client has gone. */
void rig_wait_for_client(int fd)
{
    char buf[4096];

    while (read(fd, buf, sizeof buf) > 0)
        ;
}

void rig_serve_text(int fd)
{
    rig_read_request(fd);
    rig_send_text(fd, rig.server.text);
}

void rig_serve_text_and_wait(int fd)
{
    rig_read_request(fd);
    rig_send_text(fd, rig.server.text);
    rig_wait_for_client(fd);
}

void rig_answer(const char *text)
{
    rig_start(rig_serve_text, 1);
    rig.server.text = text;
}

long rig_memory_kib(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

/* The high-water mark of memory; a sanitizer's own bookkeeping is not ours. */
void rig_grown_less(long before, long kib)
{
#ifdef __SANITIZE_ADDRESS__
    kib *= 20;
#endif
    if (rig_memory_kib() - before > kib)
        fail_msg("memory grew by %ld KiB", rig_memory_kib() - before);
}

void rig_run_until(const struct sr_op *op)
{
    int64_t end = sr_now_ms() + 20000;

    while (op->state == SR_OP_PENDING && sr_now_ms() < end)
        sr_loop_turn(&rig.loop, 100);
    assert_int_equal(op->state, SR_OP_READY);
}

void rig_serve_endless_head(int fd)
{
    static char line[4096];

    rig_read_request(fd);
    memset(line, 'h', sizeof line);
    memcpy(line, "X: ", 3);
    memcpy(line + sizeof line - 2, "\r\n", 2);
    rig_send_text(fd, "HTTP/1.1 200 OK\r\n");
    while (rig.server.received < (INT64_C(1) << 30) && rig_send(fd, line, sizeof line))
        rig.server.received += sizeof line;
}
