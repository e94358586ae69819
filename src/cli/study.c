/* SPDX-License-Identifier: Apache-2.0 */
#include "study.h"
#include "commands.h"
#include "options.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define SRAM 3 /* its number, from 1 */
#define EXPERIMENTS (sizeof study_experiments / sizeof study_experiments[0])

static const cli_command study_command = {
    "study", NULL, "Measures five costs of a cache of KV blocks that its capacity does not tell.",
    "lookup: look-ups and their memory traffic; update: policies under schedulers and movers; sram: control\n"
    "state and the hot part of it; coherence: how old the policy is that placement acts on; link: bytes and\n"
    "operations on each link. kvonce-study(1) says how. Needs 3 GiB of disk and of memory, --quick 1 GiB; what\n"
    "it wrote is removed.\n\n"
    "examples:\n"
    "  kvonce study --quick --html study.html\n"
    "  kvonce study --json study.json --trace conversation.jsonl\n\n"
    "exit: 0 measured, whatever the figures are; 2 it could not run.\n",
    cli_study_command};

static unsigned cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

/* This program, to run parts of it apart. */
static const char *own_path(char *path, size_t bytes)
{
    ssize_t n = readlink("/proc/self/exe", path, bytes - 1);
    path[n > 0 ? n : 0] = 0;
    return n > 0 ? path : "kvonce";
}

/* Of rows from which the reading's sentences cannot be made. */
static void say_why_nothing(study *s)
{
    size_t missing = 0;
    for (size_t i = 0; i < s->now->row_count; i++) {
        missing += s->now->rows[i].missing != NULL;
    }
    study_say(s, "No reading: %zu of %zu rows have no figure here, and say why.", missing, s->now->row_count);
}

static int run_experiments(study *s, int only)
{
    int code = 0;
    for (size_t i = 0; code == 0 && i < EXPERIMENTS; i++) {
        const study_experiment *e = &study_experiments[i];
        if (only != 0 && only != (int)i + 1) {
            continue;
        }
        s->now = &s->results[i];
        if (!s->bench.json) {
            printf("%s: %s\n", e->name, e->title);
        }
        code = e->run(s);
        if (code == 0) {
            e->read(s);
        }
        if (code == 0 && s->now->reading[0] == 0) {
            say_why_nothing(s);
        }
        if (code == 0 && !s->bench.json) {
            printf("  %s\n\n", s->now->reading);
        }
    }
    return code;
}

/* MiB that each experiment needs at most: of disk and of memory, in full and quick. */
static const struct {
    uint64_t disk, memory, quick_disk, quick_memory;
} needs[] = {{3072, 3072, 1024, 1024},
             {1024, 512, 1024, 512},
             {16, 1024, 16, 512},
             {768, 256, 768, 256},
             {1536, 1536, 1024, 1024}};

static int check_room(const study *s, int only)
{
    uint64_t disk = 0, memory = 0;
    for (size_t i = 0; i < EXPERIMENTS; i++) {
        if (only == 0 || only == (int)i + 1) {
            uint64_t some = s->bench.quick ? needs[i].quick_disk : needs[i].disk;
            disk = some > disk ? some : disk;
            some = s->bench.quick ? needs[i].quick_memory : needs[i].memory;
            memory = some > memory ? some : memory;
        }
    }
    return bench_place_has(&s->bench, disk * MIB, memory * MIB);
}

/* What was made for a report that there will not be. */
static void unmake(const char *path, int made)
{
    struct stat there;
    if (made && stat(path, &there) == 0 && there.st_size == 0) {
        (void)unlink(path);
    }
}

static int run_study(study *s, int only, const char *json, const char *html)
{
    int code = check_room(s, only);
    code = code == 0 && (only == 0 || only == SRAM) ? study_sram_load(s) : code;
    code = code != 0 ? code : bench_probe(&s->bench);
    const bench found = s->bench;
    code = code != 0 ? code : run_experiments(s, only);
    s->bench.io_engine = found.io_engine; /* one experiment tries them all */
    s->bench.raw_engine = found.io_engine == KVO_IO_URING ? "io_uring" : "threads";
    if (code == CLI_STOPPED || ferror(stdout)) {
        return code != 0 ? cli_finish(code) : cli_finish(CLI_OK);
    }
    if (code == 0) { /* each of them, also if the other one cannot be written */
        int written = html != NULL ? study_write_html(s, html) : 0;
        code = json != NULL ? study_write_json(s, json) : 0;
        code = code != 0 ? code : written;
    }
    return code;
}

