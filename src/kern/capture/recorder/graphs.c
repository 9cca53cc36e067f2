/* Executable graphs: their nodes when they are made or changed, and their launches. */
#include <pthread.h>
#include <stdlib.h>

#include "arguments.h"
#include "handlers.h"
#include "output.h"
#include "streams.h"

enum { MOST_NODES = 1 << 18, DEPTH = 8 };

struct graph {
    CUgraphExec handle;
    uint64_t number;
    bool node_updated; /* and said so */
    struct graph *next;
};

struct listing {
    struct text *line;
    struct call call; /* as kernels are reported from */
    size_t count;
    bool truncated;
};

static struct {
    pthread_mutex_t lock;
    struct graph *graphs;
    uint64_t count;
} graphs = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *const TYPES[] = {
    "kernel",      "memcpy",  "memset",   "host",         "child",       "empty",       "wait_event", "event_record",
    "semaphore_signal", "semaphore_wait", "alloc", "free", "batch_memory", "conditional", "memcpy_batch"};

/* The number of an executable graph, given if it is new. `fresh`: the handle is that of a graph just made. */
static uint64_t number_of(CUgraphExec handle, bool fresh, bool *known) {
    pthread_mutex_lock(&graphs.lock);
    struct graph *graph = graphs.graphs;
    while (graph && graph->handle != handle)
        graph = graph->next;
    *known = graph != NULL;
    if (!graph && (graph = calloc(1, sizeof *graph))) {
        graph->handle = handle;
        graph->next = graphs.graphs;
        graphs.graphs = graph;
        fresh = true;
    }
    if (graph && fresh) {
        graph->number = graphs.count++;
        graph->node_updated = false;
    }
    uint64_t number = graph ? graph->number : graphs.count++;
    pthread_mutex_unlock(&graphs.lock);
    return number;
}

static CUgraphNode *nodes_of(CUgraph graph, size_t *count) {
    *count = 0;
    if (driver.GraphGetNodes(graph, NULL, count) != CUDA_SUCCESS || *count > MOST_NODES)
        return NULL;
    CUgraphNode *nodes = calloc(*count + 1, sizeof *nodes);
    if (nodes && *count && driver.GraphGetNodes(graph, nodes, count) != CUDA_SUCCESS) {
        free(nodes);
        return NULL;
    }
    return nodes;
}

static void put_node_attributes(struct text *line, CUgraphNode node) {
    CUlaunchAttributeValue cluster = {0}, cooperative = {0};
    bool has_cluster = driver.GraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &cluster) ==
                           CUDA_SUCCESS &&
                       cluster.clusterDim.x;
    bool has_cooperative =
        driver.GraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &cooperative) == CUDA_SUCCESS &&
        cooperative.cooperative;
    if (!has_cluster && !has_cooperative)
        return;
    text_put(line, ",\"attributes\":{");
    if (has_cluster)
        text_format(line, "\"cluster\":[%u,%u,%u]%s", cluster.clusterDim.x, cluster.clusterDim.y, cluster.clusterDim.z,
                    has_cooperative ? "," : "");
    if (has_cooperative)
        text_put(line, "\"cooperative\":1");
    text_put(line, "}");
}

static void put_kernel_node(struct listing *listing, CUgraphNode node) {
    CUDA_KERNEL_NODE_PARAMS params = {0};
    struct text *line = listing->line;
    const struct kernel *kernel = NULL;
    listing->call.mark = modules_mark(); /* what was loaded before, for another node too, says nothing of this one */
    if (driver.GraphKernelNodeGetParams(node, &params) == CUDA_SUCCESS)
        kernel = kernel_of(params.func ? params.func : (CUfunction)params.kern, &listing->call);
    if (!kernel) {
        text_put(line, "{\"type\":\"kernel\"}");
        output_lost("the kernel of a graph's node", "the driver does not tell it");
        return;
    }
    text_format(line, "{\"kernel\":%llu", (unsigned long long)kernel->number);
    text_dim3(line, "grid", params.gridDimX, params.gridDimY, params.gridDimZ);
    text_dim3(line, "block", params.blockDimX, params.blockDimY, params.blockDimZ);
    text_format(line, ",\"shared\":%u", params.sharedMemBytes);
    put_node_attributes(line, node);
    put_arguments(line, kernel, params.kernelParams, params.extra);
    text_put(line, "}");
}

