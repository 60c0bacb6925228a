//! `nvdiag esr --exe`: which instruction of a CUDA program failed, by its executable and the kernel log.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The committed kernels for three architectures.
const CUBINS: [(u32, &[u8]); 3] = [
    (80, include_bytes!("../../kernels/provoke.sm_80.cubin")),
    (87, include_bytes!("../../kernels/provoke.sm_87.cubin")),
    (90, include_bytes!("../../kernels/provoke.sm_90.cubin")),
];

/// An SM of an Orin, with a program counter that begins a block of 8 instructions.
const ORIN: &str = "[  812.004125] nvgpu: 17000000.gpu gv11b_gr_intr_record_sm_error_state:1949 [ERR]  sm err state gpc_id(0), \
    tpc_id(0), offset(0), sm_id(0), hww_global_esr 0,hww_warp_esr 15, hww_warp_esr_pc 0xff55a2a000\n";
/// The same of a desktop GPU, without a program counter; the class identifies the architecture.
const DESKTOP: &str = "\
[   78.606730] NVRM: Xid (PCI:0000:00:06): 13, pid=6729, name=app, Graphics SM Warp Exception on (GPC 1, TPC 3, SM 0): Misaligned Address
[   78.606738] NVRM: Xid (PCI:0000:00:06): 13, pid=6729, name=app, Graphics Exception: ESR 0x518730=0x500000f 0x518734=0x0 0x518728=0x1f81fb60 0x51872c=0x1174
[   78.606926] NVRM: Xid (PCI:0000:00:06): 13, pid=6729, name=app, Graphics Exception: channel 0x00000005, Class 0000cbc0, Offset 00000000, Data 00000000
";
/// A store of a desktop GPU to a page that is not mapped.
const STORE: &str = "[   78.857898] NVRM: Xid (PCI:0000:00:06): 31, pid=6734, name=app, channel 0x00000005, intr 00000000. MMU Fault: \
    ENGINE GRAPHICS GPC1 GPCCLIENT_T1_6 faulted @ 0x7295_01400000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE\n";

