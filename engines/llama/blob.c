/* SPDX-License-Identifier: Apache-2.0 */
#include "blob.h"

#include <stdio.h>
#include <string.h>

#define MAGIC 0xaf143cd8u
#define LAYOUT_MAGIC 0x314c564bu /* "KVL1" */

/* ---- Types --------------------------------------------------------------- */

/* A type's elements lie in groups; at the start of each are `scales` half floats. */
static const struct type {
    int32_t number;
    const char *name;
    uint32_t group_bytes, scales;
} types[] = {
    {0, "f32", 4, 0},   {1, "f16", 2, 1},   {2, "q4_0", 18, 1},  {3, "q4_1", 20, 2},    {6, "q5_0", 22, 1},
    {7, "q5_1", 24, 2}, {8, "q8_0", 34, 1}, {20, "iq4_nl", 18, 1}, {30, "bf16", 2, 0},
};

static const struct type *find_type(int32_t number)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].number == number)
            return &types[i];
    return NULL;
}

const char *blob_type_name(int32_t type, char spare[24])
{
    const struct type *known = find_type(type);

    if (known != NULL)
        return known->name;
    snprintf(spare, 24, "type %d", type);
    return spare;
}

bool blob_type_quantised(int32_t type)
{
    const struct type *known = find_type(type);

    return known == NULL || known->group_bytes > 4;
}

static bool row_fits(int32_t type, uint64_t bytes)
{
    const struct type *known = find_type(type);

    return type >= 0 && bytes > 0 && bytes <= BLOB_ROW_BYTES_MAX && (known == NULL || bytes % known->group_bytes == 0);
}

/* ---- Reading ------------------------------------------------------------- */

typedef struct reader {
    const uint8_t *blob;
    size_t at, bytes;
    bool ok;
} reader;

static void skip(reader *r, uint64_t count, uint64_t each)
{
    uint64_t bytes;

    if (__builtin_mul_overflow(count, each, &bytes) || bytes > r->bytes - r->at)
        r->ok = false;
    if (r->ok)
        r->at += bytes;
}

static void get(reader *r, void *to, size_t bytes)
{
    const size_t at = r->at;

    skip(r, 1, bytes);
    if (r->ok)
        memcpy(to, r->blob + at, bytes);
    else
        memset(to, 0, bytes);
}

static uint32_t get32(reader *r)
{
    uint32_t value;

    get(r, &value, sizeof value);
    return value;
}

static uint64_t get64(reader *r)
{
    uint64_t value;

    get(r, &value, sizeof value);
    return value;
}

static size_t cell_bytes(const blob_form *form)
{
    return 12u + form->ext_bytes;
}

static int32_t cell_word(const uint8_t *cell, size_t at)
{
    int32_t value;

    memcpy(&value, cell + at, sizeof value);
    return value;
}

/* Every cell is of one sequence, the same for all. */
static void read_cells(reader *r, const blob_form *form, blob_cells *cells, int32_t *sequence)
{
    const uint8_t *cell = r->blob + r->at;

    cells->cells_at = r->at;
    skip(r, cells->count, cell_bytes(form));
    for (uint32_t i = 0; r->ok && i < cells->count; i++, cell += cell_bytes(form)) {
        const int32_t of = cell_word(cell, 8u + form->ext_bytes);

        if (*sequence < 0)
            *sequence = of;
        r->ok = cell_word(cell, 0) >= 0 && cell_word(cell, 4) == 1 && of >= 0 && of == *sequence;
    }
}

static void read_k(reader *r, blob_layer *layer, uint32_t count, size_t *at)
{
    layer->k_type = (int32_t)get32(r);
    const uint64_t bytes = get64(r);

    *at = r->at;
    r->ok = r->ok && row_fits(layer->k_type, bytes);
    layer->k_bytes = (uint32_t)bytes;
    skip(r, count, bytes);
}

