/* SPDX-License-Identifier: MIT */
/*
 * Classes of objects, the structs they are created with, and the memory layouts they define.
 *
 * Layouts and numbers of driver 580.142, on 64-bit little-endian Linux. Pointers are __u64, padding is named.
 */
#pragma once

#include "base.h"

#define NV01_ROOT 0
#define NV01_ROOT_CLIENT 65
#define NV01_DEVICE_0 128
#define NV20_SUBDEVICE_0 0x2080U
#define NV01_EVENT_OS_EVENT 121
#define NV01_MEMORY_SYSTEM 62
#define NV01_MEMORY_LOCAL_USER 64
#define NV01_MEMORY_SYSTEM_OS_DESCRIPTOR 113
#define NV01_MEMORY_VIRTUAL 112
#define NV50_MEMORY_VIRTUAL 0x50a0U
#define FERMI_VASPACE_A 0x90f1U
#define KEPLER_CHANNEL_GROUP_A 0xa06cU
#define FERMI_CONTEXT_SHARE_A 0x9067U
#define TURING_USERMODE_A 0xc461U
#define AMPERE_USERMODE_A 0xc561U
#define HOPPER_USERMODE_A 0xc661U
#define BLACKWELL_USERMODE_A 0xc761U
#define TURING_CHANNEL_GPFIFO_A 0xc46fU
#define AMPERE_CHANNEL_GPFIFO_A 0xc56fU
#define HOPPER_CHANNEL_GPFIFO_A 0xc86fU
#define BLACKWELL_CHANNEL_GPFIFO_A 0xc96fU
#define BLACKWELL_CHANNEL_GPFIFO_B 0xca6fU
#define TURING_COMPUTE_A 0xc5c0U
#define AMPERE_COMPUTE_A 0xc6c0U
#define AMPERE_COMPUTE_B 0xc7c0U
#define ADA_COMPUTE_A 0xc9c0U
#define HOPPER_COMPUTE_A 0xcbc0U
#define BLACKWELL_COMPUTE_A 0xcdc0U
#define BLACKWELL_COMPUTE_B 0xcec0U
#define TURING_DMA_COPY_A 0xc5b5U
#define AMPERE_DMA_COPY_A 0xc6b5U
#define AMPERE_DMA_COPY_B 0xc7b5U
#define HOPPER_DMA_COPY_A 0xc8b5U
#define BLACKWELL_DMA_COPY_A 0xc9b5U
#define BLACKWELL_DMA_COPY_B 0xcab5U
#define GT200_DEBUGGER 0x83deU

