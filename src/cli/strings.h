/* SPDX-License-Identifier: Apache-2.0 */
/* Strings to numbers, from 0 in order of first appearance. */
#ifndef CLI_STRINGS_H
#define CLI_STRINGS_H

#include <stddef.h>
#include <stdint.h>

typedef struct cli_strings {
    char **items;
    size_t count, room;
    uint32_t *slots; /* open addressing: number + 1, 0 = free */
    size_t slot_count;
} cli_strings;

uint32_t cli_strings_number(cli_strings *strings, const char *text);
void cli_strings_clear(cli_strings *strings);

#endif
