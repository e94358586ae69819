/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What llama.cpp takes without a word must not reach it, and must not be kept if it happens all the same: every fault
 * here is put into the blob, between the adapter and the engine, or into the store. Each time the answer is right or
 * nothing was restored, the cause is counted, and the context works on.
 */
#include "rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "blob.h"

enum { BLOCKS = 5, FULL = BLOCKS * BLOCK, TOKENS = FULL + 24, VOCABULARY_MAX = 65536 };

/* What the right K, V and logits are; from the process that computed them. */
struct truth {
    float logits[VOCABULARY_MAX];
    size_t bytes;
    uint8_t blob[16u << 20]; /* of all full blocks */
};

static struct truth *truth;
static int32_t tokens[TOKENS];
static char store_text[128], other_text[128], third_text[128];
static unsigned cases, restored_cases;

/* ---- Faults in the blob --------------------------------------------------------- */

enum { NONE, CUT, LONGER, FLIP, POKE, FEWER, SWAP };

/* The next export or import is changed like this. */
static struct fault {
    int what;
    size_t at, count; /* bytes; count: of `value`, or cut off */
    uint64_t value;
    int skip;         /* calls that pass before */
    unsigned done;
} on_import, on_export;
static kvo_llama_functions real;

static void change(const struct fault *fault, uint8_t *blob, size_t bytes)
{
    if (fault->what == FLIP && fault->at / 8 < bytes)
        blob[fault->at / 8] ^= (uint8_t)(1 << fault->at % 8);
    if (fault->what == POKE && fault->at + fault->count <= bytes)
        memcpy(blob + fault->at, &fault->value, fault->count);
    if (fault->what == SWAP) /* two runs of `count` bytes */
        for (size_t i = 0; i < fault->count; i++) {
            const uint8_t byte = blob[fault->at + i];
            blob[fault->at + i] = blob[fault->value + i];
            blob[fault->value + i] = byte;
        }
}

static size_t faulty_set(struct llama_context *context, const uint8_t *from, size_t bytes, int32_t sequence,
                         uint32_t flags)
{
    uint8_t *copy;
    size_t used, given = bytes;

    if (on_import.what == NONE || on_import.skip-- > 0)
        return real.state_seq_set_data_ext(context, from, bytes, sequence, flags);
    on_import.done++;
    copy = malloc(bytes + 128);
    CHECK(copy != NULL);
    memcpy(copy, from, bytes);
    memset(copy + bytes, 0, 128);
    change(&on_import, copy, bytes);
    if (on_import.what == CUT)
        given = on_import.count < bytes ? bytes - on_import.count : 0;
    if (on_import.what == LONGER)
        given = bytes + on_import.count;
    used = real.state_seq_set_data_ext(context, copy, given, sequence, flags);
    free(copy);
    return on_import.what == FEWER ? used - on_import.count : used;
}

static size_t faulty_get(struct llama_context *context, uint8_t *to, size_t bytes, int32_t sequence, uint32_t flags)
{
    const size_t got = real.state_seq_get_data_ext(context, to, bytes, sequence, flags);

    if (on_export.what == NONE || on_export.skip-- > 0)
        return got;
    on_export.done++;
    change(&on_export, to, got);
    return on_export.what == CUT ? got - on_export.count : got;
}

static size_t faulty_size(struct llama_context *context, int32_t sequence, uint32_t flags)
{
    const size_t bytes = real.state_seq_get_size_ext(context, sequence, flags);

    return on_export.what == LONGER ? bytes + on_export.count : bytes;
}

static void open_faulty(struct rig *rig, const struct setup *setup)
{
    rig_open(rig, setup);
    real = rig->functions;
    rig->functions.state_seq_set_data_ext = faulty_set;
    rig->functions.state_seq_get_data_ext = faulty_get;
    rig->functions.state_seq_get_size_ext = faulty_size;
    rig_attach(rig);
}

static struct setup usual(void)
{
    struct setup setup = SETUP_INIT;

    setup.store = store_text;
    return setup;
}

/* ---- What is right ----------------------------------------------------------------- */

static const blob_form form_now = {true, true, 0, 1};

