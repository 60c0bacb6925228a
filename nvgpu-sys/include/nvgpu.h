/* SPDX-License-Identifier: MIT */
/*
 * Channels, channel groups (TSG), debugger sessions, profiler objects, context-switch traces, the scheduler.
 *
 * Numbers and layouts of L4T r36.4.3, uapi linux/nvgpu.h, on 64-bit Linux.
 * Pointers are __u64, padding is named, a union is stored as its first member that fills it.
 */
#pragma once

#include "base.h"

#define NVGPU_TSG_IOCTL_MAGIC 84 /* 'T' */
#define NVGPU_DBG_GPU_IOCTL_MAGIC 68 /* 'D' */
#define NVGPU_PROFILER_IOCTL_MAGIC 80 /* 'P' */
#define NVGPU_IOCTL_MAGIC 72 /* 'H' */
#define NVGPU_CTXSW_IOCTL_MAGIC 67 /* 'C' */
#define NVGPU_CTXSW_RING_HEADER_MAGIC 0x7000fadeU
#define NVGPU_SCHED_IOCTL_MAGIC 83 /* 'S' */

#define NVGPU_GPU_IOCTL_TSG_L2_SECTOR_PROMOTE_FLAG_NONE 1
#define NVGPU_GPU_IOCTL_TSG_L2_SECTOR_PROMOTE_FLAG_64B 2
#define NVGPU_GPU_IOCTL_TSG_L2_SECTOR_PROMOTE_FLAG_128B 4

#define NVGPU_TSG_SUBCONTEXT_TYPE_SYNC 0
#define NVGPU_TSG_SUBCONTEXT_TYPE_ASYNC 1
#define NVGPU_TSG_IOCTL_MAX_ARG_SIZE 32
#define NVGPU_TSG_IOCTL_LAST 21

#define NVGPU_DBG_GPU_REG_OP_READ_32 0
#define NVGPU_DBG_GPU_REG_OP_WRITE_32 1
#define NVGPU_DBG_GPU_REG_OP_READ_64 2
#define NVGPU_DBG_GPU_REG_OP_WRITE_64 3
#define NVGPU_DBG_GPU_REG_OP_READ_08 4
#define NVGPU_DBG_GPU_REG_OP_WRITE_08 5
#define NVGPU_DBG_GPU_REG_OP_TYPE_GLOBAL 0
#define NVGPU_DBG_GPU_REG_OP_TYPE_GR_CTX 1
#define NVGPU_DBG_GPU_REG_OP_TYPE_GR_CTX_TPC 2
#define NVGPU_DBG_GPU_REG_OP_TYPE_GR_CTX_SM 4
#define NVGPU_DBG_GPU_REG_OP_TYPE_GR_CTX_CROP 8
#define NVGPU_DBG_GPU_REG_OP_TYPE_GR_CTX_ZROP 16
#define NVGPU_DBG_GPU_REG_OP_TYPE_GR_CTX_QUAD 64
#define NVGPU_DBG_GPU_REG_OP_STATUS_SUCCESS 0
#define NVGPU_DBG_GPU_REG_OP_STATUS_INVALID_OP 1
#define NVGPU_DBG_GPU_REG_OP_STATUS_INVALID_TYPE 2
#define NVGPU_DBG_GPU_REG_OP_STATUS_INVALID_OFFSET 4
#define NVGPU_DBG_GPU_REG_OP_STATUS_UNSUPPORTED_OP 8
#define NVGPU_DBG_GPU_REG_OP_STATUS_INVALID_MASK 16
#define NVGPU_DBG_GPU_EVENTS_CTRL_CMD_DISABLE 0
#define NVGPU_DBG_GPU_EVENTS_CTRL_CMD_ENABLE 1
#define NVGPU_DBG_GPU_EVENTS_CTRL_CMD_CLEAR 2
#define NVGPU_DBG_GPU_POWERGATE_MODE_ENABLE 1
#define NVGPU_DBG_GPU_POWERGATE_MODE_DISABLE 2
#define NVGPU_DBG_GPU_SMPC_CTXSW_MODE_NO_CTXSW 0
#define NVGPU_DBG_GPU_SMPC_CTXSW_MODE_CTXSW 1
#define NVGPU_DBG_GPU_SUSPEND_ALL_SMS 1
#define NVGPU_DBG_GPU_RESUME_ALL_SMS 2
#define NVGPU_DBG_GPU_IOCTL_PC_SAMPLING_DISABLE 0
#define NVGPU_DBG_GPU_IOCTL_PC_SAMPLING_ENABLE 1
#define NVGPU_DBG_GPU_IOCTL_TIMEOUT_ENABLE 1
#define NVGPU_DBG_GPU_IOCTL_TIMEOUT_DISABLE 0
#define NVGPU_DBG_GPU_HWPM_CTXSW_MODE_NO_CTXSW 0
#define NVGPU_DBG_GPU_HWPM_CTXSW_MODE_CTXSW 1
#define NVGPU_DBG_GPU_HWPM_CTXSW_MODE_STREAM_OUT_CTXSW 2
#define NVGPU_DBG_GPU_SUSPEND_ALL_CONTEXTS 1
#define NVGPU_DBG_GPU_RESUME_ALL_CONTEXTS 2
#define NVGPU_DBG_GPU_IOCTL_ACCESS_FB_MEMORY_CMD_READ 1
#define NVGPU_DBG_GPU_IOCTL_ACCESS_FB_MEMORY_CMD_WRITE 2
#define NVGPU_DBG_GPU_IOCTL_SET_SM_EXCEPTION_TYPE_MASK_NONE 0
#define NVGPU_DBG_GPU_IOCTL_SET_SM_EXCEPTION_TYPE_MASK_FATAL 1
#define NVGPU_DBG_GPU_IOCTL_CYCLE_STATS_SNAPSHOT_CMD_FLUSH 0
#define NVGPU_DBG_GPU_IOCTL_CYCLE_STATS_SNAPSHOT_CMD_ATTACH 1
#define NVGPU_DBG_GPU_IOCTL_CYCLE_STATS_SNAPSHOT_CMD_DETACH 2
#define NVGPU_DBG_GPU_CTX_MMU_DEBUG_MODE_DISABLED 0
#define NVGPU_DBG_GPU_CTX_MMU_DEBUG_MODE_ENABLED 1
#define NVGPU_DBG_GPU_IOCTL_ACCESS_GPUVA_CMD_READ 1
#define NVGPU_DBG_GPU_IOCTL_ACCESS_GPUVA_CMD_WRITE 2
#define NVGPU_DBG_GPU_SCHED_EXIT_WAIT_FOR_ERRBAR_DISABLED 0
#define NVGPU_DBG_GPU_SCHED_EXIT_WAIT_FOR_ERRBAR_ENABLED 1
#define NVGPU_DBG_GPU_IOCTL_LAST 33
#define NVGPU_DBG_GPU_IOCTL_MAX_ARG_SIZE 32

