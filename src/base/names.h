/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptions of spaces and names of blocks, as docs/names.md specifies them. */
#ifndef BASE_NAMES_H
#define BASE_NAMES_H

#include <stddef.h>
#include <stdint.h>

#include "kvonce.h"

enum {
    BASE_SPACE_STRING_MAX = 255,
    BASE_SPACE_EXTRA_MAX = 1024,
    BASE_SPACE_LABEL_MAX = 63,
    BASE_SPACE_ENCODED_MAX = 8 + 14 * 4 + 8 * BASE_SPACE_STRING_MAX + 4 * 4 + 8 + BASE_SPACE_EXTRA_MAX
};

/* A description by value: all of kvo_space_config but the label, which names it and is no part of it. */
typedef struct base_space_record {
    char model[BASE_SPACE_STRING_MAX + 1];
    char revision[BASE_SPACE_STRING_MAX + 1];
    char dtype[BASE_SPACE_STRING_MAX + 1];
    char layout[BASE_SPACE_STRING_MAX + 1];
    char quantisation[BASE_SPACE_STRING_MAX + 1];
    char position_encoding[BASE_SPACE_STRING_MAX + 1];
    char engine[BASE_SPACE_STRING_MAX + 1];
    char engine_version[BASE_SPACE_STRING_MAX + 1];
    uint32_t block_positions;
    uint32_t layers;
    uint32_t kv_heads;
    uint32_t head_size;
    uint64_t block_bytes_max;
    uint32_t extra_bytes;
    uint8_t extra[BASE_SPACE_EXTRA_MAX];
} base_space_record;

/* Checks a caller's config and copies it. label receives its label (64 bytes; may be NULL). */
int base_space_take(const kvo_space_config *config, base_space_record *record,
                    char label[BASE_SPACE_LABEL_MAX + 1], kvo_error *error);

/* The canonical encoding; returns its bytes, or 0 if the config is invalid or capacity too small.
   BASE_SPACE_ENCODED_MAX always suffices. */
size_t base_space_encode(const kvo_space_config *config, uint8_t *out, size_t capacity);
size_t base_space_record_encode(const base_space_record *record, uint8_t *out, size_t capacity);

/* Takes only what base_space_record_encode() gives: KVO_E_DAMAGED for anything else, KVO_E_VERSION
   for another version of the encoding. */
int base_space_decode(const uint8_t *bytes, size_t count, base_space_record *record);

/* One line, every field: model="..." dtype="..." block_positions=16 ... Returns the length of the
   whole line as snprintf does, and out (capacity at least 1) what fits of it. -1: the config is invalid. */
int base_space_describe(const kvo_space_config *config, char *out, size_t capacity);
int base_space_record_describe(const base_space_record *record, char *out, size_t capacity);

/* Only the fields in which two descriptions differ: dtype="bf16" (not "fp16") ... Returns how many. */
int base_space_difference(const base_space_record *is, const base_space_record *is_not, char *out,
                          size_t capacity);

/* KVO_OK, KVO_E_MEMORY, or KVO_E_UNSUPPORTED where libcrypto has no SHA-256. */
int base_sha256(const void *bytes, size_t count, uint8_t digest[32]);

#endif
