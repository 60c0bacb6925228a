//! A launch in the making: a kernel of the repository, its arguments in the kernel's order, and how much two
//! devices may differ in what each buffer holds afterwards.

use half::f16;
use hcq::LaunchConfig;

use crate::conformance::case::{Arg, Case, Place};
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
    args: Vec<Arg>,
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
            args: Vec::new(),
            tolerances: Vec::new(),
        }
    }

    /// A buffer with these words.
    pub fn words(mut self, words: Vec<u32>) -> Self {
        self.args.push(Arg::Buffer(self.case.buffers.len(), 0));
        self.case.buffers.push(words);
        self.tolerances.push(vec![(0, Tolerance::Exact)]);
        self
    }

    /// A buffer that the kernel fills.
    pub fn room(self, words: usize) -> Self {
        self.words(vec![Self::UNTOUCHED; words])
    }

    /// A buffer of f32 evenly between −`scale` and `scale`.
    pub fn floats(mut self, count: usize, scale: f32) -> Self {
        let words = floats(&mut self.noise, count, scale);
        self.words(words)
    }

    /// A buffer of f16, likewise.
    pub fn halves(mut self, count: usize, scale: f32) -> Self {
        let words = halves(&mut self.noise, count, scale);
        self.words(words)
    }

    /// A buffer of random words.
    pub fn random(mut self, words: usize) -> Self {
        let words = (0..words).map(|_| self.noise.bits()).collect();
        self.words(words)
    }

    /// The last buffer may differ by this much: something in it is a result of the special-function unit.
    pub fn within(mut self, tolerance: Tolerance) -> Self {
        if let Some(last) = self.tolerances.last_mut() {
            *last = vec![(0, tolerance)];
        }
        self
    }

    /// From `word` on the last buffer may differ by this much.
    pub fn within_from(mut self, word: usize, tolerance: Tolerance) -> Self {
        if let Some(last) = self.tolerances.last_mut() {
            last.push((word, tolerance));
        }
        self
    }

    /// On SM 9.0, in place of its kernel: one of another module, with the same parameters.
    pub fn on_hopper(mut self, cubin: &'static [u8], kernel: String, config: LaunchConfig) -> Self {
        self.case.cubins[1] = cubin;
        self.case.program = format!("{} or {kernel}", self.case.kernel);
        self.case.hopper = Some((kernel, config));
        self
    }

    /// The last buffer holds these words afterwards, where they are known; nothing is expected of those before it.
    pub fn expected(mut self, words: Vec<Option<u32>>) -> Self {
        let mut expected = vec![Vec::new(); self.case.buffers.len()];
        if let Some(last) = expected.last_mut() {
            *last = words;
        }
        self.case.expected = Some(expected);
        self
    }

    /// Names the difference of this case from others of its kernel.
    pub fn called(mut self, what: &str) -> Self {
        self.case.program = format!("{}, {what}", self.case.kernel);
        self
    }

    fn arg(mut self, arg: Arg) -> Self {
        self.args.push(arg);
        self
    }

    /// A number.
    pub fn u32(self, value: u32) -> Self {
        self.arg(Arg::U32(value))
    }

    /// A number.
    pub fn f32(self, value: f32) -> Self {
        self.arg(Arg::F32(value))
    }

    /// The tensor core's sums are the architecture's own.
    pub fn on_tensor_cores(mut self) -> Self {
        self.case.by_architecture = true;
        self
    }

    /// The case.
    pub fn done(mut self) -> Case {
        let (tolerances, what) = (self.tolerances, self.case.program.clone());
        self.case.launches = vec![self.args];
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
