/* SPDX-License-Identifier: MIT */
/*
 * /dev/nvgpu/igpu0/ctrl: the GPU as a whole; where address spaces, channels and TSGs are opened.
 *
 * Numbers and layouts of L4T r36.4.3, uapi linux/nvgpu-ctrl.h, on 64-bit Linux.
 * Pointers are __u64, padding is named, a union is stored as its first member that fills it.
 */
#pragma once

#include "base.h"

#define NVGPU_GPU_IOCTL_MAGIC 71 /* 'G' */

#define NVGPU_ZBC_COLOR_VALUE_SIZE 4
#define NVGPU_ZBC_TYPE_INVALID 0
#define NVGPU_ZBC_TYPE_COLOR 1
#define NVGPU_ZBC_TYPE_DEPTH 2
#define NVGPU_ZBC_TYPE_STENCIL 3

#define NVGPU_GPU_ARCH_GK100 224
#define NVGPU_GPU_ARCH_GM200 288
#define NVGPU_GPU_ARCH_GP100 304
#define NVGPU_GPU_ARCH_GV110 336
#define NVGPU_GPU_ARCH_GV100 320
#define NVGPU_GPU_IMPL_GK20A 10
#define NVGPU_GPU_IMPL_GM204 4
#define NVGPU_GPU_IMPL_GM206 6
#define NVGPU_GPU_IMPL_GM20B 11
#define NVGPU_GPU_IMPL_GM20B_B 14
#define NVGPU_GPU_IMPL_GP104 4
#define NVGPU_GPU_IMPL_GP106 6
#define NVGPU_GPU_IMPL_GP10B 11
#define NVGPU_GPU_IMPL_GV11B 11
#define NVGPU_GPU_IMPL_GV100 0
#define NVGPU_GPU_BUS_TYPE_NONE 0
#define NVGPU_GPU_BUS_TYPE_AXI 32
#define NVGPU_GPU_FLAGS_HAS_SYNCPOINTS 0x1ULL
#define NVGPU_GPU_FLAGS_SUPPORT_SPARSE_ALLOCS 0x4ULL
#define NVGPU_GPU_FLAGS_SUPPORT_SYNC_FENCE_FDS 0x8ULL
#define NVGPU_GPU_FLAGS_SUPPORT_CYCLE_STATS 0x10ULL
#define NVGPU_GPU_FLAGS_SUPPORT_CYCLE_STATS_SNAPSHOT 0x40ULL
#define NVGPU_GPU_FLAGS_SUPPORT_TSG 0x100ULL
#define NVGPU_GPU_FLAGS_SUPPORT_CLOCK_CONTROLS 0x200ULL
#define NVGPU_GPU_FLAGS_SUPPORT_GET_VOLTAGE 0x400ULL
#define NVGPU_GPU_FLAGS_SUPPORT_GET_CURRENT 0x800ULL
#define NVGPU_GPU_FLAGS_SUPPORT_GET_POWER 0x1000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_GET_TEMPERATURE 0x2000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_SET_THERM_ALERT_LIMIT 0x4000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_DEVICE_EVENTS 0x8000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_FECS_CTXSW_TRACE 0x10000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_MAP_COMPBITS 0x20000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_DETERMINISTIC_SUBMIT_NO_JOBTRACKING 0x40000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_DETERMINISTIC_SUBMIT_FULL 0x80000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_IO_COHERENCE 0x100000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_RESCHEDULE_RUNLIST 0x200000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_TSG_SUBCONTEXTS 0x400000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_DETERMINISTIC_OPTS 0x1000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_SCG 0x2000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_SYNCPOINT_ADDRESS 0x4000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_VPR 0x8000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_USER_SYNCPOINT 0x10000000ULL
#define NVGPU_GPU_FLAGS_CAN_RAILGATE 0x20000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_USERMODE_SUBMIT 0x40000000ULL
#define NVGPU_GPU_FLAGS_DRIVER_REDUCED_PROFILE 0x80000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_SET_CTX_MMU_DEBUG_MODE 0x100000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_FAULT_RECOVERY 0x200000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_MAPPING_MODIFY 0x400000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_REMAP 0x800000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_COMPRESSION 0x1000000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_SM_TTU 0x2000000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_POST_L2_COMPRESSION 0x4000000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_MAP_ACCESS_TYPE 0x8000000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_2D 0x10000000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_3D 0x20000000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_COMPUTE 0x40000000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_I2M 0x80000000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_ZBC 0x100000000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_PROFILER_V2_DEVICE 0x400000000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_PROFILER_V2_CONTEXT 0x800000000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_SMPC_GLOBAL_MODE 0x1000000000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_GET_GR_CONTEXT 0x2000000000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_BUFFER_METADATA 0x4000000000000ULL
#define NVGPU_GPU_FLAGS_L2_MAX_WAYS_EVICT_LAST_ENABLED 0x8000000000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_VAB 0x10000000000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_NVS 0x20000000000000ULL
#define NVGPU_GPU_FLAGS_SCHED_EXIT_WAIT_FOR_ERRBAR_SUPPORTED 0x80000000000000ULL
#define NVGPU_GPU_FLAGS_MULTI_PROCESS_TSG_SHARING 0x100000000000000ULL
#define NVGPU_GPU_FLAGS_ECC_ENABLED_SM_LRF 0x1000000000000000ULL
#define NVGPU_GPU_FLAGS_SUPPORT_GPU_MMIO 0x200000000000000ULL
#define NVGPU_GPU_FLAGS_ECC_ENABLED_SM_SHM 0x2000000000000000ULL
#define NVGPU_GPU_FLAGS_ECC_ENABLED_TEX 0x4000000000000000ULL
#define NVGPU_GPU_FLAGS_ECC_ENABLED_LTC 0x8000000000000000ULL
#define NVGPU_GPU_FLAGS_ALL_ECC_ENABLED 0xf000000000000000ULL
#define NVGPU_GPU_CHARACTERISTICS_NO_NUMA_INFO (-1)
#define NVGPU_GPU_COMPBITS_NONE 0
#define NVGPU_GPU_COMPBITS_GPU 1
#define NVGPU_GPU_COMPBITS_CDEH 2
#define NVGPU_GPU_COMPBITS_CDEV 4
#define NVGPU_GPU_IOCTL_ALLOC_AS_FLAGS_UNIFIED_VA 2
#define NVGPU_GPU_IOCTL_OPEN_TSG_FLAGS_SHARE 1
#define NVGPU_GPU_BUFFER_INFO_FLAGS_METADATA_REGISTERED 1
#define NVGPU_GPU_BUFFER_INFO_FLAGS_COMPTAGS_ALLOCATED 2
#define NVGPU_GPU_BUFFER_INFO_FLAGS_MUTABLE_METADATA 4
#define NVGPU_GPU_GET_CPU_TIME_CORRELATION_INFO_MAX_COUNT 16
#define NVGPU_GPU_GET_CPU_TIME_CORRELATION_INFO_SRC_ID_TSC 1
#define NVGPU_GPU_GET_CPU_TIME_CORRELATION_INFO_SRC_ID_OSTIME 2
#define NVGPU_GPU_ENGINE_ID_GR 0
#define NVGPU_GPU_ENGINE_ID_GR_COPY 1
#define NVGPU_GPU_ENGINE_ID_ASYNC_COPY 2
#define NVGPU_GPU_ENGINE_ID_NVENC 5
#define NVGPU_GPU_ENGINE_ID_OFA 6
#define NVGPU_GPU_ENGINE_ID_NVDEC 7
#define NVGPU_GPU_ENGINE_ID_NVJPG 8
#define NVGPU_GPU_ALLOC_VIDMEM_FLAG_CONTIGUOUS 1
#define NVGPU_GPU_ALLOC_VIDMEM_FLAG_CPU_NOT_MAPPABLE 0
#define NVGPU_GPU_ALLOC_VIDMEM_FLAG_CPU_WRITE_COMBINE 2
#define NVGPU_GPU_ALLOC_VIDMEM_FLAG_CPU_CACHED 4
#define NVGPU_GPU_ALLOC_VIDMEM_FLAG_CPU_MASK 14
#define NVGPU_GPU_ALLOC_VIDMEM_FLAG_VPR 16
#define NVGPU_GPU_CLK_DOMAIN_MCLK 0
#define NVGPU_GPU_CLK_DOMAIN_GPCCLK 1
#define NVGPU_GPU_CLK_FLAG_SPECIFIC_DOMAINS 1
#define NVGPU_GPU_CLK_TYPE_TARGET 1
#define NVGPU_GPU_CLK_TYPE_ACTUAL 2
#define NVGPU_GPU_CLK_TYPE_EFFECTIVE 3
#define NVGPU_GPU_VOLTAGE_CORE 1
#define NVGPU_GPU_VOLTAGE_SRAM 2
#define NVGPU_GPU_VOLTAGE_BUS 3
#define NVGPU_GPU_SET_DETERMINISTIC_OPTS_FLAGS_ALLOW_RAILGATING 1
#define NVGPU_GPU_SET_DETERMINISTIC_OPTS_FLAGS_DISALLOW_RAILGATING 2
#define NVGPU_GPU_COMPTAGS_ALLOC_NONE 0
#define NVGPU_GPU_COMPTAGS_ALLOC_REQUESTED 1
#define NVGPU_GPU_COMPTAGS_ALLOC_REQUIRED 2
#define NVGPU_GPU_REGISTER_BUFFER_FLAGS_COMPTAGS_ALLOCATED 1
#define NVGPU_GPU_REGISTER_BUFFER_FLAGS_MUTABLE 2
#define NVGPU_GPU_REGISTER_BUFFER_FLAGS_MODIFY 4
#define NVGPU_GPU_REGISTER_BUFFER_METADATA_MAX_SIZE 256
#define NVGPU_GPU_IOCTL_LAST 44
#define NVGPU_GPU_IOCTL_MAX_ARG_SIZE 264

