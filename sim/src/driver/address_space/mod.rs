//! Address spaces (`vm_gk20a`): virtual-address allocators, reserved areas, mappings.

mod area;
mod buddy;
mod kernel_range;
mod map;
pub(crate) mod mapping;
pub(crate) mod remap;
mod reserve;
pub(crate) mod space;
mod withdrawn;
