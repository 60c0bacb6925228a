//! Methods of the channel classes: names, fields and the names of their values.
//!
//! The table (`data/methods.txt`) is made from NVIDIA's public class headers; a test compares it with the
//! facts it was made from.

use std::sync::LazyLock;

/// Which engine a class is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The host interface: what every channel understands, whatever the subchannel.
    Host,
    /// Compute.
    Compute,
    /// Copy engines.
    Copy,
}

/// A class.
#[derive(Clone, Debug)]
pub struct Class {
    /// Its number, e.g. 0xc7c0.
    pub number: u32,
    /// What it is for.
    pub kind: Kind,
    /// Its name in NVIDIA's headers.
    pub name: &'static str,
    /// Its methods, by offset.
    pub methods: Vec<Method>,
}

/// A method.
#[derive(Clone, Debug)]
pub struct Method {
    /// Byte offset in the method space of the class.
    pub offset: u32,
    /// Distance of the elements, for an array of methods.
    pub stride: Option<u32>,
    /// Its name in NVIDIA's headers.
    pub name: &'static str,
    /// Its fields.
    pub fields: Vec<Field>,
}

/// A field of a method's data word.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name in NVIDIA's headers.
    pub name: &'static str,
    /// Highest bit.
    pub hi: u32,
    /// Lowest bit.
    pub lo: u32,
    /// Values that have names.
    pub values: Vec<(&'static str, u32)>,
}

static CLASSES: LazyLock<Vec<Class>> = LazyLock::new(|| parse(include_str!("../data/methods.txt")));

/// Every class whose methods are known.
#[must_use]
pub fn classes() -> &'static [Class] {
    &CLASSES
}

impl Class {
    /// The class of that number.
    #[must_use]
    pub fn find(number: u32) -> Option<&'static Self> {
        CLASSES.iter().find(|class| class.number == number)
    }

    /// The class of that number or the known one of the same kind that is closest before it. The low byte of
    /// a class number says its kind, the high byte its generation.
    #[must_use]
    pub fn nearest(number: u32) -> Option<&'static Self> {
        let kind = |class: &&Class| class.number & 0xff == number & 0xff;
        let earlier = CLASSES.iter().filter(kind).filter(|c| c.number <= number).max_by_key(|c| c.number);
        earlier.or_else(|| CLASSES.iter().filter(kind).min_by_key(|c| c.number))
    }

    /// The method at a byte offset, and which element it is where the method is an array.
    #[must_use]
    pub fn method(&self, offset: u32) -> Option<(&Method, Option<u32>)> {
        let after = self.methods.partition_point(|m| m.offset <= offset);
        let before = self.methods.get(..after)?;
        let last = before.last()?;
        if last.offset == offset {
            return Some((last, last.stride.map(|_| 0)));
        }
        // Arrays may be interleaved; an array ends where the next method that is none begins.
        let arrays = before.iter().rev().map_while(|m| Some((m, m.stride?)));
        arrays
            .filter(|(m, stride)| (offset - m.offset).is_multiple_of(*stride))
            .map(|(m, stride)| (m, Some((offset - m.offset) / stride)))
            .next()
    }
}

impl Field {
    /// The value of the field in a data word.
    #[must_use]
    pub const fn of(&self, word: u32) -> u32 {
        (word & self.mask()) >> self.lo
    }

    /// The bits of the field.
    #[must_use]
    pub const fn mask(&self) -> u32 {
        u32::MAX >> (31 - self.hi) & u32::MAX << self.lo
    }

    /// The name of a value of the field.
    #[must_use]
    pub fn value_name(&self, value: u32) -> Option<&'static str> {
        self.values.iter().find(|(_, v)| *v == value).map(|(name, _)| *name)
    }
}

/// Reads the table; lines that are none of its forms are left out, which a test would notice.
fn parse(table: &'static str) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split(' ');
        let Some(first) = words.next() else { continue };
        if first == "class" {
            classes.extend(class(words));
        } else if let (Some(class), Some(method)) = (classes.last_mut(), method(first, words)) {
            class.methods.push(method);
        }
    }
    classes
}

fn class(mut words: std::str::Split<'static, char>) -> Option<Class> {
    let number = u32::from_str_radix(words.next()?, 16).ok()?;
    let kind = match words.next()? {
        "host" => Kind::Host,
        "compute" => Kind::Compute,
        "copy" => Kind::Copy,
        _ => return None,
    };
    Some(Class { number, kind, name: words.next()?, methods: Vec::new() })
}

