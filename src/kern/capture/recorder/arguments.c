/* The bytes of a launch's parameters, however they were passed. */
#include "arguments.h"

#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "output.h"
#include "pointers.h"

enum { MOST_EXTRA = 16, MOST_BYTES = 65536 }; /* a kernel takes less than 32 KiB of parameters */

struct packed {
    unsigned char *bytes;
    size_t size;
};

/* The bytes at the parameters' addresses, one behind the other; NULL where one cannot be read. */
static unsigned char *gather(const struct kernel *kernel, void **params) {
    const void **addresses = malloc((kernel->param_count + 1) * sizeof *addresses);
    struct piece *pieces = malloc((kernel->param_count + 1) * sizeof *pieces);
    unsigned char *bytes = malloc(kernel->params_size + 1);
    bool whole = addresses && pieces && bytes &&
                 memory_read(addresses, params, kernel->param_count * sizeof *addresses);
    for (size_t i = 0; whole && i < kernel->param_count; i++)
        pieces[i] = (struct piece){addresses[i], kernel->params[i].size};
    whole = whole && memory_gather(bytes, pieces, kernel->param_count);
    free(addresses);
    free(pieces);
    if (whole)
        return bytes;
    free(bytes);
    return NULL;
}

/* The buffer that an `extra` array names: pairs of an id and a value, up to CU_LAUNCH_PARAM_END. */
static struct packed read_extra(void **extra) {
    void *pair[2] = {NULL, NULL}, *buffer = NULL;
    size_t size = 0;
    for (int i = 0; i < MOST_EXTRA; i += 2) {
        if (!memory_read(&pair[0], extra + i, sizeof pair[0]) || pair[0] == CU_LAUNCH_PARAM_END ||
            !memory_read(&pair[1], extra + i + 1, sizeof pair[1]))
            break;
        if (pair[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = pair[1];
        else if (pair[0] == CU_LAUNCH_PARAM_BUFFER_SIZE && !memory_read(&size, pair[1], sizeof size))
            size = 0;
    }
    struct packed packed = {buffer && size && size <= MOST_BYTES ? malloc(size) : NULL, size};
    if (packed.bytes && !memory_read(packed.bytes, buffer, size)) {
        free(packed.bytes);
        packed.bytes = NULL;
    }
    return packed;
}

/* Whether all parameters lie in a buffer of this size; a kernel without any needs no buffer. */
static bool fits(const struct kernel *kernel, size_t size) {
    for (size_t i = 0; i < kernel->param_count; i++)
        if (kernel->params[i].offset > size || kernel->params[i].size > size - kernel->params[i].offset)
            return false;
    return true;
}

/* Where a parameter begins: cut from a packed buffer, or one behind the other. */
static const unsigned char *param_at(const struct kernel *kernel, const unsigned char *bytes, bool packed, size_t index,
                                     size_t *running) {
    size_t at = packed ? kernel->params[index].offset : *running;
    *running += kernel->params[index].size;
    return bytes + at;
}

static void end_pointers(struct pointers *pointers) {
    text_put(pointers->line, "]");
    if (pointers->host_words)
        text_format(pointers->line, ",\"host_words\":%zu", pointers->host_words);
}

static void put_params(struct text *line, const struct kernel *kernel, const unsigned char *bytes, bool packed) {
    size_t running = 0;
    struct pointers pointers = {line, false, 0};
    text_put(line, ",\"params\":[");
    for (size_t i = 0; i < kernel->param_count; i++) {
        if (i)
            text_put(line, ",");
        text_hex(line, param_at(kernel, bytes, packed, i, &running), kernel->params[i].size);
    }
    text_put(line, "],\"pointers\":[");
    running = 0;
    for (size_t i = 0; i < kernel->param_count; i++) {
        const unsigned char *param = param_at(kernel, bytes, packed, i, &running);
        put_pointers(&pointers, param, kernel->params[i].size, kernel->params[i].offset, (long)i);
    }
    end_pointers(&pointers);
}

static void put_extra(struct text *line, const struct kernel *kernel, void **extra) {
    struct packed packed = read_extra(extra);
    text_put(line, ",\"via\":\"extra\"");
    if (kernel->has_layout && (packed.bytes ? fits(kernel, packed.size) : !kernel->param_count)) {
        put_params(line, kernel, packed.bytes, true);
    } else {
        struct pointers pointers = {line, false, 0};
        text_put(line, ",\"params\":null");
        if (packed.bytes) {
            text_put(line, ",\"bytes\":");
            text_hex(line, packed.bytes, packed.size);
            text_put(line, ",\"pointers\":[");
            put_pointers(&pointers, packed.bytes, packed.size, 0, -1);
            end_pointers(&pointers);
        } else {
            output_lost("the parameters of a launch", "its packed buffer cannot be read");
        }
    }
    free(packed.bytes);
}

void put_arguments(struct text *line, const struct kernel *kernel, void **params, void **extra) {
    if (extra && !params) {
        put_extra(line, kernel, extra);
        return;
    }
    text_put(line, ",\"via\":\"params\"");
    unsigned char *bytes = kernel->has_layout ? gather(kernel, params) : NULL;
    if (bytes)
        put_params(line, kernel, bytes, false);
    else
        text_put(line, ",\"params\":null");
    if (!bytes && kernel->has_layout)
        output_lost("the parameters of a launch", "their memory cannot be read");
    free(bytes);
}
