//! The examination of scoreboards and stall counts: every kernel of ptxas is clean, and every wait that is
//! taken away is missed.

use std::collections::BTreeMap;

use crate::listings::{arch_of, json, word_of};
use sass::lint::{Hazard, Missing, Report, Unit, lint, spacings};
use sass::{Arch, Instruction, Opcode, Register, RegisterSet, Word, decode};

/// The cubins of a listing: instruction set, path, words.
fn cubins(name: &str) -> Vec<(Arch, String, Vec<Word>)> {
    let golden = json(name);
    let cubins = golden["cubins"].as_array().expect("cubins").iter().map(|cubin| {
        let words = cubin["code"].as_array().expect("code").iter().map(word_of).collect();
        (arch_of(cubin), cubin["path"].as_str().expect("path").to_owned(), words)
    });
    cubins.collect()
}

fn all_cubins() -> Vec<(Arch, String, Vec<Word>)> {
    let mut all = cubins("golden/corpus.json.gz");
    all.extend(cubins("golden/repository.json.gz"));
    all
}

fn examine(arch: Arch, words: &[Word]) -> Report {
    lint(arch, &bytes(words), 0)
}

fn bytes(words: &[Word]) -> Vec<u8> {
    words.iter().flat_map(|word| word.0.to_le_bytes()).collect()
}

#[test]
fn every_cubin_of_the_repository_is_clean() {
    let (mut instructions, mut kinds) = (0, BTreeMap::new());
    for (arch, path, words) in all_cubins() {
        let report = examine(arch, &words);
        assert!(report.findings.is_empty(), "{path}: {:#x?}", report.findings);
        instructions += words.len();
        for stop in report.stops {
            *kinds.entry(format!("{:?}", stop.reason)).or_insert(0) += 1;
        }
    }
    println!("{instructions} instructions, no finding; stops: {kinds:?}");
    assert!(instructions > 200_000, "{instructions}");
}

/// A register passed between units: hazard, register file, architectures, first and second unit.
type Pair = (Hazard, &'static str, &'static str, Unit, Unit);

/// The table of latencies against the fewest cycles that ptxas leaves.
#[test]
fn the_compiler_never_leaves_fewer_cycles_than_the_table_asks_for() {
    let mut fewest: BTreeMap<Pair, (u8, u8, usize)> = BTreeMap::new();
    for (arch, path, words) in all_cubins() {
        let family = if arch == Arch::Sm90 { "9x" } else { "8x" };
        for s in spacings(arch, &bytes(&words), 0) {
            assert!(s.passed >= s.needed, "{path}: {s:?}");
            let file = match s.registers.iter().next() {
                Some(Register::R(_)) => "R",
                Some(Register::Ur(_)) => "UR",
                Some(Register::P(_)) => "P",
                _ => "UP",
            };
            let entry =
                fewest.entry((s.hazard, file, family, s.units.0, s.units.1)).or_insert((u8::MAX, u8::MAX, 0));
            *entry = (entry.0.min(s.passed), entry.1.min(s.needed), entry.2 + 1);
        }
    }
    for ((hazard, file, family, from, to), (fewest, needed, times)) in &fewest {
        println!(
            "{hazard:?} {file} sm_{family} {from:?} -> {to:?}: table {needed}, ptxas {fewest}, {times} times"
        );
    }
    assert!(fewest.len() > 200, "{}", fewest.len());
}

/// An instruction of straight code and its place.
#[derive(Clone, Copy)]
struct Placed {
    at: usize,
    instruction: Instruction,
}

/// Runs of instructions without a branch inside.
fn runs(arch: Arch, words: &[Word]) -> Vec<Vec<Placed>> {
    use Opcode as Op;
    let mut runs = vec![Vec::new()];
    for (at, word) in words.iter().enumerate() {
        let instruction = decode(arch, *word).expect("decodes");
        let leaves = matches!(
            instruction.opcode,
            Op::Bra | Op::Brx | Op::CallRel | Op::CallAbs | Op::Ret | Op::Exit | Op::Warpsync | Op::Depbar
        );
        if leaves || instruction.effects().is_none() {
            runs.push(Vec::new());
        } else if let Some(run) = runs.last_mut() {
            run.push(Placed { at, instruction });
        }
    }
    runs
}

/// A wait that is needed: `first` sets `barrier`, and `next` is the first to wait for it and the first that
/// names one of the registers.
struct Need {
    first: Placed,
    next: Placed,
    barrier: u8,
    hazard: Hazard,
}

fn reads(instruction: &Instruction) -> RegisterSet {
    instruction.effects().expect("known").reads
}

fn writes(instruction: &Instruction) -> RegisterSet {
    instruction.effects().expect("known").writes
}

/// Operations of fixed latency, which pass no queue.
fn is_fixed(opcode: Opcode) -> bool {
    use Opcode as Op;
    matches!(
        opcode,
        Op::Mov
            | Op::Sel
            | Op::Prmt
            | Op::Iadd3
            | Op::Imad
            | Op::ImadWide
            | Op::Idp
            | Op::Lea
            | Op::Lop3
            | Op::Shf
            | Op::Fadd
            | Op::Fmul
            | Op::Ffma
            | Op::Hadd2
            | Op::Hfma2
            | Op::Hmma
    )
}

