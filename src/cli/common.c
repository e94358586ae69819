/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"

#include "kvonce.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void cli_one_line(char *text)
{
    for (unsigned char *at = (unsigned char *)text; *at != 0; at++) {
        if (*at < 0x20 || *at == 0x7f) {
            *at = '?';
        } else if (*at == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0) { /* C1, which terminals obey too */
            at[0] = at[1] = '?';
        }
    }
}

int cli_fail(const char *format, ...)
{
    char line[2048];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    cli_one_line(line);
    fprintf(stderr, "kvonce: %s\n", line);
    return CLI_FAIL;
}

int cli_refused(int status, const kvo_error *error)
{
    return cli_fail("%s", error->text[0] != 0 ? error->text : kvo_status_text(status));
}

static void out_of_memory(size_t count, size_t item_bytes)
{
    exit(cli_fail("out of memory (%zu x %zu bytes)", count, item_bytes));
}

void *cli_alloc(size_t count, size_t item_bytes)
{
    void *memory = calloc(count != 0 ? count : 1, item_bytes);
    if (memory == NULL) {
        out_of_memory(count, item_bytes);
    }
    return memory;
}

void *cli_resize(void *memory, size_t count, size_t item_bytes)
{
    void *moved = NULL;
    if (count != 0 && count <= SIZE_MAX / item_bytes) {
        moved = realloc(memory, count * item_bytes);
    }
    if (moved == NULL) {
        out_of_memory(count, item_bytes);
    }
    return moved;
}

void *cli_grow(void *array, size_t used, size_t *room, size_t item_bytes)
{
    if (used < *room) {
        return array;
    }
    *room = *room < 8 ? 16 : *room + *room / 2;
    return cli_resize(array, *room, item_bytes);
}

int cli_finish(int code)
{
    if (fflush(stdout) != 0 || ferror(stdout)) {
        return cli_fail("standard output: %s", errno != 0 ? strerror(errno) : "write error");
    }
    return code;
}

uint64_t cli_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

char *cli_count_text(uint64_t value, char text[CLI_COUNT_TEXT])
{
    char digits[CLI_COUNT_TEXT];
    int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
    char *out = text;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) {
            *out++ = ',';
        }
        *out++ = digits[i];
    }
    *out = 0;
    return text;
}

char *cli_bytes_text(uint64_t bytes, char text[CLI_COUNT_TEXT])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024.0 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1024.0;
        unit++;
    }
    (void)snprintf(text, CLI_COUNT_TEXT, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text;
}

char *cli_hex_text(const uint8_t *bytes, size_t count, char *text)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < count; i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
    text[2 * count] = 0;
    return text;
}

uint64_t cli_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
