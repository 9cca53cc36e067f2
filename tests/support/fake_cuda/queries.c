/* The answers of the libcuda for tests: what handles, pointers and streams are. */
#include <stdlib.h>
#include <string.h>

#include "fake.h"

enum { ALLOCATIONS = 4096, STREAMS = 16 };

struct allocation {
    uint64_t base, size;
    unsigned type, managed;
};

static struct allocation allocations[ALLOCATIONS];
static size_t allocation_count;
static void *capturing[STREAMS];
static bool no_param_info;

void fake_allocation(uint64_t base, uint64_t size, unsigned type, unsigned managed) {
    allocations[allocation_count++] = (struct allocation){base, size, type, managed};
}

void fake_capturing(void *stream, bool on) {
    for (size_t i = 0; i < STREAMS; i++)
        if (on ? !capturing[i] : capturing[i] == stream) {
            capturing[i] = on ? stream : NULL;
            return;
        }
}

void fake_no_param_info(void) { no_param_info = true; }

void fake_module_of(const struct object *kernel, struct object **module) { *module = kernel->of->of; }

bool is_capturing(CUstream stream) {
    for (size_t i = 0; i < STREAMS; i++)
        if (stream && capturing[i] == stream)
            return true;
    return false;
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
    load((struct object *)*module);
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
    if (getenv("FAKE_ENDLESS_PARAMS"))
        index = 0;
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
    *status = is_capturing(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}