#define NVGPU_PROFILER_PM_RESOURCE_ARG_HWPM_LEGACY 0
#define NVGPU_PROFILER_PM_RESOURCE_ARG_SMPC 1
#define NVGPU_PROFILER_PM_RESOURCE_ARG_PC_SAMPLER 2
#define NVGPU_PROFILER_PM_RESOURCE_ARG_HES_CWD 3
#define NVGPU_PROFILER_RESERVE_PM_RESOURCE_ARG_FLAG_CTXSW 1
#define NVGPU_PROFILER_ALLOC_PMA_STREAM_ARG_FLAG_CTXSW 1
#define NVGPU_PROFILER_PMA_STREAM_UPDATE_GET_PUT_ARG_FLAG_UPDATE_AVAILABLE_BYTES 1
#define NVGPU_PROFILER_PMA_STREAM_UPDATE_GET_PUT_ARG_FLAG_WAIT_FOR_UPDATE 2
#define NVGPU_PROFILER_PMA_STREAM_UPDATE_GET_PUT_ARG_FLAG_RETURN_PUT_PTR 4
#define NVGPU_PROFILER_PMA_STREAM_UPDATE_GET_PUT_ARG_FLAG_OVERFLOW_TRIGGERED 8
#define NVGPU_PROFILER_EXEC_REG_OPS_ARG_MODE_ALL_OR_NONE 0
#define NVGPU_PROFILER_EXEC_REG_OPS_ARG_MODE_CONTINUE_ON_ERROR 1
#define NVGPU_PROFILER_EXEC_REG_OPS_ARG_FLAG_ALL_PASSED 1
#define NVGPU_PROFILER_EXEC_REG_OPS_ARG_FLAG_DIRECT_OPS 2
#define NVGPU_PROFILER_VAB_RANGE_CHECKER_MODE_ACCESS 1
#define NVGPU_PROFILER_VAB_RANGE_CHECKER_MODE_DIRTY 2
#define NVGPU_PROFILER_IOCTL_MAX_ARG_SIZE 48
#define NVGPU_PROFILER_IOCTL_LAST 13

#define NVGPU_NO_TIMEOUT 0xffffffffU

#define NVGPU_TIMEOUT_FLAG_DISABLE_DUMP 0

#define NVGPU_ALLOC_OBJ_FLAGS_LOCKBOOST_ZERO 1
#define NVGPU_ALLOC_OBJ_FLAGS_GFXP 2
#define NVGPU_ALLOC_OBJ_FLAGS_CILP 4
#define NVGPU_ALLOC_GPFIFO_EX_FLAGS_VPR_ENABLED 1
#define NVGPU_ALLOC_GPFIFO_EX_FLAGS_DETERMINISTIC 2

#define NVGPU_CHANNEL_SETUP_BIND_FLAGS_VPR_ENABLED 1
#define NVGPU_CHANNEL_SETUP_BIND_FLAGS_DETERMINISTIC 2
#define NVGPU_CHANNEL_SETUP_BIND_FLAGS_REPLAYABLE_FAULTS_ENABLE 4
#define NVGPU_CHANNEL_SETUP_BIND_FLAGS_USERMODE_SUPPORT 8
#define NVGPU_CHANNEL_SETUP_BIND_FLAGS_USERMODE_GPU_MAP_RESOURCES_SUPPORT 16

#define NVGPU_SUBMIT_GPFIFO_FLAGS_FENCE_WAIT 1
#define NVGPU_SUBMIT_GPFIFO_FLAGS_FENCE_GET 2
#define NVGPU_SUBMIT_GPFIFO_FLAGS_HW_FORMAT 4
#define NVGPU_SUBMIT_GPFIFO_FLAGS_SYNC_FENCE 8
#define NVGPU_SUBMIT_GPFIFO_FLAGS_SUPPRESS_WFI 16
#define NVGPU_SUBMIT_GPFIFO_FLAGS_SKIP_BUFFER_REFCOUNTING 32

#define NVGPU_WAIT_TYPE_NOTIFIER 0
#define NVGPU_WAIT_TYPE_SEMAPHORE 1

#define NVGPU_ZCULL_MODE_GLOBAL 0
#define NVGPU_ZCULL_MODE_NO_CTXSW 1
#define NVGPU_ZCULL_MODE_SEPARATE_BUFFER 2
#define NVGPU_ZCULL_MODE_PART_OF_REGULAR_BUF 3

#define NVGPU_CHANNEL_FIFO_ERROR_IDLE_TIMEOUT 8
#define NVGPU_CHANNEL_GR_ERROR_SW_METHOD 12
#define NVGPU_CHANNEL_GR_ERROR_SW_NOTIFY 13
#define NVGPU_CHANNEL_GR_EXCEPTION 13
#define NVGPU_CHANNEL_GR_SEMAPHORE_TIMEOUT 24
#define NVGPU_CHANNEL_GR_ILLEGAL_NOTIFY 25
#define NVGPU_CHANNEL_FIFO_ERROR_MMU_ERR_FLT 31
#define NVGPU_CHANNEL_PBDMA_ERROR 32
#define NVGPU_CHANNEL_FECS_ERR_UNIMP_FIRMWARE_METHOD 37
#define NVGPU_CHANNEL_RESETCHANNEL_VERIF_ERROR 43
#define NVGPU_CHANNEL_PBDMA_PUSHBUFFER_CRC_MISMATCH 80
#define NVGPU_CHANNEL_SUBMIT_TIMEOUT 1

#define NVGPU_IOCTL_CHANNEL_DISABLE_WDT 1
#define NVGPU_IOCTL_CHANNEL_ENABLE_WDT 2
#define NVGPU_IOCTL_CHANNEL_WDT_FLAG_SET_TIMEOUT 4
#define NVGPU_IOCTL_CHANNEL_WDT_FLAG_DISABLE_DUMP 8

#define NVGPU_RUNLIST_INTERLEAVE_LEVEL_LOW 0
#define NVGPU_RUNLIST_INTERLEAVE_LEVEL_MEDIUM 1
#define NVGPU_RUNLIST_INTERLEAVE_LEVEL_HIGH 2
#define NVGPU_RUNLIST_INTERLEAVE_NUM_LEVELS 3

