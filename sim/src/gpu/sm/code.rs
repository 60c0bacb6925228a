//! Programs in the form that runs: instructions fetched from guest memory, decoded and lowered once, and bound to the constants of a
//! launch.

use std::collections::HashMap;
use std::sync::Arc;

use sass::{Arch, Word};

use crate::gpu::sm::fault::esr;
use crate::gpu::sm::lanes::{Isa, Lanes, OpFn};
use crate::gpu::sm::launch::{Access, ConstBank, Launch, Memory, MemoryFault};
use crate::gpu::sm::lower;

/// Slots at or above this one lie in the constant pool, those below in the warp's register file.
pub(crate) const POOL: u16 = 0x8000;
/// The slot that reads as zero; so do the three after it.
pub(crate) const ZERO: u16 = POOL;
/// Predicates P0 to P6 and PT are 0 to 7, UP0 to UP6 and UPT 8 to 15.
pub(crate) const UNIFORM_PREDICATES: u8 = 8;
/// The predicate that takes results nobody wants.
pub(crate) const NO_PREDICATE: u8 = 16;
/// Size of the predicate file: 0 to 15, the write-only one, and room so that an index masked to five bits is always inside.
pub(crate) const PREDICATES: usize = 32;
/// Set in a predicate source that is to be inverted.
pub(crate) const NOT: u8 = 0x80;

/// Where the parts of a warp's register file lie, in slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileLayout {
    /// General registers: slots 0 to this.
    pub registers: u16,
}

impl FileLayout {
    /// First of the write-only slots.
    pub fn trash(self) -> u16 {
        self.registers
    }

    /// The slot of UR0; each uniform register is held broadcast, URZ included.
    pub fn uniform(self) -> u16 {
        self.registers + 4
    }

    /// Slots in all.
    pub fn len(self) -> usize {
        usize::from(self.registers) + 4 + 64
    }
}

/// One lowered instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MicroOp {
    /// What runs it.
    pub run: OpFn,
    /// Inverts the guard.
    pub guard_xor: u32,
    /// Lanes that execute whatever the guard says, if any does: all of them for an operation of the uniform datapath.
    pub widen: u32,
    /// Guard predicate.
    pub guard: u8,
    /// Predicate destinations.
    pub pd: [u8; 2],
    /// Predicate sources, [`NOT`] inverts.
    pub ps: [u8; 3],
    /// Destination slot.
    pub d: u16,
    /// Source slots; the second word of a wide value lies in the next slot.
    pub a: u16,
    pub b: u16,
    pub c: u16,
    /// What else the operation needs: masks, shifts, immediates, modes.
    pub k: [u32; 6],
}

/// Where a word of the constant pool comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PoolWord {
    Imm(u32),
    Const { bank: u8, offset: i32 },
}

/// A lowered program: grows when a jump leads to an address not seen before, and never changes what is there.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    pub ops: Vec<MicroOp>,
    /// Guest address of each op.
    pub vas: Vec<u64>,
    /// The word of each op, for reports.
    pub words: Vec<u128>,
    index: HashMap<u64, u32>,
    pub pool: Vec<PoolWord>,
    pool_index: HashMap<Vec<PoolWord>, u16>,
    /// Branches whose target is not lowered yet: op and guest address.
    links: Vec<(u32, u64)>,
    pub layout: FileLayout,
}

/// What selects a lowering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CodeKey {
    pub program: u64,
    pub arch_sm: u32,
    pub registers: u32,
    pub barriers: u32,
}

/// What lowering needs to know besides the word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub arch: Arch,
    pub isa: Isa,
    pub registers: u32,
    pub barriers: u32,
    pub exact_mma: bool,
}

impl Code {
    pub fn new(registers: u32) -> Self {
        let mut code = Code {
            ops: Vec::new(),
            vas: Vec::new(),
            words: Vec::new(),
            index: HashMap::new(),
            pool: Vec::new(),
            pool_index: HashMap::new(),
            links: Vec::new(),
            layout: FileLayout { registers: registers.min(255) as u16 },
        };
        code.pool_slot(&[PoolWord::Imm(0); 4]);
        code
    }

    /// The op at a guest address.
    pub fn index_of(&self, va: u64) -> Option<u32> {
        self.index.get(&va).copied()
    }

    /// A run of pool slots with these words.
    pub fn pool_slot(&mut self, words: &[PoolWord]) -> u16 {
        if let Some(&slot) = self.pool_index.get(words) {
            return slot;
        }
        let slot = POOL + self.pool.len() as u16;
        self.pool.extend_from_slice(words);
        self.pool_index.insert(words.to_vec(), slot);
        slot
    }

