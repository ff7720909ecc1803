/* json.h - strict JSON reading and JSON writing.
 *
 * Reading is two passes: a scan that accepts exactly RFC 8259 (the parser
 * behind it is more generous, and cuts strings at an escaped NUL), then the
 * parser builds the tree. Nodes are borrowed from the root that
 * sr_json_parse() hands out. Knows neither Lua nor sockets. */
#ifndef SR_JSON_H
#define SR_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

#define SR_JSON_DEPTH 64      /* default limit of nested arrays and objects */
#define SR_JSON_DEPTH_MAX 512 /* largest limit that may be asked for */
#define SR_JSON_VALUES_MAX 100000 /* each costs the tree 64 bytes: a line of "0,0,..." is no bomb */
#define SR_JSON_INT_MAX INT64_C(9007199254740991) /* 2^53 - 1: exact in a double */

struct sr_json; /* one value of a tree; opaque */

enum sr_json_type {
    SR_JSON_NULL,
    SR_JSON_FALSE,
    SR_JSON_TRUE,
    SR_JSON_NUMBER,
    SR_JSON_STRING,
    SR_JSON_ARRAY,
    SR_JSON_OBJECT
};

struct sr_json_opts {
    unsigned max_depth; /* 0 = SR_JSON_DEPTH */
    bool replace_nul;   /* read \u0000 as U+FFFD instead of refusing the text */
    bool nul;           /* out: the text holds \u0000 in a string */
};

/* Parses exactly one JSON text. opts may be NULL. Refused with SR_INVALID:
 * whatever RFC 8259 forbids (a BOM included), bad UTF-8, lone surrogates,
 * more nesting or values than allowed, numbers of more than 63 characters, and \u0000 in
 * a string or key (opts->nul tells) unless replace_nul. A number too large for
 * a double is infinite. Free *root with sr_json_free(). */
int sr_json_parse(struct sr_json **root, const char *text, size_t n, struct sr_json_opts *opts,
                  struct sr_err *err);
void sr_json_free(struct sr_json *root); /* accepts NULL */

/* Readers. All accept NULL and the wrong type, so that look-ups chain. */
enum sr_json_type sr_json_type(const struct sr_json *v); /* SR_JSON_NULL for NULL */

/* Member of an object, or NULL. Case counts; of duplicates the first wins. */
const struct sr_json *sr_json_get(const struct sr_json *object, const char *key);

/* for (c = sr_json_first(v); c; c = sr_json_next(c)) walks array elements or
 * object members (duplicates included), in the order of the text. */
const struct sr_json *sr_json_first(const struct sr_json *container);
const struct sr_json *sr_json_next(const struct sr_json *child);
const char *sr_json_key(const struct sr_json *member); /* NULL for array elements */

const char *sr_json_string(const struct sr_json *v);            /* NULL unless a string */
bool sr_json_number(const struct sr_json *v, double *out);      /* any number, inf included */
bool sr_json_integer(const struct sr_json *v, int64_t *out);    /* integral, +-SR_JSON_INT_MAX */
const char *sr_json_get_string(const struct sr_json *object, const char *key);

/* Finds the token of the top-level member "id" (the first one, as in
 * sr_json_get) so that an id survives that no double holds. Works on texts that
 * do not parse as well, as long as their brackets and quotes make sense: an
 * error answer then still names the request. False when there is none or when
 * it is an array or object. The token passes sr_json_is_token(). */
bool sr_json_raw_id(const char *text, size_t n, const char **token, size_t *len);

/* One complete string, number, true, false or null and nothing around it. */
bool sr_json_is_token(const char *text, size_t n);

/* Writes s in quotes. Escaped: C0, DEL, C1, U+2028, U+2029, the quote and the
 * backslash; invalid UTF-8 becomes U+FFFD. */
void sr_json_put_string(struct sr_buf *b, const char *s, size_t n);
void sr_json_put_integer(struct sr_buf *b, int64_t v);

/* Shortest text that reads back as v; null when v is not finite. */
void sr_json_put_number(struct sr_buf *b, double v);

#endif
