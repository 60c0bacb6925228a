//! Translation of machine code: fetches instruction words from guest memory, decodes them and lowers each to
//! one op.

use std::sync::Arc;

use sass::Word;

use crate::gpu::sm::code::Code;
use crate::gpu::sm::constants::read_word;
use crate::gpu::sm::fault::esr;
use crate::gpu::sm::launch::{Access, Memory, MemoryFault};
use crate::gpu::sm::lower::Lower;
use crate::gpu::sm::micro_op::{MicroOp, entry};
use crate::gpu::sm::ops;
use crate::gpu::sm::ops::control::{Goto, Raise};
use crate::gpu::sm::slots::{NO_PREDICATE, UNIFORM_PREDICATES, ZERO};
use crate::gpu::sm::target::Target;

/// `NOP`, in the encodings of sm_8x and sm_9x.
const NOP: u128 = 0x000f_c000_0000_0000_0000_0000_0000_7918;

/// A lowered instruction and its control flow.
#[derive(Debug)]
pub(crate) struct Lowered {
    pub op: MicroOp,
    /// Direct branch target; its op index is written to `op.k[0]`.
    pub branch: Option<u64>,
    /// Whether the instruction never continues with the next one.
    pub ends: bool,
}

/// Lowers everything that `root` reaches without an indirect jump.
pub(crate) fn extend(code: &mut Code, memory: &dyn Memory, target: Target, root: u64) {
    let mut roots = vec![root];
    while let Some(start) = roots.pop() {
        let mut va = start;
        loop {
            if let Some(at) = code.map.index_of(va) {
                if va != start {
                    code.push(va, 0, jump(target, at));
                }
                break;
            }
            let (word, lowered) = match fetch(memory, va) {
                Ok(word) => (word, lower(code, target, va, Word(word))),
                Err(Some(_)) => (0, fault(target, esr::MMU_FAULT)),
                Err(None) => (0, fault(target, esr::MISALIGNED_PC)),
            };
            let at = code.push(va, word, lowered.op);
            Arc::make_mut(&mut code.map).enter(va, at);
            if let Some(to) = lowered.branch {
                code.links.push((at, to));
                roots.push(to);
            }
            if lowered.ends {
                break;
            }
            va = va.wrapping_add(16);
        }
    }
    code.link();
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

/// Lowers one instruction. What cannot be lowered becomes an op that raises the error.
pub(crate) fn lower(code: &mut Code, target: Target, va: u64, w: Word) -> Lowered {
    let Ok(decoded) = sass::decode(target.arch, w) else {
        return fault(target, esr::ILLEGAL_INSTR_ENCODING);
    };
    let w = if target.defects.disables(decoded.opcode) { Word(NOP) } else { w };
    let uniform = ops::is_uniform(w);
    let guard_base = if uniform { UNIFORM_PREDICATES } else { 0 };
    let op = MicroOp {
        guard: w.bits(12, 3) as u8 + guard_base,
        guard_xor: if w.bit(15) { u32::MAX } else { 0 },
        widen: if uniform { u32::MAX } else { 0 },
        ..blank(target)
    };
    let mut l = Lower { w, va, target, op, branch: None, ends: false, uniform, code };
    match ops::lower(&mut l) {
        Ok(()) => Lowered { op: l.op, branch: l.branch, ends: l.ends },
        Err(code) => {
            let refused = fault(target, code);
            let op = MicroOp { run: refused.op.run, k: refused.op.k, ..l.op };
            Lowered { op, branch: None, ends: false }
        }
    }
}

fn blank(target: Target) -> MicroOp {
    MicroOp {
        run: entry::<Raise>(target.isa),
        guard_xor: 0,
        widen: 0,
        guard: 7,
        pd: [NO_PREDICATE; 2],
        ps: [7; 3],
        d: target.registers as u16,
        a: ZERO,
        b: ZERO,
        c: ZERO,
        k: [0; 6],
    }
}

/// An op that raises a warp error; nothing follows it.
pub(crate) fn fault(target: Target, code: u32) -> Lowered {
    let mut op = blank(target);
    op.k[0] = code;
    Lowered { op, branch: None, ends: true }
}

/// An op that continues elsewhere.
pub(crate) fn jump(target: Target, to: u32) -> MicroOp {
    let mut op = blank(target);
    op.run = entry::<Goto>(target.isa);
    op.k[0] = to;
    op
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::defects::Defects;
    use crate::gpu::sm::lanes::Isa;
    use crate::gpu::sm::micro_op::OpFn;
    use sass::Arch;

    /// The instructions of the executable sections of a cubin.
    fn words(elf: &[u8]) -> Vec<u128> {
        let parsed = goblin::elf::Elf::parse(elf).unwrap();
        let executable = parsed.section_headers.iter().filter(|s| s.is_executable() && s.sh_size > 0);
        executable
            .flat_map(|s| elf[s.file_range().unwrap()].as_chunks::<16>().0)
            .map(|w| u128::from_le_bytes(*w))
            .collect()
    }

    /// Everything that ptxas made for the repository: the corpus, the suite, the language model.
    const FOLDERS: [&str; 4] =
        ["sass/tests/data/cubin", "tests/kernels", "tests/kernels/conformance", "llm/kernels"];

    fn refused(arch: Arch, suffixes: &[&str]) -> std::collections::BTreeSet<String> {
        let target = Target {
            arch,
            isa: Isa::Baseline,
            registers: 255,
            barriers: 16,
            exact_mma: true,
            defects: Defects::empty(),
        };
        let (mut seen, mut refused) = (0, std::collections::BTreeSet::new());
        for folder in FOLDERS {
            let folder = format!("{}/../{folder}", env!("CARGO_MANIFEST_DIR"));
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if !path.to_str().is_some_and(|p| suffixes.iter().any(|suffix| p.ends_with(suffix))) {
                    continue;
                }
                let mut code = Code::new(255);
                for word in words(&std::fs::read(&path).unwrap()) {
                    seen += 1;
                    let lowered = lower(&mut code, target, 0, Word(word));
                    if std::ptr::fn_addr_eq(lowered.op.run, entry_of_raise()) {
                        let text = sass::decode(arch, Word(word)).map_or(format!("{word:#x}"), |i| i.text(0));
                        let op = text
                            .split_whitespace()
                            .find(|t| !t.starts_with('@'))
                            .unwrap_or_default()
                            .to_owned();
                        refused.insert(format!("{:03x} {op}: {text}", word & 0xfff));
                    }
                }
            }
        }
        assert!(seen > 10_000, "only {seen} instructions");
        refused
    }

    #[test]
    fn every_sm_87_instruction_that_ptxas_made_is_executed() {
        let refused = refused(Arch::Sm87, &["sm_87.cubin"]);
        assert!(refused.is_empty(), "{} are refused: {refused:#?}", refused.len());
    }

    #[test]
    fn every_sm_90_instruction_that_ptxas_made_is_executed() {
        let refused = refused(Arch::Sm90, &["sm_90.cubin", "sm_90a.cubin"]);
        assert!(refused.is_empty(), "{} are refused: {refused:#?}", refused.len());
    }

    fn entry_of_raise() -> OpFn {
        entry::<Raise>(Isa::Baseline)
    }
}
