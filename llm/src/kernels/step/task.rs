//! The records that tell the step kernel what to do: one per phase, read from device memory.

use super::shape::{Grid, Shape};
use crate::kernels::{CacheType, even_shares};

/// Words of a record.
pub const WORDS: u32 = 100;
/// Segments of a matrix phase at most.
pub const MAX_SEGMENTS: usize = 3;

/// Kinds of phases.
pub(super) const EMBED: u32 = 0;
pub(super) const MATVEC: u32 = 1;
pub(super) const ATTENTION: u32 = 2;

/// The input is normalized: it is multiplied by weights, the products by the inverse of its root mean square.
pub(super) const NORM: u32 = 1;
/// The input is wanted as integers.
pub(super) const INTEGERS: u32 = 2;
/// The input is wanted as it is.
pub(super) const FLOATS: u32 = 4;
/// Every value of the input has a flag beside it that says when it is there.
pub(super) const FLAGGED: u32 = 8;
/// A later phase waits for all blocks to have ended this one.
pub(super) const ARRIVES: u32 = 16;
/// It waits for all blocks to have ended the phases before that others wait for.
pub(super) const WAITS: u32 = 32;

/// Keys and values are cached in q8_0.
pub(super) const QUANTIZED: u32 = 64;

/// Where each field is, in words.
pub(super) mod at {
    pub const KIND: i64 = 0;
    pub const FLAGS: i64 = 1;
    pub const X: i64 = 2;
    pub const WEIGHT: i64 = 4;
    pub const LEN: i64 = 6;
    pub const TILES: i64 = 7;
    pub const EPS: i64 = 8;
    pub const EPILOGUE: i64 = 9;
    pub const PARTS_LOG2: i64 = 10;
    pub const SEGMENTS: i64 = 11;
    pub const OUT: i64 = 12;
    pub const KEYS: i64 = 14;
    pub const VALUES: i64 = 16;
    pub const TURNS: i64 = 18;
    pub const Q_PAIRS: i64 = 20;
    pub const K_PAIRS: i64 = 21;
    pub const HEAD_DIM: i64 = 22;
    pub const CONTEXT: i64 = 23;
    pub const PARTIALS: i64 = 24;
    pub const COUNTERS: i64 = 26;
    pub const UNITS: i64 = 28;
    pub const GROUP: i64 = 29;
    pub const SUBGROUPS: i64 = 30;
    pub const LANES_LOG2: i64 = 31;
    pub const SCALE: i64 = 32;
    pub const MOST_SHARES: i64 = 33;
    pub const FINISH: i64 = 34;
    pub const INVERSE_LEN: i64 = 35;
    /// What the flags of the input and of the results are, less the first of the step.
    pub const INPUT_FLAG: i64 = 36;
    pub const OUTPUT_FLAG: i64 = 37;
    pub const HEADS_LOG2: i64 = 38;
    /// Where the scales of a cache in q8_0 are, in bytes from its start.
    pub const SCALES_AT: i64 = 39;
    /// The first segment, and the words of each.
    pub const SEGMENT: i64 = 40;
    pub const SEGMENT_WORDS: i64 = 20;
}

/// Where each field of a segment is, in words.
pub(super) mod segment {
    // Read together by `Step::enter`.
    pub const PAIRS: i64 = 0;
    pub const REST: i64 = 1;
    pub const ROWS: i64 = 2;
    pub const PART_TILES: i64 = 3;
    // Read together by `Step::load_tile`.
    pub const STEP: i64 = 4;
    pub const DELTA: i64 = 5;
    pub const LAST_ROW: i64 = 6;
    pub const UNITS: i64 = 7;
    pub const FACTOR: i64 = 8;
    pub const FIRST: i64 = 9;
    /// Whether some tiles are not whole.
    pub const RAGGED: i64 = 10;
    pub const FORMAT: i64 = 11;
    pub const PLANES: i64 = 12;
}

