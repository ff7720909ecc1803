#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <lauxlib.h>
#include <lualib.h>

#include "json.h"
#include "lua_bind.h"

/* Parses from a heap block of exactly n bytes, so that ASan sees a read beyond. */
static int parse(const char *text, size_t n, struct sr_json_opts *opts, struct sr_json **root,
                 struct sr_err *err)
{
    char *copy = malloc(n ? n : 1);
    int rc;

    assert_non_null(copy);
    memcpy(copy, text, n);
    rc = sr_json_parse(root, copy, n, opts, err);
    free(copy);
    return rc;
}

static struct sr_json *must_parse(const char *text)
{
    struct sr_json *root = NULL;
    struct sr_err err = {0};

    if (parse(text, strlen(text), NULL, &root, &err) < 0)
        fail_msg("%s: %s", text, err.msg);
    return root;
}

static void test_accepts(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "null", " true ", "false", "0", "-0", "1.5e-3", "1E+2", "\"\"", "[]", "{}", "[ ]", "{ }",
        "[1,[2,{\"a\":[]}],3]", "\r\n\t {\"a\" : 1 , \"b\":[true,null]}\n",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83D\\uDE00\"", "\"\x7F\xC3\xA9\"",
        "\"\\\\u0000\"", "{\"a\":1,\"a\":2}",
        "123456789012345678901234567890123456789012345678901234567890123",
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        sr_json_free(must_parse(texts[i]));
}

static void test_refuses(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "", " ", "nul", "nullx", "True", "01", "-", "+1", "1.", ".5", "1e", "1e+", "-01", "0x1",
        "NaN", "Infinity", "'a'", "\"a", "\"\\\"", "\"\\x\"", "\"\\u12\"", "\"\\u12g4\"",
        "\"\\ud800\"", "\"\\udc00\"", "\"\\ud800\\u0041\"", "\"\\ud800x\"", "\"a\nb\"", "\"\x01\"",
        "\"\xFF\"", "\"\xC3\"", "\"\xED\xA0\x80\"", "\xEF\xBB\xBF{}", "[", "[1", "[1,", "[1,]",
        "[,1]", "[1 2]", "{", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":1,", "{\"a\":1,}", "{a:1}",
        "{1:1}", "{\"a\" 1}", "[}", "{]", "[1}", "]", "1 1", "{} {}", "[]x", "\x01" "1", "[1\x0B]",
        "// c\n1", "/**/1", "\xC2\xA0" "1",
        "1234567890123456789012345678901234567890123456789012345678901234",
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct sr_json *root = NULL;
        struct sr_err err = {0};

        if (parse(texts[i], strlen(texts[i]), NULL, &root, &err) == 0)
            fail_msg("accepted: %s", texts[i]);
        assert_int_equal(err.code, SR_INVALID);
        assert_null(root);
    }
}

/* All prefixes of a text with everything in it: none parses, none reads beyond. */
static void test_refuses_every_prefix(void **state)
{
    (void)state;
    const char *text = "{\"a\":[1.5e3,true,false,null,\"\\u00e9\\ud83d\\ude00\xC3\xA9\"],\"id\":7}";
    const char *token;
    size_t len;

    for (size_t n = 0; n < strlen(text); n++) {
        struct sr_json *root = NULL;
        char *copy = malloc(n ? n : 1);

        assert_int_equal(parse(text, n, NULL, &root, NULL), -1);
        assert_non_null(copy);
        memcpy(copy, text, n);
        sr_json_raw_id(copy, n, &token, &len);
        free(copy);
    }
}

static void test_nul_byte_is_no_end(void **state)
{
    (void)state;
    struct sr_json *root = NULL;

    assert_int_equal(parse("1\0", 2, NULL, &root, NULL), -1);
    assert_int_equal(parse("\"a\0b\"", 5, NULL, &root, NULL), -1);
    assert_int_equal(parse("\"\\\0\"", 4, NULL, &root, NULL), -1);
}

static void test_depth(void **state)
{
    (void)state;
    char text[2 * SR_JSON_DEPTH_MAX + 2];
    struct sr_json *root = NULL;
    struct sr_json_opts opts = {.max_depth = 100000};

    memset(text, '[', SR_JSON_DEPTH_MAX + 1);
    memset(text + SR_JSON_DEPTH_MAX + 1, ']', SR_JSON_DEPTH_MAX + 1);
    assert_int_equal(parse(text + SR_JSON_DEPTH_MAX - SR_JSON_DEPTH, 2 * SR_JSON_DEPTH + 2, NULL,
                           &root, NULL), -1);
    assert_int_equal(parse(text + SR_JSON_DEPTH_MAX + 1 - SR_JSON_DEPTH, 2 * SR_JSON_DEPTH, NULL,
                           &root, NULL), 0);
    sr_json_free(root);
    assert_int_equal(parse(text, sizeof text, &opts, &root, NULL), -1);
    assert_int_equal(parse(text + 1, sizeof text - 2, &opts, &root, NULL), 0);
    sr_json_free(root);
}

