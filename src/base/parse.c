/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"
#include "base/text.h"

#include <string.h>

#define SIZE_END (UINT64_C(1) << 63)

/* A piece of a text that belongs to somebody else. */
typedef struct piece {
    const char *at;
    size_t count;
} piece;

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int piece_is(piece text, const char *word)
{
    return text.count == strlen(word) && memcmp(text.at, word, text.count) == 0;
}

/* In either case; `word` is lower. Not strcasecmp(), which follows the locale. */
static int piece_is_word(piece text, const char *word)
{
    if (text.count != strlen(word))
        return 0;
    for (size_t i = 0; i < text.count; i++)
        if ((text.at[i] | 0x20) != word[i])
            return 0;
    return 1;
}

static piece piece_from(piece text, size_t start)
{
    return (piece){text.at + start, text.count - start};
}

static piece take_digits(piece *text)
{
    piece digits = {text->at, 0};

    while (digits.count < text->count && is_digit(text->at[digits.count]))
        digits.count++;
    *text = piece_from(*text, digits.count);
    return digits;
}

/* The value of a run of digits, or SIZE_END if it is not below that. */
static uint64_t whole_number(piece digits)
{
    uint64_t value = 0;

    for (size_t i = 0; i < digits.count; i++) {
        const uint64_t digit = (uint64_t)(digits.at[i] - '0');
        if (value > (SIZE_END - 1 - digit) / 10)
            return SIZE_END;
        value = value * 10 + digit;
    }
    return value;
}

/* The power of two that a unit stands for, or -1. */
static int unit_shift(piece unit)
{
    static const char letters[] = "kmgtp";

    if (unit.count == 0)
        return 0;
    const char *letter = memchr(letters, unit.at[0] | 0x20, 5);
    const piece tail = piece_from(unit, 1);
    if (letter == NULL || !(tail.count == 0 || piece_is_word(tail, "b") || piece_is_word(tail, "ib")))
        return -1;
    return 10 * (int)(letter - letters + 1);
}

/*
 * 0.DIGITS x 2^shift, exactly: the digits are doubled `shift` times, and what is carried out at
 * the top each time is the next bit of the result. Returns 0 if a fraction of a byte is left.
 */
static int scale_fraction(piece digits, int shift, uint64_t *bytes)
{
    char decimal[50]; /* a whole number of bytes has at most `shift` digits, 50 for P */

    while (digits.count > 0 && digits.at[digits.count - 1] == '0')
        digits.count--;
    if (digits.count > (size_t)shift)
        return 0;
    for (size_t i = 0; i < digits.count; i++)
        decimal[i] = (char)(digits.at[i] - '0');
    *bytes = 0;
    for (int bit = 0; bit < shift; bit++) {
        int carry = 0;
        for (size_t i = digits.count; i-- > 0;) {
            const int doubled = 2 * decimal[i] + carry;
            decimal[i] = (char)(doubled % 10);
            carry = doubled / 10;
        }
        *bytes = *bytes * 2 + (uint64_t)carry;
    }
    for (size_t i = 0; i < digits.count; i++)
        if (decimal[i] != 0)
            return 0;
    return 1;
}

/* NULL, or why the text is not a size. */
static const char *size_of_text(piece text, uint64_t *bytes)
{
    piece rest = text;
    piece fraction = {text.at, 0};
    uint64_t fraction_bytes = 0;

    const piece whole = take_digits(&rest);
    if (whole.count == 0)
        return "is not a plain decimal number";
    if (rest.count > 0 && rest.at[0] == '.') {
        rest = piece_from(rest, 1);
        fraction = take_digits(&rest);
        if (fraction.count == 0)
            return "has no digit after the point";
    }
    const int shift = unit_shift(rest);
    if (shift < 0)
        return "has something behind the number that is not a unit";
    const uint64_t value = whole_number(whole);
    if (value >= SIZE_END >> shift)
        return "is too large (2^63 bytes or more)";
    if (!scale_fraction(fraction, shift, &fraction_bytes))
        return "is not a whole number of bytes";
    *bytes = (value << shift) + fraction_bytes;
    return NULL;
}

