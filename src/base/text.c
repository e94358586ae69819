/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

base_text base_text_begin(char *out, size_t capacity)
{
    out[0] = '\0';
    return (base_text){out, capacity, 0, 0};
}

static void append(base_text *text, const char *bytes, size_t count)
{
    /* Once something was left out, nothing follows: a gap would read as another text. */
    if (text->used == text->length && count < text->capacity - text->used) {
        memcpy(text->out + text->used, bytes, count);
        text->used += count;
        text->out[text->used] = '\0';
    }
    text->length += count;
}

void base_text_add(base_text *text, const char *format, ...)
{
    char piece[512];
    va_list arguments;

    va_start(arguments, format);
    int length = vsnprintf(piece, sizeof piece, format, arguments);
    va_end(arguments);
    if (length > 0)
        append(text, piece, (size_t)length < sizeof piece ? (size_t)length : sizeof piece - 1);
}

static int is_continuation(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

size_t base_utf8_length(const char *p, size_t count)
{
    if (count == 0)
        return 0;
    const unsigned char first = (unsigned char)p[0];
    if (first < 0x80)
        return 1;
    const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || count < length)
        return 0;
    for (size_t i = 1; i < length; i++)
        if (!is_continuation(p[i]))
            return 0;
    /* Overlong forms, surrogates, and what lies above U+10FFFF. */
    const unsigned char second = (unsigned char)p[1];
    if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
        (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f))
        return 0;
    return length;
}

static int is_control(const char *p, size_t length)
{
    const unsigned char first = (unsigned char)p[0];
    if (length == 1)
        return first < 0x20 || first == 0x7f;
    return first == 0xc2 && (unsigned char)p[1] < 0xa0;
}

void base_text_add_quoted(base_text *text, const char *bytes, size_t count)
{
    append(text, "\"", 1);
    for (size_t i = 0; i < count;) {
        const size_t length = base_utf8_length(bytes + i, count - i);
        char escape[8];

        if (length == 1 && (bytes[i] == '"' || bytes[i] == '\\')) {
            append(text, (const char[]){'\\', bytes[i]}, 2);
        } else if (length == 0 || is_control(bytes + i, length)) {
            for (size_t k = 0; k < (length == 0 ? 1 : length); k++) {
                snprintf(escape, sizeof escape, "\\x%02x", (unsigned)(unsigned char)bytes[i + k]);
                append(text, escape, 4);
            }
        } else {
            append(text, bytes + i, length);
        }
        i += length == 0 ? 1 : length;
    }
    append(text, "\"", 1);
}

void base_text_add_hex(base_text *text, const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        base_text_add(text, "%02x", bytes[i]);
}

base_quoted base_quote(const char *bytes, size_t count)
{
    base_quoted quoted;
    base_text text = base_text_begin(quoted.text, sizeof quoted.text);
    size_t shown = count;

    if (shown > 60) {
        shown = 60;
        while (shown > 56 && is_continuation(bytes[shown]))
            shown--;
    }
    base_text_add_quoted(&text, bytes, shown);
    if (shown < count)
        append(&text, "...", 3);
    return quoted;
}
