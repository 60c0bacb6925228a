//! The corpus of `tests/checker/`: mistakes of CUDA programmers, each beside the right kernel, under all checks of
//! the software ga10b. `ours.json` there has the verdict of each kernel, and none may get worse.
//!
//! ```sh
//! UPDATE=1 cargo test --profile ci -p ga10b-tests --test checker_corpus   # writes ours.json and the pages anew
//! ```
//!
//! A program of its own: it starts itself again for each case, since a launch that does not end cannot be
//! stopped otherwise.

mod cases;
mod judge;
mod machine;
mod page;
mod results;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Instant;
use std::{env, fs};

use cases::{Case, Marks};
use judge::Verdict;
use libtest_mimic::{Arguments, Failed, Trial};
use results::{Ours, Sanitizer};

/// Least number of faulty kernels, and of right ones.
const LEAST: usize = 80;

fn main() -> ExitCode {
    if let Some(kernel) = env::var_os(machine::CASE) {
        machine::child(&kernel.to_string_lossy());
    }
    let trials = vec![
        Trial::test("each_mistake_has_its_mark_and_its_right_twin", || whole(&Case::all())),
        Trial::test("the_ptx_is_that_of_the_sources", sources),
        Trial::test("no_verdict_gets_worse", verdicts),
        Trial::test("the_pages_are_those_of_the_verdicts", pages),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Whether `UPDATE` asks for new files.
fn updates() -> bool {
    env::var_os("UPDATE").is_some()
}

/// The marks of all kernels.
fn marks(cases: &[Case]) -> BTreeMap<String, Marks> {
    let sources: BTreeSet<_> = cases.iter().map(|case| &case.file).collect();
    let read = |name| fs::read_to_string(cases::file(&format!("{name}.cu"))).unwrap();
    sources.into_iter().flat_map(|name| cases::marks(&read(name))).collect()
}

fn whole(cases: &[Case]) -> Result<(), Failed> {
    let marks = marks(cases);
    let count = |right| cases.iter().filter(|case| case.right == right).count();
    if count(true) < LEAST || count(false) < LEAST || marks.len() != cases.len() {
        return Err(format!("{} right, {} faulty, {} kernels", count(true), count(false), marks.len()).into());
    }
    for case in cases {
        let Some(Marks { bug, other }) = marks.get(&case.kernel) else {
            return Err(format!("{}: no such kernel", case.kernel).into());
        };
        let twin = cases.iter().any(|c| c.right && c.kernel == format!("{}_ok", case.kernel));
        let marked = if case.right { bug.is_empty() && other.is_empty() } else { !bug.is_empty() && twin };
        if !marked || (case.text.is_empty() && !case.kernel.ends_with("_ok")) {
            return Err(format!("{}: {bug:?} {other:?}, right twin {twin}", case.kernel).into());
        }
    }
    Ok(())
}

fn sources() -> Result<(), Failed> {
    for name in Case::all().iter().map(|case| &case.file).collect::<BTreeSet<_>>() {
        let hash = ptxgen::sha256(&fs::read(cases::file(&format!("{name}.cu")))?);
        let ptx = fs::read_to_string(cases::file(&format!("{name}.ptx")))?;
        if ptx.lines().next() != Some(&format!("// SHA-256 of {name}.cu: {hash}")) {
            return Err(format!("{name}.cu has changed: run tools/checker-corpus/build.sh").into());
        }
    }
    Ok(())
}

fn verdicts() -> Result<(), Failed> {
    let cases = Case::all();
    let begin = Instant::now();
    let rows = machine::run_all(&cases);
    let seconds = begin.elapsed().as_secs_f64();
    for (case, row) in cases.iter().zip(&rows) {
        let by = row.by.as_deref().unwrap_or("-");
        println!(
            "{:8} {:30} {:6} {by:6} {:5.2} s {}",
            case.class(),
            case.kernel,
            row.verdict,
            row.seconds,
            row.text
        );
    }
    if updates() {
        let ours = Ours::new(seconds, &cases, &rows);
        ours.write();
        return page::write(&cases, &ours, &Sanitizer::read());
    }
    let ours = Ours::read();
    let worse =
        |case: &Case, verdict: Verdict| ours.verdict(&case.kernel).is_none_or(|known| verdict > known);
    let worse: Vec<String> = (cases.iter().zip(&rows))
        .filter(|(case, row)| worse(case, row.verdict))
        .map(|(case, row)| {
            let known = ours.verdict(&case.kernel).map_or_else(|| "nothing".to_owned(), |v| v.to_string());
            format!("{}: {} where {known} is known: {}", case.kernel, row.verdict, row.text)
        })
        .collect();
    if worse.is_empty() { Ok(()) } else { Err(worse.join("\n").into()) }
}

fn pages() -> Result<(), Failed> {
    // With `UPDATE` the other test writes them.
    if updates() { Ok(()) } else { page::check(&Case::all(), &Ours::read(), &Sanitizer::read()) }
}
