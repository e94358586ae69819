/* SPDX-License-Identifier: Apache-2.0 */
/* The plots of an experiment, as SVG: a line a series, dots at medians, bars from the first to the third quarter. */
#include "study_html.h"

#include <stdlib.h>
#include <string.h>

#define WIDTH 680.0
#define HEIGHT 320.0
#define LEFT 88.0
#define RIGHT 30.0
#define INSET 14.0 /* of points from both ends of the axis */
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
    int hollow; /* there is a point of more threads than processors */
} drawing;

static int is_bytes(const char *unit)
{
    return strncmp(unit, "bytes", 5) == 0;
}

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

/* Down or up to a power of 2 for bytes, else to 1, 2 or 5 times a power of ten. */
static double round_log(double value, int bytes, int up)
{
    if (bytes) {
        return pow(2.0, up ? ceil(log2(value) - 1e-9) : floor(log2(value) + 1e-9));
    }
    const double steps[] = {1.0, 2.0, 5.0, 10.0}, base = pow(10.0, floor(log10(value)));
    int i = 0;
    while (i < 3 && (up ? steps[i] * base < value * (1.0 - 1e-9) : steps[i + 1] * base <= value * (1.0 + 1e-9))) {
        i++;
    }
    return steps[i] * base;
}

/* 1, 2 or 5 times a power of ten, so that there are about five. */
static double step_of(const axis *a)
{
    double rough = (a->most - a->least) / 5.0, base = pow(10.0, floor(log10(rough)));
    return rough > 5.0 * base ? 10.0 * base : rough > 2.0 * base ? 5.0 * base : rough > base ? 2.0 * base : base;
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
            d->hollow = d->hollow || row->oversubscribed;
            (void)line_of(d, row);
        }
    }
    if (d->line_count == 0) {
        return;
    }
    if (d->y.log) {
        d->y.least = round_log(d->y.least, is_bytes(d->unit), 0);
        d->y.most = round_log(d->y.most, is_bytes(d->unit), 1);
    } else {
        d->y.least = d->y.least < 0.0 ? d->y.least : 0.0;
        d->y.most = d->y.most > d->y.least ? d->y.most : d->y.least + 1.0;
        d->y.most = ceil(d->y.most / step_of(&d->y) - 1e-9) * step_of(&d->y);
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

static double x_at(const drawing *d, double value)
{
    return LEFT + INSET + part(&d->x, value) * (WIDTH - LEFT - RIGHT - 2 * INSET);
}
static double y_at(const drawing *d, double value)
{
    return HEIGHT - BOTTOM - part(&d->y, value) * (HEIGHT - TOP - BOTTOM);
}

static void tick_y(const drawing *d, double value)
{
    char text[STUDY_NUMBER_TEXT];
    double y = y_at(d, value);
    fprintf(d->file, "<line class=grid x1=%.1f x2=%.1f y1=%.1f y2=%.1f />", LEFT, WIDTH - RIGHT, y, y);
    fprintf(d->file, "<text x=%.1f y=%.1f text-anchor=end>%s</text>\n", LEFT - 6, y + 4,
            study_number_text(value, d->unit, text));
}

static int is_bytes_parameter(const drawing *d)
{
    return strstr(d->plot->x, "bytes") != NULL;
}

static void tick_x(const drawing *d, double value)
{
    char text[STUDY_NUMBER_TEXT];
    fprintf(d->file,
            "<line class=axis x1=%.1f x2=%.1f y1=%.1f y2=%.1f /><text x=%.1f y=%.1f text-anchor=middle>%s</text>\n",
            x_at(d, value), x_at(d, value), HEIGHT - BOTTOM, HEIGHT - BOTTOM + 4, x_at(d, value), HEIGHT - BOTTOM + 18,
            study_number_text(value, is_bytes_parameter(d) ? "bytes" : "", text));
}

/* For bytes each power of 2, or of 4, 16, ...; else decades, with 2 and 5 between them where there are few. */
static void ticks_log(const drawing *d)
{
    const int bytes = is_bytes(d->unit);
    const double least = d->y.least * 0.999, most = d->y.most * 1.001;
    double factor = bytes ? 2.0 : 10.0;
    while (log(d->y.most / d->y.least) / log(factor) > 7.0) {
        factor *= factor;
    }
    const int few = !bytes && d->y.most <= d->y.least * 200.0;
    for (double v = bytes ? d->y.least : pow(10.0, floor(log10(d->y.least))); v <= most; v *= factor) {
        for (int i = 0; i < (few ? 3 : 1); i++) {
            const double value = v * (i == 0 ? 1.0 : i == 1 ? 2.0 : 5.0);
            if (value >= least && value <= most) {
                tick_y(d, value);
            }
        }
    }
}

/* What its ticks count: their own texts have the unit of times and bytes. */
static const char *y_words(const drawing *d)
{
    return is_bytes(d->unit) ? "bytes" : strcmp(d->unit, "ns") == 0 || strcmp(d->unit, "s") == 0 ? "time" : d->unit;
}

static void draw_axes(const drawing *d)
{
    const double middle = (TOP + HEIGHT - BOTTOM) / 2;
    if (d->y.log) {
        ticks_log(d);
    } else {
        for (double v = 0.0, step = step_of(&d->y); v <= d->y.most * 1.001; v += step) {
            tick_y(d, v);
        }
    }
    fprintf(d->file, "<line class=axis x1=%.1f x2=%.1f y1=%.1f y2=%.1f />\n", LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM,
            HEIGHT - BOTTOM);
    fprintf(d->file, "<text x=12 y=%.1f text-anchor=middle transform=\"rotate(-90 12 %.1f)\">%s</text>\n", middle,
            middle, y_words(d));
    double free_from = -100.0;
    for (size_t i = 0; i < d->result->row_count; i++) { /* where there are points */
        const study_row *row = &d->result->rows[i];
        const double value = belongs(d, row) ? study_parameter_of(row, d->plot->x) : NAN;
        char text[STUDY_NUMBER_TEXT];
        if (isnan(value)) {
            continue;
        }
        const double half =
            3.6 * (double)strlen(study_number_text(value, is_bytes_parameter(d) ? "bytes" : "", text)) + 3.0;
        if (x_at(d, value) - half > free_from) {
            tick_x(d, value);
            free_from = x_at(d, value) + half;
        }
    }
    fprintf(d->file, "<text x=%.1f y=%.1f text-anchor=middle>%s</text>\n", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6,
            study_words(d->plot->x));
}

/* A line's points stand a little beside the others' of the same place, or their bars would lie on each other. */
static double beside(const drawing *d, size_t line)
{
    const double apart = d->line_count < 5 ? 5.0 : 2.5;
    return d->line_count > 1 ? apart * ((double)line - (double)(d->line_count - 1) / 2.0) : 0.0;
}

static void draw_point(const drawing *d, size_t line, const study_row *row)
{
    double x = x_at(d, study_parameter_of(row, d->plot->x)) + beside(d, line);
    char text[STUDY_NUMBER_TEXT];
    if (row->sample_count > 1) {
        fprintf(d->file, "<line class=bar x1=%.1f x2=%.1f y1=%.1f y2=%.1f />", x, x, y_at(d, row->p25),
                y_at(d, row->p75));
    }
    if (has_tail(row)) {
        fprintf(d->file, "<line class=tail x1=%.1f x2=%.1f y1=%.1f y2=%.1f />", x, x, y_at(d, row->p75),
                y_at(d, row->p999));
        fprintf(d->file, "<line class=tail x1=%.1f x2=%.1f y1=%.1f y2=%.1f />", x - 4, x + 4, y_at(d, row->p999),
                y_at(d, row->p999));
    }
    fprintf(d->file, "<circle%s cx=%.1f cy=%.1f r=3.5><title>%s</title></circle>\n",
            row->oversubscribed ? " class=hollow" : "", x, y_at(d, row->p50),
            study_number_text(row->p50, row->unit, text));
}

static void draw_line(drawing *d, size_t line)
{
    fprintf(d->file, "<g class=s%zu><polyline%s points=\"", line % STUDY_COLOURS,
            line < STUDY_COLOURS ? "" : " class=dashed");
    for (size_t i = 0; i < d->result->row_count; i++) {
        const study_row *row = &d->result->rows[i];
        if (belongs(d, row) && line_of(d, row) == line) {
            fprintf(d->file, "%.1f,%.1f ", x_at(d, study_parameter_of(row, d->plot->x)) + beside(d, line),
                    y_at(d, row->p50));
        }
    }
    fputs("\" />\n", d->file);
    for (size_t i = 0; i < d->result->row_count; i++) {
        const study_row *row = &d->result->rows[i];
        if (belongs(d, row) && line_of(d, row) == line) {
            draw_point(d, line, row);
        }
    }
    fputs("</g>\n", d->file);
}

static void draw_legend(const drawing *d)
{
    char text[STUDY_NUMBER_TEXT];
    const int alone = d->line_count == 1 && d->lines[0].series[0] == 0 && d->plot->split == NULL;
    if (alone && !d->hollow) {
        return;
    }
    fputs("<p class=legend>", d->file);
    for (size_t i = 0; i < d->line_count && !alone; i++) {
        fprintf(d->file, "<span><i class=\"s%zu%s\"></i>%s", i % STUDY_COLOURS, i < STUDY_COLOURS ? "" : " dashed",
                d->lines[i].series);
        if (d->plot->split != NULL) {
            fprintf(d->file, "%s%s %s", d->lines[i].series[0] != 0 ? ", " : "",
                    study_number_text(d->lines[i].split, "", text), study_words(d->plot->split));
        }
        fputs("</span> ", d->file);
    }
    fputs(d->hollow ? "<span>hollow dots: more threads than processors, which take turns</span></p>\n" : "</p>\n",
          d->file);
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
