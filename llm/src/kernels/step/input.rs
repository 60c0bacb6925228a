//! The input of a matrix phase: normalized, in single precision. Every block makes its own copy in shared
//! memory.

use ptxgen::{Cache, Global, Pointer, Reg, Shared};

use crate::kernels::step::block::Step;
use crate::kernels::step::record::{FLAGGED, NORM, at};

/// Passes of all threads, four values each, that are loaded together from a plain input.
const TOGETHER: u32 = 4;
/// Passes that are loaded together from an input with flags.
const FLAGGED_TOGETHER: u32 = 2;

/// Norm weights, loaded before the input has arrived.
pub(super) struct Weights(Vec<[Reg<u32>; 4]>);

impl Step<'_> {
    /// Loads the norm weights of the first passes. Inputs that are normalized have flags.
    pub(super) fn norm_weights(&self) -> Weights {
        let k = self.k;
        let one = 1f32.to_bits();
        let registers = (0..FLAGGED_TOGETHER).map(|_| [(); 4].map(|()| k.var::<u32>(one))).collect();
        let weights = Weights(registers);
        k.if_(self.is_set(NORM), || {
            self.load_quads(&weights.0, self.address(at::WEIGHT), k.var(0u32));
        });
        weights
    }

    /// Loads the thread's values of some passes from pass `first` on; registers past the end keep their
    /// values.
    fn load_quads(&self, into: &[[Reg<u32>; 4]], from: Pointer<Global, f32>, first: Reg<u32>) {
        let k = self.k;
        let len = self.word(at::LEN);
        let threads = self.shape.threads();
        let quad = k.mad(first, threads, self.tid);
        let value = k.scale(quad, 4);
        for (i, registers) in (0u32..).zip(into) {
            let inside = k.lt(k.add(value.reg(), i * 4 * threads), len);
            let at = k.at(from, value).plus(i64::from(i * 4 * threads));
            k.load_words_where(Some(inside), at, registers, Cache::Default);
        }
    }

    /// Polls the thread's values of the phase's flagged input until all have arrived: a word and its flag
    /// each.
    fn load_flagged(&self, into: &[[Reg<u32>; 4]], first: Reg<u32>) {
        let k = self.k;
        let flag = self.flag(at::INPUT_FLAG);
        let threads = self.shape.threads();
        let quad = k.mad(first, threads, self.tid);
        let last = k.sub(k.shr(self.word(at::LEN), 2), 1);
        let places: Vec<_> = (0..into.len() as u32)
            .map(|i| {
                let quad = k.add(quad, i * threads);
                (k.le(quad, last), k.at_stride(self.address::<u32>(at::X), k.min(quad, last), 32))
            })
            .collect();
        self.poll(|| {
            // Distance of the oldest flag from the expected one.
            let age = k.var(0i32);
            for ((inside, from), into) in places.iter().zip(into) {
                let words = [k.load_relaxed::<4, _>(*from), k.load_relaxed::<4, _>(from.plus(4))].concat();
                for (pair, to) in words.chunks_exact(2).zip(into) {
                    k.set(*to, k.select(*inside, pair[0], 0u32));
                    k.set(age, k.min(age, k.bits::<u32, i32>(k.sub(pair[1], flag))));
                }
            }
            k.all(k.ge(age, 0))
        });
    }

    /// Loads the phase's input to shared memory, and the sum of its squares per warp. Ends with a barrier.
    ///
    /// `loaded` runs once, after the first part of the input has been loaded and before it is used.
    pub(super) fn prepare_input(&self, weights: &Weights, loaded: &dyn Fn()) {
        let k = self.k;
        let passes = self.word(at::TILES);
        let passes = match self.shape.passes_log2() {
            0 => passes,
            log2 => k.shl(passes, log2),
        };
        let squares = k.var(0f32);
        // Groups of passes, then single passes.
        let all = |together: u32, part: &dyn Fn(Reg<u32>, u32)| {
            let some = k.and(passes, !(together - 1));
            k.for_(0u32, some, together, |first: Reg<u32>| part(first, together));
            k.for_(some, passes, 1u32, |pass: Reg<u32>| part(pass, 1));
        };
        k.if_else(
            self.is_set(FLAGGED),
            || all(FLAGGED_TOGETHER, &|first, n| self.prepare(first, n, Some(weights), squares, loaded)),
            || all(TOGETHER, &|first, n| self.prepare(first, n, None, squares, loaded)),
        );
        let sum = k.warp_sum(squares);
        k.if_(k.eq(self.lane, 0), || k.store(k.at(self.squares, self.warp), sum));
        k.sync_threads();
    }

    /// Loads the values of `count` passes from pass `first` on to shared memory: of a flagged input, whose
    /// first norm weights are in `weights`, or of a plain one.
    fn prepare(
        &self,
        first: Reg<u32>,
        count: u32,
        weights: Option<&Weights>,
        squares: Reg<f32>,
        loaded: &dyn Fn(),
    ) {
        let k = self.k;
        let values: Vec<[Reg<u32>; 4]> = (0..count).map(|_| [(); 4].map(|()| k.var::<u32>(0u32))).collect();
        match weights {
            Some(weights) => {
                self.load_flagged(&values, first);
                k.if_(k.both(k.ne(first, 0), self.is_set(NORM)), || {
                    self.load_quads(&weights.0[..count as usize], self.address(at::WEIGHT), first);
                });
            }
            None => self.load_quads(&values, self.address(at::X), first),
        }
        k.if_(k.eq(first, 0), loaded);
        let float = |words: &[Reg<u32>; 4]| words.map(|w| k.bits::<u32, f32>(w));
        let product = |i: usize| {
            let values = float(&values[i]);
            let Some(weights) = weights else { return values };
            let weights = float(&weights.0[i]);
            values.iter().for_each(|v| k.mad_to(squares, *v, *v, squares));
            std::array::from_fn(|i| k.mul(values[i], weights[i]))
        };
        let products: Vec<[Reg<f32>; 4]> = (0..values.len()).map(product).collect();
        let passes = || (0u32..).zip(&products).map(|(i, values)| (k.add(first, i), *values));
        passes().for_each(|(pass, values)| self.store_floats(values, pass));
    }

    /// The factor of the products: the inverse of the input's root mean square if it is normalized, else 1.
    pub(super) fn input_scale(&self) -> Reg<f32> {
        let k = self.k;
        let parts = k.load_with(self.squares, self.shape.warps, Cache::Default);
        let total = parts.into_iter().reduce(|a, b| k.add(a, b)).unwrap_or_else(|| k.var(0f32));
        let float = |at: i64| k.bits::<u32, f32>(self.word(at));
        let scale = k.rsqrt(k.mad(total, float(at::INVERSE_LEN), float(at::EPS)));
        k.select(self.is_set(NORM), scale, 1f32)
    }

    /// The thread's four values of pass `pass` in single precision: of every eight neighbouring values of
    /// 1024 the first four come first.
    fn store_floats(&self, values: [Reg<f32>; 4], pass: Reg<u32>) {
        let k = self.k;
        let quad = k.mad(pass, self.shape.threads(), self.tid);
        let within = k.and(k.shr(quad, 1), 127);
        let place = k.mad(k.and(quad, 1), 512u32, k.mul(within, 4u32));
        let place = k.mad(k.shr(quad, 8), 1024u32, place);
        k.store_n(k.at(self.floats(), k.scale(k.shr(place, 2), 4)), &values);
    }

    /// The input in single precision.
    pub(super) fn floats(&self) -> Pointer<Shared, f32> {
        self.inputs.cast()
    }
}
