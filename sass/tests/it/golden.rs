//! The decoder against listings made by NVIDIA's disassembler (`tools/sass-golden.py` writes them).

use std::collections::HashSet;

use crate::listings::{arch_of, json, word_of};
use sass::{Arch, Word, decode};
use serde_json::Value;

/// Compares a list of `[hex word, text]`, entry i at address 16 i; returns how many entries it has.
fn compare(arch: Arch, code: &Value) -> usize {
    let code = code.as_array().expect("a list of instructions");
    let mut differences = Vec::new();
    for (entry, pc) in code.iter().zip((0u64..).step_by(16)) {
        let (word, text) = (word_of(entry), entry[1].as_str().expect("text"));
        match decode(arch, word) {
            Ok(instruction) => {
                let ours = instruction.text(pc);
                if ours != text {
                    differences.push(format!("{word} {pc:#x}\n    expected {text}\n    decoded  {ours}"));
                }
            }
            Err(error) => differences.push(format!("{text}: {error}")),
        }
    }
    assert!(differences.is_empty(), "{} of {}:\n{}", differences.len(), code.len(), differences.join("\n"));
    code.len()
}

/// Compares every cubin of a file; returns the number of instructions per architecture.
fn compare_cubins(name: &str) -> [usize; 2] {
    let golden = json(name);
    let mut counts = [0; 2];
    for cubin in golden["cubins"].as_array().expect("cubins") {
        counts[usize::from(arch_of(cubin) == Arch::Sm90)] += compare(arch_of(cubin), &cubin["code"]);
    }
    println!("{name}: sm_87 {}, sm_90 {} instructions", counts[0], counts[1]);
    counts
}

#[test]
fn the_published_sm_87_words_read_alike() {
    assert_eq!(compare(Arch::Sm87, &json("decode-sm87.json.gz")["code"]), 3950);
}

#[test]
fn the_corpus_reads_alike() {
    assert_eq!(compare_cubins("golden/corpus.json.gz"), [12016, 9904]);
}

#[test]
fn other_optimisation_levels_read_alike() {
    let [sm87, sm90] = compare_cubins("golden/variants.json.gz");
    assert!(sm87 > 20_000 && sm90 > 20_000, "{sm87}, {sm90}");
}

/// Words that ptxas makes of the corpus for other SMs of the same encoding, and not for sm_87.
#[test]
fn words_of_sm_80_86_and_89_read_alike() {
    let golden = json("golden/generations.json.gz");
    let counts = golden["cubins"].as_array().expect("cubins").iter().map(|cubin| {
        let arch = arch_of(cubin);
        (arch.sm(), compare(arch, &cubin["code"]))
    });
    let counts: Vec<_> = counts.collect();
    assert!(counts.iter().map(|(sm, _)| *sm).eq([80, 86, 89]), "{counts:?}");
    assert!(counts.iter().all(|(_, words)| *words > 500), "{counts:?}");
}

#[test]
fn every_cubin_of_the_repository_reads_alike() {
    compare_cubins("golden/repository.json.gz");
}

/// Hand-made words that ran on a Hopper GPU, with operands and modifiers that the compiler does not choose.
#[test]
fn words_that_hardware_executed_decode() {
    let golden = json("hardware-sm90.json.gz");
    let words: Vec<Word> = golden.as_array().expect("words").iter().map(word_of).collect();
    let refused: Vec<_> = words.iter().filter_map(|&word| decode(Arch::Sm90, word).err()).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    assert!(words.len() > 700);
}

#[test]
fn the_corpus_uses_most_operations() {
    let golden = json("golden/corpus.json.gz");
    let mut used = HashSet::new();
    for cubin in golden["cubins"].as_array().expect("cubins") {
        let code = cubin["code"].as_array().expect("code");
        used.extend(code.iter().map(|entry| decode(arch_of(cubin), word_of(entry)).expect("decodes").opcode));
    }
    assert!(used.len() > 115, "{}", used.len());
}

