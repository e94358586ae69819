/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIM_MEDIUM_INTERNAL_H
#define SIM_MEDIUM_INTERNAL_H

#include "medium.h"

void sim_file_resize(sim_file *f, uint64_t size);
sim_entry *sim_entry_find(sim_image *image, const char *path);
void sim_apply(sim_image *image, const sim_change *c, const uint8_t *pool);

/* What a power cut at `point` leaves. true: pages may be part old, part new. */
bool sim_survive(const sim_medium *m, size_t point, uint64_t seed, sim_image *out);

#endif
