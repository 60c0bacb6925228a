//! The named values of QMD fields, spelled as NVIDIA's `clc7c0qmd.h` and `clcbc0qmd.h` spell them.

use crate::field::Values;

pub(crate) const BOOL: Values = &[("FALSE", 0), ("TRUE", 1)];
pub(crate) const CWD_MEMBAR: Values = &[("L1_NONE", 0), ("L1_SYSMEMBAR", 1), ("L1_MEMBAR", 3)];
pub(crate) const CALL_LIMIT: Values = &[("_32", 0), ("NO_CHECK", 1)];
pub(crate) const SAMPLER: Values = &[("INDEPENDENTLY", 0), ("VIA_HEADER_INDEX", 1)];
pub(crate) const DEPENDENT_ACTION: Values = &[
    ("QMD_INCREMENT_PUT", 0),
    ("QMD_SCHEDULE", 1),
    ("QMD_INVALIDATE_COPY_SCHEDULE", 3),
    ("QMD_DECREMENT_DEPENDENCE", 4),
];
pub(crate) const RELEASE_MEMBAR: Values = &[("FE_NONE", 0), ("FE_SYSMEMBAR", 1)];
pub(crate) const REDUCTION_OP: Values = &[
    ("RED_ADD", 0),
    ("RED_MIN", 1),
    ("RED_MAX", 2),
    ("RED_INC", 3),
    ("RED_DEC", 4),
    ("RED_AND", 5),
    ("RED_OR", 6),
    ("RED_XOR", 7),
];
pub(crate) const REDUCTION_FORMAT: Values = &[("UNSIGNED", 0), ("SIGNED", 1)];
pub(crate) const TRAP: Values =
    &[("TRAP_NONE", 0), ("TRAP_UNCONDITIONAL", 1), ("TRAP_CONDITIONAL", 2), ("TRAP_CONDITIONAL_EXT", 3)];
pub(crate) const STRUCTURE_SIZE: Values =
    &[("SEMAPHORE_FOUR_WORDS", 0), ("SEMAPHORE_ONE_WORD", 1), ("SEMAPHORE_TWO_WORDS", 2)];
// "PREFTECH" is how both headers spell it.
pub(crate) const PROGRAM_PREFETCH: Values = &[("PREFETCH_LAUNCH", 0), ("PREFTECH_POST", 1)];
pub(crate) const QMD_TYPE: Values = &[
    ("QUEUE", 0),
    ("GRID_NULL", 1),
    ("GRID_CTA", 2),
    ("GRID_GPC_CGA", 3),
    ("GRID_GPU_CGA", 4),
    ("GRID_GPU_GPC_CGA", 5),
];
pub(crate) const CONSTANT_PREFETCH: Values =
    &[("PREFETCH_NONE", 0), ("PREFETCH_PRE", 1), ("PREFETCH_POST", 2)];
pub(crate) const CGA_DISTRIBUTION: Values = &[("LOAD_BALANCING", 0), ("MULTI_CAST", 1)];