static void read_v(reader *r, bool transposed, blob_layer *layer, uint32_t count, size_t *at)
{
    uint64_t bytes;

    layer->v_type = (int32_t)get32(r);
    layer->v_element_bytes = transposed ? get32(r) : 0;
    bytes = transposed ? (uint64_t)layer->v_element_bytes * get32(r) : get64(r);
    *at = r->at;
    r->ok = r->ok && row_fits(layer->v_type, bytes) && layer->v_element_bytes <= 8;
    layer->v_bytes = (uint32_t)bytes;
    skip(r, count, bytes);
}

/* What is not quantised is not rotated, whether the form tells it or not. */
static void settle_rotation(blob_part *part)
{
    bool k = false, v = false;

    for (uint32_t i = 0; i < part->layer_count; i++) {
        k = k || blob_type_quantised(part->layers[i].k_type);
        v = v || blob_type_quantised(part->layers[i].v_type);
    }
    part->n_rot_k = k ? part->n_rot_k : 0;
    part->n_rot_v = v ? part->n_rot_v : 0;
}

static void read_part(reader *r, const blob_form *form, blob_part *part, blob_cells *cells, int32_t *sequence)
{
    part->layer_count = 0;
    r->ok = r->ok && get32(r) == 1;
    cells->count = get32(r);
    if (!r->ok || cells->count == 0)
        return;
    read_cells(r, form, cells, sequence);
    part->transposed = get32(r);
    const uint32_t layers = get32(r);

    r->ok = r->ok && part->transposed <= 1 && layers >= 1 && layers <= BLOB_LAYERS_MAX;
    part->n_rot_k = form->rotation ? get32(r) : BLOB_ROTATION_UNKNOWN;
    part->n_rot_v = form->rotation ? get32(r) : BLOB_ROTATION_UNKNOWN;
    r->ok = r->ok && (!form->rotation || (part->n_rot_k <= BLOB_ROW_BYTES_MAX && part->n_rot_v <= BLOB_ROW_BYTES_MAX));
    for (uint32_t i = 0; r->ok && i < layers; i++)
        read_k(r, &part->layers[i], cells->count, &cells->k_at[i]);
    for (uint32_t i = 0; r->ok && i < layers; i++)
        read_v(r, part->transposed == 1, &part->layers[i], cells->count, &cells->v_at[i]);
    if (!r->ok)
        return;
    part->layer_count = layers;
    settle_rotation(part);
}

bool blob_parse(const uint8_t *blob, size_t bytes, const blob_form *form, blob_layout *layout, blob_view *view)
{
    reader r = {blob, 0, bytes, form->part_count >= 1 && form->part_count <= BLOB_PARTS_MAX};
    int32_t header_sequence = -1;

    view->bytes = bytes;
    view->sequence = -1;
    layout->part_count = form->part_count;
    if (form->header) {
        r.ok = r.ok && get32(&r) == MAGIC;
        header_sequence = (int32_t)get32(&r);
    }
    for (uint32_t i = 0; r.ok && i < form->part_count; i++)
        read_part(&r, form, &layout->parts[i], &view->parts[i], &view->sequence);
    return r.ok && r.at == bytes && (!form->header || view->sequence < 0 || view->sequence == header_sequence);
}

bool blob_probe(const uint8_t *blob, size_t bytes, blob_form *form, blob_layout *layout, blob_view *view)
{
    static const uint8_t exts[] = {0, 8, 12};
    blob_form found = {0};
    int count = 0;

    for (unsigned i = 0; i < 8 * sizeof exts; i++) {
        const blob_form tried = {.header = (i & 1) == 0, .rotation = (i & 2) == 0, .part_count = (i & 4) == 0 ? 1 : 2,
                                 .ext_bytes = exts[i / 8]};
        if (blob_parse(blob, bytes, &tried, layout, view) && view->parts[0].count > 0) {
            found = tried;
            count++;
        }
    }
    if (count != 1)
        return false;
    *form = found;
    return blob_parse(blob, bytes, form, layout, view);
}

