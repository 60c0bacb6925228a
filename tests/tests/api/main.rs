//! The public items of the libraries: each crate's `api.txt` is compared with its code, so that a change of
//! the API shows in review.
//!
//! ```sh
//! UPDATE=1 cargo test -p ga10b-tests --test api     # writes the lists anew
//! ```
//!
//! A program of its own: it is wanted after changes of interfaces alone, and links nothing of the workspace.
//!
//! The lists are read out of the source: public items by the paths that reach them, with their fields,
//! variants, methods and traits. Items that a macro makes are listed as the tokens it is called with.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{ImplItem, Item, TraitItem};

mod print;
mod source;

use print::{calls, fields_of_variant, head, notes, notes_of_condition, signature, text, without_condition};
use source::{
    Def, Leaf, Names, Source, Target, attributes, ident, is_public, leaves, paths, types, visibility,
};

const CRATES: [&str; 6] = ["hcq", "nvgpu-sys", "ptxgen", "qmd", "rm-sys", "sass"];

/// The list of a crate.
struct Api<'a> {
    source: &'a Source,
    /// Lines of each public item, by its path.
    items: BTreeMap<String, Vec<String>>,
    /// Members and traits of each definition.
    members: BTreeMap<Def, BTreeSet<String>>,
    /// Types of other crates in the signatures of each definition.
    foreign: BTreeMap<Def, BTreeSet<String>>,
    /// Those of public items that need no feature, by the items' paths.
    shown: BTreeMap<String, BTreeSet<String>>,
    visited: BTreeSet<(Names, String)>,
}

impl<'a> Api<'a> {
    fn of(source: &'a Source) -> Self {
        let mut api = Api {
            source,
            items: BTreeMap::new(),
            members: BTreeMap::new(),
            foreign: BTreeMap::new(),
            shown: BTreeMap::new(),
            visited: BTreeSet::new(),
        };
        for (module, items) in &source.modules {
            items.iter().for_each(|item| api.implementation(module, item));
        }
        api.module(&[], &source.name, "");
        api
    }

    fn list(&self) -> String {
        self.items.values().flatten().map(|line| format!("{line}\n")).collect()
    }

    /// Notes what an `impl` gives to a type.
    fn implementation(&mut self, module: &[String], item: &Item) {
        let Item::Impl(block) = item else { return };
        let this = &*block.self_ty;
        let (condition, generics) = (notes(&block.attrs), text(&block.generics));
        if let Some((_, of, _)) = &block.trait_ {
            // `impl From<Ours> for Theirs` belongs to ours.
            let types = [this.to_token_stream(), of.to_token_stream()];
            let ours = types.iter().flat_map(paths).find_map(|path| self.source.resolve(module, &path, 8));
            if let Some(Target::Def(def)) = ours {
                let unsafety = if block.unsafety.is_some() { "unsafe " } else { "" };
                let line = format!("    {condition}{unsafety}impl{generics} {} for {}", text(of), text(this));
                self.add_member(def, module, line, types.into_iter().collect());
            }
            return;
        }
        let found =
            paths(&this.to_token_stream()).next().and_then(|path| self.source.resolve(module, &path, 8));
        let Some(Target::Def(def)) = found else { return };
        let bound =
            if generics.is_empty() { String::new() } else { format!("impl{generics} {}: ", text(this)) };
        for item in &block.items {
            let (line, tokens) = match item {
                ImplItem::Fn(f) if is_public(&f.vis) => {
                    (notes(&f.attrs) + &bound + &signature(&f.sig), f.sig.to_token_stream())
                }
                ImplItem::Const(c) if is_public(&c.vis) => {
                    let line = format!("{}{bound}const {}: {}", notes(&c.attrs), c.ident, text(&c.ty));
                    (line, c.ty.to_token_stream())
                }
                ImplItem::Macro(m) => {
                    for line in calls(&text(&m.mac.path), &m.mac.tokens) {
                        self.add_member(def.clone(), module, line, TokenStream::new());
                    }
                    continue;
                }
                _ => continue,
            };
            self.add_member(def.clone(), module, format!("    {condition}{line}"), tokens);
        }
    }

    fn add_member(&mut self, def: Def, module: &[String], line: String, tokens: TokenStream) {
        let foreign = self.source.foreign(module, tokens);
        self.foreign.entry(def.clone()).or_default().extend(foreign);
        self.members.entry(def).or_default().insert(line);
    }

