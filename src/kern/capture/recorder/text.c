/* Text that grows, and JSON written into it. */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char HEX[] = "0123456789abcdef";

void text_free(struct text *text) {
    free(text->data);
    memset(text, 0, sizeof *text);
}

static char *room(struct text *text, size_t count) {
    if (text->incomplete)
        return NULL;
    if (text->capacity - text->length < count) {
        size_t capacity = text->capacity ? text->capacity : 1024;
        while (capacity - text->length < count)
            capacity *= 2;
        char *data = realloc(text->data, capacity);
        if (!data) {
            text->incomplete = true;
            return NULL;
        }
        text->data = data;
        text->capacity = capacity;
    }
    char *at = text->data + text->length;
    text->length += count;
    return at;
}

void text_bytes(struct text *text, const char *bytes, size_t count) {
    char *at = count ? room(text, count) : NULL;
    if (at)
        memcpy(at, bytes, count);
}

void text_put(struct text *text, const char *string) { text_bytes(text, string, strlen(string)); }

void text_format(struct text *text, const char *format, ...) {
    char buffer[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(buffer, sizeof buffer, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof buffer)
        text->incomplete = true;
    else
        text_bytes(text, buffer, (size_t)length);
}

void text_unsigned(struct text *text, uint64_t value) {
    char digits[20];
    size_t at = sizeof digits;
    do
        digits[--at] = (char)('0' + value % 10);
    while (value /= 10);
    text_bytes(text, digits + at, sizeof digits - at);
}

/* The length of the UTF-8 sequence at `at`, 0 if it is none. */
static size_t sequence(const unsigned char *at, size_t left) {
    size_t length = at[0] < 0x80 ? 1 : at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : at[0] < 0xf5 ? 4 : 0;
    if (!length || length > left)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) || (at[0] == 0xf0 && at[1] < 0x90) ||
        (at[0] == 0xf4 && at[1] > 0x8f))
        return 0;
    return length;
}

void text_string(struct text *text, const char *string, size_t count) {
    const unsigned char *at = (const unsigned char *)string, *end = at + count;
    text_put(text, "\"");
    while (at < end) {
        size_t length = sequence(at, (size_t)(end - at));
        if (!length) {
            text_format(text, "\\udc%02x", *at++);
        } else if (length == 1 && (*at < 0x20 || *at == '"' || *at == '\\' || *at == 0x7f)) {
            text_format(text, "\\u%04x", *at++);
        } else {
            text_bytes(text, (const char *)at, length);
            at += length;
        }
    }
    text_put(text, "\"");
}

void text_hex(struct text *text, const void *bytes, size_t count) {
    const unsigned char *from = bytes;
    text_put(text, "\"");
    char *at = count ? room(text, 2 * count) : NULL;
    for (size_t i = 0; at && i < count; i++) {
        at[2 * i] = HEX[from[i] >> 4];
        at[2 * i + 1] = HEX[from[i] & 15];
    }
    text_put(text, "\"");
}

void text_dim3(struct text *text, const char *key, unsigned x, unsigned y, unsigned z) {
    text_format(text, ",\"%s\":[%u,%u,%u]", key, x, y, z);
}