struct nvgpu_gpu_zcull_get_ctx_size_args {
	__u32 size;
};

struct nvgpu_gpu_zcull_get_info_args {
	__u32 width_align_pixels;
	__u32 height_align_pixels;
	__u32 pixel_squares_by_aliquots;
	__u32 aliquot_total;
	__u32 region_byte_multiplier;
	__u32 region_header_size;
	__u32 subregion_header_size;
	__u32 subregion_width_align_pixels;
	__u32 subregion_height_align_pixels;
	__u32 subregion_count;
};

struct nvgpu_gpu_zbc_set_table_args {
	__u32 color_ds[4];
	__u32 color_l2[4];
	__u32 depth;
	__u32 stencil;
	__u32 format;
	__u32 type;
};

struct nvgpu_gpu_zbc_query_table_args {
	__u32 color_ds[4];
	__u32 color_l2[4];
	__u32 depth;
	__u32 stencil;
	__u32 ref_cnt;
	__u32 format;
	__u32 type;
	__u32 index_size;
};

struct nvgpu_gpu_characteristics {
	__u32 arch;
	__u32 impl;
	__u32 rev;
	__u32 num_gpc;
	__s32 numa_domain_id;
	__u8 _pad0[4];
	__u64 L2_cache_size;
	__u64 on_board_video_memory_size;
	__u32 num_tpc_per_gpc;
	__u32 bus_type;
	__u32 big_page_size;
	__u32 compression_page_size;
	__u32 pde_coverage_bit_count;
	__u32 available_big_page_sizes;
	__u64 flags;
	__u32 twod_class;
	__u32 threed_class;
	__u32 compute_class;
	__u32 gpfifo_class;
	__u32 inline_to_memory_class;
	__u32 dma_copy_class;
	__u32 gpc_mask;
	__u32 sm_arch_sm_version;
	__u32 sm_arch_spa_version;
	__u32 sm_arch_warp_count;
	__s16 gpu_ioctl_nr_last;
	__s16 tsg_ioctl_nr_last;
	__s16 dbg_gpu_ioctl_nr_last;
	__s16 ioctl_channel_nr_last;
	__s16 as_ioctl_nr_last;
	__u8 gpu_va_bit_count;
	__u8 reserved;
	__u32 max_fbps_count;
	__u32 fbp_en_mask;
	__u32 emc_en_mask;
	__u32 max_ltc_per_fbp;
	__u32 max_lts_per_ltc;
	__u32 max_tex_per_tpc;
	__u32 max_gpc_count;
	__u32 rop_l2_en_mask_DEPRECATED[2];
	__u8 chipname[8];
	__u64 gr_compbit_store_base_hw;
	__u32 gr_gobs_per_comptagline_per_slice;
	__u32 num_ltc;
	__u32 lts_per_ltc;
	__u32 cbc_cache_line_size;
	__u32 cbc_comptags_per_line;
	__u32 map_buffer_batch_limit;
	__u64 max_freq;
	__u32 graphics_preemption_mode_flags;
	__u32 compute_preemption_mode_flags;
	__u32 default_graphics_preempt_mode;
	__u32 default_compute_preempt_mode;
	__u64 local_video_memory_size;
	__u16 pci_vendor_id;
	__u16 pci_device_id;
	__u16 pci_subsystem_vendor_id;
	__u16 pci_subsystem_device_id;
	__u16 pci_class;
	__u8 pci_revision;
	__u8 vbios_oem_version;
	__u32 vbios_version;
	__u32 reg_ops_limit;
	__u32 reserved1;
	__s16 event_ioctl_nr_last;
	__u16 pad;
	__u32 max_css_buffer_size;
	__s16 ctxsw_ioctl_nr_last;
	__s16 prof_ioctl_nr_last;
	__s16 nvs_ioctl_nr_last;
	__u8 reserved2[2];
	__u32 max_ctxsw_ring_buffer_size;
	__u32 reserved3;
	__u64 per_device_identifier;
	__u32 num_ppc_per_gpc;
	__u32 max_veid_count_per_tsg;
	__u32 num_sub_partition_per_fbpa;
	__u32 gpu_instance_id;
	__u32 gr_instance_id;
	__u32 max_gpfifo_entries;
	__u32 max_dbg_tsg_timeslice;
	__u32 reserved5;
	__u64 device_instance_id;
};