/* The rows of a sequence's first `count` positions, as the engine gives them. */
static uint8_t *rows_of(const uint8_t *blob, size_t bytes, uint32_t count, size_t *row_bytes)
{
    static blob_layout layout;
    static blob_view view;
    uint32_t cells[TOKENS];

    CHECK(blob_parse(blob, bytes, &form_now, &layout, &view));
    CHECK(blob_find(blob, &form_now, &view, 0, 0, count, cells));
    *row_bytes = count * blob_token_bytes(&layout.parts[0]);
    uint8_t *rows = malloc(*row_bytes);

    CHECK(rows != NULL);
    blob_take_rows(blob, &layout.parts[0], &view.parts[0], cells, count, rows);
    return rows;
}

static void rows_are_right(struct rig *rig, int32_t sequence, size_t count)
{
    struct llama_context *context = engine_context(rig->engine);
    const size_t bytes = real.state_seq_get_size_ext(context, sequence, 0);
    uint8_t *blob = malloc(bytes);
    size_t row_bytes, right_bytes;

    CHECK(real.state_seq_get_data_ext(context, blob, bytes, sequence, 0) == bytes);
    uint8_t *rows = rows_of(blob, bytes, (uint32_t)count, &row_bytes);
    uint8_t *right = rows_of(truth->blob, truth->bytes, (uint32_t)count, &right_bytes);

    CHECK(row_bytes == right_bytes && memcmp(rows, right, row_bytes) == 0);
    free(rows);
    free(right);
    free(blob);
}

static size_t restore(struct rig *rig, int *why)
{
    size_t have = 0;

    CHECK(kvo_llama_restore(rig->kv, 0, tokens, TOKENS, &have, why) == KVO_OK);
    return have;
}

/* Without a fault it goes on as if nothing had been. */
static void works_on(struct rig *rig, bool decode)
{
    int why = -1;

    on_import.what = on_export.what = NONE;
    CHECK(restore(rig, &why) == FULL && why == KVO_LLAMA_COMPLETE);
    if (!decode)
        return;
    rows_are_right(rig, 0, FULL);
    rig_decode(rig, 0, tokens, FULL, TOKENS);
    CHECK(rig_same_logits(rig, truth->logits));
}

static int compute(void *argument)
{
    struct setup setup = usual();
    struct rig rig;
    int why = -1;

    (void)argument;
    rig_open(&rig, &setup);
    rig_attach(&rig);
    CHECK(rig_decode_and_save(&rig, 0, tokens, FULL, &why) == FULL && why == KVO_LLAMA_COMPLETE);
    truth->bytes = rig.functions.state_seq_get_size_ext(engine_context(rig.engine), 0, 0);
    CHECK(truth->bytes <= sizeof truth->blob);
    CHECK(rig.functions.state_seq_get_data_ext(engine_context(rig.engine), truth->blob, truth->bytes, 0, 0) ==
          truth->bytes);
    rig_decode(&rig, 0, tokens, FULL, TOKENS);
    memcpy(truth->logits, engine_logits(rig.engine), engine_vocabulary(rig.engine) * sizeof(float));
    rig_close(&rig);
    return 0;
}

/* ---- On the way into the engine ---------------------------------------------------- */

/* The metadata of the blob that is imported: everything before the first rows, then 12 bytes a layer. */
static size_t meta_bytes(void)
{
    return 8 + 8 + 12 * (size_t)FULL + 16 + 12;
}

static void import_case(struct rig *rig, bool learned, struct fault fault)
{
    int why = -1;

    if (!learned) {
        CHECK(kvo_llama_close(rig->kv, KVO_FOREVER) == KVO_OK);
        rig_attach(rig);
    }
    on_import = fault;
    const size_t have = restore(rig, &why);

    CHECK(on_import.done >= 1);
    cases++;
    if (have == 0) {
        CHECK(why != KVO_LLAMA_COMPLETE && why != KVO_LLAMA_MISS);
        CHECK(rig->functions.memory_seq_pos_max(rig->memory, 0) == -1);
    } else { /* harmless: it must be right, then */
        CHECK(have == FULL);
        rows_are_right(rig, 0, FULL);
        restored_cases++;
    }
    works_on(rig, cases % 64 == 0);
}

