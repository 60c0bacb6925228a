//! Constant bank 0: launch geometry, windows and parameters, where compiled code expects them.
//!
//! Offsets are fixed by the compiler for each SM generation (read back from probe kernels;
//! `command-submission` notes in docs/).

use nv_hw::{Encoding, Sm};

use crate::address::GpuVa;
use crate::shape::LaunchConfig;

/// Start of the stack pointer of compiled code, in a 16 MiB window.
pub(crate) const STACK_START: u32 = 0x00ff_fdc0;
/// Shared memory that CUDA keeps for itself in each block.
const RESERVED_SHARED: u32 = 0x400;

/// Offset of `%gridid`, 64 bits.
const GRID_ID: usize = 0x30;

/// Offsets of the words that differ between SM generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BankLayout {
    /// `%nsmid`.
    sm_count: usize,
    /// `%total_smem_size` counts it.
    reserved_shared: Option<usize>,
    /// End of shared memory, reserved part and dynamic part.
    shared_top: Option<usize>,
    /// First parameter, where the cubin does not say.
    pub parameters: u32,
}

const SM_8X: BankLayout =
    BankLayout { sm_count: 0x10c, reserved_shared: Some(0x114), shared_top: None, parameters: 0x160 };
const SM_90: BankLayout =
    BankLayout { sm_count: 0x10c, reserved_shared: Some(0x114), shared_top: Some(0x13c), parameters: 0x210 };

impl BankLayout {
    /// The layout for an SM number, e.g. 87.
    pub fn of_sm(sm: u32) -> Option<Self> {
        Some(match Sm::from_sm(sm)?.encoding() {
            Encoding::Sm8x => SM_8X,
            Encoding::Sm9x => SM_90,
        })
    }
}

/// The content of the bank besides the parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BankContext {
    pub layout: BankLayout,
    pub shared_window: GpuVa,
    pub local_window: GpuVa,
    pub sm_count: u32,
}

/// Offset of the grid's blocks along x, y and z.
const GRID: usize = 0xc;

/// Writes `value` at `offset`, where the bank is long enough: a damaged cubin may put parameters anywhere.
fn put(bank: &mut [u8], offset: usize, value: u32) {
    if let Some(place) = bank.get_mut(offset..offset + 4) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

/// Writes the grid of a launch.
pub(crate) fn set_grid(bank: &mut [u8], grid: [u32; 3]) {
    grid.into_iter().enumerate().for_each(|(i, blocks)| put(bank, GRID + 4 * i, blocks));
}

/// Writes the number of a launch.
pub(crate) fn set_grid_id(bank: &mut [u8], id: u64) {
    if let Some(place) = bank.get_mut(GRID_ID..GRID_ID + 8) {
        place.copy_from_slice(&id.to_le_bytes());
    }
}

impl BankContext {
    /// The bank's first `base` bytes, those before the parameters: zero where nothing is said here.
    pub fn content(&self, config: &LaunchConfig, base: u32) -> Vec<u8> {
        let mut bank = vec![0; base as usize];
        let mut word = |offset: usize, value: u32| put(&mut bank, offset, value);
        for i in 0..3 {
            word(4 * i, config.block[i]);
        }
        word(0x18, self.shared_window.lower());
        word(0x1c, self.shared_window.upper());
        word(0x20, self.local_window.lower());
        word(0x24, self.local_window.upper());
        word(0x28, STACK_START);
        word(0x2c, config.dynamic_shared);
        word(self.layout.sm_count, self.sm_count);
        if let Some(offset) = self.layout.reserved_shared {
            word(offset, RESERVED_SHARED);
        }
        if let Some(offset) = self.layout.shared_top {
            word(offset, RESERVED_SHARED.saturating_add(config.dynamic_shared));
        }
        set_grid(&mut bank, config.grid);
        bank
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lie_where_compiled_code_reads_them() {
        let context = BankContext {
            layout: SM_8X,
            shared_window: GpuVa::inside(0xfe_0000_0000),
            local_window: GpuVa::inside(0xfd_0000_0000),
            sm_count: 16,
        };
        let config = LaunchConfig::new((7, 5, 3), (32, 4, 2)).with_dynamic_shared(256);
        let mut bank = context.content(&config, 0x160);
        set_grid_id(&mut bank, 9 | 8 << 32);
        let word = |at: usize| u32::from_le_bytes(bank[at..at + 4].try_into().unwrap());
        assert_eq!([0, 4, 8, 12, 16, 20].map(word), [32, 4, 2, 7, 5, 3]);
        assert_eq!((word(0x18), word(0x1c), word(0x20), word(0x24)), (0, 0xfe, 0, 0xfd));
        assert_eq!((word(0x28), word(0x2c), word(0x30), word(0x34)), (0xff_fdc0, 256, 9, 8));
        assert_eq!((word(0x10c), word(0x114), word(0x118), word(0x11c)), (16, 0x400, 0, 0));
        assert_eq!(bank.len(), 0x160);
        set_grid(&mut bank, [9, 8, 7]);
        let word = |at: usize| u32::from_le_bytes(bank[at..at + 4].try_into().unwrap());
        assert_eq!([0, 4, 8, 12, 16, 20].map(word), [32, 4, 2, 9, 8, 7]);
        assert_eq!(context.content(&config, 2), [0; 2], "no place for a word");
    }

    #[test]
    fn unknown_parts_have_no_layout() {
        assert_eq!(BankLayout::of_sm(87).map(|l| l.parameters), Some(0x160));
        assert_eq!(BankLayout::of_sm(90).map(|l| l.parameters), Some(0x210));
        assert_eq!(BankLayout::of_sm(120), None);
    }
}
