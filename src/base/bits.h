/* SPDX-License-Identifier: Apache-2.0 */
/* Bitmaps of plain words. */
#ifndef BASE_BITS_H
#define BASE_BITS_H

#include <stdbool.h>
#include <stdint.h>

static inline bool bits_get(const uint64_t *bits, uint64_t i)
{
    return bits[i / 64] >> (i % 64) & 1;
}
static inline void bits_set(uint64_t *bits, uint64_t i)
{
    bits[i / 64] |= 1ull << (i % 64);
}
static inline void bits_clear(uint64_t *bits, uint64_t i)
{
    bits[i / 64] &= ~(1ull << (i % 64));
}

#endif
