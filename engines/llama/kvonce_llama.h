/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvonce for llama.cpp: the KV of a prompt, kept in a kvonce store.
 *
 * The application owns model, context and decode. It hands its context over with a table of
 * functions and then adds three calls to its loop:
 *
 *     kvo_llama_restore(kv, 0, tokens, count, &have, NULL);    // sequence 0 now holds `have` tokens
 *     while (have < count) {
 *         size_t n = ...;                                      // a batch, from position `have` on
 *         llama_decode(context, batch of tokens[have .. have + n));
 *         have += n;
 *         kvo_llama_save(kv, 0, tokens, have, NULL, NULL);     // stores each full block not yet stored
 *     }
 *
 * What is promised
 * ----------------
 * - K and V come back bit for bit, and so do the logits of a run that decodes the same tokens
 *   after the prefix in the same batches, where the sequence's cells lie as they did: alone in the
 *   context, or behind as many of others. A run that splits its batches in another way, or whose cells
 *   lie elsewhere, is rounded in another way, with kvonce or without: with flash attention on a CPU the
 *   kernel depends on the size of a batch, and sums are taken over some cells at a time. To compare with
 *   a cold run, let its batches end on multiples of block_tokens.
 * - Nothing goes into the context before all of it has been compared with its digest, and after an
 *   import the context is read back and compared. Any doubt: the sequence is emptied, 0 tokens are
 *   said to be there, and the cause is counted. Then the prompt is computed as without kvonce.
 * - A save does not wait for a disk, where the store's first tier is memory; but the first one of a
 *   model's layout in a store writes its description there, some pages.
 *
 * What is not: sequences that hold more than their tokens say (embeddings of images, tokens put in
 * by a self-extending or shifting context, the decoder's side of a model with an encoder) must not
 * be saved. Recurrent and hybrid models, and caches with several streams, are refused
 * (KVO_E_UNSUPPORTED).
 *
 * Conventions: as in kvonce.h. One adapter belongs to one context, and is called from the thread
 * that decodes, never during a decode: llama.cpp's own calls are not safe otherwise. Adapters of
 * several contexts may share a store, in any threads. No llama.h is needed here: its types are only
 * named, never read. Link with -lkvonce-llama -lkvonce.
 */
#ifndef KVONCE_LLAMA_H
#define KVONCE_LLAMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvonce.h>

#ifdef __cplusplus
extern "C" {
#endif

struct llama_context;
struct llama_model;
struct llama_memory_i;

/* ---- The engine's functions ---------------------------------------------- */

/*
 * What the adapter calls, under llama.h's names without `llama_`. The first nine are required.
 * The others may be NULL: what is lost then is said beside each.
 */
typedef struct kvo_llama_functions {
    size_t size;
    struct llama_memory_i *(*get_memory)(const struct llama_context *context);
    void (*memory_seq_cp)(struct llama_memory_i *memory, int32_t from, int32_t to, int32_t first, int32_t end);
    bool (*memory_seq_rm)(struct llama_memory_i *memory, int32_t sequence, int32_t first, int32_t end);
    int32_t (*memory_seq_pos_min)(struct llama_memory_i *memory, int32_t sequence);
    int32_t (*memory_seq_pos_max)(struct llama_memory_i *memory, int32_t sequence);
    size_t (*state_seq_get_size_ext)(struct llama_context *context, int32_t sequence, uint32_t flags);
    size_t (*state_seq_get_data_ext)(struct llama_context *context, uint8_t *to, size_t bytes, int32_t sequence,
                                     uint32_t flags);
    size_t (*state_seq_set_data_ext)(struct llama_context *context, const uint8_t *from, size_t bytes,
                                     int32_t sequence, uint32_t flags);
    uint32_t (*n_seq_max)(const struct llama_context *context);
    /* Optional. */
    uint32_t (*n_ctx)(const struct llama_context *context);     /* these two: else each save exports */
    uint32_t (*n_ctx_seq)(const struct llama_context *context); /* the whole sequence */
    const struct llama_model *(*get_model)(const struct llama_context *context); /* for the next three */
    int32_t (*model_n_swa)(const struct llama_model *model);     /* else models with a sliding window are refused; */
    bool (*model_is_recurrent)(const struct llama_model *model); /* without one of these three a blob of unknown */
    bool (*model_is_hybrid)(const struct llama_model *model);    /* layout is refused, never kept opaque */
    void (*memory_clear)(struct llama_memory_i *memory, bool data); /* else no scrubbing of refused bytes */
    const char *(*version)(void);                                /* for messages */
    int32_t (*model_meta_val_str)(const struct llama_model *model, const char *key, char *value, size_t bytes);
    /* else say in `settings` whether a context is longer than its model's original one, where models are scaled
       beyond that (LongRoPE, as Phi-3): K is turned in another way then */
} kvo_llama_functions;

/*
 * Fills the table by name from a library that dlopen() has opened, or, with handle NULL, from the
 * program and what it is linked with. KVO_E_UNSUPPORTED: a required function is missing, and the
 * error names it: another engine, or one that is too old (llama_memory_* came in 2025). Pure.
 */
KVO_API int kvo_llama_bind(void *handle, kvo_llama_functions *functions, kvo_error *error);

/*
 * The same for programs that include their own llama.h, also when linked statically: the compiler
 * checks each function's type. `kvo_llama_functions f = KVO_LLAMA_FUNCTIONS_INIT;`
 */
#define KVO_LLAMA_FUNCTIONS_INIT                                                                             \
    {sizeof(kvo_llama_functions), llama_get_memory, llama_memory_seq_cp, llama_memory_seq_rm,                \
     llama_memory_seq_pos_min, llama_memory_seq_pos_max, llama_state_seq_get_size_ext,                       \
     llama_state_seq_get_data_ext, llama_state_seq_set_data_ext, llama_n_seq_max, llama_n_ctx,               \
     llama_n_ctx_seq, llama_get_model, llama_model_n_swa, llama_model_is_recurrent, llama_model_is_hybrid,   \
     llama_memory_clear, 0, llama_model_meta_val_str}

/* ---- Opening and closing -------------------------------------------------- */

#define KVO_LLAMA_MODEL_BYTES 32

/*
 * The identity of a model file: SHA-256 of all of it, metadata and tensors. Of a model in parts
 * ("name-00001-of-00003.gguf") all parts are read, whichever is named. `cache` names a small text file
 * that remembers identities by the file's device, inode, size and times, so that the gigabytes are
 * read once; it is created if missing and replaced as a whole, its folder must exist; NULL or a
 * folder that cannot be written: read each time. A file that changes while it is read: KVO_BUSY.
 * KVO_E_NOT_FOUND, KVO_E_PERMISSION, KVO_E_IO, KVO_E_MEMORY. Any thread. Data (reads the file: 1 s for
 * about 1 GB, once).
 */
KVO_API int kvo_llama_model_identity(const char *path, const char *cache, uint8_t model[KVO_LLAMA_MODEL_BYTES],
                                     kvo_error *error);

enum {
    KVO_LLAMA_TRUST_IMPORT = 1 << 0, /* do not read the context back after an import: saves about as
                                        much time as the import takes; positions are still checked */
    KVO_LLAMA_MEMORY_ONLY = 1 << 1   /* leave it to the store when a saved block goes to disk; else the
                                        store's threads write it at once, so that it survives a kill */
};

typedef struct kvo_llama_options {
    size_t size;
    const uint8_t *model; /* KVO_LLAMA_MODEL_BYTES bytes, required */
    const char *settings; /* all else that changes K and V and that no function tells: LoRA adapters and
                             their scales, control vectors, rope and yarn settings that differ from the
                             file's. Any text of at most 255 bytes of UTF-8, the same for the same settings;
                             NULL = none. Where it changes: close, and open again. KV types, flash
                             attention's layout, layers, the window and on which side of the model's
                             original length the context is are found out without it. Each
                             combination takes a space, two with a window, of the KVO_SPACES_MAX in a store */
    const char *build;    /* of the library, where a block depends on it (an unknown layout; quantised KV
                             of builds that do not tell its rotation); at most 240 bytes of UTF-8. NULL =
                             the SHA-256 of the file that holds the functions */
    const void *salt;     /* of a tenant: unequal salts never share a block; 0 to 255 bytes */
    size_t salt_bytes;
    uint16_t tenant;      /* whose the saved blocks are: accounting, see kvo_policy */
    uint32_t block_tokens; /* 1 .. 4096; 0 = 64. Smaller: more of a prefix is shared, at more calls (16: about
                             twice the export time of 64); larger: up to block_tokens - 1 tokens more are
                             computed again. Contexts share blocks only if it is equal */
    uint32_t window_stride_tokens; /* models with a sliding window only: a prefix can be restored at multiples
                             of this, where save_end() was called, and where a restore once had to stop for the
                             lack of it. 0 = 4 windows; 1 .. a window: all window cells are kept, and any
                             block's end will do. See docs/llama.md */
    uint64_t restore_ns;  /* deadline of a restore's gets, all together; 0 = 30 s. As kvo_get()'s: a read that a
                             device has begun is not cut short */
    uint32_t flags;       /* KVO_LLAMA_... */
    void (*on_log)(void *context, const char *line); /* one line a failure; may be NULL */
    void *log_context;
} kvo_llama_options;
#define KVO_LLAMA_OPTIONS_INIT {sizeof(kvo_llama_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

typedef struct kvo_llama kvo_llama;

/*
 * Binds a context to a store. Both stay the caller's and must outlive the adapter; the table and the
 * options are copied. Where the context has two sequence ids or more and one cache for all of them
 * (kv_unified), the last id, n_seq_max - 1, belongs to the adapter from now on (kvo_llama_stat.scratch):
 * blocks are then exported one by one. Else a save exports the whole sequence and cuts it: correct,
 * but its cost grows with the sequence. The cache's layout is not known yet: the first save or restore
 * finds it out. KVO_E_UNSUPPORTED: a required function is missing, no memory (an encoder), a recurrent or
 * hybrid model, a cache for each sequence. KVO_E_STATE: that last id holds tokens. KVO_E_ARGUMENT, KVO_E_RANGE,
 * KVO_E_MEMORY. Control.
 */
KVO_API int kvo_llama_open(kvo_store *store, struct llama_context *context, const kvo_llama_functions *functions,
                           const kvo_llama_options *options, kvo_llama **llama, kvo_error *error);

/*
 * Waits up to deadline_ns until what was saved is on disk (unless KVO_LLAMA_MEMORY_ONLY), and frees the
 * adapter in any case; the context stays as it is. A device that does not answer costs up to 10 s more. KVO_SHORT:
 * not all of it got there; the store still holds it. NULL is allowed. Before kvo_close() of the store, and before
 * the context is freed. Data.
 */
KVO_API int kvo_llama_close(kvo_llama *llama, uint64_t deadline_ns);

/* ---- Restore and save ------------------------------------------------------ */

/* Why a restore or a save did not do more. Constant texts by kvo_llama_why_text(). */
typedef enum kvo_llama_why {
    KVO_LLAMA_COMPLETE = 0,    /* nothing more can be done for these tokens */
    KVO_LLAMA_MISS = 1,        /* restore: the next block is not stored */
    KVO_LLAMA_DAMAGED = 2,     /* restore: the next block's bytes were not what its digest says */
    KVO_LLAMA_SHAPE = 3,       /* stored with other KV types, layout or layers, or the context refuses it */
    KVO_LLAMA_NO_ROOM = 4,     /* restore: in the context; save: in the store, which does not wait */
    KVO_LLAMA_SLOW = 5,        /* restore: the store did not deliver before the deadline */
    KVO_LLAMA_POSITIONS = 6,   /* the context does not hold exactly the positions it should: a gap, a
                                  duplicate, others */
    KVO_LLAMA_CHANGED = 7,     /* restore: what the context gave back was not what went in */
    KVO_LLAMA_NOT_FINITE = 8,  /* infinities or NaN in K or V. Restore: the block is removed from the store.
                                  Save: it is not stored; such cells poison every later decode
                                  of this context: clear its memory with data */
    KVO_LLAMA_WINDOW = 9,      /* restore: cells of the sliding window are not stored for a later end;
                                  save: they have left the context already (save at least every n_ubatch tokens) */
    KVO_LLAMA_UNKNOWN = 10,    /* the engine's export has a layout that this version does not know */
    KVO_LLAMA_ENGINE = 11,     /* the engine, the store or memory failed; the log says how */
    KVO_LLAMA_WHY_COUNT = 12
} kvo_llama_why;
KVO_API const char *kvo_llama_why_text(int why);

/*
 * Empties `sequence` and puts the longest stored prefix of `tokens` into it, from position 0 on:
 * *restored is how many leading tokens it now holds, whole blocks, and at most token_count - 1, so that there is one
 * left to decode for its logits. *why (may be NULL) says what stopped it there. Whatever the cause,
 * the context is usable and the other sequences are as they were. sequence: 0 .. n_seq_max - 1, without the
 * adapter's own. token_count: 0 .. 2^31 - 1. Holds a buffer of the size of what it restores during the
 * call, two where whole sequences are exported; up to 64 MiB of each are kept for the next; without memory for them
 * nothing is restored. KVO_OK, KVO_E_ARGUMENT, KVO_E_RANGE. KVO_E_FORKED, KVO_E_STATE: as the store's calls; nothing
 * was touched. Data.
 */
KVO_API int kvo_llama_restore(kvo_llama *llama, int32_t sequence, const int32_t *tokens, size_t token_count,
                              size_t *restored, int *why);

/*
 * Stores each full block of `tokens` that is not stored yet. `sequence` must hold exactly these tokens at
 * positions 0 .. token_count - 1. Call it after each decode, with all tokens so far: it does nothing
 * until another block is full. Copies into the store's memory and returns: a store without room at this
 * moment keeps less, *why says so, and the next call tries again. *stored (may be NULL): how many leading
 * tokens the store has been given by now, by whomever. Same errors as restore. Data.
 */
KVO_API int kvo_llama_save(kvo_llama *llama, int32_t sequence, const int32_t *tokens, size_t token_count,
                           size_t *stored, int *why);

/*
 * The same, and in a model with a sliding window it also keeps what a restore needs to go on from the end of the last
 * full block. Call it instead of save() after the last decode of a prompt and of an answer; without a window
 * there is no difference.
 */
KVO_API int kvo_llama_save_end(kvo_llama *llama, int32_t sequence, const int32_t *tokens, size_t token_count,
                               size_t *stored, int *why);

/* ---- What happened ---------------------------------------------------------- */

typedef enum kvo_llama_form {
    KVO_LLAMA_NOT_KNOWN = 0, /* nothing was exported or imported yet */
    KVO_LLAMA_ROWS = 1,      /* rows of K and V: shared between builds, context sizes, sequence ids */
    KVO_LLAMA_OPAQUE = 2     /* the engine's bytes as they are: for this build and n_seq_max alone */
} kvo_llama_form;

/* Counters since open. Times are wall time of the calling thread. */
typedef struct kvo_llama_stat {
    size_t size;
    int form;               /* kvo_llama_form */
    int32_t scratch;        /* the adapter's sequence id; -1: whole sequences are exported */
    char layout[256];       /* one line for people: "30 layers, k f16 384 B, v f16 384 B, ..." */
    uint32_t block_tokens;
    uint32_t token_bytes;   /* payload of one token, window cells apart; 0: not known, or opaque */
    uint32_t window_token_bytes; /* of one token's window cells; 0: no window */
    uint32_t window_tokens;      /* n_swa; 0: no window */
    uint64_t restores, restored_tokens, restored_blocks, restored_bytes;
    uint64_t saves;         /* calls that found a new full block */
    uint64_t saved_tokens, saved_blocks, saved_bytes; /* written into the store */
    uint64_t existing_blocks; /* that a save found there already */
    uint64_t written_blocks;  /* of the saved ones, seen to be on disk */
    uint64_t restore_why[KVO_LLAMA_WHY_COUNT]; /* calls by what they ended with */
    uint64_t save_why[KVO_LLAMA_WHY_COUNT];
    uint64_t restore_ns;    /* all of restore, of which: */
    uint64_t get_ns;        /* the store's get */
    uint64_t import_ns;     /* the engine's state_seq_set_data_ext */
    uint64_t check_ns;      /* reading back and comparing */
    uint64_t save_ns;       /* all of save, of which: */
    uint64_t export_ns;     /* the engine's state_seq_get_data_ext and the copy into a sequence of its own */
} kvo_llama_stat;
#define KVO_LLAMA_STAT_INIT                                                                                    \
    {sizeof(kvo_llama_stat), 0, 0, {0}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}, {0}, 0, 0, 0, 0, 0, 0}

/* Fills `stat`, which KVO_LLAMA_STAT_INIT has set up. KVO_E_ARGUMENT. Control. */
KVO_API int kvo_llama_stat_get(kvo_llama *llama, kvo_llama_stat *stat);

#ifdef __cplusplus
}
#endif
#endif
