//! Pseudo-random numbers that never change: programs and inputs are named by their seed alone.

/// The splitmix64 generator.
#[derive(Clone, Debug)]
pub struct Noise(u64);

impl Noise {
    /// A sequence of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// 32 random bits.
    pub fn bits(&mut self) -> u32 {
        (self.bits64() >> 32) as u32
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() as usize) % n
    }

    /// One of some values.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// A word that integer instructions find interesting: all bits random, few bits, edges.
    pub fn integer(&mut self) -> u32 {
        match self.below(8) {
            0 => self.pick(&[0, 1, 2, 31, 32, 33, 0xff, 0x7fff_ffff, 0x8000_0000, 0x8000_0001, u32::MAX]),
            1 => self.bits() & 0x3f,
            2 => 1 << (self.bits() & 31),
            3 => u32::MAX << (self.bits() & 31),
            _ => self.bits(),
        }
    }

    /// The bits of an f32: mostly of moderate size, with zeros, subnormals, infinities and NaNs among them.
    pub fn float(&mut self) -> u32 {
        const EDGES: [u32; 16] = [
            0,
            0x8000_0000,
            0x7f80_0000,
            0xff80_0000,
            0x7fff_ffff,
            0x7fc0_0001,
            0xff80_0001,
            0x3f80_0000,
            0xbf80_0000,
            0x3f00_0000,
            0x7f7f_ffff,
            0x0080_0000,
            0x007f_ffff,
            0x8000_0001,
            0x0000_0001,
            0x4b80_0001,
        ];
        match self.below(16) {
            0 => self.pick(&EDGES),
            1 => self.bits(),
            2 => self.bits() & 0x80ff_ffff,
            3 => f32::from((self.bits() >> 16) as i16).to_bits(),
            4..8 => (((self.bits() >> 16) as f32 - 32768.0) / 2.0).to_bits(),
            _ => self.bits() & 0x807f_ffff | (119 + self.bits() % 16) << 23,
        }
    }

    /// A word for conversions: an integer, an f32, the upper half of an f64 or two f16.
    pub fn mixed(&mut self) -> u32 {
        match self.below(5) {
            0 => self.integer(),
            1 => self.bits() & 0x800f_ffff | (1023 - 80 + self.bits() % 160) << 20,
            2 => self.bits() & 0x83ff_83ff | (self.bits() % 31) << 26 | (self.bits() % 31) << 10,
            _ => self.float(),
        }
    }
}