static void test_ten_megabytes_of_brackets(void **state)
{
    (void)state;
    size_t n = 10 << 20;
    char *text = malloc(n);
    struct sr_json *root = NULL;
    struct sr_err err;
    const char *token;

    assert_non_null(text);
    memset(text, '[', n);
    assert_int_equal(sr_json_parse(&root, text, n, NULL, &err), -1);
    text[0] = '{';
    assert_false(sr_json_raw_id(text, n, &token, &n));
    free(text);
}

static void test_nul_escape(void **state)
{
    (void)state;
    const char *text = "{\"a\":\"x\\u0000\\\\u0000\",\"\\u0000k\":\"\\\\\\u0000\"}";
    struct sr_json *root = NULL;
    struct sr_json_opts opts = {0};
    struct sr_err err = {0};

    assert_int_equal(parse(text, strlen(text), &opts, &root, &err), -1);
    assert_true(opts.nul);
    assert_int_equal(err.code, SR_INVALID);
    opts = (struct sr_json_opts){.replace_nul = true};
    assert_int_equal(parse(text, strlen(text), &opts, &root, &err), 0);
    assert_true(opts.nul);
    assert_string_equal(sr_json_get_string(root, "a"), "x\xEF\xBF\xBD\\u0000");
    assert_string_equal(sr_json_get_string(root, "\xEF\xBF\xBDk"), "\\\xEF\xBF\xBD");
    sr_json_free(root);
    opts = (struct sr_json_opts){.replace_nul = true, .nul = true};
    assert_int_equal(parse("\"\\\\u0000\"", 9, &opts, &root, &err), 0);
    assert_false(opts.nul);
    sr_json_free(root);
}

static void test_readers(void **state)
{
    (void)state;
    struct sr_json *root = must_parse("{\"Id\":\"c0ffee\",\"id\":\"first\",\"id\":\"second\","
                                      "\"n\":[-9007199254740991,9007199254740993,1.5,1e999,2.0]}");
    const struct sr_json *c;
    int64_t i;
    double d;

    assert_string_equal(sr_json_get_string(root, "Id"), "c0ffee");
    assert_string_equal(sr_json_get_string(root, "id"), "first");
    assert_null(sr_json_get_string(root, "ID"));
    assert_null(sr_json_get(sr_json_get(root, "none"), "x"));
    assert_null(sr_json_get(sr_json_get(root, "n"), "x"));
    assert_int_equal(sr_json_type(sr_json_get(root, "n")), SR_JSON_ARRAY);
    c = sr_json_first(sr_json_get(root, "n"));
    assert_null(sr_json_key(c));
    assert_true(sr_json_integer(c, &i));
    assert_true(i == -SR_JSON_INT_MAX);
    c = sr_json_next(c);
    assert_false(sr_json_integer(c, &i)); /* not exact in a double */
    c = sr_json_next(c);
    assert_false(sr_json_integer(c, &i));
    assert_true(sr_json_number(c, &d) && d == 1.5);
    c = sr_json_next(c);
    assert_false(sr_json_integer(c, &i));
    assert_true(sr_json_number(c, &d) && isinf(d));
    c = sr_json_next(c);
    assert_true(sr_json_integer(c, &i) && i == 2);
    assert_null(sr_json_next(c));
    assert_false(sr_json_number(sr_json_get(root, "Id"), &d));
    sr_json_free(root);
}

