/* SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"
#include "common.h"
#include "kvonce.h"

#include <signal.h>
#include <string.h>

typedef struct entry {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
} entry;

static const entry entries[] = {
    {"replay", cli_replay_command, "replay a serving trace through a store"},
    {"stat", cli_stat_command, "what a store holds and has done: tiers, spaces, tenants"},
    {"ls", cli_ls_command, "list its blocks"},
    {"verify", cli_verify_command, "read every payload, name each bad slot, and repair"},
    {"audit", cli_audit_command, "hold its ledger against what its headers show"},
    {"rm", cli_rm_command, "remove blocks by name, tenant or space"},
    {"policy", cli_policy_command, "show or change the policy of blocks"},
    {"bench", cli_bench_command, "measure the store beside what the machine can do"},
    {"study", cli_study_command, "measure five costs that capacity does not tell"},
    {"trace synth", cli_synth_command, "generate a trace of multi-tenant, multi-turn traffic"},
};
#define ENTRY_COUNT (sizeof entries / sizeof entries[0])

static void print_usage(FILE *file)
{
    fputs("usage: kvonce COMMAND [arguments]\n\n"
          "A write-once store for the KV-cache blocks of LLM inference.\n\ncommands:\n", file);
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        fprintf(file, "  %-12s %s\n", entries[i].name, entries[i].about);
    }
    fputs("\n  --version    the version\n  --help       this text; kvonce COMMAND --help says more\n\n"
          "example: a trace of 1,000 requests through 64 MiB of memory and 256 MiB of disk\n"
          "  kvonce trace synth --requests 1000 |\n"
          "    kvonce replay - --tiers dram:64M,disk:/tmp/kvonce-demo:256M --block-bytes 64K\n", file);
}

/* How many arguments the name takes up, 0 if they say something else. */
static int words_of(const char *name, int argc, char **argv)
{
    const char *space = strchr(name, ' ');
    if (space == NULL) {
        return strcmp(argv[0], name) == 0;
    }
    size_t first = (size_t)(space - name);
    int same = strlen(argv[0]) == first && memcmp(argv[0], name, first) == 0;
    return same && argc > 1 && strcmp(argv[1], space + 1) == 0 ? 2 : 0;
}

int main(int argc, char **argv)
{
    /* A reader that goes away is a write error, reported like any other. */
    (void)signal(SIGPIPE, SIG_IGN);
    if (argc < 2) {
        print_usage(stderr);
        return CLI_FAIL;
    }
    if (strcmp(argv[1], "--version") == 0 && argc == 2) {
        printf("kvonce %s\n", kvo_version());
        return cli_finish(CLI_OK);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return cli_finish(CLI_OK);
    }
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        int words = words_of(entries[i].name, argc - 1, argv + 1);
        if (words != 0) {
            return entries[i].run(argc - 1 - words, argv + 1 + words);
        }
    }
    return cli_fail("no command \"%s\" (kvonce --help)", argv[1]);
}