#define NVGPU_IOCTL_CHANNEL_EVENT_ID_BPT_INT 0
#define NVGPU_IOCTL_CHANNEL_EVENT_ID_BPT_PAUSE 1
#define NVGPU_IOCTL_CHANNEL_EVENT_ID_BLOCKING_SYNC 2
#define NVGPU_IOCTL_CHANNEL_EVENT_ID_CILP_PREEMPTION_STARTED 3
#define NVGPU_IOCTL_CHANNEL_EVENT_ID_CILP_PREEMPTION_COMPLETE 4
#define NVGPU_IOCTL_CHANNEL_EVENT_ID_GR_SEMAPHORE_WRITE_AWAKEN 5
#define NVGPU_IOCTL_CHANNEL_EVENT_ID_MAX 6
#define NVGPU_IOCTL_CHANNEL_EVENT_ID_CMD_ENABLE 1

#define NVGPU_GRAPHICS_PREEMPTION_MODE_WFI 1
#define NVGPU_GRAPHICS_PREEMPTION_MODE_GFXP 2

#define NVGPU_COMPUTE_PREEMPTION_MODE_WFI 1
#define NVGPU_COMPUTE_PREEMPTION_MODE_CTA 2
#define NVGPU_COMPUTE_PREEMPTION_MODE_CILP 4

#define NVGPU_BOOSTED_CTX_MODE_NORMAL 0
#define NVGPU_BOOSTED_CTX_MODE_BOOSTED_EXECUTION 1

#define NVGPU_RESCHEDULE_RUNLIST_PREEMPT_NEXT 1

#define NVGPU_IOCTL_CHANNEL_LAST 128
#define NVGPU_IOCTL_CHANNEL_MAX_ARG_SIZE 104

#define NVGPU_CTXSW_TAG_SOF 0
#define NVGPU_CTXSW_TAG_CTXSW_REQ_BY_HOST 1
#define NVGPU_CTXSW_TAG_FE_ACK 2
#define NVGPU_CTXSW_TAG_FE_ACK_WFI 10
#define NVGPU_CTXSW_TAG_FE_ACK_GFXP 11
#define NVGPU_CTXSW_TAG_FE_ACK_CTAP 12
#define NVGPU_CTXSW_TAG_FE_ACK_CILP 13
#define NVGPU_CTXSW_TAG_SAVE_END 3
#define NVGPU_CTXSW_TAG_RESTORE_START 4
#define NVGPU_CTXSW_TAG_CONTEXT_START 5
#define NVGPU_CTXSW_TAG_ENGINE_RESET 254
#define NVGPU_CTXSW_TAG_INVALID_TIMESTAMP 255
#define NVGPU_CTXSW_TAG_LAST 255
#define NVGPU_CTXSW_RING_HEADER_VERSION 0
#define NVGPU_CTXSW_FILTER_SIZE 256
#define NVGPU_CTXSW_IOCTL_LAST 6
#define NVGPU_CTXSW_IOCTL_MAX_ARG_SIZE 32

#define NVGPU_SCHED_IOCTL_LAST 11
#define NVGPU_SCHED_IOCTL_MAX_ARG_SIZE 32
#define NVGPU_SCHED_STATUS_TSG_OPEN 1
#define NVGPU_SCHED_API_VERSION 1

struct nvgpu_tsg_bind_channel_ex_args {
	__s32 channel_fd;
	__u32 subcontext_id;
	__u8 reserved[16];
};

struct nvgpu_tsg_bind_scheduling_domain_args {
	__s32 domain_fd;
	__s32 reserved0;
	__u64 reserved[3];
};

struct nvgpu_tsg_sm_error_state_record {
	__u32 global_esr;
	__u32 warp_esr;
	__u64 warp_esr_pc;
	__u32 global_esr_report_mask;
	__u32 warp_esr_report_mask;
};

struct nvgpu_tsg_read_single_sm_error_state_args {
	__u32 sm_id;
	__u32 reserved;
	__u64 record_mem;
	__u64 record_size;
};

struct nvgpu_tsg_read_all_sm_error_state_args {
	__u32 num_sm;
	__u32 reserved;
	__u64 buffer_mem;
	__u64 buffer_size;
};

struct nvgpu_tsg_l2_max_ways_evict_last_args {
	__u32 max_ways;
	__u32 reserved;
};

struct nvgpu_tsg_set_l2_sector_promotion_args {
	__u32 promotion_flag;
	__u32 reserved;
};

struct nvgpu_tsg_create_subcontext_args {
	__u32 type;
	__s32 as_fd;
	__u32 veid;
	__u32 reserved;
};

struct nvgpu_tsg_delete_subcontext_args {
	__u32 veid;
	__u32 reserved;
};

struct nvgpu_tsg_get_share_token_args {
	__u64 source_device_instance_id;
	__u64 target_device_instance_id;
	__u64 share_token;
};

struct nvgpu_tsg_revoke_share_token_args {
	__u64 source_device_instance_id;
	__u64 target_device_instance_id;
	__u64 share_token;
};

struct nvgpu_dbg_gpu_bind_channel_args {
	__u32 channel_fd;
	__u32 _pad0[1];
};

struct nvgpu_dbg_gpu_reg_op {
	__u8 op;
	__u8 type;
	__u8 status;
	__u8 quad;
	__u32 group_mask;
	__u32 sub_group_mask;
	__u32 offset;
	__u32 value_lo;
	__u32 value_hi;
	__u32 and_n_mask_lo;
	__u32 and_n_mask_hi;
};

struct nvgpu_dbg_gpu_exec_reg_ops_args {
	__u64 ops;
	__u32 num_ops;
	__u32 gr_ctx_resident;
};

struct nvgpu_dbg_gpu_events_ctrl_args {
	__u32 cmd;
	__u32 _pad0[1];
};

struct nvgpu_dbg_gpu_powergate_args {
	__u32 mode;
};

struct nvgpu_dbg_gpu_smpc_ctxsw_mode_args {
	__u32 mode;
};

struct nvgpu_dbg_gpu_suspend_resume_all_sms_args {
	__u32 mode;
};

struct nvgpu_dbg_gpu_perfbuf_map_args {
	__u32 dmabuf_fd;
	__u32 reserved;
	__u64 mapping_size;
	__u64 offset;
};

struct nvgpu_dbg_gpu_perfbuf_unmap_args {
	__u64 offset;
};

struct nvgpu_dbg_gpu_pc_sampling_args {
	__u32 enable;
	__u32 _pad0[1];
};

struct nvgpu_dbg_gpu_timeout_args {
	__u32 enable;
	__u32 padding;
};

