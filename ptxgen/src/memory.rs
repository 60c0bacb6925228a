//! Loads, stores and atomics whose width never exceeds the proven alignment.

use crate::builder::Kernel;
use crate::layout::Layout;
use crate::pointer::{Global, Pointer, Space};
use crate::reg::{Operand, Pred, Raw, Reg};
use crate::target::Version;
use crate::ty::{Class, Element, Int, Ty};

/// Cache policy of a load of global memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    /// As usual; coherent with earlier launches and with this thread's own writes.
    #[default]
    Default,
    /// Never written while the kernel runs (`.nc`).
    ReadOnly,
    /// Read-only and read once: stays out of L1.
    Stream,
}

impl Cache {
    const fn suffix(self) -> &'static str {
        match self {
            Cache::Default => "",
            Cache::ReadOnly => ".nc",
            Cache::Stream => ".nc.L1::no_allocate",
        }
    }
}

/// Atomic read-modify-write operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Atomic {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exchange,
}

/// The lanes that one access moves: how many and how wide.
fn lanes(width: u32, element: u32) -> (u32, u32) {
    let lane = if width <= element {
        width.min(8)
    } else if width / element <= if element == 8 { 2 } else { 4 } {
        element
    } else {
        4
    };
    (width / lane, lane)
}

fn class(bytes: u32) -> Class {
    match bytes {
        1 | 2 => Class::B16,
        4 => Class::B32,
        _ => Class::B64,
    }
}

fn list(registers: &[Raw]) -> String {
    let names: Vec<String> = registers.iter().map(Raw::to_string).collect();
    match names.as_slice() {
        [one] => one.clone(),
        _ => format!("{{{}}}", names.join(", ")),
    }
}

fn vector(count: usize) -> String {
    if count == 1 { String::new() } else { format!(".v{count}") }
}

/// A run of loaded bytes in a register: where it starts, how long it is.
#[derive(Clone, Copy)]
struct Piece {
    offset: u32,
    bytes: u32,
    reg: Raw,
}

impl Kernel {
    /// Loads one element.
    pub fn load<S: Space, E: Element>(&self, from: Pointer<S, E>) -> Reg<E::Value> {
        self.load_with(from, 1, Cache::Default)[0]
    }

    /// Loads `N` consecutive elements.
    pub fn load_n<const N: usize, S: Space, E: Element>(
        &self,
        from: Pointer<S, E>,
        cache: Cache,
    ) -> [Reg<E::Value>; N] {
        let all = self.load_with(from, N as u32, cache);
        std::array::from_fn(|i| all[i])
    }

    /// Loads `count` consecutive elements in the widest accesses that are proven safe.
    pub fn load_with<S: Space, E: Element>(
        &self,
        from: Pointer<S, E>,
        count: u32,
        cache: Cache,
    ) -> Vec<Reg<E::Value>> {
        let suffix = self.cache_suffix::<S>(cache);
        let mut pieces = Vec::new();
        for access in Layout::plan(from.facts(), E::SIZE, count).accesses() {
            let (n, lane) = lanes(access.width, E::SIZE);
            // Whole elements land in registers of their own type; parts and packs in untyped ones.
            let (class, ty) = if lane == E::SIZE {
                (E::Value::CLASS, E::MEMORY.to_owned())
            } else {
                (class(lane), format!("{}{}", if lane == 1 { "u" } else { "b" }, 8 * lane))
            };
            let regs: Vec<Raw> = (0..n).map(|_| self.raw_reg(class)).collect();
            let space = S::NAME;
            let place = from.text(i64::from(access.offset));
            self.emit(format!("ld.{space}{suffix}{}.{ty} {}, {place};", vector(regs.len()), list(&regs)));
            pieces.extend((0..).zip(&regs).map(|(i, &reg)| Piece {
                offset: access.offset + i * lane,
                bytes: lane,
                reg,
            }));
        }
        (0..count).map(|i| Reg::new(self.assemble::<E>(&pieces, i * E::SIZE).id)).collect()
    }

