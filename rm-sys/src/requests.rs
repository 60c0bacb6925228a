//! Requests, controls and classes, each with the struct it takes.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::bindings::*;

/// One escape: a request of `/dev/nvidiactl` or `/dev/nvidiaN` and its argument struct.
///
/// # Safety
/// The driver must serve `REQUEST` with exactly this struct.
pub unsafe trait Escape: FromBytes + IntoBytes + Immutable {
    /// As the driver's headers spell it.
    const NAME: &'static str;
    /// The request number, which carries the size of the struct.
    const REQUEST: u32;
}

/// One request of `/dev/nvidia-uvm` and its argument struct. Its last field is the status that the driver
/// returns.
///
/// # Safety
/// The driver must serve `REQUEST` with exactly this struct.
pub unsafe trait Uvm: FromBytes + IntoBytes + Immutable {
    /// As the driver's headers spell it.
    const NAME: &'static str;
    /// The bare request number.
    const REQUEST: u32;
}

/// One control: a command for an object, sent through `NV_ESC_RM_CONTROL`, and its parameters.
///
/// # Safety
/// The driver must serve `COMMAND` with exactly this struct.
pub unsafe trait Control: FromBytes + IntoBytes + Immutable {
    /// As the driver's headers spell it.
    const NAME: &'static str;
    /// The command.
    const COMMAND: u32;
}

/// A number with its name in the driver's headers, and the size of its struct in bytes (0 if it has none).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// As the driver's headers spell it.
    pub name: &'static str,
    /// Request number, command or class.
    pub number: u32,
    /// Bytes of the struct on driver 580.
    pub size: usize,
}

fn name_of(table: &'static [Entry], number: u32) -> Option<&'static str> {
    table.iter().find(|e| e.number == number).map(|e| e.name)
}

/// The name of a class, such as `HOPPER_COMPUTE_A` for 0xcbc0.
pub fn class_name(class: u32) -> Option<&'static str> {
    name_of(CLASSES, class)
}

/// The name of a control command.
pub fn control_name(command: u32) -> Option<&'static str> {
    name_of(CONTROLS, command)
}

macro_rules! escapes {
    ($($args:ident => $request:ident),* $(,)?) => {
        $(
            const _: () = assert!(($request >> 16) & 0x3fff == size_of::<$args>() as u32);
            // SAFETY: number and struct come from one header; the size is asserted above.
            unsafe impl Escape for $args {
                const NAME: &'static str = stringify!($request);
                const REQUEST: u32 = $request;
            }
        )*

        /// Every escape that takes a struct.
        pub static ESCAPES: &[Entry] =
            &[ $( Entry { name: stringify!($request), number: $request, size: size_of::<$args>() } ),* ];
    };
}

macro_rules! uvm {
    ($($args:ident => $request:ident),* $(,)?) => {
        $(
            // SAFETY: number and struct come from one header.
            unsafe impl Uvm for $args {
                const NAME: &'static str = stringify!($request);
                const REQUEST: u32 = $request;
            }
        )*

        /// Every request of `/dev/nvidia-uvm` that takes a struct.
        pub static UVM: &[Entry] =
            &[ $( Entry { name: stringify!($request), number: $request, size: size_of::<$args>() } ),* ];
    };
}

macro_rules! controls {
    ($($args:ident => $command:ident),* $(,)?) => {
        $(
            // SAFETY: command and struct come from one header.
            unsafe impl Control for $args {
                const NAME: &'static str = stringify!($command);
                const COMMAND: u32 = $command;
            }
        )*

        /// Every control.
        pub static CONTROLS: &[Entry] =
            &[ $( Entry { name: stringify!($command), number: $command, size: size_of::<$args>() } ),* ];
    };
}

macro_rules! classes {
    ($($class:ident $(=> $args:ident)?),* $(,)?) => {
        /// Every class, with the struct its objects are created with.
        pub static CLASSES: &[Entry] =
            &[ $( Entry { name: stringify!($class), number: $class, size: 0 $( + size_of::<$args>() )? } ),* ];
    };
}

