/* SPDX-License-Identifier: Apache-2.0 */
/* The report: one file that needs nothing else, for light and dark screens and for paper. */
#include "study_html.h"

#include <errno.h>
#include <string.h>
#include <time.h>

const char *study_number_text(double value, const char *unit, char text[STUDY_NUMBER_TEXT])
{
    static const char *const sizes[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    static const char *const counts[] = {"", " k", " M", " G", " T"};
    size_t i = 0;
    if (strncmp(unit, "bytes", 5) == 0) {
        while (value >= 1024.0 && i + 1 < sizeof sizes / sizeof sizes[0]) {
            value /= 1024.0;
            i++;
        }
        (void)snprintf(text, STUDY_NUMBER_TEXT, "%.4g %s", value, sizes[i]);
    } else if (strcmp(unit, "s") == 0 || strcmp(unit, "s/block") == 0 || strcmp(unit, "ns") == 0) {
        double s = strcmp(unit, "ns") == 0 ? value * 1e-9 : value;
        const char *name = s < 1e-6 ? "ns" : s < 1e-3 ? "us" : s < 1.0 ? "ms" : "s";
        double times = s < 1e-6 ? 1e9 : s < 1e-3 ? 1e6 : s < 1.0 ? 1e3 : 1.0;
        (void)snprintf(text, STUDY_NUMBER_TEXT, "%.4g %s", s * times, name);
    } else {
        while (value >= 1000.0 && i + 1 < sizeof counts / sizeof counts[0]) {
            value /= 1000.0;
            i++;
        }
        (void)snprintf(text, STUDY_NUMBER_TEXT, "%.4g%s", value, counts[i]);
    }
    return text;
}

const char *study_words(const char *parameter)
{
    static const char *const words[][2] = {
        {"batch", "names a call"},
        {"block_bytes", "bytes a block"},
        {"cache_bytes", "size of the cache"},
        {"capacity_bytes", "capacity"},
        {"link_us", "delay of the link, us"},
        {"updates_per_s", "updates a second"}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(words[i][0], parameter) == 0) {
            return words[i][1];
        }
    }
    return parameter;
}

static const char head[] =
    "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n"
    "<meta name=viewport content=\"width=device-width\">\n"
    "<meta name=color-scheme content=\"light dark\">\n"
    "<title>kvonce study</title>\n<style>\n"
    ":root{--ink:#1c2024;--soft:#5b6470;--rule:#d9dee3;--paper:#fff;--c0:#1f6fd1;--c1:#c2410c;"
    "--c2:#14805e;--c3:#8b3fc7;--c4:#a16207;--c5:#be185d}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e9ec;--soft:#9aa4af;--rule:#343b43;--paper:#14181c;--c0:#6aa9f4;"
    "--c1:#f2935c;--c2:#4fc39a;--c3:#c596f0;--c4:#dcb443;--c5:#f27aac}}\n"
    "body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:760px;"
    "margin:2rem auto;padding:0 1rem}\n"
    "h1{font-size:1.7rem;margin-bottom:.2rem}"
    "h2{font-size:1.25rem;margin-top:2.5rem;border-top:1px solid var(--rule);padding-top:1.2rem}\n"
    ".soft,small,figcaption small{color:var(--soft);font-weight:400}\n"
    ".reading{font-size:1.05rem}\n"
    "figure{margin:1.4rem 0;overflow-x:auto;break-inside:avoid}figcaption{font-weight:600}"
    "svg{width:100%;min-width:540px;height:auto}\n"
    "svg text{font:12px system-ui,sans-serif;fill:var(--soft)}.grid{stroke:var(--rule)}.axis{stroke:var(--soft)}\n"
    "polyline{fill:none;stroke-width:1.6}polyline.dashed{stroke-dasharray:5 4}"
    ".hollow{fill:var(--paper);stroke-width:1.6}.bar{stroke-width:3;opacity:.45}.tail{stroke-width:1;opacity:.55}\n"
    ".legend{font-size:.88rem;margin:.2rem 0 0;color:var(--soft)}.legend span{margin-right:1.1rem;white-space:nowrap}"
    ".legend i{display:inline-block;width:.75rem;height:.75rem;border-radius:2px;margin-right:.35rem;"
    "vertical-align:-1px}.legend i.dashed{height:.25rem;vertical-align:.2rem;border-radius:0}\n"
    ".s0{stroke:var(--c0);fill:var(--c0);background:var(--c0)}"
    ".s1{stroke:var(--c1);fill:var(--c1);background:var(--c1)}"
    ".s2{stroke:var(--c2);fill:var(--c2);background:var(--c2)}"
    ".s3{stroke:var(--c3);fill:var(--c3);background:var(--c3)}"
    ".s4{stroke:var(--c4);fill:var(--c4);background:var(--c4)}"
    ".s5{stroke:var(--c5);fill:var(--c5);background:var(--c5)}\n"
    "table{border-collapse:collapse;font-size:.85rem;width:100%}"
    "td,th{text-align:left;padding:.2rem .6rem .2rem 0;border-bottom:1px solid var(--rule);vertical-align:top}"
    "td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}.machine{table-layout:fixed}"
    ".machine th{width:11rem;font-weight:400;color:var(--soft)}.machine td{overflow-wrap:anywhere}\n"
    ".wide{overflow-x:auto}summary{cursor:pointer;color:var(--soft)}h2,figcaption{break-after:avoid}\n"
    "@media(max-width:520px){.machine th{width:7.5rem}}\n"
    "@media print{body{max-width:none;margin:0}svg{min-width:0}"
    ".how::details-content{content-visibility:visible;display:block;height:auto}"
    "details:not(.how):not([open]){display:none}}\n"
    "</style>\n";

