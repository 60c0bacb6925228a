//! The GPUs a QMD can be built for, and their limits.

pub use nv_hw::Sm as Target;

/// Size of the per-block area CUDA keeps for itself in shared memory, in bytes.
pub const RESERVED_SHARED_BYTES: u32 = 0x400;

/// The code of a carve-out in the `*_SM_CONFIG_SHARED_MEM_SIZE` fields.
pub(crate) const fn carve_out_code(kib: u32) -> u32 {
    kib / 4 + 1
}

/// The carve-out in KiB that a code stands for; `None` for 0, which stands for none.
pub(crate) const fn carve_out_kib(code: u32) -> Option<u32> {
    match code.checked_sub(1) {
        Some(quarter) => Some(quarter * 4),
        None => None,
    }
}
