/* The files of one recorded process: launches.jsonl, recorder.log, modules/. */
#ifndef KERN_OUTPUT_H
#define KERN_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text.h"

/* Make this process's folder in the dump and its recorder.log; false where that cannot be done. */
bool output_open(const char *dump);

/* Make launches.jsonl. From here on lines are written. */
bool output_start(void);

/* Whether lines are still written, and this is the process that started, no fork of it. */
bool output_recording(void);

/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t output_now(void);

/* Write a line whole, and free it; the second counts it as a launch. */
void output_line(struct text *line);
void output_launch(struct text *line);

/* Write the line `end`, with the number of launches, and no line after it. */
void output_end(void);

/* Write bytes as modules/<sha256>.cubin; a failure ends the recording. */
void output_module(const char *sha256, const void *bytes, size_t size);

/* The bytes of a module that was written, to be freed; NULL where it cannot be read. */
char *output_read_module(const char *sha256, size_t *size);

/* Say in recorder.log what could not be done. */
void output_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Record that something happened that could not be recorded, and why. */
void output_lost(const char *what, const char *why);

/* Write no more. */
void output_stop(void);

#endif
