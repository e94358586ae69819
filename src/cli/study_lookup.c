/* SPDX-License-Identifier: Apache-2.0 */
/* Experiment 1: what a look-up costs, in time and in memory traffic, and its share of a promotion. */
#include "study.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHAIN 128
#define LOOKED_UP (1u << 20) /* names in no order: their records and index lines are no cache's */
#define COUNTED 2048         /* chains that are looked up under callgrind */
#define GHOST_BLOCK 65536u /* its bytes are nowhere, but 10^8 of them must fit the 16 TiB of a tier */

int study_put_ghosts(bench_store *store, uint64_t count)
{
    static uint8_t names[CHAIN * BENCH_NAME_BYTES];
    kvo_segment segments[CHAIN];
    kvo_put_options options = KVO_PUT_OPTIONS_INIT;
    int code = 0;
    options.chained = 1;
    for (size_t i = 0; i < CHAIN; i++) {
        segments[i] = (kvo_segment){NULL, GHOST_BLOCK};
    }
    for (uint64_t i = 0; code == 0 && i < count; i += CHAIN) {
        size_t n = count - i < CHAIN ? (size_t)(count - i) : CHAIN;
        bench_names(names, i, n);
        code = bench_stopped();
        code = code != 0 ? code : bench_put(store, names, n, segments, &options);
    }
    return code;
}

int study_open_ghosts(study *s, const char *name, uint64_t count, bench_store *store)
{
    kvo_options options = KVO_OPTIONS_INIT;
    char tiers[64];
    options.flags = KVO_OPEN_GHOST;
    options.block_bytes = GHOST_BLOCK;
    (void)snprintf(tiers, sizeof tiers, "dram:%llublk", (unsigned long long)count);
    return bench_open(&s->bench, name, tiers, &options, store);
}

/* ---- Time ---- */

typedef struct lookups {
    bench_store *store;
    const uint8_t *names;
    size_t batch, pieces; /* names come in so many pieces of a batch */
    unsigned threads;
} lookups;

static void look_up(study_worker *worker)
{
    const lookups *l = worker->context;
    kvo_answer answers[CHAIN];
    size_t piece =
        l->pieces / l->threads * worker->index; /* far apart: nobody runs on lines that another just brought */
    while (!study_over(worker) && worker->code == 0) {
        uint64_t found = 0;
        for (int i = 0; i < 64; i++) {
            size_t matched = 0;
            kvo_names batch = bench_batch(l->store, l->names + piece * l->batch * BENCH_NAME_BYTES, l->batch);
            (void)kvo_match(l->store->store, &batch, answers, &matched);
            found += matched;
            piece = piece + 1 < l->pieces ? piece + 1 : 0;
        }
        if (found != 64 * l->batch) {
            worker->code = cli_fail("match: %llu blocks were found, and %llu are there", (unsigned long long)found,
                                    (unsigned long long)(64 * l->batch));
        }
        worker->operations += found;
    }
}

/* Look-ups a second of all threads together, in several rounds. */
static int time_lookups(study *s, lookups *l, uint64_t blocks, unsigned threads)
{
    const unsigned rounds = (unsigned)study_pick(s, 9, 5, 3);
    const double seconds = study_pick(s, 0.2, 0.05, 0.01);
    study_worker *workers = cli_alloc(threads, sizeof *workers);
    double *rates = cli_alloc(rounds, sizeof *rates);
    study_row row = study_row_of("match", NULL, "look-ups/s");
    int code = 0;
    l->threads = threads;
    row.oversubscribed = threads > s->cores;
    study_parameter_add(&row, "blocks", (double)blocks);
    study_parameter_add(&row, "batch", (double)l->batch);
    study_parameter_add(&row, "threads", threads);
    for (unsigned round = 0; code == 0 && round < rounds; round++) {
        uint64_t all = 0;
        for (unsigned i = 0; i < threads; i++) {
            workers[i] = (study_worker){.run = look_up, .context = l, .index = i, .processor = i};
        }
        double elapsed = 0.0;
        code = study_run_workers(workers, threads, seconds, &elapsed);
        for (unsigned i = 0; i < threads; i++) {
            all += workers[i].operations;
        }
        rates[round] = (double)all / elapsed;
        row.operations += all;
    }
    free(workers);
    if (code != 0) {
        free(rates);
        return code;
    }
    study_add(s, row, rates, rounds);
    return 0;
}

