//! A chunk of a prompt in device memory, in 32-bit words: the position of its first token, the number of its
//! tokens, the first element of its sequence's table of pages, a word of padding, then the tokens.

use ptxgen::{Global, Kernel, Pointer, Reg};

use crate::kernels::cache::PAGE;

/// Word that holds the number of tokens.
pub const COUNT_AT: i64 = 1;
/// Word that holds where the table of its sequence begins among the tables.
pub const TABLE_AT: i64 = 2;
/// Words before the tokens.
pub const TOKENS_AT: i64 = 4;

/// The page with `position` of a chunk's sequence.
pub(super) fn page(
    k: &Kernel,
    tables: Pointer<Global, u32>,
    prompt: Pointer<Global, u32>,
    position: Reg<u32>,
) -> Reg<u32> {
    let first = k.load(prompt.plus(TABLE_AT));
    k.load(k.at(tables, k.add(first, k.shr(position, PAGE.trailing_zeros()))))
}