/// What becomes of the products of a matrix phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Results {
    /// Logits, of which the largest is sought.
    Logits,
    /// Added to what is there, beside flags.
    Add,
    /// `silu(first) · second` of each pair.
    Gate,
    /// Queries are rotated; keys are rotated and cached, values are cached. With a cache in q8_0 keys and values are stored behind
    /// the queries, where attention takes them from.
    Heads,
}

/// What the last block does when all phases of a step have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// Nothing: it is not the step's last phase.
    Nothing,
    /// Writes the most likely token at the next position and moves there.
    Choose,
    /// Moves to the next position.
    Advance,
}

/// One matrix, or one of several below each other, of a matrix phase.
#[derive(Clone, Debug)]
pub struct Segment {
    /// How it is stored.
    pub format: crate::kernels::Format,
    /// Addresses of its planes.
    pub planes: Vec<u64>,
    /// Rows of the matrix.
    pub rows: u32,
    /// Values in a row.
    pub cols: u32,
    /// Whether row `i` goes together with row `rows / 2 + i` instead of its neighbour.
    pub gate: bool,
    /// The first row's place among the rows of the phase; even.
    pub first_row: u32,
}

/// The input of a matrix phase.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    /// Address of the vector, `f32`.
    pub x: u64,
    /// The number that the flags beside its values have once it is there: each value is then followed by one. Without flags it
    /// is there when all blocks have ended the phases before.
    pub flag: Option<u32>,
    /// Address of the norm's weights and its epsilon, if it is normalized first: then it has flags.
    pub norm: Option<(u64, f32)>,
}

/// Rotation and cache of a layer.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Address of the step of each pair per position.
    pub turns: u64,
    /// Address of the layer's keys.
    pub keys: u64,
    /// Address of the layer's values.
    pub values: u64,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Values of a head.
    pub head_dim: u32,
    /// Positions there is room for.
    pub context: u32,
    /// What keys and values are cached as. In q8_0 all quants of one take less than 4 GiB.
    pub kv: CacheType,
}

/// Attention of a layer.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Address of the rotated queries.
    pub q: u64,
    /// Address of the result.
    pub out: u64,
    /// Address of the scratch memory, [`Attention::partial_words`] long.
    pub partials: u64,
    /// Address of one counter, zero, per [`Attention::units`].
    pub counters: u64,
    /// Cache and shape.
    pub heads: Heads,
}

/// Query heads that one block takes at most.
pub const HEADS_TOGETHER: u32 = 4;

impl Attention {
    /// Blocks that work on different heads.
    pub fn units(heads: &Heads) -> u32 {
        heads.kv_heads * (heads.heads / heads.kv_heads).div_ceil(HEADS_TOGETHER)
    }

    /// Into how many shares the positions are split at most.
    pub fn most_shares(heads: &Heads, blocks: u32) -> u32 {
        let units = Self::units(heads);
        even_shares(units, blocks, blocks / units)
    }

    /// Words of scratch memory.
    pub fn partial_words(heads: &Heads, blocks: u32) -> u32 {
        Self::units(heads) * Self::most_shares(heads, blocks) * HEADS_TOGETHER * (heads.head_dim + 4)
    }
}

/// Values that one tile of a row has.
pub(super) const TILE: u32 = 2048;

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    words: [u32; WORDS as usize],
    /// Bytes of shared memory that results and input take.
    shared: (u32, u32),
}

impl Task {
    fn new(kind: u32) -> Self {
        let mut task = Self { words: [0; WORDS as usize], shared: (0, 0) };
        task.set(at::KIND, kind);
        task
    }

    fn set(&mut self, at: i64, value: u32) {
        self.words[at as usize] = value;
    }

    fn set_address(&mut self, at: i64, address: u64) {
        self.set(at, address as u32);
        self.set(at + 1, (address >> 32) as u32);
    }

