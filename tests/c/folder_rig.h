/* folder_rig.h - a folder that is made before a group of tests and goes with its
 * files afterwards. For one test program each: the state is static. */
#ifndef SR_FOLDER_RIG_H
#define SR_FOLDER_RIG_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[128];
static char path[256]; /* of history.db in it */

static inline int folder_setup(void **state)
{
    const char *base = getenv("TMPDIR");

    (void)state;
    snprintf(folder, sizeof folder, "%s/sr-test-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/history.db", folder);
    return 0;
}

static inline int folder_teardown(void **state)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;

    (void)state;
    while (dir && (entry = readdir(dir)))
        unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        closedir(dir);
    return rmdir(folder);
}

#endif