    /// The register of the element at byte `offset`, from the pieces that cover it.
    fn assemble<E: Element>(&self, pieces: &[Piece], offset: u32) -> Raw {
        let (start, end) = (offset, offset + E::SIZE);
        let mut cover: Vec<Piece> =
            pieces.iter().copied().filter(|p| p.offset < end && start < p.offset + p.bytes).collect();
        let first = cover[0];
        if first.bytes == E::SIZE {
            return first.reg;
        }
        if first.bytes > E::SIZE {
            return self.extract::<E>(first, offset - first.offset);
        }
        let joined = if cover.iter().all(|p| p.bytes == first.bytes) {
            while cover.len() > 1 {
                cover = cover
                    .chunks_exact(2)
                    .map(|pair| Piece {
                        bytes: 2 * pair[0].bytes,
                        reg: self.join(pair[0], pair[1]),
                        ..pair[0]
                    })
                    .collect();
            }
            cover[0].reg
        } else {
            self.shift_together(&cover, E::SIZE)
        };
        if joined.class == E::Value::CLASS {
            return joined;
        }
        let d = self.raw_reg(E::Value::CLASS);
        self.emit(format!("mov.b{} {d}, {joined};", 8 * E::SIZE));
        d
    }

    /// Pieces of unequal widths as one untyped register of `size` bytes.
    fn shift_together(&self, pieces: &[Piece], size: u32) -> Raw {
        let bits = 8 * size;
        let mut sum = None;
        for piece in pieces {
            let mut part = piece.reg;
            if part.class != class(size) {
                part = self.raw_reg(class(size));
                self.emit(format!("cvt.u{bits}.u{} {part}, {};", 8 * piece.bytes.max(2), piece.reg));
            }
            let shift = 8 * (piece.offset - pieces[0].offset);
            if shift > 0 {
                let shifted = self.raw_reg(class(size));
                self.emit(format!("shl.b{bits} {shifted}, {part}, {shift};"));
                part = shifted;
            }
            sum = Some(match sum {
                None => part,
                Some(before) => {
                    let d = self.raw_reg(class(size));
                    self.emit(format!("or.b{bits} {d}, {before}, {part};"));
                    d
                }
            });
        }
        sum.unwrap_or_else(|| self.raw_reg(class(size)))
    }

    /// Two neighbours of the same width as one untyped register.
    fn join(&self, lo: Piece, hi: Piece) -> Raw {
        let d = self.raw_reg(class(2 * lo.bytes));
        if lo.bytes == 1 {
            let shifted = self.raw_reg(Class::B16);
            self.emit(format!("shl.b16 {shifted}, {}, 8;", hi.reg));
            self.emit(format!("or.b16 {d}, {shifted}, {};", lo.reg));
        } else {
            self.emit(format!("mov.b{} {d}, {{{}, {}}};", 16 * lo.bytes, lo.reg, hi.reg));
        }
        d
    }

    /// A byte or a half out of a 32-bit word.
    fn extract<E: Element>(&self, word: Piece, byte: u32) -> Raw {
        let d = self.raw_reg(E::Value::CLASS);
        if E::SIZE == 1 {
            self.emit(format!("bfe.{} {d}, {}, {}, 8;", E::Value::NAME, word.reg, 8 * byte));
        } else {
            let other = self.raw_reg(Class::B16);
            let (lo, hi) = if byte == 0 { (d, other) } else { (other, d) };
            self.emit(format!("mov.b32 {{{lo}, {hi}}}, {};", word.reg));
        }
        d
    }

    /// Stores one element; of bytes the low 8 bits.
    pub fn store<S: Space, E: Element>(&self, to: Pointer<S, E>, value: impl Operand<E::Value>) {
        if to.alignment() >= E::SIZE {
            self.emit(format!(
                "st.{}.{} {}, {};",
                S::NAME,
                E::MEMORY.replace('s', "u"),
                to.text(0),
                value.text()
            ));
        } else {
            self.store_n(to, &[self.var(value)]);
        }
    }

