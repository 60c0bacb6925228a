//! Encodes pushbuffer words: method headers, and the few command groups a queue is made of.
//!
//! Headers: SEC_OP in bits 31:29, count or immediate in 28:16, subchannel in 15:13, method offset / 4 in 11:0
//! (NVIDIA's `dev_ram` manual). The methods are Ampere's; Hopper's classes have them at the same offsets.

use nv_hw::class::c7b5::{self, LAUNCH_DMA};
use nv_hw::class::c7c0::{self, INVALIDATE_SHADER_CACHES_NO_WFI as CACHES};
use nv_hw::class::c76f::{self, SEM_EXECUTE as EXECUTE};
use nv_hw::class::subchannel::{COMPUTE, COPY};

use crate::address::GpuVa;
use crate::info::Classes;

/// Non-pipelined transfer, flush, pitch source and destination.
const LINEAR_FLUSHED: u32 = LAUNCH_DMA::DATA_TRANSFER_TYPE
    .with(LAUNCH_DMA::DATA_TRANSFER_TYPE::NON_PIPELINED)
    | LAUNCH_DMA::FLUSH_ENABLE.mask()
    | LAUNCH_DMA::SRC_MEMORY_LAYOUT.mask()
    | LAUNCH_DMA::DST_MEMORY_LAYOUT.mask();

/// Wait until the 64-bit value is past the payload (signed difference), letting other groups run.
const ACQUIRE_64: u32 = EXECUTE::OPERATION.with(EXECUTE::OPERATION::ACQ_CIRC_GEQ)
    | EXECUTE::ACQUIRE_SWITCH_TSG.mask()
    | EXECUTE::PAYLOAD_SIZE.mask();
/// 64-bit release with timestamp, after the engine is idle and a system membar.
const RELEASE_64_WFI: u32 = EXECUTE::OPERATION.with(EXECUTE::OPERATION::RELEASE)
    | EXECUTE::RELEASE_WFI.mask()
    | EXECUTE::PAYLOAD_SIZE.mask()
    | EXECUTE::RELEASE_TIMESTAMP.mask();

/// Global data and constant caches.
const DATA_CACHES: u32 = CACHES::GLOBAL_DATA.mask() | CACHES::CONSTANT.mask();
/// Instruction, global data and constant caches.
const ALL_SHADER_CACHES: u32 = CACHES::INSTRUCTION.mask() | DATA_CACHES;

/// Most bytes of one copy-engine launch: a line's length is 32 bits; half of that keeps counts positive
/// everywhere.
const MAX_COPY: u64 = 1 << 31;

/// Address of local memory, and its size for a cluster of SMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scratch {
    /// Base of the scratch memory.
    pub base: GpuVa,
    /// Bytes for each texture processing cluster.
    pub per_tpc: u64,
}

/// Words of a pushbuffer under construction.
#[derive(Debug, Default)]
pub(crate) struct Pushbuffer {
    words: Vec<u32>,
    /// Launches are scheduled by `PREFETCH_SCHEDULE`, as others have run them on an Orin.
    pub plain_launches: bool,
}

impl Pushbuffer {
    /// The words so far.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Number of words so far.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Adds words that were encoded before.
    pub fn extend(&mut self, words: &[u32]) {
        self.words.extend_from_slice(words);
    }

    /// Adds no-operations up to a multiple of `unit` words.
    pub fn pad(&mut self, unit: usize) {
        self.words.resize(self.words.len().next_multiple_of(unit), 0);
    }

