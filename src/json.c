#include "json.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

/* The parser copies a number into a buffer of 64 bytes and fails beyond. */
#define NUMBER_MAX 63

/* The strict scan. Positions only move forward; nothing is allocated. */
struct scan {
    const char *start, *p, *end;
    unsigned depth, max_depth;
    char closer[SR_JSON_DEPTH_MAX]; /* what ends each open container */
    size_t nuls;                    /* \u0000 escapes seen */
    size_t values;                  /* begun so far */
    char *patch;                    /* copy of the text to write \ufffd into, or NULL */
    struct sr_err *err;             /* may be NULL */
};

static bool fail(const struct scan *s, const char *what)
{
    sr_err_set(s->err, SR_INVALID, "invalid JSON at byte %zu: %s", (size_t)(s->p - s->start),
               what);
    return false;
}

static int peek(const struct scan *s)
{
    return s->p < s->end ? (unsigned char)*s->p : -1;
}

static void skip_space(struct scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\t' || *s->p == '\r'))
        s->p++;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Value of the four hex digits at p, or -1. */
static int hex4(const char *p, const char *end)
{
    int value = 0;

    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(p[i]);

        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

/* At the backslash of a \u escape. */
static bool scan_unicode(struct scan *s)
{
    int unit = hex4(s->p + 2, s->end);

    if (unit < 0)
        return fail(s, "bad \\u escape");
    if (unit == 0) {
        s->nuls++;
        if (s->patch)
            memcpy(s->patch + (s->p - s->start) + 2, "fffd", 4);
    }
    if (unit >= 0xDC00 && unit <= 0xDFFF)
        return fail(s, "lone surrogate");
    if (unit >= 0xD800 && unit <= 0xDBFF) {
        const char *low = s->p + 6;
        int second = s->end - low >= 2 && low[0] == '\\' && low[1] == 'u' ? hex4(low + 2, s->end)
                                                                          : -1;

        if (second < 0xDC00 || second > 0xDFFF)
            return fail(s, "lone surrogate");
        s->p += 6;
    }
    s->p += 6;
    return true;
}

/* At a backslash. */
static bool scan_escape(struct scan *s)
{
    char c = '\0';

    if (s->end - s->p >= 2)
        c = s->p[1];
    if (c == 'u')
        return scan_unicode(s);
    if (c == '\0' || !strchr("\"\\/bfnrt", c))
        return fail(s, "bad escape");
    s->p += 2;
    return true;
}

/* At the opening quote; ends behind the closing one. */
static bool scan_string(struct scan *s)
{
    s->p++;
    for (int c; (c = peek(s)) >= 0;) {
        uint32_t cp;

        if (c == '"') {
            s->p++;
            return true;
        }
        if (c == '\\') {
            if (!scan_escape(s))
                return false;
            continue;
        }
        if (c < 0x20)
            return fail(s, "raw control character in a string");
        size_t len = sr_text_next(s->p, (size_t)(s->end - s->p), &cp);
        if (cp == SR_TEXT_BAD)
            return fail(s, "not UTF-8");
        s->p += len;
    }
    return fail(s, "unterminated string");
}

static bool scan_digits(struct scan *s)
{
    const char *from = s->p;

    while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
        s->p++;
    return s->p > from;
}

static bool scan_number(struct scan *s)
{
    const char *from = s->p;

    if (*s->p == '-')
        s->p++;
    if (peek(s) == '0')
        s->p++;
    else if (!scan_digits(s))
        return fail(s, "digit expected");
    if (peek(s) == '.') {
        s->p++;
        if (!scan_digits(s))
            return fail(s, "digit expected");
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->p++;
        if (peek(s) == '+' || peek(s) == '-')
            s->p++;
        if (!scan_digits(s))
            return fail(s, "digit expected");
    }
    return s->p - from <= NUMBER_MAX || fail(s, "number is too long");
}

static bool scan_word(struct scan *s, const char *word)
{
    size_t n = strlen(word);

    if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0)
        return fail(s, "unexpected character");
    s->p += n;
    return true;
}

static bool scan_scalar(struct scan *s)
{
    switch (peek(s)) {
    case -1:
        return fail(s, "unexpected end");
    case '"':
        return scan_string(s);
    case 't':
        return scan_word(s, "true");
    case 'f':
        return scan_word(s, "false");
    case 'n':
        return scan_word(s, "null");
    case '-': case '0': case '1': case '2': case '3': case '4':
    case '5': case '6': case '7': case '8': case '9':
        return scan_number(s);
    default:
        return fail(s, "unexpected character");
    }
}

/* A member's name and colon; its value is due next. */
static bool scan_key(struct scan *s)
{
    skip_space(s);
    if (peek(s) != '"')
        return fail(s, "member name expected");
    if (!scan_string(s))
        return false;
    skip_space(s);
    if (peek(s) != ':')
        return fail(s, "colon expected");
    s->p++;
    return true;
}

/* Enters the container at p. *due tells whether a value comes next, or the
 * container ended at once. */
static bool scan_open(struct scan *s, bool *due)
{
    char closer = *s->p == '{' ? '}' : ']';

    if (s->depth == s->max_depth)
        return fail(s, "nested too deep");
    s->p++;
    skip_space(s);
    *due = peek(s) != closer;
    if (!*due) {
        s->p++;
        return true;
    }
    s->closer[s->depth++] = closer;
    return closer == ']' || scan_key(s);
}

/* Behind a value: leaves the containers that end here. *due tells whether one
 * more value comes next, or the text ended. */
static bool scan_close(struct scan *s, bool *due)
{
    for (;;) {
        skip_space(s);
        *due = false;
        if (s->depth == 0)
            return s->p == s->end || fail(s, "text goes on behind its value");
        if (peek(s) == ',') {
            s->p++;
            *due = true;
            return s->closer[s->depth - 1] == ']' || scan_key(s);
        }
        if (peek(s) < 0)
            return fail(s, "unexpected end");
        if (peek(s) != s->closer[s->depth - 1])
            return fail(s, "comma or closing bracket expected");
        s->p++;
        s->depth--;
    }
}

static bool scan_text(struct scan *s)
{
    bool due = true;

    while (due) {
        skip_space(s);
        if (++s->values > SR_JSON_VALUES_MAX)
            return fail(s, "too many values");
        if (peek(s) == '{' || peek(s) == '[') {
            if (!scan_open(s, &due))
                return false;
            if (due)
                continue;
        } else if (!scan_scalar(s)) {
            return false;
        }
        if (!scan_close(s, &due))
            return false;
    }
    return true;
}

static void scan_init(struct scan *s, const char *text, size_t n, struct sr_err *err)
{
    s->start = s->p = text;
    s->end = text + n;
    s->depth = 0;
    s->max_depth = SR_JSON_DEPTH;
    s->nuls = 0;
    s->values = 0;
    s->patch = NULL;
    s->err = err;
}

/* Scans text; with `patch` set its \u0000 escapes are overwritten there. */
static int check(const char *text, size_t n, struct sr_json_opts *opts, char *patch,
                 struct sr_err *err)
{
    struct scan s;

    scan_init(&s, text, n, err);
    s.patch = patch;
    if (opts->max_depth > 0)
        s.max_depth = opts->max_depth < SR_JSON_DEPTH_MAX ? opts->max_depth : SR_JSON_DEPTH_MAX;
    if (!scan_text(&s))
        return -1;
    opts->nul = s.nuls > 0;
    if (opts->nul && !opts->replace_nul)
        return sr_err_set(err, SR_INVALID, "JSON string holds a NUL character (\\u0000)");
    return 0;
}

int sr_json_parse(struct sr_json **root, const char *text, size_t n, struct sr_json_opts *opts,
                  struct sr_err *err)
{
    struct sr_json_opts defaults = {0};
    char *patched = NULL;
    cJSON *tree = NULL;
    int rc = -1;

    if (!opts)
        opts = &defaults;
    opts->nul = false;
    if (check(text, n, opts, NULL, err) < 0)
        return -1;
    if (opts->nul) {
        patched = malloc(n);
        if (!patched)
            return sr_err_set(err, SR_NO_MEMORY, "out of memory");
        memcpy(patched, text, n);
        if (check(text, n, opts, patched, err) < 0)
            goto out;
        text = patched;
    }
    /* The scan has accepted the text, so only memory can be the trouble. */
    tree = cJSON_ParseWithLengthOpts(text, n, NULL, 0);
    if (!tree) {
        sr_err_set(err, SR_NO_MEMORY, "out of memory for a JSON text of %zu bytes", n);
        goto out;
    }
    *root = (struct sr_json *)tree;
    rc = 0;
out:
    free(patched);
    return rc;
}

void sr_json_free(struct sr_json *root)
{
    cJSON_Delete((cJSON *)root);
}

static const cJSON *node(const struct sr_json *v)
{
    return (const cJSON *)v;
}

enum sr_json_type sr_json_type(const struct sr_json *v)
{
    switch (v ? node(v)->type & 0xFF : cJSON_NULL) {
    case cJSON_False:
        return SR_JSON_FALSE;
    case cJSON_True:
        return SR_JSON_TRUE;
    case cJSON_Number:
        return SR_JSON_NUMBER;
    case cJSON_String:
        return SR_JSON_STRING;
    case cJSON_Array:
        return SR_JSON_ARRAY;
    case cJSON_Object:
        return SR_JSON_OBJECT;
    default:
        return SR_JSON_NULL;
    }
}

const struct sr_json *sr_json_get(const struct sr_json *object, const char *key)
{
    if (!cJSON_IsObject(node(object)))
        return NULL;
    return (const struct sr_json *)cJSON_GetObjectItemCaseSensitive(node(object), key);
}

const struct sr_json *sr_json_first(const struct sr_json *container)
{
    return container ? (const struct sr_json *)node(container)->child : NULL;
}

const struct sr_json *sr_json_next(const struct sr_json *child)
{
    return child ? (const struct sr_json *)node(child)->next : NULL;
}

const char *sr_json_key(const struct sr_json *member)
{
    return member ? node(member)->string : NULL;
}

const char *sr_json_string(const struct sr_json *v)
{
    return cJSON_GetStringValue(node(v));
}

bool sr_json_number(const struct sr_json *v, double *out)
{
    if (!cJSON_IsNumber(node(v)))
        return false;
    *out = node(v)->valuedouble;
    return true;
}

bool sr_json_integer(const struct sr_json *v, int64_t *out)
{
    double d;

    /* 2^53 itself is left out: 2^53 + 1 reads as the same double. */
    if (!sr_json_number(v, &d) || !(fabs(d) <= (double)SR_JSON_INT_MAX) ||
        d != (double)(int64_t)d)
        return false;
    *out = (int64_t)d;
    return true;
}

const char *sr_json_get_string(const struct sr_json *object, const char *key)
{
    return sr_json_string(sr_json_get(object, key));
}

bool sr_json_is_token(const char *text, size_t n)
{
    struct scan s;

    scan_init(&s, text, n, NULL);
    return scan_scalar(&s) && s.p == s.end;
}

/* Behind the string that opens at p, whatever it holds; NULL when it does not
 * end. */
static const char *skip_string(const char *p, const char *end)
{
    for (p++; p < end; p++) {
        if (*p == '"')
            return p + 1;
        if (*p == '\\')
            p++;
    }
    return NULL;
}

/* Whether the inside of a key spells id, with or without escapes: it must agree
 * with what a look-up in the tree finds. */
static bool spells_id(const char *p, const char *end)
{
    for (const char *want = "id"; *want; want++) {
        if (p < end && *p == *want)
            p++;
        else if (end - p >= 6 && p[0] == '\\' && p[1] == 'u' && hex4(p + 2, end) == *want)
            p += 6;
        else
            return false;
    }
    return p == end;
}

/* The scalar after a colon at s->p, and nothing glued to its end. */
static bool scan_id(struct scan *s, const char **token, size_t *len)
{
    const char *from;

    skip_space(s);
    if (peek(s) != ':')
        return false;
    s->p++;
    skip_space(s);
    from = s->p;
    if (!scan_scalar(s))
        return false;
    *len = (size_t)(s->p - from);
    skip_space(s);
    if (peek(s) >= 0 && peek(s) != ',' && peek(s) != '}')
        return false;
    *token = from;
    return true;
}

bool sr_json_raw_id(const char *text, size_t n, const char **token, size_t *len)
{
    struct scan s;
    size_t depth = 0;
    bool key_due = false;

    scan_init(&s, text, n, NULL);
    skip_space(&s);
    if (peek(&s) != '{')
        return false;
    for (int c; (c = peek(&s)) >= 0;) {
        const char *from = s.p++;

        if (c == '"') {
            s.p = skip_string(from, s.end);
            if (!s.p)
                return false;
            if (depth == 1 && key_due && spells_id(from + 1, s.p - 1))
                return scan_id(&s, token, len);
            key_due = false;
        } else if (c == '{' || c == '[') {
            key_due = ++depth == 1;
        } else if (c == '}' || c == ']') {
            if (--depth == 0)
                return false;
        } else if (c == ',') {
            key_due = depth == 1;
        }
    }
    return false;
}

/* The escape for what may not appear raw in a string, or NULL. */
static const char *escape_of(uint32_t cp, char room[static 8])
{
    static const char digits[] = "0123456789abcdef";

    switch (cp) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    case '\b':
        return "\\b";
    case '\f':
        return "\\f";
    case SR_TEXT_BAD:
        return SR_TEXT_REPLACEMENT;
    }
    if (cp >= 0x20 && (cp < 0x7F || cp > 0x9F) && cp != 0x2028 && cp != 0x2029)
        return NULL;
    memcpy(room, "\\u", 2);
    for (int i = 0; i < 4; i++)
        room[2 + i] = digits[cp >> (12 - 4 * i) & 0xF];
    room[6] = '\0';
    return room;
}

void sr_json_put_string(struct sr_buf *b, const char *s, size_t n)
{
    size_t at = 0, plain = 0; /* [plain, at) is still to be copied as it is */

    sr_buf_putc(b, '"');
    while (at < n) {
        char room[8];
        uint32_t cp;
        size_t len = sr_text_next(s + at, n - at, &cp);
        const char *escape = escape_of(cp, room);

        if (escape) {
            sr_buf_append(b, s + plain, at - plain);
            sr_buf_puts(b, escape);
            plain = at + len;
        }
        at += len;
    }
    if (plain < n)
        sr_buf_append(b, s + plain, n - plain);
    sr_buf_putc(b, '"');
}

void sr_json_put_integer(struct sr_buf *b, int64_t v)
{
    sr_buf_printf(b, "%lld", (long long)v);
}

void sr_json_put_number(struct sr_buf *b, double v)
{
    char text[40];

    if (!isfinite(v)) {
        sr_buf_puts(b, "null");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    sr_buf_puts(b, text);
}
