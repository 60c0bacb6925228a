/* SPDX-License-Identifier: MIT */
/*
 * Structs that other driver releases lay out differently.
 *
 * The suffix is the first release that has the layout (535.183.01, 550.163.01, 570.211.01, 595.45.04, 610), on 64-bit little-endian Linux. Pointers are __u64, padding is named.
 */
#pragma once

#include "base.h"

#include "controls.h"
#include "uvm.h"

struct NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS_R535 {
	__u32 gpuIds[32];
	__u32 excludedGpuIds[32];
};

struct NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_V2_PARAMS_R535 {
	__u8 driverVersionBuffer[256];
	__u8 versionBuffer[256];
	__u8 titleBuffer[256];
	__u32 changelistNumber;
	__u32 officialChangelistNumber;
};

struct NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS_R535 {
	__u32 numClasses;
	__u32 classList[160];
};

struct NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS_R550 {
	__u32 numClasses;
	__u32 classList[174];
};

struct NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS_R570 {
	__u32 numClasses;
	__u32 classList[100];
};

struct NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS_R535 {
	__u8 capsTbl[64];
	__u32 present;
};

struct NV2080_CTRL_FB_GET_INFO_V2_PARAMS_R535 {
	__u32 fbInfoListSize;
	struct NV2080_CTRL_FB_INFO fbInfoList[54];
};

struct NV2080_CTRL_FB_GET_INFO_V2_PARAMS_R550 {
	__u32 fbInfoListSize;
	struct NV2080_CTRL_FB_INFO fbInfoList[55];
};

struct NV2080_CTRL_FB_GET_INFO_V2_PARAMS_R570 {
	__u32 fbInfoListSize;
	struct NV2080_CTRL_FB_INFO fbInfoList[57];
};

struct NV2080_CTRL_GPU_GET_ENGINES_V2_PARAMS_R535 {
	__u32 engineCount;
	__u32 engineList[62];
};

struct NV2080_CTRL_GPU_GET_ENGINES_V2_PARAMS_R550 {
	__u32 engineCount;
	__u32 engineList[64];
};

struct NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS_R595 {
	__u32 gpuNameStringFlags;
	__u8 gpuNameString_ascii[64];
};

struct NV2080_CTRL_GR_GET_GLOBAL_SM_ORDER_PARAMS_R535 {
	__u16 globalSmId[512][6];
	__u16 numSm;
	__u16 numTpc;
	__u8 _pad0[4];
	__u32 grRouteInfo_flags;
	__u8 _pad1[4];
	__u64 grRouteInfo_route;
};

struct NV2080_CTRL_GR_GET_INFO_V2_PARAMS_R535 {
	__u32 grInfoListSize;
	struct NV2080_CTRL_GR_INFO grInfoList[53];
	__u8 _pad0[4];
	__u32 grRouteInfo_flags;
	__u8 _pad1[4];
	__u64 grRouteInfo_route;
};

struct NV2080_CTRL_GR_GET_INFO_V2_PARAMS_R550 {
	__u32 grInfoListSize;
	struct NV2080_CTRL_GR_INFO grInfoList[56];
	__u8 _pad0[4];
	__u32 grRouteInfo_flags;
	__u8 _pad1[4];
	__u64 grRouteInfo_route;
};

struct NV2080_CTRL_GR_GET_INFO_V2_PARAMS_R595 {
	__u32 grInfoListSize;
	struct NV2080_CTRL_GR_INFO grInfoList[59];
	__u8 _pad0[4];
	__u32 grRouteInfo_flags;
	__u8 _pad1[4];
	__u64 grRouteInfo_route;
};

struct NV2080_CTRL_GR_GET_INFO_V2_PARAMS_R610 {
	__u32 grInfoListSize;
	struct NV2080_CTRL_GR_INFO grInfoList[63];
	__u8 _pad0[4];
	__u32 grRouteInfo_flags;
	__u8 _pad1[4];
	__u64 grRouteInfo_route;
};

struct NV906F_CTRL_CMD_RESET_CHANNEL_PARAMS_R535 {
	__u32 engineID;
	__u32 subdeviceInstance;
	__u32 resetReason;
};

struct NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS_R535 {
	__u8 bEnable;
	__u8 bSkipSubmit;
};

struct NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS_R535 {
	__u8 bEnable;
	__u8 bSkipSubmit;
};

struct NVOS46_PARAMETERS_R535 {
	__u32 hClient;
	__u32 hDevice;
	__u32 hDma;
	__u32 hMemory;
	__u64 offset;
	__u64 length;
	__u32 flags;
	__u8 _pad0[4];
	__u64 dmaOffset;
	__u32 status;
	__u8 _pad1[4];
};

struct NVOS47_PARAMETERS_R535 {
	__u32 hClient;
	__u32 hDevice;
	__u32 hDma;
	__u32 hMemory;
	__u32 flags;
	__u8 _pad0[4];
	__u64 dmaOffset;
	__u32 status;
	__u8 _pad1[4];
};

struct NV_CHANNEL_ALLOC_PARAMS_R535 {
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
};

struct NV_CHANNEL_ALLOC_PARAMS_R610 {
	__u32 hObjectError;
	__u32 hObjectBuffer;
	__u64 gpFifoOffset;
	__u32 gpFifoEntries;
	__u32 flags;
	__u32 hContextShare;
	__u32 hVASpace;
	__u32 hHandleVASpace;
	__u32 hUserdMemory[8];
	__u8 _pad0[4];
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
	__u8 _pad1[4];
};

struct NV_MEMORY_ALLOCATION_PARAMS_R535 {
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
};

struct NV_VASPACE_ALLOCATION_PARAMETERS_R535 {
	__u32 index;
	__u32 flags;
	__u64 vaSize;
	__u64 vaStartInternal;
	__u64 vaLimitInternal;
	__u32 bigPageSize;
	__u8 _pad0[4];
	__u64 vaBase;
};

struct UVM_FREE_PARAMS_R595 {
	__u64 base;
	__u32 rmStatus;
	__u8 _pad0[4];
};

struct UVM_MAP_EXTERNAL_ALLOCATION_PARAMS_R535 {
	__u64 base;
	__u64 length;
	__u64 offset;
	struct UvmGpuMappingAttributes perGpuAttributes[32];
	__u64 gpuAttributesCount;
	__s32 rmCtrlFd;
	__u32 hClient;
	__u32 hMemory;
	__u32 rmStatus;
};

struct UVM_UNREGISTER_CHANNEL_PARAMS_R595 {
	__u32 hClient;
	__u32 hChannel;
	__u32 rmStatus;
};
