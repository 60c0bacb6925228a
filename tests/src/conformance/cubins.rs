//! Committed modules, for the ga10b and for Hopper.

/// The cubins of a committed module, for the ga10b and for Hopper.
macro_rules! cubins {
    ($path:expr) => {
        [
            include_bytes!(concat!($path, ".sm_87.cubin")).as_slice(),
            include_bytes!(concat!($path, ".sm_90.cubin")).as_slice(),
        ]
    };
}
pub(crate) use cubins;
