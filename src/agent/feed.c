#include "feed.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

void sr_feed_put(struct sr_feed *f, const unsigned char *p, size_t n)
{
    if (f->fd < 0 || f->ended)
        return;
    if (sizeof f->data - f->to < n) {
        memmove(f->data, f->data + f->from, f->to - f->from);
        f->to -= f->from;
        f->from = 0;
    }
    memcpy(f->data + f->to, p, n);
    f->to += n;
}

static void close_feed(struct sr_feed *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
    f->from = f->to = 0;
}

void sr_feed_end(struct sr_feed *f)
{
    f->ended = true;
    if (sr_feed_empty(f))
        close_feed(f);
}

void sr_feed_flush(struct sr_feed *f)
{
    ssize_t n = 0;

    while (!sr_feed_empty(f) && (n = write(f->fd, f->data + f->from, f->to - f->from)) >= 0)
        f->from += (size_t)n;
    if (sr_feed_empty(f))
        f->from = f->to = 0;
    if ((n < 0 && errno != EAGAIN && errno != EINTR) || (f->ended && sr_feed_empty(f)))
        close_feed(f); /* all is written, or the program has closed its end */
}
