/* SPDX-License-Identifier: Apache-2.0 */
/* A size is taken if and only if it is one, and means what long-hand arithmetic says. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvonce.h"

enum { DIGITS_MAX = 4096 };

/* The grammar, as a person would write it down: digits[.digits][unit]. */
typedef struct parts {
    size_t whole, fraction; /* counts of digits */
    bool point;
    int shift; /* -1: not a size */
} parts;

static size_t digits(const char *text)
{
    return strspn(text, "0123456789");
}

static int shift_of(const char *unit)
{
    static const char *const units[] = {"", "K", "M", "G", "T", "P"};
    char upper[8] = "";
    if (strlen(unit) > 3)
        return -1;
    for (size_t i = 0; unit[i]; i++)
        upper[i] = unit[i] >= 'a' && unit[i] <= 'z' ? (char)(unit[i] - 'a' + 'A') : unit[i];
    for (int i = 0; i < 6; i++)
        for (int form = 0; form < (i ? 3 : 1); form++) {
            char is[8];
            snprintf(is, sizeof is, "%s%s", units[i], form == 0 ? "" : form == 1 ? "B" : "IB");
            if (strcmp(is, upper) == 0)
                return 10 * i;
        }
    return -1;
}

static parts split(const char *text)
{
    parts p = {.whole = digits(text), .shift = -1};
    const char *at = text + p.whole;
    if (*at == '.') {
        p.point = true;
        p.fraction = digits(++at);
        at += p.fraction;
    }
    if (p.whole && (!p.point || p.fraction))
        p.shift = shift_of(at);
    return p;
}

/* All digits as one number, doubled as often as the unit says; as text, without the digits that the fraction has,
   which must be zeros: else NULL. */
static const char *scaled(const char *text, parts p, char *number)
{
    size_t count = p.whole + p.fraction, room = count + 20;
    memset(number, 0, room);
    memcpy(number + 20, text, p.whole);
    if (p.fraction)
        memcpy(number + 20 + p.whole, text + p.whole + 1, p.fraction);
    for (size_t i = 20; i < room; i++)
        number[i] = (char)(number[i] - '0');
    for (int bit = 0; bit < p.shift; bit++)
        for (size_t i = room, carry = 0; i-- > 0;) {
            size_t doubled = 2 * (size_t)number[i] + carry;
            number[i] = (char)(doubled % 10);
            carry = doubled / 10;
        }
    for (size_t i = room - p.fraction; i < room; i++)
        if (number[i] != 0)
            return NULL;
    size_t end = room - p.fraction, first = 0;
    while (first + 1 < end && number[first] == 0)
        first++;
    for (size_t i = first; i < end; i++)
        number[i] = (char)(number[i] + '0');
    number[end] = 0;
    return number + first;
}

static bool below_2_63(const char *decimal)
{
    static const char end[] = "9223372036854775808";
    size_t n = strlen(decimal);
    return n < strlen(end) || (n == strlen(end) && strcmp(decimal, end) < 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static char number[DIGITS_MAX + 64];
    if (bytes > DIGITS_MAX)
        return 0;
    char *text = fuzz_text(data, bytes);
    parts p = split(text);
    const char *is = p.shift < 0 ? NULL : scaled(text, p, number);
    bool good = is != NULL && below_2_63(is);
    uint64_t value = 77;
    kvo_error error = {""};
    int status = kvo_parse_size(text, &value, &error);
    MUST((status == KVO_OK) == good, "\"%s\": %s", text, good ? error.text : "was taken");
    if (good) {
        char again[32];
        snprintf(again, sizeof again, "%llu", (unsigned long long)value);
        MUST(strcmp(again, is) == 0, "\"%s\": %s, not %s", text, again, is);
        uint64_t second = 0;
        MUST(kvo_parse_size(again, &second, NULL) == KVO_OK && second == value, "%s does not read back", again);
    } else {
        MUST(status == KVO_E_RANGE && value == 77, "\"%s\": status %d, value %llu", text, status,
             (unsigned long long)value);
        fuzz_must_be_line(error.text);
    }
    free(text);
    return 0;
}
