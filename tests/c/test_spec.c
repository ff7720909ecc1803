/* The body of the create call, read back with our own JSON reader: every field
 * of the floor is there, no bound can be passed, and no string breaks out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "json.h"
#include "spec.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static struct sr_spec good_spec(void)
{
    return (struct sr_spec){
        .image = "sha256:0123", .agent_volume = "sandbox-runner-agent-1", .uid = SR_UID_FIRST + 7,
        .memory = 256 * MIB, .nano_cpus = 500000000, .pids = 128, .open_files = 1024,
        .file_size = 256 * MIB, .scratch = 64 * MIB, .tmp = 32 * MIB, .shm = 16 * MIB,
        .files = 4096, .instance = "abcd", .run = "r1", .deadline = 1800000000};
}

static struct sr_json *root;

/* The body of a spec that must be accepted. */
static const struct sr_json *write_spec(const struct sr_spec *spec)
{
    struct sr_buf out = {0};
    struct sr_err err;

    if (sr_spec_write(&out, spec, &err) < 0)
        fail_msg("%s", err.msg);
    sr_json_free(root);
    root = NULL;
    if (sr_json_parse(&root, out.data, out.len, NULL, &err) < 0)
        fail_msg("%s in %.*s", err.msg, (int)out.len, out.data);
    sr_buf_clear(&out);
    return root;
}

static int tear_down(void **state)
{
    (void)state;
    sr_json_free(root);
    root = NULL;
    return 0;
}

static void has_integer(const struct sr_json *object, const char *key, int64_t want)
{
    int64_t got = -1;

    if (!sr_json_integer(sr_json_get(object, key), &got) || got != want)
        fail_msg("%s is %lld, not %lld", key, (long long)got, (long long)want);
}

static void has_string(const struct sr_json *object, const char *key, const char *want)
{
    const char *got = sr_json_get_string(object, key);

    if (!got || strcmp(got, want))
        fail_msg("%s is \"%s\", not \"%s\"", key, got ? got : "(none)", want);
}

static void has_bool(const struct sr_json *object, const char *key, bool want)
{
    if (sr_json_type(sr_json_get(object, key)) != (want ? SR_JSON_TRUE : SR_JSON_FALSE))
        fail_msg("%s is not %s", key, want ? "true" : "false");
}

/* want: the elements in order, each followed by a space. */
static void has_list(const struct sr_json *object, const char *key, const char *want)
{
    char got[200] = "";
    const struct sr_json *list = sr_json_get(object, key);

    assert_int_equal(sr_json_type(list), SR_JSON_ARRAY);
    for (const struct sr_json *c = sr_json_first(list); c; c = sr_json_next(c))
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s ", sr_json_string(c));
    assert_string_equal(got, want);
}

static size_t count(const struct sr_json *v)
{
    size_t n = 0;

    for (const struct sr_json *c = sr_json_first(v); c; c = sr_json_next(c))
        n++;
    return n;
}

static void test_process(void **state)
{
    struct sr_spec spec = good_spec();
    const struct sr_json *body = write_spec(&spec);

    (void)state;
    has_string(body, "Image", "sha256:0123");
    has_list(body, "Entrypoint", SR_AGENT_DIR "/agent ");
    has_list(body, "Cmd", "");
    has_list(body, "Env", "");
    has_string(body, "User", "0:0");
    has_string(body, "WorkingDir", "/scratch");
    has_string(body, "Hostname", "sandbox");
    has_bool(body, "OpenStdin", true);
    has_bool(body, "StdinOnce", true);
    has_bool(body, "AttachStdin", true);
    has_bool(body, "AttachStdout", true);
    has_bool(body, "AttachStderr", true);
    has_bool(body, "Tty", false);
    has_bool(body, "NetworkDisabled", true);
    has_list(sr_json_get(body, "Healthcheck"), "Test", "NONE ");
}