#define NV01_EVENT 5
#define NV01_EVENT_BROADCAST 0x80000000U
#define NV01_EVENT_CLIENT_RM 0x4000000U
#define NV01_EVENT_KERNEL_CALLBACK 120
#define NV01_EVENT_KERNEL_CALLBACK_EX 126
#define NV01_EVENT_NONSTALL_INTR 0x8000000U
#define NV01_EVENT_PERMIT_NON_ROOT_EVENT_KERNEL_CALLBACK_CREATION 0x40000000U
#define NV01_EVENT_SUBDEVICE_SPECIFIC 0x20000000U
#define NV01_EVENT_WIN32_EVENT 121
#define NV01_EVENT_WITHOUT_EVENT_DATA 0x10000000U
#define NV_CHANNELGPFIFO_NOTIFICATION_STATUS_IN_PROGRESS_FALSE 0
#define NV_CHANNELGPFIFO_NOTIFICATION_STATUS_IN_PROGRESS_TRUE 1
#define NV_CHANNELGPFIFO_NOTIFICATION_TYPE_ERROR 0
#define NV_CHANNELGPFIFO_NOTIFICATION_TYPE_KEY_ROTATION_STATUS 2
#define NV_CHANNELGPFIFO_NOTIFICATION_TYPE_WORK_SUBMIT_TOKEN 1
#define NV_CHANNELGPFIFO_NOTIFICATION_TYPE__SIZE_1 3
#define NV_CTXSHARE_ALLOCATION_FLAGS_SUBCONTEXT_ASYNC 1
#define NV_CTXSHARE_ALLOCATION_FLAGS_SUBCONTEXT_ASYNC_PREFER_LOWER 3
#define NV_CTXSHARE_ALLOCATION_FLAGS_SUBCONTEXT_SPECIFIED 2
#define NV_CTXSHARE_ALLOCATION_FLAGS_SUBCONTEXT_SYNC 0
#define NV_CTXSHARE_ALLOCATION_SUBCTXID_ASYNC_PREFER_LOWER_ALLOCATION_FAIL 0
#define NV_CTXSHARE_ALLOCATION_SUBCTXID_ASYNC_PREFER_LOWER_ALLOCATION_SUCCESS 1
#define NV_DEVICE_ALLOCATION_FLAGS_HOST_VGPU_DEVICE 0x2000U
#define NV_DEVICE_ALLOCATION_FLAGS_MAP_PTE 16
#define NV_DEVICE_ALLOCATION_FLAGS_MAP_PTE_GLOBALLY 1
#define NV_DEVICE_ALLOCATION_FLAGS_MINIMIZE_PTETABLE_SIZE 2
#define NV_DEVICE_ALLOCATION_FLAGS_NONE 0
#define NV_DEVICE_ALLOCATION_FLAGS_PLUGIN_CONTEXT 0x4000U
#define NV_DEVICE_ALLOCATION_FLAGS_RESTRICT_RESERVED_VALIMITS 2048
#define NV_DEVICE_ALLOCATION_FLAGS_RETRY_PTE_ALLOC_IN_SYS 4
#define NV_DEVICE_ALLOCATION_FLAGS_VASPACE_BIG_PAGE_SIZE_128k 1024
#define NV_DEVICE_ALLOCATION_FLAGS_VASPACE_BIG_PAGE_SIZE_64k 512
#define NV_DEVICE_ALLOCATION_FLAGS_VASPACE_IS_MIRRORED 64
#define NV_DEVICE_ALLOCATION_FLAGS_VASPACE_IS_TARGET 32
#define NV_DEVICE_ALLOCATION_FLAGS_VASPACE_PTABLE_PMA_MANAGED 0x1000U
#define NV_DEVICE_ALLOCATION_FLAGS_VASPACE_REQUIRE_FIXED_OFFSET 0x8000U
#define NV_DEVICE_ALLOCATION_FLAGS_VASPACE_SHARED_MANAGEMENT 256
#define NV_DEVICE_ALLOCATION_FLAGS_VASPACE_SIZE 8
#define NV_DEVICE_ALLOCATION_SZNAME_MAXLEN 128
#define NV_DEVICE_ALLOCATION_VAMODE_MULTIPLE_VASPACES 2
#define NV_DEVICE_ALLOCATION_VAMODE_OPTIONAL_MULTIPLE_VASPACES 0
#define NV_DEVICE_ALLOCATION_VAMODE_SINGLE_VASPACE 1
#define NV_MAX_DEVICES 32
#define NV_MAX_SUBDEVICES 8
#define NV_MEMORY_VIRTUAL_SYSMEM_DYNAMIC_HVASPACE 0xffffffffU
#define NV_VASPACE_ALLOCATION_FLAGS_ALLOW_ZERO_ADDRESS 256
#define NV_VASPACE_ALLOCATION_FLAGS_ENABLE_NVLINK_ATS 16
#define NV_VASPACE_ALLOCATION_FLAGS_ENABLE_NVLINK_ATS_TEST 0x4000U
#define NV_VASPACE_ALLOCATION_FLAGS_ENABLE_PAGE_FAULTING 64
#define NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED 8
#define NV_VASPACE_ALLOCATION_FLAGS_IS_FLA 512
#define NV_VASPACE_ALLOCATION_FLAGS_IS_MIRRORED 32
#define NV_VASPACE_ALLOCATION_FLAGS_MINIMIZE_PTETABLE_SIZE 1
#define NV_VASPACE_ALLOCATION_FLAGS_NONE 0
#define NV_VASPACE_ALLOCATION_FLAGS_OPTIMIZE_PTETABLE_MEMPOOL_USAGE 2048
#define NV_VASPACE_ALLOCATION_FLAGS_PTETABLE_HEAP_MANAGED 0x2000U
#define NV_VASPACE_ALLOCATION_FLAGS_REQUIRE_FIXED_OFFSET 0x1000U
#define NV_VASPACE_ALLOCATION_FLAGS_RETRY_PTE_ALLOC_IN_SYS 2
#define NV_VASPACE_ALLOCATION_FLAGS_SHARED_MANAGEMENT 4
#define NV_VASPACE_ALLOCATION_FLAGS_SKIP_SCRUB_MEMPOOL 1024
#define NV_VASPACE_ALLOCATION_FLAGS_VA_INTERNAL_LIMIT 128
#define NV_VASPACE_ALLOCATION_INDEX_GPU_DEVICE 3
#define NV_VASPACE_ALLOCATION_INDEX_GPU_FLA 4
#define NV_VASPACE_ALLOCATION_INDEX_GPU_GLOBAL 2
#define NV_VASPACE_ALLOCATION_INDEX_GPU_HOST 1
#define NV_VASPACE_ALLOCATION_INDEX_GPU_MAX 5
#define NV_VASPACE_ALLOCATION_INDEX_GPU_NEW 0

