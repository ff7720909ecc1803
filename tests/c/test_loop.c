/* The loop alone: timers in order, watches that come and go while events are
 * handed out, and operations that finish twice, are dropped, or run out of time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "loop.h"

static struct sr_loop loop;
static char trace[64]; /* one letter per callback, in the order they ran */

static int set_up(void **state)
{
    (void)state;
    sr_loop_init(&loop);
    memset(trace, 0, sizeof trace);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sr_loop_clear(&loop);
    return 0;
}

static void mark(char letter)
{
    size_t n = strlen(trace);

    if (n + 1 < sizeof trace)
        trace[n] = letter;
}

struct named_timer {
    struct sr_timer timer;
    char letter;
    struct sr_timer *remove, *add; /* what its callback does, if anything */
};

static void on_named(struct sr_timer *t)
{
    struct named_timer *n = sr_container_of(t, struct named_timer, timer);

    mark(n->letter);
    if (n->remove)
        sr_timer_remove(n->remove);
    if (n->add)
        sr_timer_add(&loop, n->add, 0);
}

static struct named_timer named(char letter)
{
    return (struct named_timer){.timer = {.on_due = on_named}, .letter = letter};
}

static void turn_for(int ms)
{
    int64_t end = sr_now_ms() + ms;

    while (sr_now_ms() < end)
        sr_loop_turn(&loop, 5);
    sr_loop_turn(&loop, 0); /* what became due while the machine did something else */
}

static void test_timers_run_in_order_of_time(void **state)
{
    struct named_timer a = named('a'), b = named('b'), c = named('c'), d = named('d');

    (void)state;
    sr_timer_add(&loop, &c.timer, 300);
    sr_timer_add(&loop, &a.timer, 100);
    sr_timer_add(&loop, &b.timer, 200);
    sr_timer_add(&loop, &d.timer, 400);
    turn_for(450);
    assert_string_equal(trace, "abcd");
    assert_null(loop.timers);
}

static void test_timers_of_one_moment_run_in_order_of_adding(void **state)
{
    struct named_timer t[5];

    (void)state;
    for (int i = 0; i < 5; i++) {
        t[i] = named((char)('a' + i));
        sr_timer_add(&loop, &t[i].timer, 0);
    }
    turn_for(5);
    assert_string_equal(trace, "abcde");
}

static void test_adding_again_moves_a_timer(void **state)
{
    struct named_timer a = named('a'), b = named('b');

    (void)state;
    sr_timer_add(&loop, &a.timer, 5);
    sr_timer_add(&loop, &b.timer, 10);
    sr_timer_add(&loop, &a.timer, 20);
    turn_for(40);
    assert_string_equal(trace, "ba");
}

static void test_callback_removes_and_adds_timers(void **state)
{
    struct named_timer a = named('a'), b = named('b'), c = named('c');

    (void)state;
    a.remove = &b.timer;
    a.add = &c.timer;
    sr_timer_add(&loop, &a.timer, 0);
    sr_timer_add(&loop, &b.timer, 0);
    turn_for(5);
    assert_string_equal(trace, "ac");
    sr_timer_remove(&b.timer); /* not there: harmless */
    sr_timer_remove(&b.timer);
}

static void test_turn_waits_no_longer_than_told(void **state)
{
    struct named_timer late = named('l');
    int64_t start = sr_now_ms();

    (void)state;
    sr_timer_add(&loop, &late.timer, 60000);
    sr_loop_turn(&loop, 20);
    assert_in_range(sr_now_ms() - start, 15, 30000);
    assert_string_equal(trace, "");
    sr_timer_add(&loop, &late.timer, 20);
    start = sr_now_ms();
    while (!trace[0])
        sr_loop_turn(&loop, -1);
    assert_in_range(sr_now_ms() - start, 15, 30000);
}

struct pipe_watch {
    struct sr_watch watch;
    int write_fd;
    char letter;
    struct sr_watch *remove, *add;
};

static void on_pipe(struct sr_watch *w, short revents)
{
    struct pipe_watch *p = sr_container_of(w, struct pipe_watch, watch);
    char byte;

    mark(p->letter);
    if (revents & POLLIN)
        assert_int_equal(read(w->fd, &byte, 1), 1);
    if (p->remove)
        sr_watch_remove(p->remove);
    if (p->add)
        sr_watch_add(&loop, p->add);
}

static void open_pipe(struct pipe_watch *p, char letter)
{
    int fds[2];

    assert_int_equal(pipe(fds), 0);
    *p = (struct pipe_watch){
        .watch = {.fd = fds[0], .events = POLLIN, .on_ready = on_pipe},
        .write_fd = fds[1], .letter = letter};
}

