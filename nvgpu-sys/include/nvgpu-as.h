/* SPDX-License-Identifier: MIT */
/*
 * /dev/nvgpu/igpu0/as and the descriptors ALLOC_AS returns: one GPU address space.
 *
 * Numbers and layouts of L4T r36.4.3, uapi linux/nvgpu-as.h, on 64-bit Linux.
 * Pointers are __u64, padding is named, a union is stored as its first member that fills it.
 */
#pragma once

#include "base.h"

#define NVGPU_AS_IOCTL_MAGIC 65 /* 'A' */

#define NVGPU_AS_ALLOC_SPACE_FLAGS_FIXED_OFFSET 1
#define NVGPU_AS_ALLOC_SPACE_FLAGS_SPARSE 2
#define NVGPU_AS_MAP_BUFFER_FLAGS_FIXED_OFFSET 1
#define NVGPU_AS_MAP_BUFFER_FLAGS_CACHEABLE 4
#define NVGPU_AS_MAP_BUFFER_FLAGS_UNMAPPED_PTE 32
#define NVGPU_AS_MAP_BUFFER_FLAGS_MAPPABLE_COMPBITS 64
#define NVGPU_AS_MAP_BUFFER_FLAGS_L3_ALLOC 128
#define NVGPU_AS_MAP_BUFFER_FLAGS_SYSTEM_COHERENT 512
#define NVGPU_AS_MAP_BUFFER_FLAGS_TEGRA_RAW 0x1000U
#define NVGPU_AS_MAP_BUFFER_FLAGS_ACCESS_BITMASK_OFFSET 10
#define NVGPU_AS_MAP_BUFFER_FLAGS_ACCESS_BITMASK_SIZE 2
#define NVGPU_AS_MAP_BUFFER_ACCESS_DEFAULT 0
#define NVGPU_AS_MAP_BUFFER_ACCESS_READ_ONLY 1
#define NVGPU_AS_MAP_BUFFER_ACCESS_READ_WRITE 2

#define NV_KIND_INVALID (-1)

#define NVGPU_AS_GET_BUFFER_COMPBITS_INFO_FLAGS_HAS_COMPBITS 1
#define NVGPU_AS_GET_BUFFER_COMPBITS_INFO_FLAGS_MAPPABLE 2
#define NVGPU_AS_GET_BUFFER_COMPBITS_INFO_FLAGS_DISCONTIG_IOVA 4
#define NVGPU_AS_MAP_BUFFER_COMPBITS_FLAGS_FIXED_OFFSET 1
#define NVGPU_AS_REMAP_OP_FLAGS_CACHEABLE 4
#define NVGPU_AS_REMAP_OP_FLAGS_ACCESS_NO_WRITE 1024
#define NVGPU_AS_REMAP_OP_FLAGS_PAGESIZE_4K 0x8000U
#define NVGPU_AS_REMAP_OP_FLAGS_PAGESIZE_64K 0x10000U
#define NVGPU_AS_REMAP_OP_FLAGS_PAGESIZE_128K 0x20000U
#define NVGPU_AS_IOCTL_LAST 14
#define NVGPU_AS_IOCTL_MAX_ARG_SIZE 40

struct nvgpu32_as_alloc_space_args {
	__u32 pages;
	__u32 page_size;
	__u32 flags;
	__u8 _pad0[4];
	__u64 o_a;
};

struct nvgpu_as_alloc_space_args {
	__u64 pages;
	__u32 page_size;
	__u32 flags;
	__u64 o_a;
	__u32 padding[2];
};

struct nvgpu_as_free_space_args {
	__u64 offset;
	__u64 pages;
	__u32 page_size;
	__u32 padding[3];
};

struct nvgpu_as_bind_channel_args {
	__u32 channel_fd;
};

struct nvgpu_as_map_buffer_ex_args {
	__u32 flags;
	__s16 compr_kind;
	__s16 incompr_kind;
	__u32 dmabuf_fd;
	__u32 page_size;
	__u64 buffer_offset;
	__u64 mapping_size;
	__u64 offset;
};

struct nvgpu_as_get_buffer_compbits_info_args {
	__u64 mapping_gva;
	__u64 compbits_win_size;
	__u32 compbits_win_ctagline;
	__u32 mapping_ctagline;
	__u32 flags;
	__u32 reserved1;
};

