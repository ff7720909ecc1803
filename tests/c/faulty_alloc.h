/* faulty_alloc.h - an allocator for lua_newstate() that fails on demand, and the
 * loop that lets each allocation of a run fail once. */
#ifndef SR_FAULTY_ALLOC_H
#define SR_FAULTY_ALLOC_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

struct faults {
    long countdown; /* growing requests until the first failure; < 0: no failures */
    long fail;      /* how many fail from then on; Lua asks twice for each */
    long hits;
    size_t live;    /* bytes handed out */
};

static inline void *faulty_alloc(void *ud, void *ptr, size_t old, size_t size)
{
    struct faults *f = ud;
    void *mem;

    if (!ptr)
        old = 0; /* Lua passes a type there */
    if (size == 0) {
        free(ptr);
        f->live -= old;
        return NULL;
    }
    if (size > old && f->countdown >= 0) { /* Lua counts on shrinking */
        if (f->countdown > 0) {
            f->countdown--;
        } else if (f->hits < f->fail) {
            f->hits++;
            return NULL;
        }
    }
    mem = realloc(ptr, size);
    if (mem)
        f->live += size - old;
    return mem;
}

/* run(chunk, nth, fail) lets the nth allocation and the next fail - 1 fail, and
 * says whether one did. */
static inline void sweep_faults(bool (*run)(const char *, long, long), const char *chunk)
{
    for (long nth = 0; run(chunk, nth, 2); nth++) /* memory comes back */
        ;
    for (long nth = 0; run(chunk, nth, INT32_MAX); nth++) /* it does not */
        ;
}

#endif