static void close_pipe(struct pipe_watch *p)
{
    sr_watch_remove(&p->watch);
    close(p->watch.fd);
    if (p->write_fd >= 0)
        close(p->write_fd);
}

static void poke(struct pipe_watch *p)
{
    assert_int_equal(write(p->write_fd, "x", 1), 1);
}

static void test_watch_reports_data_and_the_end(void **state)
{
    struct pipe_watch p;

    (void)state;
    open_pipe(&p, 'p');
    sr_watch_add(&loop, &p.watch);
    sr_watch_add(&loop, &p.watch); /* twice is once */
    sr_loop_turn(&loop, 0);
    assert_string_equal(trace, "");
    poke(&p);
    sr_loop_turn(&loop, 1000);
    assert_string_equal(trace, "p");
    p.watch.events = 0; /* the end is reported all the same */
    close(p.write_fd);
    p.write_fd = -1;
    sr_loop_turn(&loop, 1000);
    assert_string_equal(trace, "pp");
    close_pipe(&p);
}

/* Whichever of the two runs first takes the other out: that one must not run. */
static void test_watch_removed_by_another_does_not_run(void **state)
{
    struct pipe_watch a, b;

    (void)state;
    open_pipe(&a, 'a');
    open_pipe(&b, 'b');
    a.remove = &b.watch;
    b.remove = &a.watch;
    sr_watch_add(&loop, &a.watch);
    sr_watch_add(&loop, &b.watch);
    poke(&a);
    poke(&b);
    sr_loop_turn(&loop, 1000);
    assert_int_equal(strlen(trace), 1);
    close_pipe(&a);
    close_pipe(&b);
}

static void test_watch_removes_itself_and_adds_another(void **state)
{
    struct pipe_watch a, b;

    (void)state;
    open_pipe(&a, 'a');
    open_pipe(&b, 'b');
    a.remove = &a.watch;
    a.add = &b.watch;
    sr_watch_add(&loop, &a.watch);
    poke(&a);
    poke(&a);
    poke(&b);
    sr_loop_turn(&loop, 1000);
    assert_string_equal(trace, "a");
    sr_loop_turn(&loop, 1000);
    assert_string_equal(trace, "ab");
    assert_null(a.watch.link);
    close_pipe(&a);
    close_pipe(&b);
}

static void test_many_watches(void **state)
{
    enum { N = 100 };
    struct pipe_watch *p = calloc(N, sizeof *p);

    (void)state;
    assert_non_null(p);
    for (int i = 0; i < N; i++) {
        open_pipe(&p[i], 'x');
        sr_watch_add(&loop, &p[i].watch);
        if (i % 2)
            poke(&p[i]);
    }
    sr_loop_turn(&loop, 1000);
    assert_int_equal(strlen(trace), N / 2);
    sr_loop_turn(&loop, 0);
    assert_int_equal(strlen(trace), N / 2);
    for (int i = 0; i < N; i++)
        close_pipe(&p[i]);
    free(p);
}

static int aborted;

static void on_abort(struct sr_op *op)
{
    (void)op;
    aborted++;
}

static void start_op(struct sr_op *op, int64_t timeout_ms)
{
    memset(op, 0, sizeof *op);
    aborted = 0;
    sr_op_start(&loop, op, timeout_ms, on_abort);
}

static void test_op_finishes_once(void **state)
{
    struct sr_op op;
    struct sr_err err = {.code = SR_INTERNAL};

    (void)state;
    start_op(&op, 10);
    assert_int_equal(op.state, SR_OP_PENDING);
    assert_null(sr_loop_take_ready(&loop));
    sr_op_finish(&op, NULL);
    sr_op_finish(&op, &err); /* late: ignored, and not queued a second time */
    assert_int_equal(op.state, SR_OP_READY);
    assert_int_equal(op.err.code, SR_OK);
    assert_null(loop.timers);
    assert_ptr_equal(sr_loop_take_ready(&loop), &op);
    assert_null(sr_loop_take_ready(&loop));
    turn_for(20);
    assert_int_equal(aborted, 0);
    op.state = SR_OP_SPENT;
    sr_op_finish(&op, NULL);
    assert_null(sr_loop_take_ready(&loop));
}

