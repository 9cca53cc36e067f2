/* Copies, fills and graphs of the libcuda for tests: the subscriber is notified, and nothing else happens. */
#include <string.h>

#include "fake.h"

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
CALL(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info), exec, graph, info)
CALL(cuGraphExecKernelNodeSetParams_v2, (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p), exec,
     node, p)
CALL(cuGraphNodeSetEnabled, (CUgraphExec exec, CUgraphNode node, unsigned on), exec, node, on)
CALL(cuLaunchGrid, (CUfunction f, int width, int height), f, width, height)

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, CUmemcpyAttributes *a,
                               size_t *b, size_t c, CUstream s) {
    cuMemcpyBatchAsync_v2_params params = {to, from, sizes, count, a, b, c, s};
    struct told told;
    enter(&told, CUPTI_DRIVER_TRACE_CBID_cuMemcpyBatchAsync_v2, &params, NULL);
    return leave(&told, CUDA_SUCCESS);
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, CUgraphExec handle) {
    cuGraphInstantiateWithFlags_params params = {exec, graph, 0};
    struct told told;
    enter(&told, CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiateWithFlags, &params, NULL);
    *exec = handle;
    return leave(&told, CUDA_SUCCESS);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    (void)flags;
    return instantiate(exec, graph, (CUgraphExec)make(EXEC));
}

/* Another thread may be given the handle before the call that ends it has returned. */
static CUgraph instantiated_within_destroy;

void fake_instantiate_within_destroy(CUgraph graph) { instantiated_within_destroy = graph; }

CUresult cuGraphExecDestroy(CUgraphExec graph) {
    cuGraphExecDestroy_params params = {graph};
    struct told told;
    CUgraphExec again;
    enter(&told, CUPTI_DRIVER_TRACE_CBID_cuGraphExecDestroy, &params, NULL);
    if (instantiated_within_destroy)
        instantiate(&again, instantiated_within_destroy, graph);
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
