/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of (scope, id), with a few marks for each.
 * Ids of a trace are dense, so 64 of them share an entry; a lone id costs one entry (56 bytes).
 */
#ifndef CLI_IDS_H
#define CLI_IDS_H

#include <stddef.h>
#include <stdint.h>

#define CLI_IDS_MARKS 5 /* one, and one a tier */

typedef struct cli_id_page {
    uint64_t base; /* id / 64 */
    uint32_t scope;
    uint32_t used;
    uint64_t marks[CLI_IDS_MARKS];
} cli_id_page;

typedef struct cli_ids {
    cli_id_page *pages;
    size_t room, count;
    uint64_t marked[CLI_IDS_MARKS]; /* how many have each mark */
} cli_ids;

/* 1 if the id has the mark. */
int cli_ids_has(const cli_ids *ids, uint32_t scope, uint64_t id, unsigned mark);
/* Sets it; 1 if it is new. */
int cli_ids_mark(cli_ids *ids, uint32_t scope, uint64_t id, unsigned mark);
void cli_ids_free(cli_ids *ids);

#endif
