/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a trace as the command understands it: a request a line, ids written out. */
#include "../../src/cli/common.h"
#include "../../src/cli/trace.h"

#include <stdlib.h>

static void print_request(const cli_trace *trace, uint32_t index, uint64_t *ids)
{
    const cli_request *request = &trace->requests[index];
    cli_trace_expand(trace, index, ids);
    printf("%lld.%09lu line=%lu scope=%lu tenant=%s session=%lu ids=", (long long)request->time.whole,
           (unsigned long)request->time.nano, (unsigned long)request->line, (unsigned long)request->scope,
           request->tenant != 0 ? trace->tenants.items[request->tenant - 1] : "-",
           (unsigned long)request->session);
    for (uint32_t i = 0; i < request->count; i++) {
        printf(i == 0 ? "%llu" : ",%llu", (unsigned long long)ids[i]);
    }
    putchar('\n');
}

int main(int argc, char **argv)
{
    char error[512];
    cli_trace trace;
    if (argc != 2) {
        return cli_fail("usage: trace_dump TRACE");
    }
    if (cli_trace_load(&trace, argv[1], 1, error, sizeof error) != 0) {
        return cli_fail("%s", error);
    }
    uint64_t *ids = cli_alloc(trace.blocks_longest, sizeof *ids);
    for (size_t i = 0; i < trace.count; i++) {
        print_request(&trace, trace.order[i], ids);
    }
    free(ids);
    cli_trace_free(&trace);
    return cli_finish(CLI_OK);
}
