//! Results measured on Hopper silicon: every instruction test runs through the executor in sm_90 mode.

use std::io::Read;

use ga10b_sim::sm::{Config, Schedule};
use sass::Arch;
use serde_json::Value;

use super::asm;
use super::guest::{CODE, DATA, Guest, launch, run_with};

const THREADS: usize = 160;
const INPUT: u64 = DATA;
const OUTPUT: u64 = DATA + 0x10_0000;
/// Value that a lane leaves after its exit.
const EXITED: u32 = 0xbad;

struct Test {
    name: String,
    input: Vec<[u32; 16]>,
    ops: Vec<u128>,
    regs: Vec<u8>,
    predicates: bool,
    expected: Vec<Vec<u32>>,
}

fn hex(v: &Value) -> u32 {
    u32::from_str_radix(v.as_str().unwrap(), 16).unwrap()
}

fn load() -> Vec<Test> {
    let packed = include_bytes!("../../data/golden-sm90.json.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    let rows = |v: &Value| -> Vec<Vec<u32>> {
        v.as_array().unwrap().iter().map(|row| row.as_array().unwrap().iter().map(hex).collect()).collect()
    };
    let tests = all["tests"].as_array().unwrap();
    tests
        .iter()
        .map(|t| Test {
            name: t["name"].as_str().unwrap().to_owned(),
            input: rows(&all["sets"][t["set"].as_str().unwrap()])
                .into_iter()
                .map(|row| row.try_into().unwrap())
                .collect(),
            ops: t["ops"]
                .as_array()
                .unwrap()
                .iter()
                .map(|o| u128::from_str_radix(o.as_str().unwrap(), 16).unwrap())
                .collect(),
            regs: t["regs"].as_array().unwrap().iter().map(|r| r.as_u64().unwrap() as u8).collect(),
            predicates: t["P"].as_bool().unwrap(),
            expected: rows(&t["out"]),
        })
        .collect()
}

/// Runs the operations of a test between loads of the input registers and stores of the results.
fn execute(test: &Test, config: Config) -> Result<Vec<Vec<u32>>, String> {
    let results = test.regs.len() + usize::from(test.predicates);
    let (index, input, output, preds) = (40, 42, 44, 46);
    let mut code = vec![
        asm::s2r(index, 0x21),
        asm::mov(48, INPUT as u32),
        asm::mov(49, (INPUT >> 32) as u32),
        asm::mad_wide(input, index, 64, 48),
        asm::mov(48, OUTPUT as u32),
        asm::mov(49, (OUTPUT >> 32) as u32),
        asm::mad_wide(output, index, 4 * results as u32, 48),
    ];
    code.extend((0..4).map(|i| asm::ldg128(8 + 4 * i, input, 16 * u32::from(i))));
    code.extend((0..8).map(|i| asm::mov(24 + i, 0xdead_0000 + u32::from(i))));
    code.push(asm::r2p(23));
    code.extend(&test.ops);
    code.push(asm::p2r(preds));
    code.extend((0u32..).zip(&test.regs).map(|(i, &r)| asm::stg(output, 4 * i, r)));
    if test.predicates {
        code.push(asm::stg(output, 4 * test.regs.len() as u32, preds));
    }
    code.push(asm::EXIT);

    let mut guest = Guest::default();
    guest.map(CODE, 0x2000);
    guest.map(INPUT, 0x10_0000);
    guest.map(OUTPUT, 0x1_0000);
    guest.map(super::guest::BANK0, 0x1000);
    guest.write_code(CODE, &code);
    let words: Vec<u32> = test.input.iter().flatten().copied().collect();
    guest.write_u32s(INPUT, &words);
    guest.write_u32s(OUTPUT, &vec![EXITED; THREADS * results]);
    let mut l = launch(Arch::Sm90);
    l.block = [THREADS as u32, 1, 1];
    run_with(config, &guest, &l).map_err(|fault| fault.to_string())?;
    Ok(guest.read_u32s(OUTPUT, THREADS * results).chunks(results).map(<[u32]>::to_vec).collect())
}

/// Whether a MUFU result is within the tolerance of the sheet: units in the last place, or absolutely, by
/// function.
fn mufu_close(name: &str, got: u32, want: u32) -> bool {
    if got == want {
        return true;
    }
    let half = name.ends_with(".F16");
    if half {
        // A bf16 result on this architecture: one unit in the last place, or the absolute bound of the
        // circular functions.
        let value = |x: u32| f64::from(f32::from_bits(x << 16));
        return (got as i32 - want as i32).abs() <= 1 || (value(got) - value(want)).abs() <= 3e-7;
    }
    let function: u32 = name.split('.').nth(1).unwrap().parse().unwrap();
    let (x, y) = (f32::from_bits(got), f32::from_bits(want));
    let relative = ((f64::from(x) - f64::from(y)) / f64::from(y)).abs();
    let absolute = (f64::from(x) - f64::from(y)).abs();
    match function {
        0 | 1 => absolute <= 3e-7,
        2 => relative <= 1.5e-7 * 2.0,
        3 => absolute <= 1.6e-7 || relative <= 1.3e-7 * 2.0,
        4 => relative <= 9.9e-8 * 2.0,
        5 => relative <= 1.25e-7 * 2.0,
        // The upper word of a double: 20 good bits.
        6 | 7 => (got as i32).wrapping_sub(want as i32).abs() <= 1 << 2,
        8 => relative <= 1.2e-7 * 2.0,
        _ => relative <= 1e-5 * 2.0,
    }
}

fn check(config: Config) {
    let tests = load();
    assert_eq!(tests.len(), 704);
    let mut failures = Vec::new();
    for test in &tests {
        let got = match execute(test, config) {
            Ok(got) => got,
            Err(why) => {
                failures.push(format!("{}: {why}", test.name));
                continue;
            }
        };
        let tolerant = test.name.starts_with("MUFU");
        let same = |(got, want): (&Vec<u32>, &Vec<u32>)| {
            got.iter().zip(want).enumerate().all(|(i, (&g, &w))| {
                let predicate = test.predicates && i == test.regs.len();
                // The table keeps seven bits of the predicates, also of those that an exited lane left.
                let g = if predicate { g & 0x7f } else { g };
                g == w || (tolerant && !predicate && mufu_close(&test.name, g, w))
            })
        };
        let wrong: Vec<usize> = (0..THREADS).filter(|&t| !same((&got[t], &test.expected[t]))).collect();
        if let Some(&t) = wrong.first() {
            failures.push(format!(
                "{}: {} threads differ, first {t}: input {:x?} got {:x?} want {:x?}",
                test.name,
                wrong.len(),
                test.input[t],
                got[t],
                test.expected[t]
            ));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} tests fail:\n{}",
        failures.len(),
        tests.len(),
        failures.join("\n")
    );
}

#[test]
fn every_measured_instruction_gives_the_measured_result() {
    check(Config { workers: 1, ..Config::default() });
}

#[test]
fn the_baseline_code_gives_the_same_results() {
    check(Config { host_simd: false, schedule: Schedule::Shuffled(7), ..Config::default() });
}