static void test_isolation(void **state)
{
    struct sr_spec spec = good_spec();
    const struct sr_json *host = sr_json_get(write_spec(&spec), "HostConfig");

    (void)state;
    has_bool(host, "AutoRemove", true);
    has_string(host, "NetworkMode", "none");
    has_string(host, "IpcMode", "private");
    has_string(host, "CgroupnsMode", "private");
    has_string(host, "PidMode", "");
    has_string(host, "UTSMode", "");
    has_string(host, "UsernsMode", "");
    has_bool(host, "Privileged", false);
    has_bool(host, "PublishAllPorts", false);
    has_bool(host, "ReadonlyRootfs", true);
    has_list(host, "CapDrop", "ALL ");
    has_list(host, "CapAdd", "SETUID SETGID KILL ");
    has_list(host, "SecurityOpt", "no-new-privileges ");
    has_list(host, "Dns", "127.0.0.1 ");
    has_string(sr_json_get(host, "LogConfig"), "Type", "none");
    has_string(sr_json_get(host, "RestartPolicy"), "Name", "no");
    assert_null(sr_json_get(host, "Binds"));
    assert_null(sr_json_get(host, "Devices"));
    assert_null(sr_json_get(host, "VolumesFrom"));
}

static void test_limits(void **state)
{
    struct sr_spec spec = good_spec();
    const struct sr_json *host = sr_json_get(write_spec(&spec), "HostConfig");

    (void)state;
    has_integer(host, "Memory", 256 << 20);
    has_integer(host, "MemorySwap", 256 << 20); /* memory and swap together: no swap */
    has_integer(host, "NanoCpus", 500000000);
    has_integer(host, "PidsLimit", 128);
    has_integer(host, "CpuShares", 128);
    has_integer(host, "OomScoreAdj", 500);
    has_bool(host, "OomKillDisable", false);
}

static void test_ulimits(void **state)
{
    static const struct {
        const char *name;
        int64_t value;
    } want[] = {{"core", 0}, {"nofile", 1024}, {"fsize", 256 << 20}, {"memlock", 65536},
                {"sigpending", 1024}};
    struct sr_spec spec = good_spec();
    const struct sr_json *u = sr_json_get(sr_json_get(write_spec(&spec), "HostConfig"), "Ulimits");
    const struct sr_json *c = sr_json_first(u);

    (void)state;
    assert_int_equal(count(u), sizeof want / sizeof want[0]);
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++, c = sr_json_next(c)) {
        has_string(c, "Name", want[i].name);
        has_integer(c, "Soft", want[i].value);
        has_integer(c, "Hard", want[i].value);
    }
}

static void test_mounts(void **state)
{
    struct sr_spec spec = good_spec();
    const struct sr_json *host = sr_json_get(write_spec(&spec), "HostConfig");
    const struct sr_json *tmpfs = sr_json_get(host, "Tmpfs");
    const struct sr_json *mounts = sr_json_get(host, "Mounts"), *agent = sr_json_first(mounts);

    (void)state;
    assert_int_equal(count(tmpfs), 3);
    has_string(tmpfs, "/scratch",
                  "rw,nosuid,nodev,exec,size=67108864,nr_inodes=4096,mode=0755,uid=0,gid=0");
    has_string(tmpfs, "/tmp", "rw,nosuid,nodev,noexec,size=33554432,nr_inodes=4096,mode=1777");
    has_string(tmpfs, "/dev/shm", "rw,nosuid,nodev,noexec,size=16777216,nr_inodes=4096,mode=1777");
    assert_int_equal(count(mounts), 1);
    has_string(agent, "Type", "volume");
    has_string(agent, "Source", "sandbox-runner-agent-1");
    has_string(agent, "Target", SR_AGENT_DIR);
    has_bool(agent, "ReadOnly", true);
    has_bool(sr_json_get(agent, "VolumeOptions"), "NoCopy", true);
}

static void test_writable_scratch_belongs_to_the_program(void **state)
{
    struct sr_spec spec = good_spec();
    const struct sr_json *tmpfs;

    (void)state;
    spec.scratch_writable = true;
    tmpfs = sr_json_get(sr_json_get(write_spec(&spec), "HostConfig"), "Tmpfs");
    has_string(tmpfs, "/scratch",
                  "rw,nosuid,nodev,exec,size=67108864,nr_inodes=4096,mode=0700,uid=60607,gid=60607");
}

static void test_labels_and_runtime(void **state)
{
    struct sr_spec spec = good_spec();
    const struct sr_json *body = write_spec(&spec), *labels = sr_json_get(body, "Labels");

    (void)state;
    has_string(labels, SR_LABEL, "1");
    has_string(labels, SR_LABEL ".instance", "abcd");
    has_string(labels, SR_LABEL ".run", "r1");
    has_string(labels, SR_LABEL ".deadline", "1800000000");
    has_string(sr_json_get(body, "HostConfig"), "Runtime", "");
    spec.runtime = "runsc";
    body = write_spec(&spec);
    has_string(sr_json_get(body, "HostConfig"), "Runtime", "runsc");
}

