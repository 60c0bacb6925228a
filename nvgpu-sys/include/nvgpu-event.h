/* SPDX-License-Identifier: MIT */
/*
 * Event records read from event descriptors.
 *
 * Numbers and layouts of L4T r36.4.3, uapi linux/nvgpu-event.h, on 64-bit Linux.
 * Pointers are __u64, padding is named, a union is stored as its first member that fills it.
 */
#pragma once

#include "base.h"

#define NVGPU_EVENT_IOCTL_MAGIC 69 /* 'E' */

#define NVGPU_GPU_EVENT_VF_UPDATE 0
#define NVGPU_GPU_EVENT_ALARM_TARGET_VF_NOT_POSSIBLE 1
#define NVGPU_GPU_EVENT_ALARM_LOCAL_TARGET_VF_NOT_POSSIBLE 2
#define NVGPU_GPU_EVENT_ALARM_CLOCK_ARBITER_FAILED 3
#define NVGPU_GPU_EVENT_ALARM_VF_TABLE_UPDATE_FAILED 4
#define NVGPU_GPU_EVENT_ALARM_THERMAL_ABOVE_THRESHOLD 5
#define NVGPU_GPU_EVENT_ALARM_POWER_ABOVE_THRESHOLD 6
#define NVGPU_GPU_EVENT_ALARM_GPU_LOST 7
#define NVGPU_GPU_EVENT_LAST 7

#define NVGPU_EVENT_IOCTL_LAST 1
#define NVGPU_EVENT_IOCTL_MAX_ARG_SIZE 16

struct nvgpu_gpu_event_info {
	__u32 event_id;
	__u32 reserved;
	__u64 timestamp;
};

struct nvgpu_gpu_set_event_filter_args {
	__u32 flags;
	__u32 size;
	__u64 buffer;
};

#define NVGPU_EVENT_IOCTL_SET_FILTER \
	_IOW(NVGPU_EVENT_IOCTL_MAGIC, 1, struct nvgpu_gpu_set_event_filter_args)