struct nvgpu_dbg_gpu_set_next_stop_trigger_type_args {
	__u32 broadcast;
	__u32 reserved;
};

struct nvgpu_dbg_gpu_hwpm_ctxsw_mode_args {
	__u32 mode;
	__u32 reserved;
};

struct nvgpu_dbg_gpu_sm_error_state_record {
	__u32 hww_global_esr;
	__u32 hww_warp_esr;
	__u64 hww_warp_esr_pc;
	__u32 hww_global_esr_report_mask;
	__u32 hww_warp_esr_report_mask;
};

struct nvgpu_dbg_gpu_read_single_sm_error_state_args {
	__u32 sm_id;
	__u32 padding;
	__u64 sm_error_state_record_mem;
	__u64 sm_error_state_record_size;
};

struct nvgpu_dbg_gpu_clear_single_sm_error_state_args {
	__u32 sm_id;
	__u32 padding;
};

struct nvgpu_dbg_gpu_unbind_channel_args {
	__u32 channel_fd;
	__u32 _pad0[1];
};

struct nvgpu_dbg_gpu_suspend_resume_contexts_args {
	__u32 action;
	__u32 is_resident_context;
	__s32 resident_context_fd;
	__u32 padding;
};

struct nvgpu_dbg_gpu_access_fb_memory_args {
	__u32 cmd;
	__s32 dmabuf_fd;
	__u64 offset;
	__u64 buffer;
	__u64 size;
};

struct nvgpu_dbg_gpu_profiler_obj_mgt_args {
	__u32 profiler_handle;
	__u32 reserved;
};

struct nvgpu_dbg_gpu_profiler_reserve_args {
	__u32 profiler_handle;
	__u32 acquire;
};

struct nvgpu_dbg_gpu_set_sm_exception_type_mask_args {
	__u32 exception_type_mask;
	__u32 reserved;
};

struct nvgpu_dbg_gpu_cycle_stats_args {
	__u32 dmabuf_fd;
	__u32 reserved;
};

struct nvgpu_dbg_gpu_cycle_stats_snapshot_args {
	__u32 cmd;
	__u32 dmabuf_fd;
	__u32 extra;
	__u32 reserved;
};

struct nvgpu_dbg_gpu_set_ctx_mmu_debug_mode_args {
	__u32 mode;
	__u32 reserved;
};

struct nvgpu_dbg_gpu_get_gr_context_size_args {
	__u32 size;
	__u32 reserved;
};

struct nvgpu_dbg_gpu_get_gr_context_args {
	__u64 buffer;
	__u32 size;
	__u32 reserved;
};

struct nvgpu_dbg_gpu_get_mappings_entry {
	__u64 gpu_va;
	__u64 size;
};

struct nvgpu_dbg_gpu_get_mappings_args {
	__u64 va_lo;
	__u64 va_hi;
	__u64 ops_buffer;
	__u32 count;
	__u8 has_more;
	__u8 reserved[3];
};

struct nvgpu_dbg_gpu_va_access_entry {
	__u64 gpu_va;
	__u64 data;
	__u32 size;
	__u8 valid;
	__u8 reserved[3];
};

struct nvgpu_dbg_gpu_va_access_args {
	__u64 ops_buf;
	__u32 count;
	__u8 cmd;
	__u8 reserved[3];
};

struct nvgpu_sched_exit_wait_for_errbar_args {
	__u32 enable;
};

struct nvgpu_profiler_bind_context_args {
	__s32 tsg_fd;
	__u32 reserved;
};

struct nvgpu_profiler_reserve_pm_resource_args {
	__u32 resource;
	__u32 flags;
	__u32 reserved[2];
};

struct nvgpu_profiler_release_pm_resource_args {
	__u32 resource;
	__u32 reserved;
};

struct nvgpu_profiler_alloc_pma_stream_args {
	__u64 pma_buffer_map_size;
	__u64 pma_buffer_offset;
	__u64 pma_buffer_va;
	__s32 pma_buffer_fd;
	__s32 pma_bytes_available_buffer_fd;
	__u32 flags;
	__u32 pma_channel_id;
	__u32 reserved[2];
};

struct nvgpu_profiler_free_pma_stream_args {
	__u32 pma_channel_id;
	__u32 reserved[2];
};

struct nvgpu_profiler_pma_stream_update_get_put_args {
	__u64 bytes_consumed;
	__u64 bytes_available;
	__u64 put_ptr;
	__u32 flags;
	__u32 pma_channel_id;
	__u32 reserved[2];
};

struct nvgpu_profiler_reg_op {
	__u8 op;
	__u8 status;
	__u8 _pad0[2];
	__u32 offset;
	__u64 value;
	__u64 and_n_mask;
};

struct nvgpu_profiler_exec_reg_ops_args {
	__u32 mode;
	__u32 count;
	__u64 ops;
	__u32 flags;
	__u32 reserved[3];
};

struct nvgpu_profiler_vab_range_checker {
	__u64 start_phys_addr;
	__u8 granularity_shift;
	__u8 reserved[7];
};

struct nvgpu_profiler_vab_reserve_args {
	__u8 vab_mode;
	__u8 reserved[3];
	__u32 num_range_checkers;
	__u64 range_checkers_ptr;
};

struct nvgpu_profiler_vab_flush_state_args {
	__u64 buffer_ptr;
	__u64 buffer_size;
};

struct nvgpu_gpfifo {
	__u32 entry0;
	__u32 entry1;
};

struct nvgpu_get_param_args {
	__u32 value;
};

struct nvgpu_channel_open_args {
	__s32 channel_fd;
};

struct nvgpu_set_nvmap_fd_args {
	__u32 fd;
};

struct nvgpu_alloc_obj_ctx_args {
	__u32 class_num;
	__u32 flags;
	__u64 obj_id;
};

struct nvgpu_alloc_gpfifo_ex_args {
	__u32 num_entries;
	__u32 num_inflight_jobs;
	__u32 flags;
	__u32 reserved[5];
};

struct nvgpu_channel_setup_bind_args {
	__u32 num_gpfifo_entries;
	__u32 num_inflight_jobs;
	__u32 flags;
	__s32 userd_dmabuf_fd;
	__s32 gpfifo_dmabuf_fd;
	__u32 work_submit_token;
	__u64 userd_dmabuf_offset;
	__u64 gpfifo_dmabuf_offset;
	__u64 gpfifo_gpu_va;
	__u64 userd_gpu_va;
	__u64 usermode_mmio_gpu_va;
	__u32 reserved[9];
	__u8 _pad0[4];
};

struct nvgpu_fence {
	__u32 id;
	__u32 value;
};