    /// Lowers everything that `root` reaches without an indirect jump.
    pub fn extend(&mut self, memory: &dyn Memory, target: Target, root: u64) {
        let mut roots = vec![root];
        while let Some(start) = roots.pop() {
            let mut va = start;
            loop {
                if let Some(at) = self.index_of(va) {
                    if va != start {
                        self.push(va, 0, lower::jump(target, at));
                    }
                    break;
                }
                let (word, lowered) = match fetch(memory, va) {
                    Ok(word) => (word, lower::lower(self, target, va, Word(word))),
                    Err(Some(_)) => (0, lower::fault(target, esr::MMU_FAULT)),
                    Err(None) => (0, lower::fault(target, esr::MISALIGNED_PC)),
                };
                let at = self.push(va, word, lowered.op);
                self.index.insert(va, at);
                if let Some(to) = lowered.branch {
                    self.links.push((at, to));
                    roots.push(to);
                }
                if lowered.ends {
                    break;
                }
                va = va.wrapping_add(16);
            }
        }
        self.link();
    }

    fn push(&mut self, va: u64, word: u128, op: MicroOp) -> u32 {
        let at = self.ops.len() as u32;
        self.ops.push(op);
        self.vas.push(va);
        self.words.push(word);
        at
    }

    /// Gives branches the op indices of their targets.
    fn link(&mut self) {
        for (at, va) in std::mem::take(&mut self.links) {
            match self.index_of(va) {
                Some(to) => self.ops[at as usize].k[0] = to,
                None => self.links.push((at, va)),
            }
        }
    }
}

/// The instruction word at `va`, or why it cannot be fetched: `None` means a misaligned address.
fn fetch(memory: &dyn Memory, va: u64) -> Result<u128, Option<MemoryFault>> {
    if !va.is_multiple_of(16) {
        return Err(None);
    }
    let mut word = 0u128;
    for i in 0..4 {
        let part = read_word(memory, va + 4 * i, Access::Fetch).map_err(Some)?;
        word |= u128::from(part) << (32 * i);
    }
    Ok(word)
}

/// Reads an aligned word of guest memory.
pub(crate) fn read_word(memory: &dyn Memory, va: u64, access: Access) -> Result<u32, MemoryFault> {
    let span = memory.translate(va, access)?;
    // SAFETY: `Memory` promises readable memory for the whole span, aligned as the guest address is; other threads only touch it
    // through atomics too.
    Ok(unsafe { crate::gpu::sm::guest::load_u32(span.host.as_ptr().add((va - span.va) as usize)) })
}

/// A program with the constants of one launch.
#[derive(Debug)]
pub(crate) struct Bound {
    pub code: Arc<Code>,
    /// `code.ops`, with those that read beyond a constant bank replaced by a fault.
    patched: Option<Vec<MicroOp>>,
    pub pool: Vec<Lanes>,
}

impl Bound {
    pub fn new(code: Arc<Code>, memory: &dyn Memory, launch: &Launch, target: Target) -> Self {
        let mut pool = Vec::with_capacity(code.pool.len());
        let mut bad = Vec::new();
        for (i, word) in code.pool.iter().enumerate() {
            pool.push(match *word {
                PoolWord::Imm(x) => Lanes::splat(x),
                PoolWord::Const { bank, offset } => match read_const(memory, launch, bank, offset) {
                    Some(x) => Lanes::splat(x),
                    None => {
                        bad.push(POOL + i as u16);
                        Lanes::ZERO
                    }
                },
            });
        }
        let patched = (!bad.is_empty()).then(|| {
            let mut ops = code.ops.clone();
            for op in &mut ops {
                if [op.a, op.b, op.c].iter().any(|slot| bad.contains(slot)) {
                    let fault = lower::fault(target, esr::INVALID_CONST_ADDR).op;
                    *op = MicroOp { run: fault.run, k: fault.k, ..*op };
                }
            }
            ops
        });
        Bound { code, patched, pool }
    }

    /// The ops to run.
    pub fn ops(&self) -> &[MicroOp] {
        self.patched.as_deref().unwrap_or(&self.code.ops)
    }
}

/// A word of a constant bank; `None` if the bank does not hold it.
fn read_const(memory: &dyn Memory, launch: &Launch, bank: u8, offset: i32) -> Option<u32> {
    let ConstBank { va, len } = (*launch.banks.get(usize::from(bank))?)?;
    let offset = u32::try_from(offset).ok()?;
    if offset.checked_add(4)? > len {
        return None;
    }
    read_word(memory, va + u64::from(offset), Access::Read).ok()
}