#define SIZE_ADVICE "write digits and K, M, G, T or P (powers of 1024), like 512M or 1.5G"

int kvo_parse_size(const char *text, uint64_t *bytes, kvo_error *error)
{
    if (text == NULL || bytes == NULL)
        return base_fail(error, KVO_E_ARGUMENT,
                         "size: a null pointer; pass a text and a place for the bytes");
    const piece whole = {text, strlen(text)};
    const char *why = size_of_text(whole, bytes);
    if (why != NULL)
        return base_fail(error, KVO_E_RANGE, "size %s %s; " SIZE_ADVICE,
                         base_quote(whole.at, whole.count).text, why);
    return KVO_OK;
}

/* ---- Tiers -------------------------------------------------------------- */

typedef struct tier_parser {
    kvo_error *error;
    uint32_t number; /* of the tier, from 1 */
    piece text;      /* of the tier */
    char *paths;     /* room that is left */
    size_t paths_bytes;
} tier_parser;

static int tier_fail(const tier_parser *parser, const char *what)
{
    return base_fail(parser->error, KVO_E_RANGE, "tier %u, %s: %s", parser->number,
                     base_quote(parser->text.at, parser->text.count).text, what);
}

static int capacity_fail(const tier_parser *parser, piece text, const char *why)
{
    return base_fail(parser->error, KVO_E_RANGE,
                     "tier %u, %s: capacity %s %s; write a size like 1.5G, a count like 2000blk, or inf",
                     parser->number, base_quote(parser->text.at, parser->text.count).text,
                     base_quote(text.at, text.count).text, why);
}

static int parse_capacity(const tier_parser *parser, piece text, kvo_tier_config *tier)
{
    piece rest = text;
    const piece digits = take_digits(&rest);

    if (piece_is(text, "inf")) {
        tier->capacity_blocks = KVO_INFINITE;
        return KVO_OK;
    }
    if (digits.count > 0 && piece_is(rest, "blk")) {
        tier->capacity_blocks = whole_number(digits);
        if (tier->capacity_blocks >= SIZE_END)
            return capacity_fail(parser, text, "is too large");
    } else {
        const char *why = size_of_text(text, &tier->capacity_bytes);
        if (why != NULL)
            return capacity_fail(parser, text, why);
    }
    if (tier->capacity_bytes == 0 && tier->capacity_blocks == 0)
        return capacity_fail(parser, text, "is zero");
    return KVO_OK;
}

/* Only what can be meant as a number is one: a path goes on behind its ':' otherwise, and "./20G" is one. */
static int looks_like_capacity(piece text)
{
    if (memchr(text.at, '/', text.count) != NULL)
        return 0;
    if (text.count > 0 && (is_digit(text.at[0]) || text.at[0] == '+' || text.at[0] == '-'))
        return 1;
    if (text.count > 1 && text.at[0] == '.' && is_digit(text.at[1]))
        return 1;
    return piece_is_word(text, "inf") || piece_is_word(text, "nan");
}

/* Copies it behind the paths so far. */
static int keep(tier_parser *parser, piece text, const char **kept)
{
    if (text.count >= parser->paths_bytes)
        return base_fail(parser->error, KVO_E_ARGUMENT,
                         "tier %u, %s: no room for its path; pass strlen(text) + 1 bytes for the paths",
                         parser->number, base_quote(parser->text.at, parser->text.count).text);
    memcpy(parser->paths, text.at, text.count);
    parser->paths[text.count] = '\0';
    *kept = parser->paths;
    parser->paths += text.count + 1;
    parser->paths_bytes -= text.count + 1;
    return KVO_OK;
}

static int take_path(tier_parser *parser, piece path, kvo_tier_config *tier)
{
    if (path.count == 0)
        return tier_fail(parser,
                         "a disk needs a path; write disk:/path:20G, or disk:./20G for a name like that");
    return keep(parser, path, &tier->path);
}

