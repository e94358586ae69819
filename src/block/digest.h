/* SPDX-License-Identifier: Apache-2.0 */
/* The payload digest: XXH3-128, canonical (big-endian) form, of the bytes that arrived. */
#ifndef BLOCK_DIGEST_H
#define BLOCK_DIGEST_H

#include "kvonce.h"

/* Of one piece of memory. */
void digest_of(const void *data, size_t bytes, uint8_t out[16]);
/* Of memory in segments. */
void digest_segments(const kvo_segment *segments, uint32_t count, uint8_t out[16]);
/* Copies segments into `to` and digests what it stores: each byte of `from` is read once, and the digest is of what was
   read. */
void digest_gather(void *to, const kvo_segment *from, uint32_t count, uint8_t out[16]);
/* Copies `from` into segments (their sum is the length), digesting each piece where it arrived. */
void digest_scatter(const kvo_segment *to, uint32_t count, const void *from, uint8_t out[16]);

/* XXH3-64, for small records. */
uint64_t digest_short(const void *data, size_t bytes);

#endif