struct nvgpu_as_map_buffer_compbits_args {
	__u64 mapping_gva;
	__u64 compbits_win_gva;
	__u64 mapping_iova;
	__u64 mapping_iova_buf_size;
	__u32 flags;
	__u32 reserved1;
};

struct nvgpu_as_unmap_buffer_args {
	__u64 offset;
};

struct nvgpu_as_va_region {
	__u64 offset;
	__u32 page_size;
	__u32 reserved;
	__u64 pages;
};

struct nvgpu_as_get_va_regions_args {
	__u64 buf_addr;
	__u32 buf_size;
	__u32 reserved;
};

struct nvgpu_as_map_buffer_batch_args {
	__u64 unmaps;
	__u64 maps;
	__u32 num_unmaps;
	__u32 num_maps;
	__u64 reserved;
};

struct nvgpu_as_get_sync_ro_map_args {
	__u64 base_gpuva;
	__u32 sync_size;
	__u32 num_syncpoints;
};

struct nvgpu_as_mapping_modify_args {
	__s16 compr_kind;
	__s16 incompr_kind;
	__u8 _pad0[4];
	__u64 buffer_offset;
	__u64 buffer_size;
	__u64 map_address;
};

struct nvgpu_as_remap_op {
	__u32 flags;
	__s16 compr_kind;
	__s16 incompr_kind;
	__u32 mem_handle;
	__s32 reserved;
	__u64 mem_offset_in_pages;
	__u64 virt_offset_in_pages;
	__u64 num_pages;
};

struct nvgpu_as_remap_args {
	__u64 ops;
	__u32 num_ops;
	__u8 _pad0[4];
};

#define NVGPU_AS_IOCTL_BIND_CHANNEL \
	_IOWR(NVGPU_AS_IOCTL_MAGIC, 1, struct nvgpu_as_bind_channel_args)
#define NVGPU32_AS_IOCTL_ALLOC_SPACE \
	_IOWR(NVGPU_AS_IOCTL_MAGIC, 2, struct nvgpu32_as_alloc_space_args)
#define NVGPU_AS_IOCTL_FREE_SPACE \
	_IOWR(NVGPU_AS_IOCTL_MAGIC, 3, struct nvgpu_as_free_space_args)
#define NVGPU_AS_IOCTL_UNMAP_BUFFER \
	_IOWR(NVGPU_AS_IOCTL_MAGIC, 5, struct nvgpu_as_unmap_buffer_args)
#define NVGPU_AS_IOCTL_ALLOC_SPACE \
	_IOWR(NVGPU_AS_IOCTL_MAGIC, 6, struct nvgpu_as_alloc_space_args)
#define NVGPU_AS_IOCTL_MAP_BUFFER_EX \
	_IOWR(NVGPU_AS_IOCTL_MAGIC, 7, struct nvgpu_as_map_buffer_ex_args)
#define NVGPU_AS_IOCTL_GET_VA_REGIONS \
	_IOWR(NVGPU_AS_IOCTL_MAGIC, 8, struct nvgpu_as_get_va_regions_args)
#define NVGPU_AS_IOCTL_GET_BUFFER_COMPBITS_INFO \
	_IOWR(NVGPU_AS_IOCTL_MAGIC, 9, struct nvgpu_as_get_buffer_compbits_info_args)
#define NVGPU_AS_IOCTL_MAP_BUFFER_COMPBITS \
	_IOWR(NVGPU_AS_IOCTL_MAGIC, 10, struct nvgpu_as_map_buffer_compbits_args)
#define NVGPU_AS_IOCTL_MAP_BUFFER_BATCH \
	_IOWR(NVGPU_AS_IOCTL_MAGIC, 11, struct nvgpu_as_map_buffer_batch_args)
#define NVGPU_AS_IOCTL_GET_SYNC_RO_MAP \
	_IOR(NVGPU_AS_IOCTL_MAGIC, 12, struct nvgpu_as_get_sync_ro_map_args)
#define NVGPU_AS_IOCTL_MAPPING_MODIFY \
	_IOWR(NVGPU_AS_IOCTL_MAGIC, 13, struct nvgpu_as_mapping_modify_args)
#define NVGPU_AS_IOCTL_REMAP \
	_IOWR(NVGPU_AS_IOCTL_MAGIC, 14, struct nvgpu_as_remap_args)
