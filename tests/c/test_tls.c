/* A stream over TLS that carries more than the peer's buffers take at once, to
 * `openssl s_server` with a certificate made here. */
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "docker.h"
#include "http.h"

#define TOTAL 6000000

static struct {
    char *folder, *file[3]; /* ca.pem, cert.pem, key.pem */
    pid_t server;
    int in, out;      /* what the server is to send; what it got */
    int port;
    struct sr_loop loop;
    struct sr_http *http;
    struct sr_target target;
    struct sr_stream stream;
    bool ended, failed;
} t;

static pid_t start(char *const argv[], int in, int out)
{
    pid_t pid = fork();

    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);

        dup2(in >= 0 ? in : null, 0);
        dup2(out >= 0 ? out : null, 1);
        dup2(null, 2);
        execvp(argv[0], argv);
        _exit(127);
    }
    return pid;
}

static int make_certificate(void)
{
    static const char *const names[] = {"ca.pem", "cert.pem", "key.pem"};
    int status = -1;

    for (int i = 0; i < 3; i++)
        if (asprintf(&t.file[i], "%s/%s", t.folder, names[i]) < 0)
            return -1;
    char *const argv[] = {"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                          "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                          "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout",
                          t.file[2], "-out", t.file[1], NULL};

    waitpid(start(argv, -1, -1), &status, 0);
    return status == 0 && link(t.file[1], t.file[0]) == 0 ? 0 : -1;
}

static int free_port(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof addr;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (bind(fd, (struct sockaddr *)&addr, n) < 0 ||
        getsockname(fd, (struct sockaddr *)&addr, &n) < 0)
        return -1;
    close(fd);
    return ntohs(addr.sin_port);
}

static int set_up(void **state)
{
    char port[16], address[64];
    int in[2], out[2];

    (void)state;
    memset(&t, 0, sizeof t);
    t.folder = strdup("/tmp/sr-tls-XXXXXX");
    if (!t.folder || !mkdtemp(t.folder) || make_certificate() < 0 || (t.port = free_port()) < 0 ||
        pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
        return -1;
    snprintf(port, sizeof port, "127.0.0.1:%d", t.port);
    char *const argv[] = {"openssl", "s_server", "-quiet", "-accept", port, "-cert", t.file[1],
                          "-key", t.file[2], "-CAfile", t.file[0], "-Verify", "1", "-4", NULL};

    t.server = start(argv, in[0], out[1]);
    close(in[0]);
    close(out[1]);
    t.in = in[1];
    t.out = out[0];
    snprintf(address, sizeof address, "tcp://localhost:%d/", t.port);
    sr_loop_init(&t.loop);
    return sr_http_open(&t.http, &t.loop, NULL) ||
           sr_target_parse(&t.target, address, t.folder, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    sr_stream_close(&t.stream);
    sr_op_drop(&t.stream.op);
    sr_http_close(t.http);
    sr_loop_clear(&t.loop);
    sr_target_clear(&t.target);
    kill(t.server, SIGKILL);
    waitpid(t.server, NULL, 0);
    close(t.in);
    close(t.out);
    for (int i = 0; i < 3; i++) {
        unlink(t.file[i]);
        free(t.file[i]);
    }
    rmdir(t.folder);
    free(t.folder);
    return 0;
}

static void on_bytes(struct sr_stream *s, const void *data, size_t n, const struct sr_err *err)
{
    (void)s;
    (void)data;
    t.ended = n == 0;
    t.failed = err != NULL;
}

/* Reads what the server got, up to n bytes; the number of bytes that were there. */
static size_t take(char *at, size_t n)
{
    ssize_t got = read(t.out, at, n);

    return got > 0 ? (size_t)got : 0;
}

static void open_stream(void)
{
    static const char head[] = "HTTP/1.1 101 UPGRADED\r\n\r\n";
    int64_t end = sr_now_ms() + 20000;

    t.stream.on_bytes = on_bytes;
    t.stream.on_refused = sr_docker_refused;
    assert_int_equal(write(t.in, head, sizeof head - 1), sizeof head - 1);
    do { /* the server takes a moment to listen */
        sr_op_drop(&t.stream.op);
        usleep(20000);
        assert_int_equal(sr_stream_start(t.http, &t.target, &t.stream, "/attach", 15000, NULL), 0);
        while (t.stream.op.state == SR_OP_PENDING && sr_now_ms() < end)
            sr_loop_turn(&t.loop, 100);
    } while (t.stream.op.err.code == SR_UNAVAILABLE && sr_now_ms() < end);
    if (t.stream.op.err.code != SR_OK)
        fail_msg("%s", t.stream.op.err.msg);
}

static void append(size_t from, size_t n)
{
    char *at = sr_buf_reserve(&t.stream.out, n);

    assert_non_null(at);
    for (size_t i = 0; i < n; i++)
        at[i] = (char)((from + i) % 251);
    t.stream.out.len += n;
}

/* What a realloc may do, at any time. */
static void move_queue(void)
{
    struct sr_buf moved = {0};

    sr_buf_append(&moved, t.stream.out.data, t.stream.out.len);
    sr_buf_clear(&t.stream.out);
    t.stream.out = moved;
}

/* Half of it is queued, written as far as it goes, and then the rest behind it;
 * the queue moves in memory while a write waits to be tried again. */
static void test_more_than_the_buffers_hold(void **state)
{
    static char chunk[65536], head[4096];
    size_t n = 0, got = 0, queued = 0;
    int64_t end;

    (void)state;
    open_stream();
    while (n < sizeof head && !memmem(head, n, "\r\n\r\n", 4))
        n += take(head + n, 1);
    while (queued < TOTAL) {
        size_t step = queued < TOTAL / 2 ? TOTAL / 2 : 100000;

        append(queued, step);
        queued += step;
        move_queue();
        sr_stream_flush(&t.stream);
        sr_loop_turn(&t.loop, 0);
    }
    assert_true(t.stream.out.len > 0);
    assert_int_equal(fcntl(t.out, F_SETFL, O_NONBLOCK), 0);
    end = sr_now_ms() + 60000;
    while (got < TOTAL && !t.ended && sr_now_ms() < end) {
        sr_loop_turn(&t.loop, 1);
        while ((n = take(chunk, sizeof chunk)) > 0) {
            for (size_t i = 0; i < n; i++)
                if (chunk[i] != (char)((got + i) % 251))
                    fail_msg("byte %zu is another", got + i);
            got += n;
        }
    }
    assert_false(t.ended);
    assert_int_equal(got, TOTAL);
}

static void test_end_of_the_server(void **state)
{
    int64_t end = sr_now_ms() + 20000;

    (void)state;
    open_stream();
    kill(t.server, SIGTERM);
    while (!t.ended && sr_now_ms() < end) {
        append(0, 10000);
        sr_stream_flush(&t.stream);
        sr_loop_turn(&t.loop, 10);
    }
    assert_true(t.ended);
    assert_false(t.stream.open);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_more_than_the_buffers_hold, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_end_of_the_server, set_up, tear_down),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
