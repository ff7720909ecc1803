/* Files into the sandbox and out of it, and orders that are none. */
#include "agent_rig.h"

static void test_files(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "cat a; stat -c '%n %a %u' a d d/e d/e/run empty;"
                                            "./d/e/run", NULL};
    struct sr_order o = order_of(argv);
    char want[200];
    int uid = getuid() ? (int)getuid() : PROGRAM_UID;

    put(r, "a", 0600, "text\n");
    put(r, "d/e/run", 0777, "#!/bin/sh\necho ran\n");
    put(r, "empty", 0444, "");
    o.cwd = r->scratch;
    run_order(r, &o);
    snprintf(want, sizeof want,
             "text\na 600 %d\nd 755 %d\nd/e 755 %d\nd/e/run 777 %d\nempty 444 %d\nran\n", uid, uid,
             uid, uid, uid);
    check_text(&r->s.stdout_, want);
    check_end(r, SR_END_EXIT, 0);
}

static void test_file_twice(void **state)
{
    struct rig *r = *state;

    put(r, "a", 0600, "1");
    put(r, "a", 0600, "2");
    drive(r, SR_SESSION_DONE, 0);
    assert_non_null(r->s.failure);
    assert_string_equal(r->s.failure, "cannot create \"a\": File exists");
    assert_int_equal(agent_status(r), 1);
}

static void test_file_through_link(void **state)
{
    struct rig *r = *state;
    char link[80];

    snprintf(link, sizeof link, "%s/way", r->scratch);
    assert_int_equal(symlink("/tmp", link), 0);
    put(r, "way/out", 0600, "1");
    drive(r, SR_SESSION_DONE, 0);
    assert_non_null(r->s.failure);
}

static void test_artifacts(void **state)
{
    static const char *const want[] = {"good", "empty", "link", "way/good", "fifo", "big",
                                       "absent", "dir", "dir/secret", "sock", NULL};
    static const int missing[] = {-1, -1, SR_MISSING_NOT_REGULAR, SR_MISSING_ABSENT,
                                  SR_MISSING_NOT_REGULAR, SR_MISSING_TOO_LARGE,
                                  SR_MISSING_ABSENT, SR_MISSING_NOT_REGULAR, -1,
                                  SR_MISSING_ABSENT};
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c",
                                "umask 077; head -c 1500000 /dev/zero >good; : >empty; ln -s "
                                "/etc/passwd link; mkdir dir; printf deep >dir/secret; ln -s . way;"
                                "mkfifo fifo; head -c 2000001 /dev/zero >big", NULL};
    struct sr_order o = order_of(argv);

    o.cwd = r->scratch;
    o.want = want;
    o.want_max = 2000000;
    run_order(r, &o);
    check_end(r, SR_END_EXIT, 0);
    assert_int_equal(r->s.n_artifacts, sizeof missing / sizeof missing[0]);
    for (size_t i = 0; i < r->s.n_artifacts; i++) {
        assert_int_equal(r->s.artifacts[i].missing, missing[i]);
        assert_true(r->s.artifacts[i].data.len == r->s.artifacts[i].size);
    }
    assert_int_equal(r->s.artifacts[0].size, 1500000);
    check_text(&r->s.artifacts[8].data, "deep");
}

/* With a wide pipe the agent is never held up between two pieces. */
static void test_artifact_to_fast_reader(void **state)
{
    static const char *const want[] = {"a", NULL};
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "head -c 20000000 /dev/zero >a", NULL};
    struct sr_order o = order_of(argv);

    fcntl(r->from, F_SETPIPE_SZ, 1 << 20);
    o.cwd = r->scratch;
    o.want = want;
    o.want_max = 20000000;
    run_order(r, &o);
    check_end(r, SR_END_EXIT, 0);
    assert_int_equal(r->s.artifacts[0].data.len, 20000000);
}