    /// Stores consecutive elements in the widest accesses that are proven safe.
    pub fn store_n<S: Space, E: Element>(&self, to: Pointer<S, E>, values: &[Reg<E::Value>]) {
        let count = values.len() as u32;
        for access in Layout::plan(to.facts(), E::SIZE, count).accesses() {
            let (n, lane) = lanes(access.width, E::SIZE);
            let regs: Vec<Raw> =
                (0..n).map(|i| self.piece::<E>(values, access.offset + i * lane, lane)).collect();
            let ty = if lane == E::SIZE { E::MEMORY.replace('s', "u") } else { format!("b{}", 8 * lane) };
            let place = to.text(i64::from(access.offset));
            self.emit(format!("st.{}{}.{ty} {place}, {};", S::NAME, vector(regs.len()), list(&regs)));
        }
    }

    /// The register holding bytes `[offset, offset + bytes)` of the elements' memory image.
    fn piece<E: Element>(&self, values: &[Reg<E::Value>], offset: u32, bytes: u32) -> Raw {
        let value = values[(offset / E::SIZE) as usize].raw();
        if bytes == E::SIZE {
            return value;
        }
        if bytes < E::SIZE {
            let mut raw = value;
            if !matches!(raw.class, Class::B16 | Class::B32 | Class::B64) {
                raw = self.raw_reg(class(E::SIZE));
                self.emit(format!("mov.b{} {raw}, {value};", 8 * E::SIZE));
            }
            let from = offset % E::SIZE;
            if from != 0 {
                let shifted = self.raw_reg(class(E::SIZE));
                self.emit(format!("shr.u{} {shifted}, {raw}, {};", 8 * E::SIZE, 8 * from));
                raw = shifted;
            }
            if class(bytes) == raw.class {
                return raw;
            }
            let d = self.raw_reg(class(bytes));
            self.emit(format!("cvt.u{}.u{} {d}, {raw};", 8 * bytes.max(2), 8 * E::SIZE));
            return d;
        }
        // Several narrow elements in one word.
        let first = (offset / E::SIZE) as usize;
        let parts: Vec<Raw> = (0..(bytes / E::SIZE) as usize).map(|i| values[first + i].raw()).collect();
        if E::SIZE == 2 {
            let d = self.raw_reg(Class::B32);
            self.emit(format!("mov.b32 {d}, {{{}, {}}};", parts[0], parts[1]));
            return d;
        }
        let mut word = parts[0];
        for (i, part) in (0u32..).zip(&parts).skip(1) {
            let d = self.raw_reg(Class::B32);
            self.emit(format!("bfi.b32 {d}, {part}, {word}, {}, 8;", 8 * i));
            word = d;
        }
        word
    }

    /// Applies `op` to memory for all threads of the GPU at once and returns the value before.
    pub fn atomic<S: Space, E: Element<Value = E> + Ty>(
        &self,
        at: Pointer<S, E>,
        op: Atomic,
        value: impl Operand<E>,
    ) -> Reg<E> {
        let d = self.reg();
        let (op, ty) = match op {
            Atomic::Add => ("add", <E as Ty>::NAME),
            Atomic::Min => ("min", <E as Ty>::NAME),
            Atomic::Max => ("max", <E as Ty>::NAME),
            Atomic::And => ("and", if E::SIZE == 8 { "b64" } else { "b32" }),
            Atomic::Or => ("or", if E::SIZE == 8 { "b64" } else { "b32" }),
            Atomic::Xor => ("xor", if E::SIZE == 8 { "b64" } else { "b32" }),
            Atomic::Exchange => ("exch", if E::SIZE == 8 { "b64" } else { "b32" }),
        };
        self.emit(format!("atom.{}.{op}.{ty} {d}, {}, {};", S::NAME, at.text(0), value.text()));
        d
    }

