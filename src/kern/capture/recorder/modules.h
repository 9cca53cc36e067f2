/* The modules that are loaded now, and those that were loaded, or ran, within a call of this thread. */
#ifndef KERN_MODULES_H
#define KERN_MODULES_H

#include "driver.h"

/* A module's bytes, known by their hash; one for all modules of the same bytes, and never freed. */
struct image {
    char sha256[65];
    size_t size;
    struct image *next;
};

/* What happened to modules in this thread before a call: two counts. */
uint64_t modules_mark(void);

/* CUPTI's word that a module was loaded, will be unloaded, or is the one of the kernel that runs. */
void module_loaded(uint32_t id, const void *bytes, size_t size);
void module_unloading(uint32_t id);
void module_profiled(uint32_t id);

/* The only module loaded, or run, in this thread since a mark; false where there is none, or more than one. */
bool module_loaded_since(uint64_t mark, uint32_t *id);
bool module_profiled_since(uint64_t mark, uint32_t *id);

/* NULL where no such module is loaded, or the handle was tied to none. */
const struct image *module_image(uint32_t id);
const struct image *module_of_handle(CUmodule handle);

/* Remember that a handle is this module's. */
void module_tie(CUmodule handle, uint32_t id);
/* The same, where one module alone that is loaded now has the image. */
void module_tie_image(CUmodule handle, const struct image *image);

/* The images loaded now that hold a symbol, or whose bytes cannot be read, each once: an array to be freed. */
const struct image **modules_holding(const char *symbol, size_t *count);
bool image_holds(const struct image *image, const char *symbol);

/* A number that changes when a module is unloaded: what was found by handles before does not hold after it. */
uint64_t modules_epoch(void);

#endif
