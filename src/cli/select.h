/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a directory's store, and choosing blocks in it by name, tenant or space. */
#ifndef CLI_SELECT_H
#define CLI_SELECT_H

#include "kvonce.h"

/* Opens DIR as the only tier, at the size it has; it must exist. 0, or CLI_FAIL after a message. */
int cli_open_directory(const char *directory, uint32_t flags, kvo_store **store);
/* The same for the directories of one store, fastest first, with commas between. */
int cli_open_directories(const char *directories, uint32_t flags, kvo_store **store);
/* Closes; `code`, or CLI_FAIL after a message if closing failed. */
int cli_close_directory(kvo_store *store, int code);

/* All spaces; the caller frees *spaces. */
int cli_spaces(kvo_store *store, kvo_space_stat **spaces, size_t *count);
/* The label of a space number, or "?". */
const char *cli_space_label(const kvo_space_stat *spaces, size_t count, kvo_space space);

/* What the options --name, --tenant, --space and --all said. */
typedef struct cli_select {
    const char *name, *tenant, *space, *all;
    uint8_t name_value[KVO_NAME_BYTES_MAX];
    size_t name_bytes;
    uint64_t tenant_value;
    int by; /* kvo_by: what to go by; BY_ALL when nothing was said and that is allowed */
} cli_select;

/*
 * Checks the options. One of --name, --tenant, --space or, if the command has it, --all;
 * --space beside --name says in which space. `none_is_all`: nothing means everything.
 */
int cli_select_parse(cli_select *select, int none_is_all);

/* The blocks chosen; the caller frees .handles. A name that lies in several spaces needs --space. */
typedef struct cli_selected {
    kvo_target target;
    kvo_handle *handles;
    uint64_t count; /* blocks of a name */
} cli_selected;
int cli_select_find(kvo_store *store, const cli_select *select, cli_selected *selected);

/* Calls each() for every block chosen until it returns non-zero, and returns that. */
int cli_select_walk(kvo_store *store, const cli_selected *selected,
                    int (*each)(void *context, const kvo_block_info *info), void *context);

#endif