escapes! {
    nv_ioctl_card_info_t => NV_ESC_CARD_INFO,
    nv_ioctl_register_fd_t => NV_ESC_REGISTER_FD,
    nv_ioctl_alloc_os_event_t => NV_ESC_ALLOC_OS_EVENT,
    nv_ioctl_free_os_event_t => NV_ESC_FREE_OS_EVENT,
    nv_ioctl_status_code_t => NV_ESC_STATUS_CODE,
    nv_ioctl_rm_api_version_t => NV_ESC_CHECK_VERSION_STR,
    nv_ioctl_xfer_t => NV_ESC_IOCTL_XFER_CMD,
    nv_ioctl_sys_params_t => NV_ESC_SYS_PARAMS,
    nv_ioctl_wait_open_complete_t => NV_ESC_WAIT_OPEN_COMPLETE,
    nv_ioctl_nvos02_parameters_with_fd => NV_ESC_RM_ALLOC_MEMORY,
    NVOS00_PARAMETERS => NV_ESC_RM_FREE,
    NVOS54_PARAMETERS => NV_ESC_RM_CONTROL,
    NVOS21_PARAMETERS => NV_ESC_RM_ALLOC,
    NVOS64_PARAMETERS => NV_ESC_RM_ALLOC_ACCESS,
    NVOS55_PARAMETERS => NV_ESC_RM_DUP_OBJECT,
    nv_ioctl_nvos33_parameters_with_fd => NV_ESC_RM_MAP_MEMORY,
    NVOS34_PARAMETERS => NV_ESC_RM_UNMAP_MEMORY,
    NVOS41_PARAMETERS => NV_ESC_RM_GET_EVENT_DATA,
    NVOS46_PARAMETERS => NV_ESC_RM_MAP_MEMORY_DMA,
    NVOS47_PARAMETERS => NV_ESC_RM_UNMAP_MEMORY_DMA,
    NVOS56_PARAMETERS => NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO,
    NVOS30_PARAMETERS => NV_ESC_RM_IDLE_CHANNELS,
}

uvm! {
    UVM_INITIALIZE_PARAMS => UVM_INITIALIZE,
    UVM_MM_INITIALIZE_PARAMS => UVM_MM_INITIALIZE,
    UVM_REGISTER_GPU_PARAMS => UVM_REGISTER_GPU,
    UVM_UNREGISTER_GPU_PARAMS => UVM_UNREGISTER_GPU,
    UVM_REGISTER_GPU_VASPACE_PARAMS => UVM_REGISTER_GPU_VASPACE,
    UVM_UNREGISTER_GPU_VASPACE_PARAMS => UVM_UNREGISTER_GPU_VASPACE,
    UVM_REGISTER_CHANNEL_PARAMS => UVM_REGISTER_CHANNEL,
    UVM_UNREGISTER_CHANNEL_PARAMS => UVM_UNREGISTER_CHANNEL,
    UVM_CREATE_EXTERNAL_RANGE_PARAMS => UVM_CREATE_EXTERNAL_RANGE,
    UVM_MAP_EXTERNAL_ALLOCATION_PARAMS => UVM_MAP_EXTERNAL_ALLOCATION,
    UVM_UNMAP_EXTERNAL_PARAMS => UVM_UNMAP_EXTERNAL,
    UVM_FREE_PARAMS => UVM_FREE,
    UVM_PAGEABLE_MEM_ACCESS_PARAMS => UVM_PAGEABLE_MEM_ACCESS,
    UVM_ENABLE_PEER_ACCESS_PARAMS => UVM_ENABLE_PEER_ACCESS,
}

