#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "text.h"

#define R SR_TEXT_REPLACEMENT

/* A copy of exactly n bytes on the heap, so that ASan sees a read beyond. */
static char *exact(const char *s, size_t n)
{
    char *copy = malloc(n ? n : 1);

    assert_non_null(copy);
    memcpy(copy, s, n);
    return copy;
}

static void assert_changed(size_t change(char *, const char *, size_t), const char *s, size_t n,
                           const char *want)
{
    char *in = exact(s, n);
    size_t size = change(NULL, in, n);
    char *out = malloc(size + 1);

    assert_non_null(out);
    assert_int_equal(size, strlen(want));
    assert_int_equal(change(out, in, n), size);
    assert_memory_equal(out, want, size);
    free(out);
    free(in);
}

/* Expected values are what CPython's bytes.decode("utf-8", "replace") gives. */
static void test_repair(void **state)
{
    (void)state;
    static const struct {
        const char *in, *want;
    } cases[] = {
        {"", ""},
        {"plain", "plain"},
        {"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"},
        {"a\x80z", "a" R "z"},
        {"\xC0\x80", R R},                              /* overlong NUL */
        {"\xC1\xBF", R R},
        {"\xE0\x80\x80", R R R},                        /* overlong, three bytes */
        {"\xED\xA0\x80", R R R},                        /* surrogate */
        {"\xF4\x90\x80\x80", R R R R},                  /* above U+10FFFF */
        {"\xF5\x80\x80\x80", R R R R},
        {"\xE2\x82", R},                                /* cut at the end */
        {"\xE2\x82" "A", R "A"},
        {"\xF0\x9F\x98", R},
        {"\xF0\x9F\x98\xF0\x9F\x98\x80", R "\xF0\x9F\x98\x80"},
        {"\xF1\x80\x80\xE1\x80\xC2" "b\x80" "c\x80\xBF" "d", R R R "b" R "c" R R "d"},
        {"\xFF\xFE\xFD", R R R},
        {"12345678\xFF" "12345678", "12345678" R "12345678"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_changed(sr_text_repair, cases[i].in, strlen(cases[i].in), cases[i].want);
    assert_int_equal(sr_text_repair(NULL, NULL, 0), 0);
}

static void test_repair_keeps_nul_and_bounds(void **state)
{
    (void)state;
    char out[9];

    assert_int_equal(sr_text_repair(out, "a\0b", 3), 3);
    assert_memory_equal(out, "a\0b", 3);
    assert_int_equal(sr_text_repair(out, "\xFF\xFF\xFF", 3), 9);
}

/* Every two- and three-byte input: the result is valid and valid input stays. */
static void test_repair_is_valid_for_all_short_inputs(void **state)
{
    (void)state;
    for (unsigned v = 0; v < 1U << 24; v += v < 1U << 16 ? 1 : 7) {
        char in[3] = {(char)(v & 0xFF), (char)(v >> 8 & 0xFF), (char)(v >> 16)};
        char out[9];
        size_t n = sr_text_repair(out, in, sizeof in);

        assert_true(n <= sizeof out);
        assert_true(sr_text_is_utf8(out, n));
        if (sr_text_is_utf8(in, sizeof in))
            assert_memory_equal(in, out, sizeof in);
    }
}

static void test_is_utf8(void **state)
{
    (void)state;
    assert_true(sr_text_is_utf8("", 0));
    assert_true(sr_text_is_utf8(NULL, 0));
    assert_true(sr_text_is_utf8("\0x", 2));
    assert_true(sr_text_is_utf8("\xF4\x8F\xBF\xBF", 4));
    assert_true(sr_text_is_utf8("\xED\x9F\xBF\xEE\x80\x80", 6));
    assert_false(sr_text_is_utf8("ok\xC3", 3));
    assert_false(sr_text_is_utf8("12345678\x80", 9));
}

static void test_cut(void **state)
{
    (void)state;
    const char *s = "a\xC3\xA9\xF0\x9F\x98\x80z"; /* edges 0 1 3 7 8 */
    static const size_t want[] = {0, 1, 1, 3, 3, 3, 3, 7, 8, 8};

    for (size_t max = 0; max < sizeof want / sizeof want[0]; max++)
        assert_int_equal(sr_text_cut(s, 8, max), want[max]);
    assert_int_equal(sr_text_cut("\x80\x80\x80\x80\x80\x80", 6, 5), 2);
    assert_int_equal(sr_text_cut(s, 8, SIZE_MAX), 8);
}

static void test_prefix(void **state)
{
    (void)state;
    const char *s = "a\xC3\xA9\xF0\x9F\x98\x80z";
    static const size_t want[] = {0, 1, 3, 7, 8, 8};

    for (size_t count = 0; count < sizeof want / sizeof want[0]; count++)
        assert_int_equal(sr_text_prefix(s, 8, count), want[count]);
    assert_int_equal(sr_text_prefix("\xE2\x82" "ab", 4, 2), 3);
}

static void test_visible(void **state)
{
    (void)state;
    assert_changed(sr_text_visible, "a\nb\tc\0d", 7, "a\\nb\\x09c\\x00d");
    assert_changed(sr_text_visible, "\x1B[31m\x7F\r", 7, "\\x1b[31m\\x7f\\x0d");
    assert_changed(sr_text_visible, "\xC2\x9B" "1m", 4, "\\u{009B}1m");
    assert_changed(sr_text_visible, "\xE2\x80\xAE" "evil\xE2\x81\xA9", 10,
                   "\\u{202E}evil\\u{2069}");
    assert_changed(sr_text_visible, "\xE2\x80\xA8", 3, "\\u{2028}");
    assert_changed(sr_text_visible, "\xFF\xE2\x82!", 4, "\\xff\\xe2\\x82!");
    assert_changed(sr_text_visible, "\xC3\xA9 \\n", 5, "\xC3\xA9 \\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repair),
        cmocka_unit_test(test_repair_keeps_nul_and_bounds),
        cmocka_unit_test(test_repair_is_valid_for_all_short_inputs),
        cmocka_unit_test(test_is_utf8),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_visible),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
