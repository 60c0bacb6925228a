//! Status words: the result of a request, by name.

use std::fmt;

use crate::bindings::*;

/// The status word of a request.
///
/// Displays as words, name and number: `invalid argument (NV_ERR_INVALID_ARGUMENT, 0x1f)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Status(pub u32);

impl Status {
    /// As the driver's headers spell it; `None` for a number they do not have.
    pub fn name(self) -> Option<&'static str> {
        STATUSES.iter().find(|(_, status)| *status == self.0).map(|(name, _)| *name)
    }

    /// `Ok` for success and for warnings, which the driver numbers from 0x10000.
    ///
    /// # Errors
    /// The status itself.
    pub fn ok(self) -> Result<(), Self> {
        if self.0 == NV_OK || self.0 >= 0x1_0000 && self.0 != u32::MAX { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(name) = self.name() else { return write!(f, "unknown status {:#x}", self.0) };
        let words = ["NV_ERR_", "NV_WARN_", "NV_"].iter().find_map(|p| name.strip_prefix(p)).unwrap_or(name);
        write!(f, "{} ({name}, {:#x})", words.to_lowercase().replace('_', " "), self.0)
    }
}

impl std::error::Error for Status {}

macro_rules! statuses {
    ($($name:ident),* $(,)?) => {
        /// Every status word of driver 580.
        pub static STATUSES: &[(&str, u32)] = &[ $( (stringify!($name), $name) ),* ];
    };
}

