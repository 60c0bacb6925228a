/* SPDX-License-Identifier: MIT */
/*
 * Requests of /dev/nvidia-uvm: bare numbers, without size or direction.
 *
 * Layouts and numbers of driver 580.142, on 64-bit little-endian Linux. Pointers are __u64, padding is named.
 */
#pragma once

#include "base.h"

#define UVM_INITIALIZE 0x30000001U
#define UVM_DEINITIALIZE 0x30000002U
#define UVM_MM_INITIALIZE 75
#define UVM_REGISTER_GPU 37
#define UVM_UNREGISTER_GPU 38
#define UVM_REGISTER_GPU_VASPACE 25
#define UVM_UNREGISTER_GPU_VASPACE 26
#define UVM_REGISTER_CHANNEL 27
#define UVM_UNREGISTER_CHANNEL 28
#define UVM_CREATE_EXTERNAL_RANGE 73
#define UVM_MAP_EXTERNAL_ALLOCATION 33
#define UVM_UNMAP_EXTERNAL 66
#define UVM_FREE 34
#define UVM_PAGEABLE_MEM_ACCESS 39
#define UVM_ENABLE_PEER_ACCESS 29

#define UVM_MAX_COUNTERS_PER_IOCTL_CALL 32
#define UVM_MAX_GPUS 256
#define UVM_MAX_GPUS_V1 32
#define UVM_MAX_PROCESSORS 257
#define UVM_MAX_PROCESSORS_V1 33
#define UVM_MAX_RANGE_GROUPS_PER_IOCTL_CALL 32
#define UVM_MAX_STREAMS_PER_IOCTL_CALL 32

struct UvmGpuMappingAttributes {
	__u8 gpuUuid_uuid[16];
	__u32 gpuMappingType;
	__u32 gpuCachingType;
	__u32 gpuFormatType;
	__u32 gpuElementBits;
	__u32 gpuCompressionType;
};

struct UVM_CREATE_EXTERNAL_RANGE_PARAMS {
	__u64 base;
	__u64 length;
	__u32 rmStatus;
	__u8 _pad0[4];
};

struct UVM_ENABLE_PEER_ACCESS_PARAMS {
	__u8 gpuUuidA_uuid[16];
	__u8 gpuUuidB_uuid[16];
	__u32 rmStatus;
};

struct UVM_FREE_PARAMS {
	__u64 base;
	__u64 length;
	__u32 rmStatus;
	__u8 _pad0[4];
};

struct UVM_INITIALIZE_PARAMS {
	__u64 flags;
	__u32 rmStatus;
	__u8 _pad0[4];
};

struct UVM_MAP_EXTERNAL_ALLOCATION_PARAMS {
	__u64 base;
	__u64 length;
	__u64 offset;
	struct UvmGpuMappingAttributes perGpuAttributes[256];
	__u64 gpuAttributesCount;
	__s32 rmCtrlFd;
	__u32 hClient;
	__u32 hMemory;
	__u32 rmStatus;
};

struct UVM_MM_INITIALIZE_PARAMS {
	__s32 uvmFd;
	__u32 rmStatus;
};

struct UVM_PAGEABLE_MEM_ACCESS_PARAMS {
	__u8 pageableMemAccess;
	__u8 _pad0[3];
	__u32 rmStatus;
};

struct UVM_REGISTER_CHANNEL_PARAMS {
	__u8 gpuUuid_uuid[16];
	__s32 rmCtrlFd;
	__u32 hClient;
	__u32 hChannel;
	__u8 _pad0[4];
	__u64 base;
	__u64 length;
	__u32 rmStatus;
	__u8 _pad1[4];
};

struct UVM_REGISTER_GPU_PARAMS {
	__u8 gpu_uuid_uuid[16];
	__u8 numaEnabled;
	__u8 _pad0[3];
	__u32 numaNodeId;
	__s32 rmCtrlFd;
	__u32 hClient;
	__u32 hSmcPartRef;
	__u32 rmStatus;
};

struct UVM_REGISTER_GPU_VASPACE_PARAMS {
	__u8 gpuUuid_uuid[16];
	__s32 rmCtrlFd;
	__u32 hClient;
	__u32 hVaSpace;
	__u32 rmStatus;
};

struct UVM_UNMAP_EXTERNAL_PARAMS {
	__u64 base;
	__u64 length;
	__u8 gpuUuid_uuid[16];
	__u32 rmStatus;
	__u8 _pad0[4];
};

struct UVM_UNREGISTER_CHANNEL_PARAMS {
	__u8 gpuUuid_uuid[16];
	__u32 hClient;
	__u32 hChannel;
	__u32 rmStatus;
};

struct UVM_UNREGISTER_GPU_PARAMS {
	__u8 gpu_uuid_uuid[16];
	__u32 rmStatus;
};

struct UVM_UNREGISTER_GPU_VASPACE_PARAMS {
	__u8 gpuUuid_uuid[16];
	__u32 rmStatus;
};