    /// Stores `new` if memory holds `old`; returns the value before.
    pub fn compare_and_swap<S: Space, E: Element<Value = E> + Int>(
        &self,
        at: Pointer<S, E>,
        old: impl Operand<E>,
        new: impl Operand<E>,
    ) -> Reg<E> {
        let d = self.reg();
        self.emit(format!(
            "atom.{}.cas.b{} {d}, {}, {}, {};",
            S::NAME,
            8 * E::SIZE,
            at.text(0),
            old.text(),
            new.text()
        ));
        d
    }

    /// Loads a word that other blocks release; their earlier writes are then visible.
    pub fn load_acquire<S: Space>(&self, from: Pointer<S, u32>) -> Reg<u32> {
        let d = self.reg();
        self.emit(format!("ld.acquire.gpu.{}.u32 {d}, {};", S::NAME, from.text(0)));
        d
    }

    /// Stores a word after everything this thread wrote before.
    pub fn store_release<S: Space>(&self, to: Pointer<S, u32>, value: impl Operand<u32>) {
        self.emit(format!("st.release.gpu.{}.u32 {}, {};", S::NAME, to.text(0), value.text()));
    }

    /// Loads one, two or four words in one access where `guard` holds; elsewhere `into` keeps its value.
    ///
    /// # Panics
    /// If the alignment of one access is not proven: a mistake in the program that writes the kernel.
    pub fn load_words_where<S: Space, E: Element>(
        &self,
        guard: Option<Pred>,
        from: Pointer<S, E>,
        into: &[Reg<u32>],
        cache: Cache,
    ) {
        let bytes = 4 * into.len() as u32;
        assert!(
            matches!(bytes, 4 | 8 | 16) && from.alignment() >= bytes,
            "{} words from {from:?} are not one access",
            into.len()
        );
        let raw: Vec<Raw> = into.iter().map(|r| r.raw()).collect();
        self.guarded_load(guard, from, &format!("{}.b32", vector(raw.len())), &list(&raw), cache);
    }

    /// Loads 16 bits, zero-extended, where `guard` holds; elsewhere `into` keeps its value.
    ///
    /// # Panics
    /// If the pointer is not proven to be even.
    pub fn load_half_where<S: Space, E: Element>(
        &self,
        guard: Option<Pred>,
        from: Pointer<S, E>,
        into: Reg<u32>,
        cache: Cache,
    ) {
        assert!(from.alignment() >= 2, "{from:?} may be odd");
        self.guarded_load(guard, from, ".u16", &into.to_string(), cache);
    }

    /// Loads a byte, zero-extended, where `guard` holds; elsewhere `into` keeps its value.
    pub fn load_byte_where<S: Space, E: Element>(
        &self,
        guard: Option<Pred>,
        from: Pointer<S, E>,
        into: Reg<u32>,
        cache: Cache,
    ) {
        self.guarded_load(guard, from, ".u8", &into.to_string(), cache);
    }

    /// A load of whole words from global memory in one access.
    pub(crate) fn vector_load<E: Element>(
        &self,
        how: &str,
        into: &[Raw],
        from: Pointer<Global, E>,
        operand: &str,
    ) {
        self.emit(format!(
            "ld.global{how}{}.b32 {}, {}{operand};",
            vector(into.len()),
            list(into),
            from.text(0)
        ));
    }

