/* The driver's remapping of sparse areas. */
#include <linux/kernel-services.h>
#define NVGPU_OS_LINUX_H
#define _GK20A_PLATFORM_H_
#include <nvgpu/gk20a.h>
#include <uapi/linux/nvgpu.h>

struct device *dev_from_gk20a(struct gk20a *g);
struct nvgpu_sgt *nvgpu_linux_sgt_create(struct gk20a *g, struct sg_table *sgt);

#include "os/linux/vm_remap.c"
