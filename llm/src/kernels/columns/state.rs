//! The description of a step's columns, in device memory.

use ptxgen::{Cache, Global, Kernel, Pointer, Reg, Target};

use crate::kernels::links::after_previous;

/// Words of a column: token, position, number of its page table, padding.
pub const WORDS: u32 = 4;
/// The position of a column that the step leaves out.
pub const NONE: u32 = u32::MAX;

/// A column of the step.
#[derive(Clone, Copy)]
pub(super) struct Column {
    pub number: Reg<u32>,
    pub position: Reg<u32>,
    pub table: Reg<u32>,
}

impl Column {
    /// Column `number`, [`after_previous`]. What is loaded before its position is used is on its way meanwhile.
    pub fn request(k: &Kernel, target: Target, state: Pointer<Global, u32>, number: Reg<u32>) -> Self {
        after_previous(k, target);
        let at = k.at_stride(state, number, 4 * WORDS);
        let [_, position, table, _] = k.load_n::<4, _, _>(at, Cache::Default);
        Self { number, position, table }
    }

    /// Ends a block of a column that is left out.
    pub fn end_if_left_out(self, k: &Kernel) {
        k.exit_if(k.eq(self.position, NONE));
    }
}

/// [`Column::request`]; a block of a column that is left out ends here.
pub(super) fn column(k: &Kernel, target: Target, state: Pointer<Global, u32>, number: Reg<u32>) -> Column {
    let column = Column::request(k, target, state, number);
    column.end_if_left_out(k);
    column
}

/// Page `page` of the column: its number in the cache.
pub(super) fn page(
    k: &Kernel,
    tables: Pointer<Global, u32>,
    pitch: Reg<u32>,
    column: Column,
    page: Reg<u32>,
) -> Reg<u32> {
    k.load(k.at(k.row(tables, column.table, pitch), page))
}
