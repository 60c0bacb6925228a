/* SPDX-License-Identifier: MIT */
/*
 * /dev/nvmap: the memory buffers a GPU address space maps.
 *
 * Numbers and layouts of L4T r36.4.3, uapi linux/nvmap.h, on 64-bit Linux.
 * Pointers are __u64, padding is named, a union is stored as its first member that fills it.
 */
#pragma once

#include "base.h"

#define NVMAP_IOC_MAGIC 78 /* 'N' */

#define NVMAP_ELEM_SIZE_U64 0x80000000U

#define NVMAP_IOC_MAXNR 107

#define NVMAP_HANDLE_PARAM_SIZE 1
#define NVMAP_HANDLE_PARAM_ALIGNMENT 2
#define NVMAP_HANDLE_PARAM_BASE 3
#define NVMAP_HANDLE_PARAM_HEAP 4
#define NVMAP_HANDLE_PARAM_KIND 5
#define NVMAP_HANDLE_PARAM_COMPR 6
#define NVMAP_CACHE_OP_WB 0
#define NVMAP_CACHE_OP_INV 1
#define NVMAP_CACHE_OP_WB_INV 2
#define NVMAP_PAGES_UNRESERVE 0
#define NVMAP_PAGES_RESERVE 1
#define NVMAP_INSERT_PAGES_ON_UNRESERVE 2
#define NVMAP_PAGES_PROT_AND_CLEAN 3

struct nvmap_create_handle {
	__u32 size;
	__u32 handle;
} __attribute__((aligned(8)));

struct nvmap_create_handle_from_va {
	__u64 va;
	__u32 size;
	__u32 flags;
	__u64 size64;
};

struct nvmap_gup_test {
	__u64 va;
	__u32 handle;
	__u32 result;
};

struct nvmap_alloc_handle {
	__u32 handle;
	__u32 heap_mask;
	__u32 flags;
	__u32 align;
	__s32 numa_nid;
};

struct nvmap_alloc_ivm_handle {
	__u32 handle;
	__u32 heap_mask;
	__u32 flags;
	__u32 align;
	__u32 peer;
};

struct nvmap_rw_handle {
	__u64 addr;
	__u32 handle;
	__u8 _pad0[4];
	__u64 offset;
	__u64 elem_size;
	__u64 hmem_stride;
	__u64 user_stride;
	__u64 count;
};

struct nvmap_handle_param {
	__u32 handle;
	__u32 param;
	__u64 result;
};

struct nvmap_cache_op {
	__u64 addr;
	__u32 handle;
	__u32 len;
	__s32 op;
	__u8 _pad0[4];
};

struct nvmap_cache_op_64 {
	__u64 addr;
	__u32 handle;
	__u8 _pad0[4];
	__u64 len;
	__s32 op;
	__u8 _pad1[4];
};

struct nvmap_cache_op_list {
	__u64 handles;
	__u64 offsets;
	__u64 sizes;
	__u32 nr;
	__s32 op;
};

struct nvmap_debugfs_handles_header {
	__u8 version;
};

struct nvmap_debugfs_handles_entry {
	__u64 base;
	__u64 size;
	__u32 flags;
	__u32 share_count;
	__u64 mapped_size;
};

struct nvmap_set_tag_label {
	__u32 tag;
	__u32 len;
	__u64 addr;
};

struct nvmap_available_heaps {
	__u64 heaps;
};

struct nvmap_heap_size {
	__u32 heap;
	__u8 _pad0[4];
	__u64 size;
};

struct nvmap_sciipc_map {
	__u64 auth_token;
	__u32 flags;
	__u8 _pad0[4];
	__u64 sci_ipc_id;
	__u32 handle;
	__u8 _pad1[4];
};

struct nvmap_handle_parameters {
	__u8 contig;
	__u8 _pad0[3];
	__u32 import_id;
	__u32 handle;
	__u32 heap_number;
	__u32 access_flags;
	__u8 _pad1[4];
	__u64 heap;
	__u64 align;
	__u64 coherency;
	__u64 size;
	__u64 offset;
	__u64 serial_id;
};

struct nvmap_query_heap_params {
	__u32 heap_mask;
	__u32 flags;
	__u8 contig;
	__u8 _pad0[7];
	__u64 total;
	__u64 free;
	__u64 largest_free_block;
	__u32 granule_size;
	__u8 _pad1[4];
};

struct nvmap_duplicate_handle {
	__u32 handle;
	__u32 access_flags;
	__u32 dup_handle;
};

struct nvmap_fd_for_range_from_list {
	__u64 handles;
	__u32 num_handles;
	__u8 _pad0[4];
	__u64 offset;
	__u64 size;
	__s32 fd;
	__u8 _pad1[4];
};