/* ---- Comparing ----------------------------------------------------------- */

static bool rotations_agree(uint32_t a, uint32_t b)
{
    return a == b || a == BLOB_ROTATION_UNKNOWN || b == BLOB_ROTATION_UNKNOWN;
}

static bool parts_agree(const blob_part *a, const blob_part *b)
{
    if (a->layer_count == 0 || b->layer_count == 0)
        return true;
    if (a->layer_count != b->layer_count || a->transposed != b->transposed)
        return false;
    for (uint32_t i = 0; i < a->layer_count; i++) {
        const blob_layer *x = &a->layers[i], *y = &b->layers[i];
        if (x->k_type != y->k_type || x->v_type != y->v_type || x->k_bytes != y->k_bytes || x->v_bytes != y->v_bytes ||
            x->v_element_bytes != y->v_element_bytes)
            return false;
    }
    return rotations_agree(a->n_rot_k, b->n_rot_k) && rotations_agree(a->n_rot_v, b->n_rot_v);
}

bool blob_layouts_agree(const blob_layout *a, const blob_layout *b)
{
    if (a->part_count != b->part_count)
        return false;
    for (uint32_t i = 0; i < a->part_count; i++)
        if (!parts_agree(&a->parts[i], &b->parts[i]))
            return false;
    return true;
}

/* ---- Writing ------------------------------------------------------------- */

/* Places the layers of a part from `at` on; returns the end. */
static uint64_t arrange_part(const blob_form *form, const blob_part *part, uint32_t count, uint64_t at,
                             blob_cells *cells)
{
    cells->count = count;
    at += 8;
    if (count == 0)
        return at;
    cells->cells_at = at;
    at += count * (uint64_t)cell_bytes(form) + 8 + (form->rotation ? 8 : 0);
    for (uint32_t i = 0; i < part->layer_count; i++) {
        cells->k_at[i] = at + 12;
        at = cells->k_at[i] + count * (uint64_t)part->layers[i].k_bytes;
    }
    for (uint32_t i = 0; i < part->layer_count; i++) {
        cells->v_at[i] = at + 12;
        at = cells->v_at[i] + count * (uint64_t)part->layers[i].v_bytes;
    }
    return at;
}

/* 2^32 cells of 2 x 512 x 2 rows of 2^24 bytes are less than 2^64. */
size_t blob_arrange(const blob_form *form, const blob_layout *layout, const uint32_t counts[BLOB_PARTS_MAX],
                    blob_view *view)
{
    uint64_t at = form->header ? 8 : 0;

    for (uint32_t i = 0; i < layout->part_count; i++)
        at = arrange_part(form, &layout->parts[i], counts[i], at, &view->parts[i]);
    view->bytes = at <= PTRDIFF_MAX ? (size_t)at : 0;
    return view->bytes;
}

static uint8_t *put32(uint8_t *to, uint32_t value)
{
    memcpy(to, &value, sizeof value);
    return to + sizeof value;
}

static uint8_t *put_cells(const blob_form *form, uint8_t *to, int32_t first, uint32_t count, int32_t sequence)
{
    for (uint32_t i = 0; i < count; i++) {
        to = put32(to, (uint32_t)first + i);
        to = put32(to, 1);
        memset(to, 0, form->ext_bytes);
        to = put32(to + form->ext_bytes, (uint32_t)sequence);
    }
    return to;
}

static void put_layer(uint8_t *before_rows, int32_t type, uint32_t bytes, uint32_t element_bytes)
{
    const uint64_t row_bytes = bytes;
    uint8_t *to = put32(before_rows - 12, (uint32_t)type);

    if (element_bytes == 0) {
        memcpy(to, &row_bytes, sizeof row_bytes);
        return;
    }
    to = put32(to, element_bytes);
    put32(to, bytes / element_bytes);
}

