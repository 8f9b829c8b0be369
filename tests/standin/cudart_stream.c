/* Stand-in runtime: streams, events and graphs, one driver call each. */
#include "cudart_internal.h"

DEFINE(cudaStreamCreate, (cudaStream_t * stream), driver.stream_create(stream, 0))
DEFINE(cudaStreamDestroy, (cudaStream_t stream), driver.stream_destroy(stream))
DEFINE_TWINS(cudaStreamSynchronize, _ptsz, (cudaStream_t stream),
             streams->stream_synchronize(stream))
DEFINE_TWINS(cudaStreamWaitEvent, _ptsz,
             (cudaStream_t stream, cudaEvent_t event, unsigned int flags),
             streams->stream_wait(stream, event, flags))
DEFINE_TWINS(cudaStreamBeginCapture, _ptsz, (cudaStream_t stream, cudaStreamCaptureMode mode),
             streams->begin_capture(stream, mode))
DEFINE_TWINS(cudaStreamEndCapture, _ptsz, (cudaStream_t stream, cudaGraph_t *graph),
             streams->end_capture(stream, graph))

DEFINE(cudaEventCreate, (cudaEvent_t * event), driver.event_create(event, 0))
DEFINE(cudaEventDestroy, (cudaEvent_t event), driver.event_destroy(event))
DEFINE_TWINS(cudaEventRecord, _ptsz, (cudaEvent_t event, cudaStream_t stream),
             streams->event_record(event, stream))

DEFINE(cudaGraphGetNodes, (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count),
       driver.graph_nodes(graph, nodes, count))
DEFINE(cudaGraphInstantiate, (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
       driver.graph_instantiate(exec, graph, flags))
DEFINE_TWINS(cudaGraphLaunch, _ptsz, (cudaGraphExec_t exec, cudaStream_t stream),
             streams->graph_launch(exec, stream))
DEFINE(cudaGraphExecDestroy, (cudaGraphExec_t exec), driver.exec_destroy(exec))
DEFINE(cudaGraphDestroy, (cudaGraph_t graph), driver.graph_destroy(graph))
