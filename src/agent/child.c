#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "place.h"

enum step { STEP_SETUP, STEP_USER, STEP_CWD, STEP_RUN };

struct trouble {
    enum step step;
    int error;
};

/* Child side: from here to exec only the program's own world is set up. */

static _Noreturn void give_up(int trouble, enum step step)
{
    struct trouble t = {step, errno};
    ssize_t n = write(trouble, &t, sizeof t);

    _exit(n == sizeof t ? 127 : 126);
}

static void reset_signals(void)
{
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    sigset_t none;

    for (int s = 1; s < NSIG; s++)
        sigaction(s, &dfl, NULL); /* refused for SIGKILL and SIGSTOP, rightly */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* When memory is short the kernel shall take the program, not the agent. */
static void offer_to_oom_killer(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    if (write(fd, "1000", 4) < 0) {
        /* no /proc, or a runtime without it: the limit holds all the same */
    }
    close(fd);
}

static int limit_cpu(uint32_t seconds)
{
    struct rlimit now, want = {seconds, (rlim_t)seconds + 1};

    if (seconds == 0)
        return 0;
    if (getrlimit(RLIMIT_CPU, &now) < 0)
        return -1;
    if (now.rlim_max != RLIM_INFINITY && want.rlim_max > now.rlim_max)
        want.rlim_max = now.rlim_max; /* raising it is not ours to do */
    if (want.rlim_cur > want.rlim_max)
        want.rlim_cur = want.rlim_max;
    return setrlimit(RLIMIT_CPU, &want);
}

static int become(uid_t uid)
{
    if (getuid() != 0)
        return 0; /* tests by an ordinary user: there is nobody else to become */
    if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0)
        return -1;
    return setresuid(uid, uid, uid);
}

/* Everything above stderr is closed by exec. */
static void seal_descriptors(void)
{
    if (close_range(3, UINT_MAX, CLOSE_RANGE_CLOEXEC) == 0)
        return;
    for (int fd = 3; fd < 1024; fd++)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
}

static const char *path_of(char *const env[])
{
    for (; *env; env++)
        if (!strncmp(*env, "PATH=", 5))
            return *env + 5;
    return "/usr/local/bin:/usr/bin:/bin";
}

/* Looks argv[0] up in PATH as execvpe(3) does, but for one thing: a file that is
 * no program is an error here and never given to a shell. Returns only with the
 * trouble in errno; a file that may not be run is worse news than none. */
static void execute(char *const argv[], char *const env[])
{
    const char *name = argv[0], *at = path_of(env);
    int worst = ENOENT;
    char file[4096];

    if (strchr(name, '/')) {
        execve(name, argv, env);
        return;
    }
    while (*at) {
        size_t n = strcspn(at, ":");

        if (snprintf(file, sizeof file, "%.*s/%s", (int)n, at, name) < (int)sizeof file)
            execve(file, argv, env);
        if (errno != ENOENT && errno != ENOTDIR)
            worst = errno;
        at += n + (at[n] == ':');
    }
    errno = worst;
}

static _Noreturn void run(const struct sr_job *job, const int fds[3], int trouble)
{
    reset_signals();
    setsid();
    offer_to_oom_killer();
    if (limit_cpu(job->cpu_seconds) < 0 || dup2(fds[0], 0) < 0 || dup2(fds[1], 1) < 0 ||
        dup2(fds[2], 2) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        give_up(trouble, STEP_SETUP);
    if (become(job->uid) < 0)
        give_up(trouble, STEP_USER);
    if (chdir(job->cwd) < 0)
        give_up(trouble, STEP_CWD);
    umask(022);
    seal_descriptors();
    execute(job->argv, job->env);
    give_up(trouble, STEP_RUN);
}

/* Agent side. */

enum { IN, OUT, ERR, TROUBLE, PIPES };

static void close_all(int pipes[PIPES][2])
{
    for (int i = 0; i < PIPES; i++)
        for (int end = 0; end < 2; end++)
            if (pipes[i][end] >= 0)
                close(pipes[i][end]);
}

static int open_input(int ends[2], bool piped)
{
    if (piped)
        return pipe2(ends, O_CLOEXEC);
    ends[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return ends[0];
}

/* The program must own its pipes, or it could not open /dev/stdout. */
static int open_pipes(int pipes[PIPES][2], const struct sr_job *job)
{
    int rc;

    for (int i = 0; i < PIPES; i++)
        pipes[i][0] = pipes[i][1] = -1;
    sr_ids_enter(job->uid, job->uid);
    rc = open_input(pipes[IN], job->stdin_pipe) < 0 || pipe2(pipes[OUT], O_CLOEXEC) < 0 ||
         pipe2(pipes[ERR], O_CLOEXEC) < 0 || pipe2(pipes[TROUBLE], O_CLOEXEC) < 0;
    sr_ids_leave();
    return rc ? -1 : 0;
}

/* Keeps one end, non-blocking, and closes the other. */
static int keep_end(int ends[2], int end)
{
    if (ends[!end] >= 0)
        close(ends[!end]);
    if (ends[end] >= 0)
        fcntl(ends[end], F_SETFL, O_NONBLOCK);
    return ends[end];
}

int sr_child_start(struct sr_child *c, const struct sr_job *job)
{
    int pipes[PIPES][2];
    pid_t pid = -1;

    if (open_pipes(pipes, job) == 0)
        pid = fork();
    if (pid == 0)
        run(job, (int[3]){pipes[IN][0], pipes[OUT][1], pipes[ERR][1]}, pipes[TROUBLE][1]);
    if (pid < 0) {
        int saved = errno;

        close_all(pipes);
        errno = saved;
        return -1;
    }
    c->pid = pid;
    c->in = keep_end(pipes[IN], 1);
    c->out = keep_end(pipes[OUT], 0);
    c->err = keep_end(pipes[ERR], 0);
    c->trouble = keep_end(pipes[TROUBLE], 0);
    return 0;
}

static void describe(const struct trouble *t, const struct sr_job *job, struct sr_message *why)
{
    const char *error = strerror(t->error);

    switch (t->step) {
    case STEP_RUN:
        sr_message_join(why, "cannot run \"", job->argv[0], "\": ", error, NULL);
        break;
    case STEP_CWD:
        sr_message_join(why, "cannot enter \"", job->cwd, "\": ", error, NULL);
        break;
    case STEP_USER:
        sr_message_join(why, "cannot become the program's user: ", error, NULL);
        break;
    default:
        sr_message_join(why, "cannot set the program up: ", error, NULL);
    }
}

int sr_child_trouble(struct sr_child *c, const struct sr_job *job, struct sr_message *why)
{
    struct trouble t;
    ssize_t n = read(c->trouble, &t, sizeof t);

    close(c->trouble);
    c->trouble = -1;
    if (n != sizeof t)
        return 0;
    describe(&t, job, why);
    return 1;
}

/* Without a pid namespace of our own only our children may be hit; being a
 * subreaper, we inherit theirs as they die. */
static void kill_children(void)
{
    char text[4096];
    int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    char *at = text;
    long pid;

    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return;
    text[n] = 0;
    while ((pid = strtol(at, &at, 10)) > 1 && *at == ' ')
        kill((pid_t)pid, SIGKILL);
}

void sr_child_kill_all(void)
{
    if (getpid() == 1)
        kill(-1, SIGKILL);
    else
        kill_children();
}