static int parse_disk(tier_parser *parser, kvo_tier_config *tier)
{
    const size_t start = strlen("disk:");
    size_t last = parser->text.count;

    if (parser->text.count < start)
        return take_path(parser, (piece){parser->text.at, 0}, tier);
    while (parser->text.at[last - 1] != ':')
        last--;
    piece path = piece_from(parser->text, start);
    const piece capacity = piece_from(parser->text, last);
    if (capacity.count == 0 && last > start)
        return tier_fail(parser, "nothing behind the last ':'; write a capacity there, or leave the ':' out");
    if (looks_like_capacity(capacity)) {
        path.count = last > start ? last - 1 - start : 0;
        const int status = parse_capacity(parser, capacity, tier);
        if (status != KVO_OK)
            return status;
    }
    return take_path(parser, path, tier);
}

static int parse_dram(const tier_parser *parser, kvo_tier_config *tier)
{
    const size_t start = strlen("dram:");

    if (parser->text.count <= start)
        return tier_fail(parser, "dram needs a capacity; write dram:2G or dram:2000blk");
    const piece capacity = piece_from(parser->text, start);
    if (memchr(capacity.at, ':', capacity.count) != NULL || capacity.at[0] == '/')
        return tier_fail(parser, "dram has no path; write dram:2G");
    return parse_capacity(parser, capacity, tier);
}

/* Up to its end or any of these. */
static piece piece_until(piece text, const char *ends)
{
    size_t count = 0;

    while (count < text.count && strchr(ends, text.at[count]) == NULL)
        count++;
    return (piece){text.at, count};
}

/* Takes "fault:...+" and "delay:...+" off the front. */
static int take_wrappers(tier_parser *parser, kvo_tier_config *tier)
{
    piece rest = parser->text;

    for (;;) {
        const piece word = piece_until(rest, ":+");
        if (!piece_is(word, "fault") && !piece_is(word, "delay"))
            break;
        const piece wrapper = piece_until(rest, "+");
        if (wrapper.count == rest.count)
            return tier_fail(parser, "wraps no tier; write fault+disk:/path:20G or delay:read=5ms+disk:/path:20G");
        rest = piece_from(rest, wrapper.count + 1);
    }
    if (rest.at == parser->text.at)
        return KVO_OK;
    const piece wrappers = {parser->text.at, (size_t)(rest.at - parser->text.at) - 1};
    parser->text = rest;
    return keep(parser, wrappers, &tier->wrappers);
}

static int parse_tier(tier_parser *parser, kvo_tier_config *tier)
{
    *tier = (kvo_tier_config)KVO_TIER_CONFIG_INIT;
    const int status = take_wrappers(parser, tier);
    if (status != KVO_OK)
        return status;
    const piece kind = piece_until(parser->text, ":");
    if (parser->text.count == 0)
        return tier_fail(parser, "empty; write dram:2G or disk:/path:20G, separated by single commas");
    if (piece_is(kind, "dram")) {
        tier->kind = KVO_TIER_DRAM;
        return parse_dram(parser, tier);
    }
    if (piece_is(kind, "disk")) {
        tier->kind = KVO_TIER_DISK;
        return parse_disk(parser, tier);
    }
    return tier_fail(parser, "not a kind of tier; it starts with dram: or disk:");
}

int kvo_parse_tiers(const char *text, kvo_tier_config tiers[KVO_TIERS_MAX], uint32_t *count, char *paths,
                    size_t paths_bytes, kvo_error *error)
{
    if (text == NULL || tiers == NULL || count == NULL || (paths == NULL && paths_bytes > 0))
        return base_fail(error, KVO_E_ARGUMENT,
                         "tiers: a null pointer; pass a text like dram:2G,disk:/path:20G");
    tier_parser parser = {error, 0, {text, 0}, paths, paths_bytes};
    *count = 0;
    for (const char *at = text;; at++) {
        parser.text = (piece){at, strcspn(at, ",")};
        parser.number++;
        if (parser.number > KVO_TIERS_MAX)
            return tier_fail(&parser, "one too many; a store has at most 4 tiers");
        const size_t length = parser.text.count;
        const int status = parse_tier(&parser, &tiers[parser.number - 1]);
        if (status != KVO_OK)
            return status;
        at += length;
        if (*at == '\0')
            break;
    }
    *count = parser.number;
    return KVO_OK;
}
