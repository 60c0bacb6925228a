/* The driver's error notifiers: the part of its Linux channel code that the Makefile takes out as notifier.inc. */
#include <linux/kernel-services.h>
#include <nvgpu/barrier.h>
#include <nvgpu/channel.h>
#include <nvgpu/error_notifier.h>
#include <nvgpu/gk20a.h>
#include <nvgpu/log.h>
#include <stdio.h>
#include <time.h>
#include <uapi/linux/nvgpu.h>

#include "os/linux/channel.h"

#include "notifier.inc"

/* A channel whose client asked for a notifier. */
void notifier_attach(struct nvgpu_channel *ch)
{
	static struct nvgpu_notification notification;
	static struct nvgpu_channel_linux priv;
	static struct dma_buf buffer;

	memset(&priv, 0, sizeof(priv));
	memset(&notification, 0, sizeof(notification));
	priv.ch = ch;
	priv.error_notifier.dmabuf = &buffer;
	priv.error_notifier.notification = &notification;
	nvgpu_mutex_init(&priv.error_notifier.mutex);
	ch->os_priv = &priv;
}