/* Pieces of chains from all over the store, one after the other in memory, as a request has its names. */
static uint8_t *chosen_names(uint64_t blocks, size_t batch, size_t pieces)
{
    uint8_t *names = cli_alloc(pieces * batch, BENCH_NAME_BYTES);
    uint64_t random = 7;
    for (size_t i = 0; i < pieces; i++) {
        bench_names(names + i * batch * BENCH_NAME_BYTES, cli_random(&random) % (blocks / batch) * batch, batch);
    }
    return names;
}

static int time_store(study *s, uint64_t blocks)
{
    static const size_t batches[] = {1, 8, 32, 128};
    bench_store store;
    int code = study_open_ghosts(s, "lookup", blocks, &store);
    if (code != 0) {
        return code;
    }
    code = study_put_ghosts(&store, blocks);
    for (size_t i = 0; code == 0 && i < sizeof batches / sizeof batches[0]; i++) {
        const size_t pieces = LOOKED_UP / batches[i];
        uint8_t *names = chosen_names(blocks, batches[i], pieces);
        lookups l = {&store, names, batches[i], pieces, 1};
        for (unsigned threads = 1; code == 0 && threads <= 2 * s->cores; threads = study_more_threads(s, threads)) {
            code = time_lookups(s, &l, blocks, threads);
        }
        free(names);
    }
    int closed = bench_close(&store, 0);
    return code != 0 ? code : closed;
}

/* ---- Cache lines ---- */

static const char *const counted[] = {"kvo_exists", "kvo_match"};

int study_counted_lookups(study *s, uint64_t blocks)
{
    bench_store store;
    kvo_answer answers[CHAIN];
    int code = study_open_ghosts(s, "counted", blocks, &store);
    if (code != 0) {
        return code;
    }
    code = study_put_ghosts(&store, blocks);
    uint8_t *names = chosen_names(blocks, CHAIN, COUNTED);
    for (size_t i = 0; code == 0 && i < COUNTED; i++) {
        size_t matched;
        kvo_names one = bench_batch(&store, names + i * CHAIN * BENCH_NAME_BYTES, 1);
        kvo_names batch = bench_batch(&store, one.first, CHAIN);
        int status = kvo_exists(store.store, &one, answers);
        status = status == KVO_OK ? kvo_match(store.store, &batch, answers, &matched) : status;
        code = status == KVO_OK ? 0 : bench_refused("match", status);
    }
    free(names);
    int closed = bench_close(&store, 0);
    return code != 0 ? code : closed;
}

/* Runs this program again under callgrind, which adds up what one function and all it calls do. */
static int run_callgrind(const study *s, const char *function, uint64_t blocks, const char *out)
{
    char toggle[64], file[2200], count[32];
    (void)snprintf(toggle, sizeof toggle, "--toggle-collect=%s", function);
    (void)snprintf(file, sizeof file, "--callgrind-out-file=%s", out);
    (void)snprintf(count, sizeof count, "%llu", (unsigned long long)blocks);
    const pid_t parent = getpid();
    pid_t child = fork();
    if (child == 0) {
        /* It would run on for a minute if we were killed. */
        if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() != parent) {
            _exit(127);
        }
        if (freopen("/dev/null", "w", stdout) == NULL || freopen("/dev/null", "w", stderr) == NULL) {
            _exit(127);
        }
        (void)execlp("valgrind", "valgrind", "--tool=callgrind", "--cache-sim=yes", "--D1=32768,8,64",
                     "--LL=33554432,16,64", "--collect-atstart=no", toggle, file, s->program, "study",
                     "--count-lookups", count, "--dir", s->bench.directory, (char *)NULL);
        _exit(127);
    }
    int status = 0;
    const struct timespec pause = {0, 10000000};
    for (int told = 0; child > 0 && waitpid(child, &status, WNOHANG) == 0;) {
        if (!told && bench_stopped() != 0) {
            told = kill(child, SIGTERM) == 0;
        }
        (void)nanosleep(&pause, NULL);
    }
    return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 126;
}

