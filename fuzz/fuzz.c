/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fuzz_fail(const char *file, int line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    abort();
}

void fuzz_must_be_line(const char *text)
{
    MUST(text[0] != 0, "a failure without a word");
    for (const char *at = text; *at != 0; at++)
        MUST((unsigned char)*at >= ' ' && *at != 0x7f && (memcmp(at, "\xc2", 1) != 0 || (at[1] & 0xe0) != 0x80),
             "a message with control characters: %s", text);
}

uint8_t fuzz_u8(fuzz_input *input)
{
    if (input->left == 0)
        return 0;
    input->left--;
    return *input->at++;
}

uint16_t fuzz_u16(fuzz_input *input)
{
    unsigned low = fuzz_u8(input);
    return (uint16_t)(low | (unsigned)fuzz_u8(input) << 8);
}

char *fuzz_text(const uint8_t *data, size_t bytes)
{
    char *text = malloc(bytes + 1);
    MUST(text != NULL, "no memory");
    if (bytes)
        memcpy(text, data, bytes);
    text[bytes] = 0;
    return text;
}
