/* SPDX-License-Identifier: Apache-2.0 */
#include "latency.h"

/* Below 32 ns a bin is a nanosecond; above, 32 bins from each power of two to the next. */
static unsigned bin_of(uint64_t ns)
{
    unsigned octave = 0;
    while (ns >> octave >= 2 * CLI_LATENCY_STEPS) {
        octave++;
    }
    unsigned bin = octave * CLI_LATENCY_STEPS + (unsigned)(ns >> octave);
    return bin < CLI_LATENCY_BINS ? bin : CLI_LATENCY_BINS - 1;
}

static double middle_ns(unsigned bin)
{
    if (bin < 2 * CLI_LATENCY_STEPS) {
        return bin;
    }
    unsigned octave = bin / CLI_LATENCY_STEPS - 1;
    double step = (double)((uint64_t)1 << octave);
    return ((double)(bin - octave * CLI_LATENCY_STEPS) + 0.5) * step;
}

void cli_latency_add(cli_latency *latency, uint64_t ns)
{
    latency->count++;
    latency->bins[bin_of(ns)]++;
}

double cli_latency_us(const cli_latency *latency, unsigned per_mille)
{
    uint64_t rank = (latency->count * per_mille + 999) / 1000;
    uint64_t below = 0;
    for (unsigned bin = 0; latency->count != 0 && bin < CLI_LATENCY_BINS; bin++) {
        below += latency->bins[bin];
        if (below >= rank) {
            return middle_ns(bin) / 1000.0;
        }
    }
    return -1.0;
}
