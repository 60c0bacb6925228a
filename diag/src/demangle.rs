//! Names of kernels and functions as their language spells them, of a length that a line can hold.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

/// Most characters of a name in a line of text.
const SHOWN: usize = 80;
/// Longest mangled name that is read, and longest name that is made of one: substitutions can make short
/// mangled names grow without end.
const LONGEST: usize = 16 << 10;
/// Limit of nesting in the parser of C++ names.
const DEEPEST: u32 = 128;

/// Text up to a length; more is an error.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// The name behind a mangled one of C++ or Rust, with parameter types and without Rust's hash; `None` for a name
/// that is not mangled, or that is damaged or too long.
///
/// ```
/// assert_eq!(nvdiag::demangled("_Z6triplePi").as_deref(), Some("triple(int*)"));
/// assert_eq!(nvdiag::demangled("triple"), None);
/// ```
#[must_use]
pub fn demangled(name: &str) -> Option<String> {
    if name.len() > LONGEST {
        return None;
    }
    let mut out = Bounded(String::new());
    // Rust's older scheme reads as C++, with the hash as the last part of the name.
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        write!(out, "{rust:#}").ok()?;
    } else if name.starts_with("_Z") {
        let options = ParseOptions::default().recursion_limit(DEEPEST);
        let symbol = Symbol::new_with_options(name, &options).ok()?;
        symbol.structured_demangle(&mut out, &DemangleOptions::default().recursion_limit(DEEPEST)).ok()?;
    } else {
        return None;
    }
    Some(out.0).filter(|readable| readable != name && !readable.is_empty())
}

/// Whether `asked` is the demangled form of a name, with parameter types or without.
#[must_use]
pub(crate) fn is_spelled(name: &str, asked: &str) -> bool {
    let Some(full) = demangled(name) else { return false };
    let bare = bare(&full);
    asked == full || asked == bare
}

/// A demangled name without its return type and its parameter types.
fn bare(full: &str) -> &str {
    // Of C++ the last bracket at depth 0 opens the parameters, and a blank at depth 0 follows the return type.
    let (mut depth, mut start, mut end) = (0_usize, 0, full.len());
    for (at, c) in full.char_indices() {
        match c {
            '(' | '<' => {
                if c == '(' && depth == 0 {
                    end = at;
                }
                depth += 1;
            }
            ')' | '>' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 && end == full.len() => start = at + 1,
            _ => {}
        }
    }
    full.get(start..end).unwrap_or(full)
}

/// A name for a line of text: demangled, and at most [`SHOWN`] characters long. Of a longer one the parameter
/// types are left out, then the template arguments, then its end.
#[must_use]
pub(crate) fn shown(name: &str) -> String {
    let full = demangled(name).unwrap_or_else(|| name.to_owned());
    let fits = |text: &str| text.chars().count() <= SHOWN;
    if fits(&full) {
        return full;
    }
    let bare = without(&full, '(', ')');
    let bare = if fits(&bare) { bare } else { without(&bare, '<', '>') };
    if fits(&bare) {
        return bare;
    }
    let mut cut: String = bare.chars().take(SHOWN - 3).collect();
    cut += "...";
    cut
}

/// A text with `...` in place of the text between outermost brackets.
fn without(text: &str, open: char, close: char) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut depth, mut before) = (0_usize, ' ');
    for c in text.chars() {
        // The arrow of a trailing return type closes nothing.
        if c == close && before != '-' {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                out.push_str("...");
            }
        }
        if depth == 0 {
            out.push(c);
        }
        depth += usize::from(c == open);
        before = c;
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_both_languages_are_read() {
        for (name, expected) in [
            ("_Z6triplePi", "triple(int*)"),
            (
                "_ZN2at6native12_GLOBAL__N_13addEPKfi",
                "at::native::(anonymous namespace)::add(float const*, int)",
            ),
            ("_Z5scaleIfLi4EEvPT_S0_", "void scale<float, 4>(float*, float)"),
            ("_ZN7kernels4fill17h0123456789abcdefE", "kernels::fill"),
            ("_RNvCsbmNqQUJIY6D_4core3foo", "core::foo"),
        ] {
            assert_eq!(demangled(name).as_deref(), Some(expected), "{name}");
            assert_eq!(shown(name), expected);
        }
        for plain in ["vadd_f32", "", "_Z", "_Zzz", "main"] {
            assert_eq!(demangled(plain), None, "{plain}");
            assert_eq!(shown(plain), plain);
        }
    }

    #[test]
    fn long_names_lose_parameters_then_template_arguments_then_their_end() {
        let parameters = format!("_Z6triple{}", "Pi".to_owned() + &"PKc".repeat(40));
        assert_eq!(shown(&parameters), "triple(...)");
        let arguments = format!("_Z6tripleI{}EvPT_", "f".repeat(60));
        let text = demangled(&arguments).expect("a C++ name");
        assert!(text.chars().count() > SHOWN, "{text}");
        assert_eq!(shown(&arguments), "void triple<...>(...)");
        assert_eq!(shown(&"x".repeat(500)).chars().count(), SHOWN);
        assert_eq!(shown("_Z6triplePi".repeat(2000).as_str()).chars().count(), SHOWN);
    }

    #[test]
    fn a_kernel_is_asked_for_by_any_form_of_its_name() {
        for (name, forms) in [
            ("_Z6triplePi", ["triple", "triple(int*)"].as_slice()),
            (
                "_Z5scaleIjLi4EEvPT_S0_",
                &["scale<unsigned int, 4>", "void scale<unsigned int, 4>(unsigned int*, unsigned int)"],
            ),
            (
                "_ZN2at6native12_GLOBAL__N_13addEPKfi",
                &[
                    "at::native::(anonymous namespace)::add",
                    "at::native::(anonymous namespace)::add(float const*, int)",
                ],
            ),
            ("_ZN7kernels4fill17h0123456789abcdefE", &["kernels::fill"]),
        ] {
            assert!(forms.iter().all(|form| is_spelled(name, form)), "{name} {forms:?}");
            assert!(!is_spelled(name, "other") && !is_spelled(name, ""));
        }
    }

    /// Each substitution names what all before it name twice.
    #[test]
    fn a_name_that_grows_without_end_is_left_alone() {
        let mut name = "_Z1fI1aIiES0_".to_owned();
        for at in 0..36_u32 {
            let digit = char::from_digit(at, 36).map_or('Z', |c| c.to_ascii_uppercase());
            name += &format!("1aIS{digit}_S{digit}_E");
        }
        name += "Evv";
        let read = demangled(&name);
        assert!(read.is_none_or(|text| text.len() <= LONGEST));
    }

    proptest! {
        #[test]
        fn any_name_is_shown_in_a_line(name in "(_Z|_R|_ZN)?[ -~]{0,80}") {
            prop_assert!(shown(&name).chars().count() <= SHOWN);
        }
    }
}