static int blobs_on_their_way_in(void *argument)
{
    const bool learned = argument != NULL;
    struct setup setup = usual();
    struct rig rig;
    uint64_t random = 1;
    int why;

    open_faulty(&rig, &setup);
    if (learned)
        works_on(&rig, true);
    const size_t bytes = truth->bytes, step = learned ? 1 : 8;

    for (size_t cut = 1; cut < 4096; cut += 257 * step)
        import_case(&rig, learned, (struct fault){.what = CUT, .count = cut});
    for (size_t cut = 4096; cut < bytes; cut += bytes / 40 * step)
        import_case(&rig, learned, (struct fault){.what = CUT, .count = cut});
    for (size_t i = 0; i < 120; i += step) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        import_case(&rig, learned, (struct fault){.what = FLIP, .at = (random >> 20) % (8 * meta_bytes())});
        import_case(&rig, learned, (struct fault){.what = FLIP, .at = (random >> 20) % (8 * bytes)});
    }
    import_case(&rig, learned, (struct fault){.what = LONGER, .count = 100});
    import_case(&rig, learned, (struct fault){.what = FEWER, .count = 100});
    /* A gap, a duplicate, another order of positions, a whole block elsewhere. */
    import_case(&rig, learned, (struct fault){.what = POKE, .at = 16 + 12 * 100, .count = 4, .value = 99});
    import_case(&rig, learned, (struct fault){.what = POKE, .at = 16 + 12 * 100, .count = 4, .value = 900});
    import_case(&rig, learned, (struct fault){.what = POKE, .at = 16 + 12 * (FULL - 1), .count = 4, .value = FULL - 2});
    import_case(&rig, learned,
                (struct fault){.what = SWAP, .at = 16 + 12 * 64, .count = 12 * 64, .value = 16 + 12 * 192});
    /* NaN, as halves, in the first layer's K and the last one's V. */
    import_case(&rig, learned, (struct fault){.what = POKE, .at = meta_bytes() + 512, .count = 2, .value = 0x7e00});
    import_case(&rig, learned, (struct fault){.what = POKE, .at = bytes - 64, .count = 2, .value = 0x7e00});
    works_on(&rig, true);
    CHECK(restore(&rig, &why) == FULL);

    const kvo_llama_stat stat = rig_stat(&rig); /* of the last adapter */
    printf("into the engine, %s: %u faults, %u harmless, 0 wrong rows; refused %u, engine %u, positions %u, "
           "changed %u, shape %u\n", learned ? "layout known" : "layout not known", cases, restored_cases,
           (unsigned)stat.restore_why[KVO_LLAMA_NO_ROOM], (unsigned)stat.restore_why[KVO_LLAMA_ENGINE],
           (unsigned)stat.restore_why[KVO_LLAMA_POSITIONS], (unsigned)stat.restore_why[KVO_LLAMA_CHANGED],
           (unsigned)stat.restore_why[KVO_LLAMA_SHAPE]);
    rig_close(&rig);
    return 0;
}

/* NaN in an engine that sums without flash attention reaches every sequence, unless the cells are wiped. */
static int nan_does_not_stay(void *argument)
{
    struct setup setup = usual();
    struct rig rig;
    float *right;
    int why = -1;

    (void)argument;
    setup.pinned.flash = 0;
    setup.store = other_text;
    open_faulty(&rig, &setup);
    CHECK(rig_decode_and_save(&rig, 0, tokens, 2 * BLOCK, &why) == 2 * BLOCK);
    right = rig_logits(&rig);
    for (size_t i = 1; i < 8; i++) {
        size_t have;

        on_import = (struct fault){.what = POKE, .at = 16 + 12 * 64 + 16 + 4096 * i * 11, .count = 2, .value = 0x7e00};
        CHECK(kvo_llama_restore(rig.kv, 0, tokens, 2 * BLOCK, &have, &why) == KVO_OK);
        CHECK(on_import.done == 1 && have == 0 && why == KVO_LLAMA_CHANGED);
        on_import.what = NONE;
        rig_decode(&rig, 0, tokens, 0, BLOCK / 2);
        CHECK(engine_logits(rig.engine)[1] == engine_logits(rig.engine)[1]);
    }
    rig_empty(&rig, 0, -1);
    rig_decode(&rig, 0, tokens, 0, 2 * BLOCK);
    CHECK(rig_same_logits(&rig, right));
    printf("NaN: 7 imports refused after the fact and wiped, the same prompt gives the same logits\n");
    free(right);
    rig_close(&rig);
    return 0;
}

