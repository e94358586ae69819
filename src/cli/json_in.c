/* SPDX-License-Identifier: Apache-2.0 */
#include "json_in.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cli_json_start(cli_json *json, const char *text, size_t bytes, uint64_t line)
{
    memset(json, 0, sizeof *json);
    json->at = text;
    json->end = text + bytes;
    json->line = line;
}

int cli_json_fail(cli_json *json, const char *format, ...)
{
    if (!json->failed) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(json->error, sizeof json->error, format, arguments);
        va_end(arguments);
        cli_one_line(json->error);
        json->failed = 1;
    }
    return -1;
}

/* What stands here instead of `expected`, in words. */
static int unexpected(cli_json *json, const char *expected)
{
    if (json->at == json->end) {
        json->cut_off = !json->failed;
        return cli_json_fail(json, "ends where %s should be", expected);
    }
    unsigned char c = (unsigned char)*json->at;
    if (c > 0x20 && c < 0x7f) {
        return cli_json_fail(json, "'%c' where %s should be", c, expected);
    }
    return cli_json_fail(json, "byte 0x%02x where %s should be", c, expected);
}

static void skip_blanks(cli_json *json)
{
    for (; json->at < json->end; json->at++) {
        char c = *json->at;
        if (c == '\n') {
            json->line++;
        } else if (c != ' ' && c != '\t' && c != '\r') {
            return;
        }
    }
}

static int take(cli_json *json, char c)
{
    if (json->at < json->end && *json->at == c) {
        json->at++;
        return 1;
    }
    return 0;
}

cli_json_type cli_json_peek(cli_json *json)
{
    if (json->failed) {
        return CLI_JSON_BAD;
    }
    skip_blanks(json);
    char c = json->at < json->end ? *json->at : 0;
    if (c == '{') {
        return CLI_JSON_OBJECT;
    }
    if (c == '[') {
        return CLI_JSON_ARRAY;
    }
    if (c == '"') {
        return CLI_JSON_STRING;
    }
    if (c == '-' || (c >= '0' && c <= '9')) {
        return CLI_JSON_NUMBER;
    }
    if (c == 't' || c == 'f' || c == 'n') {
        return CLI_JSON_WORD;
    }
    (void)unexpected(json, "a value");
    return CLI_JSON_BAD;
}

static int begin(cli_json *json, char bracket, const char *what)
{
    if (json->failed) {
        return -1;
    }
    skip_blanks(json);
    if (json->depth == CLI_JSON_DEPTH_MAX) {
        return cli_json_fail(json, "nested more than %d deep", CLI_JSON_DEPTH_MAX);
    }
    if (!take(json, bracket)) {
        return unexpected(json, what);
    }
    json->depth++;
    json->fresh = 1;
    return 0;
}

/* 1 = an element follows, 0 = the closing bracket was consumed. */
static int next(cli_json *json, char bracket)
{
    if (json->failed) {
        return -1;
    }
    skip_blanks(json);
    if (take(json, bracket)) {
        json->depth--;
        json->fresh = 0;
        return 0;
    }
    if (!json->fresh && !take(json, ',')) {
        return unexpected(json, bracket == '}' ? "',' or '}'" : "',' or ']'");
    }
    json->fresh = 0;
    skip_blanks(json);
    return 1;
}

int cli_json_begin_object(cli_json *json)
{
    return begin(json, '{', "an object");
}

int cli_json_begin_array(cli_json *json)
{
    return begin(json, '[', "a list");
}

int cli_json_next_item(cli_json *json)
{
    return next(json, ']');
}

static int hex4(cli_json *json, uint32_t *code)
{
    *code = 0;
    for (int i = 0; i < 4; i++, json->at++) {
        char c = json->at < json->end ? *json->at : 0;
        uint32_t digit;
        if (c >= '0' && c <= '9') {
            digit = (uint32_t)(c - '0');
        } else if ((c | 32) >= 'a' && (c | 32) <= 'f') {
            digit = (uint32_t)((c | 32) - 'a') + 10;
        } else {
            return unexpected(json, "a hex digit");
        }
        *code = *code * 16 + digit;
    }
    return 0;
}

static size_t utf8_encode(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t tail = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const uint32_t lead[] = {0, 0xc0, 0xe0, 0xf0};
    out[0] = (char)(lead[tail] | (code >> (6 * tail)));
    for (size_t i = 1; i <= tail; i++) {
        out[i] = (char)(0x80 | ((code >> (6 * (tail - i))) & 0x3f));
    }
    return tail + 1;
}