struct nvgpu_submit_gpfifo_args {
	__u64 gpfifo;
	__u32 num_entries;
	__u32 flags;
	struct nvgpu_fence fence;
};

struct nvgpu_wait_args {
	__u32 type;
	__u32 timeout;
	__u32 condition_notifier_dmabuf_fd;
	__u32 condition_notifier_offset;
	__u32 condition_notifier_padding1;
	__u32 condition_notifier_padding2;
};

struct nvgpu_set_timeout_args {
	__u32 timeout;
};

struct nvgpu_set_timeout_ex_args {
	__u32 timeout;
	__u32 flags;
};

struct nvgpu_zcull_bind_args {
	__u64 gpu_va;
	__u32 mode;
	__u32 padding;
};

struct nvgpu_set_error_notifier {
	__u64 offset;
	__u64 size;
	__u32 mem;
	__u32 padding;
};

struct nvgpu_notification {
	__u32 time_stamp_nanoseconds[2];
	__u32 info32;
	__u16 info16;
	__u16 status;
};

struct nvgpu_channel_wdt_args {
	__u32 wdt_status;
	__u32 timeout_ms;
};

struct nvgpu_runlist_interleave_args {
	__u32 level;
	__u32 reserved;
};

struct nvgpu_timeslice_args {
	__u32 timeslice_us;
	__u32 reserved;
};

struct nvgpu_event_id_ctrl_args {
	__u32 cmd;
	__u32 event_id;
	__s32 event_fd;
	__u32 padding;
};

struct nvgpu_preemption_mode_args {
	__u32 graphics_preempt_mode;
	__u32 compute_preempt_mode;
};

struct nvgpu_boosted_ctx_args {
	__u32 boost;
	__u32 padding;
};

struct nvgpu_get_user_syncpoint_args {
	__u64 gpu_va;
	__u32 syncpoint_id;
	__u32 syncpoint_max;
};

struct nvgpu_reschedule_runlist_args {
	__u32 flags;
};

struct nvgpu_ctxsw_trace_entry {
	__u8 tag;
	__u8 vmid;
	__u16 seqno;
	__u32 context_id;
	__u64 pid;
	__u64 timestamp;
};

struct nvgpu_ctxsw_ring_header {
	__u32 magic;
	__u32 version;
	__u32 num_ents;
	__u32 ent_size;
	__u32 drop_count;
	__u32 write_seqno;
	__u32 write_idx;
	__u32 read_idx;
};

struct nvgpu_ctxsw_ring_setup_args {
	__u32 size;
};

struct nvgpu_ctxsw_trace_filter {
	__u64 tag_bits[4];
};

struct nvgpu_ctxsw_trace_filter_args {
	struct nvgpu_ctxsw_trace_filter filter;
};

struct nvgpu_sched_get_tsgs_args {
	__u32 size;
	__u8 _pad0[4];
	__u64 buffer;
};

struct nvgpu_sched_get_tsgs_by_pid_args {
	__u64 pid;
	__u32 size;
	__u8 _pad0[4];
	__u64 buffer;
};

struct nvgpu_sched_tsg_get_params_args {
	__u32 tsgid;
	__u32 timeslice;
	__u32 runlist_interleave;
	__u32 graphics_preempt_mode;
	__u32 compute_preempt_mode;
	__u8 _pad0[4];
	__u64 pid;
};

struct nvgpu_sched_tsg_timeslice_args {
	__u32 tsgid;
	__u32 timeslice;
};

struct nvgpu_sched_tsg_runlist_interleave_args {
	__u32 tsgid;
	__u32 runlist_interleave;
};

struct nvgpu_sched_api_version_args {
	__u32 version;
};

struct nvgpu_sched_tsg_refcount_args {
	__u32 tsgid;
};

struct nvgpu_sched_event_arg {
	__u64 reserved;
	__u64 status;
};

#define NVGPU_TSG_IOCTL_BIND_CHANNEL \
	_IOW(NVGPU_TSG_IOCTL_MAGIC, 1, __s32)
#define NVGPU_TSG_IOCTL_UNBIND_CHANNEL \
	_IOW(NVGPU_TSG_IOCTL_MAGIC, 2, __s32)
#define NVGPU_IOCTL_TSG_ENABLE \
	_IO(NVGPU_TSG_IOCTL_MAGIC, 3)
#define NVGPU_IOCTL_TSG_DISABLE \
	_IO(NVGPU_TSG_IOCTL_MAGIC, 4)
#define NVGPU_IOCTL_TSG_PREEMPT \
	_IO(NVGPU_TSG_IOCTL_MAGIC, 5)
#define NVGPU_IOCTL_TSG_EVENT_ID_CTRL \
	_IOWR(NVGPU_TSG_IOCTL_MAGIC, 7, struct nvgpu_event_id_ctrl_args)
#define NVGPU_IOCTL_TSG_SET_RUNLIST_INTERLEAVE \
	_IOW(NVGPU_TSG_IOCTL_MAGIC, 8, struct nvgpu_runlist_interleave_args)
#define NVGPU_IOCTL_TSG_SET_TIMESLICE \
	_IOW(NVGPU_TSG_IOCTL_MAGIC, 9, struct nvgpu_timeslice_args)
#define NVGPU_IOCTL_TSG_GET_TIMESLICE \
	_IOR(NVGPU_TSG_IOCTL_MAGIC, 10, struct nvgpu_timeslice_args)
#define NVGPU_TSG_IOCTL_BIND_CHANNEL_EX \
	_IOWR(NVGPU_TSG_IOCTL_MAGIC, 11, struct nvgpu_tsg_bind_channel_ex_args)
#define NVGPU_TSG_IOCTL_READ_SINGLE_SM_ERROR_STATE \
	_IOWR(NVGPU_TSG_IOCTL_MAGIC, 12, struct nvgpu_tsg_read_single_sm_error_state_args)
#define NVGPU_TSG_IOCTL_SET_L2_MAX_WAYS_EVICT_LAST \
	_IOW(NVGPU_TSG_IOCTL_MAGIC, 13, struct nvgpu_tsg_l2_max_ways_evict_last_args)
#define NVGPU_TSG_IOCTL_GET_L2_MAX_WAYS_EVICT_LAST \
	_IOR(NVGPU_TSG_IOCTL_MAGIC, 14, struct nvgpu_tsg_l2_max_ways_evict_last_args)
#define NVGPU_TSG_IOCTL_SET_L2_SECTOR_PROMOTION \
	_IOW(NVGPU_TSG_IOCTL_MAGIC, 15, struct nvgpu_tsg_set_l2_sector_promotion_args)