fn method(place: &'static str, mut words: std::str::Split<'static, char>) -> Option<Method> {
    let (offset, stride) = match place.split_once('+') {
        Some((offset, stride)) => (offset, Some(u32::from_str_radix(stride, 16).ok()?)),
        None => (place, None),
    };
    Some(Method {
        offset: u32::from_str_radix(offset, 16).ok()?,
        stride: stride.filter(|s| *s != 0),
        name: words.next()?,
        fields: words.map(field).collect::<Option<_>>()?,
    })
}

fn field(text: &'static str) -> Option<Field> {
    let (bits, values) = text.split_once('{').unwrap_or((text, "}"));
    let mut parts = bits.split(':');
    let (name, hi, lo) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let values = values.strip_suffix('}')?.split(',').filter(|v| !v.is_empty());
    let value = |v: &'static str| v.split_once('=').and_then(|(name, n)| Some((name, n.parse().ok()?)));
    (lo <= hi && hi < 32).then_some(Field { name, hi, lo, values: values.map(value).collect::<Option<_>>()? })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_table_holds_every_class_method_field_and_value_of_the_headers() {
        let facts: Value =
            serde_json::from_str(include_str!("../tests/data/class-methods.json")).expect("JSON");
        let facts = facts["classes"].as_object().expect("classes");
        assert_eq!(facts.len(), classes().len());
        for expected in facts.values() {
            let number = expected["id"].as_u64().expect("an id") as u32;
            let class = Class::find(number).expect("in the table");
            assert_eq!(class.name, expected["name"]);
            let methods = expected["methods"].as_object().expect("methods");
            assert_eq!(methods.len(), class.methods.len(), "{}", class.name);
            for (name, about) in methods {
                let method = class.methods.iter().find(|m| m.name == name).expect("in the table");
                assert_eq!(Some(method.offset.into()), about["offset"].as_u64(), "{name}");
                assert_eq!(method.stride.map(u64::from), about["stride"].as_u64(), "{name}");
                let fields = about["fields"].as_object().into_iter().flatten();
                let fields: Vec<_> = fields.collect();
                assert_eq!(fields.len(), method.fields.len(), "{name}");
                for (field, about) in fields {
                    let known = method.fields.iter().find(|f| f.name == field).expect("in the table");
                    assert_eq!(about["bits"], serde_json::json!([known.hi, known.lo]), "{name} {field}");
                    let values = about["enum"].as_object().map_or(0, |values| values.len());
                    assert_eq!(values, known.values.len(), "{name} {field}");
                    for (value, number) in &known.values {
                        assert_eq!(about["enum"][value], *number, "{name} {field}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_named_method_is_found_at_its_offset_and_no_other() {
        for class in classes() {
            for method in &class.methods {
                let (found, index) = class.method(method.offset).expect("there");
                assert_eq!(
                    (found.offset, index),
                    (method.offset, method.stride.map(|_| 0)),
                    "{}",
                    method.name
                );
            }
        }
    }

    #[test]
    fn elements_of_arrays_are_found_also_where_two_are_interleaved() {
        let compute = Class::find(0xc7c0).expect("known");
        let name = |offset| compute.method(offset).map(|(m, i)| (m.name, i));
        assert_eq!(name(0x320), Some(("LOAD_INLINE_QMD_DATA", Some(0))));
        assert_eq!(name(0x41c), Some(("LOAD_INLINE_QMD_DATA", Some(63))));
        assert_eq!(name(0x3808), Some(("CALL_MME_MACRO", Some(1))));
        assert_eq!(name(0x380c), Some(("CALL_MME_DATA", Some(1))));
        assert_eq!(name(0x2c4), None);
        assert_eq!(name(0x2c0), Some(("SEND_SIGNALING_PCAS2_B", None)));
    }

    #[test]
    fn a_class_that_is_not_in_the_table_is_read_as_the_one_before_it() {
        assert_eq!(Class::nearest(0xc9c0).map(|c| c.number), Some(0xc7c0));
        assert_eq!(Class::nearest(0xc6c0).map(|c| c.number), Some(0xc7c0));
        assert_eq!(Class::nearest(0xcdc0).map(|c| c.number), Some(0xcbc0));
        assert_eq!(Class::nearest(0xc797).map(|c| c.number), None);
    }
}
