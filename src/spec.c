#include "spec.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "json.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define PATH_SIZE 1024

struct bound {
    const char *name;
    uint64_t value, min, max;
};

static bool is_empty(const char *text)
{
    return !text || !text[0];
}

static int check_bounds(const struct sr_spec *s, struct sr_err *err)
{
    const struct bound bounds[] = {
        {"memory", s->memory, 16 * MIB, 64 * GIB},
        {"nano_cpus", s->nano_cpus, 10000000, UINT64_C(64000000000)},
        {"pids", s->pids, 16, 4096},
        {"open_files", s->open_files, 64, 65536},
        {"file_size", s->file_size, MIB, 16 * GIB},
        {"scratch", s->scratch, MIB, 16 * GIB},
        {"tmp", s->tmp, MIB, 16 * GIB},
        {"shm", s->shm, MIB, 16 * GIB},
        {"files", s->files, 64, 1000000},
        {"uid", s->uid, SR_UID_FIRST, SR_UID_FIRST + SR_UID_COUNT - 1},
    };

    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        const struct bound *b = &bounds[i];

        if (b->value < b->min || b->value > b->max)
            return sr_err_set(err, SR_INVALID,
                              "sandbox: %s is %" PRIu64 ", allowed are %" PRIu64 " to %" PRIu64,
                              b->name, b->value, b->min, b->max);
    }
    if (is_empty(s->image) || is_empty(s->agent_volume) || is_empty(s->instance) ||
        is_empty(s->run))
        return sr_err_set(err, SR_INVALID, "sandbox: image, agent volume, instance and run needed");
    return 0;
}

static void put_string(struct sr_buf *out, const char *text)
{
    sr_json_put_string(out, text, strlen(text));
}

static void put_member(struct sr_buf *out, const char *name, const char *value)
{
    put_string(out, name);
    sr_buf_putc(out, ':');
    put_string(out, value);
}

static void put_ulimit(struct sr_buf *out, const char *name, uint64_t value)
{
    sr_buf_printf(out, "{\"Name\":\"%s\",\"Soft\":%" PRIu64 ",\"Hard\":%" PRIu64 "}", name, value,
                  value);
}

static void put_ulimits(struct sr_buf *out, const struct sr_spec *s)
{
    sr_buf_puts(out, "\"Ulimits\":[");
    put_ulimit(out, "core", 0);
    sr_buf_putc(out, ',');
    put_ulimit(out, "nofile", s->open_files);
    sr_buf_putc(out, ',');
    put_ulimit(out, "fsize", s->file_size);
    sr_buf_putc(out, ',');
    put_ulimit(out, "memlock", 65536);
    sr_buf_putc(out, ',');
    put_ulimit(out, "sigpending", 1024); /* never nproc: it counts the uid on the whole host */
    sr_buf_puts(out, "],");
}

static void put_tmpfs(struct sr_buf *out, const char *path, const char *exec, uint64_t size,
                      uint32_t files, const char *owner)
{
    char value[200];

    snprintf(value, sizeof value, "rw,nosuid,nodev,%s,size=%" PRIu64 ",nr_inodes=%u,%s", exec,
             size, files, owner);
    put_member(out, path, value);
}

/* The path as the engine compares it ("/a//b/../c/" is "/a/c"): a tmpfs under
 * another spelling of a declared volume does not keep the engine from making
 * one. Returns -1 when it is not absolute or longer than `size`. */
static int clean_path(char *out, size_t size, const char *path)
{
    size_t len = 0;

    if (path[0] != '/' || strlen(path) >= size)
        return -1;
    while (*path) {
        size_t n = strcspn(path, "/");

        if (n == 2 && !memcmp(path, "..", 2)) {
            while (len && out[--len] != '/')
                ;
        } else if (n && !(n == 1 && path[0] == '.')) {
            out[len++] = '/';
            memcpy(out + len, path, n);
            len += n;
        }
        path += n + (path[n] == '/');
    }
    out[len] = '\0';
    return 0;
}

static bool is_at_or_below(const char *path, const char *folder)
{
    size_t n = strlen(folder);

    return !strncmp(path, folder, n) && (path[n] == '/' || path[n] == '\0');
}

/* Whether a mount of every sandbox is there already. */
static bool is_ours(const char *path)
{
    return !strcmp(path, SR_SCRATCH) || !strcmp(path, "/tmp") || !strcmp(path, "/dev/shm");
}

static bool is_cover_path(const char *path)
{
    return path[0] && !strchr(path, ':') && strcmp(path, "/dev") &&
           !is_at_or_below(path, "/proc") && !is_at_or_below(path, "/sys") &&
           !is_at_or_below(path, SR_AGENT_DIR);
}

static int check_volumes(const struct sr_spec *s, struct sr_err *err)
{
    char path[PATH_SIZE];

    for (const char *const *v = s->volumes; v && *v; v++)
        if (clean_path(path, sizeof path, *v) < 0 || !is_cover_path(path))
            return sr_err_set(err, SR_INVALID,
                              "the image declares a volume at \"%.200s\", which cannot be covered",
                              *v);
    return 0;
}

static void put_covers(struct sr_buf *out, const struct sr_spec *s)
{
    char path[PATH_SIZE];

    for (const char *const *v = s->volumes; v && *v; v++) {
        if (clean_path(path, sizeof path, *v) < 0 || is_ours(path))
            continue;
        sr_buf_putc(out, ',');
        put_tmpfs(out, path, "noexec", MIB, 256, "mode=0755");
    }
}

/* The scratch folder belongs to the program where it may write there, else to
 * uid 0, which only the agent has. Not by mode alone: runc resets the mode of a
 * tmpfs on the working directory, but keeps uid and gid. */
