/* SPDX-License-Identifier: Apache-2.0 */
/* As much of llama.cpp's header as the example of docs/llama.md and KVO_LLAMA_FUNCTIONS_INIT need: to compile against,
   never to run. The types are llama.cpp's own. */
#ifndef LLAMA_H
#define LLAMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct llama_model;
struct llama_vocab;
struct llama_context;
typedef struct llama_memory_i *llama_memory_t;
typedef int32_t llama_pos;
typedef int32_t llama_token;
typedef int32_t llama_seq_id;
typedef uint32_t llama_state_seq_flags;
struct llama_model_params {
    int32_t n_gpu_layers;
};
struct llama_context_params {
    uint32_t n_ctx, n_batch, n_ubatch, n_seq_max;
    bool kv_unified;
};
struct llama_batch {
    int32_t n_tokens;
    llama_token *token;
};

void llama_backend_init(void);
struct llama_model_params llama_model_default_params(void);
struct llama_context_params llama_context_default_params(void);
struct llama_model *llama_model_load_from_file(const char *path_model, struct llama_model_params params);
struct llama_context *llama_init_from_model(struct llama_model *model, struct llama_context_params params);
void llama_free(struct llama_context *ctx);
const struct llama_vocab *llama_model_get_vocab(const struct llama_model *model);
int32_t llama_vocab_n_tokens(const struct llama_vocab *vocab);
bool llama_vocab_is_eog(const struct llama_vocab *vocab, llama_token token);
int32_t llama_tokenize(const struct llama_vocab *vocab, const char *text, int32_t text_len, llama_token *tokens,
                       int32_t n_tokens_max, bool add_special, bool parse_special);
int32_t llama_token_to_piece(const struct llama_vocab *vocab, llama_token token, char *buf, int32_t length,
                             int32_t lstrip, bool special);
struct llama_batch llama_batch_get_one(llama_token *tokens, int32_t n_tokens);
int32_t llama_decode(struct llama_context *ctx, struct llama_batch batch);
float *llama_get_logits_ith(struct llama_context *ctx, int32_t i);

llama_memory_t llama_get_memory(const struct llama_context *ctx);
void llama_memory_clear(llama_memory_t mem, bool data);
void llama_memory_seq_cp(llama_memory_t mem, llama_seq_id seq_id_src, llama_seq_id seq_id_dst, llama_pos p0,
                         llama_pos p1);
bool llama_memory_seq_rm(llama_memory_t mem, llama_seq_id seq_id, llama_pos p0, llama_pos p1);
llama_pos llama_memory_seq_pos_min(llama_memory_t mem, llama_seq_id seq_id);
llama_pos llama_memory_seq_pos_max(llama_memory_t mem, llama_seq_id seq_id);
size_t llama_state_seq_get_size_ext(struct llama_context *ctx, llama_seq_id seq_id, llama_state_seq_flags flags);
size_t llama_state_seq_get_data_ext(struct llama_context *ctx, uint8_t *dst, size_t size, llama_seq_id seq_id,
                                    llama_state_seq_flags flags);
size_t llama_state_seq_set_data_ext(struct llama_context *ctx, const uint8_t *src, size_t size,
                                    llama_seq_id dest_seq_id, llama_state_seq_flags flags);
uint32_t llama_n_seq_max(const struct llama_context *ctx);
uint32_t llama_n_ctx(const struct llama_context *ctx);
uint32_t llama_n_ctx_seq(const struct llama_context *ctx);
const struct llama_model *llama_get_model(const struct llama_context *ctx);
int32_t llama_model_n_swa(const struct llama_model *model);
bool llama_model_is_recurrent(const struct llama_model *model);
bool llama_model_is_hybrid(const struct llama_model *model);
int32_t llama_model_meta_val_str(const struct llama_model *model, const char *key, char *value, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