static void test_raw_id(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"{\"id\":9007199254740993}", "9007199254740993"},
        {" { \"method\" : \"x\" , \"id\" : \"a\\\"b\" } ", "\"a\\\"b\""},
        {"{\"id\":null}", "null"},
        {"{\"id\":-0.50e1,\"x\":1}", "-0.50e1"},
        {"{\"id\":1,\"id\":2}", "1"},
        {"{\"params\":{\"id\":1,\"b\":[{\"id\":2}]},\"id\":3}", "3"},
        {"{\"a\":[\"id\",{\"id\":1}],\"b\":\"id\",\"id\":3}", "3"},
        {"{\"a\":\"\\\"id\\\":1,\",\"id\":3}", "3"},
        {"{\"a\\\\\":\"}\",\"id\":3}", "3"},
        {"{\"\\u0069d\":1,\"id\":2}", "1"},
        {"{\"\\u0069\\u0064\":1}", "1"},
        {"{\"\\u0069x\":1,\"i\\u0064\":2}", "2"},
        {"{\"code\":\"\\u0000\",\"id\":\"\\u0000\"}", "\"\\u0000\""},
        {"{\"code\":\"\xFF\",\"id\":5}", "5"},         /* refused text, id still found */
        {"{\"a\":[[[[}", NULL},
        {"{\"id\":{\"id\":1}}", NULL},
        {"{\"id\":[1],\"id\":2}", NULL},
        {"{\"id\":\"\xFF\"}", NULL},
        {"{\"id\":\"a\nb\"}", NULL},
        {"{\"id\":01}", NULL},
        {"{\"id\":1x}", NULL},
        {"{\"id\" 1}", NULL},
        {"{\"id\":", NULL},
        {"{\"ID\":1,\"idx\":2,\"i\":3}", NULL},
        {"{}", NULL},
        {"[{\"id\":1}]", NULL},
        {"{\"a\":{}}{\"id\":1}", NULL},
        {"", NULL},
        {"{\"", NULL},
        {"{\"\\", NULL},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *token = NULL;
        size_t len = 0;
        bool found = sr_json_raw_id(cases[i].text, strlen(cases[i].text), &token, &len);

        if (found != (cases[i].want != NULL))
            fail_msg("%s", cases[i].text);
        if (!found)
            continue;
        assert_int_equal(len, strlen(cases[i].want));
        assert_memory_equal(token, cases[i].want, len);
        assert_true(sr_json_is_token(token, len));
    }
}

static void assert_put(const char *s, size_t n, const char *want)
{
    struct sr_buf b = {0};

    sr_json_put_string(&b, s, n);
    assert_int_equal(b.len, strlen(want));
    assert_memory_equal(b.data, want, b.len);
    sr_buf_clear(&b);
}

static void test_put_string(void **state)
{
    (void)state;
    assert_put(NULL, 0, "\"\"");
    assert_put("plain /", 7, "\"plain /\"");
    assert_put("\"\\\n\r\t\b\f", 7, "\"\\\"\\\\\\n\\r\\t\\b\\f\"");
    assert_put("\0\x1B\x7F", 3, "\"\\u0000\\u001b\\u007f\"");
    assert_put("\xC2\x80\xC2\x9F\xC2\xA0", 6, "\"\\u0080\\u009f\xC2\xA0\"");
    assert_put("\xE2\x80\xA8\xE2\x80\xA9\xE2\x80\xAA", 9, "\"\\u2028\\u2029\xE2\x80\xAA\"");
    assert_put("\xF0\x9F\x98\x80", 4, "\"\xF0\x9F\x98\x80\"");
    assert_put("a\xE2\x82" "b\xFF", 5, "\"a\xEF\xBF\xBD" "b\xEF\xBF\xBD\"");
}

static void test_put_numbers(void **state)
{
    (void)state;
    struct sr_buf b = {0};

    sr_json_put_integer(&b, INT64_MIN);
    sr_buf_putc(&b, ' ');
    sr_json_put_number(&b, 0.1);
    sr_buf_putc(&b, ' ');
    sr_json_put_number(&b, 1.0 / 3);
    sr_buf_putc(&b, ' ');
    sr_json_put_number(&b, -1e300);
    sr_buf_putc(&b, ' ');
    sr_json_put_number(&b, INFINITY);
    sr_buf_putc(&b, '\0');
    assert_string_equal(b.data, "-9223372036854775808 0.1 0.3333333333333333 -1e+300 null");
    sr_buf_clear(&b);
}

