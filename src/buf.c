#include "buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEEP_MAX 65536u /* bytes that an empty buffer holds on to */

char *sr_buf_reserve(struct sr_buf *b, size_t n)
{
    if (b->failed || n > SIZE_MAX / 2 - b->len)
        goto fail;
    if (b->cap - b->len < n) {
        size_t cap = b->cap ? b->cap : 256;
        char *data;

        while (cap - b->len < n)
            cap *= 2;
        data = realloc(b->data, cap);
        if (!data)
            goto fail;
        b->data = data;
        b->cap = cap;
    }
    return b->data + b->len;
fail:
    b->failed = true;
    return NULL;
}

void sr_buf_append(struct sr_buf *b, const void *data, size_t n)
{
    char *at;

    if (n == 0 || !(at = sr_buf_reserve(b, n)))
        return;
    memcpy(at, data, n);
    b->len += n;
}

void sr_buf_puts(struct sr_buf *b, const char *text)
{
    sr_buf_append(b, text, strlen(text));
}

void sr_buf_putc(struct sr_buf *b, char c)
{
    sr_buf_append(b, &c, 1);
}

void sr_buf_printf(struct sr_buf *b, const char *fmt, ...)
{
    char small[256];
    va_list ap;
    int n;
    char *at;

    va_start(ap, fmt);
    n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    if ((size_t)n < sizeof small) {
        sr_buf_append(b, small, (size_t)n);
        return;
    }
    at = sr_buf_reserve(b, (size_t)n + 1); /* vsnprintf also writes a NUL */
    if (!at)
        return;
    va_start(ap, fmt);
    vsnprintf(at, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
}

void sr_buf_consume(struct sr_buf *b, size_t n)
{
    if (n < b->len)
        memmove(b->data, b->data + n, b->len - n);
    b->len -= n;
    if (b->len == 0 && b->cap > KEEP_MAX) {
        free(b->data);
        b->data = NULL;
        b->cap = 0;
    }
}

void sr_buf_clear(struct sr_buf *b)
{
    free(b->data);
    *b = (struct sr_buf){0};
}
