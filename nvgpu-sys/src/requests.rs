//! Every request of both drivers, each with its argument struct.
//!
//! A struct that one request alone takes is that request's argument directly. Where several requests share a
//! struct, or the argument is a bare number, each request has a type of its own around it, named like the
//! request (`NVMAP_IOC_CREATE_64` is [`NvmapIocCreate64`]); requests without an argument are unit structs.

#![allow(missing_docs, reason = "each name is the kernel headers' own; their meaning is in docs/")]
#![allow(missing_debug_implementations, reason = "the byte derives make a hidden type for each field")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::bindings::*;
use crate::ioctl::Ioctl;

/// A request of the drivers, as data: for tracers and devices that receive requests as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// As the kernel headers spell it.
    pub name: &'static str,
    /// The request number.
    pub request: u32,
    /// Bytes of the argument; 0 if it takes none.
    pub size: usize,
}

impl Request {
    const fn of<A: Ioctl>() -> Self {
        Self { name: A::NAME, request: A::REQUEST, size: size_of::<A>() }
    }

    /// The request with this number. Numbers are unique over all nodes of both drivers.
    pub fn find(request: u32) -> Option<&'static Self> {
        REQUESTS.iter().find(|r| r.request == request)
    }
}

/// Requests whose argument struct belongs to them alone.
macro_rules! own {
    ($($args:ident => $request:ident),* $(,)?) => {
        const OWN: &[Request] = &[ $( Request::of::<$args>() ),* ];
    $(
        const _: () = assert!(($request >> 16) & 0x3fff == size_of::<$args>() as u32);
        // SAFETY: number and struct come from one header; the size is asserted above.
        unsafe impl Ioctl for $args {
            const NAME: &'static str = stringify!($request);
            const REQUEST: u32 = $request;
        }
    )* };
}

/// Requests that share their argument's type with others.
macro_rules! shared {
    ($($name:ident($args:ident) => $request:ident),* $(,)?) => {
        const SHARED: &[Request] = &[ $( Request::of::<$name>() ),* ];
    $(
        #[doc = concat!("Argument of `", stringify!($request), "`.")]
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(transparent)]
        pub struct $name(pub $args);
        const _: () = assert!(($request >> 16) & 0x3fff == size_of::<$name>() as u32);
        // SAFETY: number and struct come from one header; the size is asserted above.
        unsafe impl Ioctl for $name {
            const NAME: &'static str = stringify!($request);
            const REQUEST: u32 = $request;
        }
    )* };
}

/// Requests that take no argument.
macro_rules! bare {
    ($($name:ident => $request:ident),* $(,)?) => {
        const BARE: &[Request] = &[ $( Request::of::<$name>() ),* ];
    $(
        #[doc = concat!("`", stringify!($request), "` takes no argument.")]
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct $name;
        const _: () = assert!($request >> 16 == 0);
        // SAFETY: the number carries no size: the driver reads no argument.
        unsafe impl Ioctl for $name {
            const NAME: &'static str = stringify!($request);
            const REQUEST: u32 = $request;
        }
    )* };
}

/// Argument of `NVMAP_IOC_FREE`: the handle, passed as the argument's value and not by address (see
/// [`crate::BY_VALUE`]).
///
/// Given an open dmabuf descriptor instead of a handle, nvmap closes that descriptor. Handles have bit 31
/// set.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct NvmapIocFree(pub u32);
// SAFETY: `Sys::ioctl` passes the four bytes of a request in `BY_VALUE` as the argument's value.
unsafe impl Ioctl for NvmapIocFree {
    const NAME: &'static str = "NVMAP_IOC_FREE";
    const REQUEST: u32 = NVMAP_IOC_FREE;
}

