//! Launches of one graph that follow each other, in lines, forks and joins, some of which begin before the
//! launch that they follow has ended (programmatic dependent launch, `griddepcontrol`). The CPU says what is
//! right.
//!
//! Every launch reads what other blocks of the launches before it wrote. A launch may give way
//! (`griddepcontrol.launch_dependents`) before its own wait, after it, after its stores, or not at all, which
//! is giving way at its end; and it may load by weak or by strong accesses. Code for the ga10b has neither
//! instruction, and its launches are plain dependents.

use hcq::LaunchConfig;
use ptxgen::{Kernel, Module, Named, Params, Pointer, Ptr, Reg, Special, Target, kernel_params};

use crate::conformance::case::{BufferNumber, Case, Link, Place};
use crate::conformance::cubins::cubins;
use crate::conformance::noise::Noise;
use crate::conformance::tolerance::Tolerance;

/// Words that a launch writes.
const COUNT: u32 = 6 * BLOCK - 5;
const BLOCK: u32 = 96;
/// The factor of a launch.
const FACTOR: u32 = 0x0101_0107;

/// When a kernel gives way to the launch that follows it, and how it loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gives {
    AtItsEnd,
    BeforeItsWait,
    AfterItsWait,
    AfterItsStores,
    /// In one thread of each block, after its wait, with strong loads.
    InOneThread,
}

/// A kernel of each way.
const KERNELS: [(&str, Gives); 5] = [
    ("gives_at_its_end", Gives::AtItsEnd),
    ("gives_before_its_wait", Gives::BeforeItsWait),
    ("gives_after_its_wait", Gives::AfterItsWait),
    ("gives_after_its_stores", Gives::AfterItsStores),
    ("gives_in_one_thread", Gives::InOneThread),
];
/// One that loads before it waits, for what checks find.
const LATE: &str = "waits_after_its_loads";

/// The module that is committed for `target`.
pub(super) fn module(target: Target) -> Named {
    let mut module = Module::new(target);
    let has_control = target >= Target::Sm90;
    for (name, gives) in KERNELS {
        module.add(kernel(name, gives, has_control, false));
    }
    module.add(kernel(LATE, Gives::BeforeItsWait, has_control, true));
    Named { name: "dependents".to_owned(), module }
}

kernel_params! {
    /// `out[i] = (FACTOR a[j] + b[j]) FACTOR + add` for j = (i + shift) mod [`COUNT`].
    struct Dependent { out: Ptr<u32, 16>, a: Ptr<u32, 16>, b: Ptr<u32, 16>, shift: u32, add: u32 }
}

fn kernel(name: &str, gives: Gives, has_control: bool, late: bool) -> Kernel {
    let k = Kernel::new(name);
    let p = Dependent::declare(&k);
    let tid = k.special(Special::TidX);
    let i = k.mad(k.special(Special::CtaidX), BLOCK, tid);
    let give = |at: Gives| {
        if has_control && gives == at {
            k.launch_dependents();
        }
    };
    let j = k.rem(k.add(i, p.shift), COUNT);
    let load = |from: Pointer<ptxgen::Global, u32>| -> Reg<u32> {
        match gives {
            Gives::InOneThread => k.load_relaxed::<1, _>(k.at(from, j))[0],
            _ => k.load(k.at(from, j)),
        }
    };
    let sum = || k.mad(k.mad(load(p.a), FACTOR, load(p.b)), FACTOR, p.add);
    let early = late.then(sum);
    give(Gives::BeforeItsWait);
    if has_control {
        k.wait_prerequisites();
    }
    give(Gives::AfterItsWait);
    k.if_(k.eq(tid, 0u32), || give(Gives::InOneThread));
    let sum = early.unwrap_or_else(sum);
    k.if_(k.lt(i, COUNT), || k.store(k.at(p.out, i), sum));
    give(Gives::AfterItsStores);
    k
}

/// A launch: what it follows, and whether it may begin before that has ended.
struct Planned {
    kernel: &'static str,
    after: Vec<usize>,
    early: bool,
    /// The launches whose results it reads; none for the input.
    reads: [Option<usize>; 2],
}

/// All of them.
pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = KERNELS
        .iter()
        .map(|(kernel, _)| case(&format!("a line of {kernel}"), &line(&[kernel], 12, true)))
        .collect();
    let all = KERNELS.map(|(kernel, _)| kernel);
    cases.push(case("a line of all", &line(&all, 25, true)));
    cases.push(case("a line without early launches", &line(&all, 10, false)));
    cases.push(case("forks and joins", &diamonds()));
    cases.push(case("a fork of four, joined in pairs", &fork()));
    for seed in 0..6 {
        cases.push(case(&format!("a random graph, {seed}"), &random(seed)));
    }
    cases
}

