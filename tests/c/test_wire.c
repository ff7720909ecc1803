/* The encoding of frames, numbers and reports, and the rule for paths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/wire.h"

static void test_numbers_are_big_endian(void **state)
{
    unsigned char p[8];

    (void)state;
    sr_wire_put_u32(p, 0x01020304u);
    assert_memory_equal(p, "\1\2\3\4", 4);
    assert_int_equal(sr_wire_get_u32(p), 0x01020304u);
    sr_wire_put_u64(p, 0xfffefdfc01020304u);
    assert_memory_equal(p, "\xff\xfe\xfd\xfc\1\2\3\4", 8);
    assert_true(sr_wire_get_u64(p) == 0xfffefdfc01020304u);
}

static void test_numbers_round_trip(void **state)
{
    static const uint64_t some[] = {0, 1, 127, 128, 255, 256, 65535, 65536, UINT32_MAX,
                                    (uint64_t)UINT32_MAX + 1, INT64_MAX, UINT64_MAX};
    unsigned char p[8];

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        sr_wire_put_u64(p, some[i]);
        assert_true(sr_wire_get_u64(p) == some[i]);
        sr_wire_put_u32(p, (uint32_t)some[i]);
        assert_true(sr_wire_get_u32(p) == (uint32_t)some[i]);
    }
}

static void test_head(void **state)
{
    unsigned char p[SR_WIRE_HEAD];

    (void)state;
    sr_wire_put_head(p, SR_WIRE_DATA, SR_WIRE_MAX);
    assert_memory_equal(p, "D\0\1\0\0", SR_WIRE_HEAD);
}

static void test_report_round_trips(void **state)
{
    const struct sr_report r = {SR_END_SIGNAL, 1, 1, 9, 1, UINT64_MAX, 3, 4, 5};
    struct sr_report back;
    unsigned char p[SR_WIRE_REPORT_SIZE];

    (void)state;
    sr_wire_put_report(p, &r);
    assert_int_equal(sr_wire_get_report(p, sizeof p, &back), 0);
    assert_int_equal(back.end, r.end);
    assert_int_equal(back.oom, r.oom);
    assert_int_equal(back.held, r.held);
    assert_int_equal(back.code, r.code);
    assert_true(back.wall_us == r.wall_us && back.cpu_us == r.cpu_us);
    assert_true(back.peak_bytes == r.peak_bytes);
    assert_true(back.out_bytes == r.out_bytes && back.err_bytes == r.err_bytes);
}

static void test_report_flags_are_apart(void **state)
{
    struct sr_report back;
    unsigned char p[SR_WIRE_REPORT_SIZE];

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        sr_wire_put_report(p, &(struct sr_report){.oom = i & 1, .held = i >> 1});
        assert_int_equal(p[1], i);
        assert_int_equal(sr_wire_get_report(p, sizeof p, &back), 0);
        assert_int_equal(back.oom, i & 1);
        assert_int_equal(back.held, i >> 1);
    }
}

static void test_report_refuses_damage(void **state)
{
    unsigned char p[SR_WIRE_REPORT_SIZE + 1] = {0};
    struct sr_report r = {.code = 77};

    (void)state;
    assert_int_equal(sr_wire_get_report(p, SR_WIRE_REPORT_SIZE - 1, &r), -1);
    assert_int_equal(sr_wire_get_report(p, SR_WIRE_REPORT_SIZE + 1, &r), -1);
    p[0] = SR_END_KILLED + 1;
    assert_int_equal(sr_wire_get_report(p, SR_WIRE_REPORT_SIZE, &r), -1);
    p[0] = SR_END_EXIT;
    p[1] = 4;
    assert_int_equal(sr_wire_get_report(p, SR_WIRE_REPORT_SIZE, &r), -1);
    assert_int_equal(r.code, 77);
}

static void test_paths(void **state)
{
    static const char *const good[] = {"a", "a/b", "main.py", "...", "..a/b..", ".x", "a b/\n",
                                       "-rf", "\xff"};
    static const char *const bad[] = {"",     ".",    "..",    "/",      "/a",   "a/",
                                      "a//b", "./a",  "../a",  "a/..",   "a/.",  "a/../b",
                                      "a/./b", "//",  "a/b/.."};

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_true(sr_wire_path_ok(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(sr_wire_path_ok(bad[i], strlen(bad[i])));
    assert_false(sr_wire_path_ok("a\0b", 3));
}

static void test_path_lengths(void **state)
{
    char p[SR_WIRE_PATH_MAX + 2];

    (void)state;
    memset(p, 'a', sizeof p);
    assert_true(sr_wire_path_ok(p, 255));
    assert_false(sr_wire_path_ok(p, 256));
    for (size_t i = 200; i < sizeof p; i += 200)
        p[i] = '/';
    assert_true(sr_wire_path_ok(p, SR_WIRE_PATH_MAX));
    assert_false(sr_wire_path_ok(p, SR_WIRE_PATH_MAX + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_are_big_endian), cmocka_unit_test(test_numbers_round_trip),
        cmocka_unit_test(test_head),                   cmocka_unit_test(test_report_round_trips),
        cmocka_unit_test(test_report_refuses_damage),  cmocka_unit_test(test_paths),
        cmocka_unit_test(test_path_lengths),
        cmocka_unit_test(test_report_flags_are_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
