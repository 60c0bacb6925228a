//! Every request of the nodes, and how far it is served: the dispatcher goes by this table, and
//! `docs/driver-model.md` is written from it.

use nix::errno::Errno;
use nvgpu_sys as abi;

use Status::{Absent, Modelled, Refused};

/// Extent to which the model serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// It is served: the driver's checks in their order, its errnos, its effects.
    Modelled,
    /// The driver of a ga10b always refuses it.
    Refused(Errno),
    /// It is not served: `ENOTTY`, although the driver has it where a function is named.
    Absent,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// Its number.
    pub(super) request: u32,
    /// Extent to which the model serves it.
    pub(super) status: Status,
    /// The driver's function that it follows; empty where the driver has none of its own.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the documentation"))]
    function: &'static str,
}

const fn call(request: u32, status: Status, function: &'static str) -> Call {
    Call { request, status, function }
}

/// Returns how far the model serves a request; `None` for one of another node.
pub(super) fn status(request: u32) -> Option<Status> {
    CALLS.iter().find(|call| call.request == request).map(|call| call.status)
}

#[rustfmt::skip]
const CALLS: &[Call] = &[
    call(abi::NVGPU_GPU_IOCTL_ZCULL_GET_CTX_SIZE, Modelled, "nvgpu_gr_get_ctxsw_zcull_size"),
    call(abi::NVGPU_GPU_IOCTL_ZCULL_GET_INFO, Modelled, "gr.zcull.get_zcull_info"),
    call(abi::NVGPU_GPU_IOCTL_ZBC_SET_TABLE, Modelled, "gr.zbc.set_table"),
    call(abi::NVGPU_GPU_IOCTL_ZBC_QUERY_TABLE, Modelled, "gr.zbc.query_table"),
    call(abi::NVGPU_GPU_IOCTL_GET_CHARACTERISTICS, Modelled, "gk20a_ctrl_ioctl_gpu_characteristics"),
    call(abi::NVGPU_GPU_IOCTL_PREPARE_COMPRESSIBLE_READ, Refused(Errno::ENOSYS), "gk20a_ctrl_prepare_compressible_read"),
    call(abi::NVGPU_GPU_IOCTL_MARK_COMPRESSIBLE_WRITE, Refused(Errno::ENOSYS), "gk20a_ctrl_mark_compressible_write"),
    call(abi::NVGPU_GPU_IOCTL_ALLOC_AS, Modelled, "gk20a_ctrl_alloc_as"),
    call(abi::NVGPU_GPU_IOCTL_OPEN_TSG, Modelled, "gk20a_ctrl_open_tsg"),
    call(abi::NVGPU_GPU_IOCTL_GET_TPC_MASKS, Modelled, "gk20a_ctrl_get_tpc_masks"),
    call(abi::NVGPU_GPU_IOCTL_OPEN_CHANNEL, Modelled, "gk20a_channel_open_ioctl"),
    call(abi::NVGPU_GPU_IOCTL_FLUSH_L2, Modelled, "nvgpu_gpu_ioctl_l2_fb_ops"),
    call(abi::NVGPU_GPU_IOCTL_SET_MMUDEBUG_MODE, Modelled, "nvgpu_gpu_ioctl_set_mmu_debug_mode"),
    call(abi::NVGPU_GPU_IOCTL_SET_SM_DEBUG_MODE, Modelled, "nvgpu_pg_elpg_protected_call"),
    call(abi::NVGPU_GPU_IOCTL_WAIT_FOR_PAUSE, Refused(Errno::ENOSYS), "nvgpu_pg_elpg_protected_call"),
    call(abi::NVGPU_GPU_IOCTL_GET_TPC_EXCEPTION_EN_STATUS, Modelled, "nvgpu_gpu_ioctl_has_any_exception"),
    call(abi::NVGPU_GPU_IOCTL_NUM_VSMS, Modelled, "gk20a_ctrl_get_num_vsms"),
    call(abi::NVGPU_GPU_IOCTL_VSMS_MAPPING, Modelled, "gk20a_ctrl_vsm_mapping"),
    call(abi::NVGPU_GPU_IOCTL_GET_CPU_TIME_CORRELATION_INFO, Modelled, "nvgpu_gpu_get_cpu_time_correlation_info"),
    call(abi::NVGPU_GPU_IOCTL_GET_GPU_TIME, Modelled, "nvgpu_gpu_get_gpu_time"),
    call(abi::NVGPU_GPU_IOCTL_GET_ENGINE_INFO, Modelled, "nvgpu_grmgr_is_multi_gr_enabled"),
    call(abi::NVGPU_GPU_IOCTL_ALLOC_VIDMEM, Refused(Errno::EINVAL), "nvgpu_gpu_alloc_vidmem"),
    call(abi::NVGPU_GPU_IOCTL_CLK_GET_RANGE, Modelled, "nvgpu_gpu_clk_get_range"),
    call(abi::NVGPU_GPU_IOCTL_CLK_GET_VF_POINTS, Modelled, "nvgpu_gpu_clk_get_vf_points"),
    call(abi::NVGPU_GPU_IOCTL_CLK_GET_INFO, Modelled, "nvgpu_gpu_clk_get_info"),
    call(abi::NVGPU_GPU_IOCTL_CLK_SET_INFO, Modelled, "nvgpu_gpu_clk_set_info"),
    call(abi::NVGPU_GPU_IOCTL_GET_EVENT_FD, Refused(Errno::EINVAL), "nvgpu_gpu_get_event_fd"),
    call(abi::NVGPU_GPU_IOCTL_GET_MEMORY_STATE, Refused(Errno::EINVAL), "nvgpu_gpu_get_memory_state"),
    call(abi::NVGPU_GPU_IOCTL_GET_VOLTAGE, Refused(Errno::EINVAL), "nvgpu_gpu_get_voltage"),
    call(abi::NVGPU_GPU_IOCTL_GET_CURRENT, Refused(Errno::EINVAL), "nvgpu_gpu_get_current"),
    call(abi::NVGPU_GPU_IOCTL_GET_POWER, Refused(Errno::EINVAL), "nvgpu_gpu_get_power"),
    call(abi::NVGPU_GPU_IOCTL_GET_TEMPERATURE, Refused(Errno::EINVAL), "nvgpu_gpu_get_temperature"),
    call(abi::NVGPU_GPU_IOCTL_GET_FBP_L2_MASKS, Modelled, "gk20a_ctrl_get_fbp_l2_masks"),
    call(abi::NVGPU_GPU_IOCTL_SET_THERM_ALERT_LIMIT, Refused(Errno::EINVAL), "nvgpu_gpu_set_therm_alert_limit"),
    call(abi::NVGPU_GPU_IOCTL_SET_DETERMINISTIC_OPTS, Modelled, "nvgpu_gpu_set_deterministic_opts"),
    call(abi::NVGPU_GPU_IOCTL_REGISTER_BUFFER, Modelled, "nvgpu_gpu_ioctl_register_buffer"),
    call(abi::NVGPU_GPU_IOCTL_GET_BUFFER_INFO, Modelled, "nvgpu_gpu_ioctl_get_buffer_info"),
    call(abi::NVGPU_GPU_IOCTL_GET_GPC_LOCAL_TO_PHYSICAL_MAP, Modelled, "gk20a_ctrl_get_gpc_local_to_physical_map"),
    call(abi::NVGPU_GPU_IOCTL_GET_GPC_LOCAL_TO_LOGICAL_MAP, Modelled, "gk20a_ctrl_get_gpc_local_to_logical_map"),
    call(abi::NVGPU_GPU_IOCTL_RESUME_FROM_PAUSE, Refused(Errno::ENOSYS), "nvgpu_pg_elpg_protected_call"),
    call(abi::NVGPU_GPU_IOCTL_TRIGGER_SUSPEND, Refused(Errno::ENOSYS), "nvgpu_pg_elpg_protected_call"),
    call(abi::NVGPU_GPU_IOCTL_CLEAR_SM_ERRORS, Modelled, "nvgpu_pg_elpg_protected_call"),
    call(abi::NVGPU_AS_IOCTL_BIND_CHANNEL, Modelled, "trace_gk20a_as_ioctl_bind_channel"),
    call(abi::NVGPU32_AS_IOCTL_ALLOC_SPACE, Modelled, "trace_gk20a_as_ioctl_alloc_space"),
    call(abi::NVGPU_AS_IOCTL_FREE_SPACE, Modelled, "trace_gk20a_as_ioctl_free_space"),
    call(abi::NVGPU_AS_IOCTL_UNMAP_BUFFER, Modelled, "trace_gk20a_as_ioctl_unmap_buffer"),
    call(abi::NVGPU_AS_IOCTL_ALLOC_SPACE, Modelled, "trace_gk20a_as_ioctl_alloc_space"),
    call(abi::NVGPU_AS_IOCTL_MAP_BUFFER_EX, Modelled, "trace_gk20a_as_ioctl_map_buffer"),
    call(abi::NVGPU_AS_IOCTL_GET_VA_REGIONS, Modelled, "trace_gk20a_as_ioctl_get_va_regions"),
    call(abi::NVGPU_AS_IOCTL_GET_BUFFER_COMPBITS_INFO, Absent, ""),
    call(abi::NVGPU_AS_IOCTL_MAP_BUFFER_COMPBITS, Absent, ""),
    call(abi::NVGPU_AS_IOCTL_MAP_BUFFER_BATCH, Modelled, "gk20a_as_ioctl_map_buffer_batch"),
    call(abi::NVGPU_AS_IOCTL_GET_SYNC_RO_MAP, Modelled, "nvgpu_as_ioctl_get_sync_ro_map"),
    call(abi::NVGPU_AS_IOCTL_MAPPING_MODIFY, Modelled, "nvgpu_as_ioctl_mapping_modify"),
    call(abi::NVGPU_AS_IOCTL_REMAP, Modelled, "nvgpu_as_ioctl_remap"),
    call(abi::NVGPU_TSG_IOCTL_BIND_CHANNEL_EX, Modelled, "gk20a_tsg_ioctl_bind_channel_ex"),
    call(abi::NVGPU_TSG_IOCTL_READ_SINGLE_SM_ERROR_STATE, Modelled, "gk20a_tsg_ioctl_read_single_sm_error_state"),
    call(abi::NVGPU_TSG_IOCTL_SET_L2_SECTOR_PROMOTION, Modelled, "nvgpu_gpu_ioctl_set_l2_sector_promotion"),
    call(abi::NVGPU_TSG_IOCTL_BIND_SCHEDULING_DOMAIN, Modelled, "nvgpu_tsg_bind_scheduling_domain"),
    call(abi::NVGPU_TSG_IOCTL_READ_ALL_SM_ERROR_STATES, Absent, ""),
    call(abi::NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT, Modelled, "nvgpu_tsg_ioctl_create_subcontext"),
    call(abi::NVGPU_TSG_IOCTL_DELETE_SUBCONTEXT, Modelled, "nvgpu_tsg_ioctl_delete_subcontext"),
    call(abi::NVGPU_TSG_IOCTL_GET_SHARE_TOKEN, Refused(Errno::EINVAL), "nvgpu_tsg_ioctl_get_share_token"),
    call(abi::NVGPU_TSG_IOCTL_REVOKE_SHARE_TOKEN, Refused(Errno::EINVAL), "nvgpu_tsg_ioctl_revoke_share_token"),
    call(abi::NVGPU_TSG_IOCTL_BIND_CHANNEL, Modelled, "nvgpu_tsg_bind_channel_fd"),
    call(abi::NVGPU_TSG_IOCTL_UNBIND_CHANNEL, Modelled, "nvgpu_tsg_unbind_channel"),
    call(abi::NVGPU_IOCTL_TSG_EVENT_ID_CTRL, Modelled, "gk20a_tsg_event_id_ctrl"),
    call(abi::NVGPU_IOCTL_TSG_SET_RUNLIST_INTERLEAVE, Modelled, "gk20a_tsg_ioctl_set_runlist_interleave"),
    call(abi::NVGPU_IOCTL_TSG_SET_TIMESLICE, Modelled, "gk20a_tsg_ioctl_set_timeslice"),
    call(abi::NVGPU_IOCTL_TSG_GET_TIMESLICE, Modelled, "gk20a_tsg_ioctl_get_timeslice"),
    call(abi::NVGPU_TSG_IOCTL_SET_L2_MAX_WAYS_EVICT_LAST, Modelled, "nvgpu_gpu_ioctl_set_l2_max_ways_evict_last"),
    call(abi::NVGPU_TSG_IOCTL_GET_L2_MAX_WAYS_EVICT_LAST, Modelled, "nvgpu_gpu_ioctl_get_l2_max_ways_evict_last"),
    call(abi::NVGPU_IOCTL_TSG_ENABLE, Modelled, "nvgpu_tsg_enable"),
    call(abi::NVGPU_IOCTL_TSG_DISABLE, Modelled, "nvgpu_tsg_disable"),
    call(abi::NVGPU_IOCTL_TSG_PREEMPT, Modelled, "nvgpu_tsg_preempt"),
    call(abi::NVGPU_IOCTL_CHANNEL_SET_NVMAP_FD, Modelled, ""),
    call(abi::NVGPU_IOCTL_CHANNEL_SET_TIMEOUT, Modelled, "timeout"),
    call(abi::NVGPU_IOCTL_CHANNEL_GET_TIMEDOUT, Modelled, "nvgpu_channel_check_unserviceable"),
    call(abi::NVGPU_IOCTL_CHANNEL_SET_TIMEOUT_EX, Modelled, "timeout"),
    call(abi::NVGPU_IOCTL_CHANNEL_WAIT, Modelled, "gk20a_channel_wait"),
    call(abi::NVGPU_IOCTL_CHANNEL_SUBMIT_GPFIFO, Modelled, "gk20a_ioctl_channel_submit_gpfifo"),
    call(abi::NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX, Modelled, "nvgpu_gr_setup_alloc_obj_ctx"),
    call(abi::NVGPU_IOCTL_CHANNEL_ZCULL_BIND, Modelled, "gk20a_channel_zcull_bind"),
    call(abi::NVGPU_IOCTL_CHANNEL_SET_ERROR_NOTIFIER, Modelled, "gk20a_init_error_notifier"),
    call(abi::NVGPU_IOCTL_CHANNEL_OPEN, Modelled, "gk20a_channel_open_ioctl"),
    call(abi::NVGPU_IOCTL_CHANNEL_WDT, Modelled, "gk20a_channel_set_wdt_status"),
    call(abi::NVGPU_IOCTL_CHANNEL_SET_PREEMPTION_MODE, Modelled, "nvgpu_gr_setup_set_preemption_mode"),
    call(abi::NVGPU_IOCTL_CHANNEL_ALLOC_GPFIFO_EX, Modelled, "nvgpu_channel_setup_bind"),
    call(abi::NVGPU_IOCTL_CHANNEL_SET_BOOSTED_CTX, Modelled, "gr.set_boosted_ctx"),
    call(abi::NVGPU_IOCTL_CHANNEL_GET_USER_SYNCPOINT, Modelled, "nvgpu_ioctl_channel_get_user_syncpoint"),
    call(abi::NVGPU_IOCTL_CHANNEL_RESCHEDULE_RUNLIST, Refused(Errno::EPERM), "runlist.reschedule"),
    call(abi::NVGPU_IOCTL_CHANNEL_SETUP_BIND, Modelled, "nvgpu_channel_setup_bind"),
    call(abi::NVGPU_IOCTL_CHANNEL_EVENT_ID_CTRL, Absent, ""),
    call(abi::NVGPU_IOCTL_CHANNEL_SET_RUNLIST_INTERLEAVE, Absent, ""),
    call(abi::NVGPU_IOCTL_CHANNEL_ENABLE, Modelled, "nvgpu_channel_enable"),
    call(abi::NVGPU_IOCTL_CHANNEL_DISABLE, Modelled, "nvgpu_channel_disable"),
    call(abi::NVGPU_IOCTL_CHANNEL_PREEMPT, Modelled, "nvgpu_preempt_channel"),
    call(abi::NVGPU_IOCTL_CHANNEL_FORCE_RESET, Modelled, "nvgpu_tsg_force_reset_ch"),
    call(abi::NVGPU_DBG_GPU_IOCTL_BIND_CHANNEL, Modelled, "dbg_bind_channel_gk20a"),
    call(abi::NVGPU_DBG_GPU_IOCTL_REG_OPS, Modelled, "nvgpu_ioctl_channel_reg_ops"),
    call(abi::NVGPU_DBG_GPU_IOCTL_EVENTS_CTRL, Modelled, "gk20a_dbg_gpu_events_ctrl"),
    call(abi::NVGPU_DBG_GPU_IOCTL_POWERGATE, Modelled, "nvgpu_ioctl_powergate_gk20a"),
    call(abi::NVGPU_DBG_GPU_IOCTL_SMPC_CTXSW_MODE, Modelled, "nvgpu_dbg_gpu_ioctl_smpc_ctxsw_mode"),
    call(abi::NVGPU_DBG_GPU_IOCTL_SUSPEND_RESUME_ALL_SMS, Refused(Errno::EINVAL), "nvgpu_dbg_gpu_ioctl_suspend_resume_sm"),
    call(abi::NVGPU_DBG_GPU_IOCTL_PERFBUF_MAP, Absent, "gk20a_perfbuf_map"),
    call(abi::NVGPU_DBG_GPU_IOCTL_PERFBUF_UNMAP, Absent, "gk20a_perfbuf_unmap"),
    call(abi::NVGPU_DBG_GPU_IOCTL_PC_SAMPLING, Refused(Errno::EINVAL), "gk20a_dbg_pc_sampling"),
    call(abi::NVGPU_DBG_GPU_IOCTL_SET_NEXT_STOP_TRIGGER_TYPE, Modelled, "nvgpu_dbg_gpu_ioctl_set_next_stop_trigger_type"),
    call(abi::NVGPU_DBG_GPU_IOCTL_HWPM_CTXSW_MODE, Modelled, "nvgpu_dbg_gpu_ioctl_hwpm_ctxsw_mode"),
    call(abi::NVGPU_DBG_GPU_IOCTL_READ_SINGLE_SM_ERROR_STATE, Modelled, "nvgpu_dbg_gpu_ioctl_read_single_sm_error_state"),
    call(abi::NVGPU_DBG_GPU_IOCTL_CLEAR_SINGLE_SM_ERROR_STATE, Modelled, "nvgpu_dbg_gpu_ioctl_clear_single_sm_error_state"),
    call(abi::NVGPU_DBG_GPU_IOCTL_UNBIND_CHANNEL, Modelled, "dbg_unbind_channel_gk20a"),
    call(abi::NVGPU_DBG_GPU_IOCTL_SUSPEND_RESUME_CONTEXTS, Modelled, "nvgpu_dbg_gpu_ioctl_suspend_resume_contexts"),
    call(abi::NVGPU_DBG_GPU_IOCTL_ACCESS_FB_MEMORY, Refused(Errno::EINVAL), "nvgpu_dbg_gpu_ioctl_access_fb_memory"),
    call(abi::NVGPU_DBG_GPU_IOCTL_PROFILER_RESERVE, Absent, "nvgpu_ioctl_profiler_reserve"),
    call(abi::NVGPU_DBG_GPU_IOCTL_SET_SM_EXCEPTION_TYPE_MASK, Modelled, "nvgpu_dbg_gpu_set_sm_exception_type_mask"),
    call(abi::NVGPU_DBG_GPU_IOCTL_CYCLE_STATS, Absent, "nvgpu_dbg_gpu_cycle_stats"),
    call(abi::NVGPU_DBG_GPU_IOCTL_CYCLE_STATS_SNAPSHOT, Absent, "nvgpu_dbg_gpu_cycle_stats_snapshot"),
    call(abi::NVGPU_DBG_GPU_IOCTL_SET_CTX_MMU_DEBUG_MODE, Modelled, "nvgpu_dbg_gpu_ioctl_set_mmu_debug_mode"),
    call(abi::NVGPU_DBG_GPU_IOCTL_GET_GR_CONTEXT_SIZE, Modelled, "nvgpu_dbg_gpu_ioctl_get_gr_context_size"),
    call(abi::NVGPU_DBG_GPU_IOCTL_GET_GR_CONTEXT, Absent, "nvgpu_dbg_gpu_ioctl_get_gr_context"),
    call(abi::NVGPU_DBG_GPU_IOCTL_GET_MAPPINGS, Modelled, "nvgpu_dbg_gpu_get_mappings"),
    call(abi::NVGPU_DBG_GPU_IOCTL_ACCESS_GPU_VA, Modelled, "nvgpu_dbg_gpu_access_gpu_va"),
    call(abi::NVGPU_DBG_GPU_IOCTL_SET_SCHED_EXIT_WAIT_FOR_ERRBAR, Modelled, "nvgpu_dbg_gpu_set_sched_wait_for_errbar"),
    call(abi::NVGPU_DBG_GPU_IOCTL_TIMEOUT, Modelled, "nvgpu_dbg_gpu_ioctl_timeout"),
    call(abi::NVGPU_DBG_GPU_IOCTL_GET_TIMEOUT, Modelled, "nvgpu_dbg_gpu_ioctl_get_timeout"),
    call(abi::NVGPU_DBG_GPU_IOCTL_PROFILER_ALLOCATE, Absent, "nvgpu_ioctl_allocate_profiler_object"),
    call(abi::NVGPU_DBG_GPU_IOCTL_PROFILER_FREE, Absent, "nvgpu_ioctl_free_profiler_object"),
    call(abi::NVGPU_DBG_GPU_IOCTL_TSG_SET_TIMESLICE, Modelled, "nvgpu_dbg_gpu_ioctl_tsg_set_timeslice"),
    call(abi::NVGPU_DBG_GPU_IOCTL_TSG_GET_TIMESLICE, Modelled, "nvgpu_dbg_gpu_ioctl_tsg_get_timeslice"),
    call(abi::NVGPU_PROFILER_IOCTL_BIND_CONTEXT, Modelled, "nvgpu_prof_ioctl_bind_context"),
    call(abi::NVGPU_PROFILER_IOCTL_UNBIND_CONTEXT, Modelled, "nvgpu_prof_ioctl_unbind_context"),
    call(abi::NVGPU_PROFILER_IOCTL_RESERVE_PM_RESOURCE, Modelled, "nvgpu_prof_ioctl_reserve_pm_resource"),
    call(abi::NVGPU_PROFILER_IOCTL_RELEASE_PM_RESOURCE, Modelled, "nvgpu_prof_ioctl_release_pm_resource"),
    call(abi::NVGPU_PROFILER_IOCTL_BIND_PM_RESOURCES, Modelled, "nvgpu_prof_ioctl_bind_pm_resources"),
    call(abi::NVGPU_PROFILER_IOCTL_UNBIND_PM_RESOURCES, Modelled, "nvgpu_prof_ioctl_unbind_pm_resources"),
    call(abi::NVGPU_PROFILER_IOCTL_ALLOC_PMA_STREAM, Absent, "nvgpu_prof_ioctl_alloc_pma_stream"),
    call(abi::NVGPU_PROFILER_IOCTL_FREE_PMA_STREAM, Absent, "nvgpu_prof_ioctl_free_pma_stream"),
    call(abi::NVGPU_PROFILER_IOCTL_PMA_STREAM_UPDATE_GET_PUT, Absent, "nvgpu_prof_ioctl_pma_stream_update_get_put"),
    call(abi::NVGPU_PROFILER_IOCTL_EXEC_REG_OPS, Absent, "nvgpu_prof_ioctl_exec_reg_ops"),
    call(abi::NVGPU_PROFILER_IOCTL_VAB_RESERVE, Absent, "nvgpu_prof_ioctl_vab_reserve"),
    call(abi::NVGPU_PROFILER_IOCTL_VAB_RELEASE, Absent, "fb.vab.release"),
    call(abi::NVGPU_PROFILER_IOCTL_VAB_FLUSH_STATE, Absent, "nvgpu_prof_ioctl_vab_flush"),
    call(abi::NVGPU_SCHED_IOCTL_GET_TSGS, Modelled, "gk20a_sched_dev_ioctl_get_tsgs"),
    call(abi::NVGPU_SCHED_IOCTL_GET_RECENT_TSGS, Modelled, "gk20a_sched_dev_ioctl_get_recent_tsgs"),
    call(abi::NVGPU_SCHED_IOCTL_GET_TSGS_BY_PID, Modelled, "gk20a_sched_dev_ioctl_get_tsgs_by_pid"),
    call(abi::NVGPU_SCHED_IOCTL_TSG_GET_PARAMS, Modelled, "gk20a_sched_dev_ioctl_get_params"),
    call(abi::NVGPU_SCHED_IOCTL_TSG_SET_TIMESLICE, Modelled, "gk20a_sched_dev_ioctl_tsg_set_timeslice"),
    call(abi::NVGPU_SCHED_IOCTL_TSG_SET_RUNLIST_INTERLEAVE, Modelled, "gk20a_sched_dev_ioctl_tsg_set_runlist_interleave"),
    call(abi::NVGPU_SCHED_IOCTL_LOCK_CONTROL, Modelled, "gk20a_sched_dev_ioctl_lock_control"),
    call(abi::NVGPU_SCHED_IOCTL_UNLOCK_CONTROL, Modelled, "gk20a_sched_dev_ioctl_unlock_control"),
    call(abi::NVGPU_SCHED_IOCTL_GET_API_VERSION, Modelled, "gk20a_sched_dev_ioctl_get_api_version"),
    call(abi::NVGPU_SCHED_IOCTL_GET_TSG, Modelled, "gk20a_sched_dev_ioctl_get_tsg"),
    call(abi::NVGPU_SCHED_IOCTL_PUT_TSG, Modelled, "gk20a_sched_dev_ioctl_put_tsg"),
    call(abi::NVGPU_CTXSW_IOCTL_TRACE_ENABLE, Absent, "gk20a_ctxsw_dev_ioctl_trace_enable"),
    call(abi::NVGPU_CTXSW_IOCTL_TRACE_DISABLE, Absent, "gk20a_ctxsw_dev_ioctl_trace_disable"),
    call(abi::NVGPU_CTXSW_IOCTL_RING_SETUP, Absent, "gk20a_ctxsw_dev_ioctl_ring_setup"),
    call(abi::NVGPU_CTXSW_IOCTL_SET_FILTER, Absent, "gk20a_ctxsw_dev_ioctl_set_filter"),
    call(abi::NVGPU_CTXSW_IOCTL_GET_FILTER, Absent, "gk20a_ctxsw_dev_ioctl_get_filter"),
    call(abi::NVGPU_CTXSW_IOCTL_POLL, Absent, "gk20a_ctxsw_dev_ioctl_poll"),
    call(abi::NVGPU_EVENT_IOCTL_SET_FILTER, Refused(Errno::ENOTTY), "nvgpu_clk_arb_set_event_filter"),
    call(abi::NVMAP_IOC_ALLOC, Modelled, "nvmap_ioctl_alloc"),
    call(abi::NVMAP_IOC_PARAM, Absent, ""),
    call(abi::NVMAP_IOC_CACHE, Modelled, "nvmap_ioctl_cache_maint"),
    call(abi::NVMAP_IOC_CACHE_64, Modelled, "nvmap_ioctl_cache_maint"),
    call(abi::NVMAP_IOC_CACHE_LIST, Modelled, "nvmap_ioctl_cache_maint_list"),
    call(abi::NVMAP_IOC_FROM_VA, Absent, "nvmap_ioctl_create_from_va"),
    call(abi::NVMAP_IOC_GUP_TEST, Absent, "nvmap_ioctl_gup_test"),
    call(abi::NVMAP_IOC_SET_TAG_LABEL, Modelled, "nvmap_ioctl_set_tag_label"),
    call(abi::NVMAP_IOC_GET_AVAILABLE_HEAPS, Modelled, "nvmap_ioctl_get_available_heaps"),
    call(abi::NVMAP_IOC_GET_HEAP_SIZE, Modelled, "nvmap_ioctl_get_heap_size"),
    call(abi::NVMAP_IOC_PARAMETERS, Modelled, "nvmap_ioctl_get_handle_parameters"),
    call(abi::NVMAP_IOC_ALLOC_IVM, Absent, "nvmap_ioctl_alloc_ivm"),
    call(abi::NVMAP_IOC_QUERY_HEAP_PARAMS, Modelled, "nvmap_ioctl_query_heap_params"),
    call(abi::NVMAP_IOC_DUP_HANDLE, Modelled, "nvmap_ioctl_dup_handle"),
    call(abi::NVMAP_IOC_GET_FD_FOR_RANGE_FROM_LIST, Absent, "nvmap_ioctl_get_fd_from_list"),
    call(abi::NVMAP_IOC_FREE, Modelled, "nvmap_ioctl_free"),
    call(abi::NVMAP_IOC_CREATE, Modelled, "nvmap_ioctl_create"),
    call(abi::NVMAP_IOC_CREATE_64, Modelled, "nvmap_ioctl_create"),
    call(abi::NVMAP_IOC_FROM_ID, Absent, ""),
    call(abi::NVMAP_IOC_WRITE, Modelled, "nvmap_ioctl_rw_handle"),
    call(abi::NVMAP_IOC_READ, Modelled, "nvmap_ioctl_rw_handle"),
    call(abi::NVMAP_IOC_GET_ID, Absent, ""),
    call(abi::NVMAP_IOC_GET_FD, Modelled, "nvmap_ioctl_getfd"),
    call(abi::NVMAP_IOC_FROM_FD, Modelled, "nvmap_ioctl_create"),
    call(abi::NVMAP_IOC_FROM_IVC_ID, Absent, "nvmap_ioctl_create_from_ivc"),
    call(abi::NVMAP_IOC_GET_IVC_ID, Absent, "nvmap_ioctl_get_ivcid"),
    call(abi::NVMAP_IOC_GET_IVM_HEAPS, Absent, "nvmap_ioctl_get_ivc_heap"),
    call(abi::NVMAP_IOC_VPR_FLOOR_SIZE, Absent, "nvmap_ioctl_vpr_floor_size"),
    call(abi::NVMAP_IOC_GET_SCIIPCID, Absent, "nvmap_ioctl_get_sci_ipc_id"),
    call(abi::NVMAP_IOC_HANDLE_FROM_SCIIPCID, Absent, "nvmap_ioctl_handle_from_sci_ipc_id"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fmt::Write;
    use std::path::Path;

    /// Nodes by the letter of their requests.
    const NODES: [(u8, &str); 10] = [
        (b'G', "`ctrl`"),
        (b'A', "`as`"),
        (b'T', "`tsg`"),
        (b'H', "channel"),
        (b'D', "`dbg`, `prof`"),
        (b'P', "`prof-dev`"),
        (b'S', "`sched`"),
        (b'C', "`ctxsw`"),
        (b'E', "event"),
        (b'N', "`/dev/nvmap`"),
    ];

    fn letter(request: u32) -> u8 {
        (request >> 8) as u8
    }

    fn table() -> String {
        let mut text = String::from("| Node | Request | | The driver's function |\n|---|---|---|---|\n");
        for (node, title) in NODES {
            for call in CALLS.iter().filter(|call| letter(call.request) == node) {
                let name = abi::Request::find(call.request).expect("a request of the drivers").name;
                let status = match call.status {
                    Modelled => "modelled".to_owned(),
                    Refused(errno) => format!("refused: {errno:?}"),
                    Absent => "absent: ENOTTY".to_owned(),
                };
                let function = match call.function {
                    "" => String::new(),
                    function => format!("`{function}`"),
                };
                writeln!(text, "| {title} | `{name}` | {status} | {function} |").expect("a string");
            }
        }
        text
    }

    #[test]
    fn the_documentation_has_this_table() {
        const MARKS: [&str; 2] = ["<!-- requests: begin -->\n", "<!-- requests: end -->"];
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/driver-model.md");
        let text = std::fs::read_to_string(&path).expect("docs/driver-model.md");
        let (before, rest) = text.split_once(MARKS[0]).expect("the mark before the table");
        let (found, after) = rest.split_once(MARKS[1]).expect("the mark after the table");
        if std::env::var_os("UPDATE").is_some() {
            let [begin, end] = MARKS;
            std::fs::write(&path, format!("{before}{begin}{}{end}{after}", table())).expect("written");
        } else {
            assert!(found == table(), "run with UPDATE=1: docs/driver-model.md differs from the dispatcher");
        }
    }

    #[test]
    fn every_request_of_these_nodes_is_in_the_table_once() {
        let letters = NODES.map(|(letter, _)| letter);
        let known: BTreeSet<u32> =
            abi::REQUESTS.iter().map(|r| r.request).filter(|r| letters.contains(&letter(*r))).collect();
        let listed: BTreeSet<u32> = CALLS.iter().map(|call| call.request).collect();
        let name = |request: &u32| abi::Request::find(*request).map_or("a request of no node", |r| r.name);
        let differ: Vec<_> = known.symmetric_difference(&listed).map(name).collect();
        assert!(differ.is_empty(), "requests that CALLS lacks, or that are of no node: {differ:?}");
        assert_eq!(listed.len(), CALLS.len(), "CALLS has a request twice");
    }
}
