#include "wire.h"

#include <string.h>

/* The second byte of a report. */
#define FLAG_OOM 1
#define FLAG_HELD 2

void sr_wire_put_u32(unsigned char *p, uint32_t v)
{
    for (int i = 3; i >= 0; i--, v >>= 8)
        p[i] = (unsigned char)v;
}

void sr_wire_put_u64(unsigned char *p, uint64_t v)
{
    sr_wire_put_u32(p, (uint32_t)(v >> 32));
    sr_wire_put_u32(p + 4, (uint32_t)v);
}

uint32_t sr_wire_get_u32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

uint64_t sr_wire_get_u64(const unsigned char *p)
{
    return (uint64_t)sr_wire_get_u32(p) << 32 | sr_wire_get_u32(p + 4);
}

static bool component_ok(const char *name, size_t n)
{
    if (n == 0 || n > 255)
        return false;
    return !(name[0] == '.' && (n == 1 || (n == 2 && name[1] == '.')));
}

bool sr_wire_path_ok(const char *path, size_t n)
{
    size_t from = 0;

    if (n > SR_WIRE_PATH_MAX || memchr(path, 0, n))
        return false;
    for (size_t i = 0; i <= n; i++) {
        if (i < n && path[i] != '/')
            continue;
        if (!component_ok(path + from, i - from))
            return false;
        from = i + 1;
    }
    return true;
}

void sr_wire_put_head(unsigned char *p, uint8_t type, uint32_t n)
{
    p[0] = type;
    sr_wire_put_u32(p + 1, n);
}

void sr_wire_put_report(unsigned char p[SR_WIRE_REPORT_SIZE], const struct sr_report *r)
{
    p[0] = r->end;
    p[1] = (unsigned char)((r->oom ? FLAG_OOM : 0) | (r->held ? FLAG_HELD : 0));
    sr_wire_put_u32(p + 2, r->code);
    sr_wire_put_u64(p + 6, r->wall_us);
    sr_wire_put_u64(p + 14, r->cpu_us);
    sr_wire_put_u64(p + 22, r->peak_bytes);
    sr_wire_put_u64(p + 30, r->out_bytes);
    sr_wire_put_u64(p + 38, r->err_bytes);
}

int sr_wire_get_report(const unsigned char *p, size_t n, struct sr_report *r)
{
    if (n != SR_WIRE_REPORT_SIZE || p[0] > SR_END_KILLED || p[1] > (FLAG_OOM | FLAG_HELD))
        return -1;
    *r = (struct sr_report){
        .end = p[0],
        .oom = (p[1] & FLAG_OOM) != 0,
        .held = (p[1] & FLAG_HELD) != 0,
        .code = sr_wire_get_u32(p + 2),
        .wall_us = sr_wire_get_u64(p + 6),
        .cpu_us = sr_wire_get_u64(p + 14),
        .peak_bytes = sr_wire_get_u64(p + 22),
        .out_bytes = sr_wire_get_u64(p + 30),
        .err_bytes = sr_wire_get_u64(p + 38),
    };
    return 0;
}
