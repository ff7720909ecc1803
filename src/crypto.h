/* crypto.h - digests and encodings for what crosses the network.
 *
 * The only file pair that knows libcrypto. Holds no state, knows no Lua. */
#ifndef SR_CRYPTO_H
#define SR_CRYPTO_H

#include <stdbool.h>
#include <stddef.h>

#include "err.h"

#define SR_HMAC_SIZE 32u

/* HMAC-SHA-256 (RFC 2104). -1 with SR_INVALID (a key of more than INT_MAX
 * bytes) or SR_INTERNAL (libcrypto; lack of memory, too). */
int sr_crypto_hmac_sha256(const void *key, size_t key_len, const void *data, size_t n,
                          unsigned char out[SR_HMAC_SIZE], struct sr_err *err);

/* Whether both are the same bytes; the time depends on the lengths only. */
bool sr_crypto_equal(const void *a, size_t a_len, const void *b, size_t b_len);

/* Base64 of RFC 4648 section 4: with padding, without line ends. `out` has room
 * for sr_base64_size(n) bytes; no NUL is added. Returns the number of bytes written. */
static inline size_t sr_base64_size(size_t n)
{
    return (n / 3 + (n % 3 != 0)) * 4;
}
size_t sr_base64_encode(char *out, const void *data, size_t n);

/* The reverse. `out` has room for n / 4 * 3 bytes. 0, or -1 unless the text is
 * what sr_base64_encode makes of some bytes: alphabet, padding, zero bits behind
 * the last byte, no blanks. */
int sr_base64_decode(unsigned char *out, size_t *out_len, const char *text, size_t n);

#endif
