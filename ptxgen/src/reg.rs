//! Registers and operands.

use std::fmt;
use std::marker::PhantomData;

use crate::ty::{Bool, Class, Ty};

/// A virtual register of type `T`. A plain name: copying it copies no value.
pub struct Reg<T> {
    pub(crate) id: u32,
    ty: PhantomData<T>,
}

impl<T> Clone for Reg<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Reg<T> {}

impl<T: Ty> Reg<T> {
    pub(crate) fn new(id: u32) -> Self {
        Self { id, ty: PhantomData }
    }

    pub(crate) fn raw(self) -> Raw {
        Raw { class: T::CLASS, id: self.id }
    }
}

impl<T: Ty> fmt::Display for Reg<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw().fmt(f)
    }
}

impl<T: Ty> fmt::Debug for Reg<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}:{}", T::NAME)
    }
}

/// A predicate register.
pub type Pred = Reg<Bool>;

/// A register without its type: what remains for the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Raw {
    pub class: Class,
    pub id: u32,
}

impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.class.names().0, self.id)
    }
}

/// A register or an immediate of type `T`.
pub trait Operand<T: Ty>: Copy {
    /// As the instruction spells it.
    fn text(self) -> String;
}

impl<T: Ty> Operand<T> for Reg<T> {
    fn text(self) -> String {
        self.to_string()
    }
}

macro_rules! immediates {
    ($($ty:ty => |$v:ident| $text:expr),* $(,)?) => { $(
        impl Operand<$ty> for $ty {
            fn text(self) -> String {
                let $v = self;
                $text
            }
        }
    )* };
}
immediates! {
    u16 => |v| v.to_string(), i16 => |v| v.to_string(),
    u32 => |v| v.to_string(), i32 => |v| v.to_string(),
    u64 => |v| v.to_string(), i64 => |v| v.to_string(),
    f32 => |v| format!("0f{:08X}", v.to_bits()), f64 => |v| format!("0d{:016X}", v.to_bits()),
}
