/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes that llama.cpp's llama_state_seq_get_data() writes for one sequence, also the tail of a slot file:
 *
 *     [u32 magic, i32 sequence]                              form.header
 *     for each cache (one; two with a sliding window: the base first):
 *         u32 streams = 1, u32 cells                         0 cells: nothing follows
 *         for each cell: i32 position, u32 1, [ext], i32 sequence
 *         u32 transposed, u32 layers, [u32 n_rot_k, n_rot_v] form.rotation
 *         for each layer: i32 type, u64 row bytes, K of each cell
 *         for each layer: i32 type, u64 row bytes, V of each cell
 *             or, transposed: i32 type, u32 element bytes, u32 elements, for each element: V of each cell
 *
 * What of this a build writes is its form; what the cache is, its layout. Both are learned from a blob that must
 * be consumed exactly. Numbers are the machine's own, which is little-endian here.
 *
 * What is kept of a range of positions is rows: of each layer its K rows, then its V rows, each by ascending
 * position and never transposed. They have no header, no position and no sequence.
 *
 * Nothing here allocates, and nothing here knows kvonce or llama.h.
 */
#ifndef KVONCE_LLAMA_BLOB_H
#define KVONCE_LLAMA_BLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the blob's numbers are read as they lie, on little-endian machines"
#endif

#define BLOB_PARTS_MAX 2
#define BLOB_LAYERS_MAX 512
#define BLOB_ROW_BYTES_MAX (1u << 24)
#define BLOB_EMPTY_BYTES_MAX 24 /* a blob without cells is no longer, and one with a cell is */
#define BLOB_ROTATION_UNKNOWN UINT32_MAX
#define BLOB_LAYOUT_BYTES_MAX (8 + BLOB_PARTS_MAX * (16 + 20 * BLOB_LAYERS_MAX))

typedef struct blob_form {
    bool header;
    bool rotation;       /* n_rot_k and n_rot_v are told */
    uint8_t ext_bytes;   /* of a cell, for models with several positions a token: 0, 8 or 12 */
    uint8_t part_count;  /* caches */
} blob_form;

typedef struct blob_layer {
    int32_t k_type, v_type;    /* ggml's numbers */
    uint32_t k_bytes, v_bytes; /* of one cell */
    uint32_t v_element_bytes;  /* 0 where V is not transposed */
} blob_layer;

typedef struct blob_part {
    uint32_t layer_count; /* 0: not known yet, no blob with cells was seen */
    uint32_t transposed;
    uint32_t n_rot_k, n_rot_v; /* 0 where K or V is not quantised: then nothing is rotated */
    blob_layer layers[BLOB_LAYERS_MAX];
} blob_part;

typedef struct blob_layout {
    uint32_t part_count;
    blob_part parts[BLOB_PARTS_MAX];
} blob_layout;

/* Where things lie in one blob. */
typedef struct blob_cells {
    uint32_t count;
    size_t cells_at; /* of the first cell's position */
    size_t k_at[BLOB_LAYERS_MAX];
    size_t v_at[BLOB_LAYERS_MAX];
} blob_cells;

typedef struct blob_view {
    size_t bytes;
    int32_t sequence; /* in all cells the same; -1: no cells */
    blob_cells parts[BLOB_PARTS_MAX];
} blob_view;

/* Reads a blob of this form; false: it is not one, or not to its last byte. `layout` receives the parts that
   have cells; of the others layer_count is 0. */
bool blob_parse(const uint8_t *blob, size_t bytes, const blob_form *form, blob_layout *layout, blob_view *view);

/* Tries each form; true if exactly one fits and the first part has cells. */
bool blob_probe(const uint8_t *blob, size_t bytes, blob_form *form, blob_layout *layout, blob_view *view);

/* Whether two layouts are the same where both are known; rotation counts only where both know it. */
bool blob_layouts_agree(const blob_layout *a, const blob_layout *b);

/*
 * Lays out a blob with counts[i] cells in part i, at positions firsts[i] on, of `sequence`: the view tells where
 * the rows go. Returns its bytes; 0: more than fits a size_t. blob_compose() writes all but the rows; `blob` has
 * view->bytes bytes.
 */
size_t blob_arrange(const blob_form *form, const blob_layout *layout, const uint32_t counts[BLOB_PARTS_MAX],
                    blob_view *view);
void blob_compose(const blob_form *form, const blob_layout *layout, const int32_t firsts[BLOB_PARTS_MAX],
                  int32_t sequence, blob_view *view, uint8_t *blob);

/* The blob's cells at positions first .. first + count - 1, in that order. False: one is missing, or is there twice. */
bool blob_find(const uint8_t *blob, const blob_form *form, const blob_view *view, uint32_t part, int32_t first,
               uint32_t count, uint32_t *cells);

/* Bytes of one position's rows in a part. */
size_t blob_token_bytes(const blob_part *part);

/* Copies the rows of `count` cells out of a blob. `rows` has count * blob_token_bytes() bytes. */
void blob_take_rows(const uint8_t *blob, const blob_part *part, const blob_cells *where, const uint32_t *cells,
                    uint32_t count, uint8_t *rows);

/* The reverse, for all cells of a blob that blob_compose() made. */
void blob_put_rows(uint8_t *blob, const blob_part *part, const blob_cells *where, const uint8_t *rows);

/* Whether two blobs of one layout hold the same rows in a part: of `a` the cells first .. first + count - 1, of `b`
   those that `cells` names. */
bool blob_rows_equal(const blob_part *part, const uint8_t *a, const blob_cells *a_where, uint32_t first,
                     const uint8_t *b, const blob_cells *b_where, const uint32_t *cells, uint32_t count);

/* rows x columns elements to columns x rows; V from rows to a transposed blob, or back. */
void blob_transpose(uint8_t *to, const uint8_t *from, size_t rows, size_t columns, size_t element_bytes);

/* Whether elements hold no infinity and no NaN; of a quantised type, its scales. And `count` positions' rows. */
bool blob_finite(int32_t type, const uint8_t *elements, size_t bytes);
bool blob_rows_finite(const blob_part *part, const uint8_t *rows, uint32_t count);

/* A layout as bytes, for a record: how many, at most BLOB_LAYOUT_BYTES_MAX; and back: false if they are no layout. */
size_t blob_layout_write(const blob_layout *layout, uint8_t out[BLOB_LAYOUT_BYTES_MAX]);
bool blob_layout_read(const uint8_t *bytes, size_t count, blob_layout *layout);

/* "f16", "q8_0"; "type 99". `spare` is used for the latter. */
const char *blob_type_name(int32_t type, char spare[24]);
bool blob_type_quantised(int32_t type);

#endif