controls! {
    NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_V2_PARAMS => NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2,
    NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS => NV0000_CTRL_CMD_GPU_GET_PROBED_IDS,
    NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS => NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS,
    NV0000_CTRL_GPU_ATTACH_IDS_PARAMS => NV0000_CTRL_CMD_GPU_ATTACH_IDS,
    NV0000_CTRL_GPU_DETACH_IDS_PARAMS => NV0000_CTRL_CMD_GPU_DETACH_IDS,
    NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS => NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2,
    NV0000_CTRL_CLIENT_GET_ADDR_SPACE_TYPE_PARAMS => NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE,
    NV0080_CTRL_GPU_GET_CLASSLIST_PARAMS => NV0080_CTRL_CMD_GPU_GET_CLASSLIST,
    NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS => NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2,
    NV2080_CTRL_GPU_GET_GID_INFO_PARAMS => NV2080_CTRL_CMD_GPU_GET_GID_INFO,
    NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS => NV2080_CTRL_CMD_GPU_GET_NAME_STRING,
    NV2080_CTRL_GPU_GET_ENGINES_V2_PARAMS => NV2080_CTRL_CMD_GPU_GET_ENGINES_V2,
    NV2080_CTRL_GPU_GET_RECOVERY_ACTION_PARAMS => NV2080_CTRL_CMD_GPU_GET_RECOVERY_ACTION,
    NV2080_CTRL_GPU_QUERY_COMPUTE_MODE_RULES_PARAMS => NV2080_CTRL_CMD_GPU_QUERY_COMPUTE_MODE_RULES,
    NV2080_CTRL_MC_GET_ARCH_INFO_PARAMS => NV2080_CTRL_CMD_MC_GET_ARCH_INFO,
    NV2080_CTRL_GR_GET_INFO_PARAMS => NV2080_CTRL_CMD_GR_GET_INFO,
    NV2080_CTRL_GR_GET_INFO_V2_PARAMS => NV2080_CTRL_CMD_GR_GET_INFO_V2,
    NV2080_CTRL_GR_GET_GPC_MASK_PARAMS => NV2080_CTRL_CMD_GR_GET_GPC_MASK,
    NV2080_CTRL_GR_GET_TPC_MASK_PARAMS => NV2080_CTRL_CMD_GR_GET_TPC_MASK,
    NV2080_CTRL_GR_GET_GLOBAL_SM_ORDER_PARAMS => NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER,
    NV2080_CTRL_GR_GET_CTX_BUFFER_SIZE_PARAMS => NV2080_CTRL_CMD_GR_GET_CTX_BUFFER_SIZE,
    NV2080_CTRL_FB_GET_INFO_PARAMS => NV2080_CTRL_CMD_FB_GET_INFO,
    NV2080_CTRL_FB_GET_INFO_V2_PARAMS => NV2080_CTRL_CMD_FB_GET_INFO_V2,
    NV2080_CTRL_FB_FLUSH_GPU_CACHE_PARAMS => NV2080_CTRL_CMD_FB_FLUSH_GPU_CACHE,
    NV2080_CTRL_TIMER_GET_TIME_PARAMS => NV2080_CTRL_CMD_TIMER_GET_TIME,
    NV2080_CTRL_TIMER_GET_GPU_CPU_TIME_CORRELATION_INFO_PARAMS => NV2080_CTRL_CMD_TIMER_GET_GPU_CPU_TIME_CORRELATION_INFO,
    NV2080_CTRL_BUS_GET_INFO_PARAMS => NV2080_CTRL_CMD_BUS_GET_INFO,
    NV2080_CTRL_BUS_GET_INFO_V2_PARAMS => NV2080_CTRL_CMD_BUS_GET_INFO_V2,
    NV2080_CTRL_BUS_GET_PCI_INFO_PARAMS => NV2080_CTRL_CMD_BUS_GET_PCI_INFO,
    NV2080_CTRL_BUS_GET_PCI_BAR_INFO_PARAMS => NV2080_CTRL_CMD_BUS_GET_PCI_BAR_INFO,
    NV2080_CTRL_CE_GET_CAPS_V2_PARAMS => NV2080_CTRL_CMD_CE_GET_CAPS_V2,
    NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS => NV2080_CTRL_CMD_CE_GET_ALL_CAPS,
    NV2080_CTRL_PERF_BOOST_PARAMS => NV2080_CTRL_CMD_PERF_BOOST,
    NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS => NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS,
    NV2080_CTRL_FIFO_GET_INFO_PARAMS => NV2080_CTRL_CMD_FIFO_GET_INFO,
    NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS => NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION,
    NV2080_CTRL_RC_GET_WATCHDOG_INFO_PARAMS => NV2080_CTRL_CMD_RC_GET_WATCHDOG_INFO,
    NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS => NVA06C_CTRL_CMD_GPFIFO_SCHEDULE,
    NVA06C_CTRL_BIND_PARAMS => NVA06C_CTRL_CMD_BIND,
    NVA06C_CTRL_SET_TIMESLICE_PARAMS => NVA06C_CTRL_CMD_SET_TIMESLICE,
    NVA06C_CTRL_GET_TIMESLICE_PARAMS => NVA06C_CTRL_CMD_GET_TIMESLICE,
    NVA06C_CTRL_PREEMPT_PARAMS => NVA06C_CTRL_CMD_PREEMPT,
    NVA06F_CTRL_BIND_PARAMS => NVA06F_CTRL_CMD_BIND,
    NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS => NVA06F_CTRL_CMD_GPFIFO_SCHEDULE,
    NVA06F_CTRL_STOP_CHANNEL_PARAMS => NVA06F_CTRL_CMD_STOP_CHANNEL,
    NVA06F_CTRL_GET_CONTEXT_ID_PARAMS => NVA06F_CTRL_CMD_GET_CONTEXT_ID,
    NV906F_CTRL_CMD_RESET_CHANNEL_PARAMS => NV906F_CTRL_CMD_RESET_CHANNEL,
    NV906F_CTRL_GET_MMU_FAULT_INFO_PARAMS => NV906F_CTRL_CMD_GET_MMU_FAULT_INFO,
    NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS => NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN,
    NVC36F_CTRL_GPFIFO_SET_WORK_SUBMIT_TOKEN_NOTIF_INDEX_PARAMS => NVC36F_CTRL_CMD_GPFIFO_SET_WORK_SUBMIT_TOKEN_NOTIF_INDEX,
    NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS => NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES,
    NV83DE_CTRL_DEBUG_CLEAR_ALL_SM_ERROR_STATES_PARAMS => NV83DE_CTRL_CMD_DEBUG_CLEAR_ALL_SM_ERROR_STATES,
    NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_PARAMS => NV83DE_CTRL_CMD_DEBUG_READ_MMU_FAULT_INFO,
    NV83DE_CTRL_DEBUG_SET_EXCEPTION_MASK_PARAMS => NV83DE_CTRL_CMD_DEBUG_SET_EXCEPTION_MASK,
    NV83DE_CTRL_DEBUG_SET_MODE_MMU_DEBUG_PARAMS => NV83DE_CTRL_CMD_DEBUG_SET_MODE_MMU_DEBUG,
}