/* Behind the backslash. Returns the bytes written to out, or -1. */
static int escape(cli_json *json, char out[4])
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    uint32_t code, low;
    const char *known = json->at < json->end && *json->at != 0 ? strchr(from, *json->at) : NULL;
    if (known != NULL) {
        json->at++;
        out[0] = to[known - from];
        return 1;
    }
    if (!take(json, 'u')) {
        return unexpected(json, "an escape");
    }
    if (hex4(json, &code) != 0) {
        return -1;
    }
    if (code >= 0xd800 && code < 0xdc00 && take(json, '\\') && take(json, 'u')) {
        if (hex4(json, &low) != 0) {
            return -1;
        }
        if (low >= 0xdc00 && low < 0xe000) {
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        }
    }
    if (code >= 0xd800 && code < 0xe000) {
        return cli_json_fail(json, "half a surrogate pair in a string");
    }
    if (code == 0) {
        return cli_json_fail(json, "a NUL in a string");
    }
    return (int)utf8_encode(code, out);
}

/* Length of the well-formed UTF-8 sequence at `at`, or 0. */
static size_t utf8_length(const char *at, const char *end)
{
    const unsigned char *u = (const unsigned char *)at;
    size_t left = (size_t)(end - at);
    size_t length = u[0] < 0x80 ? 1 : u[0] < 0xc2 ? 0 : u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : u[0] < 0xf5 ? 4 : 0;
    if (length == 0 || length > left) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((u[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    /* Overlong forms, surrogates, beyond U+10FFFF. */
    if ((u[0] == 0xe0 && u[1] < 0xa0) || (u[0] == 0xed && u[1] > 0x9f) || (u[0] == 0xf0 && u[1] < 0x90) ||
        (u[0] == 0xf4 && u[1] > 0x8f)) {
        return 0;
    }
    return length;
}

/* One character of a string, decoded. Returns its bytes, 0 at the closing quote, -1. */
static int character(cli_json *json, char out[4])
{
    if (take(json, '"')) {
        return 0;
    }
    if (take(json, '\\')) {
        return escape(json, out);
    }
    if (json->at == json->end || (unsigned char)*json->at < 0x20) {
        return unexpected(json, "the end of a string");
    }
    size_t length = utf8_length(json->at, json->end);
    if (length == 0) {
        return cli_json_fail(json, "byte 0x%02x is not UTF-8", (unsigned char)*json->at);
    }
    memcpy(out, json->at, length);
    json->at += length;
    return (int)length;
}

/* Decodes into text as far as it fits; *cut says whether it did not. */
static int string(cli_json *json, char *text, size_t text_bytes, int *cut)
{
    char out[4];
    size_t used = 0;
    int length;
    *cut = 0;
    skip_blanks(json);
    if (json->failed || !take(json, '"')) {
        return json->failed ? -1 : unexpected(json, "a string");
    }
    while ((length = character(json, out)) > 0) {
        if (*cut || used + (size_t)length >= text_bytes) {
            *cut = 1;
            continue;
        }
        memcpy(text + used, out, (size_t)length);
        used += (size_t)length;
    }
    if (text_bytes > 0) {
        text[used] = 0;
    }
    return length;
}

int cli_json_string(cli_json *json, char *text, size_t text_bytes)
{
    int cut;
    if (string(json, text, text_bytes, &cut) != 0) {
        return -1;
    }
    return cut ? cli_json_fail(json, "a string of more than %zu bytes", text_bytes - 1) : 0;
}

int cli_json_next_key(cli_json *json, char *key, size_t key_bytes)
{
    int cut;
    int more = next(json, '}');
    if (more != 1) {
        return more;
    }
    if (string(json, key, key_bytes, &cut) != 0) {
        return -1;
    }
    skip_blanks(json);
    return take(json, ':') ? 1 : unexpected(json, "':'");
}

int cli_json_field(cli_json *json, const char *const *keys, const char *key, uint32_t *seen)
{
    int at = 0;
    while (keys[at] != NULL && strcmp(keys[at], key) != 0) {
        at++;
    }
    if (keys[at] != NULL && (*seen & 1u << at)) {
        return cli_json_fail(json, "%s is there twice", key);
    }
    *seen |= keys[at] != NULL ? 1u << at : 0;
    return at;
}

static size_t digits(cli_json *json)
{
    const char *from = json->at;
    while (json->at < json->end && *json->at >= '0' && *json->at <= '9') {
        json->at++;
    }
    return (size_t)(json->at - from);
}

/* Where a number's parts lie in the text. */
typedef struct number {
    const char *text;
    size_t length;
    int negative, exponent;
    const char *whole, *fraction;
    size_t whole_digits, fraction_digits;
} number;

static int scan_number(cli_json *json, number *n)
{
    memset(n, 0, sizeof *n);
    skip_blanks(json);
    if (json->failed) {
        return -1;
    }
    n->text = json->at;
    n->negative = take(json, '-');
    n->whole = json->at;
    n->whole_digits = digits(json);
    if (n->whole_digits == 0) {
        return unexpected(json, n->negative ? "a digit" : "a number");
    }
    if (n->whole_digits > 1 && n->whole[0] == '0') {
        return cli_json_fail(json, "a number with a leading zero");
    }
    if (take(json, '.')) {
        n->fraction = json->at;
        n->fraction_digits = digits(json);
        if (n->fraction_digits == 0) {
            return unexpected(json, "a digit");
        }
    }
    if (take(json, 'e') || take(json, 'E')) {
        n->exponent = 1;
        (void)(take(json, '+') || take(json, '-'));
        if (digits(json) == 0) {
            return unexpected(json, "a digit");
        }
    }
    n->length = (size_t)(json->at - n->text);
    return 0;
}

static int digits_u64(const char *text, size_t count, uint64_t *value)
{
    *value = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t digit = (uint64_t)(text[i] - '0');
        if (*value > (UINT64_MAX - digit) / 10) {
            return -1;
        }
        *value = *value * 10 + digit;
    }
    return 0;
}

int cli_json_u64(cli_json *json, uint64_t *value)
{
    number n;
    if (scan_number(json, &n) != 0) {
        return -1;
    }
    if (n.negative || n.exponent || n.fraction != NULL) {
        return cli_json_fail(json, "%.*s is not a whole number from 0", (int)(n.length < 40 ? n.length : 40), n.text);
    }
    if (digits_u64(n.whole, n.whole_digits, value) != 0) {
        return cli_json_fail(json, "%.*s is beyond 2^64 - 1", (int)(n.length < 40 ? n.length : 40), n.text);
    }
    return 0;
}

/* The rare form with an exponent: as exact as a double. */
static int decimal_from_double(cli_json *json, const number *n, cli_decimal *value)
{
    char text[64];
    if (n->length >= sizeof text) {
        return cli_json_fail(json, "a number of more than %zu characters", sizeof text - 1);
    }
    memcpy(text, n->text, n->length);
    text[n->length] = 0;
    double number_value = strtod(text, NULL);
    if (!(fabs(number_value) < 9.0e18)) {
        return cli_json_fail(json, "%s is out of range", text);
    }
    double whole = floor(number_value);
    double nano = (number_value - whole) * 1e9;
    value->whole = (int64_t)whole;
    value->nano = nano < 999999999.0 ? (uint32_t)nano : 999999999u;
    return 0;
}

int cli_json_decimal(cli_json *json, cli_decimal *value)
{
    number n;
    uint64_t whole;
    if (scan_number(json, &n) != 0) {
        return -1;
    }
    if (n.exponent) {
        return decimal_from_double(json, &n, value);
    }
    if (digits_u64(n.whole, n.whole_digits, &whole) != 0 || whole > INT64_MAX) {
        return cli_json_fail(json, "%.*s is out of range", (int)(n.length < 40 ? n.length : 40), n.text);
    }
    value->whole = (int64_t)whole;
    value->nano = 0;
    for (size_t i = 0; i < 9; i++) {
        uint32_t digit = i < n.fraction_digits ? (uint32_t)(n.fraction[i] - '0') : 0;
        value->nano = value->nano * 10 + digit;
    }
    if (n.negative) {
        value->whole = value->nano != 0 ? -value->whole - 1 : -value->whole;
        value->nano = value->nano != 0 ? 1000000000u - value->nano : 0;
    }
    return 0;
}

static int word(cli_json *json, const char *text)
{
    size_t length = strlen(text);
    if ((size_t)(json->end - json->at) < length || memcmp(json->at, text, length) != 0) {
        return 0;
    }
    json->at += length;
    return 1;
}

int cli_json_null(cli_json *json)
{
    skip_blanks(json);
    return !json->failed && word(json, "null");
}

/* Recursion is bounded: begin() refuses more than CLI_JSON_DEPTH_MAX levels. */
int cli_json_skip(cli_json *json)
{
    number n;
    char nothing[1];
    int more, cut;
    switch (cli_json_peek(json)) {
    case CLI_JSON_OBJECT:
        (void)cli_json_begin_object(json);
        while ((more = cli_json_next_key(json, nothing, sizeof nothing)) == 1) {
            (void)cli_json_skip(json);
        }
        return more;
    case CLI_JSON_ARRAY:
        (void)cli_json_begin_array(json);
        while ((more = cli_json_next_item(json)) == 1) {
            (void)cli_json_skip(json);
        }
        return more;
    case CLI_JSON_STRING:
        return string(json, nothing, sizeof nothing, &cut);
    case CLI_JSON_NUMBER:
        return scan_number(json, &n);
    case CLI_JSON_WORD:
        return word(json, "true") || word(json, "false") || word(json, "null") ? 0 : unexpected(json, "a value");
    default:
        return -1;
    }
}

int cli_json_finish(cli_json *json)
{
    if (json->failed) {
        return -1;
    }
    skip_blanks(json);
    return json->at == json->end ? 0 : unexpected(json, "the end of the line");
}
