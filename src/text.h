/* text.h - bytes of strangers made into text.
 *
 * What programs print and what clients send is bytes; JSON, logs and Lua's
 * users want UTF-8. Pure functions on caller memory: no state, no allocation,
 * no locale. Where a function writes, passing dst == NULL only measures, so
 * that a caller can size its buffer first. Knows neither Lua nor sockets. */
#ifndef SR_TEXT_H
#define SR_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SR_TEXT_BAD UINT32_MAX /* what sr_text_next() calls an invalid sequence */
#define SR_TEXT_REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

/* Length (>= 1) of the sequence at s, n >= 1. *cp is its code point, or
 * SR_TEXT_BAD when it is invalid; the length is then that of the maximal
 * subpart: the longest start of a character that is there, else one byte
 * (Unicode Standard, chapter 3, "U+FFFD Substitution of Maximal Subparts"). */
size_t sr_text_next(const char *s, size_t n, uint32_t *cp);

/* How many bytes at the start of s are ASCII (control characters included). */
size_t sr_text_ascii(const char *s, size_t n);

/* Whether s is valid UTF-8 from end to end; NUL bytes are. */
bool sr_text_is_utf8(const char *s, size_t n);

/* Writes s with each invalid sequence replaced by U+FFFD; returns the number
 * of bytes written (at most 3 * n). */
size_t sr_text_repair(char *dst, const char *s, size_t n);

/* Longest prefix of at most max bytes that does not end inside a character.
 * s must be valid UTF-8. */
size_t sr_text_cut(const char *s, size_t n, size_t max);

/* Bytes of the first count code points; an invalid sequence counts as one. */
size_t sr_text_prefix(const char *s, size_t n, size_t count);

/* True for what may not reach a terminal or a line-based log as it is: C0, DEL,
 * C1, U+2028, U+2029 and the bidirectional controls. */
bool sr_text_is_control(uint32_t cp);

/* Writes s for one line of a log: newline as \n, other ASCII controls and
 * invalid bytes as \xNN, the rest of the controls above as \u{NNNN}. The
 * backslash itself stays: this is for eyes, not for reading back. Returns the
 * number of bytes written (at most 4 * n). */
size_t sr_text_visible(char *dst, const char *s, size_t n);

#endif