/* Facts come from the machine: names of processors, paths. */
static void put_text(FILE *file, const char *text)
{
    for (; *text != 0; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", file);
            break;
        case '<':
            fputs("&lt;", file);
            break;
        case '>':
            fputs("&gt;", file);
            break;
        default:
            fputc(*text, file);
        }
    }
}

static void put_machine(FILE *file, const bench *b)
{
    bench_fact facts[BENCH_FACTS_MAX];
    size_t count = bench_machine(b, facts);
    char text[CLI_COUNT_TEXT];
    fputs("<details open><summary>The machine</summary><table class=machine>\n", file);
    for (size_t i = 0; i < count; i++) {
        const char *bytes = strstr(facts[i].name, "_bytes");
        const int length = bytes != NULL ? (int)(bytes - facts[i].name) : (int)strlen(facts[i].name);
        fputs("<tr><th>", file);
        for (int k = 0; k < length; k++) {
            fputc(facts[i].name[k] == '_' ? ' ' : facts[i].name[k], file);
        }
        fputs("<td>", file);
        put_text(file, !facts[i].is_number ? facts[i].text
                       : bytes != NULL     ? cli_bytes_text(facts[i].number, text)
                                           : cli_count_text(facts[i].number, text));
        fputc('\n', file);
    }
    fputs("</table></details>\n", file);
}

static void put_row(FILE *file, const study_row *row)
{
    char a[STUDY_NUMBER_TEXT], b[STUDY_NUMBER_TEXT], c[STUDY_NUMBER_TEXT], d[STUDY_NUMBER_TEXT];
    fprintf(file, "<tr><td>%s", row->name);
    if (row->series != NULL) {
        fprintf(file, ": %s", row->series);
    }
    fputs("<td>", file);
    for (unsigned i = 0; i < row->parameter_count; i++) {
        const char *unit = strstr(row->parameters[i].name, "bytes") != NULL ? "bytes" : "";
        fprintf(file, "%s%s %s", i != 0 ? ", " : "", study_number_text(row->parameters[i].value, unit, a),
                study_words(row->parameters[i].name));
    }
    if (row->missing != NULL) {
        fputs("<td colspan=4>missing: ", file);
        put_text(file, row->missing);
        fputc('\n', file);
        return;
    }
    fprintf(file, "<td class=n>%s<td>%s%s%s", study_number_text(row->p50, row->unit, a), row->unit,
            row->computed ? ", computed" : "", row->oversubscribed ? ", more threads than processors" : "");
    if (row->sample_count > 1) {
        fprintf(file, "<td class=n>%s to %s", study_number_text(row->p25, row->unit, b),
                study_number_text(row->p75, row->unit, c));
        if (!isnan(row->p99)) {
            fprintf(file, "; p99 %s", study_number_text(row->p99, row->unit, d));
        }
        fprintf(file, "<td class=n>%zu\n", row->sample_count);
    } else {
        fputs("<td class=n><td class=n>1\n", file);
    }
}

static void put_experiment(FILE *file, const study_experiment *e, const struct study_result *result)
{
    fprintf(file, "<h2>%s</h2>\n<p class=reading>", e->title);
    put_text(file, result->reading);
    fputs("</p>\n<details class=how><summary>How it was measured</summary><p class=soft>", file);
    put_text(file, e->method);
    fputs("</p></details>\n", file);
    for (size_t i = 0; i < STUDY_PLOTS_MAX && e->plots[i].row != NULL; i++) {
        study_plot_write(file, &e->plots[i], result);
    }
    fputs("<details><summary>All figures</summary><div class=wide><table><tr><th>figure<th>of<th>median<th>unit"
          "<th>quarter to three quarters<th>samples\n", file);
    for (size_t i = 0; i < result->row_count; i++) {
        put_row(file, &result->rows[i]);
    }
    fputs("</table></div></details>\n", file);
}

int study_write_html(const study *s, const char *path)
{
    char date[32];
    time_t now = time(NULL);
    struct tm utc;
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return cli_fail("%s: %s", path, strerror(errno));
    }
    (void)strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &utc));
    fputs(head, file);
    fprintf(
        file,
        "<h1>What a cache of KV blocks costs beside its bytes</h1>\n<p class=soft>%s, kvonce %s, %s. Five costs, "
        "measured on this machine with the store's own code. Dots are medians;"
        " thick bars reach from the first to the third quarter of the samples, thin ones to p99.9 where there are "
        "1,000 or more.</p>\n",
        s->tiny ? "A run of seconds that shows that all works: its figures mean nothing" : "kvonce study",
        kvo_version(), date);
    put_machine(file, &s->bench);
    for (size_t i = 0; i < sizeof s->results / sizeof s->results[0]; i++) {
        if (s->results[i].row_count != 0) {
            put_experiment(file, &study_experiments[i], &s->results[i]);
        }
    }
    fputs("</html>\n", file);
    int failed = ferror(file);
    return fclose(file) != 0 || failed ? cli_fail("%s: %s", path, strerror(errno)) : 0;
}
