/* buf.h - growable byte buffer.
 *
 * Owns its memory. Allocation failure is sticky: `failed` is set, later
 * appends do nothing, and the caller checks once at the end (sr_buf_ok).
 * Zero-initialised (struct sr_buf b = {0}) is a valid empty buffer. */
#ifndef SR_BUF_H
#define SR_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sr_buf {
    char *data; /* not NUL-terminated; may be NULL while empty */
    size_t len;
    size_t cap;
    bool failed; /* an allocation failed: the content is incomplete */
};

/* Append n bytes, a C string, one byte, formatted text (no NUL is added). */
void sr_buf_append(struct sr_buf *b, const void *data, size_t n);
void sr_buf_puts(struct sr_buf *b, const char *text);
void sr_buf_putc(struct sr_buf *b, char c);
void sr_buf_printf(struct sr_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Room for at least n more bytes at data + len; NULL when memory is short.
 * The caller adds what it wrote to b->len. */
char *sr_buf_reserve(struct sr_buf *b, size_t n);

/* Removes the first n bytes (n <= len). A large buffer that gets empty gives its
 * memory back. */
void sr_buf_consume(struct sr_buf *b, size_t n);

/* Whether all that was appended is there. */
static inline bool sr_buf_ok(const struct sr_buf *b)
{
    return !b->failed;
}

/* Frees the memory and makes the buffer empty and usable again. */
void sr_buf_clear(struct sr_buf *b);

#endif
