/* SPDX-License-Identifier: Apache-2.0 */
#include "json_out.h"

#include "common.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of the well-formed UTF-8 sequence at `u`, 0 if it is none. NUL ends the text. */
static size_t sequence(const unsigned char *u)
{
    static const unsigned char low[] = {0xc2, 0xe0, 0xf0};
    static const uint32_t smallest[] = {0x80, 0x800, 0x10000};
    size_t tail = u[0] < 0xe0 ? 1 : u[0] < 0xf0 ? 2 : 3;
    uint32_t code = u[0] & (0x3fu >> tail);
    if (u[0] < low[0] || u[0] > 0xf4) {
        return 0;
    }
    for (size_t i = 1; i <= tail; i++) {
        if ((u[i] & 0xc0) != 0x80) {
            return 0;
        }
        code = code << 6 | (u[i] & 0x3f);
    }
    int surrogate = code >= 0xd800 && code < 0xe000;
    return code < smallest[tail - 1] || surrogate || code > 0x10ffff ? 0 : tail + 1;
}

static void put_string(const char *text)
{
    const unsigned char *u = (const unsigned char *)text;
    putchar('"');
    while (*u != 0) {
        size_t length = *u < 0x80 ? 1 : sequence(u);
        if (length == 0) {
            fputs("\\ufffd", stdout);
            length = 1;
        } else if (*u == '"' || *u == '\\') {
            printf("\\%c", *u);
        } else if (*u < 0x20 || *u == 0x7f) {
            printf("\\u%04x", *u);
        } else {
            (void)fwrite(u, 1, length, stdout);
        }
        u += length;
    }
    putchar('"');
}

static void start(cli_out *out, const char *key)
{
    if (out->filled) {
        putchar(',');
    }
    if (out->depth > 0) {
        printf("\n%*s", 2 * out->depth, "");
    }
    if (key != NULL) {
        put_string(key);
        fputs(": ", stdout);
    }
    out->filled = 1;
}

static void open_bracket(cli_out *out, const char *key, char bracket)
{
    start(out, key);
    putchar(bracket);
    out->depth++;
    out->filled = 0;
}

static void close_bracket(cli_out *out, char bracket)
{
    out->depth--;
    if (out->filled) {
        printf("\n%*s", 2 * out->depth, "");
    }
    putchar(bracket);
    out->filled = 1;
    if (out->depth == 0) {
        putchar('\n');
    }
}

void cli_out_object(cli_out *out, const char *key)
{
    open_bracket(out, key, '{');
}

void cli_out_object_end(cli_out *out)
{
    close_bracket(out, '}');
}

void cli_out_list(cli_out *out, const char *key)
{
    open_bracket(out, key, '[');
}

void cli_out_list_end(cli_out *out)
{
    close_bracket(out, ']');
}

void cli_out_text(cli_out *out, const char *key, const char *text)
{
    start(out, key);
    put_string(text);
}

void cli_out_hex(cli_out *out, const char *key, const uint8_t *bytes, size_t count)
{
    static const char digits[] = "0123456789abcdef";
    start(out, key);
    putchar('"');
    for (size_t i = 0; i < count; i++) {
        putchar(digits[bytes[i] >> 4]);
        putchar(digits[bytes[i] & 15]);
    }
    putchar('"');
}

void cli_out_u64(cli_out *out, const char *key, uint64_t value)
{
    start(out, key);
    printf("%llu", (unsigned long long)value);
}

void cli_out_i64(cli_out *out, const char *key, int64_t value)
{
    start(out, key);
    printf("%lld", (long long)value);
}

void cli_out_real(cli_out *out, const char *key, double value)
{
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    start(out, key);
    fputs(text, stdout);
}

void cli_out_bool(cli_out *out, const char *key, int value)
{
    start(out, key);
    fputs(value ? "true" : "false", stdout);
}

void cli_out_null(cli_out *out, const char *key)
{
    start(out, key);
    fputs("null", stdout);
}

void cli_out_ratio(cli_out *out, const char *key, double above, double below)
{
    if (below > 0.0) {
        cli_out_real(out, key, above / below);
    } else {
        cli_out_null(out, key);
    }
}
