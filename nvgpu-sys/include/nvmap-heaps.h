/* SPDX-License-Identifier: MIT */
/*
 * Heap and handle numbers of nvmap, which its user header leaves out.
 *
 * Numbers and layouts of L4T r36.4.3, linux/nvmap.h (kernel side, not uapi), on 64-bit Linux.
 * Pointers are __u64, padding is named, a union is stored as its first member that fills it.
 */
#pragma once

#include "base.h"

#define NVMAP_HEAP_IOVMM 0x40000000U
#define NVMAP_HEAP_CARVEOUT_VPR 0x10000000U
#define NVMAP_HEAP_CARVEOUT_TSEC 0x8000000U
#define NVMAP_HEAP_CARVEOUT_VIDMEM 0x4000000U
#define NVMAP_HEAP_CARVEOUT_GPU 8
#define NVMAP_HEAP_CARVEOUT_FSI 4
#define NVMAP_HEAP_CARVEOUT_IVM 2
#define NVMAP_HEAP_CARVEOUT_GENERIC 1
#define NVMAP_HEAP_CARVEOUT_MASK 0x3fffffffU

#define NVMAP_HANDLE_UNCACHEABLE 0
#define NVMAP_HANDLE_WRITE_COMBINE 1
#define NVMAP_HANDLE_INNER_CACHEABLE 2
#define NVMAP_HANDLE_CACHEABLE 3
#define NVMAP_HANDLE_CACHE_FLAG 3
#define NVMAP_HANDLE_SECURE 4
#define NVMAP_HANDLE_KIND_SPECIFIED 8
#define NVMAP_HANDLE_COMPR_SPECIFIED 16
#define NVMAP_HANDLE_ZEROED_PAGES 32
#define NVMAP_HANDLE_PHYS_CONTIG 64
#define NVMAP_HANDLE_CACHE_SYNC 128
#define NVMAP_HANDLE_CACHE_SYNC_AT_RESERVE 256
#define NVMAP_HANDLE_RO 512
