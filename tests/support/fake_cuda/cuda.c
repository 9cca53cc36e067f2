/* A libcuda for tests: no GPU, handles that know their kernels, and every call told to a subscriber as CUPTI does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

enum { MOST = 4096, MODULE = 0x4d4d4d4d, LIBRARY, FUNCTION, KERNEL, GRAPH, NODE, EXEC };

fake_hook fake_tell;

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

struct allocation {
    uint64_t base, size;
    unsigned type, managed;
};

static struct allocation allocations[MOST];
static size_t allocation_count;
static void *capturing[16];
static _Atomic uint32_t last_module_id;
static size_t next_image_size;
static bool no_param_info;

static struct object *object(const void *handle, int kind) {
    struct object *o = (struct object *)handle;
    return o && o->kind == kind ? o : NULL;
}

static struct object *make(int kind) {
    struct object *o = calloc(1, sizeof *o);
    o->kind = kind;
    o->registers = 32;
    return o;
}

/* One call, told on entry and on exit. */
struct told {
    CUpti_CallbackData data;
    CUpti_CallbackId id;
    uint64_t correlation;
    CUresult result;
};

static void enter(struct told *told, CUpti_CallbackId id, const void *params, const char *symbol) {
    memset(told, 0, sizeof *told);
    told->id = id;
    told->data = (CUpti_CallbackData){.callbackSite = CUPTI_API_ENTER, .functionName = "cu", .functionParams = params,
                                      .functionReturnValue = &told->result,
                                      .symbolName = symbol ? symbol : "valid for launches only",
                                      .context = (CUcontext)0x1000, .contextUid = 1};
    told->data.correlationData = &told->correlation;
    if (fake_tell)
        fake_tell(CUPTI_CB_DOMAIN_DRIVER_API, id, &told->data);
}

static CUresult leave(struct told *told, CUresult result) {
    told->result = result;
    told->data.callbackSite = CUPTI_API_EXIT;
    if (fake_tell)
        fake_tell(CUPTI_CB_DOMAIN_DRIVER_API, told->id, &told->data);
    return result;
}

static void tell_module(CUpti_CallbackId id, const struct object *module) {
    CUpti_ModuleResourceData data = {module->module_id, module->image_size, module->image};
    CUpti_ResourceData resource = {.context = (CUcontext)0x1000, .resourceDescriptor = &data};
    if (fake_tell)
        fake_tell(CUPTI_CB_DOMAIN_RESOURCE, id, &resource);
}

static void load(struct object *module) {
    if (module->module_id)
        return;
    module->module_id = ++last_module_id;
    tell_module(CUPTI_CBID_RESOURCE_MODULE_LOADED, module);
}

/* ---- what tests say of this fake world ---- */

void fake_image(size_t size) { next_image_size = size; }

void fake_layout(void *handle, size_t count, const size_t *offsets, const size_t *sizes, int registers) {
    struct object *o = handle;
    o->param_count = count;
    o->registers = registers;
    memcpy(o->offsets, offsets, count * sizeof *offsets);
    memcpy(o->sizes, sizes, count * sizeof *sizes);
}

void fake_allocation(uint64_t base, uint64_t size, unsigned type, unsigned managed) {
    allocations[allocation_count++] = (struct allocation){base, size, type, managed};
}

void fake_capturing(void *stream, bool on) {
    for (size_t i = 0; i < 16; i++)
        if (on ? !capturing[i] : capturing[i] == stream) {
            capturing[i] = on ? stream : NULL;
            return;
        }
}

void fake_no_param_info(void) { no_param_info = true; }

void fake_load(void *module) { load(module); }

/* Load another image inside the next call: the driver does so lazily. */
static struct object *lazy_other;
void fake_load_within_next_launch(void *module) { lazy_other = module; }

/* ---- the driver ---- */