classes! {
    NV01_ROOT,
    NV01_ROOT_CLIENT,
    NV01_DEVICE_0 => NV0080_ALLOC_PARAMETERS,
    NV20_SUBDEVICE_0 => NV2080_ALLOC_PARAMETERS,
    NV01_EVENT_OS_EVENT => NV0005_ALLOC_PARAMETERS,
    NV01_MEMORY_SYSTEM => NV_MEMORY_ALLOCATION_PARAMS,
    NV01_MEMORY_LOCAL_USER => NV_MEMORY_ALLOCATION_PARAMS,
    NV01_MEMORY_SYSTEM_OS_DESCRIPTOR,
    NV01_MEMORY_VIRTUAL => NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS,
    NV50_MEMORY_VIRTUAL => NV_MEMORY_ALLOCATION_PARAMS,
    FERMI_VASPACE_A => NV_VASPACE_ALLOCATION_PARAMETERS,
    KEPLER_CHANNEL_GROUP_A => NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS,
    FERMI_CONTEXT_SHARE_A => NV_CTXSHARE_ALLOCATION_PARAMETERS,
    TURING_USERMODE_A,
    AMPERE_USERMODE_A,
    HOPPER_USERMODE_A => NV_HOPPER_USERMODE_A_PARAMS,
    BLACKWELL_USERMODE_A => NV_HOPPER_USERMODE_A_PARAMS,
    TURING_CHANNEL_GPFIFO_A => NV_CHANNEL_ALLOC_PARAMS,
    AMPERE_CHANNEL_GPFIFO_A => NV_CHANNEL_ALLOC_PARAMS,
    HOPPER_CHANNEL_GPFIFO_A => NV_CHANNEL_ALLOC_PARAMS,
    BLACKWELL_CHANNEL_GPFIFO_A => NV_CHANNEL_ALLOC_PARAMS,
    BLACKWELL_CHANNEL_GPFIFO_B => NV_CHANNEL_ALLOC_PARAMS,
    TURING_COMPUTE_A => NV_GR_ALLOCATION_PARAMETERS,
    AMPERE_COMPUTE_A => NV_GR_ALLOCATION_PARAMETERS,
    AMPERE_COMPUTE_B => NV_GR_ALLOCATION_PARAMETERS,
    ADA_COMPUTE_A => NV_GR_ALLOCATION_PARAMETERS,
    HOPPER_COMPUTE_A => NV_GR_ALLOCATION_PARAMETERS,
    BLACKWELL_COMPUTE_A => NV_GR_ALLOCATION_PARAMETERS,
    BLACKWELL_COMPUTE_B => NV_GR_ALLOCATION_PARAMETERS,
    TURING_DMA_COPY_A => NVB0B5_ALLOCATION_PARAMETERS,
    AMPERE_DMA_COPY_A => NVB0B5_ALLOCATION_PARAMETERS,
    AMPERE_DMA_COPY_B => NVB0B5_ALLOCATION_PARAMETERS,
    HOPPER_DMA_COPY_A => NVB0B5_ALLOCATION_PARAMETERS,
    BLACKWELL_DMA_COPY_A => NVB0B5_ALLOCATION_PARAMETERS,
    BLACKWELL_DMA_COPY_B => NVB0B5_ALLOCATION_PARAMETERS,
    GT200_DEBUGGER => NV83DE_ALLOC_PARAMETERS,
}