/// A container of images that are not packed: kind (1 PTX, 2 cubin), architecture, content.
fn fat_binary(images: &[(u16, u32, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (kind, sm, content) in images {
        let len = content.len().next_multiple_of(8);
        let mut header = vec![0; 64];
        header[..2].copy_from_slice(&kind.to_le_bytes());
        header[2..4].copy_from_slice(&0x101_u16.to_le_bytes());
        header[4..8].copy_from_slice(&64_u32.to_le_bytes());
        header[8..16].copy_from_slice(&(len as u64).to_le_bytes());
        header[0x1c..0x20].copy_from_slice(&sm.to_le_bytes());
        body.extend(header);
        body.extend_from_slice(content);
        body.resize(body.len() + len - content.len(), 0);
    }
    let mut file = 0xba55_ed50_u32.to_le_bytes().to_vec();
    file.extend([1, 0, 16, 0]);
    file.extend((body.len() as u64).to_le_bytes());
    file.extend(body);
    file
}

fn program(archs: &[u32]) -> Vec<u8> {
    let images: Vec<(u16, u32, &[u8])> =
        CUBINS.iter().filter(|(sm, _)| archs.contains(sm)).map(|(sm, cubin)| (2, *sm, *cubin)).collect();
    fat_binary(&images)
}

struct Run {
    code: Option<i32>,
    out: String,
    err: String,
}

/// Runs `nvdiag esr` on a log and a program.
fn esr(log: &str, program: &[u8], suffix: &str, extra: &[&str]) -> Run {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("kern.log"), log).expect("written");
    std::fs::write(folder.path().join("app"), program).expect("written");
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
    command.current_dir(folder.path()).env_remove("HCQ_DEVICE");
    command.args(["esr", "--log", "kern.log", "--exe", &format!("app{suffix}")]).args(extra);
    let run = command.output().expect("nvdiag starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Run { code: run.status.code(), out: text(run.stdout), err: text(run.stderr) }
}

fn fault(log: &str, program: &[u8], suffix: &str, extra: &[&str]) -> Value {
    let run = esr(log, program, suffix, &[&["--json"], extra].concat());
    assert_eq!(run.code, Some(1), "{}", run.err);
    let list: Value = serde_json::from_str(&run.out).expect("JSON");
    list["faults"][0].clone()
}

#[test]
fn the_code_of_the_logs_gpu_is_taken_and_places_are_guessed() {
    let fault = fault(ORIN, &program(&[80, 87, 90]), "", &[]);
    let code = fault["code"].as_array().expect("a list");
    assert!(
        !code.is_empty() && code.iter().all(|code| code["sm"] == 87 && code["certain"] == false),
        "{code:#?}"
    );
    let texts: Vec<&str> = code.iter().filter_map(|code| code["listing"][0]["text"].as_str()).collect();
    assert!(texts[0].starts_with("LDG.E.128"), "the widest access comes first: {texts:?}");
    let guess = &fault["guess"];
    let number = |name: &str| guess[name].as_u64().expect("a number");
    assert_eq!((number("shown"), &guess["by_pc"]), (code.len() as u64, &true.into()));
    assert!(number("can_raise") >= number("shown") && number("places") > number("can_raise"), "{guess}");
    let text = esr(ORIN, &program(&[80, 87, 90]), "", &[]).out;
    assert!(
        text.contains("  guess         the log does not tell where the code was loaded; of the "),
        "{text}"
    );
    assert!(text.contains("(one that fits; --exe FILE:load_vector@0x"), "{text}");
}

#[test]
fn a_base_names_the_instruction_exactly() {
    // The load of 16 bytes is at 0x180 of load_vector.
    for suffix in [":load_vector@0xff55a29e80", ":load_vector@0xff55_a29e_80"] {
        let fault = fault(ORIN, &program(&[80, 87, 90]), suffix, &[]);
        let code = &fault["code"][0];
        assert_eq!((&code["certain"], &code["offset"]), (&true.into(), &"0x180".into()), "{code:#}");
        assert!(fault.get("guess").is_none());
        assert!(fault["verdict"].as_str().is_some_and(|words| words.contains("in load_vector+0x180")));
    }
    let run = esr(ORIN, &program(&[87]), "@0x1000", &[]);
    assert!(run.code == Some(2) && run.err.contains("FILE:KERNEL@BASE"), "{}", run.err);
}

#[test]
fn code_that_an_older_gpu_of_the_generation_was_given_runs_too() {
    let fault = fault(ORIN, &program(&[80, 90]), "", &[]);
    assert_eq!(fault["code"][0]["sm"], 80);
}

#[test]
fn without_a_program_counter_the_error_alone_chooses() {
    let misaligned = fault(DESKTOP, &program(&[80, 87, 90]), "", &[]);
    assert_eq!((&misaligned["code"][0]["sm"], &misaligned["guess"]["by_pc"]), (&90.into(), &false.into()));
    // Of MMU faults the access is known, but not the GPU.
    let unknown = fault(STORE, &program(&[80, 90]), "", &[]);
    assert_eq!(unknown["code"].as_array().map(Vec::len), Some(0));
    assert!(unknown["notes"].to_string().contains("give it with --sm"), "{}", unknown["notes"]);
    let stores = fault(STORE, &program(&[80, 90]), "", &["--sm", "sm_90a"]);
    let code = stores["code"].as_array().expect("a list");
    let is_store = |code: &Value| code["listing"][0]["text"].as_str().is_some_and(|text| text.contains("ST"));
    assert!(!code.is_empty() && code.iter().all(is_store), "{code:#?}");
    // A program for one architecture needs none.
    assert_eq!(fault(STORE, &program(&[90]), "", &[])["code"][0]["sm"], 90);
}

#[test]
fn a_kernel_that_is_named_is_the_only_one_searched() {
    let fault = fault(ORIN, &program(&[87]), ":load_vector", &[]);
    let code = fault["code"].as_array().expect("a list");
    assert!(!code.is_empty() && code.iter().all(|code| code["function"] == "load_vector"), "{code:#?}");
    assert_eq!(fault["guess"]["kernels"], 1);
    let run = esr(ORIN, &program(&[87]), ":nothing", &[]);
    assert!(run.code == Some(2) && run.err.contains("there are: "), "{}", run.err);
}

#[test]
fn a_gpu_that_the_program_has_no_code_for_is_a_note_beside_the_fault() {
    let fault = fault(ORIN, &program(&[90]), "", &[]);
    let notes = fault["notes"].to_string();
    assert!(
        notes.contains("has no code for sm_87") && notes.contains("-gencode arch=compute_87,code=sm_87"),
        "{notes}"
    );
    assert_eq!(fault["what"]["name"], "MISALIGNED_ADDR");
}

#[test]
fn programs_that_cannot_be_used_are_errors_with_a_remedy() {
    let ptx = fat_binary(&[(1, 87, b".version 8.5\n.target sm_87\n")]);
    let binary = std::fs::read(std::env::current_exe().expect("this test")).expect("readable");
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hcq/tests/data/triple.zstd.fatbin");
    let mut damaged = std::fs::read(packed).expect("readable");
    let frame = damaged.windows(4).position(|word| word == [0x28, 0xb5, 0x2f, 0xfd]).expect("a frame");
    damaged[frame + 4..frame + 24].fill(0xff);
    for (bytes, extra, expected) in [
        (&ptx, [].as_slice(), ["it has: sm_87 (PTX)", "-gencode"]),
        (&program(&[90]), &["--sm", "87"], ["no cubin that sm_87 runs; it has: sm_90 (cubin)", "-gencode"]),
        (&binary, &[], ["a program without device code", ".nv_fatbin"]),
        (&damaged, &[], ["cuobjdump -xelf all FILE", "--cubin"]),
        (&b"#!/bin/sh\n".to_vec(), &[], ["cannot use app", "ELF"]),
    ] {
        let run = esr(ORIN, bytes, "", extra);
        assert_eq!((run.code, run.out.as_str()), (Some(2), ""), "{}", run.err);
        assert!(expected.iter().all(|words| run.err.contains(words)), "{expected:?}: {}", run.err);
    }
}

#[test]
fn packed_images_of_an_object_are_read_and_their_names_demangled() {
    for file in ["triple.o", "triple.lz4.fatbin", "triple.zstd.fatbin"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hcq/tests/data").join(file);
        let bytes = std::fs::read(path).expect("readable");
        // One of the blocks of 8 instructions has its load where the program counter says.
        let faults = (0..8).map(|at| {
            let log = ORIN.replace("0xff55a2a000", &format!("0xff55a2a0{at}0"));
            fault(&log, &bytes, "", &["--sm", "89"])
        });
        let fault = faults.into_iter().find(|fault| !fault["code"][0].is_null()).expect("a load");
        let code = &fault["code"][0];
        assert_eq!((&code["function"], &code["demangled"]), (&"_Z6triplePi".into(), &"triple(int*)".into()));
        assert!(fault["notes"].to_string().contains("the lines are of a GPU of sm_87, not of sm_89"));
    }
}
