/* SPDX-License-Identifier: Apache-2.0 */
/* Commands and their options. `--name value` and `--name=value` are the same. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

typedef struct cli_option {
    const char *name;  /* "--json" */
    const char *value; /* what its value is called in the help; NULL = a flag */
    const char *help;
    const char **text; /* receives the value; a flag's receives its own name */
} cli_option;

typedef struct cli_command {
    const char *name;    /* "trace synth" */
    const char *operand; /* "TRACE"; NULL = none */
    const char *about;   /* one line */
    const char *more;    /* paragraphs and examples behind the options */
    int (*run)(int argc, char **argv);
} cli_command;

/*
 * Reads argv[0 .. argc). Returns -1 when all is well; else the exit code: --help was asked
 * for and printed, or a mistake was reported. *operand is never NULL when well, if the command
 * has one. options end with a NULL name.
 */
int cli_parse(const cli_command *command, const cli_option *options, int argc, char **argv,
              const char **operand);

/* Strict numbers: decimal digits only, from min to max; NULL text = `fallback`. 0, or -1 after a
   message that names `option`. */
int cli_number(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t fallback,
               uint64_t *value);
/* A size of kvo_parse_size(), from min to max. */
int cli_size(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t fallback,
             uint64_t *value);
/* The index of text among `words` (ended by NULL); NULL text = 0. */
int cli_word(const char *option, const char *text, const char *const *words, int *index);

#endif