typedef struct traffic {
    double instructions, references, misses;
} traffic;

/* Of the lines "events:" and "totals:" (or "summary:"), which name and give the same columns. */
static int read_callgrind(const char *path, traffic *t)
{
    char line[1024], names[512] = "";
    int found = -1;
    FILE *file = fopen(path, "r");
    *t = (traffic){0};
    while (file != NULL && found != 0 && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "events: ", 8) == 0) {
            (void)snprintf(names, sizeof names, "%.*s", (int)sizeof names - 1, line + 8);
        }
        if (strncmp(line, "totals: ", 8) != 0 && strncmp(line, "summary: ", 9) != 0) {
            continue;
        }
        char *name_rest = NULL, *value_rest = NULL;
        const char *value = strtok_r(strchr(line, ' '), " \n", &value_rest);
        for (char *name = strtok_r(names, " \n", &name_rest); name != NULL && value != NULL;
             name = strtok_r(NULL, " \n", &name_rest), value = strtok_r(NULL, " \n", &value_rest)) {
            double number = strtod(value, NULL);
            t->instructions += strcmp(name, "Ir") == 0 ? number : 0.0;
            t->references += strcmp(name, "Dr") == 0 || strcmp(name, "Dw") == 0 ? number : 0.0;
            t->misses += strcmp(name, "D1mr") == 0 || strcmp(name, "D1mw") == 0 ? number : 0.0;
        }
        found = t->instructions > 0.0 ? 0 : -1;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return found;
}

static void add_traffic(study *s, const char *series, uint64_t blocks, const char *name, const char *unit, double value)
{
    study_row row = study_row_of(name, series, unit);
    study_parameter_add(&row, "blocks", (double)blocks);
    row.operations = COUNTED * (strcmp(series, "kvo_match") == 0 ? CHAIN : 1);
    study_add_one(s, row, value);
}

static int count_lines(study *s, uint64_t blocks)
{
    char out[2100];
    (void)snprintf(out, sizeof out, "%s/callgrind.out", s->bench.directory);
    for (size_t i = 0; i < sizeof counted / sizeof counted[0]; i++) {
        traffic t;
        int code = run_callgrind(s, counted[i], blocks, out);
        double names = (double)COUNTED * (i == 1 ? CHAIN : 1);
        if (bench_stopped() != 0) {
            return bench_stopped();
        }
        if (code != 0 || read_callgrind(out, &t) != 0) {
            study_add_missing(s, study_row_of("lines", counted[i], "lines/look-up"),
                              code == 127 ? "valgrind is not installed, which counts them" : "callgrind did not run");
            continue;
        }
        add_traffic(s, counted[i], blocks, "lines", "lines/look-up", t.misses / names);
        add_traffic(s, counted[i], blocks, "line_bytes", "bytes/look-up", 64.0 * t.misses / names);
        add_traffic(s, counted[i], blocks, "references", "loads and stores/look-up", t.references / names);
        add_traffic(s, counted[i], blocks, "instructions", "instructions/look-up", t.instructions / names);
    }
    (void)unlink(out);
    return 0;
}

/* ---- Share of a promotion ---- */

typedef struct promotions {
    bench_store store;
    uint8_t *names, *memory;
    kvo_segment *segments;
    size_t count;
} promotions;

