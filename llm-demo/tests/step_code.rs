//! What the step kernel's inner loop costs, counted in the committed machine code for sm_87.

use std::collections::BTreeMap;

use sass::{Arch, Instruction, Listing, Opcode};

/// Values of the activations that a lane multiplies in one pass of the loop: two tiles of two rows, 64 of each.
const WEIGHTS: f64 = 256.0;
/// Integer operations per weight that the code takes. The slowest power mode of an Orin has time for 1.6.
const BUDGET: f64 = 1.67;

/// Operations of the integer units. Moves that the compiler writes as multiplications by one are not among them.
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
    let elf = goblin::elf::Elf::parse(cubin).unwrap();
    let name = format!(".text.{kernel}");
    let header =
        elf.section_headers.iter().find(|h| elf.shdr_strtab.get_at(h.sh_name) == Some(&name)).unwrap();
    &cubin[header.file_range().unwrap()]
}

#[test]
fn a_six_bit_weight_costs_few_integer_operations() {
    let cubin = include_bytes!("../kernels/step_q6_k.sm_87.cubin");
    let lines: Vec<_> = Listing::new(Arch::Sm87, code(cubin, "step_q6_k"), 0).collect();
    let opcode = |i: usize| lines[i].decoded.as_ref().map(|d| d.opcode).ok();
    let products: Vec<usize> = (0..lines.len()).filter(|i| opcode(*i) == Some(Opcode::Idp)).collect();
    let (first, last) = (products[0], products[products.len() - 1]);
    // A product takes two instructions per four weights.
    assert_eq!(products.len() as f64, WEIGHTS / 2.0);
    // The loop: the nearest branch behind the products that leads back to before them.
    let back = |i: &usize| {
        let line = &lines[*i];
        let target = line.decoded.as_ref().ok().and_then(|d| d.branch_target(line.pc));
        opcode(*i) == Some(Opcode::Bra) && target.is_some_and(|t| t <= lines[first].pc)
    };
    let end = (last..lines.len()).find(back).unwrap();
    let target = lines[end].decoded.as_ref().unwrap().branch_target(lines[end].pc).unwrap();
    let start = (target / 16) as usize;
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
