//! The record of a phase: its fields as the kernel reads them.

/// Words of a record: three per lane of a warp.
pub(super) const WORDS: u32 = 96;
/// Most segments of a matrix phase.
pub(super) const MAX_SEGMENTS: usize = 3;

/// Kinds of phases.
pub(super) const EMBED: u32 = 0;
pub(super) const MATVEC: u32 = 1;
pub(super) const ATTENTION: u32 = 2;

/// The uses of results.
pub(super) const LOGITS: u32 = 0;
pub(super) const ADD: u32 = 1;
pub(super) const GATE: u32 = 2;
pub(super) const HEADS: u32 = 3;
pub(super) const GELU: u32 = 4;

/// The input is normalized: it is multiplied by weights, the products by the inverse of its root mean square.
pub(super) const NORM: u32 = 1;
/// A segment's type has minima: the sums of the input are needed.
pub(super) const SUMS: u32 = 2;
/// Keys and values are cached in q8_0.
pub(super) const QUANTIZED: u32 = 4;
/// Segments are of quantized types, and of others.
pub(super) const BYTES: u32 = 8;
pub(super) const NUMBERS: u32 = 16;
/// Queries, keys and values have biases; in plain layers all products.
pub(super) const BIASED: u32 = 32;
/// Attention normalizes and rotates queries and keys.
pub(super) const NORMED_HEADS: u32 = 64;

/// Segments are of several types.
pub(super) const MIXED: u32 = u32::MAX;

/// Word of each field.
pub(super) mod at {
    pub const KIND: i64 = 0;
    pub const FLAGS: i64 = 1;
    /// Packets of the input, and their phase number relative to the step's first.
    pub const X: i64 = 2;
    pub const INPUT: i64 = 4;
    /// Number of packets of the input.
    pub const PACKETS: i64 = 5;
    /// Weights of the norm; of the embedding in plain layers the vectors of positions.
    pub const WEIGHT: i64 = 6;
    /// Columns of tiles, and of groups of one for every consumer.
    pub const COLUMNS: i64 = 8;
    pub const GROUPS: i64 = 9;
    /// Address of the results, and their phase number.
    pub const OUT: i64 = 10;
    pub const OUTPUT: i64 = 12;
    pub const EPILOGUE: i64 = 13;
    /// Packets that results are added to, and their phase number. Of queries, keys and values the biases; of
    /// attention the weights of the keys' norm, those of the queries' at `WEIGHT`.
    pub const RESIDUAL: i64 = 14;
    pub const RESIDUAL_INPUT: i64 = 16;
    pub const EPS: i64 = 17;
    pub const INVERSE_LEN: i64 = 18;
    /// 1 for the step's last phase.
    pub const IS_LAST: i64 = 19;
    /// Rotation of each pair of a head per position.
    pub const TURNS: i64 = 20;
    /// Rows of queries, and of queries and keys.
    pub const Q_ROWS: i64 = 22;
    pub const K_ROWS: i64 = 23;
    pub const HEAD_DIM: i64 = 24;
    /// Packets of a head's results.
    pub const OUT_QUADS: i64 = 25;
    pub const KEYS: i64 = 26;
    pub const VALUES: i64 = 28;
    pub const PARTIALS: i64 = 30;
    pub const COUNTERS: i64 = 32;
    /// Of matrix phases in plain layers, where attention has its partial sums and counters: biases of the
    /// products, and of the norm.
    pub const BIAS: i64 = PARTIALS;
    pub const NORM_BIAS: i64 = COUNTERS;
    pub const KV_HEADS: i64 = 34;
    pub const GROUP: i64 = 35;
    /// Query heads of a block, as a power of two.
    pub const TOGETHER_LOG2: i64 = 36;
    /// Lanes that hold a cached row, as a power of two.
    pub const LANES_LOG2: i64 = 37;
    pub const SCALE: i64 = 38;
    pub const MOST_SHARES: i64 = 39;
    /// Byte offset of the scales in a cache in q8_0.
    pub const SCALES_AT: i64 = 40;
    /// The type of all segments, or [`MIXED`].
    pub const FORMAT: i64 = 41;
    /// Byte offset of the input as numbers from the quantized one.
    pub const NUMBERS_AT: i64 = 43;
    /// The first segment, and the words of a segment.
    pub const SEGMENT: i64 = 44;
    pub const SEGMENT_WORDS: i64 = 16;
}

/// Word of each field of a segment.
pub(super) mod segment {
    /// Address of the tiles.
    pub const TILES: i64 = 0;
    // Read together by `Stream::share`: tiles of every block, blocks that have one more, and the first of
    // these.
    pub const EACH: i64 = 4;
    pub const REST: i64 = 5;
    pub const TURN: i64 = 6;
    /// Rows of the segment, and its first row among those of the phase.
    pub const ROWS: i64 = 8;
    pub const FIRST_ROW: i64 = 9;
    pub const FORMAT: i64 = 10;
    /// Bytes of a tile, and of all tiles of the same rows; of numbers 0, and of a row.
    pub const TILE_BYTES: i64 = 11;
    pub const ROW_BYTES: i64 = 12;
    pub const FACTOR: i64 = 13;
    /// Values of a row, for the embedding.
    pub const COLS: i64 = 14;
}