static void put_mounts(struct sr_buf *out, const struct sr_spec *s)
{
    char owner[64];

    if (s->scratch_writable)
        snprintf(owner, sizeof owner, "mode=0700,uid=%u,gid=%u", s->uid, s->uid);
    else
        snprintf(owner, sizeof owner, "mode=0755,uid=0,gid=0");
    sr_buf_puts(out, "\"Tmpfs\":{");
    put_tmpfs(out, SR_SCRATCH, "exec", s->scratch, s->files, owner);
    sr_buf_putc(out, ',');
    put_tmpfs(out, "/tmp", "noexec", s->tmp, s->files, "mode=1777");
    sr_buf_putc(out, ',');
    put_tmpfs(out, "/dev/shm", "noexec", s->shm, s->files, "mode=1777");
    put_covers(out, s);
    sr_buf_puts(out, "},\"Mounts\":[{\"Type\":\"volume\",\"ReadOnly\":true,"
                "\"VolumeOptions\":{\"NoCopy\":true},");
    put_member(out, "Source", s->agent_volume);
    sr_buf_putc(out, ',');
    put_member(out, "Target", SR_AGENT_DIR);
    sr_buf_puts(out, "}],");
}

static void put_host_config(struct sr_buf *out, const struct sr_spec *s)
{
    sr_buf_puts(out,
                "\"HostConfig\":{\"AutoRemove\":true,\"NetworkMode\":\"none\","
                "\"Dns\":[\"127.0.0.1\"],\"IpcMode\":\"private\",\"CgroupnsMode\":\"private\","
                "\"PidMode\":\"\",\"UTSMode\":\"\",\"UsernsMode\":\"\",\"Privileged\":false,"
                "\"PublishAllPorts\":false,\"ReadonlyRootfs\":true,\"Init\":false,"
                "\"CapDrop\":[\"ALL\"],\"CapAdd\":[\"SETUID\",\"SETGID\",\"KILL\"],"
                "\"SecurityOpt\":[\"no-new-privileges\"],"
                "\"CpuShares\":128,\"OomScoreAdj\":500,\"OomKillDisable\":false,"
                "\"LogConfig\":{\"Type\":\"none\"},\"RestartPolicy\":{\"Name\":\"no\"},");
    sr_buf_printf(out,
                  "\"Memory\":%" PRIu64 ",\"MemorySwap\":%" PRIu64 ",\"NanoCpus\":%" PRIu64
                  ",\"PidsLimit\":%u,", s->memory, s->memory, s->nano_cpus, s->pids);
    put_ulimits(out, s);
    put_mounts(out, s);
    put_member(out, "Runtime", s->runtime ? s->runtime : "");
    sr_buf_putc(out, '}');
}

static void put_labels(struct sr_buf *out, const char *instance, const char *run, int64_t deadline)
{
    sr_buf_puts(out, "\"Labels\":{\"" SR_LABEL "\":\"1\",");
    put_member(out, SR_LABEL ".instance", instance);
    sr_buf_putc(out, ',');
    put_member(out, SR_LABEL ".run", run);
    sr_buf_printf(out, ",\"" SR_LABEL ".deadline\":\"%" PRId64 "\"},", deadline);
}

int sr_spec_write(struct sr_buf *out, const struct sr_spec *spec, struct sr_err *err)
{
    if (check_bounds(spec, err) < 0 || check_volumes(spec, err) < 0)
        return -1;
    sr_buf_putc(out, '{');
    put_member(out, "Image", spec->image);
    sr_buf_puts(out,
                ",\"Entrypoint\":[\"" SR_AGENT_DIR "/agent\"],\"Cmd\":[],\"User\":\"0:0\","
                "\"WorkingDir\":\"" SR_SCRATCH "\",\"Hostname\":\"sandbox\",\"Domainname\":\"\","
                /* The program's environment comes with the start order; the image's
                 * own is the engine's to add and only the agent sees it. */
                "\"Env\":[],\"OpenStdin\":true,\"StdinOnce\":true,\"AttachStdin\":true,"
                "\"AttachStdout\":true,\"AttachStderr\":true,\"Tty\":false,\"StopTimeout\":0,"
                "\"NetworkDisabled\":true,\"Healthcheck\":{\"Test\":[\"NONE\"]},");
    put_labels(out, spec->instance, spec->run, spec->deadline);
    put_host_config(out, spec);
    sr_buf_putc(out, '}');
    if (!sr_buf_ok(out))
        return sr_err_set(err, SR_NO_MEMORY, "out of memory");
    return 0;
}

void sr_spec_write_filler(struct sr_buf *out, const char *image, const char *agent_volume,
                          const char *instance, int64_t deadline)
{
    sr_buf_putc(out, '{');
    put_member(out, "Image", image);
    sr_buf_puts(out, ",\"Entrypoint\":[\"" SR_AGENT_DIR "/agent\"],\"Cmd\":[],"
                "\"NetworkDisabled\":true,");
    put_labels(out, instance, "agent", deadline);
    sr_buf_puts(out, "\"HostConfig\":{\"NetworkMode\":\"none\",\"CapDrop\":[\"ALL\"],"
                "\"ReadonlyRootfs\":false,\"LogConfig\":{\"Type\":\"none\"},"
                "\"Mounts\":[{\"Type\":\"volume\",\"VolumeOptions\":{\"NoCopy\":true},");
    put_member(out, "Source", agent_volume);
    sr_buf_putc(out, ',');
    put_member(out, "Target", SR_AGENT_DIR);
    sr_buf_puts(out, "}]}}");
}
