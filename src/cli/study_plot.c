/* SPDX-License-Identifier: Apache-2.0 */
/* The plots of an experiment, as SVG: a line a series, dots at medians, bars from the first to the third quarter. */
#include "study_html.h"

#include <stdlib.h>
#include <string.h>

#define WIDTH 680.0
#define HEIGHT 320.0
#define LEFT 70.0
#define RIGHT 16.0
#define TOP 12.0
#define BOTTOM 44.0
#define LINES_MAX 12

typedef struct axis {
    double least, most;
    int log;
} axis;

typedef struct drawing {
    FILE *file;
    const study_plot *plot;
    const struct study_result *result;
    axis x, y;
    struct {
        const char *series;
        double split;
    } lines[LINES_MAX];
    size_t line_count;
    const char *unit;
} drawing;

static int belongs(const drawing *d, const study_row *row)
{
    const study_plot *p = d->plot;
    if (row->missing != NULL || strcmp(row->name, p->row) != 0 || isnan(study_parameter_of(row, p->x))) {
        return 0;
    }
    if (p->only != NULL) {
        double value = study_parameter_of(row, p->only);
        if (isnan(value) || value < p->only_value || value > p->only_value) {
            return 0;
        }
    }
    /* A logarithm has no place for what is not above 0. */
    return (!p->log_x || study_parameter_of(row, p->x) > 0.0) && (!p->log_y || row->p25 > 0.0);
}

static size_t line_of(drawing *d, const study_row *row)
{
    const char *series = row->series != NULL ? row->series : "";
    double split = d->plot->split != NULL ? study_parameter_of(row, d->plot->split) : 0.0;
    for (size_t i = 0; i < d->line_count; i++) {
        if (strcmp(d->lines[i].series, series) == 0 && !(d->lines[i].split < split) && !(d->lines[i].split > split)) {
            return i;
        }
    }
    if (d->line_count == LINES_MAX) {
        return LINES_MAX;
    }
    d->lines[d->line_count].series = series;
    d->lines[d->line_count].split = split;
    return d->line_count++;
}

static void widen(axis *a, double value)
{
    a->least = value < a->least ? value : a->least;
    a->most = value > a->most ? value : a->most;
}

static int has_tail(const study_row *row)
{
    return !isnan(row->p999);
}

static void measure(drawing *d)
{
    d->x = (axis){INFINITY, -INFINITY, d->plot->log_x};
    d->y = (axis){INFINITY, -INFINITY, d->plot->log_y};
    for (size_t i = 0; i < d->result->row_count; i++) {
        const study_row *row = &d->result->rows[i];
        if (belongs(d, row)) {
            widen(&d->x, study_parameter_of(row, d->plot->x));
            widen(&d->y, row->p25);
            widen(&d->y, has_tail(row) ? row->p999 : row->p75);
            d->unit = row->unit;
            (void)line_of(d, row);
        }
    }
    if (d->y.log) {
        d->y.least = pow(10.0, floor(log10(d->y.least)));
        d->y.most = pow(10.0, ceil(log10(d->y.most)));
    } else {
        d->y.least = d->y.least < 0.0 ? d->y.least : 0.0;
        d->y.most *= 1.05;
    }
    d->y.most = d->y.most > d->y.least ? d->y.most : d->y.least + 1.0;
    if (!(d->x.most > d->x.least)) {
        d->x.least *= 0.5;
        d->x.most *= 2.0;
    }
}

static double part(const axis *a, double value)
{
    return a->log ? log(value / a->least) / log(a->most / a->least) : (value - a->least) / (a->most - a->least);
}

static double x_at(const drawing *d, double value) { return LEFT + part(&d->x, value) * (WIDTH - LEFT - RIGHT); }
static double y_at(const drawing *d, double value)
{
    return HEIGHT - BOTTOM - part(&d->y, value) * (HEIGHT - TOP - BOTTOM);
}

static void tick_y(const drawing *d, double value)
{
    char text[STUDY_NUMBER_TEXT];
    fprintf(d->file, "<line class=grid x1=%.1f x2=%.1f y1=%.1f y2=%.1f /><text x=%.1f y=%.1f text-anchor=end>%s</text>\n",
            LEFT, WIDTH - RIGHT, y_at(d, value), y_at(d, value), LEFT - 6, y_at(d, value) + 4,
            study_number_text(value, d->unit, text));
}

static void tick_x(const drawing *d, double value)
{
    char text[STUDY_NUMBER_TEXT];
    fprintf(d->file, "<line class=axis x1=%.1f x2=%.1f y1=%.1f y2=%.1f /><text x=%.1f y=%.1f text-anchor=middle>%s</text>\n",
            x_at(d, value), x_at(d, value), HEIGHT - BOTTOM, HEIGHT - BOTTOM + 4, x_at(d, value), HEIGHT - BOTTOM + 18,
            study_number_text(value, strstr(d->plot->x, "bytes") != NULL ? "bytes" : "", text));
}