#define NVGPU_TSG_IOCTL_BIND_SCHEDULING_DOMAIN \
	_IOW(NVGPU_TSG_IOCTL_MAGIC, 16, struct nvgpu_tsg_bind_scheduling_domain_args)
#define NVGPU_TSG_IOCTL_READ_ALL_SM_ERROR_STATES \
	_IOWR(NVGPU_TSG_IOCTL_MAGIC, 17, struct nvgpu_tsg_read_all_sm_error_state_args)
#define NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT \
	_IOWR(NVGPU_TSG_IOCTL_MAGIC, 18, struct nvgpu_tsg_create_subcontext_args)
#define NVGPU_TSG_IOCTL_DELETE_SUBCONTEXT \
	_IOW(NVGPU_TSG_IOCTL_MAGIC, 19, struct nvgpu_tsg_delete_subcontext_args)
#define NVGPU_TSG_IOCTL_GET_SHARE_TOKEN \
	_IOWR(NVGPU_TSG_IOCTL_MAGIC, 20, struct nvgpu_tsg_get_share_token_args)
#define NVGPU_TSG_IOCTL_REVOKE_SHARE_TOKEN \
	_IOW(NVGPU_TSG_IOCTL_MAGIC, 21, struct nvgpu_tsg_revoke_share_token_args)
#define NVGPU_DBG_GPU_IOCTL_BIND_CHANNEL \
	_IOWR(NVGPU_DBG_GPU_IOCTL_MAGIC, 1, struct nvgpu_dbg_gpu_bind_channel_args)
#define NVGPU_DBG_GPU_IOCTL_REG_OPS \
	_IOWR(NVGPU_DBG_GPU_IOCTL_MAGIC, 2, struct nvgpu_dbg_gpu_exec_reg_ops_args)
#define NVGPU_DBG_GPU_IOCTL_EVENTS_CTRL \
	_IOWR(NVGPU_DBG_GPU_IOCTL_MAGIC, 3, struct nvgpu_dbg_gpu_events_ctrl_args)
#define NVGPU_DBG_GPU_IOCTL_POWERGATE \
	_IOWR(NVGPU_DBG_GPU_IOCTL_MAGIC, 4, struct nvgpu_dbg_gpu_powergate_args)
#define NVGPU_DBG_GPU_IOCTL_SMPC_CTXSW_MODE \
	_IOWR(NVGPU_DBG_GPU_IOCTL_MAGIC, 5, struct nvgpu_dbg_gpu_smpc_ctxsw_mode_args)
#define NVGPU_DBG_GPU_IOCTL_SUSPEND_RESUME_ALL_SMS \
	_IOWR(NVGPU_DBG_GPU_IOCTL_MAGIC, 6, struct nvgpu_dbg_gpu_suspend_resume_all_sms_args)
#define NVGPU_DBG_GPU_IOCTL_PERFBUF_MAP \
	_IOWR(NVGPU_DBG_GPU_IOCTL_MAGIC, 7, struct nvgpu_dbg_gpu_perfbuf_map_args)
#define NVGPU_DBG_GPU_IOCTL_PERFBUF_UNMAP \
	_IOWR(NVGPU_DBG_GPU_IOCTL_MAGIC, 8, struct nvgpu_dbg_gpu_perfbuf_unmap_args)
#define NVGPU_DBG_GPU_IOCTL_PC_SAMPLING \
	_IOW(NVGPU_DBG_GPU_IOCTL_MAGIC, 9, struct nvgpu_dbg_gpu_pc_sampling_args)
#define NVGPU_DBG_GPU_IOCTL_TIMEOUT \
	_IOW(NVGPU_DBG_GPU_IOCTL_MAGIC, 10, struct nvgpu_dbg_gpu_timeout_args)
#define NVGPU_DBG_GPU_IOCTL_GET_TIMEOUT \
	_IOR(NVGPU_DBG_GPU_IOCTL_MAGIC, 11, struct nvgpu_dbg_gpu_timeout_args)
#define NVGPU_DBG_GPU_IOCTL_SET_NEXT_STOP_TRIGGER_TYPE \
	_IOWR(NVGPU_DBG_GPU_IOCTL_MAGIC, 12, struct nvgpu_dbg_gpu_set_next_stop_trigger_type_args)
#define NVGPU_DBG_GPU_IOCTL_HWPM_CTXSW_MODE \
	_IOWR(NVGPU_DBG_GPU_IOCTL_MAGIC, 13, struct nvgpu_dbg_gpu_hwpm_ctxsw_mode_args)
#define NVGPU_DBG_GPU_IOCTL_READ_SINGLE_SM_ERROR_STATE \
	_IOWR(NVGPU_DBG_GPU_IOCTL_MAGIC, 14, struct nvgpu_dbg_gpu_read_single_sm_error_state_args)
#define NVGPU_DBG_GPU_IOCTL_CLEAR_SINGLE_SM_ERROR_STATE \
	_IOW(NVGPU_DBG_GPU_IOCTL_MAGIC, 15, struct nvgpu_dbg_gpu_clear_single_sm_error_state_args)
#define NVGPU_DBG_GPU_IOCTL_UNBIND_CHANNEL \
	_IOW(NVGPU_DBG_GPU_IOCTL_MAGIC, 17, struct nvgpu_dbg_gpu_unbind_channel_args)
#define NVGPU_DBG_GPU_IOCTL_SUSPEND_RESUME_CONTEXTS \
	_IOWR(NVGPU_DBG_GPU_IOCTL_MAGIC, 18, struct nvgpu_dbg_gpu_suspend_resume_contexts_args)
#define NVGPU_DBG_GPU_IOCTL_ACCESS_FB_MEMORY \
	_IOWR(NVGPU_DBG_GPU_IOCTL_MAGIC, 19, struct nvgpu_dbg_gpu_access_fb_memory_args)
#define NVGPU_DBG_GPU_IOCTL_PROFILER_ALLOCATE \
	_IOWR(NVGPU_DBG_GPU_IOCTL_MAGIC, 20, struct nvgpu_dbg_gpu_profiler_obj_mgt_args)
#define NVGPU_DBG_GPU_IOCTL_PROFILER_FREE \
	_IOWR(NVGPU_DBG_GPU_IOCTL_MAGIC, 21, struct nvgpu_dbg_gpu_profiler_obj_mgt_args)
#define NVGPU_DBG_GPU_IOCTL_PROFILER_RESERVE \
	_IOWR(NVGPU_DBG_GPU_IOCTL_MAGIC, 22, struct nvgpu_dbg_gpu_profiler_reserve_args)
