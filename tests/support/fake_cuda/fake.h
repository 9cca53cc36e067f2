/* What the fake libcuda and the fake libcupti share: how the subscriber is notified of a driver call. */
#ifndef FAKE_H
#define FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define __CUDA_API_VERSION_INTERNAL
#include <cupti_callbacks.h>
#include <cupti_driver_cbid.h>
#include <generated_cuda_meta.h>

/* Set in libcuda by libcupti while there is a subscriber. */
typedef void (*fake_hook)(CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data);

enum { MODULE = 0x4d4d4d4d, LIBRARY, FUNCTION, KERNEL, GRAPH, NODE, EXEC };

/* Modules, libraries, functions, kernels, graphs and nodes: `kind` tells one handle from another. */
struct object {
    int kind;
    struct object *of; /* function -> module, kernel -> library, library -> module */
    char name[256];
    const void *image;
    size_t image_size;
    uint32_t module_id; /* 0: not loaded yet */
    size_t param_count, offsets[64], sizes[64];
    int registers;
    struct object *nodes[256]; /* of a graph */
    size_t node_count;
    CUgraphNodeType type;
    CUDA_KERNEL_NODE_PARAMS launch;
};

/* One call, told on entry and on exit. */
struct told {
    CUpti_CallbackData data;
    CUpti_CallbackId id;
    uint64_t correlation;
    CUresult result;
};

/* A new object, and the one behind a handle: NULL where it is of another kind. */
struct object *make(int kind);
struct object *object(const void *handle, int kind);

void enter(struct told *told, CUpti_CallbackId id, const void *params, const char *symbol);
CUresult leave(struct told *told, CUresult result);
/* Load a module, if it is not yet, and tell. */
void load(struct object *module);

bool is_capturing(CUstream stream);

#endif
