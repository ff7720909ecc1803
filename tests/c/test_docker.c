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
        assert_non_null(strstr(err.msg, "too old"));
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

static void test_fault_in_the_body_of_a_wait(void **state)
{
    static const struct {
        long status;
        const char *body;
        enum sr_code code;
        const char *text;
    } table[] = {
        {200, "{\"StatusCode\":0}", SR_OK, NULL},
        {200, "{\"StatusCode\":137,\"Error\":null}", SR_OK, NULL},
        {200, "{\"StatusCode\":0,\"Error\":{\"Message\":\"\"}}", SR_OK, NULL},
        {200, "", SR_OK, NULL},
        {200, "{\"StatusCode\":0,\"Error\":{\"Message\":\"device busy\"}}", SR_INTERNAL, "device busy"},
        {404, "{\"message\":\"No such container\"}", SR_NOT_FOUND, "No such container"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct sr_call call = {.status = table[i].status};
        struct sr_err err = {.code = SR_OK};
        int rc;

        sr_buf_puts(&call.answer, table[i].body);
        rc = sr_docker_check_wait(&call, &err);
        sr_buf_clear(&call.answer);
        assert_int_equal(rc, table[i].code == SR_OK ? 0 : -1);
        if (rc < 0) {
            assert_int_equal(err.code, table[i].code);
            assert_non_null(strstr(err.msg, table[i].text));
        }
    }
}

static void test_refused_attach(void **state)
{
    static struct sr_stream s;
    struct sr_err err;

    (void)state;
    s.status = 404;
    sr_docker_refused(&s, "{\"message\":\"No such container: abc\"}", 36, &err);
    assert_int_equal(err.code, SR_NOT_FOUND);
    assert_string_equal(err.msg, "attach: No such container: abc (HTTP 404)");
    s.status = 204; /* a success, but no stream either */
    sr_docker_refused(&s, "", 0, &err);
    assert_int_equal(err.code, SR_PROTOCOL);
}

static void test_url(void **state)
{
    struct sr_buf out = {0};

    (void)state;
    sr_docker_put_url(&out, "Az09-._~ /?#&=+%\"\n\xc3\xa9");
    sr_buf_putc(&out, '\0');
    assert_string_equal(out.data, "Az09-._~%20%2F%3F%23%26%3D%2B%25%22%0A%C3%A9");
    sr_buf_clear(&out);
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
        cmocka_unit_test(test_fault_in_the_body_of_a_wait),
        cmocka_unit_test(test_refused_attach),
        cmocka_unit_test(test_url),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
