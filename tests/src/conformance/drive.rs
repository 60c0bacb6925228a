//! A launch in the making: a kernel of the repository, the buffers of its arguments, and how much two devices may
//! differ in what each buffer holds afterwards.

use half::f16;
use hcq::LaunchConfig;
use ptxgen::Params;

use crate::conformance::case::{BufferNumber, Case, Place};
use crate::conformance::noise::Noise;
use crate::conformance::tolerance::Tolerance;

/// Values in a vector of the model, and in a row of its matrices.
pub const COLS: usize = 768;

/// The uncertainty of a few functions of the special-function unit in a row.
pub const MILLIONTH: Tolerance = Tolerance::Single { ulps: 16, absolute: 1e-6 };

/// The same of a result in f16: it may become the next one, and near zero, where f16 are closer together, be as far
/// off as an f32.
pub const NEXT: Tolerance = Tolerance::Halves { ulps: 1, absolute: 2e-6 };

/// The uncertainty of sums of many products as a result in f16.
pub const ROUNDED: Tolerance = Tolerance::Halves { ulps: 2, absolute: 2e-3 };

/// A launch in the making.
#[derive(Debug)]
pub struct Drive {
    /// Source of its random inputs.
    pub noise: Noise,
    case: Case,
    /// Of the next buffer, as of each.
    next: Vec<(usize, Tolerance)>,
    /// Of each buffer: from which word on which tolerance holds, in order.
    tolerances: Vec<Vec<(usize, Tolerance)>>,
}

impl Drive {
    /// The content of outputs before.
    pub const UNTOUCHED: u32 = 0xdead_beef;

    /// A kernel of a module.
    pub fn new(family: &'static str, cubins: [&'static [u8]; 2], kernel: &str, config: LaunchConfig) -> Self {
        let seed = kernel.bytes().fold(7, |seed: u64, b| seed.wrapping_mul(131).wrapping_add(b.into()));
        Self {
            noise: Noise::new(seed),
            case: Case {
                family,
                program: kernel.to_owned(),
                seed,
                cubins,
                kernel: kernel.to_owned(),
                config,
                launches: Vec::new(),
                buffers: Vec::new(),
                place: Box::new(|_, _| None),
                ..Case::blank()
            },
            next: Vec::new(),
            tolerances: Vec::new(),
        }
    }

    /// A buffer with these words.
    pub fn words(&mut self, words: Vec<u32>) -> BufferNumber {
        self.case.buffers.push(words);
        let mut tolerances = vec![(0, Tolerance::Exact)];
        tolerances.append(&mut self.next);
        self.tolerances.push(tolerances);
        BufferNumber(self.case.buffers.len() - 1)
    }

    /// A buffer that the kernel fills.
    pub fn room(&mut self, words: usize) -> BufferNumber {
        self.words(vec![Self::UNTOUCHED; words])
    }

    /// A buffer of f32 evenly between −`scale` and `scale`.
    pub fn floats(&mut self, count: usize, scale: f32) -> BufferNumber {
        let words = floats(&mut self.noise, count, scale);
        self.words(words)
    }

    /// A buffer of f16, likewise.
    pub fn halves(&mut self, count: usize, scale: f32) -> BufferNumber {
        let words = halves(&mut self.noise, count, scale);
        self.words(words)
    }

    /// A buffer of random words.
    pub fn random(&mut self, words: usize) -> BufferNumber {
        let words = (0..words).map(|_| self.noise.bits()).collect();
        self.words(words)
    }

    /// The next buffer may differ by this much: something in it is a result of the special-function unit.
    pub fn within(&mut self, tolerance: Tolerance) -> &mut Self {
        self.within_from(0, tolerance)
    }

    /// From `word` on the next buffer may differ by this much.
    pub fn within_from(&mut self, word: usize, tolerance: Tolerance) -> &mut Self {
        self.next.push((word, tolerance));
        self
    }

    /// On SM 9.0, in place of its kernel: one of another module, with the same parameters.
    pub fn on_hopper(mut self, cubin: &'static [u8], kernel: String, config: LaunchConfig) -> Self {
        self.case.cubins[1] = cubin;
        self.case.program = format!("{} or {kernel}", self.case.kernel);
        self.case.hopper = Some((kernel, config));
        self
    }

    /// The last buffer holds these words afterwards, where they are known; nothing is said of those before it.
    pub fn expected(&mut self, words: Vec<Option<u32>>) {
        let mut expected = vec![Vec::new(); self.case.buffers.len()];
        if let Some(last) = expected.last_mut() {
            *last = words;
        }
        self.case.expected = Some(expected);
    }

    /// Names the difference of this case from others of its kernel.
    pub fn called(mut self, what: &str) -> Self {
        self.case.program = format!("{}, {what}", self.case.kernel);
        self
    }

    /// The tensor core's sums are the architecture's own.
    pub fn on_tensor_cores(mut self) -> Self {
        self.case.by_architecture = true;
        self
    }

    /// The case, with the arguments that `params` makes of buffers and numbers.
    pub fn done<P: Params<Address = BufferNumber>>(mut self, params: impl FnOnce(&mut Self) -> P) -> Case {
        self.case.launches = vec![params(&mut self).args()];
        let (tolerances, what) = (self.tolerances, self.case.program.clone());
        self.case.place = Box::new(move |buffer, word| {
            let (_, tolerance) = *tolerances[buffer].iter().rfind(|(first, _)| *first <= word)?;
            Some(Place { what: what.clone(), tolerance })
        });
        self.case
    }
}

/// Words of f32 evenly between −`scale` and `scale`.
pub fn floats(noise: &mut Noise, count: usize, scale: f32) -> Vec<u32> {
    (0..count).map(|_| (scale * ((noise.bits() >> 8) as f32 / 8_388_608.0 - 1.0)).to_bits()).collect()
}

/// Pairs of f16, likewise.
pub fn halves(noise: &mut Noise, count: usize, scale: f32) -> Vec<u32> {
    let half = |w: u32| u32::from(f16::from_f32(f32::from_bits(w)).to_bits());
    let words = floats(noise, count, scale);
    words.chunks(2).map(|p| half(p[0]) | p.get(1).map_or(0, |w| half(*w) << 16)).collect()
}