/// Structs that other driver releases lay out differently, under the same numbers.
macro_rules! variants {
    ($kind:ident $constant:ident: $($args:ident => $number:ident),* $(,)?) => { $(
        // SAFETY: number and struct come from one header of the release the struct is named after.
        unsafe impl $kind for $args {
            const NAME: &'static str = stringify!($number);
            const $constant: u32 = $number;
        }
    )* };
}

variants! {
    Control COMMAND:
    NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS_R535 => NV0000_CTRL_CMD_GPU_GET_PROBED_IDS,
    NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_V2_PARAMS_R535 => NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2,
    NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS_R535 => NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2,
    NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS_R550 => NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2,
    NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS_R570 => NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2,
    NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS_R535 => NV2080_CTRL_CMD_CE_GET_ALL_CAPS,
    NV2080_CTRL_FB_GET_INFO_V2_PARAMS_R535 => NV2080_CTRL_CMD_FB_GET_INFO_V2,
    NV2080_CTRL_FB_GET_INFO_V2_PARAMS_R550 => NV2080_CTRL_CMD_FB_GET_INFO_V2,
    NV2080_CTRL_FB_GET_INFO_V2_PARAMS_R570 => NV2080_CTRL_CMD_FB_GET_INFO_V2,
    NV2080_CTRL_GPU_GET_ENGINES_V2_PARAMS_R535 => NV2080_CTRL_CMD_GPU_GET_ENGINES_V2,
    NV2080_CTRL_GPU_GET_ENGINES_V2_PARAMS_R550 => NV2080_CTRL_CMD_GPU_GET_ENGINES_V2,
    NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS_R595 => NV2080_CTRL_CMD_GPU_GET_NAME_STRING,
    NV2080_CTRL_GR_GET_GLOBAL_SM_ORDER_PARAMS_R535 => NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER,
    NV2080_CTRL_GR_GET_INFO_V2_PARAMS_R535 => NV2080_CTRL_CMD_GR_GET_INFO_V2,
    NV2080_CTRL_GR_GET_INFO_V2_PARAMS_R550 => NV2080_CTRL_CMD_GR_GET_INFO_V2,
    NV2080_CTRL_GR_GET_INFO_V2_PARAMS_R595 => NV2080_CTRL_CMD_GR_GET_INFO_V2,
    NV2080_CTRL_GR_GET_INFO_V2_PARAMS_R610 => NV2080_CTRL_CMD_GR_GET_INFO_V2,
    NV906F_CTRL_CMD_RESET_CHANNEL_PARAMS_R535 => NV906F_CTRL_CMD_RESET_CHANNEL,
    NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS_R535 => NVA06C_CTRL_CMD_GPFIFO_SCHEDULE,
    NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS_R535 => NVA06F_CTRL_CMD_GPFIFO_SCHEDULE,
}

variants! {
    Uvm REQUEST:
    UVM_FREE_PARAMS_R595 => UVM_FREE,
    UVM_MAP_EXTERNAL_ALLOCATION_PARAMS_R535 => UVM_MAP_EXTERNAL_ALLOCATION,
    UVM_UNREGISTER_CHANNEL_PARAMS_R595 => UVM_UNREGISTER_CHANNEL,
}

/// Escapes carry the size of their struct, so a variant has a number of its own.
macro_rules! resized {
    ($($args:ident => $request:ident),* $(,)?) => { $(
        // SAFETY: number and struct come from one header of the release the struct is named after; the size
        // is its own.
        unsafe impl Escape for $args {
            const NAME: &'static str = stringify!($request);
            const REQUEST: u32 = $request & !(0x3fff << 16) | (size_of::<$args>() as u32) << 16;
        }
    )* };
}

resized! {
    NVOS46_PARAMETERS_R535 => NV_ESC_RM_MAP_MEMORY_DMA,
    NVOS47_PARAMETERS_R535 => NV_ESC_RM_UNMAP_MEMORY_DMA,
}
