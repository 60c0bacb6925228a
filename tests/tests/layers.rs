//! The folders of a crate are its layers: a picture says in which layer each stands, and this test compares
//! the picture with the code.
//!
//! A program of its own: it is wanted after each change, and links nothing of the workspace.
//!
//! The picture is the first code block under `# Layers` in the documentation of `lib.rs`. A line is a layer,
//! from the top down: its name, the folders and files in it, and after a `#` what they are for; an indented
//! line goes on with the one above. A folder or file names only what stands in lower layers; within a layer
//! some may name others, in no circle. A folder may have such a picture in its `mod.rs` too. Files of a crate
//! name each other in no circle either, but for a line `circle: one two: why`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A module as a path of names: `["memory", "pool"]`.
type Module = Vec<String>;

/// Longest file that is written by hand, in lines.
const LONGEST_FILE: usize = 600;

/// Most layers of a crate or a folder.
const MOST_LAYERS: usize = 8;

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

/// The picture of a crate or of one of its folders.
#[derive(Debug)]
struct Picture {
    /// The folder; empty for a crate.
    folder: Module,
    /// Names of the layers, from the top down.
    names: Vec<String>,
    /// The layer of each folder and file.
    layers: BTreeMap<String, usize>,
    /// Files that may name each other in a circle.
    circles: BTreeSet<BTreeSet<Module>>,
}

impl Picture {
    /// `None` without a picture; an error names a line that cannot be read.
    fn parse(folder: &Module, text: &str) -> Result<Option<Self>, String> {
        let docs =
            text.lines().filter_map(|l| l.strip_prefix("//!")).map(|l| l.strip_prefix(' ').unwrap_or(l));
        let lines = docs.skip_while(|l| *l != "# Layers").skip_while(|l| !l.starts_with("```")).skip(1);
        let mut picture = Self {
            folder: folder.clone(),
            names: Vec::new(),
            layers: BTreeMap::new(),
            circles: BTreeSet::new(),
        };
        for line in lines.take_while(|l| !l.starts_with("```")) {
            if let Some(circle) = line.strip_prefix("circle:") {
                let (files, why) = circle.split_once(": ").ok_or(line)?;
                if why.trim().is_empty() {
                    return Err(format!("a circle without a reason: {line}"));
                }
                let module = |file: &str| file.split("::").map(str::to_owned).collect();
                picture.circles.insert(files.split_whitespace().map(module).collect());
                continue;
            }
            let (entries, purpose) = line.split_once('#').unwrap_or((line, ""));
            let mut words = entries.split_whitespace();
            if !line.starts_with(' ') {
                let name = words.next().ok_or("an empty line in the picture")?.to_owned();
                if purpose.trim().is_empty() {
                    return Err(format!("the layer {name} does not say what it is for"));
                }
                picture.names.push(name);
            }
            let layer = picture.names.len().checked_sub(1).ok_or_else(|| format!("of no layer: {line}"))?;
            for word in words {
                if picture.layers.insert(word.to_owned(), layer).is_some() {
                    return Err(format!("{word} stands in two layers"));
                }
            }
        }
        if picture.names.len() > MOST_LAYERS {
            return Err(format!("{} layers", picture.names.len()));
        }
        Ok((!picture.layers.is_empty()).then_some(picture))
    }

