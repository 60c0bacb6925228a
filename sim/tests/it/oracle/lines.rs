//! The model's lines about a fault are the driver's: the same functions, lines, texts, in the same order.

use super::gunzip;
use crate::machine::kernel::Fill;
use crate::machine::{Machine, inc};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Time to wait for the dump that ends a recovery.
const DUMP: Duration = Duration::from_secs(10);

/// The lines that the driver printed about faults, one sequence for each.
fn sequences() -> BTreeSet<Vec<String>> {
    let text = gunzip(include_bytes!("../../../../diag/tests/data/nvgpu-faults.txt.gz"));
    let mut all: Vec<Vec<String>> = Vec::new();
    for line in text.lines() {
        if line.starts_with("F ") {
            all.push(Vec::new());
        } else if let Some(line) = line.strip_prefix("K ") {
            all.last_mut().unwrap().extend(shape(line));
        }
    }
    all.into_iter().collect()
}

/// A line of the driver without its time and values: function, source line and text. `None` for the dump that
/// follows.
fn shape(line: &str) -> Option<String> {
    let (_, line) = line.split_once("nvgpu: 17000000.gpu ")?;
    let (site, message) = line.split_once("]  ")?;
    let (site, _) = site.split_once('[')?;
    // Texts that stand for a value.
    let message = match message.split_once(" owned by ") {
        Some((before, _)) => format!("{before} owned by *"),
        None => message.to_owned(),
    };
    let message = ["fault type: ", "access type: ", "client id:  "].iter().fold(message, |message, key| {
        let Some((before, rest)) = message.split_once(key) else { return message };
        let end =
            ["access type", "gpc id if"].iter().filter_map(|next| rest.find(&format!(", {next}"))).min();
        let rest = end.or(rest.rfind(',')).map_or("", |at| &rest[at..]);
        format!("{before}{key}*{rest}")
    });
    let mut shape = site.trim().to_owned() + " ";
    // One field follows the other without a blank.
    for word in message.replace("M0:", " M0:").split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let digits = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let hex = digits.strip_prefix("0x").unwrap_or(digits);
        let number = hex.bytes().all(|b| b.is_ascii_hexdigit()) && hex.bytes().any(|b| b.is_ascii_digit());
        // The kind of fault decides which lines are printed.
        let kept = shape.ends_with("engine id:  ") || shape.ends_with("act_eng_bitmask=");
        shape += if number && !kept { "N" } else { digits };
        shape += &word[digits.len()..];
    }
    Some(shape)
}

/// Returns the lines that the model printed since it started.
fn printed(machine: &Machine) -> Vec<String> {
    machine.sim.kernel_log().iter().filter_map(|line| shape(line)).collect()
}

/// Provokes a fault of each kind.
#[test]
fn faults_are_printed_as_the_driver_prints_them() {
    let known = sequences();
    let mut differences = Vec::new();
    let mut check = |name: &str, machine: &Machine| {
        // The driver notifies the owner before it prints the method; the dump comes last.
        let deadline = Instant::now() + DUMP;
        while !machine.sim.kernel_log().iter().any(|line| line.contains("__ga10b__")) {
            assert!(Instant::now() < deadline, "{name}: no dump: {:#?}", machine.sim.kernel_log());
            std::thread::yield_now();
        }
        let mut lines = printed(machine);
        // An SM that waits for a translation reports in an interrupt of its own, before or after.
        if lines.iter().any(|line| line.contains("[MMU FAULT]")) {
            lines.retain(|line| !line.contains(" sm "));
        }
        assert!(!lines.is_empty(), "{name}: nothing was printed");
        if !known.contains(&lines) {
            let near =
                known.iter().max_by_key(|known| known.iter().filter(|line| lines.contains(line)).count());
            differences.push(format!("{name}: the model {lines:#?}\nthe driver, nearest {near:#?}"));
        }
    };
    let methods: [(&str, &[u32]); 10] = [
        ("host: bad header", &[6 << 29]),
        ("host: bad method", &[0x2001_0000 | 0xf0 >> 2, 0]),
        ("host: no object", &[0x2001_0000 | 5 << 13 | 0x100 >> 2, 0]),
        ("class on the wrong subchannel", &[inc(0, 0, 1), 0xc7c0]),
        ("unknown method", &[inc(1, 0, 1), 0xc7c0, inc(1, 0x4b0, 1), 0]),
        ("value that the class does not take", &[inc(1, 0, 1), 0xc7c0, inc(1, 0x138, 1), 4]),
        ("method of the firmware", &[inc(1, 0, 1), 0xc7c0, inc(1, 0x520, 1), 0]),
        ("inline data missing", &[inc(1, 0x1b4, 1), 0]),
        ("semaphore nowhere", &[inc(0, 0x5c, 5), 0x1234_5000, 1, 0, 0, 1]),
        (
            "copy from nowhere",
            &[
                inc(4, 0, 1),
                0xc7b5,
                inc(4, 0x400, 4),
                1,
                0,
                1,
                0,
                inc(4, 0x418, 1),
                4,
                inc(4, 0x300, 1),
                0x182,
            ],
        ),
    ];
    for (name, words) in methods {
        let machine = Machine::new();
        let mut channel = machine.channel();
        channel.submit(words);
        channel.wait_error();
        check(name, &machine);
    }
    let launches = [
        ("unmapped store", 0x12_3456_7000, true),
        ("misaligned store", 2, true),
        ("launch without windows", 0, false),
    ];
    for (name, address, windows) in launches {
        let machine = Machine::new();
        let mut channel = machine.channel();
        if windows {
            channel.start();
        } else {
            channel.submit(&[inc(1, 0, 1), 0xc7c0]);
        }
        let fill = Fill::load(&machine);
        let out = machine.buffer(8192);
        let target = if address > 2 { address } else { out.va + address };
        fill.launch(&mut channel, &fill.describe(target, 0, 1), fill.qmd.va + 512, 1);
        channel.wait_error();
        check(name, &machine);
    }
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n\n"));
}
