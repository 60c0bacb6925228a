//! A chunk of a prompt in device memory, in 32-bit words: the position of its first token, the number of its
//! tokens, the first element of its sequence's table of pages, a word of padding, then the tokens.

/// Word that holds the number of tokens.
pub const COUNT_AT: i64 = 1;
/// Word that holds where the table of its sequence begins among the tables, if the cache has pages.
pub const TABLE_AT: i64 = 2;
/// Words before the tokens.
pub const TOKENS_AT: i64 = 4;