#define NVGPU_DBG_GPU_IOCTL_SET_SM_EXCEPTION_TYPE_MASK \
	_IOW(NVGPU_DBG_GPU_IOCTL_MAGIC, 23, struct nvgpu_dbg_gpu_set_sm_exception_type_mask_args)
#define NVGPU_DBG_GPU_IOCTL_CYCLE_STATS \
	_IOWR(NVGPU_DBG_GPU_IOCTL_MAGIC, 24, struct nvgpu_dbg_gpu_cycle_stats_args)
#define NVGPU_DBG_GPU_IOCTL_CYCLE_STATS_SNAPSHOT \
	_IOWR(NVGPU_DBG_GPU_IOCTL_MAGIC, 25, struct nvgpu_dbg_gpu_cycle_stats_snapshot_args)
#define NVGPU_DBG_GPU_IOCTL_SET_CTX_MMU_DEBUG_MODE \
	_IOW(NVGPU_DBG_GPU_IOCTL_MAGIC, 26, struct nvgpu_dbg_gpu_set_ctx_mmu_debug_mode_args)
#define NVGPU_DBG_GPU_IOCTL_GET_GR_CONTEXT_SIZE \
	_IOR(NVGPU_DBG_GPU_IOCTL_MAGIC, 27, struct nvgpu_dbg_gpu_get_gr_context_size_args)
#define NVGPU_DBG_GPU_IOCTL_GET_GR_CONTEXT \
	_IOW(NVGPU_DBG_GPU_IOCTL_MAGIC, 28, struct nvgpu_dbg_gpu_get_gr_context_args)
#define NVGPU_DBG_GPU_IOCTL_TSG_SET_TIMESLICE \
	_IOW(NVGPU_DBG_GPU_IOCTL_MAGIC, 29, struct nvgpu_timeslice_args)
#define NVGPU_DBG_GPU_IOCTL_TSG_GET_TIMESLICE \
	_IOR(NVGPU_DBG_GPU_IOCTL_MAGIC, 30, struct nvgpu_timeslice_args)
#define NVGPU_DBG_GPU_IOCTL_GET_MAPPINGS \
	_IOWR(NVGPU_DBG_GPU_IOCTL_MAGIC, 31, struct nvgpu_dbg_gpu_get_mappings_args)
#define NVGPU_DBG_GPU_IOCTL_ACCESS_GPU_VA \
	_IOWR(NVGPU_DBG_GPU_IOCTL_MAGIC, 32, struct nvgpu_dbg_gpu_va_access_args)
#define NVGPU_DBG_GPU_IOCTL_SET_SCHED_EXIT_WAIT_FOR_ERRBAR \
	_IOW(NVGPU_DBG_GPU_IOCTL_MAGIC, 33, struct nvgpu_sched_exit_wait_for_errbar_args)
#define NVGPU_PROFILER_IOCTL_BIND_CONTEXT \
	_IOW(NVGPU_PROFILER_IOCTL_MAGIC, 1, struct nvgpu_profiler_bind_context_args)
#define NVGPU_PROFILER_IOCTL_RESERVE_PM_RESOURCE \
	_IOW(NVGPU_PROFILER_IOCTL_MAGIC, 2, struct nvgpu_profiler_reserve_pm_resource_args)
#define NVGPU_PROFILER_IOCTL_RELEASE_PM_RESOURCE \
	_IOW(NVGPU_PROFILER_IOCTL_MAGIC, 3, struct nvgpu_profiler_release_pm_resource_args)
#define NVGPU_PROFILER_IOCTL_ALLOC_PMA_STREAM \
	_IOWR(NVGPU_PROFILER_IOCTL_MAGIC, 4, struct nvgpu_profiler_alloc_pma_stream_args)
#define NVGPU_PROFILER_IOCTL_FREE_PMA_STREAM \
	_IOW(NVGPU_PROFILER_IOCTL_MAGIC, 5, struct nvgpu_profiler_free_pma_stream_args)
#define NVGPU_PROFILER_IOCTL_BIND_PM_RESOURCES \
	_IO(NVGPU_PROFILER_IOCTL_MAGIC, 6)
#define NVGPU_PROFILER_IOCTL_UNBIND_PM_RESOURCES \
	_IO(NVGPU_PROFILER_IOCTL_MAGIC, 7)
#define NVGPU_PROFILER_IOCTL_PMA_STREAM_UPDATE_GET_PUT \
	_IOWR(NVGPU_PROFILER_IOCTL_MAGIC, 8, struct nvgpu_profiler_pma_stream_update_get_put_args)
#define NVGPU_PROFILER_IOCTL_EXEC_REG_OPS \
	_IOWR(NVGPU_PROFILER_IOCTL_MAGIC, 9, struct nvgpu_profiler_exec_reg_ops_args)
#define NVGPU_PROFILER_IOCTL_UNBIND_CONTEXT \
	_IO(NVGPU_PROFILER_IOCTL_MAGIC, 10)
#define NVGPU_PROFILER_IOCTL_VAB_RESERVE \
	_IOW(NVGPU_PROFILER_IOCTL_MAGIC, 11, struct nvgpu_profiler_vab_reserve_args)
#define NVGPU_PROFILER_IOCTL_VAB_RELEASE \
	_IO(NVGPU_PROFILER_IOCTL_MAGIC, 12)
#define NVGPU_PROFILER_IOCTL_VAB_FLUSH_STATE \
	_IOW(NVGPU_PROFILER_IOCTL_MAGIC, 13, struct nvgpu_profiler_vab_flush_state_args)
#define NVGPU_IOCTL_CHANNEL_SET_NVMAP_FD \
	_IOW(NVGPU_IOCTL_MAGIC, 5, struct nvgpu_set_nvmap_fd_args)
#define NVGPU_IOCTL_CHANNEL_SET_TIMEOUT \
	_IOW(NVGPU_IOCTL_MAGIC, 11, struct nvgpu_set_timeout_args)
#define NVGPU_IOCTL_CHANNEL_GET_TIMEDOUT \
	_IOR(NVGPU_IOCTL_MAGIC, 12, struct nvgpu_get_param_args)
#define NVGPU_IOCTL_CHANNEL_SET_TIMEOUT_EX \
	_IOWR(NVGPU_IOCTL_MAGIC, 18, struct nvgpu_set_timeout_ex_args)
#define NVGPU_IOCTL_CHANNEL_WAIT \
	_IOWR(NVGPU_IOCTL_MAGIC, 102, struct nvgpu_wait_args)
#define NVGPU_IOCTL_CHANNEL_SUBMIT_GPFIFO \
	_IOWR(NVGPU_IOCTL_MAGIC, 107, struct nvgpu_submit_gpfifo_args)
