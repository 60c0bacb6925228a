//! Classes: what engines are sent, by number, with their methods, the methods' fields and the fields' values.
//!
//! A module is named after the number, as NVIDIA's headers are: `clc7c0.h` is [`c7c0`]. A name of a header
//! such as `NVC76F_SEM_EXECUTE_OPERATION_RELEASE` is `c76f::SEM_EXECUTE::OPERATION::RELEASE` here: the method
//! `c76f::SEM_EXECUTE` is its byte offset, `c76f::SEM_EXECUTE::OPERATION` a [`Field`].
//!
//! Source: the headers in `classes/` of NVIDIA's open-gpu-doc; Hopper's host class is from the open GPU kernel
//! modules and lacks most methods, which are Ampere's.
//!
//! ```
//! use nv_hw::class::{Class, c76f, c7c0};
//!
//! assert_eq!(c7c0::SEND_PCAS_A, 0x2b4);
//! use c76f::SEM_EXECUTE::{OPERATION, RELEASE_WFI};
//! let word = OPERATION.with(OPERATION::RELEASE) | RELEASE_WFI.with(RELEASE_WFI::EN);
//! assert_eq!(word, 0x10_0001);
//!
//! let class = Class::find(0xc7c0).unwrap();
//! assert_eq!(class.method(0x2b4).unwrap().0.name, "SEND_PCAS_A");
//! ```

pub mod c76f;
pub mod c7b5;
pub mod c7c0;
pub mod c86f;
pub mod c8b5;
pub mod cbc0;
mod method;
mod number;

pub use crate::field::Field;
pub use method::{Class, Method};
pub use number::*;

/// Every class whose methods are known.
pub const CLASSES: &[Class] = &[c76f::CLASS, c86f::CLASS, c7c0::CLASS, cbc0::CLASS, c7b5::CLASS, c8b5::CLASS];

/// The first offset that is a method of the class bound to the subchannel; methods below are the host's.
pub const FIRST_ENGINE_METHOD: u32 = 0x100;
/// The end of the method space: offsets have 12 bits of words.
pub const METHOD_SPACE: u32 = 0x4000;

/// The subchannel of each kind of class on a channel for graphics and compute; a channel of copies alone has
/// its class on every subchannel.
pub mod subchannel {
    /// Three-dimensional graphics.
    pub const GRAPHICS: u32 = 0;
    /// Compute.
    pub const COMPUTE: u32 = 1;
    /// Inline data.
    pub const INLINE_TO_MEMORY: u32 = 2;
    /// Two-dimensional graphics.
    pub const TWO_D: u32 = 3;
    /// Copies.
    pub const COPY: u32 = 4;
}

impl Class {
    /// The class of that number.
    #[must_use]
    pub fn find(number: u32) -> Option<&'static Self> {
        CLASSES.iter().find(|class| class.number == number)
    }

    /// The class of that number or the known one of the same kind that is closest before it.
    #[must_use]
    pub fn nearest(number: u32) -> Option<&'static Self> {
        let kind = |class: &&Class| class.number & 0xff == number & 0xff;
        let earlier = CLASSES.iter().filter(kind).filter(|c| c.number <= number).max_by_key(|c| c.number);
        earlier.or_else(|| CLASSES.iter().filter(kind).min_by_key(|c| c.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_method_is_found_at_its_offset() {
        for class in CLASSES {
            for method in class.methods {
                let (found, index) = class.method(method.offset).expect("there");
                let want = (method.name, method.stride.map(|_| 0));
                assert_eq!((found.name, index), want);
            }
        }
    }

    #[test]
    fn elements_of_arrays_are_found_also_where_two_are_interleaved() {
        let element = |offset| c7c0::CLASS.method(offset).map(|(m, i)| (m.name, i));
        assert_eq!(element(0x320), Some(("LOAD_INLINE_QMD_DATA", Some(0))));
        assert_eq!(element(0x41c), Some(("LOAD_INLINE_QMD_DATA", Some(63))));
        assert_eq!(element(0x3808), Some(("CALL_MME_MACRO", Some(1))));
        assert_eq!(element(0x380c), Some(("CALL_MME_DATA", Some(1))));
        assert_eq!(element(0x2c4), None);
        assert_eq!(element(0x2c0), Some(("SEND_SIGNALING_PCAS2_B", None)));
    }

    #[test]
    fn a_class_that_is_not_in_the_table_is_read_as_the_one_before_it() {
        assert_eq!(Class::nearest(ADA_COMPUTE_A).map(|c| c.number), Some(AMPERE_COMPUTE_B));
        assert_eq!(Class::nearest(AMPERE_COMPUTE_A).map(|c| c.number), Some(AMPERE_COMPUTE_B));
        assert_eq!(Class::nearest(BLACKWELL_COMPUTE_A).map(|c| c.number), Some(HOPPER_COMPUTE_A));
        assert_eq!(Class::nearest(AMPERE_B).map(|c| c.number), None);
    }

    #[test]
    fn classes_are_called_alike_by_their_methods_and_by_their_number() {
        for class in CLASSES {
            assert_eq!(name(class.number), Some(class.name));
            assert_eq!(Kind::of(class.number), Some(class.kind));
        }
    }

    #[test]
    fn a_field_takes_and_gives_its_bits() {
        let field = c76f::SEM_EXECUTE::PAYLOAD_SIZE;
        assert_eq!((field.of(0x0310_0001), field.with(1), field.with(2)), (1, 1 << 24, 0));
        assert_eq!(field.value_name(1), Some("64BIT"));
    }
}