static uint8_t *compose_part(const blob_form *form, const blob_part *part, const blob_cells *cells, int32_t first,
                             int32_t sequence, uint8_t *blob, uint8_t *to)
{
    const uint32_t last = part->layer_count - 1;

    to = put32(put32(to, 1), cells->count);
    if (cells->count == 0)
        return to;
    to = put_cells(form, to, first, cells->count, sequence);
    to = put32(put32(to, part->transposed), part->layer_count);
    if (form->rotation)
        put32(put32(to, part->n_rot_k), part->n_rot_v);
    for (uint32_t i = 0; i < part->layer_count; i++) {
        const blob_layer *layer = &part->layers[i];
        put_layer(blob + cells->k_at[i], layer->k_type, layer->k_bytes, 0);
        put_layer(blob + cells->v_at[i], layer->v_type, layer->v_bytes, layer->v_element_bytes);
    }
    return blob + cells->v_at[last] + (size_t)cells->count * part->layers[last].v_bytes;
}

void blob_compose(const blob_form *form, const blob_layout *layout, const int32_t firsts[BLOB_PARTS_MAX],
                  int32_t sequence, blob_view *view, uint8_t *blob)
{
    uint8_t *to = blob;

    view->sequence = sequence;
    if (form->header)
        to = put32(put32(to, MAGIC), (uint32_t)sequence);
    for (uint32_t i = 0; i < layout->part_count; i++)
        to = compose_part(form, &layout->parts[i], &view->parts[i], firsts[i], sequence, blob, to);
}

/* ---- Rows ---------------------------------------------------------------- */

bool blob_find(const uint8_t *blob, const blob_form *form, const blob_view *view, uint32_t part, int32_t first,
               uint32_t count, uint32_t *cells)
{
    const blob_cells *where = &view->parts[part];
    uint32_t found = 0;

    for (uint32_t i = 0; i < count; i++)
        cells[i] = UINT32_MAX;
    for (uint32_t i = 0; i < where->count; i++) {
        const int64_t at = (int64_t)cell_word(blob + where->cells_at + i * cell_bytes(form), 0) - first;

        if (at < 0 || at >= count)
            continue;
        if (cells[at] != UINT32_MAX)
            return false;
        cells[at] = i;
        found++;
    }
    return found == count;
}

size_t blob_token_bytes(const blob_part *part)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < part->layer_count; i++)
        bytes += (size_t)part->layers[i].k_bytes + part->layers[i].v_bytes;
    return bytes;
}

static bool in_a_row(const uint32_t *cells, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++)
        if (cells[i] != cells[0] + i)
            return false;
    return true;
}