/* 1, 2 or 5 times a power of ten, so that there are about five. */
static double step_of(const axis *a)
{
    double rough = (a->most - a->least) / 5.0, base = pow(10.0, floor(log10(rough)));
    return rough > 5.0 * base ? 10.0 * base : rough > 2.0 * base ? 5.0 * base : rough > base ? 2.0 * base : base;
}

static void draw_axes(const drawing *d)
{
    if (d->y.log) {
        const int few = d->y.most <= d->y.least * 100.0;
        for (double v = d->y.least; v <= d->y.most * 1.001; v *= 10.0) {
            tick_y(d, v);
            for (double k = 2.0; few && k < 6.0 && v * k < d->y.most; k += 3.0) { /* 2 and 5 */
                tick_y(d, v * k);
            }
        }
    } else {
        for (double v = 0.0, step = step_of(&d->y); v <= d->y.most; v += step) {
            tick_y(d, v);
        }
    }
    fprintf(d->file, "<line class=axis x1=%.1f x2=%.1f y1=%.1f y2=%.1f />\n", LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM,
            HEIGHT - BOTTOM);
    double last = -100.0;
    for (size_t i = 0; i < d->result->row_count; i++) { /* where there are points */
        const study_row *row = &d->result->rows[i];
        double x = belongs(d, row) ? study_parameter_of(row, d->plot->x) : NAN;
        if (!isnan(x) && x_at(d, x) > last + 44.0) {
            tick_x(d, x);
            last = x_at(d, x);
        }
    }
    fprintf(d->file, "<text x=%.1f y=%.1f text-anchor=middle>%s</text>\n", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6,
            study_words(d->plot->x));
}

static void draw_point(const drawing *d, const study_row *row)
{
    double x = x_at(d, study_parameter_of(row, d->plot->x));
    char text[STUDY_NUMBER_TEXT];
    if (row->sample_count > 1) {
        fprintf(d->file, "<line class=bar x1=%.1f x2=%.1f y1=%.1f y2=%.1f />", x, x, y_at(d, row->p25), y_at(d, row->p75));
    }
    if (has_tail(row)) {
        fprintf(d->file, "<line class=tail x1=%.1f x2=%.1f y1=%.1f y2=%.1f />", x, x, y_at(d, row->p75),
                y_at(d, row->p999));
        fprintf(d->file, "<line class=tail x1=%.1f x2=%.1f y1=%.1f y2=%.1f />", x - 4, x + 4, y_at(d, row->p999),
                y_at(d, row->p999));
    }
    fprintf(d->file, "<circle cx=%.1f cy=%.1f r=3.5><title>%s</title></circle>\n", x, y_at(d, row->p50),
            study_number_text(row->p50, row->unit, text));
}

static void draw_line(drawing *d, size_t line)
{
    fprintf(d->file, "<g class=s%zu><polyline points=\"", line % STUDY_COLOURS);
    for (size_t i = 0; i < d->result->row_count; i++) {
        const study_row *row = &d->result->rows[i];
        if (belongs(d, row) && line_of(d, row) == line) {
            fprintf(d->file, "%.1f,%.1f ", x_at(d, study_parameter_of(row, d->plot->x)), y_at(d, row->p50));
        }
    }
    fputs("\" />\n", d->file);
    for (size_t i = 0; i < d->result->row_count; i++) {
        const study_row *row = &d->result->rows[i];
        if (belongs(d, row) && line_of(d, row) == line) {
            draw_point(d, row);
        }
    }
    fputs("</g>\n", d->file);
}

static void draw_legend(const drawing *d)
{
    char text[STUDY_NUMBER_TEXT];
    if (d->line_count == 1 && d->lines[0].series[0] == 0) {
        return;
    }
    fputs("<p class=legend>", d->file);
    for (size_t i = 0; i < d->line_count; i++) {
        fprintf(d->file, "<span><i class=s%zu></i>%s", i % STUDY_COLOURS, d->lines[i].series);
        if (d->plot->split != NULL) {
            fprintf(d->file, "%s%s %s", d->lines[i].series[0] != 0 ? ", " : "",
                    study_number_text(d->lines[i].split, "", text), study_words(d->plot->split));
        }
        fputs("</span> ", d->file);
    }
    fputs("</p>\n", d->file);
}

void study_plot_write(FILE *file, const study_plot *plot, const struct study_result *result)
{
    drawing *d = cli_alloc(1, sizeof *d);
    *d = (drawing){.file = file, .plot = plot, .result = result};
    measure(d);
    if (d->line_count != 0) {
        fprintf(file, "<figure><figcaption>%s <small>(%s)</small></figcaption>\n", plot->title, d->unit);
        fprintf(file, "<svg viewBox=\"0 0 %.0f %.0f\" role=img aria-label=\"%s\">\n", WIDTH, HEIGHT, plot->title);
        draw_axes(d);
        for (size_t i = 0; i < d->line_count; i++) {
            draw_line(d, i);
        }
        fputs("</svg>\n", file);
        draw_legend(d);
        fputs("</figure>\n", file);
    }
    free(d);
}