struct nvgpu_gpu_get_characteristics {
	__u64 gpu_characteristics_buf_size;
	__u64 gpu_characteristics_buf_addr;
};

struct nvgpu_gpu_prepare_compressible_read_args {
	__u32 handle;
	__u32 request_compbits;
	__u64 offset;
	__u64 compbits_hoffset;
	__u64 compbits_voffset;
	__u32 width;
	__u32 height;
	__u32 block_height_log2;
	__u32 submit_flags;
	__u32 fence_syncpt_id;
	__u32 fence_syncpt_value;
	__u32 zbc_color;
	__u32 reserved;
	__u64 scatterbuffer_offset;
	__u32 reserved2[2];
};

struct nvgpu_gpu_mark_compressible_write_args {
	__u32 handle;
	__u32 valid_compbits;
	__u64 offset;
	__u32 zbc_color;
	__u32 reserved[3];
};

struct nvgpu_alloc_as_args {
	__u32 big_page_size;
	__s32 as_fd;
	__u32 flags;
	__u32 reserved;
	__u64 va_range_start;
	__u64 va_range_end;
	__u64 va_range_split;
	__u32 padding[6];
};

struct nvgpu_gpu_open_tsg_args {
	__u32 tsg_fd;
	__u32 flags;
	__u64 source_device_instance_id;
	__u64 share_token;
};

