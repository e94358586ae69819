/* SPDX-License-Identifier: Apache-2.0 */
/* What a prompt took, for people and for programs. */
#ifndef KVONCE_REPORT_H
#define KVONCE_REPORT_H

#include "session.h"

/* Counters of the adapter since `before`; zeros without a store. */
kvo_llama_stat figures_since(const session *self, const kvo_llama_stat *before);
/* Two lines on standard error. */
void report_text(const session *self, const answered *result, const kvo_llama_stat *stat);
/* One JSON object on standard output. */
void report_json(const session *self, const answered *result, const kvo_llama_stat *stat, double load_s);
double seconds(uint64_t from_ns, uint64_t to_ns);

#endif
