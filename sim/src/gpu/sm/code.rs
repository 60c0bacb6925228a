//! A program in the form that runs: instructions lowered once, linked, with the constants they read.

use std::collections::HashMap;
use std::sync::Arc;

use crate::gpu::sm::code_map::CodeMap;
use crate::gpu::sm::micro_op::MicroOp;
use crate::gpu::sm::slots::{FileLayout, POOL};

/// Origin of a word of the constant pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PoolWord {
    Imm(u32),
    Const { bank: u8, offset: i32 },
}

/// A lowered program: grows when a jump leads to an address not seen before, and never changes its existing
/// ops.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    pub ops: Vec<MicroOp>,
    /// Their origins.
    pub map: Arc<CodeMap>,
    pub pool: Vec<PoolWord>,
    pool_index: HashMap<Vec<PoolWord>, u16>,
    /// Branches whose target is not lowered yet: op and guest address.
    pub links: Vec<(u32, u64)>,
    pub layout: FileLayout,
    /// Most registers that a warp claims for each of its threads (USETMAXREG), 0 if none does.
    pub claimed: u32,
}

/// Key of a lowering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CodeKey {
    pub program: u64,
    pub arch_sm: u32,
    pub registers: u32,
    pub barriers: u32,
}

impl Code {
    pub fn new(registers: u32) -> Self {
        let mut code = Code {
            ops: Vec::new(),
            map: Arc::default(),
            pool: Vec::new(),
            pool_index: HashMap::new(),
            links: Vec::new(),
            layout: FileLayout { registers: registers.min(255) as u16, uniforms: 0 },
            claimed: 0,
        };
        code.pool_slot(&[PoolWord::Imm(0); 4]);
        code
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

    /// Adds the op of `word` at `va`.
    pub fn push(&mut self, va: u64, word: u128, op: MicroOp) -> u32 {
        let at = self.ops.len() as u32;
        self.ops.push(op);
        Arc::make_mut(&mut self.map).push(va, word);
        at
    }

    /// Gives branches the op indices of their targets.
    pub fn link(&mut self) {
        for (at, va) in std::mem::take(&mut self.links) {
            match self.map.index_of(va) {
                Some(to) => self.ops[at as usize].k[0] = to,
                None => self.links.push((at, va)),
            }
        }
    }
}
