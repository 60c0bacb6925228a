//! Stores that become visible late: a block's stores since its last fence are seen by itself alone, until
//! chance or the end of the grid shows them to others.
//!
//! While a block runs, memory holds its stores: the launch's only worker runs one block at a time. When it
//! gives way, memory gets back the values that others see.

use std::collections::BTreeMap;

use crate::gpu::sm::core::Core;
use crate::gpu::sm::guest;
use crate::gpu::sm::launch::Access;

/// Words of one block that wait: a real machine holds fewer.
const MOST: usize = 1 << 12;

/// Of a word, what its bytes hold for the side that does not run, and which bytes.
#[derive(Clone, Copy, Debug)]
struct Word {
    other: u32,
    bytes: u8,
}

/// The stores of the blocks of a launch.
#[derive(Debug, Default)]
pub(super) struct LateStores {
    of_block: BTreeMap<u64, BTreeMap<u64, Word>>,
    /// Blocks that have ended.
    ended: Vec<u64>,
}

impl LateStores {
    /// The running block is about to store to bytes of the word at `va`.
    pub fn store(&mut self, core: &mut Core<'_>, va: u64, bytes: u8) {
        let Some(at) = host(core, va) else { return };
        // SAFETY: the word is mapped, and words of the guest are aligned.
        let before = unsafe { guest::load_u32(at) };
        let words = self.of_block.entry(core.block.index).or_default();
        if words.len() >= MOST {
            words.pop_first();
        }
        let word = words.entry(va).or_insert(Word { other: before, bytes: 0 });
        let fresh = mask(bytes & !word.bytes);
        word.other = word.other & !fresh | before & fresh;
        word.bytes |= bytes;
    }

    /// The running block accesses the word at `va` in a way that every other sees.
    pub fn show(&mut self, block: u64, va: u64) {
        if let Some(words) = self.of_block.get_mut(&block) {
            words.remove(&va);
        }
    }

    /// A fence: everyone sees the stores of the running block.
    pub fn show_all(&mut self, block: u64) {
        self.of_block.remove(&block);
    }

    /// Another block runs next, or this one again.
    pub fn exchange(&mut self, core: &mut Core<'_>) {
        let Some(words) = self.of_block.get_mut(&core.block.index) else { return };
        words.retain(|va, word| exchange(core, *va, word));
    }

    /// A block has ended. Nothing says when others see its stores, but they do: some may wait for them.
    pub fn end_block(&mut self, block: u64) {
        if self.of_block.contains_key(&block) {
            self.ended.push(block);
        }
    }

    /// Whether a block has ended of which others have not seen all stores.
    pub fn hides_ended_block(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Everyone sees the stores of the blocks that have ended. None of them runs.
    pub fn show_ended_blocks(&mut self, core: &mut Core<'_>) {
        for block in std::mem::take(&mut self.ended) {
            for (va, mut word) in self.of_block.remove(&block).into_iter().flatten() {
                exchange(core, va, &mut word);
            }
        }
    }

    /// The grid has ended: everyone sees all. Of two blocks that stored to a word, either may be the last.
    pub fn end(&mut self, core: &mut Core<'_>) {
        for words in std::mem::take(&mut self.of_block).into_values() {
            for (va, mut word) in words {
                exchange(core, va, &mut word);
            }
        }
    }
}

/// The bytes of a word as a mask of its bits.
fn mask(bytes: u8) -> u32 {
    (0..4).filter(|byte| bytes >> byte & 1 != 0).fold(0, |mask, byte| mask | 0xff << (8 * byte))
}

/// Returns the host address of the word at `va`, if it may be written.
fn host(core: &mut Core<'_>, va: u64) -> Option<*mut u8> {
    let entry = core.tlb.find(va, Access::Write).ok()?;
    let offset = va - entry.va;
    (offset + 4 <= entry.len).then(|| entry.host.wrapping_add(offset as usize))
}

/// Exchanges the values in memory with those that the other side sees; false where nothing is mapped any
/// more.
fn exchange(core: &mut Core<'_>, va: u64, word: &mut Word) -> bool {
    let Some(at) = host(core, va) else { return false };
    for byte in (0..4).filter(|byte| word.bytes >> byte & 1 != 0) {
        // SAFETY: the word is mapped, and a byte needs no alignment.
        let now = unsafe {
            let at = at.add(byte);
            let now = guest::load_u8(at);
            guest::store_u8(at, (word.other >> (8 * byte)) as u8);
            now
        };
        word.other = word.other & !(0xff << (8 * byte)) | u32::from(now) << (8 * byte);
    }
    true
}
