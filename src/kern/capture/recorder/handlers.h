/* What is recorded of each call: one function for each shape of its arguments. */
#ifndef KERN_HANDLERS_H
#define KERN_HANDLERS_H

#include "call.h"

/* launches.c */
void on_launch(const struct call *call);
void on_launch_ex(const struct call *call);
void on_launch_cooperative(const struct call *call);
void on_launch_unrecorded(const struct call *call);

/* transfers.c */
void on_copy_to_device(const struct call *call);
void on_copy_to_device_async(const struct call *call);
void on_copy_to_host(const struct call *call);
void on_copy_to_host_async(const struct call *call);
void on_copy_on_device(const struct call *call);
void on_copy_on_device_async(const struct call *call);
void on_copy(const struct call *call);
void on_copy_async(const struct call *call);
void on_copy_attributed(const struct call *call);
void on_copy_batch(const struct call *call);
void on_copy_batch_v2(const struct call *call);
void on_copy_peer(const struct call *call);
void on_copy_peer_async(const struct call *call);
void on_copy_2d(const struct call *call);
void on_copy_2d_async(const struct call *call);
void on_copy_3d(const struct call *call);
void on_copy_3d_async(const struct call *call);
void on_copy_unrecorded(const struct call *call);
void on_fill_8(const struct call *call);
void on_fill_8_async(const struct call *call);
void on_fill_16(const struct call *call);
void on_fill_16_async(const struct call *call);
void on_fill_32(const struct call *call);
void on_fill_32_async(const struct call *call);
void on_fill_2d_8(const struct call *call);
void on_fill_2d_8_async(const struct call *call);
void on_fill_2d_16(const struct call *call);
void on_fill_2d_16_async(const struct call *call);
void on_fill_2d_32(const struct call *call);
void on_fill_2d_32_async(const struct call *call);

/* graphs.c */
void on_graph_instantiate(const struct call *call);
void on_graph_update(const struct call *call);
void on_graph_node_update(const struct call *call);
void on_graph_launch(const struct call *call);
void on_graph_destroy(const struct call *call);

#endif