    /// The folder or file of the picture that `path` leads to.
    fn entry<'a>(&self, path: &'a [String]) -> Option<&'a String> {
        path.strip_prefix(self.folder.as_slice())?.first()
    }

    /// The differences between the picture and the code, whose files name the paths of `arrows`.
    fn complaints(&self, arrows: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<String> {
        let mut complaints = Vec::new();
        let found: BTreeSet<&String> = arrows.keys().filter_map(|file| self.entry(file)).collect();
        let drawn: BTreeSet<&String> = self.layers.keys().collect();
        let whole =
            |entry: &String| [self.folder.as_slice(), std::slice::from_ref(entry)].concat().join("::");
        let missing = found.difference(&drawn).map(|entry| format!("{} stands in no layer", whole(entry)));
        complaints.extend(missing);
        let gone = drawn.difference(&found);
        complaints
            .extend(gone.map(|entry| format!("{} is in the picture and not in the code", whole(entry))));
        let mut beside = BTreeMap::<Module, BTreeSet<Module>>::new();
        for (file, paths) in arrows {
            let Some(from) = self.entry(file) else { continue };
            let Some(&layer) = self.layers.get(from) else { continue };
            let beside = beside.entry(vec![from.clone()]).or_default();
            for path in paths.iter().filter(|path| path.starts_with(&self.folder)) {
                let (file, name) = (file.join("::"), path.join("::"));
                let Some((to, &below)) = self.entry(path).and_then(|to| self.layers.get_key_value(to)) else {
                    complaints.push(format!("{file} names crate::{name}, which stands in no layer"));
                    continue;
                };
                if below < layer {
                    let (layer, above) = (&self.names[layer], &self.names[below]);
                    complaints.push(format!("{file} names crate::{name}: from {layer} up to {above}"));
                } else if below == layer && to != from {
                    beside.insert(vec![to.clone()]);
                }
            }
        }
        complaints
            .extend(circles(&beside).iter().map(|circle| format!("a circle of folders: {}", words(circle))));
        complaints
    }
}

