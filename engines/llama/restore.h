/* SPDX-License-Identifier: Apache-2.0 */
/* One restore: what of a prompt is stored (restore.c), comes out of the store whole (gather.c, opaque.c), and goes into
   the context and is read back (import.c). */
#ifndef KVONCE_LLAMA_RESTORE_H
#define KVONCE_LLAMA_RESTORE_H

#include "adapter.h"

/* One call's work, under the shape that the adapter has or tries. */
typedef struct restoring {
    kvo_llama *kv;
    int32_t sequence;
    const int32_t *tokens;
    size_t wanted;  /* blocks */
    size_t end;     /* of what goes in, in blocks */
    size_t first;   /* of the window's part */
    bool steps;     /* the window has all blocks, so they go in one after the other, as they were computed */
    int why;        /* it does not end later */
    const uint8_t *names;
    blob_form form;
    blob_view *view, *back_view; /* of what is composed, of what is read back */
    blob_layout *back_layout;
} restoring;

/* restore.c */
kvo_names llama_names_of(const restoring *r, kvo_space space, size_t first, size_t end);
size_t llama_matched(restoring *r, size_t limit); /* leading blocks that are stored */

/* gather.c */
/* Composes the blob of the plan with all its rows, in kv->back; true. Else *limit: where a restore can still end, and
   *why. */
bool llama_gather(restoring *r, size_t *limit, int *why);
/* Gets `names`; returns how many leading ones came, and why not all. */
size_t llama_get_blocks(restoring *r, const kvo_names *names, const kvo_memory *memory, int *why);

/* import.c */
/* Puts what was gathered into the sequence and reads it back. */
int llama_put_in(restoring *r);
int llama_why_refused(const restoring *r);
void llama_give_up(restoring *r, int why);

/* opaque.c */
void llama_restore_opaque(restoring *r);

#endif
