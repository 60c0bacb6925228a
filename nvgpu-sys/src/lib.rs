//! ABI of the Tegra nvgpu and nvmap kernel drivers, and the one seam through which it is called.

mod ioctl;
mod sys;

pub use ioctl::{Ioctl, IoctlError, call};
pub use sys::{Linux, Sys};
