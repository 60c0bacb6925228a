//! Metadata values of a GGUF file.

/// Calls `$macro` with the types of values: variant, Rust type, number in a file.
macro_rules! with_value_types {
    ($macro:ident) => {
        $macro! {
            U8(u8) = 0, I8(i8) = 1, U16(u16) = 2, I16(i16) = 3, U32(u32) = 4, I32(i32) = 5, F32(f32) = 6,
            Bool(bool) = 7, String(String) = 8, Array(Array) = 9, U64(u64) = 10, I64(i64) = 11, F64(f64) = 12
        }
    };
}
pub(super) use with_value_types;

/// Declares [`Value`] and [`Array`].
macro_rules! declare {
    ($($name:ident($ty:ty) = $id:literal),*) => {
        /// One metadata value.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Value { $(#[doc = concat!("Type ", $id, ".")] $name($ty),)* }

        /// An array of one element type.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Array { $(#[doc = concat!("Elements of type ", $id, ".")] $name(Vec<$ty>),)* }

        impl Value {
            /// The number of the value's type in a file.
            pub const fn type_id(&self) -> u32 {
                match self { $(Self::$name(_) => $id,)* }
            }
        }

        impl Array {
            /// The number of the element type in a file.
            pub const fn type_id(&self) -> u32 {
                match self { $(Self::$name(_) => $id,)* }
            }

            /// Number of elements.
            pub const fn len(&self) -> usize {
                match self { $(Self::$name(v) => v.len(),)* }
            }
        }
    };
}
with_value_types!(declare);

impl Value {
    /// The kind of value, for messages.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::F32(_) | Self::F64(_) => "a real number",
            Self::Bool(_) => "a boolean",
            Self::String(_) => "a string",
            Self::Array(Array::String(_)) => "an array of strings",
            Self::Array(_) => "an array",
            Self::I8(..0) | Self::I16(..0) | Self::I32(..0) | Self::I64(..0) => "a negative integer",
            _ => "an integer",
        }
    }

    /// The value as an unsigned integer, if it is a non-negative integer.
    pub fn as_uint(&self) -> Option<u64> {
        match *self {
            Self::U8(v) => Some(v.into()),
            Self::U16(v) => Some(v.into()),
            Self::U32(v) => Some(v.into()),
            Self::U64(v) => Some(v),
            Self::I8(v) => v.try_into().ok(),
            Self::I16(v) => v.try_into().ok(),
            Self::I32(v) => v.try_into().ok(),
            Self::I64(v) => v.try_into().ok(),
            _ => None,
        }
    }

    /// The value as a real number, if it is one.
    pub fn as_real(&self) -> Option<f64> {
        match *self {
            Self::F32(v) => Some(v.into()),
            Self::F64(v) => Some(v),
            _ => None,
        }
    }

    /// The value as a boolean, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(v) = *self { Some(v) } else { None }
    }

    /// The value as text, if it is a string.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(v) = self { Some(v) } else { None }
    }

    /// The value as a list of strings, if it is one.
    pub fn as_strings(&self) -> Option<&[String]> {
        if let Self::Array(Array::String(v)) = self { Some(v) } else { None }
    }
}

impl Array {
    /// Whether there is no element.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements as unsigned integers, if all are non-negative integers.
    pub fn to_uints(&self) -> Option<Vec<u64>> {
        fn all<T: Copy + TryInto<u64>>(values: &[T]) -> Option<Vec<u64>> {
            values.iter().map(|&v| v.try_into().ok()).collect()
        }
        match self {
            Self::U8(v) => all(v),
            Self::U16(v) => all(v),
            Self::U32(v) => all(v),
            Self::U64(v) => all(v),
            Self::I8(v) => all(v),
            Self::I16(v) => all(v),
            Self::I32(v) => all(v),
            Self::I64(v) => all(v),
            _ => None,
        }
    }
}
