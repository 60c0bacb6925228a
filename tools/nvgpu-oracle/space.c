/* An address space and its node: the driver's ioctl handlers, called as the kernel calls them. */
#include "oracle.h"

#include <linux/kernel-services.h>
#include <nvgpu/as.h>
#include <nvgpu/gk20a.h>
#include <nvgpu/vm.h>
#include <uapi/linux/nvgpu.h>
#include "os/linux/ioctl_as.h"
#include <stdlib.h>

const struct file_operations gk20a_as_ops;

struct space {
	struct gk20a_as_share *share;
	struct file file;
};

int space_open(struct gk20a *g, u32 big_page_size, u32 flags, u64 start, u64 end, u64 split, struct space **out)
{
	static struct space space;
	u32 core_flags = flags & NVGPU_GPU_IOCTL_ALLOC_AS_FLAGS_UNIFIED_VA ? NVGPU_AS_ALLOC_UNIFIED_VA : 0;
	int err;

	memset(&space, 0, sizeof(space));
	if (setjmp(os_bug) != 0)
		return SPACE_BUG;
	err = gk20a_as_alloc_share(g, big_page_size, core_flags, start, end, split, &space.share);
	if (err != 0)
		return -err;
	space.file.private_data = space.share;
	space.file.f_op = &gk20a_as_ops;
	*out = &space;
	return 0;
}

int space_call(struct space *space, u32 request, void *argument)
{
	if (setjmp(os_bug) != 0)
		return SPACE_BUG;
	return -(int)gk20a_as_dev_ioctl(&space->file, request, (unsigned long)(uintptr_t)argument);
}

struct vm_gk20a *space_vm(struct space *space)
{
	return space->share->vm;
}
