/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine that stands in for llama.cpp where no weights are: one cache, or a base and a sliding window, of cells that
 * sequences share; states are written and read as blob.h says, strictly. What a token leads to is a number that
 * depends on every K and V row that it may see, on its position and on nothing else, so that a cell too many, too few,
 * or with another byte gives another number.
 */
#ifndef LLAMA_FAKE_H
#define LLAMA_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvonce_llama.h>

typedef struct fake_options {
    uint32_t sequences, cells; /* n_seq_max, n_ctx */
    uint32_t window;           /* n_swa; 0: one cache */
    uint32_t batch;            /* n_ubatch */
    uint32_t original;         /* cells beyond which positions are turned in another way, as LongRoPE does; 0: never */
    bool apart;                /* not unified */
    bool rotation;             /* the newer form */
    bool transposed;
    bool hybrid;
    bool scrambled;            /* a form that nobody knows */
    uint8_t type;              /* ggml's: 1 or 8 */
} fake_options;

struct llama_context *fake_open(const fake_options *options);
void fake_close(struct llama_context *context);
kvo_llama_functions fake_functions(void);

/* Computes tokens at positions from .. to - 1 in batches; false: no room. */
bool fake_decode(struct llama_context *context, int32_t sequence, const int32_t *tokens, size_t from, size_t to);
/* What the last token led to; and what it must lead to, computed without any cache. */
uint64_t fake_answer(const struct llama_context *context);
uint64_t fake_right_answer(const fake_options *options, const int32_t *tokens, size_t count);
/* Cells that are taken, of both caches. */
uint32_t fake_used(const struct llama_context *context);

#endif
