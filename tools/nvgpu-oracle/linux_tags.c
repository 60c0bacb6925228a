/* The driver's compression tags of dma-bufs. */
#include <linux/kernel-services.h>
#define NVGPU_OS_LINUX_H
#include <nvgpu/gk20a.h>
#define DIV_ROUND_UP_ULL(n, d) (((n) + (d) - 1) / (d))

#include "os/linux/comptags.c"