static void put_nodes(struct listing *listing, CUgraph graph, int depth);

static void put_node(struct listing *listing, CUgraphNode node, int depth) {
    CUgraphNodeType type;
    CUgraph child;
    bool known = driver.GraphNodeGetType(node, &type) == CUDA_SUCCESS;
    if (known && type == CU_GRAPH_NODE_TYPE_GRAPH && depth < DEPTH &&
        driver.GraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS) {
        put_nodes(listing, child, depth + 1);
        return;
    }
    if (listing->count++)
        text_put(listing->line, ",");
    if (known && type == CU_GRAPH_NODE_TYPE_KERNEL)
        put_kernel_node(listing, node);
    else if (known && (size_t)type < sizeof TYPES / sizeof *TYPES)
        text_format(listing->line, "{\"type\":\"%s\"}", TYPES[type]);
    else
        text_put(listing->line, "{\"type\":\"other\"}");
}

static void put_nodes(struct listing *listing, CUgraph graph, int depth) {
    size_t count;
    CUgraphNode *nodes = nodes_of(graph, &count);
    listing->truncated |= nodes == NULL;
    for (size_t i = 0; nodes && i < count; i++)
        put_node(listing, nodes[i], depth);
    free(nodes);
}

static void record_graph(const struct call *call, CUgraphExec handle, CUgraph graph, bool fresh) {
    bool known;
    struct text line = {0};
    struct listing listing = {&line, *call, 0, false};
    listing.call.symbol = NULL;
    text_format(&line, "{\"record\":\"graph\",\"t\":%llu,\"graph\":%llu,\"nodes\":[", (unsigned long long)call->now,
                (unsigned long long)number_of(handle, fresh, &known));
    put_nodes(&listing, graph, 0);
    text_put(&line, listing.truncated ? "],\"truncated\":true}" : "]}");
    output_line(&line);
}

/* Each way to instantiate has the address of the new handle and the graph as its first arguments. */
void on_graph_instantiate(const struct call *call) {
    const cuGraphInstantiateWithFlags_params *p = call->params;
    record_graph(call, *p->phGraphExec, p->hGraph, true);
}

void on_graph_update(const struct call *call) {
    const cuGraphExecUpdate_v2_params *p = call->params;
    record_graph(call, p->hGraphExec, p->hGraph, false);
}

/* A node of an executable graph is named by its twin in the graph it was made from; once for each graph. */
void on_graph_node_update(const struct call *call) {
    CUgraphExec handle = *(const CUgraphExec *)call->params;
    bool said = false;
    pthread_mutex_lock(&graphs.lock);
    for (struct graph *graph = graphs.graphs; graph; graph = graph->next)
        if (graph->handle == handle) {
            said = graph->node_updated;
            graph->node_updated = true;
        }
    pthread_mutex_unlock(&graphs.lock);
    if (!said)
        output_lost("changes of single nodes of an executable graph", "they are not recorded");
}

void on_graph_launch(const struct call *call) {
    const cuGraphLaunch_params *p = call->params;
    bool known;
    uint64_t number = number_of(p->hGraph, false, &known);
    if (!known)
        output_lost("the nodes of a graph", "it was made by a call that is not recorded");
    struct text line = {0};
    text_format(&line, "{\"record\":\"graph_launch\",\"t\":%llu", (unsigned long long)call->now);
    put_stream(&line, call, p->hStream);
    text_format(&line, ",\"graph\":%llu", (unsigned long long)number);
    put_capturing(&line, call, p->hStream);
    text_put(&line, "}");
    output_line(&line);
}

void on_graph_destroy(const struct call *call) {
    CUgraphExec handle = *(const CUgraphExec *)call->params;
    pthread_mutex_lock(&graphs.lock);
    for (struct graph **at = &graphs.graphs; *at; at = &(*at)->next)
        if ((*at)->handle == handle) {
            struct graph *gone = *at;
            *at = gone->next;
            free(gone);
            break;
        }
    pthread_mutex_unlock(&graphs.lock);
}