/* ---- On the way out ------------------------------------------------------------------- */

/* A prompt that was computed is saved once more, under a salt of its own, from a blob with a fault. */
static void export_case(struct rig *rig, struct fault fault)
{
    char salt[32];
    size_t stored = 1;
    int why = -1;

    snprintf(salt, sizeof salt, "case %u", cases);
    rig->setup.salt = salt;
    CHECK(kvo_llama_close(rig->kv, KVO_FOREVER) == KVO_OK);
    rig_attach(rig);
    rig->setup.salt = NULL;
    on_export = fault;
    CHECK(kvo_llama_save(rig->kv, 0, tokens, 2 * BLOCK, &stored, &why) == KVO_OK);
    CHECK(on_export.what == LONGER || on_export.done > 0);
    on_export.what = NONE;
    cases++;
    if (fault.what == FLIP && stored == 2 * BLOCK)
        restored_cases++; /* it did not matter; what came of it is checked below */
    else
        CHECK(stored < 2 * BLOCK && why != KVO_LLAMA_COMPLETE && rig_stat(rig).save_why[why] == 1);

    /* Saved again without the fault, and restored: the right rows. */
    CHECK(kvo_llama_close(rig->kv, KVO_FOREVER) == KVO_OK);
    rig->setup.salt = salt;
    rig_attach(rig);
    rig->setup.salt = NULL;
    CHECK(kvo_llama_save(rig->kv, 0, tokens, 2 * BLOCK, &stored, &why) == KVO_OK);
    CHECK(stored == 2 * BLOCK && why == KVO_LLAMA_COMPLETE);
    CHECK(kvo_llama_restore(rig->kv, 0, tokens, 2 * BLOCK + 1, &stored, &why) == KVO_OK && stored == 2 * BLOCK);
    rows_are_right(rig, 0, 2 * BLOCK);
    const kvo_target all = {.by = KVO_BY_ALL}; /* makes room: a save does not wait for it */
    CHECK(kvo_remove(rig->store, &all, KVO_SEALED, KVO_FOREVER, NULL, NULL) == KVO_OK);
}

static int blobs_on_their_way_out(void *argument)
{
    struct setup setup = usual();
    struct rig rig;
    uint64_t random = 7;
    const size_t head = 8 + 8 + 12 * BLOCK + 16;

    (void)argument;
    setup.store = other_text;
    setup.flags = KVO_LLAMA_MEMORY_ONLY;
    open_faulty(&rig, &setup);
    rig_decode(&rig, 0, tokens, 0, 2 * BLOCK);
    for (int skip = 0; skip < 4; skip += 2) { /* while the layout is learned, and afterwards */
        for (size_t i = 0; i < 60; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            export_case(&rig, (struct fault){.what = FLIP, .at = (random >> 20) % (8 * head), .skip = skip});
        }
        for (size_t cut = 1; cut < 1u << 20; cut *= 9)
            export_case(&rig, (struct fault){.what = CUT, .count = cut, .skip = skip});
        for (uint64_t value = 0x7e00; value <= 0xfc00; value += 0xfc00 - 0x7e00) /* NaN, minus infinity */
            export_case(&rig,
                        (struct fault){.what = POKE, .at = head + 652, .count = 2, .value = value, .skip = skip});
        export_case(&rig, (struct fault){.what = POKE, .at = 16 + 12 * 7, .count = 4, .value = 6, .skip = skip});
    }
    export_case(&rig, (struct fault){.what = LONGER, .count = 100});
    printf("out of the engine: %u faults, %u harmless, 0 wrong rows\n", cases, restored_cases);
    rig_close(&rig);
    return 0;
}

/* ---- In the store --------------------------------------------------------------------- */