statuses! {
    NV_OK,
    NV_ERR_BROKEN_FB,
    NV_ERR_BUFFER_TOO_SMALL,
    NV_ERR_BUSY_RETRY,
    NV_ERR_CALLBACK_NOT_SCHEDULED,
    NV_ERR_CARD_NOT_PRESENT,
    NV_ERR_CYCLE_DETECTED,
    NV_ERR_DMA_IN_USE,
    NV_ERR_DMA_MEM_NOT_LOCKED,
    NV_ERR_DMA_MEM_NOT_UNLOCKED,
    NV_ERR_DUAL_LINK_INUSE,
    NV_ERR_ECC_ERROR,
    NV_ERR_FIFO_BAD_ACCESS,
    NV_ERR_FREQ_NOT_SUPPORTED,
    NV_ERR_GPU_DMA_NOT_INITIALIZED,
    NV_ERR_GPU_IS_LOST,
    NV_ERR_GPU_IN_FULLCHIP_RESET,
    NV_ERR_GPU_NOT_FULL_POWER,
    NV_ERR_GPU_UUID_NOT_FOUND,
    NV_ERR_HOT_SWITCH,
    NV_ERR_I2C_ERROR,
    NV_ERR_I2C_SPEED_TOO_HIGH,
    NV_ERR_ILLEGAL_ACTION,
    NV_ERR_IN_USE,
    NV_ERR_INFLATE_COMPRESSED_DATA_FAILED,
    NV_ERR_INSERT_DUPLICATE_NAME,
    NV_ERR_INSUFFICIENT_RESOURCES,
    NV_ERR_INSUFFICIENT_PERMISSIONS,
    NV_ERR_INSUFFICIENT_POWER,
    NV_ERR_INVALID_ACCESS_TYPE,
    NV_ERR_INVALID_ADDRESS,
    NV_ERR_INVALID_ARGUMENT,
    NV_ERR_INVALID_BASE,
    NV_ERR_INVALID_CHANNEL,
    NV_ERR_INVALID_CLASS,
    NV_ERR_INVALID_CLIENT,
    NV_ERR_INVALID_COMMAND,
    NV_ERR_INVALID_DATA,
    NV_ERR_INVALID_DEVICE,
    NV_ERR_INVALID_DMA_SPECIFIER,
    NV_ERR_INVALID_EVENT,
    NV_ERR_INVALID_FLAGS,
    NV_ERR_INVALID_FUNCTION,
    NV_ERR_INVALID_HEAP,
    NV_ERR_INVALID_INDEX,
    NV_ERR_INVALID_IRQ_LEVEL,
    NV_ERR_INVALID_LIMIT,
    NV_ERR_INVALID_LOCK_STATE,
    NV_ERR_INVALID_METHOD,
    NV_ERR_INVALID_OBJECT,
    NV_ERR_INVALID_OBJECT_BUFFER,
    NV_ERR_INVALID_OBJECT_HANDLE,
    NV_ERR_INVALID_OBJECT_NEW,
    NV_ERR_INVALID_OBJECT_OLD,
    NV_ERR_INVALID_OBJECT_PARENT,
    NV_ERR_INVALID_OFFSET,
    NV_ERR_INVALID_OPERATION,
    NV_ERR_INVALID_OWNER,
    NV_ERR_INVALID_PARAM_STRUCT,
    NV_ERR_INVALID_PARAMETER,
    NV_ERR_INVALID_PATH,
    NV_ERR_INVALID_POINTER,
    NV_ERR_INVALID_REGISTRY_KEY,
    NV_ERR_INVALID_REQUEST,
    NV_ERR_INVALID_STATE,
    NV_ERR_INVALID_STRING_LENGTH,
    NV_ERR_INVALID_READ,
    NV_ERR_INVALID_WRITE,
    NV_ERR_INVALID_XLATE,
    NV_ERR_IRQ_NOT_FIRING,
    NV_ERR_IRQ_EDGE_TRIGGERED,
    NV_ERR_MEMORY_TRAINING_FAILED,
    NV_ERR_MISMATCHED_SLAVE,
    NV_ERR_MISMATCHED_TARGET,
    NV_ERR_MISSING_TABLE_ENTRY,
    NV_ERR_MODULE_LOAD_FAILED,
    NV_ERR_MORE_DATA_AVAILABLE,
    NV_ERR_MORE_PROCESSING_REQUIRED,
    NV_ERR_MULTIPLE_MEMORY_TYPES,
    NV_ERR_NO_FREE_FIFOS,
    NV_ERR_NO_INTR_PENDING,
    NV_ERR_NO_MEMORY,
    NV_ERR_NO_SUCH_DOMAIN,
    NV_ERR_NO_VALID_PATH,
    NV_ERR_NOT_COMPATIBLE,
    NV_ERR_NOT_READY,
    NV_ERR_NOT_SUPPORTED,
    NV_ERR_OBJECT_NOT_FOUND,
    NV_ERR_OBJECT_TYPE_MISMATCH,
    NV_ERR_OPERATING_SYSTEM,
    NV_ERR_OTHER_DEVICE_FOUND,
    NV_ERR_OUT_OF_RANGE,
    NV_ERR_OVERLAPPING_UVM_COMMIT,
    NV_ERR_PAGE_TABLE_NOT_AVAIL,
    NV_ERR_PID_NOT_FOUND,
    NV_ERR_PROTECTION_FAULT,
    NV_ERR_RC_ERROR,
    NV_ERR_REJECTED_VBIOS,
    NV_ERR_RESET_REQUIRED,
    NV_ERR_STATE_IN_USE,
    NV_ERR_SIGNAL_PENDING,
    NV_ERR_TIMEOUT,
    NV_ERR_TIMEOUT_RETRY,
    NV_ERR_TOO_MANY_PRIMARIES,
    NV_ERR_UVM_ADDRESS_IN_USE,
    NV_ERR_MAX_SESSION_LIMIT_REACHED,
    NV_ERR_LIB_RM_VERSION_MISMATCH,
    NV_ERR_PRIV_SEC_VIOLATION,
    NV_ERR_GPU_IN_DEBUG_MODE,
    NV_ERR_FEATURE_NOT_ENABLED,
    NV_ERR_RESOURCE_LOST,
    NV_ERR_PMU_NOT_READY,
    NV_ERR_FLCN_ERROR,
    NV_ERR_FATAL_ERROR,
    NV_ERR_MEMORY_ERROR,
    NV_ERR_INVALID_LICENSE,
    NV_ERR_NVLINK_INIT_ERROR,
    NV_ERR_NVLINK_MINION_ERROR,
    NV_ERR_NVLINK_CLOCK_ERROR,
    NV_ERR_NVLINK_TRAINING_ERROR,
    NV_ERR_NVLINK_CONFIGURATION_ERROR,
    NV_ERR_RISCV_ERROR,
    NV_ERR_FABRIC_MANAGER_NOT_PRESENT,
    NV_ERR_ALREADY_SIGNALLED,
    NV_ERR_QUEUE_TASK_SLOT_NOT_AVAILABLE,
    NV_ERR_KEY_ROTATION_IN_PROGRESS,
    NV_ERR_TEST_ONLY_CODE_NOT_ENABLED,
    NV_ERR_SECURE_BOOT_FAILED,
    NV_ERR_INSUFFICIENT_ZBC_ENTRY,
    NV_ERR_NVSWITCH_FABRIC_NOT_READY,
    NV_ERR_NVLINK_FABRIC_NOT_READY,
    NV_ERR_NVSWITCH_FABRIC_FAILURE,
    NV_ERR_NVLINK_FABRIC_FAILURE,
    NV_ERR_GPU_MEMORY_ONLINING_FAILURE,
    NV_ERR_REDUCTION_MANAGER_NOT_AVAILABLE,
    NV_ERR_THRESHOLD_CROSSED,
    NV_ERR_RESOURCE_RETIREMENT_ERROR,
    NV_ERR_FABRIC_STATE_OUT_OF_SYNC,
    NV_ERR_BUFFER_FULL,
    NV_ERR_BUFFER_EMPTY,
    NV_ERR_MC_FLA_OFFSET_TABLE_FULL,
    NV_ERR_DMA_XFER_FAILED,
    NV_ERR_OPERATION_ABORTED,
    NV_ERR_GENERIC,
    NV_WARN_HOT_SWITCH,
    NV_WARN_INCORRECT_PERFMON_DATA,
    NV_WARN_MISMATCHED_SLAVE,
    NV_WARN_MISMATCHED_TARGET,
    NV_WARN_MORE_PROCESSING_REQUIRED,
    NV_WARN_NOTHING_TO_DO,
    NV_WARN_NULL_OBJECT,
    NV_WARN_OUT_OF_RANGE,
    NV_WARN_THRESHOLD_CROSSED,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_reads_as_words() {
        assert_eq!(Status(0x1f).to_string(), "invalid argument (NV_ERR_INVALID_ARGUMENT, 0x1f)");
        assert_eq!(Status(0xdead).to_string(), "unknown status 0xdead");
    }

    #[test]
    fn warnings_are_not_errors() {
        assert!(Status(NV_OK).ok().is_ok());
        assert!(Status(NV_WARN_NOTHING_TO_DO).ok().is_ok());
        assert_eq!(Status(NV_ERR_NO_MEMORY).ok(), Err(Status(NV_ERR_NO_MEMORY)));
        assert_eq!(Status(u32::MAX).ok(), Err(Status(u32::MAX)));
    }
}
