/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a llama.cpp sequence: whatever bytes come, they are refused or all of them are accounted for. What is
 * taken, composed again from its rows, gives the same bytes, and its layout is read back as it was written.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "../engines/llama/blob.h"

static blob_layout layout, again;
static blob_view view, made;

static void must_lie_within(size_t bytes)
{
    for (uint32_t i = 0; i < layout.part_count; i++)
        for (uint32_t j = 0; view.parts[i].count > 0 && j < layout.parts[i].layer_count; j++) {
            const blob_layer *layer = &layout.parts[i].layers[j];
            const size_t count = view.parts[i].count;
            MUST(view.parts[i].k_at[j] + count * layer->k_bytes <= bytes, "K of layer %u ends behind the blob", j);
            MUST(view.parts[i].v_at[j] + count * layer->v_bytes <= bytes, "V of layer %u ends behind the blob", j);
        }
}

static void copy_rows(uint8_t *to, const uint8_t *from)
{
    for (uint32_t i = 0; i < layout.part_count; i++)
        for (uint32_t j = 0; view.parts[i].count > 0 && j < layout.parts[i].layer_count; j++) {
            const blob_layer *layer = &layout.parts[i].layers[j];
            const size_t count = view.parts[i].count;
            memcpy(to + made.parts[i].k_at[j], from + view.parts[i].k_at[j], count * layer->k_bytes);
            memcpy(to + made.parts[i].v_at[j], from + view.parts[i].v_at[j], count * layer->v_bytes);
        }
}

static void must_compose(const uint8_t *blob, size_t bytes, const blob_form *form, const uint32_t *counts,
                         const int32_t *firsts)
{
    uint8_t *copy = malloc(bytes);

    MUST(copy != NULL, "no memory");
    MUST(blob_arrange(form, &layout, counts, &made) == bytes, "another length when composed");
    blob_compose(form, &layout, firsts, view.sequence, &made, copy);
    copy_rows(copy, blob);
    MUST(blob_parse(copy, bytes, form, &again, &made) && blob_layouts_agree(&again, &layout), "composed, not parsed");
    for (uint32_t i = 0; i < layout.part_count; i++) { /* an unused rotation and ext bytes are not kept */
        if (form->ext_bytes > 0 || layout.parts[i].n_rot_k == 0 || layout.parts[i].n_rot_v == 0) {
            free(copy);
            return;
        }
    }
    MUST(memcmp(copy, blob, bytes) == 0, "other bytes when composed");
    free(copy);
}

/* Its parts must be ranges for that. */
static void compose_again(const uint8_t *blob, size_t bytes, const blob_form *form)
{
    uint32_t counts[BLOB_PARTS_MAX] = {0};
    int32_t firsts[BLOB_PARTS_MAX] = {0};

    for (uint32_t i = 0; i < layout.part_count; i++) {
        const uint32_t count = counts[i] = view.parts[i].count;
        uint32_t *cells = malloc((count + 1) * sizeof *cells);
        bool range = true;

        MUST(cells != NULL, "no memory");
        if (count > 0)
            memcpy(&firsts[i], blob + view.parts[i].cells_at, sizeof *firsts);
        range = firsts[i] <= INT32_MAX - (int32_t)count && blob_find(blob, form, &view, i, firsts[i], count, cells);
        for (uint32_t j = 0; range && j < count; j++)
            range = cells[j] == j;
        if (range && count > 0 && blob_token_bytes(&layout.parts[i]) < bytes) {
            uint8_t *rows = malloc(count * blob_token_bytes(&layout.parts[i]));
            MUST(rows != NULL, "no memory");
            blob_take_rows(blob, &layout.parts[i], &view.parts[i], cells, count, rows);
            (void)blob_rows_finite(&layout.parts[i], rows, count);
            free(rows);
        }
        free(cells);
        if (!range || (count == 0 && i == 0))
            return;
    }
    must_compose(blob, bytes, form, counts, firsts);
}

static void keep_layout(void)
{
    static uint8_t bytes[BLOB_LAYOUT_BYTES_MAX];

    for (uint32_t i = 0; i < layout.part_count; i++)
        if (layout.parts[i].layer_count == 0)
            return;
    const size_t count = blob_layout_write(&layout, bytes);
    MUST(count <= sizeof bytes, "a layout of %zu bytes", count);
    MUST(blob_layout_read(bytes, count, &again) && blob_layouts_agree(&again, &layout), "a layout is not read back");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const uint8_t exts[] = {0, 8, 12};
    uint8_t *blob = (uint8_t *)fuzz_text(data, bytes); /* one byte longer, which no read may need */
    blob_form found;

    for (unsigned i = 0; i < 24; i++) {
        const blob_form form = {(i & 1) == 0, (i & 2) == 0, exts[i / 8], (uint8_t)((i & 4) == 0 ? 1 : 2)};
        if (!blob_parse(blob, bytes, &form, &layout, &view))
            continue;
        must_lie_within(bytes);
        compose_again(blob, bytes, &form);
        MUST(blob_parse(blob, bytes, &form, &layout, &view), "once taken, then refused");
        keep_layout();
    }
    if (blob_probe(blob, bytes, &found, &layout, &view))
        must_lie_within(bytes);
    (void)blob_layout_read(blob, bytes, &layout);
    free(blob);
    return 0;
}