/* Each bound, one step outside on both sides, zero, and what a wrapped
 * negative number looks like. */
static void test_bounds(void **state)
{
    static const struct {
        const char *name;
        size_t offset;
        bool wide;
        uint64_t min, max;
    } bounds[] = {
#define WIDE(f, min, max) {#f, offsetof(struct sr_spec, f), true, min, max}
#define NARROW(f, min, max) {#f, offsetof(struct sr_spec, f), false, min, max}
        WIDE(memory, 16 * MIB, 64 * GIB), WIDE(nano_cpus, 10000000, UINT64_C(64000000000)),
        NARROW(pids, 16, 4096), NARROW(open_files, 64, 65536), WIDE(file_size, MIB, 16 * GIB),
        WIDE(scratch, MIB, 16 * GIB), WIDE(tmp, MIB, 16 * GIB), WIDE(shm, MIB, 16 * GIB),
        NARROW(files, 64, 1000000), NARROW(uid, SR_UID_FIRST, SR_UID_FIRST + SR_UID_COUNT - 1),
    };

    (void)state;
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        const uint64_t values[] = {0, bounds[i].min - 1, bounds[i].max + 1, UINT32_MAX, UINT64_MAX,
                                   bounds[i].min, bounds[i].max};

        for (size_t k = 0; k < sizeof values / sizeof values[0]; k++) {
            struct sr_spec spec = good_spec();
            struct sr_buf out = {0};
            struct sr_err err;
            uint64_t v = bounds[i].wide ? values[k] : (uint32_t)values[k];
            bool inside = v >= bounds[i].min && v <= bounds[i].max;
            char *field = (char *)&spec + bounds[i].offset;

            if (bounds[i].wide)
                memcpy(field, &v, sizeof v);
            else
                memcpy(field, &(uint32_t){(uint32_t)v}, sizeof(uint32_t));
            if (sr_spec_write(&out, &spec, &err) != (inside ? 0 : -1))
                fail_msg("%s = %llu", bounds[i].name, (unsigned long long)v);
            if (!inside) {
                assert_int_equal(err.code, SR_INVALID);
                assert_non_null(strstr(err.msg, bounds[i].name));
                assert_int_equal(out.len, 0);
            }
            sr_buf_clear(&out);
        }
    }
}

static void test_names_are_needed(void **state)
{
    static const size_t offsets[] = {
        offsetof(struct sr_spec, image), offsetof(struct sr_spec, agent_volume),
        offsetof(struct sr_spec, instance), offsetof(struct sr_spec, run)};
    static const char *const bad[] = {NULL, ""};

    (void)state;
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++)
        for (size_t k = 0; k < 2; k++) {
            struct sr_spec spec = good_spec();
            struct sr_buf out = {0};
            struct sr_err err;

            memcpy((char *)&spec + offsets[i], &bad[k], sizeof bad[k]);
            assert_int_equal(sr_spec_write(&out, &spec, &err), -1);
            assert_int_equal(err.code, SR_INVALID);
            sr_buf_clear(&out);
        }
}

/* The engine makes a disk of each declared volume that no mount has: it cleans
 * the declared path and looks for exactly that. */
static void test_declared_volumes_are_covered(void **state)
{
    static const char *const volumes[] = {
        "/data", "/var/lib/db/", "/a//b/./c/../d", "/devices", "/system", "/process", "/dev/extra",
        "/.sandboxes", "/tmp/below", "/../up", NULL};
    static const char *const covered[] = {"/data", "/var/lib/db", "/a/b/d", "/devices", "/system",
                                          "/process", "/dev/extra", "/.sandboxes", "/tmp/below", "/up"};
    struct sr_spec spec = good_spec();
    const struct sr_json *tmpfs;

    (void)state;
    spec.volumes = volumes;
    tmpfs = sr_json_get(sr_json_get(write_spec(&spec), "HostConfig"), "Tmpfs");
    assert_int_equal(count(tmpfs), 3 + sizeof covered / sizeof covered[0]);
    for (size_t i = 0; i < sizeof covered / sizeof covered[0]; i++)
        has_string(tmpfs, covered[i],
                      "rw,nosuid,nodev,noexec,size=1048576,nr_inodes=256,mode=0755");
}

