//! Error codes, interrupt bits and MMU faults, by number; generated from the committed table.
//!
//! Each list is a module: a constant for each number, `NAMES` with all, and the texts that drivers print for
//! them, for [`name`](crate::name), [`number`](crate::number) and [`bit_names`](crate::bit_names). The
//! meaning of a code for the author of a program is not here: `nvdiag esr` explains that.
//!
//! | what | module | source |
//! | --- | --- | --- |
//! | warp and SM errors | [`warp_esr`], [`global_esr`], [`hww_esr`] | register headers of nvgpu, L4T r36.4.3; `of Fermi` and texts of Xid 13 from nouveau and the desktop driver |
//! | MMU faults | [`fault_type`], [`access_type`], [`hub_client`], [`gpc_client`] | `fb_mmu` and `pfault` headers of nvgpu and of the open GPU kernel modules |
//! | pushbuffer unit, copy engine | [`pbdma_intr_0`], [`pbdma_intr_1`], [`ce_intr`], [`ce_launch_error`] | register headers of nvgpu, L4T r36.4.3 |
//! | front end | [`fe_esr`], [`mme_esr`], [`memfmt_esr`], [`class_error`] | NVIDIA's manuals of GA100, inferred for ga10b; class errors from envytools |
//! | drivers | [`notifier`], [`xid`], [`pri_error`] | nvgpu, L4T r36.4.3; open GPU kernel modules 595.45.04 |
//!
//! ```
//! use nv_hw::fault::{fault_type, warp_esr};
//!
//! assert_eq!(nv_hw::name(warp_esr::NAMES, 0x17), Some("MMU_FAULT"));
//! assert_eq!(nv_hw::number(fault_type::TEXTS, "write, ro violation"), Some(fault_type::RO_VIOLATION));
//! ```

mod driver;
mod front_end;
mod host;
pub mod hww_esr;
mod mmu;
mod sm;

pub use driver::{notifier, pri_error, xid};
pub use front_end::{class_error, fe_esr, memfmt_esr, mme_esr};
pub use host::{ce_intr, ce_launch_error, pbdma_intr_0, pbdma_intr_1};
pub use mmu::{access_type, fault_type, gpc_client, hub_client};
pub use sm::{global_esr, warp_esr};
