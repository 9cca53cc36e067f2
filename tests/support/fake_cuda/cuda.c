/* A libcuda for tests: no GPU, handles that know their kernels, and every call told to a subscriber as CUPTI does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

fake_hook fake_tell;

static _Atomic uint32_t last_module_id;
static size_t next_image_size;
static struct object *lazy_other;

struct object *object(const void *handle, int kind) {
    struct object *o = (struct object *)handle;
    return o && o->kind == kind ? o : NULL;
}

struct object *make(int kind) {
    struct object *o = calloc(1, sizeof *o);
    o->kind = kind;
    o->registers = 32;
    return o;
}

void enter(struct told *told, CUpti_CallbackId id, const void *params, const char *symbol) {
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

CUresult leave(struct told *told, CUresult result) {
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

void load(struct object *module) {
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

void fake_load(void *module) { load(module); }

/* Load another image inside the next launch, as the driver loads lazily. */
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

/* The handle stays the same and refers to another image from now on, like one that is reused. */
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
    bool captured = is_capturing(stream);
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

