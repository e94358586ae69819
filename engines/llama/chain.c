/* SPDX-License-Identifier: Apache-2.0 */
/* The names of the blocks of the prompt at hand. */
#include "adapter.h"

#include <stdlib.h>
#include <string.h>

void llama_chain_forget(kvo_llama *kv)
{
    kv->chain.count = 0;
    kv->chain.done = 0;
}

static bool grow(kv_chain *chain, size_t blocks, uint32_t block_tokens)
{
    const size_t capacity = blocks + blocks / 2 + 16;
    int32_t *tokens;
    uint8_t *names;

    if (blocks <= chain->capacity)
        return true;
    tokens = realloc(chain->tokens, capacity * block_tokens * sizeof *tokens);
    if (tokens != NULL)
        chain->tokens = tokens;
    names = realloc(chain->names, capacity * NAME_BYTES);
    if (names != NULL)
        chain->names = names;
    if (tokens == NULL || names == NULL)
        return false;
    chain->capacity = capacity;
    return true;
}

/* Leading blocks that the chain and the tokens have in common. */
static size_t common(const kv_chain *chain, const int32_t *tokens, size_t blocks, uint32_t block_tokens)
{
    size_t count = 0;

    while (count < blocks && count < chain->count &&
           memcmp(chain->tokens + count * block_tokens, tokens + count * block_tokens,
                  block_tokens * sizeof *tokens) == 0)
        count++;
    return count;
}

const uint8_t *llama_chain(kvo_llama *kv, const int32_t *tokens, size_t blocks)
{
    kv_chain *chain = &kv->chain;
    kvo_chain how = KVO_CHAIN_INIT;
    const size_t have = common(chain, tokens, blocks, kv->block_tokens);
    const int32_t *rest = tokens + have * kv->block_tokens;
    const size_t rest_count = (blocks - have) * kv->block_tokens;
    size_t named;

    if (have == blocks && blocks > 0)
        return chain->names;
    if (!grow(chain, blocks, kv->block_tokens))
        return NULL;
    how.space_digest = kv->shape->digest;
    how.salt = kv->salt;
    how.salt_bytes = kv->salt_bytes;
    how.parent = have == 0 ? NULL : chain->names + (have - 1) * NAME_BYTES;
    how.block_tokens = kv->block_tokens;
    chain->count = have;
    chain->done = chain->done < have ? chain->done : have;
    if (kvo_chain_names(&how, (const uint32_t *)rest, rest_count, chain->names + have * NAME_BYTES, blocks - have,
                        &named) != KVO_OK)
        return NULL;
    memcpy(chain->tokens + have * kv->block_tokens, rest, rest_count * sizeof *rest);
    chain->count = blocks;
    return chain->names;
}
