//! The cost of the inner loops of the persistent step, counted in the committed machine code.

use std::collections::{BTreeMap, BTreeSet};

use ga10b_llm::kernels::committed::cubin;
use ga10b_llm::kernels::format::Format;
use ga10b_llm::kernels::stream::variant::{VARIANTS, Variant};
use sass::{Arch, Instruction, Listing, Opcode};

/// Weights per lane in one pass of the loop: two tiles of 16 rows and 256 columns.
const WEIGHTS: f64 = 256.0;
/// Tensor core operations in one pass.
const PRODUCTS: usize = 16;
/// Integer operations per weight that the code takes. The slowest power mode of an Orin has time for 1.6.
const BUDGET: f64 = 1.6;

/// The same of types with a codebook, whose bytes an Orin at its full clock reads no faster: of IQ3_XXS 3.2.
const BUDGET_OF_CODEBOOKS: f64 = 2.8;

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

/// Integer operations per weight in the loop of each of `formats` in a kernel for sm_87, where a consumer has one
/// column of tiles.
fn operations(variant: &Variant, formats: &[Format]) -> Vec<f64> {
    let module = variant.module;
    let lines: Vec<_> = Listing::new(Arch::Sm87, code(cubin(87, module).unwrap(), "stream"), 0).collect();
    let is_product = |line: &&sass::Line| line.decoded.as_ref().is_ok_and(|d| d.opcode == Opcode::Imma);
    let products = |(start, end): &(usize, usize)| lines[*start..=*end].iter().filter(is_product).count();
    // Two per format, in their order: for one column of tiles per consumer, and for several. The products
    // of a last tile alone are in no loop of their own. Q2_K has more products.
    let loops: Vec<_> = product_loops(&lines).into_iter().filter(|l| products(l) == PRODUCTS).collect();
    let all: Vec<_> =
        variant.formats.iter().filter(|f| f.is_quantized() && **f != Format::Q2K).copied().collect();
    assert_eq!(loops.len(), 2 * all.len(), "{module}");
    let of = |format: &Format| {
        let (start, end) = loops[2 * all.iter().position(|f| f == format).unwrap()];
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        for line in &lines[start..=end] {
            let instruction = line.decoded.as_ref().unwrap();
            if is_integer(instruction, line.pc) {
                *counts.entry(instruction.opcode.mnemonic()).or_default() += 1;
            }
        }
        let total: u32 = counts.values().sum();
        let (each, count) = (f64::from(total) / WEIGHTS, end + 1 - start);
        eprintln!("{module}, {format:?}: {each:.3} integer operations per weight in {count}: {counts:?}");
        each
    };
    formats.iter().map(of).collect()
}

#[test]
fn a_six_bit_weight_costs_few_integer_operations() {
    for variant in VARIANTS.iter().filter(|v| v.formats.last() == Some(&Format::Q6K)) {
        let [each] = operations(variant, &[Format::Q6K])[..] else { panic!("one format") };
        assert!(each <= BUDGET, "{}: {each:.3} integer operations per weight", variant.module);
    }
}

/// The table of `docs/models.md` has the figures.
#[test]
fn a_weight_from_a_codebook_costs_few_integer_operations() {
    let variant = VARIANTS.iter().find(|v| v.module == "stream_codebook").unwrap();
    let all = operations(variant, &Format::WITH_CODEBOOK);
    assert!(all.iter().all(|each| *each <= BUDGET_OF_CODEBOOKS), "{all:?}");
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
    let products = (0..lines.len()).filter(|i| opcode(*i) == Some(Opcode::Imma));
    let around = |i: usize| {
        let all = loops.iter().filter(|(start, end)| (*start..=*end).contains(&i));
        *all.min_by_key(|(start, end)| end - start).unwrap()
    };
    products.map(around).collect()
}

/// Accesses of local memory in such loops of more than 7,000 instructions, which are over the work of a phase: no
/// others have some.
const SPILLED: [((&str, Arch), usize); 4] = [
    (("stream_q4_k", Arch::Sm87), 4),
    (("stream_plain", Arch::Sm90), 4),
    (("stream_codebook", Arch::Sm87), 40),
    (("stream_codebook", Arch::Sm90), 42),
];

/// Local memory has next to no cache beside a ring that takes most of the shared memory.
#[test]
fn the_loops_of_products_keep_everything_in_registers() {
    let archs = [(Arch::Sm87, 87), (Arch::Sm90, 90)];
    // Without quantized types there are no such products.
    let modules = VARIANTS.iter().filter(|v| v.formats.iter().any(|f| f.is_quantized())).map(|v| v.module);
    for (module, (arch, sm)) in modules.flat_map(|m| archs.map(|arch| (m, arch))) {
        let lines: Vec<_> = Listing::new(arch, code(cubin(sm, module).unwrap(), "stream"), 0).collect();
        let loops = product_loops(&lines);
        assert!(!loops.is_empty(), "no loop with products in {module} for {arch:?}");
        for (start, end) in loops {
            let local = |i: &usize| {
                let opcode = lines[*i].decoded.as_ref().unwrap().opcode;
                matches!(opcode, Opcode::Ldl | Opcode::Stl)
            };
            let spilled = SPILLED.iter().find(|(kernel, _)| *kernel == (module, arch) && end - start > 7_000);
            let most = spilled.map_or(0, |(_, most)| *most);
            let count = (start..=end).filter(local).count();
            let pc = lines[start].pc;
            assert!(
                count <= most,
                "{module} for {arch:?}: local memory {count} times in the loop at {pc:#x}"
            );
        }
    }
}