own! {
    nvgpu_gpu_zcull_get_ctx_size_args => NVGPU_GPU_IOCTL_ZCULL_GET_CTX_SIZE,
    nvgpu_gpu_zcull_get_info_args => NVGPU_GPU_IOCTL_ZCULL_GET_INFO,
    nvgpu_gpu_zbc_set_table_args => NVGPU_GPU_IOCTL_ZBC_SET_TABLE,
    nvgpu_gpu_zbc_query_table_args => NVGPU_GPU_IOCTL_ZBC_QUERY_TABLE,
    nvgpu_gpu_get_characteristics => NVGPU_GPU_IOCTL_GET_CHARACTERISTICS,
    nvgpu_gpu_prepare_compressible_read_args => NVGPU_GPU_IOCTL_PREPARE_COMPRESSIBLE_READ,
    nvgpu_gpu_mark_compressible_write_args => NVGPU_GPU_IOCTL_MARK_COMPRESSIBLE_WRITE,
    nvgpu_alloc_as_args => NVGPU_GPU_IOCTL_ALLOC_AS,
    nvgpu_gpu_open_tsg_args => NVGPU_GPU_IOCTL_OPEN_TSG,
    nvgpu_gpu_get_tpc_masks_args => NVGPU_GPU_IOCTL_GET_TPC_MASKS,
    nvgpu_gpu_open_channel_args => NVGPU_GPU_IOCTL_OPEN_CHANNEL,
    nvgpu_gpu_l2_fb_args => NVGPU_GPU_IOCTL_FLUSH_L2,
    nvgpu_gpu_mmu_debug_mode_args => NVGPU_GPU_IOCTL_SET_MMUDEBUG_MODE,
    nvgpu_gpu_sm_debug_mode_args => NVGPU_GPU_IOCTL_SET_SM_DEBUG_MODE,
    nvgpu_gpu_wait_pause_args => NVGPU_GPU_IOCTL_WAIT_FOR_PAUSE,
    nvgpu_gpu_tpc_exception_en_status_args => NVGPU_GPU_IOCTL_GET_TPC_EXCEPTION_EN_STATUS,
    nvgpu_gpu_num_vsms => NVGPU_GPU_IOCTL_NUM_VSMS,
    nvgpu_gpu_vsms_mapping => NVGPU_GPU_IOCTL_VSMS_MAPPING,
    nvgpu_gpu_get_cpu_time_correlation_info_args => NVGPU_GPU_IOCTL_GET_CPU_TIME_CORRELATION_INFO,
    nvgpu_gpu_get_gpu_time_args => NVGPU_GPU_IOCTL_GET_GPU_TIME,
    nvgpu_gpu_get_engine_info_args => NVGPU_GPU_IOCTL_GET_ENGINE_INFO,
    nvgpu_gpu_alloc_vidmem_args => NVGPU_GPU_IOCTL_ALLOC_VIDMEM,
    nvgpu_gpu_clk_range_args => NVGPU_GPU_IOCTL_CLK_GET_RANGE,
    nvgpu_gpu_clk_vf_points_args => NVGPU_GPU_IOCTL_CLK_GET_VF_POINTS,
    nvgpu_gpu_clk_get_info_args => NVGPU_GPU_IOCTL_CLK_GET_INFO,
    nvgpu_gpu_clk_set_info_args => NVGPU_GPU_IOCTL_CLK_SET_INFO,
    nvgpu_gpu_get_event_fd_args => NVGPU_GPU_IOCTL_GET_EVENT_FD,
    nvgpu_gpu_get_memory_state_args => NVGPU_GPU_IOCTL_GET_MEMORY_STATE,
    nvgpu_gpu_get_voltage_args => NVGPU_GPU_IOCTL_GET_VOLTAGE,
    nvgpu_gpu_get_current_args => NVGPU_GPU_IOCTL_GET_CURRENT,
    nvgpu_gpu_get_power_args => NVGPU_GPU_IOCTL_GET_POWER,
    nvgpu_gpu_get_temperature_args => NVGPU_GPU_IOCTL_GET_TEMPERATURE,
    nvgpu_gpu_get_fbp_l2_masks_args => NVGPU_GPU_IOCTL_GET_FBP_L2_MASKS,
    nvgpu_gpu_set_therm_alert_limit_args => NVGPU_GPU_IOCTL_SET_THERM_ALERT_LIMIT,
    nvgpu_gpu_set_deterministic_opts_args => NVGPU_GPU_IOCTL_SET_DETERMINISTIC_OPTS,
    nvgpu_gpu_register_buffer_args => NVGPU_GPU_IOCTL_REGISTER_BUFFER,
    nvgpu_gpu_get_buffer_info_args => NVGPU_GPU_IOCTL_GET_BUFFER_INFO,
    nvgpu_gpu_get_gpc_physical_map_args => NVGPU_GPU_IOCTL_GET_GPC_LOCAL_TO_PHYSICAL_MAP,
    nvgpu_gpu_get_gpc_logical_map_args => NVGPU_GPU_IOCTL_GET_GPC_LOCAL_TO_LOGICAL_MAP,
    nvgpu_as_bind_channel_args => NVGPU_AS_IOCTL_BIND_CHANNEL,
    nvgpu32_as_alloc_space_args => NVGPU32_AS_IOCTL_ALLOC_SPACE,
    nvgpu_as_free_space_args => NVGPU_AS_IOCTL_FREE_SPACE,
    nvgpu_as_unmap_buffer_args => NVGPU_AS_IOCTL_UNMAP_BUFFER,
    nvgpu_as_alloc_space_args => NVGPU_AS_IOCTL_ALLOC_SPACE,
    nvgpu_as_map_buffer_ex_args => NVGPU_AS_IOCTL_MAP_BUFFER_EX,
    nvgpu_as_get_va_regions_args => NVGPU_AS_IOCTL_GET_VA_REGIONS,
    nvgpu_as_get_buffer_compbits_info_args => NVGPU_AS_IOCTL_GET_BUFFER_COMPBITS_INFO,
    nvgpu_as_map_buffer_compbits_args => NVGPU_AS_IOCTL_MAP_BUFFER_COMPBITS,
    nvgpu_as_map_buffer_batch_args => NVGPU_AS_IOCTL_MAP_BUFFER_BATCH,
    nvgpu_as_get_sync_ro_map_args => NVGPU_AS_IOCTL_GET_SYNC_RO_MAP,
    nvgpu_as_mapping_modify_args => NVGPU_AS_IOCTL_MAPPING_MODIFY,
    nvgpu_as_remap_args => NVGPU_AS_IOCTL_REMAP,
    nvgpu_gpu_set_event_filter_args => NVGPU_EVENT_IOCTL_SET_FILTER,
    nvgpu_tsg_bind_channel_ex_args => NVGPU_TSG_IOCTL_BIND_CHANNEL_EX,
    nvgpu_tsg_read_single_sm_error_state_args => NVGPU_TSG_IOCTL_READ_SINGLE_SM_ERROR_STATE,
    nvgpu_tsg_set_l2_sector_promotion_args => NVGPU_TSG_IOCTL_SET_L2_SECTOR_PROMOTION,
    nvgpu_tsg_bind_scheduling_domain_args => NVGPU_TSG_IOCTL_BIND_SCHEDULING_DOMAIN,
    nvgpu_tsg_read_all_sm_error_state_args => NVGPU_TSG_IOCTL_READ_ALL_SM_ERROR_STATES,
    nvgpu_tsg_create_subcontext_args => NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT,
    nvgpu_tsg_delete_subcontext_args => NVGPU_TSG_IOCTL_DELETE_SUBCONTEXT,
    nvgpu_tsg_get_share_token_args => NVGPU_TSG_IOCTL_GET_SHARE_TOKEN,
    nvgpu_tsg_revoke_share_token_args => NVGPU_TSG_IOCTL_REVOKE_SHARE_TOKEN,
    nvgpu_dbg_gpu_bind_channel_args => NVGPU_DBG_GPU_IOCTL_BIND_CHANNEL,
    nvgpu_dbg_gpu_exec_reg_ops_args => NVGPU_DBG_GPU_IOCTL_REG_OPS,
    nvgpu_dbg_gpu_events_ctrl_args => NVGPU_DBG_GPU_IOCTL_EVENTS_CTRL,
    nvgpu_dbg_gpu_powergate_args => NVGPU_DBG_GPU_IOCTL_POWERGATE,
    nvgpu_dbg_gpu_smpc_ctxsw_mode_args => NVGPU_DBG_GPU_IOCTL_SMPC_CTXSW_MODE,
    nvgpu_dbg_gpu_suspend_resume_all_sms_args => NVGPU_DBG_GPU_IOCTL_SUSPEND_RESUME_ALL_SMS,
    nvgpu_dbg_gpu_perfbuf_map_args => NVGPU_DBG_GPU_IOCTL_PERFBUF_MAP,
    nvgpu_dbg_gpu_perfbuf_unmap_args => NVGPU_DBG_GPU_IOCTL_PERFBUF_UNMAP,
    nvgpu_dbg_gpu_pc_sampling_args => NVGPU_DBG_GPU_IOCTL_PC_SAMPLING,
    nvgpu_dbg_gpu_set_next_stop_trigger_type_args => NVGPU_DBG_GPU_IOCTL_SET_NEXT_STOP_TRIGGER_TYPE,
    nvgpu_dbg_gpu_hwpm_ctxsw_mode_args => NVGPU_DBG_GPU_IOCTL_HWPM_CTXSW_MODE,
    nvgpu_dbg_gpu_read_single_sm_error_state_args => NVGPU_DBG_GPU_IOCTL_READ_SINGLE_SM_ERROR_STATE,
    nvgpu_dbg_gpu_clear_single_sm_error_state_args => NVGPU_DBG_GPU_IOCTL_CLEAR_SINGLE_SM_ERROR_STATE,
    nvgpu_dbg_gpu_unbind_channel_args => NVGPU_DBG_GPU_IOCTL_UNBIND_CHANNEL,
    nvgpu_dbg_gpu_suspend_resume_contexts_args => NVGPU_DBG_GPU_IOCTL_SUSPEND_RESUME_CONTEXTS,
    nvgpu_dbg_gpu_access_fb_memory_args => NVGPU_DBG_GPU_IOCTL_ACCESS_FB_MEMORY,
    nvgpu_dbg_gpu_profiler_reserve_args => NVGPU_DBG_GPU_IOCTL_PROFILER_RESERVE,
    nvgpu_dbg_gpu_set_sm_exception_type_mask_args => NVGPU_DBG_GPU_IOCTL_SET_SM_EXCEPTION_TYPE_MASK,
    nvgpu_dbg_gpu_cycle_stats_args => NVGPU_DBG_GPU_IOCTL_CYCLE_STATS,
    nvgpu_dbg_gpu_cycle_stats_snapshot_args => NVGPU_DBG_GPU_IOCTL_CYCLE_STATS_SNAPSHOT,
    nvgpu_dbg_gpu_set_ctx_mmu_debug_mode_args => NVGPU_DBG_GPU_IOCTL_SET_CTX_MMU_DEBUG_MODE,
    nvgpu_dbg_gpu_get_gr_context_size_args => NVGPU_DBG_GPU_IOCTL_GET_GR_CONTEXT_SIZE,
    nvgpu_dbg_gpu_get_gr_context_args => NVGPU_DBG_GPU_IOCTL_GET_GR_CONTEXT,
    nvgpu_dbg_gpu_get_mappings_args => NVGPU_DBG_GPU_IOCTL_GET_MAPPINGS,
    nvgpu_dbg_gpu_va_access_args => NVGPU_DBG_GPU_IOCTL_ACCESS_GPU_VA,
    nvgpu_sched_exit_wait_for_errbar_args => NVGPU_DBG_GPU_IOCTL_SET_SCHED_EXIT_WAIT_FOR_ERRBAR,
    nvgpu_profiler_bind_context_args => NVGPU_PROFILER_IOCTL_BIND_CONTEXT,
    nvgpu_profiler_reserve_pm_resource_args => NVGPU_PROFILER_IOCTL_RESERVE_PM_RESOURCE,
    nvgpu_profiler_release_pm_resource_args => NVGPU_PROFILER_IOCTL_RELEASE_PM_RESOURCE,
    nvgpu_profiler_alloc_pma_stream_args => NVGPU_PROFILER_IOCTL_ALLOC_PMA_STREAM,
    nvgpu_profiler_free_pma_stream_args => NVGPU_PROFILER_IOCTL_FREE_PMA_STREAM,
    nvgpu_profiler_pma_stream_update_get_put_args => NVGPU_PROFILER_IOCTL_PMA_STREAM_UPDATE_GET_PUT,
    nvgpu_profiler_exec_reg_ops_args => NVGPU_PROFILER_IOCTL_EXEC_REG_OPS,
    nvgpu_profiler_vab_reserve_args => NVGPU_PROFILER_IOCTL_VAB_RESERVE,
    nvgpu_profiler_vab_flush_state_args => NVGPU_PROFILER_IOCTL_VAB_FLUSH_STATE,
    nvgpu_set_nvmap_fd_args => NVGPU_IOCTL_CHANNEL_SET_NVMAP_FD,
    nvgpu_set_timeout_args => NVGPU_IOCTL_CHANNEL_SET_TIMEOUT,
    nvgpu_get_param_args => NVGPU_IOCTL_CHANNEL_GET_TIMEDOUT,
    nvgpu_set_timeout_ex_args => NVGPU_IOCTL_CHANNEL_SET_TIMEOUT_EX,
    nvgpu_wait_args => NVGPU_IOCTL_CHANNEL_WAIT,
    nvgpu_submit_gpfifo_args => NVGPU_IOCTL_CHANNEL_SUBMIT_GPFIFO,
    nvgpu_alloc_obj_ctx_args => NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX,
    nvgpu_zcull_bind_args => NVGPU_IOCTL_CHANNEL_ZCULL_BIND,
    nvgpu_set_error_notifier => NVGPU_IOCTL_CHANNEL_SET_ERROR_NOTIFIER,
    nvgpu_channel_open_args => NVGPU_IOCTL_CHANNEL_OPEN,
    nvgpu_channel_wdt_args => NVGPU_IOCTL_CHANNEL_WDT,
    nvgpu_preemption_mode_args => NVGPU_IOCTL_CHANNEL_SET_PREEMPTION_MODE,
    nvgpu_alloc_gpfifo_ex_args => NVGPU_IOCTL_CHANNEL_ALLOC_GPFIFO_EX,
    nvgpu_boosted_ctx_args => NVGPU_IOCTL_CHANNEL_SET_BOOSTED_CTX,
    nvgpu_get_user_syncpoint_args => NVGPU_IOCTL_CHANNEL_GET_USER_SYNCPOINT,
    nvgpu_reschedule_runlist_args => NVGPU_IOCTL_CHANNEL_RESCHEDULE_RUNLIST,
    nvgpu_channel_setup_bind_args => NVGPU_IOCTL_CHANNEL_SETUP_BIND,
    nvgpu_ctxsw_ring_setup_args => NVGPU_CTXSW_IOCTL_RING_SETUP,
    nvgpu_sched_get_tsgs_by_pid_args => NVGPU_SCHED_IOCTL_GET_TSGS_BY_PID,
    nvgpu_sched_tsg_get_params_args => NVGPU_SCHED_IOCTL_TSG_GET_PARAMS,
    nvgpu_sched_tsg_timeslice_args => NVGPU_SCHED_IOCTL_TSG_SET_TIMESLICE,
    nvgpu_sched_tsg_runlist_interleave_args => NVGPU_SCHED_IOCTL_TSG_SET_RUNLIST_INTERLEAVE,
    nvgpu_sched_api_version_args => NVGPU_SCHED_IOCTL_GET_API_VERSION,
    nvmap_alloc_handle => NVMAP_IOC_ALLOC,
    nvmap_handle_param => NVMAP_IOC_PARAM,
    nvmap_cache_op => NVMAP_IOC_CACHE,
    nvmap_cache_op_64 => NVMAP_IOC_CACHE_64,
    nvmap_cache_op_list => NVMAP_IOC_CACHE_LIST,
    nvmap_create_handle_from_va => NVMAP_IOC_FROM_VA,
    nvmap_gup_test => NVMAP_IOC_GUP_TEST,
    nvmap_set_tag_label => NVMAP_IOC_SET_TAG_LABEL,
    nvmap_available_heaps => NVMAP_IOC_GET_AVAILABLE_HEAPS,
    nvmap_heap_size => NVMAP_IOC_GET_HEAP_SIZE,
    nvmap_handle_parameters => NVMAP_IOC_PARAMETERS,
    nvmap_alloc_ivm_handle => NVMAP_IOC_ALLOC_IVM,
    nvmap_query_heap_params => NVMAP_IOC_QUERY_HEAP_PARAMS,
    nvmap_duplicate_handle => NVMAP_IOC_DUP_HANDLE,
    nvmap_fd_for_range_from_list => NVMAP_IOC_GET_FD_FOR_RANGE_FROM_LIST,
}

