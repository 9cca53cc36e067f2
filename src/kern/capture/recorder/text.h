/* Text that grows, and JSON written into it. */
#ifndef KERN_TEXT_H
#define KERN_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
    char *data;
    size_t length, capacity;
    bool incomplete; /* memory ran out */
};

void text_free(struct text *text);
void text_bytes(struct text *text, const char *bytes, size_t count);
void text_put(struct text *text, const char *string);
void text_format(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_unsigned(struct text *text, uint64_t value);

/* A JSON string; bytes that are not UTF-8 become lone surrogates U+DC80..DCFF, as Python's surrogateescape has them. */
void text_string(struct text *text, const char *string, size_t count);

/* A JSON string of lower-case hexadecimal digits, in memory order. */
void text_hex(struct text *text, const void *bytes, size_t count);

void text_dim3(struct text *text, const char *key, unsigned x, unsigned y, unsigned z);

#endif
