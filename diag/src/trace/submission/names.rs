//! Names in place of addresses, handles and payloads, in order of appearance, so that two runs can be
//! compared.

use std::collections::HashMap;

use serde_json::Value;

/// Words in the names of methods, fields and arguments whose values differ from run to run.
const WORDS: &[&str] = &[
    "addr",
    "va",
    "offset",
    "ptr",
    "base",
    "handle",
    "payload",
    "token",
    "o_a",
    "pointer",
    "upper",
    "lower",
    "program",
    "semaphore_a",
    "semaphore_b",
    "semaphore_c",
    "pcas_a",
    "after",
    "window",
    "word",
    "argument",
    "inline_data",
    "inline_qmd",
    "limit",
    "reference",
];
/// Words in names that hold one of the words above, and mean something else.
const EXCEPTIONS: &[&str] =
    &["valid", "invalidate", "value_name", "interval", "advance", "available", "size", "minus"];
/// Parts of an event that are times, or repeat decoded parts as bytes.
const LEFT_OUT: &[&str] =
    &["start_ns", "duration_ns", "tid", "input", "output", "memory_bytes", "bytes", "image"];
/// Least value of a data word that is taken for an address.
const LEAST: u64 = 0x1000;

/// The names that were given so far.
#[derive(Debug, Default)]
pub struct Names(HashMap<(char, u64), usize>, HashMap<char, usize>);

impl Names {
    fn name(&mut self, kind: char, value: u64) -> String {
        if value == 0 {
            return "0".to_owned();
        }
        let number = *self.0.entry((kind, value)).or_insert_with(|| {
            let count = self.1.entry(kind).or_insert(0);
            *count += 1;
            *count
        });
        format!("{kind}{number}")
    }

    /// Replaces the values of a JSON document of an event that differ from run to run.
    pub fn normalize(&mut self, value: &mut Value) {
        self.value(value, "");
    }

    /// `key` is the name of the value.
    fn value(&mut self, value: &mut Value, key: &str) {
        match value {
            Value::Object(object) => {
                for name in LEFT_OUT {
                    object.remove(*name);
                }
                // A method or a field has its name beside the value.
                let named = object.get("name").and_then(Value::as_str).map(str::to_ascii_lowercase);
                // Offsets in a segment are places, and not addresses.
                let is_place = object.contains_key("form") || object.contains_key("text");
                for (inner, value) in object.iter_mut() {
                    match (inner.as_str(), &named) {
                        ("value", Some(name)) => self.value(value, name),
                        ("fields", _) if value.is_array() => self.fields(value, named.as_deref()),
                        ("pid", _) => {
                            *value = number(value).map_or(Value::Null, |n| self.name('#', n).into())
                        }
                        ("offset", _) if is_place => {}
                        ("note", Some(name)) if name.contains("payload") => self.text(value, 'P', 0),
                        ("note" | "error" | "text" | "problem", _) => self.text(value, 'A', LEAST),
                        _ => self.value(value, inner),
                    }
                }
            }
            Value::Array(list) => list.iter_mut().for_each(|value| self.value(value, key)),
            Value::String(_) | Value::Number(_) if varies(key) || is_user_address(value) => {
                self.replace(value, key);
            }
            _ => {}
        }
    }

    /// Fields of a method: each has its own name, and that of the method is their subject.
    fn fields(&mut self, fields: &mut Value, method: Option<&str>) {
        for field in fields.as_array_mut().into_iter().flatten() {
            let name = field.get("name").and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
            let whole = method.is_some_and(|m| varies(m) && !m.contains("execute"));
            if let Some(value) = field.get_mut("value").filter(|_| whole || varies(&name)) {
                self.replace(value, &name);
            }
        }
    }

    fn replace(&mut self, value: &mut Value, key: &str) {
        let Some(found) = number(value) else { return };
        // Data words and arguments are of all kinds: small ones are counts.
        if (key.contains("inline_data") || key == "arguments") && found < LEAST {
            return;
        }
        let kind = match key {
            k if k.contains("payload") => 'P',
            k if k.contains("handle") || k.contains("token") => 'H',
            _ => 'A',
        };
        *value = self.name(kind, found).into();
    }

