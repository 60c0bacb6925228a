//! The table of all kernels in `docs/notes/checker-corpus.md`, and that of the sums in `docs/checker.md`.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use libtest_mimic::Failed;

use super::cases::Case;
use super::judge::Verdict;
use super::results::{Ours, Sanitizer};

/// The classes of mistakes.
const CLASSES: [&str; 4] = ["memory", "race", "init", "sync"];

/// Lines around the table of docs/checker.md.
const MARKS: [&str; 2] =
    ["<!-- corpus: written by the test checker_corpus -->\n", "<!-- end of corpus -->\n"];

const HEAD: &str = "# Notes: the checker beside compute-sanitizer

Each kernel of [`tests/checker/`](../../tests/checker), under the tools of compute-sanitizer on a GPU and
under all checks of [the checker](../checker.md). *Right*: a finding of a tool or check for this class of
mistakes names the kernel and a line of the mistake. *Vague*: any other finding, or a fault without a line.
*Missed*: nothing. Written by `UPDATE=1 cargo test --profile ci -p ga10b-tests --test checker_corpus`; the
figures of compute-sanitizer by `tools/checker-corpus/gpu.sh`.
";

fn docs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join("docs").join(name)
}

/// `right (race)`.
fn cell(verdict: Verdict, by: Option<&str>) -> String {
    match by.filter(|_| verdict != Verdict::Missed && verdict != Verdict::Clean) {
        Some(by) => format!("{verdict} ({by})"),
        None => verdict.to_string(),
    }
}

fn ours_of(ours: &Ours, case: &Case) -> String {
    ours.cases.get(&case.kernel).map_or_else(String::new, |(verdict, by)| cell(*verdict, by.as_deref()))
}

fn theirs_of(sanitizer: &Sanitizer, case: &Case) -> String {
    let known = sanitizer.verdict(&case.kernel);
    known.map_or_else(|| "not run".to_owned(), |(verdict, tool)| cell(verdict, Some(tool)))
}

/// Right, vague and missed of some verdicts.
fn found(verdicts: &[Option<Verdict>]) -> String {
    let count = |wanted| verdicts.iter().filter(|v| **v == Some(wanted)).count();
    let known = verdicts.iter().flatten().count();
    match known {
        0 => "not run | | ".to_owned(),
        _ => format!("{} | {} | {}", count(Verdict::Right), count(Verdict::Vague), count(Verdict::Missed)),
    }
}

/// The sums of docs/checker.md.
fn sums(cases: &[Case], ours: &Ours, sanitizer: &Sanitizer) -> String {
    let mut out = String::from(
        "| Mistakes | Kernels | compute-sanitizer: right | vague | missed | the checker: right | vague | missed |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    let theirs = |case: &Case| sanitizer.verdict(&case.kernel).map(|(verdict, _)| verdict);
    for class in CLASSES.iter().map(Some).chain([None]) {
        let wanted = |case: &&Case| !case.right && class.is_none_or(|class| case.class() == *class);
        let faulty: Vec<&Case> = cases.iter().filter(wanted).collect();
        let their: Vec<_> = faulty.iter().map(|case| theirs(case)).collect();
        let our: Vec<_> = faulty.iter().map(|case| ours.verdict(&case.kernel)).collect();
        let name = class.map_or("all".to_owned(), |class| format!("`{class}`"));
        writeln!(out, "| {name} | {} | {} | {} |", faulty.len(), found(&their), found(&our)).unwrap();
    }
    let right: Vec<&Case> = cases.iter().filter(|case| case.right).collect();
    let alarms =
        |verdicts: Vec<Option<Verdict>>| verdicts.iter().filter(|v| **v == Some(Verdict::False)).count();
    let our = alarms(right.iter().map(|case| ours.verdict(&case.kernel)).collect());
    let their = alarms(right.iter().map(|case| theirs(case)).collect());
    let Sanitizer { version, gpu, wall_seconds, workers, .. } = sanitizer;
    let time = format!(
        "compute-sanitizer {version} on {gpu} takes {wall_seconds:.0} s, {workers} processes at a time, for each \
         kernel under four tools"
    );
    writeln!(
        out,
        "\nFalse alarms in {} right kernels: compute-sanitizer {their}, the checker {our}. Time: {time}; the checker {:.0} s \
         on two cores, a process for each kernel.",
        right.len(),
        ours.seconds
    )
    .unwrap();
    wrapped(&out)
}

/// The text with lines of at most 110 columns, tables excepted.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let mut column = 0;
        for word in line.split(' ').filter(|_| !line.starts_with('|')) {
            if column > 0 && column + 1 + word.len() > 108 {
                out.push('\n');
                column = 0;
            }
            let space = if column > 0 { " " } else { "" };
            write!(out, "{space}{word}").unwrap();
            column += space.len() + word.len();
        }
        writeln!(out, "{}", if line.starts_with('|') { line } else { "" }).unwrap();
    }
    out
}