/// Copies by the SM's copy unit, barrier objects and related instructions of SM 9.0, as nvdisasm 13.5 reads
/// them: forms of `cp.async.bulk`, `mbarrier`, `elect.sync` and `griddepcontrol` that ptxas 12.6 makes.
const COPIES_AND_OBJECTS: &[(u128, &str)] = &[
    (0x000f24000000000000000000000073c6, "FENCE.VIEW.ASYNC.S"),
    (0x0085300008000100000000080a3f75b2, "SYNCS.EXCH.64 URZ, [UR10], UR8"),
    (0x004be200083004050000000effff79a7, "SYNCS.ARRIVE.TRANS64.RED.A0TR RZ, [UR5], R14"),
    (0x000be200084004050000000effff79a7, "SYNCS.ARRIVE.TRANS64.RED.A0TX RZ, [UR5], R14"),
    (0x000ee20008100005000000ffff0879a7, "SYNCS.ARRIVE.TRANS64.A1T0 R8, [UR5], RZ"),
    (0x000b2200085000050000000eff0479a7, "SYNCS.ARRIVE.TRANS64.ART0 R4, [UR5], R14"),
    (0x000ea4000850023f00000010170a79a7, "SYNCS.ARRIVE.TRANS64.TMASK.ART0 R10, [R23+URZ], R16"),
    (0x000f620008100805000000ffff0c79a7, "SYNCS.ARRIVE.TRANS64.OPTOUT.A1T0 R12, [UR5], RZ"),
    (0x000f6200080000050000080eff0e79a7, "SYNCS.ARRIVE.TRANS64 R14, [UR5+0x8], R14"),
    (0x000fe20008200405000000ffffff79a7, "SYNCS.ARRIVE.TRANS64.RED.A0T1 RZ, [UR5], RZ"),
    (0x000fe20008000a8500000000ff0079b0, "ARRIVES.LDGSTSBAR.64.TRANSCNT [UR5]"),
    (0x000fe20008000a4800000800ff0089b0, "@!P0 ARRIVES.LDGSTSBAR.64.ARVCNT [UR8+0x8]"),
    (0x000fda000382000000000000003f082f, "@P0 ELECT P1, URZ, PT"),
    (0x0003e4000800020e000000100a0073ba, "UBLKCP.S.G [UR16], [UR10], UR14"),
    (0x0003d80008001210000006040a0073ba, "UBLKCP.S.G [UR4], [UR10], UR16, desc[UR6]"),
    (0x0003f0000800000e00000000100073bc, "UBLKPF.L2 [UR16], UR14"),
    (0x0003e2000800100e000006000a0073bc, "UBLKPF.L2 [UR10], UR14, desc[UR6]"),
    (0x000fe20000000000000000000000782e, "ACQBULK"),
    (0x000fe20000000000000000000000782d, "PREEXIT"),
    (0x000e66000000010000000000000073c6, "FENCE.VIEW.ASYNC.G"),
    (0x002262000802014500000016ff0075a7, "SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR5], R22"),
    (0x000fea0003900000000003e80000b95d, "@!P3 NANOSLEEP.SYNCS 0x3e8"),
    (0x000e62000806007f000000111700b5a7, "@!P3 SYNCS.PHASECHK.TRANS64 P3, [R23+URZ], R17"),
    (0x004ea2000c5e9b000000000602067981, "LDG.E.NA.64.CONSTANT R6, desc[UR6][R2.64]"),
    (0x000e64000800003f00000000000079b1, "SYNCS.CCTL.IV [R0+URZ]"),
    (0x000fe80000800100000000000200798f, "CCTL.E.PF2 [R2]"),
    (0x000fe80004800100000000000200798f, "CCTL.E.PML2 [R2]"),
    (0x000fe20000000100000000000200798f, "CCTL.E.PF1 [R2]"),
    (0x0023e200080004080000000a040073ba, "UBLKCP.G.S [UR10], [UR4], UR8"),
    (0x0001e2000000000000000000000079b7, "UTMACMDFLUSH"),
];

#[test]
fn copies_and_barrier_objects_of_sm_90_read_alike() {
    for &(word, expected) in COPIES_AND_OBJECTS {
        let instruction =
            decode(Arch::Sm90, Word(word)).unwrap_or_else(|error| panic!("{expected}: {error}"));
        assert_eq!(instruction.text(0), expected);
        assert!(instruction.effects().is_some(), "{expected}");
    }
}

/// `(word, reads, writes)`: destination and object, source, length and policy of a copy; the lane of an election.
#[test]
fn copies_and_elections_name_their_registers() {
    let names = |set: sass::RegisterSet| set.iter().map(|r| r.to_string()).collect::<Vec<_>>().join(" ");
    for (word, reads, writes) in [
        (0x0003_d800_0800_1210_0000_0604_0a00_73ba, "UR4 UR5 UR6 UR7 UR10 UR11 UR16", ""),
        (0x0003_e400_0800_020e_0000_0010_0a00_73ba, "UR10 UR11 UR14 UR16 UR17", ""),
        (0x0003_f000_0800_000e_0000_0000_1000_73bc, "UR14 UR16 UR17", ""),
        (0x000f_da00_0382_0000_0000_0000_003f_082f, "P0", "P1"),
        (0x000f_e200_0380_0000_0000_0000_0010_782f, "", "UR16 P0"),
    ] {
        let effects = decode(Arch::Sm90, Word(word)).expect("decodes").effects().expect("operands are known");
        assert_eq!((names(effects.reads), names(effects.writes)), (reads.to_owned(), writes.to_owned()));
    }
}