    /// Lists a module's public items under `public`.
    fn module(&mut self, module: &[String], public: &str, condition: &str) {
        if !self.visited.insert((module.to_vec(), public.to_owned())) {
            return;
        }
        let source = self.source;
        for item in source.modules.get(module).into_iter().flatten() {
            let condition = format!("{condition}{}", notes_of_condition(attributes(item)));
            match item {
                Item::Macro(call) if call.ident.is_none() => {
                    let name = text(&call.mac.path);
                    let lines = calls(&name, &call.mac.tokens);
                    self.items
                        .entry(format!("{public}::{name}!"))
                        .or_insert([vec![format!("{condition}{public}: made by {name}!")], lines].concat());
                }
                _ if !visibility(item).is_some_and(is_public) => {}
                Item::Mod(child) => {
                    let name = child.ident.to_string();
                    let path = format!("{public}::{name}");
                    self.items.insert(path.clone(), vec![format!("{condition}mod {path}")]);
                    self.module(&[module, &[name]].concat(), &path, &condition);
                }
                Item::Use(import) => {
                    for leaf in leaves(&import.tree) {
                        self.import(module, public, &condition, &leaf);
                    }
                }
                item => {
                    let name = ident(item).expect("a public item has a name").to_string();
                    self.item(&(module.to_vec(), name.clone()), &format!("{public}::{name}"), &condition);
                }
            }
        }
    }

    fn import(&mut self, module: &[String], public: &str, condition: &str, leaf: &Leaf) {
        let target = self.source.resolve(module, &leaf.path, 8);
        match (target, &leaf.alias) {
            (Some(Target::Module(target)), None) => self.module(&target, public, condition),
            (Some(Target::Module(target)), Some(alias)) => {
                let path = format!("{public}::{alias}");
                self.items.insert(path.clone(), vec![format!("{condition}mod {path}")]);
                self.module(&target, &path, condition);
            }
            (Some(Target::Def(def)), Some(alias)) => {
                self.item(&def, &format!("{public}::{alias}"), condition)
            }
            (Some(Target::Def(_)), None) => {}
            (None, alias) => {
                let (name, path) = (alias.as_deref().unwrap_or("*"), leaf.path.join("::"));
                let line = format!("{condition}use {path} as {public}::{name}");
                self.items.insert(format!("{public}::{name}"), vec![line]);
                // Not an item of the source: perhaps one that a macro of its module makes.
                let home = self.source.resolve(module, &leaf.path[..leaf.path.len() - 1], 8);
                if let Some(Target::Module(home)) = home {
                    self.macros(&home);
                }
            }
        }
    }

    /// Lists the macro calls of a module that is not public, whose items are.
    fn macros(&mut self, module: &[String]) {
        for item in self.source.modules.get(module).into_iter().flatten() {
            if let Item::Macro(call) = item
                && call.ident.is_none()
            {
                let (home, name) = (module.join("::"), text(&call.mac.path));
                let head = format!("{}::{home}: made by {name}!", self.source.name);
                let lines = calls(&name, &call.mac.tokens);
                self.items.entry(format!("~{home}::{name}")).or_insert([vec![head], lines].concat());
            }
        }
    }

    fn item(&mut self, def: &Def, path: &str, condition: &str) {
        let (module, name) = def;
        let found = self.source.modules[module].iter().find(|i| ident(i).is_some_and(|n| n == name));
        let item = found.expect("resolved before");
        let notes = notes(attributes(item));
        let mut lines = vec![format!("{condition}{}{}", without_condition(&notes), head(item, path))];
        match item {
            Item::Enum(e) => lines.extend(e.variants.iter().map(|v| {
                let fields = fields_of_variant(&v.fields);
                format!("    {}{}{fields}", self::notes(&v.attrs), v.ident)
            })),
            Item::Trait(t) => lines.extend(t.items.iter().filter_map(|item| match item {
                TraitItem::Fn(f) => Some(format!(
                    "    {}{}",
                    signature(&f.sig),
                    if f.default.is_some() { " { .. }" } else { "" }
                )),
                TraitItem::Const(c) => Some(format!("    const {}: {}", c.ident, text(&c.ty))),
                TraitItem::Type(t) => Some(format!("    type {}: {}", t.ident, text(&t.bounds))),
                _ => None,
            })),
            _ => {}
        }
        lines.extend(self.members.get(def).into_iter().flatten().cloned());
        self.items.insert(path.to_owned(), lines);
        if condition.is_empty() {
            let own = self.source.foreign(module, types(item));
            let foreign = self.foreign.get(def).into_iter().flatten().cloned().chain(own).collect();
            self.shown.insert(path.to_owned(), foreign);
        }
    }
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace's folder").to_owned()
}