/// The page of all kernels.
fn table(cases: &[Case], ours: &Ours, sanitizer: &Sanitizer) -> String {
    let mut out = format!("{HEAD}\n{}", sums(cases, ours, sanitizer));
    out.push_str("\nOptions of the tools:");
    for (tool, options) in sanitizer.options.iter().filter(|(_, options)| !options.is_empty()) {
        write!(out, "\n{tool} `{options}`;").unwrap();
    }
    out.pop();
    out.push_str(".\n");
    out.push_str("\n## Faulty kernels\n\n");
    out.push_str("| Class | Kernel | Mistake | compute-sanitizer | The checker | Its right twin: compute-sanitizer | The checker |\n");
    out.push_str("| --- | --- | --- | --- | --- | --- | --- |\n");
    for case in cases.iter().filter(|case| !case.right) {
        let twin = cases.iter().find(|c| c.kernel == format!("{}_ok", case.kernel)).unwrap_or(case);
        let hangs = if case.hang { " (may never end)" } else { "" };
        writeln!(
            out,
            "| {} | `{}` | {}{hangs} | {} | {} | {} | {} |",
            case.class(),
            case.kernel,
            case.text,
            theirs_of(sanitizer, case),
            ours_of(ours, case),
            theirs_of(sanitizer, twin),
            ours_of(ours, twin),
        )
        .unwrap();
    }
    out.push_str("\n## Right patterns\n\n| Kernel | Pattern | compute-sanitizer | The checker |\n| --- | --- | --- | --- |\n");
    for case in cases.iter().filter(|case| case.class() == "right") {
        let (theirs, ours) = (theirs_of(sanitizer, case), ours_of(ours, case));
        writeln!(out, "| `{}` | {} | {theirs} | {ours} |", case.kernel, case.text).unwrap();
    }
    out
}

/// Both pages, as they should be.
fn pages(cases: &[Case], ours: &Ours, sanitizer: &Sanitizer) -> Result<[(PathBuf, String); 2], Failed> {
    let page = docs("checker.md");
    let text = fs::read_to_string(&page)?;
    let [begin, end] = MARKS;
    let parts = text.split_once(begin).and_then(|(before, rest)| Some((before, rest.split_once(end)?.1)));
    let (before, after) = parts.ok_or("docs/checker.md has no marks for the table")?;
    let text = format!("{before}{begin}{}{end}{after}", sums(cases, ours, sanitizer));
    Ok([(page, text), (docs("notes/checker-corpus.md"), table(cases, ours, sanitizer))])
}

/// Writes the pages.
pub fn write(cases: &[Case], ours: &Ours, sanitizer: &Sanitizer) -> Result<(), Failed> {
    for (path, text) in pages(cases, ours, sanitizer)? {
        fs::write(path, text)?;
    }
    Ok(())
}

/// Compares the committed pages with the verdicts.
pub fn check(cases: &[Case], ours: &Ours, sanitizer: &Sanitizer) -> Result<(), Failed> {
    for (path, text) in pages(cases, ours, sanitizer)? {
        if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            let command = "UPDATE=1 cargo test --profile ci -p ga10b-tests --test checker_corpus";
            return Err(format!("{} is another: {command}", path.display()).into());
        }
    }
    Ok(())
}
