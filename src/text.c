#include "text.h"

#include <stdio.h>
#include <string.h>

/* Continuation bytes that the first byte b asks for, and the range of the
 * second byte: narrower than 80..BF where a wider one would let in overlong
 * forms, surrogates or values above U+10FFFF (Unicode Standard, table 3-7). */
static size_t tail_of(unsigned char b, unsigned char *low, unsigned char *high)
{
    *low = b == 0xE0 ? 0xA0 : b == 0xF0 ? 0x90 : 0x80;
    *high = b == 0xED ? 0x9F : b == 0xF4 ? 0x8F : 0xBF;
    if (b >= 0xC2 && b <= 0xDF)
        return 1;
    if (b >= 0xE0 && b <= 0xEF)
        return 2;
    return b >= 0xF0 && b <= 0xF4 ? 3 : 0;
}

size_t sr_text_next(const char *s, size_t n, uint32_t *cp)
{
    const unsigned char *p = (const unsigned char *)s;
    unsigned char low, high;
    uint32_t value;
    size_t tail;

    if (p[0] < 0x80) {
        *cp = p[0];
        return 1;
    }
    *cp = SR_TEXT_BAD;
    tail = tail_of(p[0], &low, &high);
    if (tail == 0)
        return 1;
    value = p[0] & (0x3FU >> tail);
    for (size_t i = 1; i <= tail; i++) {
        if (i == n || p[i] < low || p[i] > high)
            return i;
        value = value << 6 | (p[i] & 0x3FU);
        low = 0x80;
        high = 0xBF;
    }
    *cp = value;
    return tail + 1;
}

size_t sr_text_ascii(const char *s, size_t n)
{
    size_t i = 0;

    for (uint64_t eight; n - i >= sizeof eight; i += sizeof eight) {
        memcpy(&eight, s + i, sizeof eight);
        if (eight & UINT64_C(0x8080808080808080))
            break;
    }
    while (i < n && (unsigned char)s[i] < 0x80)
        i++;
    return i;
}

/* Length of the valid UTF-8 at the start of s. */
static size_t valid_length(const char *s, size_t n)
{
    size_t at = 0;

    while (at < n) {
        uint32_t cp;
        size_t len;

        at += sr_text_ascii(s + at, n - at);
        if (at == n)
            break;
        len = sr_text_next(s + at, n - at, &cp);
        if (cp == SR_TEXT_BAD)
            break;
        at += len;
    }
    return at;
}

bool sr_text_is_utf8(const char *s, size_t n)
{
    return valid_length(s, n) == n;
}

/* Puts n bytes at dst + at unless only the size is wanted; returns the new end. */
static size_t put(char *dst, size_t at, const char *bytes, size_t n)
{
    if (dst && n)
        memcpy(dst + at, bytes, n);
    return at + n;
}

size_t sr_text_repair(char *dst, const char *s, size_t n)
{
    size_t at = 0, end = 0;

    while (at < n) {
        size_t good = valid_length(s + at, n - at);
        uint32_t cp;

        end = put(dst, end, s + at, good);
        at += good;
        if (at == n)
            break;
        at += sr_text_next(s + at, n - at, &cp);
        end = put(dst, end, SR_TEXT_REPLACEMENT, 3);
    }
    return end;
}

size_t sr_text_cut(const char *s, size_t n, size_t max)
{
    size_t at = max;

    if (n <= max)
        return n;
    /* s[at] is the first byte to go: an edge unless it continues a character.
     * Three steps are enough for valid text and bound the rest. */
    for (int back = 0; back < 3 && at > 0 && ((unsigned char)s[at] & 0xC0) == 0x80; back++)
        at--;
    return at;
}

size_t sr_text_prefix(const char *s, size_t n, size_t count)
{
    size_t at = 0;
    uint32_t cp;

    for (; count > 0 && at < n; count--)
        at += sr_text_next(s + at, n - at, &cp);
    return at;
}

bool sr_text_is_control(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7F && cp <= 0x9F) || cp == 0x061C || cp == 0x200E ||
           cp == 0x200F || (cp >= 0x2028 && cp <= 0x202E) || (cp >= 0x2066 && cp <= 0x2069);
}

/* Spells one invalid sequence byte by byte. */
static size_t put_bytes(char *dst, size_t end, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char hex[8];

        snprintf(hex, sizeof hex, "\\x%02x", (unsigned)(unsigned char)s[i]);
        end = put(dst, end, hex, 4);
    }
    return end;
}

size_t sr_text_visible(char *dst, const char *s, size_t n)
{
    size_t end = 0;

    for (size_t at = 0, len; at < n; at += len) {
        char code[16];
        uint32_t cp;

        len = sr_text_next(s + at, n - at, &cp);
        if (cp == '\n') {
            end = put(dst, end, "\\n", 2);
        } else if (cp == SR_TEXT_BAD || (cp < 0x80 && sr_text_is_control(cp))) {
            end = put_bytes(dst, end, s + at, len);
        } else if (sr_text_is_control(cp)) {
            snprintf(code, sizeof code, "\\u{%04X}", (unsigned)cp);
            end = put(dst, end, code, strlen(code));
        } else {
            end = put(dst, end, s + at, len);
        }
    }
    return end;
}
