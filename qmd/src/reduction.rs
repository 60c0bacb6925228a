//! Atomic operations of releases.

/// An atomic operation of a release, in place of a plain store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReductionOp {
    /// Adds the payload.
    Add,
    /// Keeps the smaller value.
    Min,
    /// Keeps the larger value.
    Max,
    /// Adds one; starts again at 0 after reaching the payload.
    Inc,
    /// Subtracts one; starts again at the payload after 0.
    Dec,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
}

impl ReductionOp {
    /// All of them, in the order of their numbers (which is not the order of the host's `SEM_EXECUTE`).
    pub const ALL: [Self; 8] =
        [Self::Add, Self::Min, Self::Max, Self::Inc, Self::Dec, Self::And, Self::Or, Self::Xor];
}

/// Operation by which a release combines its payload with the value in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reduction {
    /// The operation.
    pub op: ReductionOp,
    /// Whether values are signed.
    pub signed: bool,
}