/* Looks first whether the reports can be written: it would be a pity after five minutes. */
static int run_to_files(study *s, int only, const char *json, const char *html)
{
    int json_made = 0, html_made = 0, code = 0;
    if (json != NULL && html != NULL && strcmp(json, html) == 0) {
        return cli_fail("--json and --html: both to \"%s\"", json);
    }
    code = study_try_output("--json", json, &json_made);
    code = code != 0 ? code : study_try_output("--html", html, &html_made);
    code = code != 0 ? code : run_study(s, only, json, html);
    unmake(json, json_made);
    unmake(html, html_made);
    return code;
}

/* Options that change figures, as they were given. */
static void note_options(study *s, const char *quick, const char *only)
{
    (void)snprintf(s->options, sizeof s->options, "%s%s%s%s%s%s", quick != NULL ? " --quick" : "",
                   s->tiny ? " --tiny" : "", only != NULL ? " --only " : "", only != NULL ? only : "",
                   s->trace != NULL ? " --trace " : "", s->trace != NULL ? s->trace : "");
    cli_one_line(s->options);
    s->bench.more = s->options;
}

static void free_results(study *s)
{
    for (size_t i = 0; i < EXPERIMENTS; i++) {
        for (size_t k = 0; k < s->results[i].row_count; k++) {
            free(s->results[i].rows[k].samples);
            free(s->results[i].rows[k].missing);
        }
        free(s->results[i].rows);
    }
    cli_trace_free(&s->loaded);
    free(s);
}

int cli_study_command(int argc, char **argv)
{
    static const char *const words[] = {"all", "lookup", "update", "sram", "coherence", "link", NULL};
    const char *directory = NULL, *html = NULL, *json = NULL, *quick = NULL, *tiny = NULL;
    const char *only_text = NULL, *trace = NULL, *count_text = NULL, *operand;
    const cli_option options[] = {
        {"--dir", "DIR", "where to write (default: $TMPDIR or /var/tmp); a directory is made in it", &directory},
        {"--html", "FILE", "write a report with plots", &html},
        {"--json", "FILE", "write everything with raw samples; - prints it, and nothing else", &json},
        {"--only", "NAME", "lookup, update, sram, coherence or link", &only_text},
        {"--quick", NULL, "fewer and shorter samples: about a minute instead of five", &quick},
        {"--tiny", NULL, "a run of seconds that shows that all works; its figures mean nothing", &tiny},
        {"--trace", "FILE", "a serving trace for sram, as for kvonce replay (default: a synthetic one)", &trace},
        {"--count-lookups", "BLOCKS", "look-ups among so many blocks, for callgrind; the study runs this itself",
         &count_text},
        {NULL, NULL, NULL, NULL}};
    char path[4096];
    uint64_t count = 0;
    int only = 0;
    int code = cli_parse(&study_command, options, argc, argv, &operand);
    if (code >= 0) {
        return code;
    }
    if (cli_word("--only", only_text, words, &only) != 0 ||
        cli_number("--count-lookups", count_text, 1000, 100000000, 0, &count) != 0) {
        return CLI_FAIL;
    }
    study *s = cli_alloc(1, sizeof *s);
    s->bench.quick = quick != NULL || tiny != NULL;
    s->tiny = tiny != NULL;
    s->bench.command = "study";
    s->bench.json = json != NULL && strcmp(json, "-") == 0;
    s->trace = trace;
    note_options(s, quick, only_text);
    s->program = own_path(path, sizeof path);
    s->cores = cores();
    bench_catch_signals();
    code = bench_place_make(&s->bench, directory);
    if (code == 0) {
        code = count != 0 ? study_counted_lookups(s, count) : run_to_files(s, only, json, html);
    }
    free_results(s);
    return code == 0 ? cli_finish(CLI_OK) : code;
}
