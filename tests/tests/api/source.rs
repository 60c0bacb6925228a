//! The source of a crate: its modules, and what names in them mean.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Fields, Item, UseTree, Visibility};

use crate::print::text;

/// The path of a module, without the crate.
pub type Names = Vec<String>;
/// A definition: its module, and its name.
pub type Def = (Names, String);

/// The modules of a crate.
pub struct Source {
    pub name: String,
    pub modules: BTreeMap<Names, Vec<Item>>,
}

impl Source {
    pub fn read(folder: &Path) -> Self {
        let name = folder.file_name().unwrap().to_string_lossy().replace('-', "_");
        let mut source = Self { name, modules: BTreeMap::new() };
        let src = folder.join("src");
        let items = syn::parse_file(&fs::read_to_string(src.join("lib.rs")).unwrap()).unwrap().items;
        source.add(Vec::new(), items, &src);
        source
    }

    /// Adds a module whose children are in `folder`.
    fn add(&mut self, path: Names, items: Vec<Item>, folder: &Path) {
        let items: Vec<Item> = items.into_iter().filter(|item| !is_for_tests(attributes(item))).collect();
        for item in &items {
            let Item::Mod(child) = item else { continue };
            let name = child.ident.to_string();
            let path = [path.clone(), vec![name.clone()]].concat();
            let below = folder.join(&name);
            let content = child.content.as_ref().map(|(_, items)| items.clone()).or_else(|| {
                let files = [folder.join(format!("{name}.rs")), below.join("mod.rs")];
                let text = files.iter().find_map(|file| fs::read_to_string(file).ok())?;
                Some(syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", below.display())).items)
            });
            self.add(path, content.unwrap_or_default(), &below);
        }
        self.modules.insert(path, items);
    }

    /// The target of `name` in a module: a module or a definition, of its own or imported.
    fn lookup(&self, module: &[String], name: &str, depth: usize) -> Option<Target> {
        let child = [module, &[name.to_owned()]].concat();
        if self.modules.contains_key(&child) {
            return Some(Target::Module(child));
        }
        let items = self.modules.get(module)?;
        if items.iter().any(|item| ident(item).is_some_and(|found| found == name)) {
            return Some(Target::Def((module.to_vec(), name.to_owned())));
        }
        let imports =
            items.iter().filter_map(|item| if let Item::Use(u) = item { Some(&u.tree) } else { None });
        let leaves: Vec<Leaf> = imports.flat_map(leaves).collect();
        if depth == 0 {
            return None;
        }
        let named = leaves.iter().filter(|leaf| leaf.alias.as_deref() == Some(name));
        let globs = leaves.iter().filter(|leaf| leaf.alias.is_none());
        named.filter_map(|leaf| self.resolve(module, &leaf.path, depth - 1)).next().or_else(|| {
            globs.filter_map(|leaf| self.resolve(module, &leaf.path, depth - 1)).find_map(|target| {
                match target {
                    Target::Module(module) => self.lookup(&module, name, depth - 1),
                    Target::Def(_) => None,
                }
            })
        })
    }

    /// The target of a path in a module; `None` for a path into another crate.
    pub fn resolve(&self, module: &[String], path: &[String], depth: usize) -> Option<Target> {
        let mut at = Target::Module(module.to_vec());
        for (i, name) in path.iter().enumerate() {
            let Target::Module(module) = &at else { return Some(at) };
            at = match (name.as_str(), i) {
                ("crate", 0) => Target::Module(Vec::new()),
                ("self", _) => continue,
                ("super", _) => Target::Module(module[..module.len().checked_sub(1)?].to_vec()),
                (name, _) => self.lookup(module, name, depth)?,
            };
        }
        Some(at)
    }

    /// Types of other crates that tokens in a module name, but for the standard library's.
    pub fn foreign(&self, module: &[String], tokens: TokenStream) -> Vec<String> {
        let ours = |krate: &str| ["std", "core", "alloc", "crate", "self", "super"].contains(&krate);
        let imports = self.modules[module].iter();
        let imports = imports.filter_map(|item| if let Item::Use(u) = item { Some(&u.tree) } else { None });
        let imports: Vec<Leaf> = imports.flat_map(leaves).collect();
        let mut found = Vec::new();
        for path in paths(&tokens) {
            let imported = imports.iter().find(|leaf| leaf.alias.as_ref() == path.first());
            let full = match imported {
                Some(leaf) => [&leaf.path[..], &path[1..]].concat(),
                None if path.len() > 1 => path,
                None => continue,
            };
            let lower = full[0].starts_with(char::is_lowercase);
            if lower && !ours(&full[0]) && self.resolve(module, &full, 8).is_none() {
                found.push(full.join("::"));
            }
        }
        found
    }
}

/// The paths in tokens, generic arguments apart.
pub fn paths(tokens: &TokenStream) -> impl Iterator<Item = Names> + use<> {
    fn add(tokens: TokenStream, found: &mut Vec<Names>) {
        let (mut colons, mut open) = (0, false);
        for token in tokens {
            match token {
                TokenTree::Ident(name) if open && colons == 2 => {
                    found.last_mut().unwrap().push(name.to_string())
                }
                TokenTree::Ident(name) => found.push(vec![name.to_string()]),
                TokenTree::Punct(p) if p.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Group(group) => {
                    add(group.stream(), found);
                    (colons, open) = (0, false);
                    continue;
                }
                _ => {
                    (colons, open) = (0, false);
                    continue;
                }
            }
            (colons, open) = (0, true);
        }
    }
    let mut found = Vec::new();
    add(tokens.clone(), &mut found);
    found.into_iter()
}

/// The types of an item that a user sees: public fields, variants, signatures.
pub fn types(item: &Item) -> TokenStream {
    let public = |fields: &Fields| {
        let public = fields.iter().filter(|field| is_public(&field.vis));
        public.map(|field| field.ty.to_token_stream()).collect::<TokenStream>()
    };
    match item {
        Item::Const(c) => c.ty.to_token_stream(),
        Item::Static(s) => s.ty.to_token_stream(),
        Item::Fn(f) => f.sig.to_token_stream(),
        Item::Struct(s) => public(&s.fields),
        Item::Enum(e) => {
            e.variants.iter().flat_map(|v| v.fields.iter().map(|f| f.ty.to_token_stream())).collect()
        }
        Item::Type(t) => t.ty.to_token_stream(),
        Item::Trait(t) => t.items.iter().map(ToTokens::to_token_stream).collect(),
        _ => TokenStream::new(),
    }
}

#[derive(Clone)]
pub enum Target {
    Module(Names),
    Def(Def),
}

/// One name that a `use` imports; no alias for a glob.
pub struct Leaf {
    pub path: Vec<String>,
    pub alias: Option<String>,
}

pub fn leaves(tree: &UseTree) -> Vec<Leaf> {
    fn add(tree: &UseTree, mut path: Vec<String>, found: &mut Vec<Leaf>) {
        match tree {
            UseTree::Path(part) => {
                path.push(part.ident.to_string());
                add(&part.tree, path, found);
            }
            UseTree::Name(name) => {
                let alias =
                    if name.ident == "self" { path.last().cloned() } else { Some(name.ident.to_string()) };
                path.push(name.ident.to_string());
                found.push(Leaf { path, alias });
            }
            UseTree::Rename(name) => {
                path.push(name.ident.to_string());
                found.push(Leaf { path, alias: Some(name.rename.to_string()) });
            }
            UseTree::Glob(_) => found.push(Leaf { path, alias: None }),
            UseTree::Group(group) => group.items.iter().for_each(|tree| add(tree, path.clone(), found)),
        }
    }
    let mut found = Vec::new();
    add(tree, Vec::new(), &mut found);
    found
}

pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Union(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

/// The name of an item that has one, macros left out.
pub fn ident(item: &Item) -> Option<&syn::Ident> {
    match item {
        Item::Const(i) => Some(&i.ident),
        Item::Enum(i) => Some(&i.ident),
        Item::Fn(i) => Some(&i.sig.ident),
        Item::Static(i) => Some(&i.ident),
        Item::Struct(i) => Some(&i.ident),
        Item::Trait(i) => Some(&i.ident),
        Item::Type(i) => Some(&i.ident),
        Item::Union(i) => Some(&i.ident),
        _ => None,
    }
}

pub fn visibility(item: &Item) -> Option<&Visibility> {
    match item {
        Item::Const(i) => Some(&i.vis),
        Item::Enum(i) => Some(&i.vis),
        Item::Fn(i) => Some(&i.vis),
        Item::Mod(i) => Some(&i.vis),
        Item::Static(i) => Some(&i.vis),
        Item::Struct(i) => Some(&i.vis),
        Item::Trait(i) => Some(&i.vis),
        Item::Type(i) => Some(&i.vis),
        Item::Union(i) => Some(&i.vis),
        Item::Use(i) => Some(&i.vis),
        _ => None,
    }
}

pub fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

pub fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|a| a.path().is_ident("cfg") && text(&a.meta).contains("test"))
}
