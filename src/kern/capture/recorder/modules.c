/* The modules that are loaded now, and those that were loaded, or ran, within a call of this thread. */
#define _GNU_SOURCE
#include "modules.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"
#include "sha256.h"

/* This thread's events: how many there were, the last one's module, and how many in a row were of it. */
struct events {
    uint32_t count, id, in_a_row;
};

struct module {
    uint32_t id;
    CUmodule handle; /* NULL: not known */
    const struct image *image;
};

static __thread struct events loaded, profiled;

static struct {
    pthread_mutex_t lock;
    struct image *images;
    struct module *entries;
    size_t count, capacity;
    uint64_t epoch;
} modules = {.lock = PTHREAD_MUTEX_INITIALIZER};

uint64_t modules_mark(void) { return (uint64_t)loaded.count << 32 | profiled.count; }

static void add_event(struct events *events, uint32_t id) {
    events->in_a_row = events->count && events->id == id ? events->in_a_row + 1 : 1;
    events->id = id;
    events->count++;
}

static bool only_event(const struct events *events, uint32_t since, uint32_t *id) {
    uint32_t happened = events->count - since;
    *id = events->id;
    return happened && happened <= events->in_a_row;
}

bool module_loaded_since(uint64_t mark, uint32_t *id) { return only_event(&loaded, (uint32_t)(mark >> 32), id); }

bool module_profiled_since(uint64_t mark, uint32_t *id) { return only_event(&profiled, (uint32_t)mark, id); }

void module_profiled(uint32_t id) { add_event(&profiled, id); }

/* The image of these bytes; the caller holds the lock. */
static const struct image *known_image(const char *sha256, size_t size) {
    for (struct image *image = modules.images; image; image = image->next)
        if (!strcmp(image->sha256, sha256))
            return image;
    struct image *image = calloc(1, sizeof *image);
    if (!image)
        return NULL;
    strcpy(image->sha256, sha256);
    image->size = size;
    image->next = modules.images;
    return modules.images = image;
}

static struct module *find(uint32_t id) {
    for (size_t i = modules.count; i-- > 0;)
        if (modules.entries[i].id == id)
            return &modules.entries[i];
    return NULL;
}

static bool add(uint32_t id, const struct image *image) {
    struct module *entry = find(id);
    if (!entry && modules.count == modules.capacity) {
        size_t capacity = modules.capacity ? 2 * modules.capacity : 64;
        struct module *entries = realloc(modules.entries, capacity * sizeof *entries);
        if (!entries)
            return false;
        modules.entries = entries;
        modules.capacity = capacity;
    }
    if (!entry)
        entry = &modules.entries[modules.count++];
    *entry = (struct module){id, NULL, image};
    return true;
}

static void say(const char *record, const struct image *image, bool with_size) {
    struct text line = {0};
    text_format(&line, "{\"record\":\"%s\",\"t\":%llu,\"module\":\"%s\"", record, (unsigned long long)output_now(),
                image->sha256);
    if (with_size)
        text_format(&line, ",\"bytes\":%zu", image->size);
    text_put(&line, "}");
    output_line(&line);
}

void module_loaded(uint32_t id, const void *bytes, size_t size) {
    char digits[65];
    sha256(bytes, size, digits);
    output_module(digits, bytes, size);
    pthread_mutex_lock(&modules.lock);
    const struct image *image = known_image(digits, size);
    pthread_mutex_unlock(&modules.lock);
    if (image)
        say("module", image, true); /* before another thread can name it */
    pthread_mutex_lock(&modules.lock);
    bool added = image && add(id, image);
    pthread_mutex_unlock(&modules.lock);
    if (!added)
        output_lost("a module", "no memory is left for it");
    add_event(&loaded, id);
}

void module_unloading(uint32_t id) {
    pthread_mutex_lock(&modules.lock);
    struct module *entry = find(id);
    const struct image *image = entry ? entry->image : NULL;
    if (entry)
        *entry = modules.entries[--modules.count];
    modules.epoch++;
    pthread_mutex_unlock(&modules.lock);
    if (image)
        say("unload", image, false);
}

const struct image *module_image(uint32_t id) {
    pthread_mutex_lock(&modules.lock);
    struct module *entry = find(id);
    const struct image *image = entry ? entry->image : NULL;
    pthread_mutex_unlock(&modules.lock);
    return image;
}

const struct image *module_of_handle(CUmodule handle) {
    const struct image *image = NULL;
    pthread_mutex_lock(&modules.lock);
    for (size_t i = 0; handle && i < modules.count && !image; i++)
        if (modules.entries[i].handle == handle)
            image = modules.entries[i].image;
    pthread_mutex_unlock(&modules.lock);
    return image;
}

void module_tie(CUmodule handle, uint32_t id) {
    pthread_mutex_lock(&modules.lock);
    struct module *entry = find(id);
    for (size_t i = 0; entry && handle && i < modules.count; i++)
        if (modules.entries[i].handle == handle)
            modules.entries[i].handle = NULL;
    if (entry && handle)
        entry->handle = handle;
    pthread_mutex_unlock(&modules.lock);
}

void module_tie_image(CUmodule handle, const struct image *image) {
    struct module *only = NULL;
    size_t found = 0;
    pthread_mutex_lock(&modules.lock);
    for (size_t i = 0; i < modules.count; i++)
        if (modules.entries[i].image == image) {
            only = &modules.entries[i];
            found++;
        }
    if (found == 1 && handle && !only->handle)
        only->handle = handle;
    pthread_mutex_unlock(&modules.lock);
}

/* A symbol table holds a name between two NULs. `unread` is the answer where the bytes cannot be read. */
static bool search(const struct image *image, const char *symbol, bool unread) {
    size_t length = strlen(symbol) + 2, size;
    char *name = calloc(1, length);
    char *bytes = output_read_module(image->sha256, &size);
    bool holds = unread;
    if (name && bytes) {
        memcpy(name + 1, symbol, length - 2);
        holds = memmem(bytes, size, name, length) != NULL;
    }
    free(name);
    free(bytes);
    return holds;
}

bool image_holds(const struct image *image, const char *symbol) { return search(image, symbol, false); }

static const struct image **images_now(size_t *count) {
    pthread_mutex_lock(&modules.lock);
    const struct image **images = calloc(modules.count + 1, sizeof *images);
    *count = 0;
    for (size_t i = 0; images && i < modules.count; i++) {
        size_t seen = 0;
        while (seen < *count && images[seen] != modules.entries[i].image)
            seen++;
        if (seen == *count)
            images[(*count)++] = modules.entries[i].image;
    }
    pthread_mutex_unlock(&modules.lock);
    return images;
}

const struct image **modules_holding(const char *symbol, size_t *count) {
    size_t all;
    const struct image **images = images_now(&all);
    *count = 0;
    for (size_t i = 0; i < all; i++)
        if (search(images[i], symbol, true))
            images[(*count)++] = images[i];
    return images;
}

uint64_t modules_epoch(void) {
    pthread_mutex_lock(&modules.lock);
    uint64_t epoch = modules.epoch;
    pthread_mutex_unlock(&modules.lock);
    return epoch;
}
