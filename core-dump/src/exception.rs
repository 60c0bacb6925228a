//! Reasons for which an SM stops: the numbers of `CUDBGException_t` in `cudadebugger.h` of cuda-gdb.

use std::fmt;

/// The exception of an SM or a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Exception(pub u32);

macro_rules! exceptions {
    ($($name:ident = $number:literal, $words:literal;)*) => {
        impl Exception {
            $(#[doc = concat!("The exception ", $number, ": ", $words, ".")]
            pub const $name: Self = Self($number);)*

            /// Its name, as cuda-gdb's manual has it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($number => $words,)*
                    _ => "unknown exception",
                }
            }
        }
    };
}

exceptions! {
    NONE = 0, "none";
    LANE_ILLEGAL_ADDRESS = 1, "lane illegal address";
    LANE_USER_STACK_OVERFLOW = 2, "lane user stack overflow";
    DEVICE_HARDWARE_STACK_OVERFLOW = 3, "device hardware stack overflow";
    WARP_ILLEGAL_INSTRUCTION = 4, "warp illegal instruction";
    WARP_OUT_OF_RANGE_ADDRESS = 5, "warp out-of-range address";
    WARP_MISALIGNED_ADDRESS = 6, "warp misaligned address";
    WARP_INVALID_ADDRESS_SPACE = 7, "warp invalid address space";
    WARP_INVALID_PC = 8, "warp invalid pc";
    WARP_HARDWARE_STACK_OVERFLOW = 9, "warp hardware stack overflow";
    DEVICE_ILLEGAL_ADDRESS = 10, "device illegal address";
    LANE_MISALIGNED_ADDRESS = 11, "lane misaligned address";
    WARP_ASSERT = 12, "warp assert";
    LANE_SYSCALL_ERROR = 13, "lane syscall error";
    WARP_ILLEGAL_ADDRESS = 14, "warp illegal address";
    LANE_NONMIGRATABLE_ATOMSYS = 15, "lane non-migratable system atomic";
    LANE_INVALID_ATOMSYS = 16, "lane invalid system atomic";
    CLUSTER_OUT_OF_RANGE_ADDRESS = 17, "cluster out-of-range address";
    CLUSTER_BLOCK_NOT_PRESENT = 18, "cluster target block not present";
    WARP_STACK_CANARY = 19, "warp stack canary";
    WARP_TMEM_ACCESS_CHECK = 20, "warp tensor memory access check";
    WARP_TMEM_LEAK = 21, "warp tensor memory leak";
    UNKNOWN = 0xffff_ffff, "unknown exception";
}

impl Exception {
    /// Whether there is none.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