CUresult cuInit(unsigned flags) {
    static bool done;
    const char *path = getenv("CUDA_INJECTION64_PATH");
    (void)flags;
    if (done || !path)
        return CUDA_SUCCESS;
    done = true;
    void *library = dlopen(path, RTLD_NOW);
    int (*start)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
    return start && start() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuDriverGetVersion(int *version) {
    *version = 13000;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    *device = 0;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    cuModuleLoadData_params params = {module, image};
    struct told told;
    enter(&told, CUPTI_DRIVER_TRACE_CBID_cuModuleLoadData, &params, NULL);
    struct object *o = make(MODULE);
    o->image = image;
    o->image_size = next_image_size;
    load(o);
    *module = (CUmodule)o;
    return leave(&told, CUDA_SUCCESS);
}

CUresult cuModuleUnload(CUmodule module) {
    struct object *o = object(module, MODULE);
    if (!o)
        return CUDA_ERROR_INVALID_HANDLE;
    if (o->module_id)
        tell_module(CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING, o);
    o->module_id = 0;
    return CUDA_SUCCESS;
}

/* The handle stays as it is and stands for another image from now on, as one that is given out anew does. */
void fake_reuse(void *module, const void *image, size_t size) {
    struct object *o = module;
    o->image = image;
    o->image_size = size;
    load(o);
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    struct object *o = make(FUNCTION);
    o->of = object(module, MODULE);
    strncpy(o->name, name, sizeof o->name - 1);
    *function = (CUfunction)o;
    return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *a, void **b, unsigned c,
                           CUlibraryOption *d, void **e, unsigned f) {
    (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
    struct object *o = make(LIBRARY);
    o->of = make(MODULE);
    o->of->image = code;
    o->of->image_size = next_image_size;
    *library = (CUlibrary)o;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    struct object *o = make(KERNEL);
    o->of = object(library, LIBRARY);
    strncpy(o->name, name, sizeof o->name - 1);
    *kernel = (CUkernel)o;
    return CUDA_SUCCESS;
}

static struct object *module_of(struct object *function) {
    return function->kind == KERNEL ? function->of->of : function->of;
}

static CUresult launch(CUpti_CallbackId id, const void *params, CUfunction function, CUstream stream) {
    struct object *o = (struct object *)function;
    struct told told;
    bool captured = false;
    for (size_t i = 0; i < 16; i++)
        captured |= stream && capturing[i] == stream;
    enter(&told, id, params, o->name);
    if (lazy_other)
        load(lazy_other);
    lazy_other = NULL;
    load(module_of(o));
    if (!captured)
        tell_module(CUPTI_CBID_RESOURCE_MODULE_PROFILED, module_of(o));
    return leave(&told, getenv("FAKE_LAUNCH_FAILS") ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
}

#define SHAPE                                                                                                          \
    unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream stream
#define SHAPE_VALUES gx, gy, gz, bx, by, bz, shared, stream

CUresult cuLaunchKernel(CUfunction f, SHAPE, void **kernel_params, void **extra) {
    cuLaunchKernel_params params = {f, SHAPE_VALUES, kernel_params, extra};
    return launch(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, &params, f, stream);
}

CUresult cuLaunchKernel_ptsz(CUfunction f, SHAPE, void **kernel_params, void **extra) {
    cuLaunchKernel_params params = {f, SHAPE_VALUES, kernel_params, extra};
    return launch(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz, &params, f, stream);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, SHAPE, void **kernel_params) {
    cuLaunchCooperativeKernel_params params = {f, SHAPE_VALUES, kernel_params};
    return launch(CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel, &params, f, stream);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernel_params, void **extra) {
    cuLaunchKernelEx_params params = {config, f, kernel_params, extra};
    return launch(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, &params, f, config->hStream);
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction function) {
    struct object *o = object(function, FUNCTION);
    if (!o)
        return CUDA_ERROR_INVALID_HANDLE;
    *module = (CUmodule)o->of;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel) {
    struct object *o = object(kernel, KERNEL);
    if (!o)
        return CUDA_ERROR_INVALID_HANDLE;
    *library = (CUlibrary)o->of;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library) {
    *module = (CUmodule)object(library, LIBRARY)->of;
    return CUDA_SUCCESS;
}

static CUresult name_of(const char **name, struct object *o) {
    if (!o)
        return CUDA_ERROR_INVALID_HANDLE;
    *name = o->name;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction f) { return name_of(name, object(f, FUNCTION)); }
CUresult cuKernelGetName(const char **name, CUkernel k) { return name_of(name, object(k, KERNEL)); }

static CUresult attribute_of(int *value, CUfunction_attribute id, struct object *o) {
    if (!o)
        return CUDA_ERROR_INVALID_HANDLE;
    *value = id == CU_FUNC_ATTRIBUTE_NUM_REGS ? o->registers : id == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute id, CUfunction f) {
    return attribute_of(value, id, object(f, FUNCTION));
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute id, CUkernel k, CUdevice device) {
    (void)device;
    return attribute_of(value, id, object(k, KERNEL));
}

static CUresult param_of(struct object *o, size_t index, size_t *offset, size_t *size) {
    if (!o || no_param_info)
        return CUDA_ERROR_INVALID_HANDLE;
    if (index >= o->param_count)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = o->offsets[index];
    *size = o->sizes[index];
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction f, size_t index, size_t *offset, size_t *size) {
    return param_of(object(f, FUNCTION), index, offset, size);
}

CUresult cuKernelGetParamInfo(CUkernel k, size_t index, size_t *offset, size_t *size) {
    return param_of(object(k, KERNEL), index, offset, size);
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count);

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *ids, void **data, CUdeviceptr pointer) {
    const struct allocation *found = NULL;
    if (getenv("FAKE_QUERIES_CALL"))
        cuMemsetD32_v2(pointer, 0, 1);
    for (size_t i = 0; i < allocation_count; i++)
        if (pointer >= allocations[i].base && pointer - allocations[i].base < allocations[i].size)
            found = &allocations[i];
    for (unsigned i = 0; i < count; i++) {
        if (ids[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
            *(unsigned *)data[i] = found ? found->type : 0;
        else if (ids[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED)
            *(unsigned *)data[i] = found ? found->managed : 0;
        else
            *(uint64_t *)data[i] =
                !found ? 0 : ids[i] == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR ? found->base : found->size;
    }
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    for (size_t i = 0; i < 16; i++)
        if (stream && capturing[i] == stream)
            *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

#define CALL(name, signature, ...)                                                                                     \
    CUresult name signature {                                                                                          \
        name##_params params = {__VA_ARGS__};                                                                          \
        struct told told;                                                                                              \
        enter(&told, CUPTI_DRIVER_TRACE_CBID_##name, &params, NULL);                                                   \
        return leave(&told, CUDA_SUCCESS);                                                                             \
    }

CALL(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes), to, from, bytes)
CALL(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream s), to, from, bytes, s)
CALL(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream s), to, from, bytes, s)
CALL(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s), to, from, bytes, s)
CALL(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s), to, from, bytes, s)
CALL(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *copy, CUstream s), copy, s)
CALL(cuMemcpyDtoA_v2, (CUarray to, size_t at, CUdeviceptr from, size_t bytes), to, at, from, bytes)
CALL(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t count, CUstream s), to, value, count, s)
CALL(cuMemsetD32_v2, (CUdeviceptr to, unsigned value, size_t count), to, value, count)
CALL(cuMemsetD2D16Async,
     (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height, CUstream s), to, pitch, value,
     width, height, s)
