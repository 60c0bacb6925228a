//! The printing of items in the lists.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Fields, Item, Signature};

use crate::source::is_public;

/// The attributes that a user has to know: conditions, derived traits, `non_exhaustive`.
pub fn notes(attributes: &[Attribute]) -> String {
    let known = ["cfg", "derive", "from", "non_exhaustive", "deprecated", "repr"];
    let known = |a: &&Attribute| known.iter().any(|name| a.path().is_ident(name));
    attributes.iter().filter(known).map(|a| format!("#[{}] ", text(&a.meta))).collect()
}

/// Tokens with the spaces that a person would write.
pub fn text(tokens: impl ToTokens) -> String {
    fn write(tokens: TokenStream, out: &mut String) {
        let mut joint = false;
        for token in tokens {
            let piece = match &token {
                TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        Delimiter::Parenthesis => ("(", ")"),
                        Delimiter::Brace => ("{ ", " }"),
                        Delimiter::Bracket => ("[", "]"),
                        Delimiter::None => ("", ""),
                    };
                    let mut inner = String::new();
                    write(group.stream(), &mut inner);
                    format!("{open}{}{close}", inner.trim_end_matches(','))
                }
                other => other.to_string(),
            };
            let opens = out.ends_with(['(', '[', '<', '&', '!', '.', '#', '\''])
                || out.ends_with("::")
                || out.is_empty();
            let closes = piece.starts_with(['(', '[', ',', ';', ':', '<', '>', '.', '?', '!']);
            let arrow = out.ends_with("->") || out.ends_with("=>");
            let last =
                out.rsplit(|c: char| !c.is_alphanumeric() && c != '_' && c != '\'').next().unwrap_or("");
            let keyword = ["mut", "dyn", "const", "for", "in"].contains(&last) || last.starts_with('\'');
            let word = (!last.is_empty() && !keyword) || out.ends_with(['>', ')', ']']);
            // A parenthesis or bracket follows a name closely, but a keyword or an operator with a space.
            let glued = joint || opens || (closes && (word || !piece.starts_with(['(', '['])) && !arrow);
            if !glued || (arrow && piece.starts_with(['(', '[', '<'])) {
                out.push(' ');
            }
            out.push_str(&piece);
            joint =
                matches!(&token, TokenTree::Punct(p) if p.spacing() == Spacing::Joint || p.as_char() == '\'');
        }
    }
    let mut out = String::new();
    write(tokens.to_token_stream(), &mut out);
    out
}

pub fn signature(sig: &Signature) -> String {
    text(sig).replace(",)", ")")
}

pub fn fields(fields: &Fields) -> String {
    let all = |fields: &syn::punctuated::Punctuated<syn::Field, syn::Token![,]>| {
        let public = fields.iter().filter(|field| is_public(&field.vis));
        let mut list: Vec<String> = public
            .map(|field| {
                let name = field.ident.as_ref().map_or(String::new(), |name| format!("{name}: "));
                format!("{}{name}{}", notes(&field.attrs), text(&field.ty))
            })
            .collect();
        if list.len() < fields.len() {
            list.push("..".to_owned());
        }
        list.join(", ")
    };
    match fields {
        Fields::Named(named) => format!(" {{ {} }}", all(&named.named)),
        Fields::Unnamed(unnamed) => format!("({})", all(&unnamed.unnamed)),
        Fields::Unit => String::new(),
    }
}

/// The tokens of a macro call, a part between semicolons on each line; between commas where there are none.
pub fn calls(name: &str, tokens: &TokenStream) -> Vec<String> {
    let is = |token: &TokenTree, c| matches!(token, TokenTree::Punct(p) if p.as_char() == c);
    let separator = if tokens.clone().into_iter().any(|token| is(&token, ';')) { ';' } else { ',' };
    let (mut lines, mut part) = (Vec::new(), TokenStream::new());
    for token in tokens.clone() {
        if !is(&token, separator) {
            part.extend([token]);
        } else if !part.is_empty() {
            lines.push(format!("    {name}! {}", text(std::mem::take(&mut part))));
        }
    }
    if !part.is_empty() {
        lines.push(format!("    {name}! {}", text(part)));
    }
    lines
}

/// The conditions that an item is compiled under.
pub fn notes_of_condition(attributes: &[Attribute]) -> String {
    let conditions = attributes.iter().filter(|a| a.path().is_ident("cfg"));
    conditions.map(|a| format!("#[{}] ", text(&a.meta))).collect()
}

pub fn without_condition(notes: &str) -> String {
    notes.split_inclusive("] ").filter(|note| !note.starts_with("#[cfg(")).collect()
}

pub fn fields_of_variant(fields: &Fields) -> String {
    // Those of a variant are as public as the enum.
    let mut fields = fields.clone();
    fields.iter_mut().for_each(|field| field.vis = syn::parse_quote!(pub));
    self::fields(&fields)
}

pub fn head(item: &Item, path: &str) -> String {
    match item {
        Item::Const(c) => format!("const {path}: {}", text(&c.ty)),
        Item::Static(s) => format!("static {path}: {}", text(&s.ty)),
        Item::Fn(f) => signature(&f.sig).replacen(&f.sig.ident.to_string(), path, 1),
        Item::Struct(s) => format!("struct {path}{}{}", text(&s.generics), fields(&s.fields)),
        Item::Union(u) => format!("union {path}{}", fields(&Fields::Named(u.fields.clone()))),
        Item::Enum(e) => format!("enum {path}{}", text(&e.generics)),
        Item::Type(t) => format!("type {path}{} = {}", text(&t.generics), text(&t.ty)),
        Item::Trait(t) => {
            let unsafety = if t.unsafety.is_some() { "unsafe " } else { "" };
            let bounds = text(&t.supertraits);
            let colon = if bounds.is_empty() { "" } else { ": " };
            format!("{unsafety}trait {path}{}{colon}{bounds}", text(&t.generics))
        }
        _ => path.to_owned(),
    }
}
