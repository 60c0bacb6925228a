//! Each crate's modules stand in layers: the picture in its `lib.rs` says which, and this test compares the
//! picture with the code.
//!
//! The picture is the first code block under `# Layers` in the crate's documentation. A line is a number and
//! the modules of that layer; a module names only modules of smaller numbers. `allowed: from -> to: why` is
//! an exception. Within an entry, files must not name each other in a circle, but for `circle: one two: why`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A module as a path of names: `["memory", "pool"]`.
type Module = Vec<String>;

/// Longest file that is written by hand, in lines.
const LONGEST_FILE: usize = 600;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace's folder").to_owned()
}

/// Folders of the workspace's crates.
fn crates() -> Vec<String> {
    listed("members")
}

/// Folders in a list of the workspace's manifest.
fn listed(list: &str) -> Vec<String> {
    let manifest = fs::read_to_string(workspace().join("Cargo.toml")).unwrap();
    let folders = manifest.split_once(&format!("\n{list} = [")).unwrap().1.split_once(']').unwrap().0;
    folders.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// All Rust files below `folder`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The picture of a crate: the layer of each module, and the exceptions.
#[derive(Debug, Default)]
struct Picture {
    layers: BTreeMap<Module, usize>,
    allowed: BTreeSet<(Module, Module)>,
    circles: BTreeSet<BTreeSet<Module>>,
}

fn module(text: &str) -> Module {
    text.split("::").map(str::to_owned).collect()
}

impl Picture {
    /// `None` without a picture; an error names a line that cannot be read.
    fn parse(lib: &str) -> Result<Option<Self>, String> {
        let docs = lib.lines().filter_map(|l| l.strip_prefix("//!")).map(str::trim);
        let mut lines = docs.skip_while(|l| *l != "# Layers").skip_while(|l| !l.starts_with("```")).skip(1);
        let mut picture = Self::default();
        for line in lines.by_ref().take_while(|l| !l.starts_with("```")) {
            if let Some(exception) = line.strip_prefix("allowed:") {
                let mut parts = exception.splitn(2, "->");
                let from = parts.next().unwrap_or_default().trim();
                let (to, why) = parts.next().and_then(|p| p.split_once(": ")).ok_or(line)?;
                if why.trim().is_empty() {
                    return Err(format!("an exception without a reason: {line}"));
                }
                picture.allowed.insert((module(from), module(to.trim())));
                continue;
            }
            if let Some(circle) = line.strip_prefix("circle:") {
                let (files, why) = circle.split_once(": ").ok_or(line)?;
                if why.trim().is_empty() {
                    return Err(format!("a circle without a reason: {line}"));
                }
                picture.circles.insert(files.split_whitespace().map(module).collect());
                continue;
            }
            let mut words = line.split_whitespace();
            let Some(number) = words.next() else { continue };
            let layer = number.parse().map_err(|_| format!("not a layer: {line}"))?;
            for word in words {
                if picture.layers.insert(module(word), layer).is_some() {
                    return Err(format!("{word} stands in two layers"));
                }
            }
        }
        Ok((!picture.layers.is_empty()).then_some(picture))
    }

    /// The entry that `module` belongs to: itself or the nearest module around it.
    fn entry(&self, module: &[String]) -> Option<Module> {
        (1..=module.len()).rev().map(|len| module[..len].to_vec()).find(|m| self.layers.contains_key(m))
    }
}

/// Paths that a file names, as absolute module paths followed by the item's name.
struct Paths<'a> {
    module: &'a Module,
    found: BTreeSet<Module>,
}