    /// Replaces the numbers from `least` on in a sentence.
    fn text(&mut self, value: &mut Value, kind: char, least: u64) {
        let Some(text) = value.as_str() else { return };
        let mut out = String::new();
        for (i, part) in text.split("0x").enumerate() {
            if i == 0 {
                out.push_str(part);
                continue;
            }
            let digits = part.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(part.len());
            match u64::from_str_radix(&part[..digits], 16) {
                Ok(found) if found >= least => out.push_str(&self.name(kind, found)),
                _ => {
                    out.push_str("0x");
                    out.push_str(&part[..digits]);
                }
            }
            out.push_str(&part[digits..]);
        }
        *value = out.into();
    }
}

/// Whether values of that name differ from run to run.
fn varies(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_handle = name.starts_with('h') && name[1..].starts_with(|c: char| c.is_ascii_uppercase());
    let is_pointer = name.starts_with('p') && name[1..].starts_with(|c: char| c.is_ascii_uppercase());
    is_handle
        || is_pointer
        || WORDS.iter().any(|word| lower.contains(word))
            && !EXCEPTIONS.iter().any(|word| lower.contains(word))
}

/// Whether the value is where a process has its stack and its mappings, whatever it is called: a driver's
/// `params` point there.
fn is_user_address(value: &Value) -> bool {
    value.is_string() && number(value).is_some_and(|value| (1 << 44..1 << 48).contains(&value))
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64().or_else(|| number.as_i64().map(i64::cast_unsigned)),
        Value::String(text) => u64::from_str_radix(text.strip_prefix("0x")?, 16).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_differs_from_run_to_run_has_a_name_and_the_rest_stays() {
        let event = |base: u64, payload: u32, pid: u32| {
            json!({ "pid": pid, "tid": pid + 1, "start_ns": base, "call": "submission",
                "decoded": { "entries": [{ "address": format!("{base:#x}"), "size_bytes": 4096,
                    "commands": [{ "writes": [
                        { "name": "SEM_PAYLOAD_LO", "value": format!("{payload:#x}"),
                          "fields": [{ "name": "PAYLOAD", "value": payload }], "note": null },
                        { "name": "SEND_PCAS_A", "value": format!("{:#x}", base >> 8),
                          "fields": [{ "name": "QMD_ADDRESS_SHIFTED8", "value": base >> 8 }],
                          "note": format!("QMD at {base:#x}, 0x10 bytes") },
                        { "name": "SET_SHADER_SHARED_MEMORY_WINDOW", "value": format!("{base:#x}"), "fields": [] },
                        { "name": "SEM_EXECUTE", "value": "0x1", "fields": [{ "name": "OPERATION", "value": 1 }] },
                    ] }] }] } })
        };
        let normal = |mut value: Value| {
            Names::default().normalize(&mut value);
            value
        };
        let (first, second) = (normal(event(0x1_0000_2000, 77, 400)), normal(event(0x7f00_1234_5000, 3, 9)));
        assert_eq!(first, second);
        let writes = &first["decoded"]["entries"][0]["commands"][0]["writes"];
        assert_eq!((&writes[0]["value"], &writes[0]["fields"][0]["value"]), (&json!("P1"), &json!("P1")));
        assert_eq!(writes[1]["note"], "QMD at A1, 0x10 bytes");
        assert_eq!((&writes[2]["value"], &writes[3]["value"]), (&json!("A1"), &json!("0x1")));
        assert_eq!(first["decoded"]["entries"][0]["size_bytes"], 4096);
        assert_eq!(first.get("start_ns"), None);
    }

    #[test]
    fn pointers_to_what_a_call_passes_have_names() {
        let call = |at: &str| {
            let mut call =
                json!({ "decoded": { "arguments": { "cmd": "0x214", "params": at, "flags": "0x0" } } });
            Names::default().normalize(&mut call);
            call
        };
        assert_eq!(call("0x7ffc9960f150"), call("0xfffff7db47b0"));
        assert_eq!(call("0x7ffc9960f150")["decoded"]["arguments"]["cmd"], "0x214");
    }
}