/* Half of the blocks fit into memory, so that reading all of them in turn promotes each. */
static int open_promotions(study *s, promotions *p, const char *name, uint64_t block_bytes, int ghost)
{
    kvo_options options = KVO_OPTIONS_INIT;
    char tiers[96];
    options.block_bytes = block_bytes;
    options.flags = ghost ? KVO_OPEN_GHOST | KVO_OPEN_STEPPED : KVO_OPEN_STEPPED;
    (void)snprintf(tiers, sizeof tiers, "dram:%zublk,disk:@:%zublk", p->count / 2, p->count + 16);
    int code = bench_open(&s->bench, name, tiers, &options, &p->store);
    if (code != 0) {
        return code;
    }
    p->names = cli_alloc(p->count, BENCH_NAME_BYTES);
    bench_names(p->names, 0, p->count);
    p->memory = bench_map(block_bytes * 16);
    p->segments = bench_segments(p->memory, block_bytes, 16);
    for (size_t i = 0; code == 0 && i < p->count; i += 16) {
        code = bench_put(&p->store, p->names + i * BENCH_NAME_BYTES, 16, p->segments, NULL);
    }
    return code;
}

/* Every get was a promotion, or the times are of something else. */
static int check_promotions(const promotions *p, unsigned rounds)
{
    kvo_tier_stat disk;
    int status = kvo_stat_tier(p->store.store, 1, &disk);
    if (status == KVO_OK && disk.promotions != (uint64_t)rounds * p->count) {
        return cli_fail("promotion: %llu gets were %llu promotions", (unsigned long long)rounds * p->count,
                        (unsigned long long)disk.promotions);
    }
    return status == KVO_OK ? 0 : bench_refused("stat", status);
}

static int promote_all(promotions *p, double *seconds)
{
    int code = 0;
    double begin = bench_now();
    for (size_t i = 0; code == 0 && i < p->count; i += 16) {
        code = bench_stopped();
        code = code != 0 ? code : bench_get(&p->store, p->names + i * BENCH_NAME_BYTES, 16, p->segments, NULL);
    }
    *seconds = (bench_now() - begin) / (double)p->count;
    return code;
}

/* Seconds of a block's promotion, evictions and demotions of others included. */
static int time_promotions(study *s, uint64_t block_bytes, int ghost, double *times, unsigned rounds)
{
    promotions p = {.count = (size_t)study_pick(s, 256, 64, 32)};
    double unused;
    int code = open_promotions(s, &p, ghost ? "ghosts" : "promoted", block_bytes, ghost);
    code = code != 0 ? code : promote_all(&p, &unused); /* all of them have been below once now */
    for (unsigned round = 0; code == 0 && round < rounds; round++) {
        code = promote_all(&p, &times[round]);
    }
    code = code != 0 ? code : check_promotions(&p, rounds + 1);
    int closed = p.store.store != NULL ? bench_close(&p.store, 0) : 0;
    bench_unmap(p.memory, block_bytes * 16);
    free(p.segments);
    free(p.names);
    bench_place_clear(&s->bench, ghost ? "ghosts" : "promoted");
    return code != 0 ? code : closed;
}

static int share_of_promotion(study *s, uint64_t block_bytes)
{
    enum { ROUNDS = 5 };
    static const char *const series[] = {"with its bytes", "decisions alone"};
    double *times[2], *share = cli_alloc(ROUNDS, sizeof *share);
    int code = 0;
    for (int ghost = 0; ghost < 2; ghost++) {
        times[ghost] = cli_alloc(ROUNDS, sizeof **times);
        code = code != 0 ? code : time_promotions(s, block_bytes, ghost, times[ghost], ROUNDS);
    }
    for (int i = 0; i < ROUNDS; i++) {
        share[i] = 100.0 * times[1][i] / times[0][i];
    }
    for (int ghost = 0; code == 0 && ghost < 2; ghost++) {
        study_row row = study_row_of("promotion", series[ghost], "s/block");
        study_parameter_add(&row, "block_bytes", (double)block_bytes);
        row.operations = ROUNDS * (uint64_t)study_pick(s, 256, 64, 32);
        study_add(s, row, times[ghost], ROUNDS);
        times[ghost] = NULL;
    }
    if (code == 0) {
        study_row row = study_row_of("metadata_share", NULL, "% of a promotion");
        study_parameter_add(&row, "block_bytes", (double)block_bytes);
        study_add(s, row, share, ROUNDS);
        share = NULL;
    }
    free(times[0]);
    free(times[1]);
    free(share);
    return code;
}