impl Paths<'_> {
    /// Reads tokens; `children` are the modules declared beside them.
    fn scan(&mut self, tokens: TokenStream, children: &BTreeSet<String>) {
        let trees: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < trees.len() {
            if let Some(end) = test_item(&trees, at) {
                at = end;
                continue;
            }
            // A public macro names the crate's own items by `$crate`, as its users see them.
            let in_macro =
                at > 0 && matches!(&trees[at - 1], TokenTree::Punct(punct) if punct.as_char() == '$');
            let after_path = in_macro || at >= 2 && is_colons(&trees, at - 2);
            match &trees[at] {
                TokenTree::Group(group) => self.scan(group.stream(), children),
                TokenTree::Ident(first) if !after_path && is_colons(&trees, at + 1) => {
                    let first = first.to_string();
                    let start = match first.as_str() {
                        "crate" => Some(Vec::new()),
                        "self" => Some(self.module.clone()),
                        "super" => Some(self.module[..self.module.len().saturating_sub(1)].to_vec()),
                        name if children.contains(name) => {
                            Some(self.module.iter().cloned().chain([first.clone()]).collect())
                        }
                        _ => None,
                    };
                    if let Some(start) = start {
                        self.path(start, &trees[at + 3..]);
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// What follows `start::`: a name, a group of names, or more of the path.
    fn path(&mut self, mut start: Module, rest: &[TokenTree]) {
        match rest.first() {
            Some(TokenTree::Ident(name)) => {
                match name.to_string().as_str() {
                    "super" => drop(start.pop()),
                    "self" => {}
                    name => start.push(name.to_owned()),
                }
                if is_colons(rest, 1) {
                    return self.path(start, &rest[3..]);
                }
            }
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                for part in inner.split(|t| matches!(t, TokenTree::Punct(p) if p.as_char() == ',')) {
                    self.path(start.clone(), part);
                }
                return;
            }
            _ => {}
        }
        self.found.insert(start);
    }
}

fn is_colons(trees: &[TokenTree], at: usize) -> bool {
    let colon = |i: usize| matches!(trees.get(i), Some(TokenTree::Punct(p)) if p.as_char() == ':');
    colon(at) && colon(at + 1)
}

/// Files that name each other in a circle.
fn circles(arrows: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<BTreeSet<Module>> {
    let files: Vec<&Module> = arrows.keys().collect();
    let number = |file: &[String]| files.binary_search_by(|f| f.as_slice().cmp(file)).ok();
    let mut edges = Vec::new();
    for (from, paths) in arrows.values().enumerate() {
        // A path names the file whose name is its longest prefix.
        let to = paths.iter().filter_map(|path| (1..=path.len()).rev().find_map(|len| number(&path[..len])));
        edges.extend(to.filter(|to| *to != from).map(|to| (from as u32, to as u32)));
    }
    let graph = petgraph::graph::DiGraph::<(), ()>::from_edges(edges);
    let parts = petgraph::algo::tarjan_scc(&graph).into_iter().filter(|part| part.len() > 1);
    parts.map(|part| part.into_iter().map(|i| files[i.index()].clone()).collect()).collect()
}

/// Where an item after `#[cfg(test)]` at `at` ends.
fn test_item(trees: &[TokenTree], at: usize) -> Option<usize> {
    let TokenTree::Punct(hash) = &trees[at] else { return None };
    let TokenTree::Group(attribute) = trees.get(at + 1)? else { return None };
    let text: String = attribute.stream().to_string().split_whitespace().collect();
    if hash.as_char() != '#' || text != "cfg(test)" {
        return None;
    }
    let ends = |t: &TokenTree| match t {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(p) => p.as_char() == ';',
        _ => false,
    };
    trees[at + 2..].iter().position(ends).map(|end| at + 2 + end + 1)
}

/// Modules that `tokens` declare: `mod name;`, tests left out.
fn children(tokens: TokenStream) -> BTreeSet<String> {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let mut found = BTreeSet::new();
    let mut at = 0;
    while at < trees.len() {
        if let Some(end) = test_item(&trees, at) {
            at = end;
            continue;
        }
        if let (TokenTree::Ident(keyword), Some(TokenTree::Ident(name))) = (&trees[at], trees.get(at + 1))
            && keyword == "mod"
        {
            found.insert(name.to_string());
        }
        at += 1;
    }
    found
}

/// The module that a file of `src` is.
fn module_of(src: &Path, file: &Path) -> Module {
    let relative = file.strip_prefix(src).unwrap().with_extension("");
    let mut names: Module = relative.iter().map(|n| n.to_string_lossy().into_owned()).collect();
    if names.last().is_some_and(|n| n == "mod") {
        names.pop();
    }
    names
}

/// What is wrong with the layers of one crate.
fn complaints(folder: &Path) -> Vec<String> {
    let src = folder.join("src");
    let root = ["lib.rs", "main.rs"].into_iter().map(|f| src.join(f)).find(|f| f.exists());
    let Some(root) = root else { return vec!["no lib.rs and no main.rs".to_owned()] };
    let picture = match Picture::parse(&fs::read_to_string(&root).unwrap()) {
        Ok(Some(picture)) => picture,
        Ok(None) => return vec!["no picture of the layers in lib.rs".to_owned()],
        Err(problem) => return vec![problem],
    };
    let mut complaints = Vec::new();
    let (mut used, mut arrows) = (BTreeSet::new(), BTreeMap::new());
    for file in sources(&src) {
        let module = module_of(&src, &file);
        let root_file = file == root;
        let tests = module.iter().any(|n| n == "tests");
        if root_file || tests || module.first().is_some_and(|n| n == "bin" || n == "main") {
            continue;
        }
        let tokens: TokenStream = fs::read_to_string(&file).unwrap().parse().unwrap();
        let children = children(tokens.clone());
        let mut paths = Paths { module: &module, found: BTreeSet::new() };
        paths.scan(tokens, &children);
        let paths = paths.found;
        let Some(from) = picture.entry(&module) else {
            arrows.insert(module.clone(), BTreeSet::new());
            // The table of contents of a folder whose modules stand in layers of their own.
            let listed = picture.layers.keys().any(|k| k.starts_with(&module));
            if !listed {
                complaints.push(format!("{} stands in no layer", module.join("::")));
            }
            continue;
        };
        for path in &paths {
            let name = || format!("{} names crate::{}", module.join("::"), path.join("::"));
            let Some(to) = picture.entry(path) else {
                complaints.push(format!("{}, which stands in no layer", name()));
                continue;
            };
            if to == from || picture.layers[&to] < picture.layers[&from] {
                continue;
            }
            let exception = (from.clone(), to.clone());
            if picture.allowed.contains(&exception) {
                used.insert(exception);
            } else {
                let (up, down) = (picture.layers[&to], picture.layers[&from]);
                complaints.push(format!("{}: from layer {down} to layer {up}", name()));
            }
        }
        arrows.insert(module, paths);
    }
    for (from, to) in picture.allowed.difference(&used) {
        complaints.push(format!("{} -> {} is allowed and not used", from.join("::"), to.join("::")));
    }
    for entry in picture.layers.keys().filter(|e| !arrows.contains_key(*e)) {
        complaints.push(format!("{} is in the picture and not in the code", entry.join("::")));
    }
    let found = circles(&arrows);
    let words = |files: &BTreeSet<Module>| files.iter().map(|f| f.join("::")).collect::<Vec<_>>().join(" ");
    complaints.extend(found.difference(&picture.circles).map(|c| format!("a circle: {}", words(c))));
    complaints
        .extend(picture.circles.difference(&found).map(|c| format!("no circle any more: {}", words(c))));
    complaints
}

#[test]
fn modules_name_only_modules_of_lower_layers() {
    let mut complaints = Vec::new();
    for name in crates() {
        complaints
            .extend(self::complaints(&workspace().join(&name)).into_iter().map(|c| format!("{name}: {c}")));
    }
    assert!(complaints.is_empty(), "{} complaints\n{}", complaints.len(), complaints.join("\n"));
}

#[test]
fn the_toolkit_depends_on_no_crate_of_the_language_model() {
    let manifest = |folder: &String| fs::read_to_string(workspace().join(folder).join("Cargo.toml")).unwrap();
    let toolkit = listed("default-members");
    let model: Vec<String> = crates().into_iter().filter(|folder| !toolkit.contains(folder)).collect();
    let name = |folder| manifest(folder).split('"').nth(1).unwrap().to_owned();
    let model: Vec<String> = model.iter().map(name).collect();
    assert_eq!(model, ["ga10b-llm", "ga10b-llm-tools", "ga10b-llm-checks", "llm-demo"]);
    for folder in &toolkit {
        let text = manifest(folder);
        let named = text.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
        let wrong: Vec<&str> = named.filter(|name| model.iter().any(|model| model == name)).collect();
        assert!(wrong.is_empty(), "{folder} depends on {wrong:?}");
    }
}

#[test]
fn no_file_grows_past_what_a_reader_holds() {
    let mut long = Vec::new();
    for file in crates().iter().flat_map(|name| sources(&workspace().join(name))) {
        let text = fs::read_to_string(&file).unwrap();
        let generated = text.lines().take(3).any(|l| l.contains("@generated") || l.contains("generated by"));
        let lines = text.lines().count();
        if !generated && lines > LONGEST_FILE {
            long.push(format!("{}: {lines} lines", file.display()));
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn an_arrow_upwards_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let src = folder.path().join("src");
    fs::create_dir_all(src.join("room")).unwrap();
    let write = |name: &str, text: &str| fs::write(src.join(name), text).unwrap();
    let lib = |layers: &str| {
        write("lib.rs", &format!("//! A crate.\n//! # Layers\n//! ```text\n{layers}//! ```\nmod a;"))
    };
    write("a.rs", "use crate::room::{self, b::{B, C}};\n#[cfg(test)] mod tests { use crate::top::T; }");
    write("room/mod.rs", "pub mod b;\npub mod c;\npub use b::B;");
    write("room/b.rs", "pub struct B; pub struct C; fn f() { println!(\"{}\", super::c::one()); }");
    write("room/c.rs", "pub fn one() -> u8 { 1 }");
    write("top.rs", "pub struct T(crate::a::A);");
    lib("//! 0 room::c\n//! 1 room::b\n//! 2 room\n//! 3 a\n//! 4 top\n");
    assert_eq!(complaints(folder.path()), Vec::<String>::new());
    lib("//! 0 room::b\n//! 1 room::c\n//! 2 room a\n//! 3 top\n");
    let found = complaints(folder.path());
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("a names crate::room: from layer 2 to layer 2"), "{found:?}");
    assert!(found[1].starts_with("room::b names crate::room::c::one: from layer 0 to layer 1"), "{found:?}");
    lib(
        "//! 0 room::b\n//! 1 room::c\n//! 2 room\n//! 3 a\n//! 4 top\n//! allowed: room::b -> room::c: why not\n",
    );
    assert_eq!(complaints(folder.path()), Vec::<String>::new());
    lib("//! 0 room\n//! 3 a\n//! allowed: a -> room: nothing needs it\n");
    let found = complaints(folder.path());
    assert_eq!(found, ["top stands in no layer", "a -> room is allowed and not used"]);
    write("room/c.rs", "use super::b::B; pub fn one() -> u8 { 1 }");
    lib("//! 0 room\n//! 3 a\n//! 4 top\n");
    assert_eq!(complaints(folder.path()), ["a circle: room::b room::c"]);
    lib("//! 0 room\n//! 3 a\n//! 4 top\n//! circle: room::b room::c: they are one thing\n");
    assert_eq!(complaints(folder.path()), Vec::<String>::new());
}
