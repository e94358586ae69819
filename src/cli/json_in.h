/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strict JSON reader that is pulled: the caller asks for what it expects next.
 *
 * Why not a library's tree: trace ids use all 64 bits (a tree of signed integers or doubles
 * cannot hold them), errors name a line in any layout, and a line of 64 MiB of ids is read
 * into 16 bytes a run instead of a node an id. RFC 8259; UTF-8 is checked in strings.
 *
 * Functions return 0 (or what they say), or -1 with .error and .line set. After an error
 * every call fails.
 */
#ifndef CLI_JSON_IN_H
#define CLI_JSON_IN_H

#include "common.h"

#include <stddef.h>
#include <stdint.h>

#define CLI_JSON_DEPTH_MAX 64

typedef struct cli_json {
    const char *at;
    const char *end;
    uint64_t line; /* of `at`, from 1 */
    uint32_t depth;
    int fresh;    /* just behind the opening bracket: no comma is due */
    int failed;
    int cut_off;  /* failed because the text ended */
    char error[192];
} cli_json;

typedef enum cli_json_type {
    CLI_JSON_BAD = 0,
    CLI_JSON_OBJECT,
    CLI_JSON_ARRAY,
    CLI_JSON_STRING,
    CLI_JSON_NUMBER,
    CLI_JSON_WORD /* true, false, null */
} cli_json_type;

/* A number as it was written, exact to 1e-9: whole + nano / 1e9, 0 <= nano < 1e9. */
typedef struct cli_decimal {
    int64_t whole;
    uint32_t nano;
} cli_decimal;

void cli_json_start(cli_json *json, const char *text, size_t bytes, uint64_t line);
int cli_json_fail(cli_json *json, const char *format, ...) CLI_PRINTF(2, 3);

/* What comes next; nothing is consumed. CLI_JSON_BAD sets the error. */
cli_json_type cli_json_peek(cli_json *json);

/* After begin, next: 1 = a member or item follows (a member's key is in `key`, cut to fit),
   0 = the end, which is consumed. */
int cli_json_begin_object(cli_json *json);
int cli_json_next_key(cli_json *json, char *key, size_t key_bytes);
/* The index of `key` in `keys` (ended by NULL), or that of the NULL. -1: it was seen before. */
int cli_json_field(cli_json *json, const char *const *keys, const char *key, uint32_t *seen);
int cli_json_begin_array(cli_json *json);
int cli_json_next_item(cli_json *json);

/* Strings are decoded; one longer than text_bytes - 1 is an error, as is a NUL in it. */
int cli_json_string(cli_json *json, char *text, size_t text_bytes);
int cli_json_u64(cli_json *json, uint64_t *value); /* 0 .. 2^64-1, no fraction, no exponent */
int cli_json_decimal(cli_json *json, cli_decimal *value);
int cli_json_skip(cli_json *json); /* any value, checked */
int cli_json_null(cli_json *json); /* 1 = a null was there and is consumed, 0 = not */
int cli_json_finish(cli_json *json); /* nothing but blanks may follow */

#endif
