/* The driver's address-space node. Headers of its Linux layer that concern other parts stay outside. */
#include <linux/kernel-services.h>
#define NVGPU_OS_LINUX_H
#define _GK20A_PLATFORM_H_
#define __NVGPU_IOCTL_CHANNEL_H__
#define __NVGPU_IOCTL_H__
#include <nvgpu/gk20a.h>

struct nvgpu_cdev {
	struct cdev cdev;
};
struct gk20a *nvgpu_get_gk20a_from_cdev(struct nvgpu_cdev *cdev);
struct nvgpu_channel *nvgpu_channel_get_from_file(int fd);

#include "os/linux/ioctl_as.c"
