/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_STUDY_HTML_H
#define CLI_STUDY_HTML_H

#include "study.h"

#define STUDY_COLOURS 6
#define STUDY_NUMBER_TEXT 40

/* "1.5 M", "64 KiB", "12 us": for people. Returns `text`. */
const char *study_number_text(double value, const char *unit, char text[STUDY_NUMBER_TEXT]);
/* A parameter's name in words: "blocks", "updates a second". */
const char *study_words(const char *parameter);
void study_plot_write(FILE *file, const study_plot *plot, const struct study_result *result);

#endif
