//! Units of the types with a codebook, in registers: integers, scales, and the codebook where they are looked up.
//!
//! A word of the codebook holds four values in bytes, or the codes of eight in nibbles: a permutation of the
//! bytes of two words makes values of four codes, and bit 2 of a nibble chooses the word, of negative values. Bits
//! of signs lie where one shift moves those of an entry to their places; `coded_tiles` packs them so.

use ptxgen::{Cache, Global, Kernel, Pointer, Reg, Shared};

use crate::codebook::{Table, table};
use crate::kernels::format::{Format, Packed};

/// The lowest bit of each byte.
const BYTES: u32 = 0x0101_0101;
/// Of the four octets of a unit of IQ2_XXS and IQ2_XS the signs of seven values; the upper bits hold something else.
const SEVEN_OF_OCTETS: u32 = 0x0fff_ffff;
/// The same of IQ3_XXS.
const SEVEN_OF_QUADS: u32 = 0x55ff_ffff;

impl Format {
    fn table(self) -> Table {
        let table = table(self.ty()).unwrap_or_else(|| panic!("{self:?} has no codebook"));
        match self {
            // Integers are odd: the lowest bit is set after the sign, by which ~(q - 1) is -q.
            Format::Iq3S => Table { words: table.words.iter().map(|word| word - BYTES).collect(), ..table },
            _ => table,
        }
    }

    /// The codebook that the module is loaded with, and its number of words.
    fn module_book(self, k: &Kernel) -> (Pointer<Global, u32>, u32) {
        let words = self.table().words;
        (k.table(&format!("codebook_{}", self.suffix()), &words), words.len() as u32)
    }

    /// Copies the codebook to shared memory, with thread `tid` of `threads`; `None` for a type without one. The block
    /// has it after its next barrier.
    pub(crate) fn shared_book(self, k: &Kernel, tid: Reg<u32>, threads: u32) -> Option<Pointer<Shared, u32>> {
        self.has_codebook().then(|| {
            let (from, len) = self.module_book(k);
            let to = k.shared::<u32>(len);
            k.for_(tid, len / 4, threads, |piece: Reg<u32>| {
                let at = k.scale(piece, 4);
                k.store_n(k.at(to, at), &k.load_n::<4, _, _>(k.at(from, at), Cache::ReadOnly));
            });
            to
        })
    }

    /// The words of unit `t + 4s` of row `g + 8h`, as [`Format::fetch`] loads them, of what [`Format::load_lane`]
    /// loaded.
    pub(crate) fn lane_words(self, k: &Kernel, raw: &[Reg<u32>], h: usize, s: usize) -> Vec<Reg<u32>> {
        let (mut words, mut first) = (Vec::new(), 0);
        for section in self.sections() {
            let bytes = section.bytes as usize;
            let own = &raw[first..];
            match (section.has_units(), bytes) {
                (true, 1) => words.push(byte(k, own[0], (2 * h + s) as u32)),
                (true, 2) => words.push(k.prmt(own[h], 0u32, [0x4410u32, 0x4432][s])),
                (true, _) => words.extend(&own[bytes / 4 * (2 * h + s)..][..bytes / 4]),
                (false, _) => words.extend(&own[bytes.div_ceil(4) * h..][..bytes.div_ceil(4)]),
            }
            first += section.lane_pieces().iter().map(|(_, bytes)| bytes.div_ceil(4) as usize).sum::<usize>();
        }
        words
    }

    /// The integers of eight values of a unit, four per word, times [`Format::raised`].
    pub(crate) fn coded(self, k: &Kernel, packed: &Packed, octet: u32) -> [Reg<u32>; 2] {
        let r = &packed.words;
        let entry = |index: Reg<u32>| match packed.book {
            Some(book) => k.load(k.at(book, index)),
            None => k.load_with(k.at(self.module_book(k).0, index), 1, Cache::ReadOnly)[0],
        };
        match self {
            Format::Iq3Xxs | Format::Iq3S => [0, 1].map(|half| {
                let quad = 2 * octet + half;
                let low = byte(k, r[quad as usize / 4], quad % 4);
                if self == Format::Iq3S {
                    let value = entry(k.mask_or(shifted(k, r[3], quad, 8), 0x100u32, low));
                    // (value ^ signs) | 1
                    return k.lop3(value, signs_of_bytes(k, r[2], quad), BYTES, 0xbe);
                }
                let negative = signs_of_bytes(k, eight_of_quads(k, r[2]), quad);
                k.add(k.xor(entry(low), negative), k.and(negative, BYTES))
            }),
            _ => {
                let low = byte(k, r[0], octet);
                let high =
                    |word: Reg<u32>, from: u32, mask: u32| k.mask_or(shifted(k, word, from, 8), mask, low);
                let (index, signs) = match self {
                    Format::Iq2Xxs => (low, eight_of_octets(k, r[1])),
                    Format::Iq2Xs => (high(r[1], 28 + octet, 0x100), eight_of_octets(k, r[1])),
                    Format::Iq2S => (high(r[2], 2 * octet, 0x300), r[1]),
                    _ => {
                        let down = k.bfe(k.bits::<u32, i32>(r[1]), 4 * octet + 3, 1u32);
                        (high(r[1], 4 * octet, 0x700), k.bits::<i32, u32>(down))
                    }
                };
                let signs = if self == Format::Iq1M { signs } else { shifted(k, signs, octet, 2) };
                // entry ^ (signs & mask)
                let codes = k.lop3(entry(index), signs, 0x4444_4444u32, 0x78);
                let [a, b] = self.table().levels.unwrap_or_default();
                let b = k.var(b);
                [codes, k.shr(codes, 16)].map(|codes| k.prmt(a, b, codes))
            }
        }
    }