static size_t block_places(struct rig *rig, uint64_t offsets[BLOCKS], uint8_t names[BLOCKS][32], kvo_space *space)
{
    kvo_block_info infos[16];
    uint64_t cursor = 0;
    size_t count = 1, found = 0;

    while (kvo_walk(rig->store, NULL, &cursor, infos, 16, &count) == KVO_OK && count > 0)
        for (size_t i = 0; i < count; i++)
            if (infos[i].payload_bytes > 1u << 20 && infos[i].position / BLOCK < BLOCKS) {
                const uint32_t block = infos[i].position / BLOCK;
                *space = infos[i].space;
                memcpy(names[block], infos[i].name, 32);
                for (uint32_t c = 0; c < infos[i].copy_count; c++)
                    if (infos[i].copies[c].tier > 0)
                        offsets[block] = infos[i].copies[c].offset_bytes;
                found++;
            }
    return found;
}

static void flip_in_file(const char *path, uint64_t offset)
{
    const int file = open(path, O_RDWR | O_CLOEXEC);
    uint8_t byte;

    CHECK(file >= 0 && pread(file, &byte, 1, (off_t)offset) == 1);
    byte ^= 0x10;
    CHECK(pwrite(file, &byte, 1, (off_t)offset) == 1 && close(file) == 0);
}

struct damage {
    char directory[96];
    uint64_t offsets[BLOCKS];
    uint8_t names[BLOCKS][32];
    kvo_space space;
};

/* One block after the other, from the last: the prefix before it is what comes. */
static int damaged_blocks(void *argument)
{
    struct damage *damage = argument;
    struct setup setup = usual();

    for (int block = BLOCKS - 1; block >= 0; block--) {
        char path[160];
        struct rig rig;
        int why = -1;

        snprintf(path, sizeof path, "%s/data", damage->directory);
        flip_in_file(path, damage->offsets[block] + 4096 + 77777);
        open_faulty(&rig, &setup);
        CHECK(restore(&rig, &why) == (size_t)block * BLOCK);
        CHECK(why == KVO_LLAMA_DAMAGED && rig_stat(&rig).restore_why[KVO_LLAMA_DAMAGED] == 1);
        if (block > 0)
            rows_are_right(&rig, 0, (size_t)block * BLOCK);
        rig_close(&rig);
        cases++;
    }
    printf("in the store: %u damaged blocks, 0 wrong rows\n", cases);
    return 0;
}

static int gaps_and_poison(void *argument)
{
    struct damage *damage = argument;
    struct setup setup = usual();
    struct rig rig;
    kvo_target target = {.by = KVO_BY_NAMES};
    uint64_t removed = 0;
    int why = -1;

    setup.store = third_text;
    open_faulty(&rig, &setup);
    rig_decode_and_save(&rig, 0, tokens, 4 * BLOCK, &why);
    memset(damage->names, 0, sizeof damage->names);
    CHECK(block_places(&rig, damage->offsets, damage->names, &damage->space) == 4);

    /* NaN under a right digest, as a sick writer would leave it. */
    const kvo_names names = {.first = damage->names[3], .name_bytes = 32, .count = 1, .space = damage->space};
    static uint8_t payload[2u << 20];
    kvo_answer answer;
    CHECK(kvo_exists(rig.store, &names, &answer) == KVO_OK && answer.status == KVO_OK);
    kvo_segment segment = {payload, answer.payload_bytes};
    const kvo_memory memory = {&segment, NULL};
    CHECK(kvo_get(rig.store, &names, &memory, NULL, &answer) == KVO_OK && answer.status == KVO_OK);
    payload[70001] = 0x7e;
    payload[70000] = 0;
    CHECK(kvo_rewrite(rig.store, &names, &memory, 0, NULL, &answer) == KVO_OK && answer.status == KVO_STORED);
    CHECK(restore(&rig, &why) == 3 * BLOCK && why == KVO_LLAMA_NOT_FINITE);
    rows_are_right(&rig, 0, 3 * BLOCK);
    CHECK(restore(&rig, &why) == 3 * BLOCK && why == KVO_LLAMA_MISS); /* it is gone */

    /* A hole in the middle. */
    target.names = (kvo_names){.first = damage->names[1], .name_bytes = 32, .count = 1, .space = damage->space};
    CHECK(kvo_remove(rig.store, &target, KVO_SEALED, KVO_FOREVER, NULL, &removed) == KVO_OK && removed == 1);
    CHECK(restore(&rig, &why) == BLOCK && why == KVO_LLAMA_MISS);
    rows_are_right(&rig, 0, BLOCK);
    rig_decode(&rig, 0, tokens, BLOCK, 4 * BLOCK); /* the hole is filled, the tail is stored again */
    size_t stored = 0;
    CHECK(kvo_llama_save(rig.kv, 0, tokens, 4 * BLOCK, &stored, &why) == KVO_OK && stored == 4 * BLOCK);
    CHECK(restore(&rig, &why) == 4 * BLOCK && why == KVO_LLAMA_MISS);
    rig_close(&rig);
    printf("in the store: NaN under a right digest and a hole: 0 wrong rows\n");
    return 0;
}

