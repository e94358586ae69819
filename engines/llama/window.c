/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which window cells are stored. A restore that ends at E needs those of the last n_swa positions before E, and
 * the base rows of all. Most of the bytes of such a model are window cells (Gemma-3-270M: 83 %), and most of them are
 * never an end's. Kept are those of ends that are foreseeable: multiples of a stride; where a caller said that a
 * prompt or an answer ends; where a restore found base rows but had to stop earlier, which is where prompts part.
 * All counts are blocks.
 */
#include "adapter.h"

size_t llama_window_first(const kvo_llama *kv, size_t end)
{
    const uint64_t tokens = (uint64_t)end * kv->block_tokens;

    return tokens <= kv->window ? 0 : (size_t)((tokens - kv->window) / kv->block_tokens);
}

static bool within(const kvo_llama *kv, size_t block, size_t end)
{
    return block < end && block >= llama_window_first(kv, end);
}

bool llama_window_needed(const kvo_llama *kv, size_t block, size_t kept_end)
{
    const size_t stride = kv->window_stride < kv->block_tokens ? 1 : kv->window_stride / kv->block_tokens;

    return kv->window_stride <= kv->window || within(kv, block, (block / stride + 1) * stride) ||
           within(kv, block, kept_end) || within(kv, block, kv->wanted_end);
}