CALL(cuGraphLaunch, (CUgraphExec graph, CUstream s), graph, s)
CALL(cuGraphExecDestroy, (CUgraphExec graph), graph)
CALL(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info), exec, graph, info)
CALL(cuGraphExecKernelNodeSetParams_v2, (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p), exec,
     node, p)

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, CUmemcpyAttributes *a,
                               size_t *b, size_t c, CUstream s) {
    cuMemcpyBatchAsync_v2_params params = {to, from, sizes, count, a, b, c, s};
    struct told told;
    enter(&told, CUPTI_DRIVER_TRACE_CBID_cuMemcpyBatchAsync_v2, &params, NULL);
    return leave(&told, CUDA_SUCCESS);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    cuGraphInstantiateWithFlags_params params = {exec, graph, flags};
    struct told told;
    enter(&told, CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiateWithFlags, &params, NULL);
    *exec = (CUgraphExec)make(EXEC);
    return leave(&told, CUDA_SUCCESS);
}

CUresult cuGraphCreate(CUgraph *graph, unsigned flags) {
    (void)flags;
    *graph = (CUgraph)make(GRAPH);
    return CUDA_SUCCESS;
}

/* A node of any type; `launch` for kernels, `child` for graphs. */
void fake_node(CUgraph graph, int type, const CUDA_KERNEL_NODE_PARAMS *launch, CUgraph child) {
    struct object *o = make(NODE), *g = (struct object *)graph;
    o->type = type;
    o->of = (struct object *)child;
    if (launch)
        o->launch = *launch;
    g->nodes[g->node_count++] = o;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    struct object *o = object(graph, GRAPH);
    if (nodes)
        memcpy(nodes, o->nodes, o->node_count * sizeof *nodes);
    *count = o->node_count;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type) {
    *type = object(node, NODE)->type;
    return CUDA_SUCCESS;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph) {
    *graph = (CUgraph)object(node, NODE)->of;
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params) {
    *params = object(node, NODE)->launch;
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUlaunchAttributeID id, CUlaunchAttributeValue *value) {
    (void)node;
    memset(value, 0, sizeof *value);
    if (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
        value->clusterDim.x = 2, value->clusterDim.y = 1, value->clusterDim.z = 1;
    return CUDA_SUCCESS;
}