struct AmpereAControlGPFifo {
	__u32 Ignored00[16];
	__u32 Put;
	__u32 Get;
	__u32 Reference;
	__u32 PutHi;
	__u32 Ignored01[2];
	__u32 TopLevelGet;
	__u32 TopLevelGetHi;
	__u32 GetHi;
	__u32 Ignored02[7];
	__u32 Ignored03;
	__u32 Ignored04[1];
	__u32 GPGet;
	__u32 GPPut;
	__u32 Ignored05[92];
};

struct BlackwellAControlGPFifo {
	__u32 Ignored00[35];
	__u32 GPPut;
	__u32 Ignored01[92];
};

struct HopperAControlGPFifo {
	__u32 Ignored00[16];
	__u32 Put;
	__u32 Get;
	__u32 Reference;
	__u32 PutHi;
	__u32 Ignored01[2];
	__u32 TopLevelGet;
	__u32 TopLevelGetHi;
	__u32 GetHi;
	__u32 Ignored02[7];
	__u32 Ignored03;
	__u32 Ignored04[1];
	__u32 GPGet;
	__u32 GPPut;
	__u32 Ignored05[92];
};

struct NV0005_ALLOC_PARAMETERS {
	__u32 hParentClient;
	__u32 hSrcResource;
	__u32 hClass;
	__u32 notifyIndex;
	__u64 data;
};

struct NV0080_ALLOC_PARAMETERS {
	__u32 deviceId;
	__u32 hClientShare;
	__u32 hTargetClient;
	__u32 hTargetDevice;
	__u32 flags;
	__u8 _pad0[4];
	__u64 vaSpaceSize;
	__u64 vaStartInternal;
	__u64 vaLimitInternal;
	__u32 vaMode;
	__u8 _pad1[4];
};

struct NV2080_ALLOC_PARAMETERS {
	__u32 subDeviceId;
};

struct NV83DE_ALLOC_PARAMETERS {
	__u32 hDebuggerClient_Obsolete;
	__u32 hAppClient;
	__u32 hClass3dObject;
};

struct NVB0B5_ALLOCATION_PARAMETERS {
	__u32 version;
	__u32 engineType;
};

