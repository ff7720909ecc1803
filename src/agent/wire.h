/* wire.h - the frames between server and agent, shared by both programs.
 *
 * A frame is: u8 type, u32 length (big-endian), payload of at most
 * SR_WIRE_MAX bytes. All integers are big-endian. Frames travel over the
 * sandbox's standard input (server to agent) and standard output (agent to
 * server); the program inside has pipes of its own, so nothing that it prints
 * can be taken for a frame. Knows neither Lua nor sockets nor the heap. */
#ifndef SR_WIRE_H
#define SR_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SR_WIRE_VERSION 1
#define SR_WIRE_HEAD 5
#define SR_WIRE_MAX 65536u

/* Input that the agent holds for a program that does not read it. Past this
 * it stops reading its own input, so a later SR_WIRE_KILL waits behind the
 * data (the deadline does not). */
#define SR_WIRE_STDIN_QUEUE (1u << 20)

#define SR_WIRE_PATH_MAX 4095u

/* Server to agent. */
enum {
    SR_WIRE_FILE = 'F',      /* u32 mode, u64 size, path: a file below the scratch folder begins */
    SR_WIRE_DATA = 'D',      /* bytes of the file that was begun (both ways) */
    SR_WIRE_START = 'S',     /* the start order: fields, see SR_FIELD_* */
    SR_WIRE_GO = 'G',        /* u32 wall ms, u32 out, u32 err: the held run begins, see below */
    SR_WIRE_STDIN = 'I',     /* bytes for the program's standard input */
    SR_WIRE_STDIN_EOF = 'E', /* empty: close the program's standard input */
    SR_WIRE_KILL = 'K'       /* empty: kill the program, then report */
};

/* Agent to server. */
enum {
    SR_WIRE_HELLO = 'H',    /* u8 SR_WIRE_VERSION: ready for files and the start order */
    SR_WIRE_STDOUT = 'O',   /* bytes of the program's standard output, up to the cap */
    SR_WIRE_STDERR = 'R',   /* the same for standard error */
    SR_WIRE_ARTIFACT = 'B', /* u64 size, path: a wanted file begins; SR_WIRE_DATA follow */
    SR_WIRE_MISSING = 'N',  /* u8 SR_MISSING_*, path: a wanted file cannot be sent */
    SR_WIRE_EXIT = 'X',     /* struct sr_report, always the last frame of a run */
    SR_WIRE_FAILURE = '!'   /* text: the program could not be started; the last frame of a run */
};

/* A held start (SR_FIELD_HELD): the program is started before its script
 * exists. It sleeps in the opening of the script's path (held.h). Then files
 * may still be sent, the script among them, and SR_WIRE_GO hands it over:
 * clock, CPU time and peak memory count from there, and its limits take the
 * place of those in the start order. A program that ends before that is
 * reported at once (`held` in the report); orders that cross with the report
 * are ignored. */
#define SR_WIRE_GO_SIZE 12

/* A field of the start order: u8 tag, u32 length, bytes. */
enum {
    SR_FIELD_ARG = 'a',    /* one element of argv; repeated, in order; at least one */
    SR_FIELD_ENV = 'e',    /* "NAME=value"; repeated; the whole environment of the program */
    SR_FIELD_CWD = 'c',    /* absolute path */
    SR_FIELD_UID = 'u',    /* u32: uid and gid of the program, never 0 */
    SR_FIELD_WALL = 't',   /* u32: wall-clock limit, ms, > 0; if held: longest wait for GO */
    SR_FIELD_CPU = 'r',    /* u32: RLIMIT_CPU, seconds; a backstop per process */
    SR_FIELD_OUT = 'o',    /* u32: bytes of stdout to send; the rest is counted and dropped */
    SR_FIELD_ERR = 'p',    /* u32: the same for stderr */
    SR_FIELD_STDIN = 'i',  /* u8: 0 = /dev/null, 1 = a pipe fed by SR_WIRE_STDIN */
    SR_FIELD_HELD = 'h',   /* path of the script that will be sent later; at most one */
    SR_FIELD_WANT = 'w'    /* u64 largest size, path: send it after the end; repeated */
};

enum { SR_MISSING_ABSENT = 0, SR_MISSING_NOT_REGULAR = 1, SR_MISSING_TOO_LARGE = 2 };

enum sr_end {
    SR_END_EXIT = 0,   /* ended by itself, code = exit status */
    SR_END_SIGNAL = 1, /* killed by a signal, code = its number */
    SR_END_WALL = 2,   /* the agent killed it at the wall-clock limit, code = 0 */
    SR_END_KILLED = 3  /* the agent killed it on SR_WIRE_KILL, code = 0 */
};

struct sr_report {
    uint8_t end;  /* enum sr_end */
    uint8_t oom;  /* 1: the kernel killed something in this sandbox for memory */
    uint8_t held; /* 1: ended before SR_WIRE_GO, so nothing of its script has run */
    uint32_t code;
    uint64_t wall_us;    /* from exec, or SR_WIRE_GO, to the end of the main process */
    uint64_t cpu_us;     /* user + system of the program and all its children */
    uint64_t peak_bytes; /* peak memory */
    uint64_t out_bytes;  /* produced on stdout, sent or not */
    uint64_t err_bytes;
};

#define SR_WIRE_REPORT_SIZE 46

void sr_wire_put_u32(unsigned char *p, uint32_t v);
void sr_wire_put_u64(unsigned char *p, uint64_t v);
uint32_t sr_wire_get_u32(const unsigned char *p);
uint64_t sr_wire_get_u64(const unsigned char *p);

/* Whether the n bytes at `path` name something below a folder: relative, at
 * most SR_WIRE_PATH_MAX bytes, no NUL, no component that is empty, ".", ".."
 * or longer than 255 bytes. */
bool sr_wire_path_ok(const char *path, size_t n);

/* Writes the SR_WIRE_HEAD bytes of a frame head; n <= SR_WIRE_MAX. */
void sr_wire_put_head(unsigned char *p, uint8_t type, uint32_t n);

void sr_wire_put_report(unsigned char p[SR_WIRE_REPORT_SIZE], const struct sr_report *r);

/* Returns 0, or -1 when n is not SR_WIRE_REPORT_SIZE, or `end` or a flag
 * is unknown. */
int sr_wire_get_report(const unsigned char *p, size_t n, struct sr_report *r);

#endif
