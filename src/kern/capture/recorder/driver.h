/* The entry points of libcuda and libcupti, found in the process: neither is linked. */
#ifndef KERN_DRIVER_H
#define KERN_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

/* generated_cuda_meta.h has the arguments of calls of old as well, whose types this makes known. */
#define __CUDA_API_VERSION_INTERNAL
#include <cupti_callbacks.h>
#include <cupti_driver_cbid.h>
#include <generated_cuda_meta.h>

#if CUDA_VERSION < 12080
#error "the headers of CUDA 12.8 or later are needed"
#endif

/* Those that an older driver lacks are NULL. */
struct driver {
    CUresult (*DriverGetVersion)(int *version);
    CUresult (*CtxGetDevice)(CUdevice *device);
    CUresult (*FuncGetModule)(CUmodule *module, CUfunction function);
    CUresult (*FuncGetName)(const char **name, CUfunction function);
    CUresult (*FuncGetAttribute)(int *value, CUfunction_attribute attribute, CUfunction function);
    CUresult (*FuncGetParamInfo)(CUfunction function, size_t index, size_t *offset, size_t *size);
    CUresult (*KernelGetLibrary)(CUlibrary *library, CUkernel kernel);
    CUresult (*KernelGetName)(const char **name, CUkernel kernel);
    CUresult (*KernelGetAttribute)(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device);
    CUresult (*KernelGetParamInfo)(CUkernel kernel, size_t index, size_t *offset, size_t *size);
    CUresult (*LibraryGetModule)(CUmodule *module, CUlibrary library);
    CUresult (*PointerGetAttributes)(unsigned count, CUpointer_attribute *attributes, void **data, CUdeviceptr pointer);
    CUresult (*StreamIsCapturing)(CUstream stream, CUstreamCaptureStatus *status);
    CUresult (*GraphGetNodes)(CUgraph graph, CUgraphNode *nodes, size_t *count);
    CUresult (*GraphNodeGetType)(CUgraphNode node, CUgraphNodeType *type);
    CUresult (*GraphChildGraphNodeGetGraph)(CUgraphNode node, CUgraph *graph);
    CUresult (*GraphKernelNodeGetParams)(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params);
    CUresult (*GraphKernelNodeGetAttribute)(CUgraphNode node, CUlaunchAttributeID id, CUlaunchAttributeValue *value);
};

struct cupti {
    CUptiResult (*GetVersion)(uint32_t *version);
    CUptiResult (*GetResultString)(CUptiResult result, const char **string);
    CUptiResult (*Subscribe)(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *data);
    CUptiResult (*EnableCallback)(uint32_t enable, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                                  CUpti_CallbackId id);
    CUptiResult (*GetStreamIdEx)(CUcontext context, CUstream stream, uint8_t per_thread, uint32_t *id);
};

extern struct driver driver;
extern struct cupti cupti;

/* Find both; false where one is absent, and recorder.log says which. */
bool driver_find(void);

#endif