static void test_artifacts_after_timeout(void **state)
{
    static const char *const want[] = {"part", NULL};
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "echo half >part; sleep 60", NULL};
    struct sr_order o = order_of(argv);

    o.cwd = r->scratch;
    o.want = want;
    o.want_max = 100;
    o.wall_ms = 300;
    run_order(r, &o);
    check_end(r, SR_END_WALL, 0);
    check_text(&r->s.artifacts[0].data, "half\n");
}

/* Raw bytes of a server gone mad; each must be answered with a failure. */
static void check_bad_order(void **state, const char *bytes, size_t n)
{
    struct rig *r = *state;

    drive(r, SR_SESSION_READY, 0);
    sr_buf_append(&r->s.out, bytes, n);
    drive(r, SR_SESSION_DONE, 0);
    assert_non_null(r->s.failure);
    assert_memory_equal(r->s.failure, "bad order", 9);
    assert_int_equal(agent_status(r), 1);
    renew(r);
}

static void test_bad_orders(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
    } bad[] = {
        {"Z\0\0\0\0", 5},
        {"\0\0\0\0\0", 5},
        {"F\0\1\0\1", 5},
        {"F\xff\xff\xff\xff", 5},
        {"F\0\0\0\0", 5},
        {"F\0\0\0\x0f\0\0\1\xa4\0\0\0\0\0\0\0\1../", 20},
        {"F\0\0\0\x0e\0\0\1\xa4\0\0\0\0\0\0\0\1/x", 19},
        {"F\0\0\0\x0d\0\0\1\xa4\0\0\0\0\0\0\0\1\0", 18},
        {"F\0\0\0\x0d\0\0\1\xa4\0\0\0\0\0\0\0\1xD\0\0\0\2ab", 25},
        {"F\0\0\0\x0d\0\0\1\xa4\0\0\0\0\0\0\0\1yS\0\0\0\0", 23},
        {"D\0\0\0\1x", 6},
        {"I\0\0\0\1x", 6},
        {"K\0\0\0\0", 5},
        {"S\0\0\0\0", 5},
        {"S\0\0\0\6a\0\0\0\2x", 11},
        {"S\0\0\0\4a\0\0\0", 9},
        {"S\0\0\0\6q\0\0\0\1x", 11},
        {"S\0\0\0\7a\0\0\0\2x\0", 12},
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        check_bad_order(state, bad[i].bytes, bad[i].n);
}

static void test_bad_order_kills_the_program(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"sh", "-c", "echo $$; exec sleep 60", NULL};
    struct sr_order o = order_of(argv);

    start(r, &o);
    while (r->s.stdout_.len == 0)
        drive(r, SR_SESSION_DONE, 20);
    sr_buf_append(&r->s.out, "D\0\0\0\1x", 6);
    drive(r, SR_SESSION_DONE, 0);
    assert_non_null(r->s.failure);
    assert_true(gone(printed_pid(&r->s.stdout_)));
}

/* Orders may arrive in any pieces. */
static void test_orders_byte_by_byte(void **state)
{
    struct rig *r = *state;
    const char *const argv[] = {"cat", "f", NULL};
    struct sr_order o = order_of(argv);

    put(r, "f", 0644, "slowly");
    o.cwd = r->scratch;
    start(r, &o);
    for (size_t i = 0; i < r->s.out.len; i++) {
        assert_int_equal(write(r->to, r->s.out.data + i, 1), 1);
        if (i % 16 == 0)
            poll(NULL, 0, 1);
    }
    sr_buf_consume(&r->s.out, r->s.out.len);
    drive(r, SR_SESSION_DONE, 0);
    check_text(&r->s.stdout_, "slowly");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_files),
        TEST(test_file_twice),
        TEST(test_file_through_link),
        TEST(test_artifacts),
        TEST(test_artifact_to_fast_reader),
        TEST(test_artifacts_after_timeout),
        TEST(test_bad_orders),
        TEST(test_bad_order_kills_the_program),
        TEST(test_orders_byte_by_byte),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
