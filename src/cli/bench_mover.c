/* SPDX-License-Identifier: Apache-2.0 */
/* Policies of 200,000 real blocks, with and without a mover at work in the same store. */
#include "bench.h"
#include "bench_policy.h"

#include <stdlib.h>

#define MEMORY_BLOCKS 2048u
#define MORE_BLOCKS 6144u /* room on disk beside those whose policies are set */
#define QUICK_SHARE 16u   /* of both, in a quick run */
#define WORD_PASSES 8     /* so that a sample lasts long enough to meet the mover */
#define MASKED_PASSES 2

typedef struct mover {
    bench_chains chains;
    uint64_t block_bytes;
    uint64_t memory_blocks;
    kvo_put_options put; /* the writer's blocks leave first */
    uint64_t next_name;
    bench_measure measure;
} mover;

static int measure_alone(void *context, unsigned round, bench_sample *sample)
{
    mover *m = context;
    return m->measure(&m->chains, round, sample);
}

static int measure_beside(void *context, unsigned round, bench_sample *sample)
{
    mover *m = context;
    bench_writer *writer = bench_writer_start(m->chains.store, m->next_name, m->block_bytes, &m->put);
    int code = writer != NULL ? bench_writer_wait(writer, 256) : CLI_FAIL;
    code = code != 0 ? code : m->measure(&m->chains, round, sample);
    int stopped = writer != NULL ? bench_writer_stop(writer, &m->next_name) : 0;
    code = code != 0 ? code : stopped;
    return code != 0 ? code : bench_settle(m->chains.store);
}

static int compare(bench *b, mover *m, const char *name, bench_measure measure, unsigned passes)
{
    const bench_comparison c = {.name = name,
                                .unit = "updates/s",
                                .work = (double)(passes * m->chains.count),
                                .kvonce = measure_beside,
                                .limit = measure_alone,
                                .context = m,
                                .rounds = bench_rounds(b, 1)};
    m->measure = measure;
    m->chains.passes = passes;
    return bench_compare(b, &c);
}

/* All policies are set once, so that a masked update has something to keep; memory is filled. */
static int prepare(mover *m)
{
    bench_sample sample;
    int code = bench_chains_handles(&m->chains);
    code = code != 0 ? code : bench_policy_word(&m->chains, 0, &sample);
    bench_writer *writer = code == 0 ? bench_writer_start(m->chains.store, m->next_name, m->block_bytes, &m->put)
                                     : NULL;
    if (writer == NULL) {
        return CLI_FAIL;
    }
    code = bench_writer_wait(writer, m->memory_blocks + 256);
    int stopped = bench_writer_stop(writer, &m->next_name);
    code = code != 0 ? code : stopped;
    return code != 0 ? code : bench_settle(m->chains.store);
}

int bench_mover(bench *b, const char *name, uint64_t blocks, uint64_t block_bytes)
{
    bench_store store;
    mover m = {.block_bytes = block_bytes, .put = KVO_PUT_OPTIONS_INIT, .next_name = (uint64_t)1 << 40};
    const unsigned share = b->quick ? QUICK_SHARE : 1;
    kvo_options options = KVO_OPTIONS_INIT;
    char tiers[128];
    m.put.policy.qos = 0;
    options.block_bytes = block_bytes;
    m.memory_blocks = MEMORY_BLOCKS / share;
    (void)snprintf(tiers, sizeof tiers, "dram:%llublk,disk:@:%llublk", (unsigned long long)m.memory_blocks,
                   (unsigned long long)(blocks + MORE_BLOCKS / share));
    int code = bench_open(b, name, tiers, &options, &store);
    if (code != 0) {
        return code;
    }
    bench_chains_make(&m.chains, &store, blocks);
    code = prepare(&m);
    code = code != 0 ? code : compare(b, &m, "policy_word_mover", bench_policy_word, WORD_PASSES);
    code = code != 0 ? code : compare(b, &m, "policy_masked_mover", bench_policy_masked, MASKED_PASSES);
    bench_chains_free(&m.chains);
    int closed = bench_close(&store, 0);
    return code != 0 ? code : closed;
}