/// The names of modules, in one line.
fn words(modules: &BTreeSet<Module>) -> String {
    modules.iter().map(|module| module.join("::")).collect::<Vec<_>>().join(" ")
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

    /// The rest of a path after `start::`: a name, a group of names, or more of the path.
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

/// End of an item after `#[cfg(test)]` at `at`.
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

/// The faults of one crate's layers.
fn complaints(folder: &Path) -> Vec<String> {
    let src = folder.join("src");
    let root = ["lib.rs", "main.rs"].into_iter().map(|f| src.join(f)).find(|f| f.exists());
    let Some(root) = root else { return vec!["no lib.rs and no main.rs".to_owned()] };
    let (mut complaints, mut pictures, mut arrows) = (Vec::new(), Vec::new(), BTreeMap::new());
    let mut draw = |folder: &Module, text: &str| match Picture::parse(folder, text) {
        Ok(Some(picture)) => pictures.push(picture),
        Ok(None) if folder.is_empty() => complaints.push("no picture of the layers in lib.rs".to_owned()),
        Ok(None) => {}
        Err(problem) => complaints.push([folder.join("::"), problem].join(" ").trim().to_owned()),
    };
    draw(&Vec::new(), &fs::read_to_string(&root).unwrap());
    // Modules that are more than tests: each is declared, and so is what it stands in.
    let mut declared = BTreeSet::new();
    for file in sources(&src) {
        let module = module_of(&src, &file);
        let text = fs::read_to_string(&file).unwrap();
        let tokens: TokenStream = text.parse().unwrap();
        let children = children(tokens.clone());
        if file.parent() == Some(&src) && (file.ends_with("lib.rs") || file.ends_with("main.rs")) {
            declared.extend(children.into_iter().map(|name| vec![name]));
            continue;
        }
        declared.extend(children.iter().map(|name| [module.as_slice(), std::slice::from_ref(name)].concat()));
        draw(&module, &text);
        let mut paths = Paths { module: &module, found: BTreeSet::new() };
        paths.scan(tokens, &children);
        let found = paths.found;
        arrows.insert(module, found);
    }
    arrows.retain(|module, _| (1..=module.len()).all(|len| declared.contains(&module[..len])));
    complaints.extend(pictures.iter().flat_map(|picture| picture.complaints(&arrows)));
    let (found, allowed) = (circles(&arrows), pictures.into_iter().flat_map(|p| p.circles).collect());
    complaints.extend(found.difference(&allowed).map(|c| format!("a circle of files: {}", words(c))));
    complaints.extend(allowed.difference(&found).map(|c| format!("no circle any more: {}", words(c))));
    complaints
}

#[test]
fn folders_name_only_folders_of_lower_layers() {
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

/// A crate of two layers, `upper` above `lower`, with a folder `lower/room` that has a picture of its own.
struct Planted(tempfile::TempDir);

impl Planted {
    const PICTURE: &str = "upper  a top  # on top\nlower  room  # below\n       ground\n";

    fn new() -> Self {
        let planted = Self(tempfile::tempdir().unwrap());
        planted.draw(Self::PICTURE);
        planted.write(
            "a.rs",
            "use crate::room::{self, b::{B, C}};\n#[cfg(test)] mod tests { use crate::top::T; }",
        );
        planted.write("ground.rs", "pub struct G;");
        planted.write(
            "room/mod.rs",
            "//! # Layers\n//! ```text\n//! high b # high\n//! low c # low\n//! ```\npub mod b;\npub mod c;\npub use b::B;",
        );
        planted
            .write("room/b.rs", "pub struct B; pub struct C; fn f() { super::c::one(); crate::ground::G; }");
        planted.write("room/c.rs", "pub fn one() -> u8 { 1 }");
        planted.write("top.rs", "pub struct T(crate::a::A);");
        planted
    }

    fn write(&self, name: &str, text: &str) {
        let file = self.0.path().join("src").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    fn draw(&self, picture: &str) {
        let lines: String = picture.lines().map(|line| format!("//! {line}\n")).collect();
        self.write("lib.rs", &format!("//! A crate.\n//! # Layers\n//! ```text\n{lines}//! ```\nmod a; mod ground; mod room; mod top;"));
    }

    #[track_caller]
    fn gives(&self, expected: &[&str]) {
        assert_eq!(complaints(self.0.path()), expected);
    }
}

#[test]
fn an_arrow_upwards_is_found() {
    Planted::new().gives(&[]);
    let planted = Planted::new();
    planted.draw("upper  room top ground # on top\nlower  a # below\n");
    planted.gives(&[
        "a names crate::room: from lower up to upper",
        "a names crate::room::b::B: from lower up to upper",
        "a names crate::room::b::C: from lower up to upper",
    ]);
    let planted = Planted::new();
    planted.write("room/deep/d.rs", "fn f() { crate::top::T; }");
    planted.write("room/deep/mod.rs", "mod d;");
    planted.write("room/mod.rs", "mod b; mod c; mod deep;");
    planted.gives(&["room::deep::d names crate::top::T: from lower up to upper"]);
    let planted = Planted::new();
    planted.write("room/c.rs", "pub use super::b::f; pub use super::B; pub fn one() -> u8 { 1 }");
    planted.gives(&[
        "room::c names crate::room::B, which stands in no layer",
        "room::c names crate::room::b::f: from low up to high",
        "a circle of files: room room::b room::c",
    ]);
}

#[test]
fn a_circle_within_a_layer_is_found() {
    let planted = Planted::new();
    planted.write("ground.rs", "use crate::room::c::one; pub struct G;");
    planted.gives(&["a circle of folders: ground room"]);
    planted.write("ground.rs", "use crate::room::b::B; pub struct G;");
    planted.gives(&["a circle of folders: ground room", "a circle of files: ground room::b"]);
    planted.draw(&format!("{}circle: ground room::b: they are one thing\n", Planted::PICTURE));
    planted.gives(&["a circle of folders: ground room"]);
    planted.write("ground.rs", "pub struct G;");
    planted.gives(&["no circle any more: ground room::b"]);
}

#[test]
fn a_picture_that_is_not_the_code_is_refused() {
    let picture = |text: &str, expected: &[&str]| {
        let planted = Planted::new();
        planted.draw(text);
        planted.gives(expected);
    };
    picture("upper  a # on top\nlower  room ground # below\n", &["top stands in no layer"]);
    let more = format!("{}bottom  cellar # nothing\n", Planted::PICTURE);
    picture(&more, &["cellar is in the picture and not in the code"]);
    picture("", &["no picture of the layers in lib.rs"]);
    picture("upper  a # on top\nlower  room a # below\n", &["a stands in two layers"]);
    picture("upper  a top # on top\nlower  room ground\n", &["the layer lower does not say what it is for"]);
    let many: String = ('a'..='i').map(|name| format!("{name} {name} # a layer\n")).collect();
    picture(&many, &["9 layers"]);
}
