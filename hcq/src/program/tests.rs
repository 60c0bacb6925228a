//! Cubins of the corpus, and what becomes of damaged ones.

use proptest::prelude::*;

use super::*;
use crate::program::loader::KernelInfo;

const VECADD_87: &[u8] = include_bytes!("../../tests/data/01_vecadd.sm_87.cubin");
const VECADD_90: &[u8] = include_bytes!("../../tests/data/01_vecadd.sm_90.cubin");
const STACK_87: &[u8] = include_bytes!("../../tests/data/12_local_stack.sm_87.cubin");
const STACK_90: &[u8] = include_bytes!("../../tests/data/12_local_stack.sm_90.cubin");
const NORM_87: &[u8] = include_bytes!("../../tests/data/04_rmsnorm.sm_87.cubin");
const NORM_90: &[u8] = include_bytes!("../../tests/data/04_rmsnorm.sm_90.cubin");
const MEMORY_87: &[u8] = include_bytes!("../../tests/data/18_memory.sm_87.cubin");

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
