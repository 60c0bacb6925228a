//! Reports as text and JSON against committed files.

use nvdiag::Hex;
use nvdiag::Report;
use nvdiag::device::{Class, DeviceInfo, Mapping, Window};
use nvdiag::disassembly::Disassembly;
use nvdiag::queue_metadata::Metadata;

use crate::snapshot::compare;

fn text(report: &impl Report) -> String {
    let mut out = anstream::StripStream::new(Vec::new());
    report.print(&mut out).expect("memory takes everything");
    String::from_utf8(out.into_inner()).expect("reports are UTF-8")
}

fn json(report: &impl Report) -> String {
    let mut out = Vec::new();
    report.print_json(&mut out).expect("memory takes everything");
    String::from_utf8(out).expect("reports are UTF-8")
}

#[test]
fn a_good_and_a_broken_qmd() {
    let good = Metadata::read(include_bytes!("../data/ga10b.qmd")).expect("a QMD");
    assert!(!good.has_problem());
    compare("qmd_ga10b.txt", &text(&good));
    let broken = Metadata::read(include_bytes!("../data/broken.qmd")).expect("a QMD");
    assert!(broken.has_problem());
    compare("qmd_broken.txt", &text(&broken));
    compare("qmd_broken.json", &json(&broken));
}

#[test]
fn cubins_of_both_parts() {
    let orin = Disassembly::read(include_bytes!("../data/12_local_stack.sm_87.cubin"), None, &mut |_| None)
        .expect("a cubin");
    assert!(!orin.has_problem());
    compare("disasm_local_stack_sm_87.txt", &text(&orin));
    let mut hopper =
        Disassembly::read(include_bytes!("../data/01_vecadd.sm_90.cubin"), Some("vadd_f32"), &mut |_| None)
            .expect("a cubin");
    compare("disasm_vadd_sm_90.json", &json(&hopper));
    hopper.words = true;
    compare("disasm_vadd_sm_90.txt", &text(&hopper));
}

#[test]
fn a_device() {
    let info = DeviceInfo {
        name: "ga10b".to_owned(),
        backend: "nvgpu".to_owned(),
        driver_version: "5.15.148-tegra".to_owned(),
        compute_capability: "8.7".to_owned(),
        arch: "sm_87".to_owned(),
        sm_count: 16,
        tpc_count: 8,
        max_warps_per_sm: 48,
        max_shared_per_block_bytes: 163 << 10,
        max_clock_hz: Some(1_300_500_000),
        memory_bytes: 64_330_592 << 10,
        unified_memory: true,
        classes: vec![
            Class::new("compute", 0xc7c0),
            Class::new("copy", 0xc7b5),
            Class::new("channel", 0xffff),
        ],
        windows: vec![
            Window { name: "shared memory".to_owned(), base: Hex(0xfe_0000_0000) },
            Window { name: "local memory".to_owned(), base: Hex(0xfd_0000_0000) },
        ],
        mappings: vec![Mapping { what: "buffer".to_owned(), va: Hex(0x10_0000), size_bytes: 1000 }],
        gpu_cache: Some(false),
        machine: None,
        nvgpu: None,
        all: false,
    };
    assert!(!info.has_problem());
    compare("info.txt", &text(&info));
    compare("info.json", &json(&info));
}

#[test]
fn every_document_names_its_schema_first() {
    let report = Metadata::read(include_bytes!("../data/ga10b.qmd")).expect("a QMD");
    assert!(json(&report).starts_with("{\n  \"schema\": \"nvdiag.qmd/1\","));
}
