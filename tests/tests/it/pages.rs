//! The Markdown pages: links lead somewhere, the index names every page, lines are short, the map stays a map,
//! and each thing has one name. Doc comments begin with the thing, not with a question.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Longest line outside tables and code, in characters.
const LONGEST_LINE: usize = 110;

/// Most lines of docs/architecture.md, so that it is read in ten minutes.
const LONGEST_MAP: usize = 300;

/// Words that pages do not use, and the name in the glossary of docs/architecture.md. Names of the code stand
/// in backticks, which are not searched. Words are compared in lower case, across line ends.
const NAMES: [(&str, &str); 31] = [
    ("limbo", "deferred free"),
    ("the floor", "core"),
    ("rooms", "modules"),
    ("lab notebook", "notes"),
    ("step kernel", "persistent step"),
    ("step kernels", "persistent steps"),
    ("streaming step", "persistent step"),
    ("stream kernel", "persistent step"),
    ("one-launch step", "persistent step"),
    ("decode kernel", "persistent step"),
    ("in columns", "in a batch"),
    ("of columns", "of a batch"),
    ("by columns", "by the batch engine"),
    ("plain columns", "plain batch steps"),
    ("columns carry", "the batch engine has"),
    ("columns lack", "the batch engine lacks"),
    ("columns without", "tokens without"),
    ("columns of tokens", "batch"),
    ("several columns", "several tokens of a batch"),
    ("parallel sequences", "batch"),
    ("ways of launching", "engines"),
    ("way of launching", "engine"),
    ("into shares", "split-K parts"),
    ("in shares", "split-K parts"),
    ("shares of the row", "split-K parts"),
    ("in turns", "alternately"),
    ("take turns", "rotate"),
    ("taking turns", "rotating"),
    ("their turns", "rotations"),
    ("who wants to know", "the subject of the sentence"),
    ("no longer", "what is, without its history"),
];

/// First words that doc comments do not have.
const RIDDLES: [&str; 3] = ["What", "Who", "Whose"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace's folder").to_owned()
}

/// The Markdown files of a folder, without those below it.
fn markdown(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|e| e == "md"));
    found.sort();
    found
}

/// The notes: what was tried, with old figures. They may use the names of their time.
fn notes() -> Vec<PathBuf> {
    markdown(&workspace().join("docs/notes"))
}

/// The pages of docs/, and README and the like of the repository and of each crate.
fn pages() -> Vec<PathBuf> {
    let root = workspace();
    let mut found = markdown(&root);
    found.retain(|path| !path.ends_with("CHANGELOG.md"));
    found.extend(markdown(&root.join("docs")));
    for member in members() {
        found.extend(markdown(&root.join(member)));
    }
    assert!(found.len() > 40, "pages were not found: {found:?}");
    found
}

/// The folders of the workspace's crates.
fn members() -> Vec<String> {
    let manifest = fs::read_to_string(workspace().join("Cargo.toml")).unwrap();
    let members = manifest.split_once("members = [").unwrap().1.split_once(']').unwrap().0;
    members.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The Rust files of a folder and those below it.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The numbers of the lines, from 1, that begin a paragraph of a doc comment with one of [`RIDDLES`].
fn riddles(source: &str) -> Vec<usize> {
    let mut within = false;
    let mut found = Vec::new();
    for (at, line) in source.lines().enumerate() {
        let line = line.trim_start();
        let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).unwrap_or_default().trim();
        let first = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        if !within && RIDDLES.contains(&first) {
            found.push(at + 1);
        }
        within = !text.is_empty();
    }
    found
}

fn name(path: &Path) -> String {
    path.strip_prefix(workspace()).unwrap_or(path).display().to_string()
}

/// The lines of a page outside fenced code, with their numbers from 1.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            found.push((at + 1, line));
        }
    }
    assert!(!fenced, "code that is not closed");
    found
}

/// The anchor that a heading gets from GitHub.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().trim().to_lowercase().replace(' ', "-")
}

fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).into_iter().filter(|(_, line)| line.starts_with('#'));
    headings.map(|(_, line)| anchor(line.trim_start_matches('#').trim())).collect()
}

/// The targets of the links of a page.
fn links(text: &str) -> Vec<String> {
    let text: String = prose(text).iter().flat_map(|(_, line)| [line, "\n"]).collect();
    let parts = text.split("](").skip(1);
    parts.filter_map(|part| part.split_once(')')).map(|(target, _)| target.to_owned()).collect()
}

/// The broken links of a page.
fn broken(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap();
    let mut wrong = Vec::new();
    for link in links(&text).iter().filter(|link| !link.contains("://")) {
        let (file, part) =
            link.split_once('#').map_or((link.as_str(), None), |(file, part)| (file, Some(part)));
        let target = if file.is_empty() { page.to_owned() } else { page.parent().unwrap().join(file) };
        if !target.exists() {
            wrong.push(format!("{}: no file {link}", name(page)));
        } else if let Some(part) = part
            && target.extension().is_some_and(|e| e == "md")
            && !anchors(&fs::read_to_string(&target).unwrap()).contains(part)
        {
            wrong.push(format!("{}: no heading {link}", name(page)));
        }
    }
    wrong
}

