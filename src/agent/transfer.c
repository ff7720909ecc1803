#include "transfer.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* A frame of a file has this before its path: u32 mode, u64 size. */
#define FILE_FIXED 12

static void finish(struct sr_transfer *t)
{
    if (t->left == 0 && t->file >= 0) {
        close(t->file);
        t->file = -1;
    }
}

int sr_transfer_begin(struct sr_transfer *t, const struct sr_held *held, const unsigned char *p,
                      size_t n, struct sr_message *why)
{
    char path[SR_WIRE_PATH_MAX + 1];

    if (t->file >= 0 || n <= FILE_FIXED ||
        !sr_wire_path_ok((const char *)p + FILE_FIXED, n - FILE_FIXED)) {
        sr_message_join(why, "bad order: file", NULL);
        return -1;
    }
    memcpy(path, p + FILE_FIXED, n - FILE_FIXED);
    path[n - FILE_FIXED] = 0;
    t->file = sr_place_create(&t->scratch, sr_held_divert(held, path), sr_wire_get_u32(p));
    if (t->file < 0) {
        sr_message_join(why, "cannot create \"", path, "\": ", strerror(errno), NULL);
        return -1;
    }
    t->left = sr_wire_get_u64(p + 4);
    finish(t);
    return 0;
}

void sr_transfer_drop(struct sr_transfer *t)
{
    t->left = 0;
    finish(t);
}

int sr_transfer_take(struct sr_transfer *t, const unsigned char *p, size_t n,
                     struct sr_message *why)
{
    if (t->file < 0 || n > t->left) {
        sr_message_join(why, "bad order: data", NULL);
        return -1;
    }
    while (n) {
        ssize_t done = write(t->file, p, n);

        if (done < 0) {
            sr_message_join(why, "cannot write a file: ", strerror(errno), NULL);
            return -1;
        }
        p += done;
        n -= (size_t)done;
        t->left -= (uint64_t)done;
    }
    finish(t);
    return 0;
}

static void announce(struct sr_transfer *t, const struct sr_want *w, uid_t uid,
                     struct sr_outbox *o)
{
    unsigned char *to = sr_outbox_payload(o);
    size_t n = strlen(w->path);
    int missing = SR_MISSING_ABSENT;

    t->file = sr_place_read(&t->scratch, w->path, uid, w->max, &t->left, &missing);
    if (t->file < 0) {
        to[0] = (unsigned char)missing;
        memcpy(to + 1, w->path, n);
        sr_outbox_commit(o, SR_WIRE_MISSING, 1 + n);
        return;
    }
    sr_wire_put_u64(to, t->left);
    memcpy(to + 8, w->path, n);
    sr_outbox_commit(o, SR_WIRE_ARTIFACT, 8 + n);
    finish(t);
}

static int send_piece(struct sr_transfer *t, struct sr_outbox *o, struct sr_message *why)
{
    size_t want = t->left < SR_WIRE_MAX ? (size_t)t->left : SR_WIRE_MAX;
    ssize_t n = read(t->file, sr_outbox_payload(o), want);

    if (n <= 0) {
        sr_message_join(why, "cannot read a file that is wanted: ",
                        n < 0 ? strerror(errno) : "it became shorter", NULL);
        return -1;
    }
    sr_outbox_commit(o, SR_WIRE_DATA, (size_t)n);
    t->left -= (uint64_t)n;
    finish(t);
    return 1;
}

int sr_transfer_send(struct sr_transfer *t, const struct sr_job *job, struct sr_outbox *o,
                     struct sr_message *why)
{
    if (t->file >= 0)
        return send_piece(t, o, why);
    if (t->next == job->n_want)
        return 0;
    announce(t, &job->want[t->next++], job->uid, o);
    return 1;
}
