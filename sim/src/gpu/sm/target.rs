//! Targets of lowering.

use sass::Arch;

use crate::defects::Defects;
use crate::gpu::sm::lanes::Isa;

/// Properties that lowering needs besides the word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub arch: Arch,
    pub isa: Isa,
    pub registers: u32,
    pub barriers: u32,
    pub exact_mma: bool,
    /// Units that do not work.
    pub defects: Defects,
}