    /// The record as the kernel reads it.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Bytes of shared memory for results, and for the input or scratch.
    pub fn shared(&self) -> (u32, u32) {
        self.shared
    }

    /// The same, as the last of a step.
    pub fn ending(mut self, finish: Finish) -> Self {
        let code = match finish {
            Finish::Nothing => 0,
            Finish::Choose => 1,
            Finish::Advance => 2,
        };
        self.set(at::FINISH, code);
        self
    }

    /// The same, with results whose flags are `flag` once they are there.
    pub fn flagging(mut self, flag: u32) -> Self {
        self.set(at::OUTPUT_FLAG, flag);
        self
    }

    /// The current token's row of `embedding` goes to `out`, beside flags.
    pub fn embed(embedding: &Segment, out: u64) -> Self {
        let mut task = Self::new(EMBED);
        task.set_address(at::OUT, out);
        task.segment(0, embedding, Grid { shape: Shape::default(), blocks: 1 }, 0);
        task
    }

    /// The product of `segments`, all with rows of equal length, with `input`, on the blocks of `grid`.
    ///
    /// # Panics
    /// If there are no segments or more than [`MAX_SEGMENTS`], or if a normalized input has no flags.
    pub fn matvec(input: Input, segments: &[Segment], results: Results, out: u64, grid: Grid) -> Self {
        assert!((1..=MAX_SEGMENTS).contains(&segments.len()), "{} segments", segments.len());
        let Grid { shape, blocks } = grid;
        let mut task = Self::new(MATVEC);
        let len = segments[0].cols;
        let mut flags = match results {
            Results::Gate | Results::Heads => ARRIVES,
            Results::Logits | Results::Add => 0,
        };
        match input.flag {
            Some(flag) => {
                flags |= FLAGGED;
                task.set(at::INPUT_FLAG, flag);
            }
            None => flags |= WAITS,
        }
        if let Some((weight, eps)) = input.norm {
            assert!(input.flag.is_some(), "a normalized input has flags");
            flags |= NORM;
            task.set_address(at::WEIGHT, weight);
            task.set(at::EPS, eps.to_bits());
        }
        for segment in segments {
            flags |= if segment.format.is_quantized() { INTEGERS } else { FLOATS };
        }
        // Rows are cut so that most warps have one, if they are long enough to be cut.
        let pairs: u32 = segments.iter().map(Segment::pairs).sum();
        let tiles = len.div_ceil(TILE);
        let mut parts_log2 = 0;
        while (tiles / shape.span()) >> parts_log2 >= 2 && (pairs << (parts_log2 + 1)) <= blocks * shape.warps
        {
            parts_log2 += 1;
        }
        let tiles = tiles.next_multiple_of(shape.span() << parts_log2);
        task.set_address(at::X, input.x);
        task.set(at::FLAGS, flags);
        task.set(at::LEN, len);
        task.set(at::INVERSE_LEN, (1.0 / len as f32).to_bits());
        task.set(at::TILES, tiles);
        let code = match results {
            Results::Logits => 0,
            Results::Add => 1,
            Results::Gate => 2,
            Results::Heads => 3,
        };
        task.set(at::EPILOGUE, code);
        task.set(at::PARTS_LOG2, parts_log2);
        task.set(at::SEGMENTS, segments.len() as u32);
        task.set_address(at::OUT, out);
        for (i, segment) in segments.iter().enumerate() {
            task.segment(i, segment, grid, parts_log2);
        }
        let most: u32 = segments.iter().map(|s| s.pairs().div_ceil(blocks)).sum();
        let mut input_bytes = 0;
        if flags & INTEGERS != 0 {
            input_bytes += tiles * super::input::TILE_BYTES;
        }
        if flags & FLOATS != 0 {
            input_bytes += tiles * TILE * 4;
        }
        task.shared = ((most << parts_log2) * 8, input_bytes);
        task
    }

