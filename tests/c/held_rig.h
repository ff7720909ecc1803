/* held_rig.h - an agent whose program was started before its script exists. For one
 * test program each: the state is static. */
#ifndef HELD_RIG_H
#define HELD_RIG_H

#include "agent_rig.h"

#define BIG 200000

static char script[80]; /* absolute path of the script in the rig's scratch folder */

/* Starts argv, which waits for the file `held` that stands in its place. */
static inline void hold_order(struct rig *r, struct sr_order *o)
{
    o->cwd = r->scratch;
    if (!o->held)
        o->held = "script";
    snprintf(script, sizeof script, "%s/%s", r->scratch, o->held);
    start(r, o);
    assert_int_equal(r->s.state, SR_SESSION_HELD);
}

static inline void hold(struct rig *r, const char *const *argv)
{
    struct sr_order o = order_of(argv);

    hold_order(r, &o);
}

static const char *const SHELL[] = {"sh", script, NULL};

static inline void hand_over_limited(struct rig *r, const char *text, size_t n, uint32_t wall_ms,
                                     uint32_t cap)
{
    const char *name = script + strlen(r->scratch) + 1;
    struct sr_err err;

    if (sr_session_put_file(&r->s, name, 0644, text, n, &err) < 0 ||
        sr_session_go(&r->s, wall_ms, cap, cap, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(r->s.state, SR_SESSION_RUNNING);
}

static inline void hand_over(struct rig *r, const char *text)
{
    hand_over_limited(r, text, strlen(text), 10000, 1000);
    drive(r, SR_SESSION_DONE, 0);
}

/* The program's process, or 0. */
static inline long child_of(const struct rig *r)
{
    char path[64];
    long pid = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)r->pid, (int)r->pid);
    f = fopen(path, "r");
    if (f && fscanf(f, "%ld", &pid) != 1)
        pid = 0;
    if (f)
        fclose(f);
    return pid;
}

/* Whether the agent's child has become the program and sleeps. */
static inline bool is_asleep(const struct rig *r)
{
    char path[64], name[32] = "", life = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%ld/stat", child_of(r));
    f = fopen(path, "r");
    if (f && fscanf(f, "%*d (%31[^)]) %c", name, &life) != 2)
        life = 0;
    if (f)
        fclose(f);
    return life == 'S' && !strstr(name, "agent");
}

/* Most programs here sleep for nothing but the script; that of the others is a
 * late one if this is too early. */
static inline void await_sleep(struct rig *r)
{
    for (int i = 0; i < GIVE_UP_MS / 5 && !is_asleep(r); i++)
        drive(r, SR_SESSION_DONE, 5);
    assert_true(is_asleep(r));
}

/* A script of BIG bytes that says something at both ends. */
static inline const char *big_script(void)
{
    static char text[BIG + 1];
    const char *first = "echo first\n", *last = "\necho last; exit 7\n";

    for (size_t i = 0; i < BIG; i++)
        text[i] = i % 80 == 0 ? '\n' : i % 80 == 1 ? '#' : 'x';
    memcpy(text, first, strlen(first));
    memcpy(text + BIG - strlen(last), last, strlen(last));
    return text;
}

#endif