/// Found without the examination: straight code in which nothing else can have made `next` wait, no other
/// wait and no other instruction that sets the barrier.
fn needs(run: &[Placed]) -> Vec<Need> {
    let mut found = Vec::new();
    for (n, first) in run.iter().enumerate() {
        let control = first.instruction.control();
        for (barrier, is_write) in [(control.write_barrier, true), (control.read_barrier, false)] {
            let Some(barrier) = barrier else { continue };
            for next in &run[n + 1..] {
                let waits = next.instruction.control().wait_mask;
                let registers_of_thread = |set: RegisterSet| -> RegisterSet {
                    set.iter().filter(|r| matches!(r, Register::R(_))).collect()
                };
                let written = writes(&first.instruction);
                let hazard = if is_write && !(written & reads(&next.instruction)).is_empty() {
                    Some(Hazard::ReadAfterWrite)
                } else if !is_write
                    && control.write_barrier != Some(barrier)
                    && is_fixed(next.instruction.opcode)
                    && !(registers_of_thread(reads(&first.instruction)) & writes(&next.instruction))
                        .is_empty()
                    && (written & (writes(&next.instruction) | reads(&next.instruction))).is_empty()
                {
                    Some(Hazard::WriteAfterRead)
                } else {
                    None
                };
                let guards = [first, next].map(|placed| placed.instruction.guard.is_always());
                if waits == 1 << barrier
                    && let Some(hazard) = hazard
                    && guards == [true, true]
                    && !matches!(first.instruction.opcode, Opcode::Atom | Opcode::AtomCas)
                    && next.instruction.opcode != first.instruction.opcode
                {
                    found.push(Need { first: *first, next: *next, barrier, hazard });
                }
                let control = next.instruction.control();
                let sets = [control.write_barrier, control.read_barrier].contains(&Some(barrier));
                if waits != 0 || sets || hazard.is_some() {
                    break;
                }
            }
        }
    }
    found
}

/// Whether the examination of `words` finds that `need.next` does not wait for `need.first`.
fn is_found(arch: Arch, words: &[Word], need: &Need) -> bool {
    let report = examine(arch, &words[need.first.at..=need.next.at]);
    let next = 16 * (need.next.at - need.first.at) as u64;
    report.findings.iter().any(|finding| {
        finding.hazard == need.hazard
            && (finding.first, finding.next) == (0, next)
            && matches!(finding.missing, Missing::Wait { .. } | Missing::Barrier)
            && finding.path.first() == Some(&0)
            && finding.path.last() == Some(&next)
    })
}

#[test]
fn every_wait_that_is_taken_away_is_missed() {
    let (mut waits, mut barriers) = (0, 0);
    for (arch, path, mut words) in all_cubins() {
        for need in runs(arch, &words).iter().flat_map(|run| needs(run)) {
            // The wait itself.
            let intact = words[need.next.at];
            words[need.next.at] = Word(intact.0 & !(1 << (116 + need.barrier)));
            assert!(is_found(arch, &words, &need), "{path}: {intact} without barrier {}", need.barrier);
            words[need.next.at] = intact;
            waits += 1;
            // The barrier that it waits for.
            let intact = words[need.first.at];
            let field = if need.hazard == Hazard::WriteAfterRead { 113 } else { 110 };
            words[need.first.at] = Word(intact.0 | 7 << field);
            assert!(is_found(arch, &words, &need), "{path}: {intact} sets no barrier");
            words[need.first.at] = intact;
            barriers += 1;
        }
    }
    println!("{waits} waits and {barriers} barriers taken away, all reported");
    assert!(waits > 8_000, "{waits}");
}

#[test]
fn every_stall_that_is_cut_short_is_missed() {
    let mut cut = 0;
    for (arch, path, words) in all_cubins() {
        for pair in runs(arch, &words).iter().flat_map(|run| run.windows(2)) {
            let [first, next] = pair else { continue };
            let control = first.instruction.control();
            let used = writes(&first.instruction) & reads(&next.instruction);
            // A result that sets no barrier and is used at once needs its cycles.
            if control.write_barrier.is_some() || used.is_empty() || control.stall < 2 {
                continue;
            }
            let mut code = [words[first.at], words[next.at]];
            code[0] = Word(code[0].0 & !(15 << 105) | 1 << 105);
            let report = examine(arch, &code);
            let missed = |hazard| matches!(hazard, Missing::Cycles { passed: 1, .. });
            assert!(
                report.findings.iter().any(|f| missed(f.missing)),
                "{path}: {} then {}",
                code[0],
                code[1]
            );
            cut += 1;
        }
    }
    println!("{cut} stalls cut to 1, all reported");
    assert!(cut > 20_000, "{cut}");
}

/// `HMMA.16816.F16 R4, R4, R8, R14` and `MOV R4, R4`, as ptxas -O0 schedules them for sm_80.
#[test]
fn a_stall_of_zero_is_long_enough_for_a_matrix_product() {
    let hmma = Word(0x003f_c000_0000_080e_0000_0008_0404_723c);
    let mov = Word(0x003f_de00_0000_0f00_0000_0004_0004_7202);
    let zero = examine(Arch::Sm80, &[hmma, mov]);
    assert!(zero.findings.is_empty(), "{:?}", zero.findings);
    for stall in [1, 11, 15] {
        let cut = examine(Arch::Sm80, &[Word(hmma.0 | stall << 105), mov]);
        let missing =
            |missing| matches!(missing, Missing::Cycles { passed, .. } if u128::from(passed) == stall);
        assert!(cut.findings.iter().any(|f| missing(f.missing)), "{stall}: {:?}", cut.findings);
    }
}