/* Same shape, other numbers: only the identity tells. */
static int others_share_nothing(void *argument)
{
    struct setup setup = usual();
    struct rig rig;
    int32_t wrong[TOKENS];
    size_t have;
    int why;

    (void)argument;
    open_faulty(&rig, &setup);
    for (int i = 0; i < 4; i++) {
        CHECK(kvo_llama_close(rig.kv, KVO_FOREVER) == KVO_OK);
        rig.setup = setup;
        rig.setup.model_byte = i == 0 ? 77 : 1;
        rig.setup.settings = i == 1 ? "lora=x:1.0" : NULL;
        rig.setup.salt = i == 2 ? "tenant" : NULL;
        rig.setup.block_tokens = i == 3 ? 32 : 0;
        rig_attach(&rig);
        CHECK(restore(&rig, &why) == 0 && why == KVO_LLAMA_MISS);
    }
    CHECK(kvo_llama_close(rig.kv, KVO_FOREVER) == KVO_OK);
    rig.setup = setup;
    rig_attach(&rig);
    memcpy(wrong, tokens, sizeof wrong);
    wrong[2 * BLOCK + 5]++;
    CHECK(kvo_llama_restore(rig.kv, 0, wrong, TOKENS, &have, &why) == KVO_OK && have == 2 * BLOCK);
    CHECK(why == KVO_LLAMA_MISS);
    rows_are_right(&rig, 0, have);
    works_on(&rig, true);
    printf("another model, other settings, another tenant, other blocks, other tokens: nothing shared\n");
    rig_close(&rig);
    return 0;
}

/* ---- Contexts -------------------------------------------------------------------------- */

static int no_room_in_the_context(void *argument)
{
    const bool learned = argument != NULL;
    struct setup setup = usual();
    struct rig rig;
    int32_t more[256];
    int why = -1;

    setup.sequences = 3;
    setup.context_tokens = 512;
    open_faulty(&rig, &setup);
    if (learned)
        works_on(&rig, false);
    rig_empty(&rig, 0, -1);
    rig_tokens(more, 256, 9);
    rig_decode(&rig, 1, more, 0, 256);
    const size_t bytes = real.state_seq_get_size_ext(engine_context(rig.engine), 1, 0);
    uint8_t *before = malloc(bytes), *after = malloc(bytes);

    CHECK(real.state_seq_get_data_ext(engine_context(rig.engine), before, bytes, 1, 0) == bytes);
    CHECK(restore(&rig, &why) == 0 && why == KVO_LLAMA_NO_ROOM); /* 320 and 256 are more than 512 */
    CHECK(real.state_seq_get_size_ext(engine_context(rig.engine), 1, 0) == bytes);
    CHECK(real.state_seq_get_data_ext(engine_context(rig.engine), after, bytes, 1, 0) == bytes);
    CHECK(memcmp(before, after, bytes) == 0);
    CHECK(engine_decode(rig.engine, 1, more, 16, 256) == 0);
    rig_empty(&rig, 1, -1);
    works_on(&rig, true);
    printf("no room in the context, layout %s: nothing restored, the other sequence is as it was\n",
           learned ? "known" : "not known");
    free(before);
    free(after);
    rig_close(&rig);
    return 0;
}