#define NVMAP_IOC_CREATE \
	_IOWR(NVMAP_IOC_MAGIC, 0, struct nvmap_create_handle)
#define NVMAP_IOC_CREATE_64 \
	_IOWR(NVMAP_IOC_MAGIC, 1, struct nvmap_create_handle)
#define NVMAP_IOC_FROM_ID \
	_IOWR(NVMAP_IOC_MAGIC, 2, struct nvmap_create_handle)
#define NVMAP_IOC_ALLOC \
	_IOW(NVMAP_IOC_MAGIC, 3, struct nvmap_alloc_handle)
#define NVMAP_IOC_FREE \
	_IO(NVMAP_IOC_MAGIC, 4)
#define NVMAP_IOC_WRITE \
	_IOW(NVMAP_IOC_MAGIC, 6, struct nvmap_rw_handle)
#define NVMAP_IOC_READ \
	_IOW(NVMAP_IOC_MAGIC, 7, struct nvmap_rw_handle)
#define NVMAP_IOC_PARAM \
	_IOWR(NVMAP_IOC_MAGIC, 8, struct nvmap_handle_param)
#define NVMAP_IOC_CACHE \
	_IOW(NVMAP_IOC_MAGIC, 12, struct nvmap_cache_op)
#define NVMAP_IOC_CACHE_64 \
	_IOW(NVMAP_IOC_MAGIC, 12, struct nvmap_cache_op_64)
#define NVMAP_IOC_GET_ID \
	_IOWR(NVMAP_IOC_MAGIC, 13, struct nvmap_create_handle)
#define NVMAP_IOC_GET_FD \
	_IOWR(NVMAP_IOC_MAGIC, 15, struct nvmap_create_handle)
#define NVMAP_IOC_FROM_FD \
	_IOWR(NVMAP_IOC_MAGIC, 16, struct nvmap_create_handle)
#define NVMAP_IOC_CACHE_LIST \
	_IOW(NVMAP_IOC_MAGIC, 17, struct nvmap_cache_op_list)
#define NVMAP_IOC_FROM_IVC_ID \
	_IOWR(NVMAP_IOC_MAGIC, 19, struct nvmap_create_handle)
#define NVMAP_IOC_GET_IVC_ID \
	_IOWR(NVMAP_IOC_MAGIC, 20, struct nvmap_create_handle)
#define NVMAP_IOC_GET_IVM_HEAPS \
	_IOR(NVMAP_IOC_MAGIC, 21, __u32)
#define NVMAP_IOC_FROM_VA \
	_IOWR(NVMAP_IOC_MAGIC, 22, struct nvmap_create_handle_from_va)
#define NVMAP_IOC_GUP_TEST \
	_IOWR(NVMAP_IOC_MAGIC, 23, struct nvmap_gup_test)
#define NVMAP_IOC_SET_TAG_LABEL \
	_IOW(NVMAP_IOC_MAGIC, 24, struct nvmap_set_tag_label)
#define NVMAP_IOC_GET_AVAILABLE_HEAPS \
	_IOR(NVMAP_IOC_MAGIC, 25, struct nvmap_available_heaps)
#define NVMAP_IOC_GET_HEAP_SIZE \
	_IOR(NVMAP_IOC_MAGIC, 26, struct nvmap_heap_size)
#define NVMAP_IOC_PARAMETERS \
	_IOR(NVMAP_IOC_MAGIC, 27, struct nvmap_handle_parameters)
#define NVMAP_IOC_ALLOC_IVM \
	_IOW(NVMAP_IOC_MAGIC, 101, struct nvmap_alloc_ivm_handle)
#define NVMAP_IOC_VPR_FLOOR_SIZE \
	_IOW(NVMAP_IOC_MAGIC, 102, __u32)
#define NVMAP_IOC_GET_SCIIPCID \
	_IOR(NVMAP_IOC_MAGIC, 103, struct nvmap_sciipc_map)
#define NVMAP_IOC_HANDLE_FROM_SCIIPCID \
	_IOR(NVMAP_IOC_MAGIC, 104, struct nvmap_sciipc_map)
#define NVMAP_IOC_QUERY_HEAP_PARAMS \
	_IOR(NVMAP_IOC_MAGIC, 105, struct nvmap_query_heap_params)
#define NVMAP_IOC_DUP_HANDLE \
	_IOWR(NVMAP_IOC_MAGIC, 106, struct nvmap_duplicate_handle)
#define NVMAP_IOC_GET_FD_FOR_RANGE_FROM_LIST \
	_IOR(NVMAP_IOC_MAGIC, 107, struct nvmap_fd_for_range_from_list)
