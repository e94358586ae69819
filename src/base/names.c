/* SPDX-License-Identifier: Apache-2.0 */
#include "base/names.h"
#include "base/bytes.h"
#include "base/options.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <string.h>

enum {
    DIGEST_BYTES = 32,
    SALT_MAX = 255,
    TOKENS_MAX = 65535,
    LINK_BYTES = 8 + DIGEST_BYTES,
    FIRST_BYTES = LINK_BYTES + 8 + 4 + SALT_MAX
};

/* Fetching takes locks and searches providers, so it is done once. The digest is immutable from
   then on and stays until the process ends. */
static pthread_once_t sha256_once = PTHREAD_ONCE_INIT;
static EVP_MD *sha256_digest;

static void fetch_sha256(void)
{
    sha256_digest = EVP_MD_fetch(NULL, "SHA256", NULL);
}

/* KVO_OK and *hash, to be freed by EVP_MD_CTX_free(). */
static int hash_begin(EVP_MD_CTX **hash)
{
    *hash = NULL;
    if (pthread_once(&sha256_once, fetch_sha256) != 0 || sha256_digest == NULL)
        return KVO_E_UNSUPPORTED;
    *hash = EVP_MD_CTX_new();
    return *hash == NULL ? KVO_E_MEMORY : KVO_OK;
}

static int hash_start(EVP_MD_CTX *hash, const void *bytes, size_t count)
{
    return EVP_DigestInit_ex2(hash, sha256_digest, NULL) == 1 && EVP_DigestUpdate(hash, bytes, count) == 1;
}

int base_sha256(const void *bytes, size_t count, uint8_t digest[32])
{
    EVP_MD_CTX *hash;

    int status = hash_begin(&hash);
    if (status == KVO_OK && !(hash_start(hash, bytes, count) && EVP_DigestFinal_ex(hash, digest, NULL) == 1))
        status = KVO_E_MEMORY;
    EVP_MD_CTX_free(hash);
    return status;
}

int kvo_space_digest(const kvo_space_config *config, uint8_t digest[32])
{
    uint8_t encoded[BASE_SPACE_ENCODED_MAX];
    base_space_record record;

    if (config == NULL || digest == NULL)
        return KVO_E_ARGUMENT;
    const int status = base_space_take(config, &record, NULL, NULL);
    if (status != KVO_OK)
        return status;
    return base_sha256(encoded, base_space_record_encode(&record, encoded, sizeof encoded), digest);
}

/* ---- Chains ------------------------------------------------------------- */

/* What stands before the tokens of a chain's first block. */
static size_t encode_first(const kvo_chain *chain, uint8_t out[FIRST_BYTES])
{
    memcpy(out, "KVF1", 4);
    base_put_u32(out + 4, chain->block_tokens);
    memcpy(out + 8, chain->space_digest, DIGEST_BYTES);
    base_put_u64(out + 40, chain->seed);
    base_put_u32(out + 48, (uint32_t)chain->salt_bytes);
    if (chain->salt_bytes > 0)
        memcpy(out + 52, chain->salt, chain->salt_bytes);
    return 52 + chain->salt_bytes;
}

static size_t encode_link(const kvo_chain *chain, const uint8_t *parent, uint8_t out[FIRST_BYTES])
{
    memcpy(out, "KVN1", 4);
    base_put_u32(out + 4, chain->block_tokens);
    memcpy(out + 8, parent, DIGEST_BYTES);
    return LINK_BYTES;
}

/* In pieces, so that the bytes are little-endian on every machine and nothing is allocated. */
static int hash_tokens(EVP_MD_CTX *hash, const uint32_t *tokens, size_t count)
{
    uint8_t piece[64 * 4];

    for (size_t i = 0; i < count;) {
        const size_t here = count - i < 64 ? count - i : 64;
        for (size_t k = 0; k < here; k++)
            base_put_u32(piece + 4 * k, tokens[i + k]);
        if (EVP_DigestUpdate(hash, piece, 4 * here) != 1)
            return 0;
        i += here;
    }
    return 1;
}

static int name_block(EVP_MD_CTX *hash, const kvo_chain *chain, const uint8_t *parent, const uint32_t *tokens,
                      uint8_t name[DIGEST_BYTES])
{
    uint8_t head[FIRST_BYTES];

    const size_t bytes = parent == NULL ? encode_first(chain, head) : encode_link(chain, parent, head);
    return hash_start(hash, head, bytes) && hash_tokens(hash, tokens, chain->block_tokens) &&
           EVP_DigestFinal_ex(hash, name, NULL) == 1;
}

static int check_chain(const kvo_chain *chain)
{
    if (chain->block_tokens < 1 || chain->block_tokens > TOKENS_MAX)
        return KVO_E_RANGE;
    if (chain->parent != NULL)
        return KVO_OK;
    if (chain->space_digest == NULL || (chain->salt == NULL && chain->salt_bytes > 0))
        return KVO_E_ARGUMENT;
    return chain->salt_bytes > SALT_MAX ? KVO_E_RANGE : KVO_OK;
}

static int name_blocks(const kvo_chain *chain, const uint32_t *tokens, uint8_t *names, size_t count)
{
    const uint8_t *parent = chain->parent;
    EVP_MD_CTX *hash;

    int status = hash_begin(&hash);
    for (size_t i = 0; status == KVO_OK && i < count; i++) {
        uint8_t *name = names + i * DIGEST_BYTES;
        if (!name_block(hash, chain, parent, tokens + i * chain->block_tokens, name))
            status = KVO_E_MEMORY;
        parent = name;
    }
    EVP_MD_CTX_free(hash);
    return status;
}

int kvo_chain_names(const kvo_chain *chain, const uint32_t *tokens, size_t token_count, uint8_t *names,
                    size_t names_capacity, size_t *count)
{
    kvo_chain full = KVO_CHAIN_INIT;

    if (chain == NULL || count == NULL)
        return KVO_E_ARGUMENT;
    *count = 0;
    int status = base_options_take(&full, sizeof full, chain);
    if (status == KVO_OK)
        status = check_chain(&full);
    if (status != KVO_OK)
        return status;
    size_t blocks = token_count / full.block_tokens;
    if (blocks > names_capacity)
        blocks = names_capacity;
    if (blocks == 0)
        return KVO_OK;
    if (tokens == NULL || names == NULL)
        return KVO_E_ARGUMENT;
    status = name_blocks(&full, tokens, names, blocks);
    if (status == KVO_OK)
        *count = blocks;
    return status;
}
