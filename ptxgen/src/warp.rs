//! Operations across the lanes of a warp and the threads of a block.
//!
//! All `.sync` forms here name the whole warp: every lane must reach them.

use crate::builder::Kernel;
use crate::reg::{Operand, Pred, Reg};
use crate::target::{Target, Version};
use crate::ty::{Class, Number, Ordered, Ty, Word};

/// Source lane of a shuffle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shuffle {
    /// The lane whose number differs in these bits.
    Xor(u32),
    /// This many lanes further; lanes past the end keep their own.
    Down(u32),
    /// This many lanes back; lanes before the start keep their own.
    Up(u32),
}

/// Reduction of one word of each lane in a warp (`redux.sync`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Reduce {
    Add,
    Min,
    Max,
}

impl Kernel {
    /// Another lane's value. `T` must be 32 bits wide.
    pub fn shuffle<T: Ty>(&self, value: Reg<T>, from: Shuffle) -> Reg<T> {
        let (mode, lanes, clamp) = match from {
            Shuffle::Xor(bits) => ("bfly", bits, 31),
            Shuffle::Down(lanes) => ("down", lanes, 31),
            Shuffle::Up(lanes) => ("up", lanes, 0),
        };
        self.shuffle_text(value, mode, &lanes.to_string(), clamp)
    }

    /// The value of lane `lane` modulo 32. `T` must be 32 bits wide.
    pub fn broadcast<T: Ty>(&self, value: Reg<T>, lane: impl Operand<u32>) -> Reg<T> {
        self.shuffle_text(value, "idx", &lane.text(), 31)
    }

    fn shuffle_text<T: Ty>(&self, value: Reg<T>, mode: &str, lane: &str, clamp: u32) -> Reg<T> {
        assert!(T::BYTES == 4, "{} is not 32 bits wide", T::NAME);
        let d = self.reg();
        if T::CLASS == Class::B32 {
            self.emit(format!("shfl.sync.{mode}.b32 {d}, {value}, {lane}, {clamp}, 0xffffffff;"));
        } else {
            let (from, to) = (self.bits::<T, u32>(value), self.reg::<u32>());
            self.emit(format!("shfl.sync.{mode}.b32 {to}, {from}, {lane}, {clamp}, 0xffffffff;"));
            self.emit(format!("mov.b32 {d}, {to};"));
        }
        d
    }

    /// The sum over the warp, in every lane; always added in the same order.
    pub fn warp_sum<T: Number>(&self, value: Reg<T>) -> Reg<T> {
        self.butterfly(value, |a, b| self.add(a, b))
    }

    /// The largest of the warp, in every lane.
    pub fn warp_max<T: Ordered>(&self, value: Reg<T>) -> Reg<T> {
        self.butterfly(value, |a, b| self.max(a, b))
    }

    fn butterfly<T: Ty>(&self, value: Reg<T>, combine: impl Fn(Reg<T>, Reg<T>) -> Reg<T>) -> Reg<T> {
        [16, 8, 4, 2, 1].into_iter().fold(value, |v, bits| combine(v, self.shuffle(v, Shuffle::Xor(bits))))
    }

    /// One instruction's reduction of a word over the warp.
    pub fn reduce<T: Word>(&self, value: Reg<T>, how: Reduce) -> Reg<T> {
        self.require(Version::new(7, 0));
        let how = match how {
            Reduce::Add => "add",
            Reduce::Min => "min",
            Reduce::Max => "max",
        };
        let d = self.reg();
        self.emit(format!("redux.sync.{how}.{} {d}, {value}, 0xffffffff;", T::NAME));
        d
    }

    /// One bit per lane: where `p` holds.
    pub fn ballot(&self, p: Pred) -> Reg<u32> {
        let d = self.reg();
        self.emit(format!("vote.sync.ballot.b32 {d}, {p}, 0xffffffff;"));
        d
    }

    /// Whether `p` holds in any lane.
    pub fn any(&self, p: Pred) -> Pred {
        let d = self.reg();
        self.emit(format!("vote.sync.any.pred {d}, {p}, 0xffffffff;"));
        d
    }

    /// Whether `p` holds in all lanes.
    pub fn all(&self, p: Pred) -> Pred {
        let d = self.reg();
        self.emit(format!("vote.sync.all.pred {d}, {p}, 0xffffffff;"));
        d
    }

    /// Waits until all threads of the block are here; their shared-memory writes are then visible.
    pub fn sync_threads(&self) {
        self.emit("bar.sync 0;".to_owned());
    }

    /// Waits at barrier `id`, 0 to 15, until `threads` threads have come to it, here or by
    /// [`Kernel::arrive_named`]. Their earlier writes to memory are then visible. `threads` is a multiple of
    /// 32; all lanes of a warp come together.
    pub fn sync_named(&self, id: impl Operand<u32>, threads: impl Operand<u32>) {
        self.emit(format!("bar.sync {}, {};", id.text(), threads.text()));
    }

    /// Comes to barrier `id` without waiting there; see [`Kernel::sync_named`]. Each thread may come once only
    /// before the barrier is complete.
    pub fn arrive_named(&self, id: impl Operand<u32>, threads: impl Operand<u32>) {
        self.emit(format!("bar.arrive {}, {};", id.text(), threads.text()));
    }

    /// Holds in one lane of the warp, always the same for the same lanes. From [`Target::Sm90`] on.
    pub fn elect(&self) -> Pred {
        self.require_target("elect.sync", Target::Sm90, Version::new(8, 0));
        let d = self.reg();
        self.emit(format!("elect.sync _|{d}, 0xffffffff;"));
        d
    }

    /// Waits until the launches that this one depends on are complete and their writes visible. From
    /// [`Target::Sm90`] on.
    pub fn wait_prerequisites(&self) {
        self.require_target("griddepcontrol", Target::Sm90, Version::new(7, 8));
        self.emit("griddepcontrol.wait;".to_owned());
    }

    /// Lets the launches that depend on this one start, once all blocks have said so or ended; they still wait
    /// for its end at [`Kernel::wait_prerequisites`]. From [`Target::Sm90`] on.
    pub fn launch_dependents(&self) {
        self.require_target("griddepcontrol", Target::Sm90, Version::new(7, 8));
        self.emit("griddepcontrol.launch_dependents;".to_owned());
    }

    /// Waits until all lanes of the warp are here.
    pub fn sync_warp(&self) {
        self.emit("bar.warp.sync 0xffffffff;".to_owned());
    }

    /// Orders this thread's memory accesses for all threads of the GPU.
    pub fn fence(&self) {
        self.emit("fence.acq_rel.gpu;".to_owned());
    }
}
