/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ext4 of our own on a loop device, for root. It lies in a mount namespace of this process and its children, and the
 * loop device frees itself with its last mount, so both go with the processes, however these end.
 */
#ifndef CRASH_LOOP_H
#define CRASH_LOOP_H

#include <stdbool.h>

/* NULL: it can be done here, and this process is in a namespace of its own now; else why not. */
const char *loop_ready(void);
/* The image's file system is made anew; `options` are those of mkfs.ext4. */
bool loop_make(const char *image, unsigned mib, const char *options);
bool loop_mount(const char *image, const char *directory);
bool loop_unmount(const char *directory);
/* The power goes: what is not flushed is lost, and all fails from now on until it is mounted again. */
bool loop_cut(const char *directory);
/* From now on, in this namespace, the machine seems to have started anew. `file` is one to use for that. */
bool loop_new_boot(const char *file, unsigned number);

#endif