    /// Removes all words but the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.words.truncate(len);
    }

    /// Removes all words and keeps the memory.
    pub fn clear(&mut self) {
        self.words.clear();
    }

    /// `data[i]` goes to `method + 4 * i`.
    fn inc(&mut self, subchannel: u32, method: u32, data: &[u32]) {
        self.words.push(1 << 29 | (data.len() as u32) << 16 | subchannel << 13 | method >> 2);
        self.words.extend_from_slice(data);
    }

    /// `value`, at most 13 bits, goes to `method`, without a data word.
    fn immediate(&mut self, subchannel: u32, method: u32, value: u32) {
        debug_assert!(value < 1 << 13);
        self.words.push(4 << 29 | value << 16 | subchannel << 13 | method >> 2);
    }

    fn semaphore(&mut self, at: GpuVa, payload: u64, execute: u32) {
        let words = [at.lower(), at.upper(), payload as u32, (payload >> 32) as u32, execute];
        self.inc(0, c76f::SEM_ADDR_LO, &words);
    }

    /// The channel waits until the 64-bit value at `at` has reached `value`.
    pub fn acquire(&mut self, at: GpuVa, value: u64) {
        self.semaphore(at, value, ACQUIRE_64);
    }

    /// When all earlier work is done and visible to the CPU: writes `value` and, 8 bytes on, the time in ns.
    pub fn release(&mut self, at: GpuVa, value: u64) {
        self.semaphore(at, value, RELEASE_64_WFI);
    }

    /// The classes a compute channel talks to, and its memory windows.
    pub fn set_up_compute(&mut self, classes: &Classes, shared_window: GpuVa, local_window: GpuVa) {
        self.inc(COMPUTE, c76f::SET_OBJECT, &[classes.compute]);
        self.inc(COPY, c76f::SET_OBJECT, &[classes.copy]);
        self.inc(
            COMPUTE,
            c7c0::SET_SHADER_LOCAL_MEMORY_WINDOW_A,
            &[local_window.upper(), local_window.lower()],
        );
        self.inc(
            COMPUTE,
            c7c0::SET_SHADER_SHARED_MEMORY_WINDOW_A,
            &[shared_window.upper(), shared_window.lower()],
        );
        self.immediate(COMPUTE, c7c0::INVALIDATE_SKED_CACHES, 0);
    }

    /// The class a copy channel talks to.
    pub fn set_up_copy(&mut self, classes: &Classes) {
        self.inc(COPY, c76f::SET_OBJECT, &[classes.copy]);
    }

    /// Scratch memory for kernels that have a stack frame; running kernels must be done with the old one.
    pub fn set_scratch(&mut self, scratch: &Scratch) {
        self.inc(COMPUTE, c7c0::SET_SHADER_LOCAL_MEMORY_A, &[scratch.base.upper(), scratch.base.lower()]);
        let size = [(scratch.per_tpc >> 32) as u32, scratch.per_tpc as u32, 0xff];
        self.inc(COMPUTE, c7c0::SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A, &size);
    }

    /// Schedules the QMD at `qmd`, 256-byte aligned and below 2^40.
    pub fn launch(&mut self, qmd: GpuVa) {
        self.inc(COMPUTE, c7c0::SEND_PCAS_A, &[(qmd.raw() >> 8) as u32]);
        use c7c0::SEND_SIGNALING_PCAS2_B::PCAS_ACTION as Action;
        let action = match self.plain_launches {
            true => Action::PREFETCH_SCHEDULE,
            false => Action::INVALIDATE_PREFETCH_COPY_SCHEDULE,
        };
        self.immediate(COMPUTE, c7c0::SEND_SIGNALING_PCAS2_B, action);
    }

    /// Waits for all grids, then drops what SMs hold of data and constants.
    pub fn wait_for_grids(&mut self) {
        self.immediate(COMPUTE, c7c0::WAIT_FOR_IDLE, 0);
        self.inc(COMPUTE, CACHES, &[DATA_CACHES]);
    }

    /// Drops what SMs hold of code, data and constants.
    pub fn invalidate_caches(&mut self) {
        self.inc(COMPUTE, CACHES, &[ALL_SHADER_CACHES]);
    }

    /// The host waits until the engine it last sent methods to is idle.
    pub fn wait_for_engine(&mut self) {
        self.inc(0, c76f::WFI, &[0]);
    }

    /// Copies `len` bytes; earlier copies of the channel are done before, and the result is flushed.
    pub fn copy(&mut self, source: GpuVa, destination: GpuVa, len: u64) {
        let mut at = 0;
        while at < len {
            let part = (len - at).min(MAX_COPY);
            let (from, to) = (GpuVa::inside(source.raw() + at), GpuVa::inside(destination.raw() + at));
            self.inc(COPY, c7b5::OFFSET_IN_UPPER, &[from.upper(), from.lower(), to.upper(), to.lower()]);
            self.inc(COPY, c7b5::LINE_LENGTH_IN, &[part as u32]);
            self.inc(COPY, LAUNCH_DMA, &[LINEAR_FLUSHED]);
            at += part;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(record: impl FnOnce(&mut Pushbuffer)) -> Vec<u32> {
        let mut p = Pushbuffer::default();
        record(&mut p);
        p.words
    }

    const CLASSES: Classes = Classes { compute: 0xc7c0, copy: 0xc7b5, channel: 0xc76f };

    #[test]
    fn headers_equal_the_golden_values() {
        let va = GpuVa::inside(0x12_3456_7800);
        assert_eq!(words(|p| p.launch(va)), [0x2001_20ad, 0x1234_5678, 0x800a_20b0]);
        assert_eq!(
            words(|p| p.acquire(GpuVa::inside(0x10_0000_1000), 5)),
            [0x2005_0017, 0x1000, 0x10, 5, 0, 0x0100_1003]
        );
        assert_eq!(
            words(|p| p.release(GpuVa::inside(0x10_0000_1000), 6)),
            [0x2005_0017, 0x1000, 0x10, 6, 0, 0x0310_0001]
        );
        assert_eq!(words(Pushbuffer::invalidate_caches), [0x2001_25a6, 0x1011]);
        assert_eq!(words(Pushbuffer::wait_for_grids), [0x8000_2044, 0x2001_25a6, 0x1010]);
        assert_eq!(words(Pushbuffer::wait_for_engine), [0x2001_001e, 0]);
        assert_eq!(words(|p| p.set_up_copy(&CLASSES)), [0x2001_8000, 0xc7b5]);
    }

    #[test]
    fn a_compute_channel_is_told_both_windows() {
        let shared = GpuVa::inside(0xfe_0000_0000);
        let local = GpuVa::inside(0xfd_0000_0000);
        let got = words(|p| p.set_up_compute(&CLASSES, shared, local));
        let want = [
            0x2001_2000,
            0xc7c0,
            0x2001_8000,
            0xc7b5,
            0x2002_21ec,
            0xfd,
            0,
            0x2002_20a8,
            0xfe,
            0,
            0x8000_20a6,
        ];
        assert_eq!(got, want);
        let scratch = Scratch { base: GpuVa::inside(0x10_0020_0000), per_tpc: 0x1b_0000 };
        let want = [0x2002_21e4, 0x10, 0x20_0000, 0x2003_20b9, 0, 0x1b_0000, 0xff];
        assert_eq!(words(|p| p.set_scratch(&scratch)), want);
    }

    #[test]
    fn long_copies_are_split() {
        let (from, to) = (GpuVa::inside(0x10_0000_0000), GpuVa::inside(0x20_8000_0000));
        let one = words(|p| p.copy(from, to, 77));
        assert_eq!(one, [0x2004_8100, 0x10, 0, 0x20, 0x8000_0000, 0x2001_8106, 77, 0x2001_80c0, 0x186]);
        let two = words(|p| p.copy(from, to, (1 << 31) + 1));
        assert_eq!(two.len(), 2 * one.len());
        assert_eq!(
            two[one.len()..],
            [0x2004_8100, 0x10, 0x8000_0000, 0x21, 0, 0x2001_8106, 1, 0x2001_80c0, 0x186]
        );
        assert!(words(|p| p.copy(from, to, 0)).is_empty());
    }
}
