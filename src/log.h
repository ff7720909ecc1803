/* log.h - one line on stderr that never blocks. */
#ifndef SR_LOG_H
#define SR_LOG_H

#include <stddef.h>

/* Writes "sandbox-runner: TEXT\n", cut at 4 KiB. A host that does not drain
 * stderr loses lines, it does not stop the server. text: one line, UTF-8. */
void sr_log(const char *text, size_t n);

#endif
