/* SPDX-License-Identifier: Apache-2.0 */
/* Texts for people: made of strings from outside, kept to one printable line. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* A line under construction. `length` counts everything appended, as snprintf does; what does
   not fit is left out whole, never half a character, and `out` always ends in 0. */
typedef struct base_text {
    char *out;
    size_t capacity; /* at least 1 */
    size_t used;
    size_t length;
} base_text;

base_text base_text_begin(char *out, size_t capacity);
void base_text_add(base_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* In double quotes; quotes, backslashes, control characters (C0, C1, DEL) and bytes that are not
   UTF-8 appear as \" \\ \xNN. */
void base_text_add_quoted(base_text *text, const char *bytes, size_t count);
void base_text_add_hex(base_text *text, const uint8_t *bytes, size_t count);

/* Length in bytes of the UTF-8 character at p (1 to 4), or 0 if there is none in [p, p + count). */
size_t base_utf8_length(const char *p, size_t count);

/* base_text_add_quoted() of at most 60 bytes and "..." if there was more. */
typedef struct base_quoted {
    char text[256];
} base_quoted;
base_quoted base_quote(const char *bytes, size_t count);

#endif