    /// The scales of the halves of a unit, odd numbers.
    pub(crate) fn coded_scales(self, k: &Kernel, packed: &Packed) -> [Reg<u32>; 2] {
        let nibbles = self.coded_nibbles(k, packed);
        [0u32, 4].map(|at| k.mad(k.bfe(nibbles, at, 4u32), 2u32, 1u32))
    }

    /// The same less one, halved: two nibbles.
    pub(crate) fn coded_nibbles(self, k: &Kernel, packed: &Packed) -> Reg<u32> {
        let r = &packed.words;
        let twice = |nibble: Reg<u32>| k.mul(nibble, 0x11u32);
        match self {
            Format::Iq2Xxs => twice(k.shr(r[1], 28)),
            Format::Iq2Xs => r[2],
            Format::Iq2S => k.shr(r[2], 8),
            Format::Iq3Xxs => {
                // Every second bit from bit 25 on.
                let bits = k.and(k.shr(r[2], 25), 0x55u32);
                let pairs = k.and(k.or(bits, k.shr(bits, 1)), 0x33u32);
                twice(k.and(k.or(pairs, k.shr(pairs, 2)), 0xfu32))
            }
            Format::Iq3S => twice(k.and(k.shr(r[4], k.shl(k.and(packed.unit, 7), 2)), 0xfu32)),
            _ => {
                let upper = k.ne(k.and(packed.unit, 4), 0);
                let word = k.select(upper, r[3], r[2]);
                let six = k.shr(word, k.mul(k.and(packed.unit, 3), 6u32));
                k.mask_or(k.shl(six, 1), 0x70u32, k.and(six, 7))
            }
        }
    }

    /// The scale of a unit's block, f16 in the lower half.
    pub(crate) fn coded_super(self, k: &Kernel, packed: &Packed) -> Reg<u32> {
        match (self, &packed.words[..]) {
            // The upper bytes of two words.
            (Format::Iq1M, [.., a, b]) => k.prmt(*a, *b, 0x73u32),
            (_, words) => words[words.len() - 1],
        }
    }
}

/// Byte `number` of `word`.
fn byte(k: &Kernel, word: Reg<u32>, number: u32) -> Reg<u32> {
    k.prmt(word, 0u32, 0x4440 + number)
}

/// The signs of four octets of which seven are stored: the number of negative ones is even.
fn eight_of_octets(k: &Kernel, word: Reg<u32>) -> Reg<u32> {
    let seven = k.and(word, SEVEN_OF_OCTETS);
    let parity = [16, 8, 4].into_iter().fold(seven, |bits, by| k.xor(bits, k.shr(bits, by)));
    k.or(seven, k.shl(parity, 28))
}

/// The same of four pairs of quads.
fn eight_of_quads(k: &Kernel, word: Reg<u32>) -> Reg<u32> {
    let seven = k.and(word, SEVEN_OF_QUADS);
    let parity = [16, 8, 1].into_iter().fold(seven, |bits, by| k.xor(bits, k.shr(bits, by)));
    k.mask_or(k.shl(parity, 25), !SEVEN_OF_QUADS, seven)
}

/// The sign of each value of quad `quad`, in all bits of its byte.
fn signs_of_bytes(k: &Kernel, word: Reg<u32>, quad: u32) -> Reg<u32> {
    k.prmt(shifted(k, word, quad, 7), 0u32, 0xba98u32)
}

/// `word` with bit `from` moved to bit `to`.
pub(crate) fn shifted(k: &Kernel, word: Reg<u32>, from: u32, to: u32) -> Reg<u32> {
    match from.cmp(&to) {
        std::cmp::Ordering::Less => k.shl(word, to - from),
        std::cmp::Ordering::Equal => word,
        std::cmp::Ordering::Greater => k.shr(word, from - to),
    }
}