struct nvgpu_gpu_get_tpc_masks_args {
	__u32 mask_buf_size;
	__u32 reserved;
	__u64 mask_buf_addr;
};

struct nvgpu_gpu_get_gpc_physical_map_args {
	__u32 map_buf_size;
	__u32 reserved;
	__u64 physical_gpc_buf_addr;
};

struct nvgpu_gpu_get_gpc_logical_map_args {
	__u32 map_buf_size;
	__u32 reserved;
	__u64 logical_gpc_buf_addr;
};

struct nvgpu_gpu_open_channel_args {
	__s32 channel_fd;
};

struct nvgpu_gpu_l2_fb_args {
	__u8 flags;
	__u32 reserved;
} __attribute__((packed));

struct nvgpu_gpu_mmu_debug_mode_args {
	__u32 state;
	__u32 reserved;
};

struct nvgpu_gpu_sm_debug_mode_args {
	__s32 channel_fd;
	__u32 enable;
	__u64 sms;
};

struct warpstate {
	__u64 valid_warps[2];
	__u64 trapped_warps[2];
	__u64 paused_warps[2];
};

struct nvgpu_gpu_wait_pause_args {
	__u64 pwarpstate;
};

struct nvgpu_gpu_tpc_exception_en_status_args {
	__u64 tpc_exception_en_sm_mask;
};

