//! What the step kernel's inner loop costs, counted in the committed machine code for sm_87.

use std::collections::{BTreeMap, BTreeSet};

use ga10b_llm::kernels::committed::cubin;
use sass::{Arch, Instruction, Listing, Opcode};

/// Values of the activations that a lane multiplies in one pass of the loop: two tiles of two rows, 64 of
/// each.
const WEIGHTS: f64 = 256.0;
/// Integer operations per weight that the code takes. The slowest power mode of an Orin has time for 1.6.
const BUDGET: f64 = 1.6;

/// Operations of the integer units. Moves that the compiler writes as multiplications by one are not among
/// them.
fn is_integer(instruction: &Instruction, pc: u64) -> bool {
    use Opcode::*;
    match instruction.opcode {
        Imad => !instruction.text(pc).contains("IMAD.MOV"),
        Iadd3 | ImadWide | ImadHi | Idp | Lea | Lop3 | Shf | Sgxt | Bmsk | Iabs | Imnmx | Isetp | Prmt
        | Sel | Flo | Popc => true,
        _ => false,
    }
}

/// The code of `kernel` in a cubin.
fn code<'a>(cubin: &'a [u8], kernel: &str) -> &'a [u8] {
    let file = hcq::cubin::File::parse(cubin).unwrap();
    let section = file.section(&format!(".text.{kernel}")).unwrap();
    file.content(&section).unwrap()
}

#[test]
fn a_six_bit_weight_costs_few_integer_operations() {
    let cubin = cubin(87, "step_q6_k").unwrap();
    let lines: Vec<_> = Listing::new(Arch::Sm87, code(cubin, "step_q6_k"), 0).collect();
    let products = |(start, end): &(usize, usize)| {
        let is_product = |line: &&sass::Line| line.decoded.as_ref().is_ok_and(|d| d.opcode == Opcode::Idp);
        lines[*start..=*end].iter().filter(is_product).count()
    };
    // Attention has integer products too, but fewer.
    let (start, end) = product_loops(&lines).into_iter().max_by_key(products).unwrap();
    // A product takes two instructions per four weights.
    assert_eq!(products(&(start, end)) as f64, WEIGHTS / 2.0);
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for line in &lines[start..=end] {
        let instruction = line.decoded.as_ref().unwrap();
        if is_integer(instruction, line.pc) {
            *counts.entry(instruction.opcode.mnemonic()).or_default() += 1;
        }
    }
    let total: u32 = counts.values().sum();
    let each = f64::from(total) / WEIGHTS;
    assert!(each <= BUDGET, "{each:.3} integer operations per weight: {counts:?}");
    eprintln!("{each:.3} integer operations per weight in {} instructions: {counts:?}", end + 1 - start);
}

/// The loops that have integer products in them, as ranges of lines: for each product the shortest way back
/// around it.
fn product_loops(lines: &[sass::Line]) -> BTreeSet<(usize, usize)> {
    let opcode = |i: usize| lines[i].decoded.as_ref().map(|d| d.opcode).ok();
    let back = |end: usize| {
        let target = lines[end].decoded.as_ref().ok()?.branch_target(lines[end].pc)?;
        let start = (target / 16) as usize;
        (opcode(end) == Some(Opcode::Bra) && start <= end).then_some((start, end))
    };
    let loops: Vec<_> = (0..lines.len()).filter_map(back).collect();
    let products = (0..lines.len()).filter(|i| opcode(*i) == Some(Opcode::Idp));
    let around = |i: usize| {
        let all = loops.iter().filter(|(start, end)| (*start..=*end).contains(&i));
        *all.min_by_key(|(start, end)| end - start).unwrap()
    };
    products.map(around).collect()
}

/// A register that is stored to local memory right after the load of a weight waits for that load: the tiles
/// that are loaded ahead would be no help.
#[test]
fn the_loops_of_products_keep_everything_in_registers() {
    let names = ["q6_k", "q8_0", "q4_k", "q5_k", "q4_0"];
    for (name, (arch, sm)) in names.into_iter().flat_map(|n| [(n, (Arch::Sm87, 87)), (n, (Arch::Sm90, 90))]) {
        let cubin = cubin(sm, &format!("step_{name}")).unwrap();
        let lines: Vec<_> = Listing::new(arch, code(cubin, &format!("step_{name}")), 0).collect();
        let loops = product_loops(&lines);
        assert!(!loops.is_empty(), "{name} for {arch:?} has no loop with products");
        for (start, end) in loops {
            let local = |i: &usize| {
                let opcode = lines[*i].decoded.as_ref().unwrap().opcode;
                matches!(opcode, Opcode::Ldl | Opcode::Stl)
            };
            let first = (start..=end).find(local).map(|i| lines[i].pc);
            assert_eq!(
                first, None,
                "{name} for {arch:?}: local memory in the loop at {:#x}",
                lines[start].pc
            );
        }
    }
}
