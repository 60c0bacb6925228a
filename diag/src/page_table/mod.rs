//! GPU page tables of ga10b and the other chips with version-2 tables (Pascal to Ada), read from physical memory.
//!
//! Formats: open-gpu-doc `dev_mmu` (Turing) and what nvgpu writes on ga10b. Five levels: three of directories, one whose
//! entries name a table of 64 KiB pages and one of 4 KiB pages, and the pages. [`walk`] follows them; what makes no sense
//! is reported and not followed.

pub(crate) mod format;
pub(crate) mod walk;

pub use format::{
    Aperture, Entry, Leaf, Level, PhysicalMemory, VA_BITS, decode_big_half, decode_pde, decode_pte,
    instance_block_root, kind_name,
};
pub use walk::{Anomaly, Directory, Run, Walk, walk};