static void take_plain(uint8_t *to, const uint8_t *from, size_t row_bytes, const uint32_t *cells, uint32_t count)
{
    if (in_a_row(cells, count)) {
        memcpy(to, from + cells[0] * row_bytes, count * row_bytes);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        memcpy(to + i * row_bytes, from + cells[i] * row_bytes, row_bytes);
}

/* `from`: elements, each of all cells. Element by element, so that reads run along the blob. */
static void take_transposed(uint8_t *to, const uint8_t *from, const blob_layer *layer, size_t all,
                            const uint32_t *cells, uint32_t count)
{
    const size_t width = layer->v_element_bytes;

    for (size_t at = 0; at < layer->v_bytes; at += width, from += all * width)
        for (uint32_t i = 0; i < count; i++) {
            uint8_t *element = to + i * (size_t)layer->v_bytes + at;
            if (width == 2)
                memcpy(element, from + cells[i] * (size_t)2, 2);
            else
                memcpy(element, from + cells[i] * width, width);
        }
}

void blob_take_rows(const uint8_t *blob, const blob_part *part, const blob_cells *where, const uint32_t *cells,
                    uint32_t count, uint8_t *rows)
{
    if (count == 0)
        return;
    for (uint32_t i = 0; i < part->layer_count; i++) {
        const blob_layer *layer = &part->layers[i];

        take_plain(rows, blob + where->k_at[i], layer->k_bytes, cells, count);
        rows += count * (size_t)layer->k_bytes;
        if (part->transposed)
            take_transposed(rows, blob + where->v_at[i], layer, where->count, cells, count);
        else
            take_plain(rows, blob + where->v_at[i], layer->v_bytes, cells, count);
        rows += count * (size_t)layer->v_bytes;
    }
}

void blob_put_rows(uint8_t *blob, const blob_part *part, const blob_cells *where, const uint8_t *rows)
{
    for (uint32_t i = 0; where->count > 0 && i < part->layer_count; i++) {
        const blob_layer *layer = &part->layers[i];
        const size_t k_bytes = where->count * (size_t)layer->k_bytes, v_bytes = where->count * (size_t)layer->v_bytes;

        memcpy(blob + where->k_at[i], rows, k_bytes);
        if (part->transposed)
            blob_transpose(blob + where->v_at[i], rows + k_bytes, where->count, layer->v_bytes / layer->v_element_bytes,
                           layer->v_element_bytes);
        else
            memcpy(blob + where->v_at[i], rows + k_bytes, v_bytes);
        rows += k_bytes + v_bytes;
    }
}

static bool plain_equal(const uint8_t *a, const uint8_t *b, size_t row_bytes, const uint32_t *cells, uint32_t count,
                        bool row)
{
    if (row)
        return memcmp(a, b + cells[0] * row_bytes, count * row_bytes) == 0;
    for (uint32_t i = 0; i < count; i++)
        if (memcmp(a + i * row_bytes, b + cells[i] * row_bytes, row_bytes) != 0)
            return false;
    return true;
}

bool blob_rows_equal(const blob_part *part, const uint8_t *a, const blob_cells *a_where, uint32_t first,
                     const uint8_t *b, const blob_cells *b_where, const uint32_t *cells, uint32_t count)
{
    const bool row = in_a_row(cells, count);
    bool equal = true;

    for (uint32_t i = 0; equal && count > 0 && i < part->layer_count; i++) {
        const blob_layer *layer = &part->layers[i];
        const uint8_t *av = a + a_where->v_at[i], *bv = b + b_where->v_at[i];
        /* Lines of elements of all cells, or one line of rows. */
        const size_t width = part->transposed ? layer->v_element_bytes : layer->v_bytes;

        equal = plain_equal(a + a_where->k_at[i] + first * (size_t)layer->k_bytes, b + b_where->k_at[i], layer->k_bytes,
                            cells, count, row);
        for (size_t at = 0; equal && at < layer->v_bytes; at += width) {
            equal = plain_equal(av + first * width, bv, width, cells, count, row);
            av += a_where->count * width;
            bv += b_where->count * width;
        }
    }
    return equal;
}

/* In tiles, whose rows and columns stay in the nearest cache. */
void blob_transpose(uint8_t *to, const uint8_t *from, size_t rows, size_t columns, size_t element_bytes)
{
    enum { TILE = 32 };

    for (size_t r0 = 0; r0 < rows; r0 += TILE)
        for (size_t c0 = 0; c0 < columns; c0 += TILE)
            for (size_t r = r0; r < rows && r < r0 + TILE; r++)
                for (size_t c = c0; c < columns && c < c0 + TILE; c++) {
                    uint8_t *out = to + (c * rows + r) * element_bytes;
                    const uint8_t *in = from + (r * columns + c) * element_bytes;
                    if (element_bytes == 2)
                        memcpy(out, in, 2);
                    else
                        memcpy(out, in, element_bytes);
                }
}

/* ---- Finite numbers ------------------------------------------------------ */

static bool halves_finite(const uint8_t *at, size_t bytes, uint16_t exponent)
{
    unsigned bad = 0;

    for (size_t i = 0; i < bytes; i += 2) {
        uint16_t value;
        memcpy(&value, at + i, 2);
        bad |= (value & exponent) == exponent;
    }
    return bad == 0;
}

static bool floats_finite(const uint8_t *at, size_t bytes)
{
    unsigned bad = 0;

    for (size_t i = 0; i < bytes; i += 4) {
        uint32_t value;
        memcpy(&value, at + i, 4);
        bad |= (value & 0x7f800000u) == 0x7f800000u;
    }
    return bad == 0;
}

bool blob_finite(int32_t number, const uint8_t *rows, size_t bytes)
{
    enum { F32 = 0, F16 = 1, BF16 = 30 };
    const struct type *type = find_type(number);

    if (type == NULL)
        return true;
    if (number == F32)
        return floats_finite(rows, bytes);
    if (number == F16 || number == BF16)
        return halves_finite(rows, bytes, number == F16 ? 0x7c00 : 0x7f80);
    for (size_t at = 0; at < bytes; at += type->group_bytes)
        if (!halves_finite(rows + at, 2 * (size_t)type->scales, 0x7c00))
            return false;
    return true;
}

bool blob_rows_finite(const blob_part *part, const uint8_t *rows, uint32_t count)
{
    for (uint32_t i = 0; i < part->layer_count; i++) {
        const blob_layer *layer = &part->layers[i];
        const size_t k_bytes = count * (size_t)layer->k_bytes, v_bytes = count * (size_t)layer->v_bytes;

        if (!blob_finite(layer->k_type, rows, k_bytes) || !blob_finite(layer->v_type, rows + k_bytes, v_bytes))
            return false;
        rows += k_bytes + v_bytes;
    }
    return true;
}

/* ---- A layout as bytes --------------------------------------------------- */

size_t blob_layout_write(const blob_layout *layout, uint8_t out[BLOB_LAYOUT_BYTES_MAX])
{
    uint8_t *to = put32(put32(out, LAYOUT_MAGIC), layout->part_count);

    for (uint32_t i = 0; i < layout->part_count; i++) {
        const blob_part *part = &layout->parts[i];

        to = put32(put32(to, part->layer_count), part->transposed);
        to = put32(put32(to, part->n_rot_k), part->n_rot_v);
        for (uint32_t j = 0; j < part->layer_count; j++) {
            const blob_layer *layer = &part->layers[j];

            to = put32(put32(to, (uint32_t)layer->k_type), layer->k_bytes);
            to = put32(put32(to, (uint32_t)layer->v_type), layer->v_bytes);
            to = put32(to, layer->v_element_bytes);
        }
    }
    return (size_t)(to - out);
}

static void read_layer(reader *r, bool transposed, blob_layer *layer)
{
    layer->k_type = (int32_t)get32(r);
    layer->k_bytes = get32(r);
    layer->v_type = (int32_t)get32(r);
    layer->v_bytes = get32(r);
    layer->v_element_bytes = get32(r);
    r->ok = r->ok && row_fits(layer->k_type, layer->k_bytes) && row_fits(layer->v_type, layer->v_bytes) &&
            transposed == (layer->v_element_bytes > 0) && layer->v_element_bytes <= 8 &&
            (!transposed || layer->v_bytes % layer->v_element_bytes == 0);
}

bool blob_layout_read(const uint8_t *bytes, size_t count, blob_layout *layout)
{
    reader r = {bytes, 0, count, true};

    r.ok = get32(&r) == LAYOUT_MAGIC;
    layout->part_count = get32(&r);
    r.ok = r.ok && layout->part_count >= 1 && layout->part_count <= BLOB_PARTS_MAX;
    for (uint32_t i = 0; r.ok && i < layout->part_count; i++) {
        blob_part *part = &layout->parts[i];

        part->layer_count = get32(&r);
        part->transposed = get32(&r);
        part->n_rot_k = get32(&r);
        part->n_rot_v = get32(&r);
        r.ok = r.ok && part->layer_count >= 1 && part->layer_count <= BLOB_LAYERS_MAX && part->transposed <= 1;
        for (uint32_t j = 0; r.ok && j < part->layer_count; j++)
            read_layer(&r, part->transposed == 1, &part->layers[j]);
    }
    return r.ok && r.at == count;
}