struct nvgpu_gpu_num_vsms {
	__u32 num_vsms;
	__u32 reserved;
};

struct nvgpu_gpu_vsms_mapping_entry {
	__u8 gpc_logical_index;
	__u8 gpc_virtual_index;
	__u8 tpc_local_logical_index;
	__u8 tpc_global_logical_index;
	__u8 sm_local_id;
	__u8 tpc_migratable_index;
};

struct nvgpu_gpu_vsms_mapping {
	__u64 vsms_map_buf_addr;
};

struct nvgpu_gpu_get_buffer_info_args {
	__u64 out_flags;
	__u32 out_metadata_size;
	__u32 out_reserved;
	__u64 out_size;
};

struct nvgpu_gpu_get_cpu_time_correlation_sample {
	__u64 cpu_timestamp;
	__u64 gpu_timestamp;
};

struct nvgpu_gpu_get_cpu_time_correlation_info_args {
	struct nvgpu_gpu_get_cpu_time_correlation_sample samples[16];
	__u32 count;
	__u32 source_id;
};

struct nvgpu_gpu_get_gpu_time_args {
	__u64 gpu_timestamp;
	__u64 reserved;
};

struct nvgpu_gpu_get_engine_info_item {
	__u32 engine_id;
	__u32 engine_instance;
	__s32 runlist_id;
	__u32 reserved;
};

struct nvgpu_gpu_get_engine_info_args {
	__u32 engine_info_buf_size;
	__u32 reserved;
	__u64 engine_info_buf_addr;
};

struct nvgpu_gpu_alloc_vidmem_args {
	__u64 in_size;
	__u32 in_flags;
	__u16 in_memtag;
	__u16 in_reserved0;
	__u32 in_alignment;
	__u32 in_reserved1[3];
};

struct nvgpu_gpu_clk_range {
	__u32 flags;
	__u32 clk_domain;
	__u64 min_hz;
	__u64 max_hz;
};

struct nvgpu_gpu_clk_range_args {
	__u32 flags;
	__u16 pad0;
	__u16 num_entries;
	__u64 clk_range_entries;
};

struct nvgpu_gpu_clk_vf_point {
	__u64 freq_hz;
};

struct nvgpu_gpu_clk_vf_points_args {
	__u32 flags;
	__u32 clk_domain;
	__u16 max_entries;
	__u16 num_entries;
	__u32 reserved;
	__u64 clk_vf_point_entries;
};

struct nvgpu_gpu_clk_info {
	__u16 flags;
	__u16 clk_type;
	__u32 clk_domain;
	__u64 freq_hz;
};

struct nvgpu_gpu_clk_get_info_args {
	__u32 flags;
	__u16 clk_type;
	__u16 num_entries;
	__u64 clk_info_entries;
};

struct nvgpu_gpu_clk_set_info_args {
	__u32 flags;
	__u16 pad0;
	__u16 num_entries;
	__u64 clk_info_entries;
	__s32 completion_fd;
	__u8 _pad0[4];
};