/// The words of a page without code, in lower case, with one space between and at both ends.
fn words(text: &str) -> String {
    let mut words = String::from(" ");
    let text: String = prose(text).iter().flat_map(|(_, line)| [line, "\n"]).collect();
    for (at, part) in text.split('`').enumerate() {
        let part = if at % 2 == 1 { "code" } else { part };
        let split = part.split(|c: char| !c.is_alphanumeric() && c != '-' && c != '\'');
        for word in split.filter(|word| !word.is_empty()) {
            words.push_str(&word.to_lowercase());
            words.push(' ');
        }
    }
    words
}

/// The names of `text` that the glossary has otherwise.
fn other_names(text: &str) -> Vec<String> {
    let words = words(text);
    let found = NAMES.iter().filter(|(wrong, _)| words.contains(&format!(" {wrong} ")));
    found.map(|(wrong, right)| format!("\"{wrong}\" is \"{right}\"")).collect()
}

#[test]
fn every_relative_link_leads_to_a_file_and_a_heading() {
    let wrong: Vec<_> = pages().iter().chain(&notes()).flat_map(|page| broken(page)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The files that a page names in backticks by a path: `folder/name.ext`. NAME stands for any.
fn files(text: &str, folders: &[String]) -> Vec<String> {
    let text: String = prose(text).iter().flat_map(|(_, line)| [line, "\n"]).collect();
    let quoted = text.split('`').skip(1).step_by(2);
    let is_file = |path: &&str| {
        let plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "/_-.".contains(c));
        let first = path.split('/').next().unwrap_or_default();
        let last = path.rsplit('/').next().unwrap_or_default();
        plain
            && !path.contains("NAME")
            && path.contains('/')
            && last.contains('.')
            && folders.iter().any(|folder| folder == first)
    };
    quoted.filter(is_file).map(str::to_owned).collect()
}

#[test]
fn files_that_pages_name_exist() {
    let root = workspace();
    let entries = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap());
    let folders = entries.filter(|entry| entry.path().is_dir() && entry.file_name() != "target");
    let folders: Vec<_> = folders.map(|entry| entry.file_name().display().to_string()).collect();
    let mut wrong = Vec::new();
    for page in pages() {
        let at = page.parent().unwrap();
        let named = files(&fs::read_to_string(&page).unwrap(), &folders);
        let exists = |file: &str| {
            let of_crate = folders.iter().any(|folder| root.join(folder).join(file).exists());
            of_crate || root.join(file).exists() || at.join(file).exists()
        };
        let missing = named.iter().filter(|file| !exists(file));
        wrong.extend(missing.map(|file| format!("{}: no file {file}", name(&page))));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_index_names_every_page_and_every_note() {
    let folder = workspace().join("docs");
    let index = links(&fs::read_to_string(folder.join("README.md")).unwrap());
    let named: BTreeSet<_> = index.iter().filter_map(|link| link.split('#').next()).collect();
    for page in markdown(&folder).iter().chain(&notes()) {
        let page = page.strip_prefix(&folder).unwrap().to_str().unwrap();
        assert!(page == "README.md" || named.contains(page), "docs/README.md does not name {page}");
    }
}

#[test]
fn lines_are_at_most_110_columns_but_in_tables_and_code() {
    let mut wrong = Vec::new();
    for page in pages().iter().chain(&notes()) {
        for (number, line) in prose(&fs::read_to_string(page).unwrap()) {
            if line.chars().count() > LONGEST_LINE && !line.trim_start().starts_with(['|', '!', '<']) {
                wrong.push(format!("{}:{number}", name(page)));
            }
        }
    }
    assert!(wrong.is_empty(), "longer than {LONGEST_LINE} columns:\n{}", wrong.join("\n"));
}

#[test]
fn the_map_is_short() {
    let map = fs::read_to_string(workspace().join("docs/architecture.md")).unwrap();
    let lines = map.lines().count();
    assert!(lines < LONGEST_MAP, "{lines} lines, {LONGEST_MAP} are too many: link to another page");
}

#[test]
fn each_thing_has_one_name() {
    let mut wrong = Vec::new();
    for page in pages() {
        let found = other_names(&fs::read_to_string(&page).unwrap());
        wrong.extend(found.into_iter().map(|text| format!("{}: {text}", name(&page))));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn other_names_are_found_across_lines_and_not_in_code() {
    assert_eq!(other_names("kept in the\nLimbo, later"), ["\"limbo\" is \"deferred free\""]);
    assert_eq!(other_names("the streaming\n  step."), ["\"streaming step\" is \"persistent step\""]);
    assert!(other_names("`limbo`\n```\nlimbo\n```\n").is_empty());
    assert!(other_names("256 columns, a limbos").is_empty());
}

#[test]
fn doc_comments_begin_with_the_thing() {
    let root = workspace();
    let mut wrong = Vec::new();
    let mut read = 0;
    for member in members() {
        for file in sources(&root.join(member).join("src")) {
            read += 1;
            let found = riddles(&fs::read_to_string(&file).unwrap());
            wrong.extend(found.into_iter().map(|line| format!("{}:{line}", name(&file))));
        }
    }
    assert!(read > 600, "{read} files of source were found");
    assert!(wrong.is_empty(), "doc comments begin with one of {RIDDLES:?}:\n{}", wrong.join("\n"));
}

#[test]
fn riddles_are_found_at_the_start_of_paragraphs_alone() {
    assert_eq!(riddles("/// What it is.\nfn a() {}\n    //! Who asks\n"), [1, 3]);
    assert_eq!(riddles("/// A thing.\n///\n/// Whose it is.\n"), [3]);
    assert!(riddles("/// The owner:\n/// What follows.\n// What\n/// Whatever\n").is_empty());
}
