//! A lowered program bound to the constants of one launch.

use std::sync::Arc;

use crate::gpu::sm::code::{Code, PoolWord};
use crate::gpu::sm::constants::Banks;
use crate::gpu::sm::fault::esr;
use crate::gpu::sm::lanes::Lanes;
use crate::gpu::sm::launch::{Launch, Memory};
use crate::gpu::sm::micro_op::MicroOp;
use crate::gpu::sm::slots::POOL;
use crate::gpu::sm::target::Target;
use crate::gpu::sm::translate::fault;

/// A program with the constants of one launch.
#[derive(Debug)]
pub(crate) struct Bound {
    pub code: Arc<Code>,
    /// `code.ops`, with those that read beyond a constant bank replaced by a fault.
    patched: Option<Vec<MicroOp>>,
    pub pool: Arc<[Lanes]>,
}

impl Bound {
    pub fn new(code: Arc<Code>, memory: &dyn Memory, launch: &Launch, target: Target) -> Self {
        let mut pool = Vec::with_capacity(code.pool.len());
        let mut bad = Vec::new();
        let mut banks = Banks::new(memory, launch);
        for (i, word) in code.pool.iter().enumerate() {
            pool.push(match *word {
                PoolWord::Imm(x) => Lanes::splat(x),
                PoolWord::Const { bank, offset } => match banks.word(bank, offset) {
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
                    let refused = fault(target, esr::INVALID_CONST_ADDR_LDC).op;
                    *op = MicroOp { run: refused.run, k: refused.k, ..*op };
                }
            }
            ops
        });
        Bound { code, patched, pool: pool.into() }
    }

    /// The ops to run.
    pub fn ops(&self) -> &[MicroOp] {
        self.patched.as_deref().unwrap_or(&self.code.ops)
    }
}