struct nvgpu_gpu_get_event_fd_args {
	__u32 flags;
	__s32 event_fd;
};

struct nvgpu_gpu_get_memory_state_args {
	__u64 total_free_bytes;
	__u64 reserved[4];
};

struct nvgpu_gpu_get_fbp_l2_masks_args {
	__u32 mask_buf_size;
	__u32 reserved;
	__u64 mask_buf_addr;
};

struct nvgpu_gpu_get_voltage_args {
	__u64 reserved;
	__u32 which;
	__u32 voltage;
};

struct nvgpu_gpu_get_current_args {
	__u32 reserved[3];
	__u32 currnt;
};

struct nvgpu_gpu_get_power_args {
	__u32 reserved[3];
	__u32 power;
};

struct nvgpu_gpu_get_temperature_args {
	__u32 reserved[3];
	__s32 temp_f24_8;
};

struct nvgpu_gpu_set_therm_alert_limit_args {
	__u32 reserved[3];
	__s32 temp_f24_8;
};

struct nvgpu_gpu_set_deterministic_opts_args {
	__u32 num_channels;
	__u32 flags;
	__u64 channels;
};

struct nvgpu_gpu_register_buffer_args {
	__s32 dmabuf_fd;
	__u8 comptags_alloc_control;
	__u8 reserved0;
	__u16 reserved1;
	__u64 metadata_addr;
	__u32 metadata_size;
	__u32 flags;
};

#define NVGPU_GPU_IOCTL_ZCULL_GET_CTX_SIZE \
	_IOR(NVGPU_GPU_IOCTL_MAGIC, 1, struct nvgpu_gpu_zcull_get_ctx_size_args)
#define NVGPU_GPU_IOCTL_ZCULL_GET_INFO \
	_IOR(NVGPU_GPU_IOCTL_MAGIC, 2, struct nvgpu_gpu_zcull_get_info_args)
#define NVGPU_GPU_IOCTL_ZBC_SET_TABLE \
	_IOW(NVGPU_GPU_IOCTL_MAGIC, 3, struct nvgpu_gpu_zbc_set_table_args)
#define NVGPU_GPU_IOCTL_ZBC_QUERY_TABLE \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 4, struct nvgpu_gpu_zbc_query_table_args)
#define NVGPU_GPU_IOCTL_GET_CHARACTERISTICS \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 5, struct nvgpu_gpu_get_characteristics)
#define NVGPU_GPU_IOCTL_PREPARE_COMPRESSIBLE_READ \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 6, struct nvgpu_gpu_prepare_compressible_read_args)
#define NVGPU_GPU_IOCTL_MARK_COMPRESSIBLE_WRITE \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 7, struct nvgpu_gpu_mark_compressible_write_args)
#define NVGPU_GPU_IOCTL_ALLOC_AS \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 8, struct nvgpu_alloc_as_args)
#define NVGPU_GPU_IOCTL_OPEN_TSG \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 9, struct nvgpu_gpu_open_tsg_args)
#define NVGPU_GPU_IOCTL_GET_TPC_MASKS \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 10, struct nvgpu_gpu_get_tpc_masks_args)
#define NVGPU_GPU_IOCTL_OPEN_CHANNEL \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 11, struct nvgpu_gpu_open_channel_args)
#define NVGPU_GPU_IOCTL_FLUSH_L2 \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 12, struct nvgpu_gpu_l2_fb_args)
#define NVGPU_GPU_IOCTL_SET_MMUDEBUG_MODE \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 14, struct nvgpu_gpu_mmu_debug_mode_args)
#define NVGPU_GPU_IOCTL_SET_SM_DEBUG_MODE \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 15, struct nvgpu_gpu_sm_debug_mode_args)
#define NVGPU_GPU_IOCTL_WAIT_FOR_PAUSE \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 16, struct nvgpu_gpu_wait_pause_args)
#define NVGPU_GPU_IOCTL_GET_TPC_EXCEPTION_EN_STATUS \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 17, struct nvgpu_gpu_tpc_exception_en_status_args)
#define NVGPU_GPU_IOCTL_NUM_VSMS \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 18, struct nvgpu_gpu_num_vsms)
#define NVGPU_GPU_IOCTL_VSMS_MAPPING \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 19, struct nvgpu_gpu_vsms_mapping)
#define NVGPU_GPU_IOCTL_RESUME_FROM_PAUSE \
	_IO(NVGPU_GPU_IOCTL_MAGIC, 21)
