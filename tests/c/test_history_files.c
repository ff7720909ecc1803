/* Which files the history takes, and what it makes of the others. */
#include "history_rig.h"

static void test_private_file(void **state)
{
    (void)state;
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    mode_t old = umask(0);
    struct sr_history *h = must_open();

    must_add(h);
    for (size_t i = 0; i < 3; i++) {
        char name[300];
        struct stat st;

        snprintf(name, sizeof name, "%s%s", path, suffixes[i]);
        assert_int_equal(stat(name, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
    }
    sr_history_close(h);
    umask(old);
}

static void test_extends_a_python_file(void **state)
{
    (void)state;
    struct sr_history *h;
    struct sr_history_rows rows;
    struct stat st;

    run_sql(PYTHON_SCHEMA "INSERT INTO runs (timestamp, language, code_snippet, status, exit_code,"
            " duration_ms, stdout_size) VALUES (1.5, 'cpp', 'int main(){}', 'success', 0, 3.5, 7),"
            " (2.5, 'python', 'x', 'timeout', NULL, 4.5, 0)");
    assert_int_equal(chmod(path, 0644), 0);
    h = must_open();
    assert_int_equal(must_add(h), 3);
    assert_int_equal(sr_history_recent(h, 10, &rows, NULL), 0);
    assert_int_equal(rows.n, 3);
    assert_text(rows.rows[2].code_snippet, "int main(){}", 12);
    assert_true(rows.rows[2].exit_code.set && rows.rows[2].stdout_size == 7);
    assert_false(rows.rows[1].exit_code.set);
    assert_null(rows.rows[1].run_id.data);
    sr_history_rows_clear(&rows);
    sr_history_close(h);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    /* the old server can still write */
    run_sql("INSERT INTO runs (timestamp, language, code_snippet, status, duration_ms)"
            " VALUES (3, 'c', 'y', 'success', 1)");
    h = must_open();
    assert_int_equal(count(h), 4);
    sr_history_close(h);
}

static void test_completes_a_half_extended_file(void **state)
{
    (void)state;
    run_sql(PYTHON_SCHEMA "ALTER TABLE runs ADD COLUMN reason TEXT");
    sr_history_close(must_open());
    sr_history_close(must_open());
}

/* What is healthy but not ours is refused, and not a byte of it changes. */
static void test_leaves_others_alone(void **state)
{
    (void)state;
    static const char *const files[] = {
        "CREATE TABLE bookmarks (url TEXT)",
        "CREATE TABLE runs (id INTEGER PRIMARY KEY, timestamp REAL)",
        "CREATE TABLE other (x); CREATE VIEW runs AS SELECT * FROM other",
        PYTHON_SCHEMA "PRAGMA user_version = 2",
        PYTHON_SCHEMA "PRAGMA user_version = 1",
        "PRAGMA user_version = 9; CREATE TABLE x (a); DROP TABLE x",
        ("CREATE TABLE runs (id TEXT, timestamp, language, code_snippet, status, exit_code,"
         " duration_ms, stdout_size, stderr_size)"),
    };

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        size_t n, m;
        char *before, *after;

        run_sql(files[i]);
        before = slurp(&n);
        assert_open_fails(SR_INVALID);
        after = slurp(&m);
        assert_int_equal(n, m);
        assert_memory_equal(before, after, n);
        free(before);
        free(after);
        unlink(path);
    }
}

static void test_refuses_odd_paths(void **state)
{
    (void)state;
    char target[256];
    struct stat st;

    snprintf(target, sizeof target, "%s/target", folder);
    write_file(target, "", 0);
    assert_int_equal(symlink(target, path), 0);
    assert_open_fails(SR_INVALID);
    assert_int_equal(stat(target, &st), 0);
    assert_int_equal(st.st_size, 0);
    unlink(target);
    assert_open_fails(SR_INVALID); /* dangling */
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_open_fails(SR_INVALID);
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_open_fails(SR_INVALID);
    rmdir(path);
    snprintf(path, sizeof path, "%s/", folder);
    assert_open_fails(SR_INVALID);
    snprintf(path, sizeof path, "%s/none/history.db", folder);
    assert_open_fails(SR_UNAVAILABLE);
    path[0] = '\0';
    assert_open_fails(SR_INVALID);
}

/* A link in the folder part is the user's business. */
static void test_follows_a_linked_folder(void **state)
{
    (void)state;
    char link[192];

    snprintf(link, sizeof link, "%s/link", folder);
    assert_int_equal(symlink(folder, link), 0);
    snprintf(path, sizeof path, "%s/history.db", link);
    sr_history_close(must_open());
    snprintf(link, sizeof link, "%s/history.db", folder);
    assert_int_equal(access(link, F_OK), 0);
}

static void test_damaged_files(void **state)
{
    (void)state;
    char junk[8192];
    struct sr_history *h;
    FILE *f;

    memset(junk, 'x', sizeof junk);
    write_file(path, junk, 3);
    assert_open_fails(SR_CORRUPT);
    write_file(path, junk, sizeof junk);
    assert_open_fails(SR_CORRUPT);
    unlink(path);

    h = must_open();
    for (int i = 0; i < 500; i++)
        must_add(h);
    sr_history_close(h);
    f = fopen(path, "r+");
    assert_non_null(f);
    fseek(f, 4096 + 100, SEEK_SET);
    fwrite(junk, 1, sizeof junk, f);
    fclose(f);
    assert_open_fails(SR_CORRUPT);

    write_file(path, "", 0); /* empty = new */
    h = must_open();
    assert_int_equal(must_add(h), 1);
    sr_history_close(h);
}

/* Random damage: any answer but a crash, and no lie about locks. */
static void test_random_damage(void **state)
{
    (void)state;
    size_t n;
    char *good;
    struct sr_history *h = must_open();

    for (int i = 0; i < 100; i++)
        must_add(h);
    sr_history_close(h);
    good = slurp(&n);
    srand(7);
    for (int round = 0; round < 150; round++) {
        struct sr_history_row row = plain_row();
        struct sr_history_rows rows;
        struct sr_err err = {0};
        int64_t id;
        char *bad = malloc(n);

        assert_non_null(bad);
        memcpy(bad, good, n);
        for (int i = 0; i < 1 + round % 20; i++)
            bad[(size_t)rand() % (round % 2 ? n : 120)] = (char)rand();
        write_file(path, bad, n);
        free(bad);
        if (sr_history_open(&h, path, &err) == 0) {
            if (sr_history_recent(h, 1000, &rows, &err) == 0)
                sr_history_rows_clear(&rows);
            sr_history_add(h, &row, &id, &err);
            sr_history_prune(h, 10, &id, &err);
            sr_history_close(h);
        }
        assert_int_not_equal(err.code, SR_UNAVAILABLE);
    }
    free(good);
}

static void test_set_aside(void **state)
{
    (void)state;
    char first[320], second[320], wal[400];
    struct sr_err err;

    assert_int_equal(sr_history_set_aside(path, first, sizeof first, &err), -1);
    assert_int_equal(err.code, SR_NOT_FOUND);
    write_file(path, "junk", 4);
    snprintf(wal, sizeof wal, "%s-wal", path);
    write_file(wal, "wal", 3);
    assert_int_equal(sr_history_set_aside(path, first, sizeof first, &err), 0);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(access(wal, F_OK), -1);
    snprintf(wal, sizeof wal, "%s-wal", first);
    assert_int_equal(access(wal, F_OK), 0);
    assert_int_equal(strncmp(first + strlen(path), ".corrupt-20", 11), 0);
    for (int i = 0; i < 3; i++) { /* within one second the names must differ */
        write_file(path, "junk", 4);
        assert_int_equal(sr_history_set_aside(path, second, sizeof second, &err), 0);
        assert_string_not_equal(first, second);
    }
    write_file(path, "junk", 4);
    assert_int_equal(sr_history_set_aside(path, second, 20, &err), -1);
    assert_int_equal(err.code, SR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_with_folder(test_private_file),
        test_with_folder(test_extends_a_python_file),
        test_with_folder(test_completes_a_half_extended_file),
        test_with_folder(test_leaves_others_alone),
        test_with_folder(test_refuses_odd_paths),
        test_with_folder(test_follows_a_linked_folder),
        test_with_folder(test_damaged_files),
        test_with_folder(test_random_damage),
        test_with_folder(test_set_aside),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
