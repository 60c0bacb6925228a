/* The driver's mapping of dma-bufs. */
#include <linux/kernel-services.h>
#define NVGPU_OS_LINUX_H
#define _GK20A_PLATFORM_H_
#define NVGPU_DMABUF_VIDMEM_H
#define __NVGPU_LINUX_NVGPU_MEM_H__
#include <nvgpu/gk20a.h>

struct device *dev_from_gk20a(struct gk20a *g);
struct nvgpu_sgt *nvgpu_linux_sgt_create(struct gk20a *g, struct sg_table *sgt);

#include "os/linux/vm.c"
