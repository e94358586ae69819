/* SPDX-License-Identifier: Apache-2.0 */
/* Durations in a histogram: 32 steps an octave, so a percentile is within about 2 %. */
#ifndef CLI_LATENCY_H
#define CLI_LATENCY_H

#include <stdint.h>

#define CLI_LATENCY_STEPS 32
#define CLI_LATENCY_BINS (60 * CLI_LATENCY_STEPS)

typedef struct cli_latency {
    uint64_t count;
    uint64_t bins[CLI_LATENCY_BINS];
} cli_latency;

void cli_latency_add(cli_latency *latency, uint64_t ns);
/* Microseconds below which `per_mille` of 1000 lie; negative if there are none. */
double cli_latency_us(const cli_latency *latency, unsigned per_mille);

#endif
