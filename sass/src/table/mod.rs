//! The operation tables: one row per operation, or per 12-bit code where an operation has fixed codes.
//!
//! A row names the fields of the operands. The tables follow the encoding that NVIDIA's public disassembler
//! shows; every row is checked against it.

mod address;
mod bulk;
pub(crate) mod control;
mod convert;
mod fields;
mod float;
mod graphics;
mod half;
mod handle;
mod integer;
pub(crate) mod item;
mod matrix;
mod memory;
pub(crate) mod row;
mod surface;
mod texture;
mod uniform;
mod warpgroup;

use std::sync::OnceLock;

use crate::arch::{Arch, Encoding};
use crate::table::row::Row;
use crate::word::Word;

static TABLES: &[&[Row]] = &[
    integer::ROWS,
    float::ROWS,
    half::ROWS,
    convert::ROWS,
    matrix::ROWS,
    memory::ROWS,
    bulk::ROWS,
    control::ROWS,
    uniform::ROWS,
    texture::ROWS,
    surface::ROWS,
    graphics::ROWS,
    warpgroup::ROWS,
];

/// For each 12-bit code and value of bit 91, the row that an architecture knows.
type Index = Vec<[Option<&'static Row>; 2]>;

fn index(arch: Arch) -> &'static Index {
    static SM80: OnceLock<Index> = OnceLock::new();
    static SM89: OnceLock<Index> = OnceLock::new();
    static SM9X: OnceLock<Index> = OnceLock::new();
    let index = match (arch, arch.encoding()) {
        (Arch::Sm89, _) => &SM89,
        (_, Encoding::Sm8x) => &SM80,
        (_, Encoding::Sm9x) => &SM9X,
    };
    index.get_or_init(|| {
        let mut index = vec![[None; 2]; 1 << 12];
        for row in TABLES.iter().copied().flatten().filter(|row| row.knows(arch)) {
            for (code, bit91) in row.codes() {
                let entry = &mut index[usize::from(code)][usize::from(bit91)];
                assert!(entry.is_none(), "two rows claim {code:#05x} on {arch}");
                *entry = Some(row);
            }
        }
        index
    })
}

/// The row of a word's operation code.
pub(crate) fn find(arch: Arch, word: Word) -> Option<&'static Row> {
    index(arch)[usize::from(word.op12())][usize::from(word.bit(91))]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::opcode::Opcode;

    /// Building an index fails where two rows claim one code.
    #[test]
    fn every_operation_has_a_code_and_every_code_one_row() {
        let mut reached = HashSet::new();
        for arch in [Arch::Sm87, Arch::Sm89, Arch::Sm90] {
            let rows: Vec<&Row> = index(arch).iter().flatten().copied().flatten().collect();
            let named = rows.iter().filter(|row| row.name_only).count();
            let opcodes: HashSet<Opcode> = rows.iter().map(|row| row.opcode).collect();
            println!(
                "{arch}: {} operations, {} codes, {named} of them by name only",
                opcodes.len(),
                rows.len()
            );
            reached.extend(opcodes);
        }
        let unreachable: Vec<_> = Opcode::ALL.iter().filter(|opcode| !reached.contains(opcode)).collect();
        assert!(unreachable.is_empty(), "{unreachable:?}");
    }
}
