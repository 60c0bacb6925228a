//! Cubins of the corpus, and what becomes of damaged ones.

use proptest::prelude::*;
use qmd::Target;

use super::*;
use crate::backend::tests::Books;
use crate::cubin::loader::KernelInfo;
use crate::objects::shared::Shared;
use crate::observer::Unobserved;
use crate::options::DeviceOptions;
use crate::shape::LaunchConfig;

const VECADD_87: &[u8] = include_bytes!("../../../tests/data/01_vecadd.sm_87.cubin");
const VECADD_90: &[u8] = include_bytes!("../../../tests/data/01_vecadd.sm_90.cubin");
const STACK_87: &[u8] = include_bytes!("../../../tests/data/12_local_stack.sm_87.cubin");
const STACK_90: &[u8] = include_bytes!("../../../tests/data/12_local_stack.sm_90.cubin");
const NORM_87: &[u8] = include_bytes!("../../../tests/data/04_rmsnorm.sm_87.cubin");
const NORM_90: &[u8] = include_bytes!("../../../tests/data/04_rmsnorm.sm_90.cubin");
const MEMORY_87: &[u8] = include_bytes!("../../../tests/data/18_memory.sm_87.cubin");

fn parse(bytes: &[u8]) -> Result<Cubin, CubinError> {
    Cubin::parse(bytes, |sm| BankLayout::of_sm(sm).map(|l| l.parameters))
}

fn kernel(bytes: &[u8], name: &str) -> KernelInfo {
    let cubin = parse(bytes).unwrap();
    cubin.kernels.iter().find(|k| k.name == name).unwrap().clone()
}

#[test]
fn a_kernels_needs_are_read() {
    let k = kernel(VECADD_87, "vadd_f32");
    assert_eq!((k.param_base, k.param_bytes), (0x160, 28));
    assert_eq!((k.static_shared, k.stack), (0, 0));
    assert!((8..=64).contains(&k.registers), "{}", k.registers);
    assert_eq!(k.code.offset % 128, 0);
    let k = kernel(VECADD_90, "vadd_f32");
    assert_eq!((k.param_base, k.param_bytes), (0x210, 28));
    assert_eq!(parse(VECADD_87).unwrap().sm, 87);
    assert_eq!(parse(VECADD_90).unwrap().sm, 90);
}

#[test]
fn stack_frames_are_found_in_both_abis() {
    for bytes in [STACK_87, STACK_90] {
        let cubin = parse(bytes).unwrap();
        assert!(cubin.kernels.iter().any(|k| k.stack > 0), "{:?}", cubin.kernels);
    }
}

#[test]
fn calls_and_alloca_get_a_stack_though_the_compiler_says_none() {
    for bytes in [STACK_87, STACK_90] {
        assert!(kernel(bytes, "recursion_and_calls").stack >= 1024);
        assert!(kernel(bytes, "alloca_dyn").stack >= 1024);
        assert_eq!(kernel(bytes, "local_array").stack, 256);
        assert_eq!(kernel(bytes, "generic_windows").stack, 64);
    }
    assert_eq!(kernel(MEMORY_87, "memory_0").stack, 0);
}

/// Divisions and roots, for which ptxas calls its own functions.
#[test]
fn calls_of_functions_without_frames_take_no_stack() {
    for bytes in [NORM_87, NORM_90] {
        let cubin = parse(bytes).unwrap();
        assert!(cubin.kernels.iter().all(|k| k.stack == 0), "{:?}", cubin.kernels);
    }
}

#[test]
fn relocations_resolve_to_the_image() {
    let cubin = parse(MEMORY_87).unwrap();
    let (low, high) = (cubin.image(0x10_0000_0000).unwrap(), cubin.image(0x20_0000_0000).unwrap());
    assert_eq!(low.len(), high.len());
    assert!(cubin.len() >= low.len() as u64 + 4096);
}

#[test]
fn code_runs_on_its_own_major_version_alone_and_that_of_desktop_gpus_not_on_tegra() {
    assert!(runs_on(80, 80) && runs_on(80, 86) && runs_on(86, 89) && !runs_on(86, 80) && !runs_on(80, 90));
    assert!(runs_on(87, 87) && !runs_on(80, 87) && !runs_on(87, 89) && !runs_on(87, 90) && runs_on(90, 90));
}

#[test]
fn other_files_are_refused_by_what_they_are() {
    assert!(matches!(parse(b"hello"), Err(CubinError::Elf { .. })));
    let mut other = VECADD_87.to_vec();
    other[18] = 62;
    assert!(matches!(parse(&other), Err(CubinError::NotCuda { machine: 62 })));
    let mut unknown = VECADD_87.to_vec();
    unknown[48] = 20;
    assert!(matches!(parse(&unknown), Err(CubinError::UnknownSm { sm: 20 })));
}

proptest! {
    /// Damaged files give an error or a program, never a panic, and never an image of another size.
    #[test]
    fn damaged_cubins_never_panic(
        which in 0usize..4,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = [VECADD_87, STACK_87, STACK_90, MEMORY_87][which].to_vec();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(cubin) = parse(&bytes)
            && let Ok(image) = cubin.image(0x10_0000_0000)
        {
            prop_assert!(image.len() as u64 <= cubin.len());
        }
    }
}

/// The descriptor's target against the table of carve-outs: room for the blocks that fit by registers and
/// threads, of a grid that has so many.
#[test]
fn an_sm_sets_shared_memory_apart_for_all_blocks_that_fit() {
    let books = Books::new(usize::MAX);
    let shared = Shared::new(books, Arc::new(Unobserved), DeviceOptions::default()).unwrap();
    let (sms, device) = (shared.core.info().sm_count, shared.target.qmd);
    for (bytes, name) in [(VECADD_87, "vadd_f32"), (NORM_87, "rmsnorm_f16")] {
        let kernel = Program::load(&shared, bytes.into()).unwrap().kernel(name).unwrap();
        for (threads, dynamic) in [(32, 0), (128, 0), (128, 4 << 10), (256, 20 << 10), (512, 70 << 10)] {
            for (grid, asked) in [(1, 0), (sms, 0), (2 * sms + 1, 0), (100 * sms, 0), (100 * sms, 1), (1, 3)]
            {
                let config = LaunchConfig::new(grid, threads).with_dynamic_shared(dynamic);
                let config = config.with_blocks_per_sm(asked);
                let fit = kernel.blocks_per_sm(threads, dynamic);
                let blocks = if asked > 0 { asked } else { grid.div_ceil(sms).min(fit).max(1) };
                assert_eq!(kernel.blocks_apart(&config, sms), blocks);
                // The table itself, for every part that has descriptors of this version.
                for target in [device, Target::Sm80, Target::Sm86] {
                    let qmd = kernel.descriptor(target, &config, blocks).unwrap();
                    let block = (kernel.static_shared() + dynamic).next_multiple_of(128);
                    let one = block.max(8 << 10);
                    let all = if blocks > 1 { blocks * (block + 1024) } else { 0 }.max(one);
                    let table = target.carve_outs_kib();
                    let least = |bytes: u32| table.iter().copied().find(|kib| kib << 10 >= bytes);
                    let carve_outs = qmd.carve_outs();
                    assert_eq!(carve_outs.target_kib, least(all).or(table.last().copied()), "{config:?}");
                    assert_eq!(carve_outs.min_kib, least(one));
                    assert_eq!(carve_outs.max_kib, table.last().copied());
                }
            }
        }
    }
}