static void test_ops_come_out_in_order(void **state)
{
    struct sr_op op[3];

    (void)state;
    for (int i = 0; i < 3; i++)
        start_op(&op[i], -1);
    sr_op_finish(&op[2], NULL);
    sr_op_finish(&op[0], NULL);
    sr_op_finish(&op[1], NULL);
    sr_op_drop(&op[0]); /* from the middle of the queue */
    assert_ptr_equal(sr_loop_take_ready(&loop), &op[2]);
    assert_ptr_equal(sr_loop_take_ready(&loop), &op[1]);
    assert_null(sr_loop_take_ready(&loop));
}

static void test_dropping_the_last_ready_op_keeps_the_queue_whole(void **state)
{
    struct sr_op a, b, c;

    (void)state;
    start_op(&a, -1);
    start_op(&b, -1);
    start_op(&c, -1);
    sr_op_finish(&a, NULL);
    sr_op_finish(&b, NULL);
    sr_op_drop(&b);
    sr_op_finish(&c, NULL);
    assert_ptr_equal(sr_loop_take_ready(&loop), &a);
    assert_ptr_equal(sr_loop_take_ready(&loop), &c);
    assert_null(sr_loop_take_ready(&loop));
    sr_op_drop(&c); /* taken out already */
    assert_int_equal(c.state, SR_OP_SPENT);
}

static void test_dropping_a_pending_op_aborts_it(void **state)
{
    struct sr_op op, idle = {0};

    (void)state;
    start_op(&op, 5);
    sr_op_drop(&op);
    sr_op_drop(&op);
    assert_int_equal(aborted, 1);
    assert_int_equal(op.state, SR_OP_SPENT);
    turn_for(15);
    assert_int_equal(aborted, 1);
    assert_null(sr_loop_take_ready(&loop));
    sr_op_drop(&idle); /* never started */
    assert_int_equal(idle.state, SR_OP_SPENT);
}

static void test_deadline_aborts_and_finishes(void **state)
{
    struct sr_op op;
    int64_t start = sr_now_ms();

    (void)state;
    start_op(&op, 20);
    while (!loop.ready)
        sr_loop_turn(&loop, -1);
    assert_in_range(sr_now_ms() - start, 15, 30000);
    assert_int_equal(aborted, 1);
    assert_ptr_equal(sr_loop_take_ready(&loop), &op);
    assert_int_equal(op.err.code, SR_TIMEOUT);
}

static void test_ready_op_keeps_the_turn_from_waiting(void **state)
{
    struct sr_op op;
    int64_t start = sr_now_ms();

    (void)state;
    start_op(&op, -1);
    sr_op_finish(&op, NULL);
    sr_loop_turn(&loop, 60000);
    assert_in_range(sr_now_ms() - start, 0, 30000);
    assert_ptr_equal(sr_loop_take_ready(&loop), &op);
}

static void test_clear_lets_go_of_everything(void **state)
{
    struct named_timer t = named('t');
    struct pipe_watch p;
    struct sr_op op;

    (void)state;
    open_pipe(&p, 'p');
    sr_watch_add(&loop, &p.watch);
    sr_timer_add(&loop, &t.timer, 0);
    start_op(&op, -1);
    sr_op_finish(&op, NULL);
    sr_loop_clear(&loop);
    assert_null(p.watch.link);
    assert_null(t.timer.link);
    assert_int_equal(op.state, SR_OP_SPENT);
    close_pipe(&p);
    turn_for(5);
    assert_string_equal(trace, "");
}

/* A timer that is added again and again, and watches of many fds, must not leave anything behind. */
static void test_memory_stays_flat(void **state)
{
    struct named_timer t = named('t');
    struct rusage before, after;

    (void)state;
    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < 200000; i++) {
        sr_timer_add(&loop, &t.timer, 0);
        sr_loop_turn(&loop, 0);
    }
    getrusage(RUSAGE_SELF, &after);
    assert_in_range(after.ru_maxrss - before.ru_maxrss, 0, 5000);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_timers_run_in_order_of_time),
        T(test_timers_of_one_moment_run_in_order_of_adding),
        T(test_adding_again_moves_a_timer),
        T(test_callback_removes_and_adds_timers),
        T(test_turn_waits_no_longer_than_told),
        T(test_watch_reports_data_and_the_end),
        T(test_watch_removed_by_another_does_not_run),
        T(test_watch_removes_itself_and_adds_another),
        T(test_many_watches),
        T(test_op_finishes_once),
        T(test_ops_come_out_in_order),
        T(test_dropping_the_last_ready_op_keeps_the_queue_whole),
        T(test_dropping_a_pending_op_aborts_it),
        T(test_deadline_aborts_and_finishes),
        T(test_ready_op_keeps_the_turn_from_waiting),
        T(test_clear_lets_go_of_everything),
        T(test_memory_stays_flat),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
