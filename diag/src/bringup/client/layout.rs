//! The address space as the client and hcq both lay it out.

/// First address of the user range.
pub const VA_START: u64 = 1 << 32;
/// End of the user range; the driver's own 4 GiB follow, below 2^40.
pub const VA_END: u64 = 0xff_0000_0000;
/// First address for buffers.
pub const ARENA: u64 = 0x10_0000_0000;
/// Base of the shared-memory window.
pub const SHARED_WINDOW: u64 = 0xfe_0000_0000;
/// Base of the local-memory window, where the arena ends.
pub const LOCAL_WINDOW: u64 = 0xfd_0000_0000;
/// Addresses kept free from each window's base on.
pub const WINDOW_ROOM: u64 = 1 << 30;
/// Pages of memory and of the GPU's mappings.
pub const PAGE: u64 = 4096;