struct NV_CHANNEL_ALLOC_PARAMS {
	__u32 hObjectError;
	__u32 hObjectBuffer;
	__u64 gpFifoOffset;
	__u32 gpFifoEntries;
	__u32 flags;
	__u32 hContextShare;
	__u32 hVASpace;
	__u32 hUserdMemory[8];
	__u64 userdOffset[8];
	__u32 engineType;
	__u32 cid;
	__u32 subDeviceId;
	__u32 hObjectEccError;
	__u64 instanceMem_base;
	__u64 instanceMem_size;
	__u32 instanceMem_addressSpace;
	__u32 instanceMem_cacheAttrib;
	__u64 userdMem_base;
	__u64 userdMem_size;
	__u32 userdMem_addressSpace;
	__u32 userdMem_cacheAttrib;
	__u64 ramfcMem_base;
	__u64 ramfcMem_size;
	__u32 ramfcMem_addressSpace;
	__u32 ramfcMem_cacheAttrib;
	__u64 mthdbufMem_base;
	__u64 mthdbufMem_size;
	__u32 mthdbufMem_addressSpace;
	__u32 mthdbufMem_cacheAttrib;
	__u32 hPhysChannelGroup;
	__u32 internalFlags;
	__u64 errorNotifierMem_base;
	__u64 errorNotifierMem_size;
	__u32 errorNotifierMem_addressSpace;
	__u32 errorNotifierMem_cacheAttrib;
	__u64 eccErrorNotifierMem_base;
	__u64 eccErrorNotifierMem_size;
	__u32 eccErrorNotifierMem_addressSpace;
	__u32 eccErrorNotifierMem_cacheAttrib;
	__u32 ProcessID;
	__u32 SubProcessID;
	__u32 encryptIv[3];
	__u32 decryptIv[3];
	__u32 hmacNonce[8];
	__u32 tpcConfigID;
	__u8 _pad0[4];
};

struct NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS {
	__u32 hObjectError;
	__u32 hObjectEccError;
	__u32 hVASpace;
	__u32 engineType;
	__u8 bIsCallingContextVgpuPlugin;
	__u8 _pad0[3];
};

struct NV_CTXSHARE_ALLOCATION_PARAMETERS {
	__u32 hVASpace;
	__u32 flags;
	__u32 subctxId;
};

struct NV_GR_ALLOCATION_PARAMETERS {
	__u32 version;
	__u32 flags;
	__u32 size;
	__u32 caps;
};

struct NV_HOPPER_USERMODE_A_PARAMS {
	__u8 bBar1Mapping;
	__u8 bPriv;
};

struct NV_MEMORY_ALLOCATION_PARAMS {
	__u32 owner;
	__u32 type;
	__u32 flags;
	__u32 width;
	__u32 height;
	__u32 pitch;
	__u32 attr;
	__u32 attr2;
	__u32 format;
	__u32 comprCovg;
	__u32 zcullCovg;
	__u8 _pad0[4];
	__u64 rangeLo;
	__u64 rangeHi;
	__u64 size;
	__u64 alignment;
	__u64 offset;
	__u64 limit;
	__u64 address;
	__u32 ctagOffset;
	__u32 hVASpace;
	__u32 internalflags;
	__u32 tag;
	__u32 numaNode;
	__u8 _pad1[4];
};

struct NV_MEMORY_DESC_PARAMS {
	__u64 base;
	__u64 size;
	__u32 addressSpace;
	__u32 cacheAttrib;
};

struct NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS {
	__u64 offset;
	__u64 limit;
	__u32 hVASpace;
	__u8 _pad0[4];
};

struct NV_VASPACE_ALLOCATION_PARAMETERS {
	__u32 index;
	__u32 flags;
	__u64 vaSize;
	__u64 vaStartInternal;
	__u64 vaLimitInternal;
	__u32 bigPageSize;
	__u8 _pad0[4];
	__u64 vaBase;
	__u32 pasid;
	__u8 _pad1[4];
};

struct NvNotification {
	__u32 timeStamp_nanoseconds[2];
	__u32 info32;
	__u16 info16;
	__u16 status;
};

struct Nvc86fControl {
	__u32 Ignored00[16];
	__u32 Put;
	__u32 Get;
	__u32 Reference;
	__u32 PutHi;
	__u32 Ignored01[2];
	__u32 TopLevelGet;
	__u32 TopLevelGetHi;
	__u32 GetHi;
	__u32 Ignored02[7];
	__u32 Ignored03;
	__u32 Ignored04[1];
	__u32 GPGet;
	__u32 GPPut;
	__u32 Ignored05[92];
};