static void test_declared_volumes_keep_our_mounts(void **state)
{
    static const char *const volumes[] = {"/tmp", "/tmp/", "/scratch", "//scratch", "/dev/shm", NULL};
    struct sr_spec spec = good_spec();
    const struct sr_json *tmpfs;

    (void)state;
    spec.volumes = volumes;
    tmpfs = sr_json_get(sr_json_get(write_spec(&spec), "HostConfig"), "Tmpfs");
    assert_int_equal(count(tmpfs), 3);
    has_string(tmpfs, "/tmp", "rw,nosuid,nodev,noexec,size=33554432,nr_inodes=4096,mode=1777");
}

static void test_volume_that_cannot_be_covered_is_refused(void **state)
{
    char longest[1100];
    const char *const bad[] = {"", "/", "/..", "data", "./data", "/proc", "/proc/x", "/sys/fs", "/dev",
                               SR_AGENT_DIR, SR_AGENT_DIR "/x", "/x/../proc/sys", "/a:b", longest};

    (void)state;
    memset(longest, 'x', sizeof longest);
    longest[0] = '/';
    longest[sizeof longest - 1] = '\0';
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const char *const volumes[] = {"/fine", bad[i], NULL};
        struct sr_spec spec = good_spec();
        struct sr_buf out = {0};
        struct sr_err err;

        spec.volumes = volumes;
        if (sr_spec_write(&out, &spec, &err) != -1)
            fail_msg("\"%s\" was accepted", bad[i]);
        assert_int_equal(err.code, SR_INVALID);
        sr_buf_clear(&out);
    }
}

/* Names come from init.lua and from images: none may add a field. */
static void test_hostile_strings_stay_strings(void **state)
{
    static const char hostile[] = "x\",\"Privileged\":true,\"y\":\"\\\n\r\t\x01\x7f\xff\xe2\x80\xa8</";
    static const char *const volumes[] = {"/v\",\"/etc\",\"", NULL};
    struct sr_spec spec = good_spec();
    const struct sr_json *body, *host;

    (void)state;
    spec.image = spec.agent_volume = spec.instance = spec.run = spec.runtime = hostile;
    spec.volumes = volumes;
    body = write_spec(&spec);
    host = sr_json_get(body, "HostConfig");
    assert_null(sr_json_get(body, "Privileged"));
    has_bool(host, "Privileged", false);
    assert_int_equal(strncmp(sr_json_get_string(body, "Image"), hostile, strlen("x\",\"Priv")), 0);
    assert_int_equal(count(sr_json_get(host, "Tmpfs")), 4);
    assert_non_null(sr_json_get(sr_json_get(host, "Tmpfs"), volumes[0]));
    assert_int_equal(count(sr_json_get(body, "Labels")), 4);
}

static void test_each_key_is_there_once(void **state)
{
    struct sr_spec spec = good_spec();
    const struct sr_json *objects[2];

    (void)state;
    objects[0] = write_spec(&spec);
    objects[1] = sr_json_get(objects[0], "HostConfig");
    for (int i = 0; i < 2; i++)
        for (const struct sr_json *c = sr_json_first(objects[i]); c; c = sr_json_next(c))
            assert_ptr_equal(sr_json_get(objects[i], sr_json_key(c)), c);
}

static void test_filler(void **state)
{
    struct sr_buf out = {0};
    const struct sr_json *host;

    (void)state;
    sr_spec_write_filler(&out, "sha256:\"", "vol\"", "in\"st", 17);
    assert_int_equal(sr_json_parse(&root, out.data, out.len, NULL, NULL), 0);
    sr_buf_clear(&out);
    host = sr_json_get(root, "HostConfig");
    has_string(root, "Image", "sha256:\"");
    has_string(sr_json_get(root, "Labels"), SR_LABEL, "1");
    has_string(sr_json_get(root, "Labels"), SR_LABEL ".instance", "in\"st");
    has_string(sr_json_get(root, "Labels"), SR_LABEL ".deadline", "17");
    has_string(host, "NetworkMode", "none");
    has_list(host, "CapDrop", "ALL ");
    has_string(sr_json_first(sr_json_get(host, "Mounts")), "Source", "vol\"");
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_process),
        T(test_isolation),
        T(test_limits),
        T(test_ulimits),
        T(test_mounts),
        T(test_writable_scratch_belongs_to_the_program),
        T(test_labels_and_runtime),
        T(test_bounds),
        T(test_names_are_needed),
        T(test_declared_volumes_are_covered),
        T(test_declared_volumes_keep_our_mounts),
        T(test_volume_that_cannot_be_covered_is_refused),
        T(test_hostile_strings_stay_strings),
        T(test_each_key_is_there_once),
        T(test_filler),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