shared! {
    NvgpuTsgIoctlBindChannel(i32) => NVGPU_TSG_IOCTL_BIND_CHANNEL,
    NvgpuTsgIoctlUnbindChannel(i32) => NVGPU_TSG_IOCTL_UNBIND_CHANNEL,
    NvgpuIoctlTsgEventIdCtrl(nvgpu_event_id_ctrl_args) => NVGPU_IOCTL_TSG_EVENT_ID_CTRL,
    NvgpuIoctlTsgSetRunlistInterleave(nvgpu_runlist_interleave_args) => NVGPU_IOCTL_TSG_SET_RUNLIST_INTERLEAVE,
    NvgpuIoctlTsgSetTimeslice(nvgpu_timeslice_args) => NVGPU_IOCTL_TSG_SET_TIMESLICE,
    NvgpuIoctlTsgGetTimeslice(nvgpu_timeslice_args) => NVGPU_IOCTL_TSG_GET_TIMESLICE,
    NvgpuTsgIoctlSetL2MaxWaysEvictLast(nvgpu_tsg_l2_max_ways_evict_last_args) => NVGPU_TSG_IOCTL_SET_L2_MAX_WAYS_EVICT_LAST,
    NvgpuTsgIoctlGetL2MaxWaysEvictLast(nvgpu_tsg_l2_max_ways_evict_last_args) => NVGPU_TSG_IOCTL_GET_L2_MAX_WAYS_EVICT_LAST,
    NvgpuDbgGpuIoctlTimeout(nvgpu_dbg_gpu_timeout_args) => NVGPU_DBG_GPU_IOCTL_TIMEOUT,
    NvgpuDbgGpuIoctlGetTimeout(nvgpu_dbg_gpu_timeout_args) => NVGPU_DBG_GPU_IOCTL_GET_TIMEOUT,
    NvgpuDbgGpuIoctlProfilerAllocate(nvgpu_dbg_gpu_profiler_obj_mgt_args) => NVGPU_DBG_GPU_IOCTL_PROFILER_ALLOCATE,
    NvgpuDbgGpuIoctlProfilerFree(nvgpu_dbg_gpu_profiler_obj_mgt_args) => NVGPU_DBG_GPU_IOCTL_PROFILER_FREE,
    NvgpuDbgGpuIoctlTsgSetTimeslice(nvgpu_timeslice_args) => NVGPU_DBG_GPU_IOCTL_TSG_SET_TIMESLICE,
    NvgpuDbgGpuIoctlTsgGetTimeslice(nvgpu_timeslice_args) => NVGPU_DBG_GPU_IOCTL_TSG_GET_TIMESLICE,
    NvgpuIoctlChannelEventIdCtrl(nvgpu_event_id_ctrl_args) => NVGPU_IOCTL_CHANNEL_EVENT_ID_CTRL,
    NvgpuIoctlChannelSetRunlistInterleave(nvgpu_runlist_interleave_args) => NVGPU_IOCTL_CHANNEL_SET_RUNLIST_INTERLEAVE,
    NvgpuCtxswIoctlSetFilter(nvgpu_ctxsw_trace_filter_args) => NVGPU_CTXSW_IOCTL_SET_FILTER,
    NvgpuCtxswIoctlGetFilter(nvgpu_ctxsw_trace_filter_args) => NVGPU_CTXSW_IOCTL_GET_FILTER,
    NvgpuSchedIoctlGetTsgs(nvgpu_sched_get_tsgs_args) => NVGPU_SCHED_IOCTL_GET_TSGS,
    NvgpuSchedIoctlGetRecentTsgs(nvgpu_sched_get_tsgs_args) => NVGPU_SCHED_IOCTL_GET_RECENT_TSGS,
    NvgpuSchedIoctlGetTsg(nvgpu_sched_tsg_refcount_args) => NVGPU_SCHED_IOCTL_GET_TSG,
    NvgpuSchedIoctlPutTsg(nvgpu_sched_tsg_refcount_args) => NVGPU_SCHED_IOCTL_PUT_TSG,
    NvmapIocCreate(nvmap_create_handle) => NVMAP_IOC_CREATE,
    NvmapIocCreate64(nvmap_create_handle) => NVMAP_IOC_CREATE_64,
    NvmapIocFromId(nvmap_create_handle) => NVMAP_IOC_FROM_ID,
    NvmapIocWrite(nvmap_rw_handle) => NVMAP_IOC_WRITE,
    NvmapIocRead(nvmap_rw_handle) => NVMAP_IOC_READ,
    NvmapIocGetId(nvmap_create_handle) => NVMAP_IOC_GET_ID,
    NvmapIocGetFd(nvmap_create_handle) => NVMAP_IOC_GET_FD,
    NvmapIocFromFd(nvmap_create_handle) => NVMAP_IOC_FROM_FD,
    NvmapIocFromIvcId(nvmap_create_handle) => NVMAP_IOC_FROM_IVC_ID,
    NvmapIocGetIvcId(nvmap_create_handle) => NVMAP_IOC_GET_IVC_ID,
    NvmapIocGetIvmHeaps(u32) => NVMAP_IOC_GET_IVM_HEAPS,
    NvmapIocVprFloorSize(u32) => NVMAP_IOC_VPR_FLOOR_SIZE,
    NvmapIocGetSciipcid(nvmap_sciipc_map) => NVMAP_IOC_GET_SCIIPCID,
    NvmapIocHandleFromSciipcid(nvmap_sciipc_map) => NVMAP_IOC_HANDLE_FROM_SCIIPCID,
}