/* The same two prompts, computed one after the other, then restored one after the other. */
static int two_sequences(void *argument)
{
    struct setup setup = usual();
    struct rig rig;
    int32_t second[3 * BLOCK + 8];
    float *one, *two;
    size_t have;
    int why = -1;

    (void)argument;
    setup.sequences = 3;
    setup.store = other_text;
    setup.model_byte = 2;
    open_faulty(&rig, &setup);
    rig_tokens(second, 3 * BLOCK + 8, 11);
    memcpy(second, tokens, BLOCK * sizeof *second);
    rig_decode_and_save(&rig, 0, tokens, 3 * BLOCK, &why);
    rig_decode_and_save(&rig, 1, second, 3 * BLOCK, &why);
    CHECK(rig_stat(&rig).saved_blocks == 5); /* the first is shared */
    rig_decode(&rig, 0, tokens, 3 * BLOCK, 3 * BLOCK + 8);
    one = rig_logits(&rig);
    rig_decode(&rig, 1, second, 3 * BLOCK, 3 * BLOCK + 8);
    two = rig_logits(&rig);
    rig_empty(&rig, 0, -1);
    rig_empty(&rig, 1, -1);
    CHECK(kvo_llama_restore(rig.kv, 0, tokens, 3 * BLOCK + 8, &have, &why) == KVO_OK && have == 3 * BLOCK);
    CHECK(kvo_llama_restore(rig.kv, 1, second, 3 * BLOCK + 8, &have, &why) == KVO_OK && have == 3 * BLOCK);
    rows_are_right(&rig, 0, 3 * BLOCK);
    rig_decode(&rig, 0, tokens, 3 * BLOCK, 3 * BLOCK + 8);
    CHECK(rig_same_logits(&rig, one));
    rig_decode(&rig, 1, second, 3 * BLOCK, 3 * BLOCK + 8);
    CHECK(rig_same_logits(&rig, two));
    printf("two sequences at once: both bit-identical\n");
    free(one);
    free(two);
    rig_close(&rig);
    return 0;
}

/* ---- All of it ---------------------------------------------------------------------------- */

static int failures;

static void part(const char *what, int (*body)(void *argument), void *argument)
{
    const int status = rig_process(body, argument);

    if (status == 0)
        return;
    failures++;
    printf("FAILED: %s: ended with %d\n", what, status);
}

static int find_places(void *argument)
{
    struct damage *damage = argument;
    kvo_error error = {""};
    struct rig rig = {0};

    if (kvo_open(store_text, NULL, &rig.store, &error) != KVO_OK)
        rig_fail(__FILE__, __LINE__, error.text);
    CHECK(block_places(&rig, damage->offsets, damage->names, &damage->space) == BLOCKS);
    CHECK(kvo_close(rig.store, KVO_FOREVER) == KVO_OK);
    return 0;
}

int main(void)
{
    struct damage *damage;

    if (rig_library(false) == NULL || getenv("KVONCE_LLAMA_MODEL") == NULL) {
        printf("KVONCE_LLAMA_LIB and KVONCE_LLAMA_MODEL are not set\n");
        return 77;
    }
    truth = mmap(NULL, sizeof *truth, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    damage = mmap(NULL, sizeof *damage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(truth != MAP_FAILED && damage != MAP_FAILED);
    snprintf(damage->directory, sizeof damage->directory, "%s/store", rig_directory());
    snprintf(store_text, sizeof store_text, "dram:64M,disk:%s:256M", damage->directory);
    snprintf(other_text, sizeof other_text, "dram:64M,disk:%s/other:512M", rig_directory());
    snprintf(third_text, sizeof third_text, "dram:64M,disk:%s/third:256M", rig_directory());
    rig_tokens(tokens, TOKENS, 1);

    if (rig_process(compute, NULL) != 0)
        return 1;
    part("no other context's blocks", others_share_nothing, NULL);
    part("into the engine, layout not known", blobs_on_their_way_in, NULL);
    part("into the engine", blobs_on_their_way_in, damage);
    part("NaN", nan_does_not_stay, NULL);
    part("out of the engine", blobs_on_their_way_out, NULL);
    part("no room", no_room_in_the_context, NULL);
    part("no room, layout known", no_room_in_the_context, damage);
    part("two sequences", two_sequences, NULL);
    part("gaps and poison in the store", gaps_and_poison, damage);
    part("places", find_places, damage);
    part("damaged blocks", damaged_blocks, damage);
    return failures == 0 ? 0 : 1;
}