#define NVGPU_GPU_IOCTL_TRIGGER_SUSPEND \
	_IO(NVGPU_GPU_IOCTL_MAGIC, 22)
#define NVGPU_GPU_IOCTL_CLEAR_SM_ERRORS \
	_IO(NVGPU_GPU_IOCTL_MAGIC, 23)
#define NVGPU_GPU_IOCTL_GET_CPU_TIME_CORRELATION_INFO \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 24, struct nvgpu_gpu_get_cpu_time_correlation_info_args)
#define NVGPU_GPU_IOCTL_GET_GPU_TIME \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 25, struct nvgpu_gpu_get_gpu_time_args)
#define NVGPU_GPU_IOCTL_GET_ENGINE_INFO \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 26, struct nvgpu_gpu_get_engine_info_args)
#define NVGPU_GPU_IOCTL_ALLOC_VIDMEM \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 27, struct nvgpu_gpu_alloc_vidmem_args)
#define NVGPU_GPU_IOCTL_CLK_GET_RANGE \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 28, struct nvgpu_gpu_clk_range_args)
#define NVGPU_GPU_IOCTL_CLK_GET_VF_POINTS \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 29, struct nvgpu_gpu_clk_vf_points_args)
#define NVGPU_GPU_IOCTL_CLK_GET_INFO \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 30, struct nvgpu_gpu_clk_get_info_args)
#define NVGPU_GPU_IOCTL_CLK_SET_INFO \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 31, struct nvgpu_gpu_clk_set_info_args)
#define NVGPU_GPU_IOCTL_GET_EVENT_FD \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 32, struct nvgpu_gpu_get_event_fd_args)
#define NVGPU_GPU_IOCTL_GET_MEMORY_STATE \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 33, struct nvgpu_gpu_get_memory_state_args)
#define NVGPU_GPU_IOCTL_GET_VOLTAGE \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 34, struct nvgpu_gpu_get_voltage_args)
#define NVGPU_GPU_IOCTL_GET_CURRENT \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 35, struct nvgpu_gpu_get_current_args)
#define NVGPU_GPU_IOCTL_GET_POWER \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 36, struct nvgpu_gpu_get_power_args)
#define NVGPU_GPU_IOCTL_GET_TEMPERATURE \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 37, struct nvgpu_gpu_get_temperature_args)
#define NVGPU_GPU_IOCTL_GET_FBP_L2_MASKS \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 38, struct nvgpu_gpu_get_fbp_l2_masks_args)
#define NVGPU_GPU_IOCTL_SET_THERM_ALERT_LIMIT \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 39, struct nvgpu_gpu_set_therm_alert_limit_args)
#define NVGPU_GPU_IOCTL_SET_DETERMINISTIC_OPTS \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 40, struct nvgpu_gpu_set_deterministic_opts_args)
#define NVGPU_GPU_IOCTL_REGISTER_BUFFER \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 41, struct nvgpu_gpu_register_buffer_args)
#define NVGPU_GPU_IOCTL_GET_BUFFER_INFO \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 42, struct nvgpu_gpu_get_buffer_info_args)
#define NVGPU_GPU_IOCTL_GET_GPC_LOCAL_TO_PHYSICAL_MAP \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 43, struct nvgpu_gpu_get_gpc_physical_map_args)
#define NVGPU_GPU_IOCTL_GET_GPC_LOCAL_TO_LOGICAL_MAP \
	_IOWR(NVGPU_GPU_IOCTL_MAGIC, 44, struct nvgpu_gpu_get_gpc_logical_map_args)
