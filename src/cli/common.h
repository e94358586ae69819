/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every command shares: exit codes, the one error line, memory that never fails
 * half-way, and the end of standard output.
 */
#ifndef CLI_COMMON_H
#define CLI_COMMON_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    CLI_OK = 0,
    CLI_BAD = 1,  /* it ran, and what it looked at is not right */
    CLI_FAIL = 2, /* it could not run: usage, files, a store in use */
    CLI_STOPPED = 130
};

#if defined(__GNUC__)
#define CLI_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define CLI_PRINTF(text, first)
#endif

/* "kvonce: ..." on standard error, always one line: control characters become '?'.
   Returns CLI_FAIL, so that `return cli_fail(...)` reads well. */
int cli_fail(const char *format, ...) CLI_PRINTF(1, 2);

/* Control characters, C1's in UTF-8 too, become '?': a file's or a caller's words end in a terminal. */
void cli_one_line(char *text);

/* The same for a call that the library refused: its own line, or the status in words. */
struct kvo_error;
int cli_refused(int status, const struct kvo_error *error);

/* Zeroed memory, or the same memory at a new size. A command that is out of memory has
   nothing left to do: these print and exit with CLI_FAIL. */
void *cli_alloc(size_t count, size_t item_bytes);
void *cli_resize(void *memory, size_t count, size_t item_bytes);

/* Makes room for one more item in a growing array: returns the (moved) array. */
void *cli_grow(void *array, size_t used, size_t *room, size_t item_bytes);

/* Flushes standard output; `code`, or CLI_FAIL with a message if anything was not written. */
int cli_finish(int code);

uint64_t cli_now_ns(void);

/* "1234567" as "1,234,567". Returns `text`. */
#define CLI_COUNT_TEXT 32
char *cli_count_text(uint64_t value, char text[CLI_COUNT_TEXT]);
/* "5.0 MiB". Returns `text`. */
char *cli_bytes_text(uint64_t bytes, char text[CLI_COUNT_TEXT]);
/* Lower-case hex, NUL-terminated; `text` has 2 x bytes + 1 characters. Returns `text`. */
char *cli_hex_text(const uint8_t *bytes, size_t count, char *text);

/* splitmix64: small, portable, the same numbers everywhere. */
uint64_t cli_random(uint64_t *state);

#endif
