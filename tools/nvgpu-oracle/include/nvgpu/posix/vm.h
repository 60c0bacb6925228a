/* Buffers are dma-bufs, as in the driver's Linux build. */
#include <nvgpu/types.h>
struct vm_gk20a_mapping_batch;
#include <nvgpu/linux/vm.h>
