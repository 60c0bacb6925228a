//! Raw access to the host memory that backs guest memory: the one place where pointers from a
//! [`Span`](crate::gpu::sm::launch::Span) are read and written.
//!
//! Every access is a relaxed atomic of the natural size, so that workers, other GPU engines and the
//! process that owns the buffer may touch the same bytes at the same time, as they can on the real machine.
//! On x86-64 and aarch64 these are plain loads and stores.
//!
//! # Safety
//! Common to all functions here: `p` must be valid for an access of the function's width, be aligned to that
//! width, and be accessed by atomics only while the program shares it with other threads.
//! [`Memory`](crate::gpu::sm::launch::Memory) promises the first and the last for the whole span, and the
//! interpreter checks the guest address, to which the host address is congruent modulo 16, for the second.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

macro_rules! accessors {
    ($($load:ident $store:ident $atomic:ident $ty:ty;)*) => { $(
        /// Loads one value. See the module for the safety rules.
        #[inline(always)]
        pub(crate) unsafe fn $load(p: *const u8) -> $ty {
            // SAFETY: the rules of this module.
            unsafe { $atomic::from_ptr(p.cast_mut().cast()) }.load(Relaxed)
        }

        /// Stores one value. See the module for the safety rules.
        #[inline(always)]
        pub(crate) unsafe fn $store(p: *mut u8, value: $ty) {
            // SAFETY: the rules of this module.
            unsafe { $atomic::from_ptr(p.cast()) }.store(value, Relaxed);
        }
    )* };
}

accessors! {
    load_u8 store_u8 AtomicU8 u8;
    load_u16 store_u16 AtomicU16 u16;
    load_u32 store_u32 AtomicU32 u32;
    load_u64 store_u64 AtomicU64 u64;
}

/// Copies `words.len() * 8` bytes from `p`, which is aligned to 8 bytes. See the module for the safety rules.
#[inline(always)]
pub(crate) unsafe fn load_block(p: *const u8, words: &mut [u64]) {
    for (i, w) in words.iter_mut().enumerate() {
        // SAFETY: the rules of this module, for each word.
        *w = unsafe { load_u64(p.add(8 * i)) };
    }
}

/// Loads the `W` bytes of one lane, at least 4, as words. Eight bytes that are aligned are loaded at once, as
/// by the machine: a value and a flag beside it arrive together.
///
/// # Safety
/// As for this module, for `W` bytes.
#[inline(always)]
pub(crate) unsafe fn load_words<const W: usize>(p: *const u8) -> [u32; 4] {
    let mut words = [0; 4];
    if W == 4 {
        // SAFETY: the caller's.
        words[0] = unsafe { load_u32(p) };
    }
    for pair in 0..W / 8 {
        // SAFETY: the caller's.
        let both = unsafe { load_u64(p.add(8 * pair)) };
        words[2 * pair] = both as u32;
        words[2 * pair + 1] = (both >> 32) as u32;
    }
    words
}

/// Stores the `W` bytes of one lane, at least 4, as [`load_words`] loads them.
///
/// # Safety
/// As for this module, for `W` bytes.
#[inline(always)]
pub(crate) unsafe fn store_words<const W: usize>(p: *mut u8, words: [u32; 4]) {
    if W == 4 {
        // SAFETY: the caller's.
        unsafe { store_u32(p, words[0]) };
    }
    for pair in 0..W / 8 {
        let both = u64::from(words[2 * pair]) | u64::from(words[2 * pair + 1]) << 32;
        // SAFETY: the caller's.
        unsafe { store_u64(p.add(8 * pair), both) };
    }
}

/// Whether [`load_16`] and [`store_16`] access vectors. Where it is aligned to 16 bytes such an access is a
/// single one on processors with AVX: "Intel 64 and IA-32 Architectures Software Developer's Manual", volume
/// 3, guaranteed atomic operations; "AMD64 Architecture Programmer's Manual", volume 2, access atomicity.
pub(crate) const HAS_VECTOR_ACCESSES: bool = cfg!(all(target_arch = "x86_64", not(miri)));

/// Loads 16 bytes, at any alignment, as an x86-64 processor with AVX does: each aligned group of eight that
/// they hold at once. In assembly, since a vector load is no atomic access of the language. Elsewhere two words,
/// at addresses aligned to 8 bytes.
///
/// # Safety
/// As for this module, but for the alignment where there are vector loads; there the processor has AVX.
#[inline(always)]
pub(crate) unsafe fn load_16(p: *const u8) -> [u32; 4] {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let x: std::arch::x86_64::__m128i;
        // SAFETY: reads the 16 bytes that the caller vouches for, and writes nothing but its result; the types
        // have the same size and no invalid values.
        unsafe {
            std::arch::asm!(
                "vmovdqu {x}, xmmword ptr [{p}]",
                x = out(xmm_reg) x,
                p = in(reg) p,
                options(nostack, preserves_flags, readonly)
            );
            std::mem::transmute(x)
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the caller's.
    unsafe {
        load_words::<16>(p)
    }
}

/// Stores 16 bytes as [`load_16`] loads them.
///
/// # Safety
/// As for [`load_16`], and the bytes are writable.
#[inline(always)]
pub(crate) unsafe fn store_16(p: *mut u8, words: [u32; 4]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: writes the 16 bytes that the caller vouches for; the types have the same size and no invalid
    // values.
    unsafe {
        let x: std::arch::x86_64::__m128i = std::mem::transmute(words);
        std::arch::asm!(
            "vmovdqu xmmword ptr [{p}], {x}",
            x = in(xmm_reg) x,
            p = in(reg) p,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the caller's.
    unsafe {
        store_words::<16>(p, words);
    }
}

/// The word as an atomic. See the module for the safety rules.
#[inline(always)]
pub(crate) unsafe fn atomic_u32<'a>(p: *mut u8) -> &'a AtomicU32 {
    // SAFETY: the rules of this module.
    unsafe { AtomicU32::from_ptr(p.cast()) }
}

/// The double word as an atomic. See the module for the safety rules.
#[inline(always)]
pub(crate) unsafe fn atomic_u64<'a>(p: *mut u8) -> &'a AtomicU64 {
    // SAFETY: the rules of this module.
    unsafe { AtomicU64::from_ptr(p.cast()) }
}
