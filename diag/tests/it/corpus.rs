//! Logs of healthy machines and of faults, written without the code: what is told of each.
//!
//! `tests/corpus/clean` holds logs of machines whose GPU is healthy; nothing may be told of them.
//! `tests/corpus/faults.jsonl` has a line for each other log: for each story whose fault it is, the line that
//! reports the cause, words that the report has, and words of wrong causes.

use std::fs;
use std::path::{Path, PathBuf};

use nvdiag::Report;
use nvdiag::fault::FaultList;
use nvdiag::process_map::ProcessMap;
use nvdiag::session::Session;
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    log: String,
    stories: Vec<Story>,
}

/// Lists are alternatives.
#[derive(Deserialize)]
struct Story {
    whose: Vec<String>,
    cause: Vec<u64>,
    says: Vec<Vec<String>>,
    never: Vec<String>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

fn explain(log: &Path) -> FaultList {
    let mut session = Session::new(ProcessMap::default(), 64);
    session.feed(&fs::read(log).unwrap_or_else(|error| panic!("{}: {error}", log.display())));
    session.finish("the log")
}

fn printed(list: &FaultList) -> String {
    let mut text = Vec::new();
    list.print(&mut text).expect("to memory");
    anstream::adapter::strip_str(&String::from_utf8(text).expect("UTF-8")).to_string()
}

/// The report without the lines of the log that it quotes.
fn told(text: &str) -> String {
    let is_quote = |line: &&str| line.starts_with("    ");
    text.lines().filter(|line| !is_quote(line)).collect::<Vec<_>>().join("\n")
}

/// Whether `phrase` is in `text` as whole words.
fn has_words(text: &str, phrase: &str) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(phrase).any(|(at, _)| {
        !is_word(text[..at].chars().next_back()) && !is_word(text[at + phrase.len()..].chars().next())
    })
}

/// Each cause that is told: its line, its owner, and all lines of its fault.
fn causes(list: &FaultList) -> Vec<(u64, String)> {
    let name = |class| serde_json::to_value(class).expect("a name").as_str().unwrap_or("").to_owned();
    let faults = list.faults.iter().map(|f| (f.cause_line, name(f.judgement.whose)));
    let messages = list.messages.iter().filter(|m| m.is_problem && m.follows.is_none());
    faults.chain(messages.map(|m| (m.line, name(m.whose)))).collect()
}

#[test]
fn nothing_is_told_of_a_healthy_machine() {
    let mut logs = 0;
    for entry in fs::read_dir(folder().join("clean")).expect("the corpus") {
        let path = entry.expect("an entry").path();
        let list = explain(&path);
        assert!(!list.has_problem(), "{}:\n{}", path.display(), printed(&list));
        logs += 1;
    }
    assert!(logs >= 60, "{logs} logs");
}

#[test]
fn the_cause_of_each_fault_and_its_owner_are_told() {
    let cases = fs::read_to_string(folder().join("faults.jsonl")).expect("the corpus");
    let mut wrong = Vec::new();
    for line in cases.lines() {
        let case: Case = serde_json::from_str(line).expect("a case");
        let list = explain(&folder().join(&case.log));
        let text = printed(&list);
        let (found, lower, told) = (causes(&list), text.to_lowercase(), told(&text));
        let is_quiet = case.stories.iter().all(|story| story.whose == ["none"]);
        if is_quiet && list.has_problem() {
            wrong.push(format!("{}: a fault is told where there is none", case.log));
        }
        for story in &case.stories {
            let may_be_quiet = story.whose.iter().any(|whose| whose == "none");
            let here: Vec<_> = found.iter().filter(|(line, _)| story.cause.contains(line)).collect();
            if may_be_quiet && here.is_empty() {
                continue;
            }
            if !here.iter().any(|(_, whose)| story.whose.contains(whose)) {
                wrong.push(format!("{}: {:?} of {:?}, told {found:?}", case.log, story.whose, story.cause));
            }
            for words in &story.says {
                if !words.iter().any(|word| lower.contains(&word.to_lowercase())) {
                    wrong.push(format!("{}: none of {words:?}", case.log));
                }
            }
            for phrase in story.never.iter().filter(|phrase| has_words(&told, phrase)) {
                wrong.push(format!("{}: {phrase:?}", case.log));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(cases.lines().count() >= 120);
}