/* The Lua side: each chunk must return true. `json` is the binding. */
static void test_lua(void **state)
{
    (void)state;
    static const char *const chunks[] = {
        "local v = json.decode('{\"a\":[1,2.5,null],\"b\":{},\"c\":[]}') "
        "return v.a[1] == 1 and math.type(v.a[1]) == 'integer' and v.a[2] == 2.5 "
        "and v.a[3] == json.null and getmetatable(v.c) == json.array_mt "
        "and getmetatable(v.b) == nil",
        "return json.encode(json.decode('{\"b\":[],\"a\":{},\"c\":[null,true]}')) "
        "== '{\"a\":{},\"b\":[],\"c\":[null,true]}'",
        "return math.type(json.decode('9007199254740991')) == 'integer' and "
        "math.type(json.decode('-9007199254740991.0')) == 'integer' and "
        "math.type(json.decode('9007199254740993')) == 'float' and "
        "json.decode('1e999') == math.huge",
        "return json.decode('{\"a\":1,\"a\":2}').a == 1 and "
        "json.decode('{\"a\":null,\"a\":2}').a == json.null",
        "local v, e = json.decode('\"\\\\u0000\"') "
        "return v == nil and e.code == 'invalid' and e.nul == true",
        "local v, e = json.decode('[1') "
        "return v == nil and e.code == 'invalid' and e.nul == nil "
        "and tostring(e):find('^invalid: ') ~= nil",
        "local v, r = json.decode('\"a\\\\u0000\"', {nul = 'replace'}) "
        "return v == 'a\\u{FFFD}' and r == true",
        "return select('#', json.decode('\"a\"', {nul = 'replace'})) == 1",
        "return json.decode('[[1]]', {max_depth = 1}) == nil and "
        "json.decode('[[1]]', {max_depth = 2})[1][1] == 1",
        "return not pcall(json.decode, '1', {max_depth = 0}) and "
        "not pcall(json.decode, '1', {nul = 'x'}) and not pcall(json.decode, '1', 5)",
        "return json.decode(('['):rep(512) .. (']'):rep(512), {max_depth = 512}) ~= nil",
        "return json.encode({1, 'x', {}, json.array(), json.null, false, 1.5}) "
        "== '[1,\"x\",{},[],null,false,1.5]'",
        "return json.encode({['b\\0'] = 1, b = 2, a = 3, ba = 4}) "
        "== '{\"a\":3,\"b\":2,\"b\\\\u0000\":1,\"ba\":4}'",
        "return json.encode(math.mininteger) == '-9223372036854775808'",
        "return json.encode({id = json.raw('9007199254740993')}) == '{\"id\":9007199254740993}'",
        "return json.raw_id('{\"id\":\"x\"}') == '\"x\"' and json.raw_id('{}') == nil",
        "return not pcall(json.raw, '1\\n') and not pcall(json.raw, '[1]') "
        "and not pcall(json.raw, '')",
        "local ok, m = pcall(json.encode, {a = {b = {1, print}}}) "
        "return not ok and m:find('value.a.b[2]: a function', 1, true) ~= nil",
        "local t = {} t.t = t local ok, m = pcall(json.encode, t) "
        "return not ok and m:find('cycle') ~= nil",
        "return not pcall(json.encode, 0/0) and not pcall(json.encode, {math.huge}) "
        "and not pcall(json.encode) and not pcall(json.encode, nil)",
        "return not pcall(json.encode, {1, nil, 3}) and not pcall(json.encode, {1, x = 2}) "
        "and not pcall(json.encode, {[5] = 1}) and not pcall(json.encode, {[true] = 1}) "
        "and not pcall(json.encode, json.array{x = 1})",
        "return not pcall(json.encode, setmetatable({}, {__pairs = print}))",
        "local t = 1 for _ = 1, 100 do t = {t} end local s = json.encode(t) "
        "return #s == 201 and not pcall(json.encode, {t})",
    };
    lua_State *L = luaL_newstate();

    assert_non_null(L);
    luaL_openlibs(L);
    sr_lua_open_err(L);
    sr_lua_open_json(L);
    lua_setglobal(L, "json");
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        if (luaL_dostring(L, chunks[i]) || lua_isnil(L, -1) || !lua_toboolean(L, -1))
            fail_msg("%s: %s", chunks[i], luaL_tolstring(L, -1, NULL));
        lua_settop(L, 0);
    }
    lua_close(L);
}

static void test_too_many_values(void **state)
{
    struct sr_buf text = {0};
    struct sr_json *root = NULL;
    struct sr_err err;

    (void)state;
    sr_buf_putc(&text, '[');
    for (int i = 0; i < SR_JSON_VALUES_MAX - 2; i++)
        sr_buf_puts(&text, "0,");
    sr_buf_puts(&text, "0]");
    assert_int_equal(sr_json_parse(&root, text.data, text.len, NULL, &err), 0);
    sr_json_free(root);
    text.len--;
    sr_buf_puts(&text, ",0]");
    assert_int_equal(sr_json_parse(&root, text.data, text.len, NULL, &err), -1);
    assert_non_null(strstr(err.msg, "too many values"));
    sr_buf_clear(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_too_many_values),
        cmocka_unit_test(test_accepts),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_refuses_every_prefix),
        cmocka_unit_test(test_nul_byte_is_no_end),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_ten_megabytes_of_brackets),
        cmocka_unit_test(test_nul_escape),
        cmocka_unit_test(test_readers),
        cmocka_unit_test(test_raw_id),
        cmocka_unit_test(test_put_string),
        cmocka_unit_test(test_put_numbers),
        cmocka_unit_test(test_lua),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
