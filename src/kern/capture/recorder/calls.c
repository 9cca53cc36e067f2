/* Which calls of the driver are recorded, and by which function. */
#include "calls.h"

#include "handlers.h"
#include "modules.h"

#define CALL(name, handler) {CUPTI_DRIVER_TRACE_CBID_##name, handler, false, false}
#define PER_THREAD(name, handler) {CUPTI_DRIVER_TRACE_CBID_##name, handler, true, false}
#define ENTRY(name, handler) {CUPTI_DRIVER_TRACE_CBID_##name, handler, false, true}
#define ASYNC(name, handler) CALL(name, handler), PER_THREAD(name##_ptsz, handler)
#define SYNC(name, handler) CALL(name, handler), PER_THREAD(name##_ptds, handler)

/* Calls that the headers of CUDA 12.8 do not have yet; ids do not change. */
enum { BATCH_V2 = 796, BATCH_3D_V2 = 798, ATTRIBUTED = 837, ATTRIBUTED_3D = 839 };

#define NEWER(id, handler) {id, handler, false, false}, {(id) + 1, handler, true, false}

/* Each of the ways to load a module has the address of the handle as its first argument. */
static void on_module_load(const struct call *call) {
    CUmodule *module = *(CUmodule *const *)call->params;
    uint32_t id;
    if (module_loaded_since(call->mark, &id))
        module_tie(*module, id);
}

const struct traced TRACED[] = {
    ASYNC(cuLaunchKernel, on_launch),
    ASYNC(cuLaunchKernelEx, on_launch_ex),
    ASYNC(cuLaunchCooperativeKernel, on_launch_cooperative),
    CALL(cuLaunchCooperativeKernelMultiDevice, on_launch_unrecorded),
    CALL(cuLaunch, on_launch_unrecorded),
    CALL(cuLaunchGrid, on_launch_unrecorded),
    CALL(cuLaunchGridAsync, on_launch_unrecorded),
    CALL(cuModuleLoad, on_module_load),
    CALL(cuModuleLoadData, on_module_load),
    CALL(cuModuleLoadDataEx, on_module_load),
    CALL(cuModuleLoadFatBinary, on_module_load),
    SYNC(cuMemcpyHtoD_v2, on_copy_to_device),
    SYNC(cuMemcpyDtoH_v2, on_copy_to_host),
    SYNC(cuMemcpyDtoD_v2, on_copy_on_device),
    SYNC(cuMemcpy, on_copy),
    SYNC(cuMemcpyPeer, on_copy_peer),
    SYNC(cuMemcpy2D_v2, on_copy_2d),
    SYNC(cuMemcpy2DUnaligned_v2, on_copy_2d),
    SYNC(cuMemcpy3D_v2, on_copy_3d),
    SYNC(cuMemcpy3DPeer, on_copy_unrecorded),
    SYNC(cuMemcpyDtoA_v2, on_copy_unrecorded),
    SYNC(cuMemcpyAtoD_v2, on_copy_unrecorded),
    SYNC(cuMemcpyHtoA_v2, on_copy_unrecorded),
    SYNC(cuMemcpyAtoH_v2, on_copy_unrecorded),
    SYNC(cuMemcpyAtoA_v2, on_copy_unrecorded),
    ASYNC(cuMemcpyHtoDAsync_v2, on_copy_to_device_async),
    ASYNC(cuMemcpyDtoHAsync_v2, on_copy_to_host_async),
    ASYNC(cuMemcpyDtoDAsync_v2, on_copy_on_device_async),
    ASYNC(cuMemcpyAsync, on_copy_async),
    ASYNC(cuMemcpyPeerAsync, on_copy_peer_async),
    ASYNC(cuMemcpy2DAsync_v2, on_copy_2d_async),
    ASYNC(cuMemcpy3DAsync_v2, on_copy_3d_async),
    ASYNC(cuMemcpy3DPeerAsync, on_copy_unrecorded),
    ASYNC(cuMemcpyHtoAAsync_v2, on_copy_unrecorded),
    ASYNC(cuMemcpyAtoHAsync_v2, on_copy_unrecorded),
    ASYNC(cuMemcpyBatchAsync, on_copy_batch),
    ASYNC(cuMemcpy3DBatchAsync, on_copy_unrecorded),
    NEWER(BATCH_V2, on_copy_batch_v2),
    NEWER(BATCH_3D_V2, on_copy_unrecorded),
    NEWER(ATTRIBUTED, on_copy_attributed),
    NEWER(ATTRIBUTED_3D, on_copy_unrecorded),
    SYNC(cuMemsetD8_v2, on_fill_8),
    SYNC(cuMemsetD16_v2, on_fill_16),
    SYNC(cuMemsetD32_v2, on_fill_32),
    SYNC(cuMemsetD2D8_v2, on_fill_2d_8),
    SYNC(cuMemsetD2D16_v2, on_fill_2d_16),
    SYNC(cuMemsetD2D32_v2, on_fill_2d_32),
    ASYNC(cuMemsetD8Async, on_fill_8_async),
    ASYNC(cuMemsetD16Async, on_fill_16_async),
    ASYNC(cuMemsetD32Async, on_fill_32_async),
    ASYNC(cuMemsetD2D8Async, on_fill_2d_8_async),
    ASYNC(cuMemsetD2D16Async, on_fill_2d_16_async),
    ASYNC(cuMemsetD2D32Async, on_fill_2d_32_async),
    CALL(cuGraphInstantiate, on_graph_instantiate),
    CALL(cuGraphInstantiate_v2, on_graph_instantiate),
    CALL(cuGraphInstantiateWithFlags, on_graph_instantiate),
    ASYNC(cuGraphInstantiateWithParams, on_graph_instantiate),
    CALL(cuGraphExecUpdate, on_graph_update),
    CALL(cuGraphExecUpdate_v2, on_graph_update),
    CALL(cuGraphExecKernelNodeSetParams, on_graph_node_update),
    CALL(cuGraphExecKernelNodeSetParams_v2, on_graph_node_update),
    CALL(cuGraphExecMemcpyNodeSetParams, on_graph_node_update),
    CALL(cuGraphExecMemsetNodeSetParams, on_graph_node_update),
    CALL(cuGraphExecChildGraphNodeSetParams, on_graph_node_update),
    CALL(cuGraphExecHostNodeSetParams, on_graph_node_update),
    CALL(cuGraphExecEventRecordNodeSetEvent, on_graph_node_update),
    CALL(cuGraphExecEventWaitNodeSetEvent, on_graph_node_update),
    CALL(cuGraphExecExternalSemaphoresSignalNodeSetParams, on_graph_node_update),
    CALL(cuGraphExecExternalSemaphoresWaitNodeSetParams, on_graph_node_update),
    CALL(cuGraphExecBatchMemOpNodeSetParams, on_graph_node_update),
    CALL(cuGraphExecNodeSetParams, on_graph_node_update),
    CALL(cuGraphNodeSetEnabled, on_graph_node_update),
    ASYNC(cuGraphLaunch, on_graph_launch),
    ENTRY(cuGraphExecDestroy, on_graph_destroy),
};

const size_t TRACED_COUNT = sizeof TRACED / sizeof *TRACED;