/// The first lines in which two lists differ.
fn difference(old: &str, new: &str) -> String {
    let (before, after): (BTreeSet<_>, BTreeSet<_>) = (old.lines().collect(), new.lines().collect());
    let gone = before.difference(&after).map(|line| format!("- {line}\n"));
    let came = after.difference(&before).map(|line| format!("+ {line}\n"));
    gone.chain(came).take(40).collect()
}

#[test]
fn the_lists_of_public_items_are_those_of_the_code() {
    let mut changed = String::new();
    for name in CRATES {
        let folder = workspace().join(name);
        let (file, list) = (folder.join("api.txt"), Api::of(&Source::read(&folder)).list());
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&file, &list).unwrap();
        }
        let committed = fs::read_to_string(&file).unwrap_or_default();
        if committed != list {
            changed += &format!("{name}/api.txt\n{}", difference(&committed, &list));
        }
    }
    assert!(
        changed.is_empty(),
        "the public API has changed; if that is meant, run\n  UPDATE=1 cargo test --profile ci -p {} --test api\n{changed}",
        env!("CARGO_PKG_NAME")
    );
}

#[test]
fn the_driver_library_shows_types_of_no_other_crate() {
    let source = Source::read(&workspace().join("hcq"));
    let api = Api::of(&source);
    let shown: Vec<_> = api.shown.iter().filter(|(_, foreign)| !foreign.is_empty()).collect();
    assert!(shown.is_empty(), "{shown:?}");
    assert!(api.shown.len() > 30 && api.shown.contains_key("hcq::Device"), "the list is read");
    // With its feature, the interface does show one.
    let seam: Vec<_> = source.modules[&["sys".to_owned()][..]].iter().collect();
    let open = seam.iter().find(|item| ident(item).is_some_and(|name| name == "open_nvgpu")).unwrap();
    assert_eq!(source.foreign(&["sys".to_owned()], types(open)), ["nvgpu_sys::Sys"]);
}

#[test]
fn items_are_listed_by_the_paths_that_reach_them() {
    let folder = tempfile::tempdir().unwrap();
    let krate = folder.path().join("some-crate");
    fs::create_dir_all(krate.join("src/room")).unwrap();
    let write = |name: &str, text: &str| fs::write(krate.join("src").join(name), text).unwrap();
    write(
        "lib.rs",
        "mod hidden; pub mod room; pub use hidden::{Shown as Other, *}; #[cfg(test)] mod tests { pub fn f() {} }
         macro_rules! make { ($n:ident) => { pub struct $n; } } make! { Made }",
    );
    write(
        "hidden.rs",
        "use other::Theirs; pub struct Shown<T> { pub a: u8, b: T } pub(crate) struct No;
         impl<T> Shown<T> { pub fn new(a: &mut [u8]) -> Self { todo!() } fn private(&self) {} }
         impl From<Shown<u8>> for Theirs { fn from(_: Shown<u8>) -> Self { todo!() } }
         #[cfg(feature = \"x\")] pub fn far(t: Theirs) {} pub fn near(t: Option<Theirs>, u: Vec<u8>) {}",
    );
    write(
        "room/mod.rs",
        "#[non_exhaustive] pub enum Kind { One, Two { at: u64 } }
         pub trait Act: Send { const N: u32; fn act(&self); fn more(&self) {} }
         impl Act for Kind { const N: u32 = 1; fn act(&self) {} }",
    );
    let source = Source::read(&krate);
    let api = Api::of(&source);
    let shown = "struct some_crate::Other<T> { a: u8, .. }
    impl From<Shown<u8>> for Theirs
    impl<T> Shown<T>: fn new(a: &mut [u8]) -> Self
";
    let rest = "#[cfg(feature = \"x\")] fn some_crate::far(t: Theirs)
some_crate: made by make!
    make! Made
fn some_crate::near(t: Option<Theirs>, u: Vec<u8>)
mod some_crate::room
trait some_crate::room::Act: Send
    const N: u32
    fn act(&self)
    fn more(&self) { .. }
#[non_exhaustive] enum some_crate::room::Kind
    One
    Two { at: u64 }
    impl Act for Kind
";
    assert_eq!(api.list(), format!("{shown}{}{rest}", shown.replace("Other", "Shown")));
    let foreign: Vec<_> = api.shown.iter().filter(|(_, foreign)| !foreign.is_empty()).collect();
    assert_eq!(foreign.len(), 3, "not the one that needs a feature: {foreign:?}");
    assert!(foreign.iter().all(|(_, types)| types.iter().eq(["other::Theirs"])), "{foreign:?}");
}