bare! {
    NvgpuGpuIoctlResumeFromPause => NVGPU_GPU_IOCTL_RESUME_FROM_PAUSE,
    NvgpuGpuIoctlTriggerSuspend => NVGPU_GPU_IOCTL_TRIGGER_SUSPEND,
    NvgpuGpuIoctlClearSmErrors => NVGPU_GPU_IOCTL_CLEAR_SM_ERRORS,
    NvgpuIoctlTsgEnable => NVGPU_IOCTL_TSG_ENABLE,
    NvgpuIoctlTsgDisable => NVGPU_IOCTL_TSG_DISABLE,
    NvgpuIoctlTsgPreempt => NVGPU_IOCTL_TSG_PREEMPT,
    NvgpuProfilerIoctlBindPmResources => NVGPU_PROFILER_IOCTL_BIND_PM_RESOURCES,
    NvgpuProfilerIoctlUnbindPmResources => NVGPU_PROFILER_IOCTL_UNBIND_PM_RESOURCES,
    NvgpuProfilerIoctlUnbindContext => NVGPU_PROFILER_IOCTL_UNBIND_CONTEXT,
    NvgpuProfilerIoctlVabRelease => NVGPU_PROFILER_IOCTL_VAB_RELEASE,
    NvgpuIoctlChannelEnable => NVGPU_IOCTL_CHANNEL_ENABLE,
    NvgpuIoctlChannelDisable => NVGPU_IOCTL_CHANNEL_DISABLE,
    NvgpuIoctlChannelPreempt => NVGPU_IOCTL_CHANNEL_PREEMPT,
    NvgpuIoctlChannelForceReset => NVGPU_IOCTL_CHANNEL_FORCE_RESET,
    NvgpuCtxswIoctlTraceEnable => NVGPU_CTXSW_IOCTL_TRACE_ENABLE,
    NvgpuCtxswIoctlTraceDisable => NVGPU_CTXSW_IOCTL_TRACE_DISABLE,
    NvgpuCtxswIoctlPoll => NVGPU_CTXSW_IOCTL_POLL,
    NvgpuSchedIoctlLockControl => NVGPU_SCHED_IOCTL_LOCK_CONTROL,
    NvgpuSchedIoctlUnlockControl => NVGPU_SCHED_IOCTL_UNLOCK_CONTROL,
}

/// Every request of both drivers.
pub static REQUESTS: &[Request] = &ALL;

const ALL: [Request; OWN.len() + SHARED.len() + BARE.len() + 1] = {
    let mut all = [Request::of::<NvmapIocFree>(); OWN.len() + SHARED.len() + BARE.len() + 1];
    let (parts, mut next) = ([OWN, SHARED, BARE], 1);
    let mut part = 0;
    while part < parts.len() {
        let mut i = 0;
        while i < parts[part].len() {
            all[next] = parts[part][i];
            (i, next) = (i + 1, next + 1);
        }
        part += 1;
    }
    all
};
