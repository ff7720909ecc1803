/* The byte buffer: it grows, it forgets, and it lets go of what it does not need. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "buf.h"

static void test_append_and_consume(void **state)
{
    struct sr_buf b = {0};

    (void)state;
    sr_buf_puts(&b, "one ");
    sr_buf_putc(&b, '2');
    sr_buf_printf(&b, " %d %300s", 3, "x");
    assert_true(sr_buf_ok(&b));
    assert_int_equal(b.len, 308);
    assert_memory_equal(b.data, "one 2 3 ", 8);
    sr_buf_consume(&b, 4);
    assert_memory_equal(b.data, "2 3 ", 4);
    sr_buf_consume(&b, b.len);
    assert_int_equal(b.len, 0);
    sr_buf_consume(&b, 0);
    sr_buf_clear(&b);
}

static void test_small_memory_is_kept_and_large_memory_is_not(void **state)
{
    struct sr_buf b = {0};
    char *at;

    (void)state;
    sr_buf_puts(&b, "small");
    at = b.data;
    sr_buf_consume(&b, 5);
    assert_ptr_equal(b.data, at);
    assert_true(b.cap > 0);

    at = sr_buf_reserve(&b, 1 << 20);
    assert_non_null(at);
    memset(at, 'x', 1 << 20);
    b.len += 1 << 20;
    sr_buf_consume(&b, (1 << 20) - 1);
    assert_true(b.cap >= 1 << 20); /* still in use */
    sr_buf_consume(&b, 1);
    assert_null(b.data);
    assert_int_equal(b.cap, 0);
    sr_buf_puts(&b, "again");
    assert_memory_equal(b.data, "again", 5);
    sr_buf_clear(&b);
}

static void test_failure_sticks(void **state)
{
    struct sr_buf b = {0};

    (void)state;
    sr_buf_puts(&b, "x");
    assert_null(sr_buf_reserve(&b, SIZE_MAX / 2));
    assert_false(sr_buf_ok(&b));
    sr_buf_puts(&b, "y");
    assert_int_equal(b.len, 1);
    sr_buf_consume(&b, 1);
    assert_false(sr_buf_ok(&b));
    sr_buf_clear(&b);
    assert_true(sr_buf_ok(&b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_append_and_consume),
        cmocka_unit_test(test_small_memory_is_kept_and_large_memory_is_not),
        cmocka_unit_test(test_failure_sticks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