/* ---- The experiment ---- */

static int has_memory(uint64_t blocks)
{
    return bench_memory_available() / 4 * 3 > blocks * 256 + (uint64_t)LOOKED_UP * BENCH_NAME_BYTES;
}

int study_lookup(study *s)
{
    static const uint64_t counts[] = {100000, 1000000, 10000000};
    static const uint64_t sizes[] = {64u << 10, 256u << 10, 1u << 20, 5u << 20, 8u << 20};
    int code = 0;
    for (size_t i = 0; code == 0 && i < (size_t)study_pick(s, 3, 2, 1); i++) {
        if (has_memory(counts[i])) {
            code = time_store(s, counts[i]);
        } else {
            study_row row = study_row_of("match", NULL, "look-ups/s");
            study_parameter_add(&row, "blocks", (double)counts[i]);
            study_add_missing(s, row, "the machine has too little free memory for so many records");
        }
    }
    code = code != 0 ? code : count_lines(s, (uint64_t)study_pick(s, 1e6, 1e5, 2e4));
    for (size_t i = 0; code == 0 && i < (size_t)study_pick(s, 5, 5, 2); i++) {
        code = share_of_promotion(s, sizes[i]);
    }
    return code;
}

void study_lookup_read(study *s)
{
    char count[CLI_COUNT_TEXT];
    const study_row *small = study_find(s, "match", NULL, "blocks", 1e5, "batch", 128.0, "threads", 1.0, NULL);
    const study_row *large = study_find(s, "match", NULL, "blocks", 1e7, "batch", 128.0, "threads", 1.0, NULL);
    large = large != NULL ? large : study_find(s, "match", NULL, "blocks", 1e6, "batch", 128.0, "threads", 1.0, NULL);
    const double blocks = large != NULL ? study_parameter_of(large, "blocks") : NAN;
    const study_row *one = study_find(s, "match", NULL, "blocks", blocks, "batch", 1.0, "threads", 1.0, NULL);
    const study_row *all =
        study_find(s, "match", NULL, "blocks", blocks, "batch", 128.0, "threads", (double)s->cores, NULL);
    if (small != NULL && large != NULL && one != NULL) {
        study_say(s,
                  "One thread looks up %.1f million names a second among 100,000 blocks and %.1f million among %s, in "
                  "batches of 128; one name a call is %.1f million. ",
                  small->p50 / 1e6, large->p50 / 1e6, cli_count_text((uint64_t)blocks, count), one->p50 / 1e6);
    }
    if (small != NULL && all != NULL && all != large) {
        study_say(s, "%u threads on as many processors look up %.1f million in batches of 128. ", s->cores,
                  all->p50 / 1e6);
    }
    const study_row *lines = study_find(s, "lines", "kvo_exists", NULL),
                    *batched = study_find(s, "lines", "kvo_match", NULL);
    if (lines != NULL && batched != NULL) {
        study_say(s, "A single look-up brings in %.1f cache lines (%.0f bytes) that a first-level cache did not have; "
                     "in a batch of 128 a name brings in %.1f",
                  lines->p50, 64.0 * lines->p50, batched->p50);
        if (large != NULL) {
            study_say(s, ", which at the rate of one thread above is %.1f GB/s",
                      large->p50 * batched->p50 * 64.0 / 1e9);
        }
        study_say(s, ". ");
    }
    const study_row *least = study_find(s, "metadata_share", NULL, "block_bytes", 65536.0, NULL);
    const study_row *most = study_find(s, "metadata_share", NULL, "block_bytes", 5242880.0, NULL);
    if (least != NULL && most != NULL) {
        study_say(s, "Of the time that a promotion from disk takes here, decisions (look-up, victims, records, "
                     "accounting) are %.2f %% at 64 KiB and %.3f %% at 5 MiB.",
                  least->p50, most->p50);
    }
}
