//! Methods and their fields, and the macro that the generated tables are written in.

use crate::class::number::Kind;
use crate::field::Field;

/// A class whose methods are known.
#[derive(Clone, Copy, Debug)]
pub struct Class {
    /// Its number, e.g. 0xc7c0.
    pub number: u32,
    /// The engine it is for.
    pub kind: Kind,
    /// Its name in NVIDIA's headers.
    pub name: &'static str,
    /// Its methods, by offset.
    pub methods: &'static [Method],
}

/// A method.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// Byte offset in the method space of the class.
    pub offset: u32,
    /// Bytes from element to element, for an array of methods.
    pub stride: Option<u32>,
    /// Its name in NVIDIA's headers.
    pub name: &'static str,
    /// Its fields.
    pub fields: &'static [Field],
}

impl Class {
    /// The method at a byte offset, and which element it is where the method is an array.
    #[must_use]
    pub fn method(&self, offset: u32) -> Option<(&'static Method, Option<u32>)> {
        let after = self.methods.partition_point(|m| m.offset <= offset);
        let before = self.methods.get(..after)?;
        let last = before.last()?;
        if last.offset == offset {
            return Some((last, last.stride.map(|_| 0)));
        }
        // Arrays may be interleaved; an array ends where the next method that is none begins.
        let mut arrays = before.iter().rev().map_while(|m| Some((m, m.stride?)));
        arrays
            .find(|(m, stride)| (offset - m.offset) % stride == 0)
            .map(|(m, stride)| (m, Some((offset - m.offset) / stride)))
    }
}

/// Declares the methods of a class: a constant with the byte offset of each, a module of the same name with a
/// [`Field`] for each field, a module in that with the values that have names; and `CLASS`, all of it as data.
macro_rules! class {
    ($class:ident = $number:literal, $kind:ident, $header:literal; $(
        $method:ident = $offset:literal $(+ $stride:literal)? $({ $(
            $field:ident $hi:literal:$lo:literal $(($($value:ident $code:literal),*))?
        );* })?
    )*) => {
        use $crate::class::method::{Class, Method};
        use $crate::class::number::Kind;

        #[doc = concat!("`", stringify!($class), "` as data.")]
        pub const CLASS: Class = Class {
            number: $number,
            kind: Kind::$kind,
            name: stringify!($class),
            methods: &[$(Method {
                offset: $offset,
                stride: [$(Some($stride),)? None][0],
                name: stringify!($method),
                fields: &[$($($method::$field),*)?],
            }),*],
        };
        $(
            #[doc = concat!("`", stringify!($method), "` of `", $header, "`", $(", an array: elements ", $stride, " bytes apart",)? ".")]
            pub const $method: u32 = $offset;
            $(
                #[doc = concat!("Fields of the data word of `", stringify!($method), "`.")]
                #[allow(non_snake_case, reason = "the header's name")]
                pub mod $method {
                    use $crate::field::Field;
                    #[allow(unused_imports, reason = "not every field has names for its values")]
                    use $crate::names::plain;
                    $(
                        #[doc = concat!("Bits ", $hi, ":", $lo, ".")]
                        pub const $field: Field =
                            Field::new(stringify!($field), $hi, $lo, &[$($(($code, plain(stringify!($value)))),*)?]);
                        $(
                            #[doc = concat!("Values of `", stringify!($field), "`.")]
                            #[allow(non_snake_case, missing_docs, reason = "the header's names")]
                            pub mod $field {
                                $(pub const $value: u32 = $code;)*
                            }
                        )?
                    )*
                }
            )?
        )*
    };
}
pub(crate) use class;