#define NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX \
	_IOWR(NVGPU_IOCTL_MAGIC, 108, struct nvgpu_alloc_obj_ctx_args)
#define NVGPU_IOCTL_CHANNEL_ZCULL_BIND \
	_IOWR(NVGPU_IOCTL_MAGIC, 110, struct nvgpu_zcull_bind_args)
#define NVGPU_IOCTL_CHANNEL_SET_ERROR_NOTIFIER \
	_IOWR(NVGPU_IOCTL_MAGIC, 111, struct nvgpu_set_error_notifier)
#define NVGPU_IOCTL_CHANNEL_OPEN \
	_IOR(NVGPU_IOCTL_MAGIC, 112, struct nvgpu_channel_open_args)
#define NVGPU_IOCTL_CHANNEL_ENABLE \
	_IO(NVGPU_IOCTL_MAGIC, 113)
#define NVGPU_IOCTL_CHANNEL_DISABLE \
	_IO(NVGPU_IOCTL_MAGIC, 114)
#define NVGPU_IOCTL_CHANNEL_PREEMPT \
	_IO(NVGPU_IOCTL_MAGIC, 115)
#define NVGPU_IOCTL_CHANNEL_FORCE_RESET \
	_IO(NVGPU_IOCTL_MAGIC, 116)
#define NVGPU_IOCTL_CHANNEL_EVENT_ID_CTRL \
	_IOWR(NVGPU_IOCTL_MAGIC, 117, struct nvgpu_event_id_ctrl_args)
#define NVGPU_IOCTL_CHANNEL_WDT \
	_IOW(NVGPU_IOCTL_MAGIC, 119, struct nvgpu_channel_wdt_args)
#define NVGPU_IOCTL_CHANNEL_SET_RUNLIST_INTERLEAVE \
	_IOW(NVGPU_IOCTL_MAGIC, 120, struct nvgpu_runlist_interleave_args)
#define NVGPU_IOCTL_CHANNEL_SET_PREEMPTION_MODE \
	_IOW(NVGPU_IOCTL_MAGIC, 122, struct nvgpu_preemption_mode_args)
#define NVGPU_IOCTL_CHANNEL_ALLOC_GPFIFO_EX \
	_IOW(NVGPU_IOCTL_MAGIC, 123, struct nvgpu_alloc_gpfifo_ex_args)
#define NVGPU_IOCTL_CHANNEL_SET_BOOSTED_CTX \
	_IOW(NVGPU_IOCTL_MAGIC, 124, struct nvgpu_boosted_ctx_args)
#define NVGPU_IOCTL_CHANNEL_GET_USER_SYNCPOINT \
	_IOR(NVGPU_IOCTL_MAGIC, 126, struct nvgpu_get_user_syncpoint_args)
#define NVGPU_IOCTL_CHANNEL_RESCHEDULE_RUNLIST \
	_IOW(NVGPU_IOCTL_MAGIC, 127, struct nvgpu_reschedule_runlist_args)
#define NVGPU_IOCTL_CHANNEL_SETUP_BIND \
	_IOWR(NVGPU_IOCTL_MAGIC, 128, struct nvgpu_channel_setup_bind_args)
#define NVGPU_CTXSW_IOCTL_TRACE_ENABLE \
	_IO(NVGPU_CTXSW_IOCTL_MAGIC, 1)
#define NVGPU_CTXSW_IOCTL_TRACE_DISABLE \
	_IO(NVGPU_CTXSW_IOCTL_MAGIC, 2)
#define NVGPU_CTXSW_IOCTL_RING_SETUP \
	_IOWR(NVGPU_CTXSW_IOCTL_MAGIC, 3, struct nvgpu_ctxsw_ring_setup_args)
#define NVGPU_CTXSW_IOCTL_SET_FILTER \
	_IOW(NVGPU_CTXSW_IOCTL_MAGIC, 4, struct nvgpu_ctxsw_trace_filter_args)
#define NVGPU_CTXSW_IOCTL_GET_FILTER \
	_IOR(NVGPU_CTXSW_IOCTL_MAGIC, 5, struct nvgpu_ctxsw_trace_filter_args)
#define NVGPU_CTXSW_IOCTL_POLL \
	_IO(NVGPU_CTXSW_IOCTL_MAGIC, 6)
#define NVGPU_SCHED_IOCTL_GET_TSGS \
	_IOWR(NVGPU_SCHED_IOCTL_MAGIC, 1, struct nvgpu_sched_get_tsgs_args)
#define NVGPU_SCHED_IOCTL_GET_RECENT_TSGS \
	_IOWR(NVGPU_SCHED_IOCTL_MAGIC, 2, struct nvgpu_sched_get_tsgs_args)
#define NVGPU_SCHED_IOCTL_GET_TSGS_BY_PID \
	_IOWR(NVGPU_SCHED_IOCTL_MAGIC, 3, struct nvgpu_sched_get_tsgs_by_pid_args)
#define NVGPU_SCHED_IOCTL_TSG_GET_PARAMS \
	_IOWR(NVGPU_SCHED_IOCTL_MAGIC, 4, struct nvgpu_sched_tsg_get_params_args)
#define NVGPU_SCHED_IOCTL_TSG_SET_TIMESLICE \
	_IOW(NVGPU_SCHED_IOCTL_MAGIC, 5, struct nvgpu_sched_tsg_timeslice_args)
#define NVGPU_SCHED_IOCTL_TSG_SET_RUNLIST_INTERLEAVE \
	_IOW(NVGPU_SCHED_IOCTL_MAGIC, 6, struct nvgpu_sched_tsg_runlist_interleave_args)
#define NVGPU_SCHED_IOCTL_LOCK_CONTROL \
	_IO(NVGPU_SCHED_IOCTL_MAGIC, 7)
#define NVGPU_SCHED_IOCTL_UNLOCK_CONTROL \
	_IO(NVGPU_SCHED_IOCTL_MAGIC, 8)
#define NVGPU_SCHED_IOCTL_GET_API_VERSION \
	_IOR(NVGPU_SCHED_IOCTL_MAGIC, 9, struct nvgpu_sched_api_version_args)
#define NVGPU_SCHED_IOCTL_GET_TSG \
	_IOW(NVGPU_SCHED_IOCTL_MAGIC, 10, struct nvgpu_sched_tsg_refcount_args)
#define NVGPU_SCHED_IOCTL_PUT_TSG \
	_IOW(NVGPU_SCHED_IOCTL_MAGIC, 11, struct nvgpu_sched_tsg_refcount_args)
