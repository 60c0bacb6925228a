//! Reports of the program's memory use, which a model of the GPU cannot see by itself.

/// Observes the program's accesses to memory that it shares with the GPU, to find those that nothing orders.
/// A real kernel is no witness, and a program need not report anything.
///
/// Addresses are those of mappings that [`Sys::mmap`](crate::Sys::mmap) of the same `Sys` made; others are
/// ignored.
pub trait Witness {
    /// The program has read `value` from the semaphore at `address`, and proceeds as if all the work that
    /// wrote it had ended.
    fn observed(&self, address: usize, value: u64);

    /// The program is about to read, or to write, `len` bytes.
    fn accesses(&self, address: usize, len: usize, writes: bool);

    /// The program is about to publish the entries before `put` in the ring of the channel that `token` names.
    fn submits(&self, token: u32, put: u32);
}
