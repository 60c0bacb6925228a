//! The kernels of the disassembler's corpus, with inputs.
//!
//! Most files of the corpus are lists of single instructions: each kernel computes on the same few inputs and
//! stores every result, so that a difference names its instruction (read from the PTX). The others are small
//! kernels of a language model.

use std::collections::HashMap;

use hcq::LaunchConfig;

use crate::conformance::case::{Arg, Case, Place};
use crate::conformance::cubins::cubins;
use crate::conformance::noise::Noise;
use crate::conformance::tolerance::Tolerance;

/// A file of single instructions: its name, cubins and PTX.
struct List {
    name: &'static str,
    cubins: [&'static [u8]; 2],
    ptx: &'static str,
}

macro_rules! list {
    ($name:literal) => {
        List {
            name: $name,
            cubins: cubins!(concat!("../../../sass/tests/data/cubin/", $name)),
            ptx: include_str!(concat!("../../../sass/tests/data/ptx/", $name, ".ptx")),
        }
    };
}

/// Bytes of one input set and its results.
const SET: u64 = 2048;
/// Input sets of each kernel.
const SETS: u64 = 24;

/// The statement that makes each stored word, by kernel and byte offset; `None` where no statement sets the
/// register (those that `ptxas` refuses are commented out, their stores are not).
fn statements(ptx: &str) -> Vec<(String, HashMap<usize, Option<String>>)> {
    let mut kernels: Vec<(String, HashMap<usize, Option<String>>)> = Vec::new();
    let mut made: HashMap<String, String> = HashMap::new();
    for line in ptx.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix(".visible .entry ") {
            let name = rest.split('(').next().unwrap_or_default();
            kernels.push((name.to_owned(), HashMap::new()));
            made.clear();
        }
        for statement in line.split(';').map(str::trim).filter(|s| s.contains('%') && !s.starts_with("//")) {
            if !statement.starts_with("st.") {
                let target = statement.split_whitespace().nth(1).and_then(|o| o.split([',', '|']).next());
                made.insert(target.unwrap_or_default().to_owned(), statement.to_owned());
                continue;
            }
            let Some((place, value)) = statement.split_once("],") else { continue };
            let at = place.rsplit_once('+').and_then(|(_, at)| at.parse::<usize>().ok());
            if let (Some(at), Some((_, stored))) = (at, kernels.last_mut()) {
                let what = made.get(value.trim()).cloned();
                let words = if place.contains("64") { 2 } else { 1 };
                for word in 0..words {
                    stored.insert(at + 4 * word, what.clone());
                }
            }
        }
    }
    kernels
}

/// Error that the special-function unit's result may have against the nearest number, which the model gives.
/// Measured on Hopper over all mantissas of several binades.
fn approximation(statement: &str) -> Tolerance {
    let op = statement.split_whitespace().next().unwrap_or_default();
    let single = |ulps, absolute| Tolerance::Single { ulps, absolute };
    if !op.contains(".approx") && !op.contains(".full") {
        return Tolerance::Exact;
    }
    match op.split('.').next().unwrap_or_default() {
        _ if op.ends_with("f64") => Tolerance::HighWord { ulps: 2 },
        _ if op.contains(".f16") => Tolerance::Halves { ulps: 1, absolute: 0.0 },
        "rcp" => single(1, 0.0),
        "lg2" => single(2, 2e-7),
        "sin" | "cos" => single(0, 4e-7),
        "tanh" => single(170, 0.0),
        _ => single(2, 0.0),
    }
}

fn list_cases(list: &List) -> Vec<Case> {
    let mut cases = Vec::new();
    for (number, (kernel, stored)) in (0u64..).zip(statements(list.ptx)) {
        let seed = number;
        let mut noise = Noise::new(seed);
        let mut words = Vec::new();
        for _ in 0..SETS {
            let from = words.len();
            words.extend((0..4).map(|_| noise.integer()));
            words.extend((0..4).map(|_| noise.float()));
            words.extend((0..8).map(|_| noise.integer()));
            for _ in 0..4 {
                words.extend([noise.bits(), noise.mixed()]);
            }
            words.extend([noise.bits(), noise.mixed()]);
            words.resize(from + SET as usize / 4, 0);
        }
        let launches = (0..SETS).map(|set| {
            vec![
                Arg::Buffer(0, set * SET),
                Arg::U32(noise.integer()),
                Arg::F32(f32::from_bits(noise.float())),
                Arg::U64(noise.bits64()),
                Arg::F64(f64::from(f32::from_bits(noise.float()))),
                Arg::U16(noise.bits() as u16),
            ]
        });
        cases.push(Case {
            family: "corpus: lists",
            program: format!("{} {kernel}", list.name),
            seed,
            cubins: list.cubins,
            kernel,
            config: LaunchConfig::new(1, 1),
            launches: launches.collect(),
            buffers: vec![words],
            place: Box::new(move |_, word| {
                let at = 4 * word % SET as usize;
                match stored.get(&at) {
                    Some(what) => {
                        what.as_ref().map(|w| Place { what: w.clone(), tolerance: approximation(w) })
                    }
                    None => {
                        let what = format!("byte {at}, which nothing should write");
                        Some(Place { what, tolerance: Tolerance::Exact })
                    }
                }
            }),
            ..Case::blank()
        });
    }
    cases
}

/// All kernels of the corpus that are driven here.
pub fn cases() -> Vec<Case> {
    let lists = [
        list!("15_int"),
        list!("16_fp32"),
        list!("17_fp64"),
        list!("21_half"),
        list!("22_cvt"),
        list!("23_bits"),
    ];
    let mut cases: Vec<Case> = lists.iter().flat_map(list_cases).collect();
    cases.extend(crate::conformance::model_kernels::cases());
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stored_word_names_its_instruction() {
        let kernels = statements(list!("16_fp32").ptx);
        let (name, stored) = &kernels[0];
        assert_eq!(name, "fp32_0");
        assert_eq!(stored[&1040].as_deref(), Some("fma.rn.f32 %f8,%f1,%f2,%f3"));
        assert!(
            kernels.iter().any(|(_, s)| s
                .values()
                .any(|w| w.as_ref().is_some_and(|w| w.starts_with("rcp.approx.f32"))))
        );
    }
}
