/* SPDX-License-Identifier: Apache-2.0 */
/* Writes JSON to standard output, indented. `key` is NULL for the items of a list. */
#ifndef CLI_JSON_OUT_H
#define CLI_JSON_OUT_H

#include <stddef.h>
#include <stdint.h>

typedef struct cli_out {
    int depth;
    int filled; /* the open object or list has something in it */
} cli_out;

void cli_out_object(cli_out *out, const char *key);
void cli_out_object_end(cli_out *out);
void cli_out_list(cli_out *out, const char *key);
void cli_out_list_end(cli_out *out);
/* What is not UTF-8 becomes U+FFFD. */
void cli_out_text(cli_out *out, const char *key, const char *text);
void cli_out_hex(cli_out *out, const char *key, const uint8_t *bytes, size_t count);
void cli_out_u64(cli_out *out, const char *key, uint64_t value);
void cli_out_i64(cli_out *out, const char *key, int64_t value);
/* The shortest text that reads back as the same number. */
void cli_out_real(cli_out *out, const char *key, double value);
void cli_out_bool(cli_out *out, const char *key, int value);
void cli_out_null(cli_out *out, const char *key);
/* above / below, or null where that is undefined. */
void cli_out_ratio(cli_out *out, const char *key, double above, double below);

#endif
