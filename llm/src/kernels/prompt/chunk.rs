//! A chunk of a prompt in device memory, in 32-bit words: the position of its first token, the number of its
//! tokens, two words of padding, then the tokens.

/// Word that holds the number of tokens.
pub const COUNT_AT: i64 = 1;
/// Words before the tokens.
pub const TOKENS_AT: i64 = 4;
