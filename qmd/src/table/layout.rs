//! The interface of builder and decoder to the tables: where each launch parameter of a version sits.

use crate::table::field::{Field, MAX_WORDS};

/// An address split over a lower and an upper field, stored without its lowest `shift` bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub lower: Field,
    pub upper: Option<Field>,
    pub shift: u8,
}

impl Address {
    pub(crate) const fn new(lower: Field, upper: Option<Field>, shift: u8) -> Self {
        assert!(lower.width() == 32, "the lower part of an address is a whole word");
        Self { lower, upper, shift }
    }

    /// Number of address bits the fields can hold.
    pub(crate) const fn reach(self) -> u8 {
        let upper = match self.upper {
            Some(field) => field.width(),
            None => 0,
        };
        32 + upper + self.shift
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ConstantBufferFields {
    pub valid: Field,
    pub address: Address,
    pub size: Field,
    pub invalidate: Field,
    /// One bit on v3.0 (after the launch), a choice on v4.0.
    pub prefetch: Field,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ReleaseFields {
    pub enable: Field,
    pub address: Address,
    pub structure_size: Field,
    pub membar: Field,
    pub reduction_enable: Field,
    pub reduction_op: Field,
    pub reduction_format: Field,
    pub trap: Field,
    pub payload_64: Field,
    pub payload: [Field; 2],
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DependentFields {
    pub enable: Field,
    pub action: Field,
    pub prefetch: Field,
    /// `None` where the header names no pointer.
    pub pointer: Option<Address>,
}

/// The fields of one version by their meaning.
#[derive(Debug)]
pub(crate) struct Layout {
    pub fields: &'static [Field],
    pub named: [u32; MAX_WORDS],
    pub major: Field,
    pub minor: Field,
    pub group: Field,
    pub grid: [Field; 3],
    pub resume: [Field; 3],
    pub block: [Field; 3],
    pub registers: Field,
    pub barriers: Field,
    pub shared: Field,
    pub carve_out_min: Field,
    pub carve_out_target: Field,
    pub carve_out_max: Field,
    pub local_low: Field,
    pub local_high: Field,
    pub sass_version: Field,
    pub program: Address,
    pub program_prefetch: Address,
    pub program_prefetch_size: Field,
    pub call_limit: Field,
    pub sampler_index: Field,
    pub membar: Field,
    /// v4.0 alone has it.
    pub task_chasing: Option<Field>,
    /// In the order of the bits of [`Invalidate`](crate::Invalidate).
    pub invalidate: [Field; 6],
    pub sequential: Field,
    pub dependence_counter: Field,
    pub require_scheduling: Field,
    pub debug_id: [Field; 2],
    pub constant_buffers: [ConstantBufferFields; 8],
    pub releases: [ReleaseFields; 3],
    pub dependents: [DependentFields; 2],
    /// Fields every launch of this version sets.
    pub defaults: &'static [(Field, u32)],
    /// The field and the value that make the QMD a queue instead of a grid.
    pub is_queue: (Field, u32),
}
