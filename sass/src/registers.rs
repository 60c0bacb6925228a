//! Registers of the four files, and sets of them.

use std::fmt;

/// A register that an instruction names. The ones that always read zero or true (RZ, URZ, PT, UPT) are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Register {
    /// A register of the thread, R0 to R254.
    R(u8),
    /// A register of the warp, UR0 to UR62.
    Ur(u8),
    /// A predicate of the thread, P0 to P6.
    P(u8),
    /// A predicate of the warp, UP0 to UP6.
    Up(u8),
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::R(n) => write!(f, "R{n}"),
            Self::Ur(n) => write!(f, "UR{n}"),
            Self::P(n) => write!(f, "P{n}"),
            Self::Up(n) => write!(f, "UP{n}"),
        }
    }
}

/// First bit of each register file in a set.
const UR: usize = 256;
const P: usize = 320;
const UP: usize = 328;
const WORDS: usize = 6;

/// A set of registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RegisterSet([u64; WORDS]);

impl RegisterSet {
    /// No registers.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// Adds a register; those that read zero or true are ignored.
    pub fn insert(&mut self, register: Register) {
        let (base, index, count) = match register {
            Register::R(n) => (0, n, 255),
            Register::Ur(n) => (UR, n, 63),
            Register::P(n) => (P, n, 7),
            Register::Up(n) => (UP, n, 7),
        };
        if index < count {
            let bit = base + usize::from(index);
            self.0[bit / 64] |= 1 << (bit % 64);
        }
    }

    /// Adds `count` registers of the thread from `first` on; none from RZ.
    pub(crate) fn insert_group(&mut self, first: u8, count: u8) {
        if first != 255 {
            (0..count).for_each(|n| self.insert(Register::R(first.saturating_add(n))));
        }
    }

    /// Adds `count` registers of the warp from `first` on; none from URZ.
    pub(crate) fn insert_uniform_group(&mut self, first: u8, count: u8) {
        if first != 63 {
            (0..count).for_each(|n| self.insert(Register::Ur(first.saturating_add(n))));
        }
    }

    /// Whether `register` is in the set.
    pub fn contains(self, register: Register) -> bool {
        let mut only = Self::EMPTY;
        only.insert(register);
        !(self & only).is_empty()
    }

    /// Whether the set has no register.
    pub fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    /// The registers, those of the thread first, ascending.
    pub fn iter(self) -> impl Iterator<Item = Register> {
        (0..WORDS * 64).filter(move |bit| self.0[bit / 64] >> (bit % 64) & 1 != 0).map(|bit| match bit {
            0..UR => Register::R(bit as u8),
            UR..P => Register::Ur((bit - UR) as u8),
            P..UP => Register::P((bit - P) as u8),
            _ => Register::Up((bit - UP) as u8),
        })
    }
}

impl std::ops::BitAnd for RegisterSet {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }
}

impl std::ops::BitOr for RegisterSet {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }
}

impl std::ops::Sub for RegisterSet {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }
}

impl FromIterator<Register> for RegisterSet {
    fn from_iter<I: IntoIterator<Item = Register>>(registers: I) -> Self {
        let mut set = Self::EMPTY;
        registers.into_iter().for_each(|register| set.insert(register));
        set
    }
}

/// `R4 R5 P0`.
impl fmt::Display for RegisterSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, register) in self.iter().enumerate() {
            write!(f, "{}{register}", if i == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in_and_no_constant_register() {
        let all = (0..=254).map(Register::R).chain((0..=62).map(Register::Ur));
        let all: Vec<_> = all.chain((0..=6).map(Register::P)).chain((0..=6).map(Register::Up)).collect();
        let constant = [Register::R(255), Register::Ur(63), Register::P(7), Register::Up(7)];
        let set: RegisterSet = all.iter().copied().chain(constant).collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), all);
        assert!(constant.iter().all(|register| !set.contains(*register)));
        let pair: RegisterSet = [Register::R(4), Register::P(0)].into_iter().collect();
        assert_eq!(pair.to_string(), "R4 P0");
        assert!((set - pair).iter().count() == all.len() - 2 && (set & pair) == pair && (set | pair) == set);
    }
}