    /// Returns the suffix of a load from `S` for `cache`; only global memory has caches to choose.
    pub(crate) fn cache_suffix<S: Space>(&self, cache: Cache) -> &'static str {
        match (S::NAME, cache) {
            ("global", Cache::Stream) => {
                // The first version with eviction priorities.
                self.require(Version::new(7, 4));
                cache.suffix()
            }
            ("global", _) => cache.suffix(),
            _ => "",
        }
    }

    fn guarded_load<S: Space, E: Element>(
        &self,
        guard: Option<Pred>,
        from: Pointer<S, E>,
        ty: &str,
        into: &str,
        cache: Cache,
    ) {
        let guard = guard.map(|p| format!("@{p} ")).unwrap_or_default();
        let suffix = self.cache_suffix::<S>(cache);
        self.emit(format!("{guard}ld.{}{suffix}{ty} {into}, {};", S::NAME, from.text(0)));
    }

    /// Loads `N` words in one access, each at least as new as the value seen elsewhere in the GPU. Nothing is
    /// ordered by it, and the words may be of different stores ([`Kernel::load_relaxed_b128`]).
    ///
    /// # Panics
    /// If the alignment of one access is not proven: a mistake in the program that writes the kernel.
    pub fn load_relaxed<const N: usize, S: Space>(&self, from: Pointer<S, u32>) -> [Reg<u32>; N] {
        assert!(matches!(N, 1 | 2 | 4) && from.alignment() >= 4 * N as u32, "{N} words from {from:?}");
        let into = [(); N].map(|()| self.reg::<u32>());
        let raw = into.map(|r| r.raw());
        self.emit(format!("ld.relaxed.gpu.{}{}.b32 {}, {};", S::NAME, vector(N), list(&raw), from.text(0)));
        into
    }

    /// Stores words in one access that the whole GPU sees. Nothing is ordered by it.
    ///
    /// # Panics
    /// As [`Kernel::load_relaxed`].
    pub fn store_relaxed<S: Space>(&self, to: Pointer<S, u32>, words: &[Reg<u32>]) {
        let n = words.len();
        assert!(matches!(n, 1 | 2 | 4) && to.alignment() >= 4 * n as u32, "{n} words to {to:?}");
        let raw: Vec<Raw> = words.iter().map(|r| r.raw()).collect();
        self.emit(format!("st.relaxed.gpu.{}{}.b32 {}, {};", S::NAME, vector(n), to.text(0), list(&raw)));
    }

    /// Loads 128 bits as one value: all are of the same [`Kernel::store_relaxed_b128`]. Nothing is ordered by
    /// it. Vectors of words give no such promise. Source: PTX ISA, "Vector Data-types" and "Packed and 128-bit
    /// Data-types" of the memory consistency model.
    ///
    /// # Panics
    /// If the address is not proven to be a multiple of 16 bytes: a mistake in the program that writes the
    /// kernel.
    pub fn load_relaxed_b128<E: Element>(&self, from: Pointer<Global, E>) -> [Reg<u32>; 4] {
        assert!(from.alignment() >= 16, "128 bits from {from:?}");
        self.require(Version::new(8, 3));
        let whole = self.raw_reg(Class::B128);
        self.emit(format!("ld.relaxed.gpu.global.b128 {whole}, {};", from.text(0)));
        let (low, high) = (self.reg::<u64>(), self.reg::<u64>());
        self.emit(format!("mov.b128 {{{low}, {high}}}, {whole};"));
        let words = [(); 4].map(|()| self.reg::<u32>());
        for (half, pair) in [low, high].into_iter().zip(words.chunks_exact(2)) {
            self.emit(format!("mov.b64 {{{}, {}}}, {half};", pair[0], pair[1]));
        }
        words
    }

    /// Stores 128 bits as one value that the whole GPU sees. Nothing is ordered by it.
    ///
    /// # Panics
    /// As [`Kernel::load_relaxed_b128`].
    pub fn store_relaxed_b128<E: Element>(&self, to: Pointer<Global, E>, words: [Reg<u32>; 4]) {
        assert!(to.alignment() >= 16, "128 bits to {to:?}");
        self.require(Version::new(8, 3));
        let halves = [0, 2].map(|i| {
            let half = self.reg::<u64>();
            self.emit(format!("mov.b64 {half}, {{{}, {}}};", words[i], words[i + 1]));
            half
        });
        let whole = self.raw_reg(Class::B128);
        self.emit(format!("mov.b128 {whole}, {{{}, {}}};", halves[0], halves[1]));
        self.emit(format!("st.relaxed.gpu.global.b128 {}, {whole};", to.text(0)));
    }
}
