/* Remapped buffers are dma-bufs, as in the driver's Linux build. */
#include <nvgpu/linux/vm_remap.h>
