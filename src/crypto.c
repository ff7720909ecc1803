#include "crypto.h"

#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

int sr_crypto_hmac_sha256(const void *key, size_t key_len, const void *data, size_t n,
                          unsigned char out[SR_HMAC_SIZE], struct sr_err *err)
{
    unsigned len = 0;

    if (key_len > INT_MAX)
        return sr_err_set(err, SR_INVALID, "a key of more than %d bytes", INT_MAX);
    /* HMAC() takes a NULL key for the one of the call before. */
    if (!HMAC(EVP_sha256(), key ? key : "", (int)key_len, data, n, out, &len) ||
        len != SR_HMAC_SIZE)
        return sr_err_set(err, SR_INTERNAL, "libcrypto could not compute an HMAC");
    return 0;
}

bool sr_crypto_equal(const void *a, size_t a_len, const void *b, size_t b_len)
{
    return a_len == b_len && CRYPTO_memcmp(a, b, a_len) == 0;
}

static const char ALPHABET[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t sr_base64_encode(char *out, const void *data, size_t n)
{
    const unsigned char *in = data;
    char *at = out;

    for (size_t i = 0; i < n; i += 3) {
        size_t have = n - i < 3 ? n - i : 3;
        unsigned bits = (unsigned)in[i] << 16 | (have > 1 ? (unsigned)in[i + 1] << 8 : 0) |
                        (have > 2 ? in[i + 2] : 0u);

        *at++ = ALPHABET[bits >> 18];
        *at++ = ALPHABET[bits >> 12 & 63];
        *at++ = have > 1 ? ALPHABET[bits >> 6 & 63] : '=';
        *at++ = have > 2 ? ALPHABET[bits & 63] : '=';
    }
    return (size_t)(at - out);
}

/* The value of a character, or -1. */
static int value_of(char c)
{
    const char *at = c ? strchr(ALPHABET, c) : NULL;

    return at ? (int)(at - ALPHABET) : -1;
}

/* One group of four: the number of bytes in it, or -1. Only the last one may be
 * padded, and its unused bits are zero: each text has one reading, each value one text. */
static int decode_group(unsigned char *out, const char *text, bool last)
{
    int pad = last && text[3] == '=' ? (text[2] == '=' ? 2 : 1) : 0;
    unsigned bits = 0;

    for (int i = 0; i < 4; i++) {
        int v = i < 4 - pad ? value_of(text[i]) : 0;

        if (v < 0)
            return -1;
        bits = bits << 6 | (unsigned)v;
    }
    if (pad && (bits & (pad == 2 ? 0xffffu : 0xffu)))
        return -1;
    for (int i = 0; i < 3 - pad; i++)
        out[i] = (unsigned char)(bits >> (16 - 8 * i));
    return 3 - pad;
}

int sr_base64_decode(unsigned char *out, size_t *out_len, const char *text, size_t n)
{
    size_t len = 0;

    if (n % 4)
        return -1;
    for (size_t i = 0; i < n; i += 4) {
        int got = decode_group(out + len, text + i, i + 4 == n);

        if (got < 0)
            return -1;
        len += (size_t)got;
    }
    *out_len = len;
    return 0;
}
