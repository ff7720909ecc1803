/* The parts of the Engine API client that need no engine: which version is
 * spoken, and what a refusal is called. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "docker.h"

static void test_versions(void **state)
{
    static const struct {
        const char *engine, *prefix;
    } good[] = {
        {"1.41", "/v1.41"}, {"1.42", "/v1.42"}, {"1.44", "/v1.44"}, {"1.47", "/v1.47"},
        {"1.48", "/v1.47"}, {"1.52", "/v1.47"}, {"1.999", "/v1.47"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct sr_docker d = {.prefix = ""};
        struct sr_err err;

        assert_int_equal(sr_docker_negotiate(&d, good[i].engine, &err), 0);
        assert_string_equal(d.prefix, good[i].prefix);
    }
}

static void test_old_version_is_refused(void **state)
{
    static const char *const old[] = {"1.40", "1.24", "1.0"};

    (void)state;
    for (size_t i = 0; i < sizeof old / sizeof old[0]; i++) {
        struct sr_docker d = {.prefix = ""};
        struct sr_err err;

        assert_int_equal(sr_docker_negotiate(&d, old[i], &err), -1);
        assert_int_equal(err.code, SR_INVALID);
        assert_non_null(strstr(err.msg, old[i]));
        assert_non_null(strstr(err.msg, "20.10"));
        assert_string_equal(d.prefix, "");
    }
}

static void test_nonsense_version_is_refused(void **state)
{
    static const char *const bad[] = {"",     "x",     "1",      "1.",          "2.41", "0.41", "-1.41",
                                      "1.-1", "1.41x", " 1.41",  "1.41.1",      ".41",  "1 .41",
                                      "1.4294967337",  "18446744073709551617.41"};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct sr_docker d = {.prefix = ""};
        struct sr_err err;

        if (sr_docker_negotiate(&d, bad[i], &err) != -1)
            fail_msg("\"%s\" was taken for %s", bad[i], d.prefix);
        assert_int_equal(err.code, SR_PROTOCOL);
        assert_true(err.msg[0]);
        assert_string_equal(d.prefix, "");
    }
}

static int check(long status, const char *body, struct sr_err *err)
{
    struct sr_call call = {.status = status};
    int rc;

    sr_buf_puts(&call.answer, body);
    rc = sr_docker_check(&call, err);
    sr_buf_clear(&call.answer);
    return rc;
}

static void test_success_is_no_error(void **state)
{
    struct sr_err err;

    (void)state;
    assert_int_equal(check(200, "", &err), 0);
    assert_int_equal(check(201, "{\"Id\":\"x\"}", &err), 0);
    assert_int_equal(check(204, "", &err), 0);
    assert_int_equal(check(304, "", &err), 0); /* started or stopped already */
}

static void test_codes_follow_the_status(void **state)
{
    static const struct {
        long status;
        enum sr_code code;
    } table[] = {
        {400, SR_INVALID},  {401, SR_DENIED},   {403, SR_DENIED},      {404, SR_NOT_FOUND},
        {409, SR_CONFLICT}, {500, SR_INTERNAL}, {503, SR_UNAVAILABLE}, {302, SR_INTERNAL},
        {0, SR_INTERNAL},   {999, SR_INTERNAL}, {100, SR_INTERNAL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct sr_err err;

        assert_int_equal(check(table[i].status, "{\"message\":\"it said so\"}", &err), -1);
        assert_int_equal(err.code, table[i].code);
        assert_string_equal(err.msg, "it said so");
    }
}

static void test_refusal_without_a_message(void **state)
{
    static const char *const bodies[] = {"", "<html>", "{", "[]", "{\"message\":5}", "{\"msg\":\"x\"}",
                                         "{\"message\":\"cut"};

    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        struct sr_err err;

        assert_int_equal(check(500, bodies[i], &err), -1);
        assert_int_equal(err.code, SR_INTERNAL);
        assert_non_null(strstr(err.msg, "500"));
    }
}

static void test_long_message_is_cut(void **state)
{
    char body[4096] = "{\"message\":\"", *at = body + strlen(body);
    struct sr_err err;

    (void)state;
    memset(at, 'm', 3000);
    strcpy(at + 3000, "\"}");
    assert_int_equal(check(404, body, &err), -1);
    assert_int_equal(err.code, SR_NOT_FOUND);
    assert_int_equal(strlen(err.msg), sizeof err.msg - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_old_version_is_refused),
        cmocka_unit_test(test_nonsense_version_is_refused),
        cmocka_unit_test(test_success_is_no_error),
        cmocka_unit_test(test_codes_follow_the_status),
        cmocka_unit_test(test_refusal_without_a_message),
        cmocka_unit_test(test_long_message_is_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
