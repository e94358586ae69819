/* SPDX-License-Identifier: Apache-2.0 */
/* What the adapter's files share. */
#ifndef KVONCE_LLAMA_ADAPTER_H
#define KVONCE_LLAMA_ADAPTER_H

#include "blob.h"
#include "kvonce_llama.h"

#define NAME_BYTES 32
#define BLOCK_TOKENS_DEFAULT 64
#define BLOCK_TOKENS_MAX 4096
#define BUILD_BYTES_MAX 240 /* leaves room for " unrotated" */
#define RECORDS_MAX 32 /* shapes of one model with the same settings that a restore tries */

/*
 * All that must be equal for a block of one context to be of use in another: the layout of K and V, and for what
 * the layout does not tell, the build. Its digest is that of the spaces that hold the blocks.
 */
typedef struct kv_shape {
    int kind;             /* kvo_llama_form */
    blob_form form;       /* how to compose a blob: of the build that saw it last, not part of the digest */
    blob_layout layout;   /* of rows */
    uint32_t block_bytes; /* opaque: of the first block seen */
    uint32_t sequences;   /* opaque: n_seq_max, which is in the engine's bytes */
    char build[256];      /* "" where the layout tells all */
    uint8_t digest[32];
    kvo_space space, window_space; /* 0: not open yet; no window */
} kv_shape;

/* The names of one prompt's blocks, so that a longer one costs only what is new. */
typedef struct kv_chain {
    int32_t *tokens;
    uint8_t *names;
    size_t count, capacity; /* blocks */
    size_t done;            /* leading blocks that the store was given, or had */
} kv_chain;

typedef struct kv_buffer {
    uint8_t *bytes;
    size_t capacity;
} kv_buffer;

/* Answers of a job that runs; the store's until its report is taken. */
struct pending {
    struct pending *next;
    bool counted; /* blocks, not a layout */
    kvo_answer answers[];
};

struct kvo_llama {
    kvo_store *store;
    struct llama_context *context;
    struct llama_memory_i *memory;
    kvo_llama_functions f;

    uint8_t model[KVO_LLAMA_MODEL_BYTES];
    char settings[256], build[256];
    uint8_t salt[255];
    size_t salt_bytes;
    uint16_t tenant;
    uint32_t block_tokens, flags;
    uint32_t window, window_stride; /* n_swa in tokens, 0: none known */
    uint32_t beyond;    /* the context is longer than the model's original one: 1; no such length is told: 0 */
    uint64_t restore_ns, until; /* `until`: of the restore that runs */
    void (*on_log)(void *context, const char *line);
    void *log_context;

    uint32_t sequences; /* n_seq_max */
    uint32_t positions; /* that a sequence can have; UINT32_MAX: not known */
    int32_t scratch;    /* -1: none */
    bool told;          /* the engine says what kind of model it is */
    bool learned;       /* the shape is this context's */
    bool recorded;      /* and the store remembers it */
    int refused;        /* a cause, if nothing of this context can be stored */
    kv_shape *shape;       /* learned, or being tried; NULL: neither */
    kv_chain chain;        /* under the shape's digest */
    size_t wanted_end;  /* blocks: a restore missed the window there, so the next save keeps it */
    kv_buffer blob, back;  /* exports; what is composed */
    uint32_t *cells;    /* block_tokens of them */
    kvo_queue *queue;   /* NULL: nothing is written ahead */
    struct pending *pending; /* what it was given */
    bool no_medium;     /* the store has memory only */
    kvo_llama_stat stat;
};

/* adapter.c */
void llama_log(kvo_llama *kv, const char *format, ...) __attribute__((format(printf, 2, 3)));
uint64_t llama_now(void);
uint64_t llama_left(const kvo_llama *kv); /* of a restore's time */
bool llama_room(kvo_llama *kv, kv_buffer *buffer, size_t bytes);
int llama_no_memory(kvo_llama *kv); /* says so; returns KVO_LLAMA_ENGINE */
void llama_trim(kv_buffer *buffer); /* gives back what is too much to keep */
/* KVO_OK, or why a call cannot be: a sequence or a count out of range, a forked process, a store that is closed. */
int llama_may(const kvo_llama *kv, int32_t sequence, size_t token_count);
/* SHA-256 of pieces; each piece's length is in it, so that no two lists share a digest. */
typedef struct kv_piece {
    const void *bytes;
    size_t count;
} kv_piece;
bool llama_digest(const kv_piece *pieces, size_t count, uint8_t digest[32]);
void llama_hex(const uint8_t *bytes, size_t count, char *out);

/* Has the store's threads bring blocks to disk, without waiting. */
void llama_write_ahead(kvo_llama *kv, const kvo_names *names, bool counted);
void llama_take_reports(kvo_llama *kv);

/* identity.c */
int llama_file_digest(const char *path, uint8_t digest[32], kvo_error *error);

/* shape.c */
/* The shape of a probed layout or of an opaque block; false: no such shape can be had, and the log says why. */
kv_shape *llama_shape_of_rows(kvo_llama *kv, const blob_form *form, const blob_layout *layout);
kv_shape *llama_shape_opaque(kvo_llama *kv, uint32_t block_bytes);
int llama_shape_open(kvo_llama *kv, kv_shape *shape); /* its spaces; as kvo_space_open() */
bool llama_shape_ours(kvo_llama *kv, const kv_shape *shape); /* may be this build's, as far as that counts */
void llama_shape_use(kvo_llama *kv, kv_shape *shape, bool learned); /* takes it; frees the one before; NULL: none */
/* Those that the store remembers of this model and these settings; the caller frees each. */
size_t llama_records_load(kvo_llama *kv, kv_shape *shapes[RECORDS_MAX]);
bool llama_record_keep(kvo_llama *kv, const kv_shape *shape); /* false: no room for it now */
size_t llama_token_bytes(const kv_shape *shape, uint32_t part);
bool llama_windowed(const kv_shape *shape);

/* chain.c */
/* Names of the first `blocks` blocks of tokens; NULL: no memory. Valid until the next call. */
const uint8_t *llama_chain(kvo_llama *kv, const int32_t *tokens, size_t blocks);
void llama_chain_forget(kvo_llama *kv);

/* engine.c: the engine's calls, with what they must answer checked */
typedef struct kv_export {
    const uint8_t *blob;
    size_t bytes;
    int32_t sequence; /* in its cells */
} kv_export;
/* Positions first .. end - 1 of a sequence through the scratch id, or all of it where first is 0 and end -1. Into
   kv->blob. */
bool llama_export(kvo_llama *kv, int32_t sequence, int32_t first, int32_t end, kv_export *out);
/* COMPLETE; NO_ROOM: refused, whatever for; ENGINE: something else than all of it was taken. */
int llama_import(kvo_llama *kv, int32_t sequence, const uint8_t *blob, size_t bytes);
void llama_empty(kvo_llama *kv, int32_t sequence);
bool llama_alone(kvo_llama *kv, int32_t sequence); /* no other sequence has cells */

/* window.c: which ends can be restored in a model with a sliding window; all counts are blocks. */
size_t llama_window_first(const kvo_llama *kv, size_t end);
bool llama_window_needed(const kvo_llama *kv, size_t block, size_t kept_end);

#endif
