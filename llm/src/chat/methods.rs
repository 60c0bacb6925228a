//! Methods of Python's strings that templates call and `minijinja-contrib` does not have.

use minijinja::value::{Kwargs, Value, from_args};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat::unknown_method_callback;

/// Calls `method` of `value` as Python does.
pub(super) fn call(state: &State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let Some(text) = value.as_str() else { return unknown_method_callback(state, value, method, args) };
    match method {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(text.strip_prefix(prefix).unwrap_or(text).into())
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(text.strip_suffix(suffix).unwrap_or(text).into())
        }
        "rsplit" => {
            let (separator, most, options): (Option<&str>, Option<i64>, Kwargs) = from_args(args)?;
            let separator = separator.map_or_else(|| options.get("sep"), |s| Ok(Some(s)))?;
            let most = most.map_or_else(|| options.get("maxsplit"), |m| Ok(Some(m)))?;
            options.assert_all_used()?;
            if separator == Some("") {
                return Err(Error::new(ErrorKind::InvalidOperation, "an empty text separates nothing"));
            }
            let most = most.and_then(|m| usize::try_from(m).ok());
            Ok(rsplit(text, separator, most).into_iter().map(Value::from).collect())
        }
        _ => unknown_method_callback(state, value, method, args),
    }
}

/// The parts of `text`, of which at most `most` are cut off at the end. Without a separator, white space
/// separates, and there are no empty parts.
fn rsplit<'a>(text: &'a str, separator: Option<&str>, most: Option<usize>) -> Vec<&'a str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while most.is_none_or(|most| parts.len() < most) {
        let cut = match separator {
            Some(separator) => rest.rsplit_once(separator),
            None => {
                rest = rest.trim_end();
                rest.rsplit_once(char::is_whitespace)
            }
        };
        let Some((before, part)) = cut else { break };
        parts.push(part);
        rest = before;
    }
    if separator.is_none() {
        rest = rest.trim_end();
    }
    if separator.is_some() || !rest.is_empty() {
        parts.push(rest);
    }
    parts.reverse();
    parts
}