/// Lines that are wrong, for checks to find: one loads before it waits, and one does so with what the launch
/// before its predecessor wrote.
pub fn wrong_lines() -> Vec<Case> {
    let [first, second] = [KERNELS[1].0; 2];
    let of = |kernel, number: usize, reads: usize| {
        let (after, early) = (number.checked_sub(1).into_iter().collect(), number > 0);
        let reads = if number == 0 { [None; 2] } else { [Some(reads); 2] };
        Planned { kernel, after, early, reads }
    };
    vec![
        case("loads before its wait", &[of(first, 0, 0), of(LATE, 1, 0)]),
        case("loads what was written two launches ago", &[of(first, 0, 0), of(second, 1, 0), of(LATE, 2, 0)]),
    ]
}

fn line(kernels: &[&'static str], launches: usize, early: bool) -> Vec<Planned> {
    let link = |number: usize| Planned {
        kernel: kernels[number % kernels.len()],
        after: number.checked_sub(1).into_iter().collect(),
        early: early && number > 0,
        // The wait for the launch before is one for all before that.
        reads: [number.checked_sub(1), number.checked_sub(2)],
    };
    (0..launches).map(link).collect()
}

/// One launch, two that follow it, one that follows both, which an early one follows, and so on.
fn diamonds() -> Vec<Planned> {
    let kernel = |number: usize| KERNELS[number % KERNELS.len()].0;
    let mut plan = Vec::new();
    for top in (0..20).step_by(5) {
        let last = usize::checked_sub(top, 1);
        let early = last.is_some();
        plan.push(Planned {
            kernel: kernel(top),
            after: last.into_iter().collect(),
            early,
            reads: [last; 2],
        });
        for side in 1..3 {
            let reads = [Some(top), last];
            plan.push(Planned { kernel: kernel(top + side), after: vec![top], early: false, reads });
        }
        let sides = [top + 1, top + 2];
        let (kernel_of_join, reads) = (kernel(top + 3), sides.map(Some));
        plan.push(Planned { kernel: kernel_of_join, after: sides.to_vec(), early: false, reads });
        let reads = [Some(top + 3), Some(top + 1)];
        plan.push(Planned { kernel: kernel(top + 4), after: vec![top + 3], early: true, reads });
    }
    plan
}

/// One launch, four that follow it, two that each follow two of them, one that follows these.
fn fork() -> Vec<Planned> {
    let of = |kernel: usize, after: &[usize]| Planned {
        kernel: KERNELS[kernel].0,
        after: after.to_vec(),
        early: false,
        reads: [after.first().copied(), after.last().copied()],
    };
    let mut plan = vec![of(1, &[])];
    plan.extend((1..5).map(|number| of(number, &[0])));
    plan.extend([of(2, &[1, 2]), of(3, &[3, 4]), of(4, &[5, 6])]);
    plan
}

fn random(seed: u64) -> Vec<Planned> {
    let mut noise = Noise::new(seed);
    let planned = |number: usize| {
        let near = |noise: &mut Noise| number - 1 - noise.below(number.min(4));
        let wanted = if number == 0 { 0 } else { noise.below(3) };
        let after: Vec<usize> = (0..wanted).map(|_| near(&mut noise)).collect();
        let reads = [after.first().copied(), after.last().copied()];
        let early = after.len() == 1 && noise.below(3) > 0;
        Planned { kernel: KERNELS[noise.below(KERNELS.len())].0, after, early, reads }
    };
    (0..16).map(planned).collect()
}

fn case(program: &str, plan: &[Planned]) -> Case {
    let mut noise = Noise::new(plan.len() as u64);
    let input: Vec<u32> = (0..COUNT).map(|_| noise.bits()).collect();
    // The input is buffer 0, and what launch n writes is buffer n + 1.
    let (mut links, mut buffers, mut results) = (Vec::new(), vec![input.clone()], vec![input]);
    for (number, planned) in plan.iter().enumerate() {
        let [a, b] = planned.reads.map(|read| read.map_or(0, |launch| launch + 1));
        let (shift, add) = (noise.bits() % COUNT, noise.bits());
        let at = |input: usize, i: u32| results[input][((i + shift) % COUNT) as usize];
        let of = |i: u32| {
            let inner = at(a, i).wrapping_mul(FACTOR).wrapping_add(at(b, i));
            inner.wrapping_mul(FACTOR).wrapping_add(add)
        };
        let result = (0..COUNT).map(of).collect();
        let args =
            Dependent { out: BufferNumber(number + 1), a: BufferNumber(a), b: BufferNumber(b), shift, add }
                .args();
        let (kernel, after, early) = (planned.kernel, planned.after.clone(), planned.early);
        links.push(Link { kernel, args, after, early });
        buffers.push(vec![0xdead_beef; COUNT as usize]);
        results.push(result);
    }
    Case {
        family: "dependent launches",
        program: program.to_owned(),
        seed: plan.len() as u64,
        cubins: cubins!("../../kernels/conformance/dependents"),
        kernel: String::new(),
        config: LaunchConfig::new(COUNT.div_ceil(BLOCK), BLOCK),
        launches: Vec::new(),
        links,
        buffers,
        expected: Some(results.into_iter().map(|words| words.into_iter().map(Some).collect()).collect()),
        place: Box::new(|buffer, word| {
            let what = format!("word {word} of launch {buffer}");
            Some(Place { what, tolerance: Tolerance::Exact })
        }),
        ..Case::blank()
    }
}