    /// The same for a phase that gives queries, keys and values.
    pub fn with_heads(mut self, heads: &Heads) -> Self {
        self.heads(heads);
        if heads.kv == CacheType::Q8_0 {
            self.set(at::EPILOGUE, 4);
        }
        self
    }

    fn heads(&mut self, h: &Heads) {
        self.set_address(at::KEYS, h.keys);
        self.set_address(at::VALUES, h.values);
        self.set_address(at::TURNS, h.turns);
        self.set(at::Q_PAIRS, h.heads * h.head_dim / 2);
        self.set(at::K_PAIRS, (h.heads + h.kv_heads) * h.head_dim / 2);
        self.set(at::HEAD_DIM, h.head_dim);
        self.set(at::CONTEXT, h.context);
        if h.kv == CacheType::Q8_0 {
            self.set(at::SCALES_AT, h.kv_heads * h.context * h.head_dim);
        }
    }

    /// Attention; its result is beside flags.
    pub fn attention(a: &Attention, grid: Grid) -> Self {
        let h = &a.heads;
        let mut task = Self::new(ATTENTION);
        task.heads(h);
        task.set_address(at::X, a.q);
        task.set_address(at::OUT, a.out);
        task.set_address(at::PARTIALS, a.partials);
        task.set_address(at::COUNTERS, a.counters);
        let group = h.heads / h.kv_heads;
        let quantized = if h.kv == CacheType::Q8_0 { QUANTIZED } else { 0 };
        task.set(at::FLAGS, WAITS | quantized);
        let together = group.min(HEADS_TOGETHER).next_power_of_two();
        task.set(at::HEADS_LOG2, together.trailing_zeros());
        task.set(at::UNITS, Attention::units(h));
        task.set(at::GROUP, group);
        task.set(at::SUBGROUPS, group.div_ceil(HEADS_TOGETHER));
        task.set(at::LANES_LOG2, h.head_dim.div_ceil(h.kv.piece()).next_power_of_two().trailing_zeros());
        task.set(at::SCALE, (std::f32::consts::LOG2_E / (h.head_dim as f32).sqrt()).to_bits());
        task.set(at::MOST_SHARES, Attention::most_shares(h, grid.blocks));
        task.shared = (0, grid.shape.warps * (h.head_dim + 4) * 4);
        task
    }

    fn segment(&mut self, index: usize, s: &Segment, Grid { shape, blocks }: Grid, parts_log2: u32) {
        let base = at::SEGMENT + index as i64 * at::SEGMENT_WORDS;
        let pairs = s.pairs();
        self.set(base + segment::FORMAT, s.format as u32);
        self.set(base + segment::PAIRS, pairs / blocks);
        self.set(base + segment::REST, pairs % blocks);
        self.set(base + segment::ROWS, s.rows);
        self.set(base + segment::LAST_ROW, s.rows.saturating_sub(1));
        self.set(base + segment::STEP, if s.gate { 1 } else { 2 });
        self.set(base + segment::DELTA, if s.gate { s.rows / 2 } else { 1 });
        self.set(base + segment::FIRST, s.first_row / 2);
        let units = s.cols / s.format.unit();
        self.set(base + segment::UNITS, units);
        let ragged = !s.cols.is_multiple_of((TILE * shape.span()) << parts_log2);
        self.set(base + segment::RAGGED, u32::from(ragged));
        // Every format's parts cover the same values.
        let part = s.cols.div_ceil(TILE).next_multiple_of(shape.span() << parts_log2) >> parts_log2;
        self.set(base + segment::PART_TILES, part * TILE / shape.values(s.format));
        self.set(base + segment::FACTOR, (1.0 / s.format.raised()).to_bits());
        for (i, plane) in (0..).zip(&s.planes) {
            self.set_address(base + segment::PLANES + 2 * i, *plane);
        }
    }
}

impl Segment {
    /// Pairs of rows that are computed together.
    fn pairs(&self) -> u32 {
        self.rows.div_ceil(2)
    }
}
