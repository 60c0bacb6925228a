//! The versions of the structure.

pub use nv_hw::{QMD_ALIGN as ALIGN, QmdVersion as Version};
