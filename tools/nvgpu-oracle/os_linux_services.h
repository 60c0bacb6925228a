/* What the driver's Linux layer keeps of a GPU, as far as the compiled files use it. */
#ifndef ORACLE_OS_LINUX_SERVICES_H
#define ORACLE_OS_LINUX_SERVICES_H

/* The driver's own headers of this concern the whole of its Linux layer. */
#define NVGPU_OS_LINUX_H
#define _GK20A_PLATFORM_H_

#include <linux/kernel-services.h>
#include <nvgpu/gk20a.h>
#include "os/linux/sched.h"

struct nvgpu_os_linux {
	struct gk20a g;
	struct nvgpu_list_node ctrl_privs;
	struct nvgpu_mutex ctrl_privs_lock;
};

struct gk20a_platform {
	u32 ptimer_src_freq;
};

static inline struct nvgpu_os_linux *nvgpu_os_linux_from_gk20a(struct gk20a *g) { return (struct nvgpu_os_linux *)g; }
struct device *dev_from_gk20a(struct gk20a *g);
struct gk20a_platform *gk20a_get_platform(struct device *dev);

#endif
