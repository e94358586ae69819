/* SPDX-License-Identifier: Apache-2.0 */
#include "payload.h"

#include "common.h"

#include <string.h>

#define NAME_TAG ((uint64_t)'r' << 56)

/* Spelled out, compilers make one store of it. */
static void write_u64(uint8_t *out, uint64_t value)
{
    out[0] = (uint8_t)(value >> 56);
    out[1] = (uint8_t)(value >> 48);
    out[2] = (uint8_t)(value >> 40);
    out[3] = (uint8_t)(value >> 32);
    out[4] = (uint8_t)(value >> 24);
    out[5] = (uint8_t)(value >> 16);
    out[6] = (uint8_t)(value >> 8);
    out[7] = (uint8_t)value;
}

void cli_name_write(uint8_t name[CLI_NAME_BYTES], uint32_t scope, uint64_t id)
{
    write_u64(name, NAME_TAG | scope);
    write_u64(name + 8, id);
}

static uint64_t read_u64(const uint8_t *bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++) {
        value = value << 8 | bytes[i];
    }
    return value;
}

int cli_name_read(const uint8_t *name, size_t name_bytes, uint32_t *scope, uint64_t *id)
{
    if (name_bytes != CLI_NAME_BYTES) {
        return 0;
    }
    uint64_t tagged = read_u64(name);
    *scope = (uint32_t)tagged;
    *id = read_u64(name + 8);
    return (tagged & ~(uint64_t)UINT32_MAX) == NAME_TAG;
}

/*
 * Word i is mix(start + i x step): a Weyl sequence, with a shift that brings the quick upper
 * bits into the slow lower ones. It costs about what reading memory costs, and the compiler can
 * do several words at once; start and odd step differ from name to name in all bits.
 */
typedef struct stream {
    uint64_t word, step;
} stream;

static stream stream_start(const uint8_t *name)
{
    uint64_t state = read_u64(name) * 0xff51afd7ed558ccdu ^ read_u64(name + 8);
    stream s;
    s.word = cli_random(&state);
    s.step = cli_random(&state) | 1;
    return s;
}

static uint64_t stream_word(const stream *s, uint64_t index)
{
    uint64_t word = s->word + index * s->step;
    return word ^ word >> 31;
}

void cli_payload_fill(const uint8_t name[CLI_NAME_BYTES], void *payload, size_t bytes)
{
    stream s = stream_start(name);
    uint8_t *out = payload;
    uint64_t words = bytes / 8;
    for (uint64_t i = 0; i < words; i++) {
        uint64_t word = stream_word(&s, i);
        memcpy(out + 8 * i, &word, 8);
    }
    uint64_t last = stream_word(&s, words);
    memcpy(out + 8 * words, &last, bytes % 8);
}

int cli_payload_is(const uint8_t name[CLI_NAME_BYTES], const void *payload, size_t bytes)
{
    stream s = stream_start(name);
    const uint8_t *in = payload;
    uint64_t words = bytes / 8;
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < words; i++) {
        uint64_t word;
        memcpy(&word, in + 8 * i, 8);
        wrong |= word ^ stream_word(&s, i);
    }
    uint64_t last = stream_word(&s, words);
    return wrong == 0 && memcmp(in + 8 * words, &last, bytes % 8) == 0;
}
