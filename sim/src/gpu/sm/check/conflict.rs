//! Words for accesses that nothing orders.

use crate::gpu::sm::check::mark::Kind;
use crate::gpu::sm::check::order::Clocks;
use crate::gpu::sm::check::shadow::Conflict;
use crate::gpu::sm::check::unfinished::Writer;

/// The later access of a conflict.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accesses {
    pub kind: Kind,
    /// The warp, or what goes on beside it.
    pub by: u32,
    pub block: u32,
}

/// Whether the mistake is that one of two changes is lost.
pub(super) fn is_lost(new: &Accesses, conflict: &Conflict) -> bool {
    let old = conflict.earlier.kind;
    let changes = |kind: Kind| kind.intersects(Kind::UPDATE | Kind::ATOMIC);
    (old & new.kind).contains(Kind::STRONG)
        && changes(old)
        && changes(new.kind)
        && (old | new.kind).contains(Kind::UPDATE)
}

/// The mistake, in words.
pub(super) fn text(global: bool, new: &Accesses, conflict: &Conflict, clocks: &Clocks) -> &'static str {
    let old = &conflict.earlier;
    let reads = !new.kind.contains(Kind::WRITES);
    if is_lost(new, conflict) {
        return "changes global memory by a load and a store, not by an atomic operation: a change by another thread is \
                lost";
    }
    if new.kind.contains(Kind::CONSTANT) && old.kind.contains(Kind::WRITES) {
        return "reads global memory by ld.global.nc that the same launch writes";
    }
    if (old.kind & new.kind).contains(Kind::STRONG) {
        return "accesses global memory that another block of the launch accesses, and one of the two has the scope of its \
                block alone (.cta)";
    }
    match (global, old.block == new.block, old.id == new.by) {
        (true, false, _) if reads => {
            "reads global memory that another block of the launch writes, and nothing orders the two"
        }
        (true, false, _) => {
            "writes global memory that another block of the launch accesses, and nothing orders the two"
        }
        (true, true, false) if reads => {
            "reads global memory that another warp of the block writes, without a barrier between"
        }
        (true, true, false) => {
            "writes global memory that another warp of the block accesses, without a barrier between"
        }
        (true, true, true) if reads => {
            "reads global memory that another lane of the warp writes, without a __syncwarp between"
        }
        (true, true, true) => {
            "writes global memory that another lane of the warp accesses, without a __syncwarp between"
        }
        (false, _, true) if reads => {
            "reads shared memory that another lane of the warp writes, without a __syncwarp between"
        }
        (false, _, true) => {
            "writes shared memory that another lane of the warp accesses, without a __syncwarp between"
        }
        (false, _, false) => shared(reads, Writer::of(clocks, old.id, old.warp.into(), old.clock)),
    }
}

/// Two participants of a block in shared memory.
fn shared(reads: bool, other: Writer) -> &'static str {
    match (reads, other) {
        (true, Writer::Warp | Writer::Product) => {
            "reads shared memory that another warp writes, without a barrier between"
        }
        (true, Writer::Copy) => {
            "reads shared memory that an asynchronous copy writes, without waiting for the copy"
        }
        (true, Writer::Bulk) => {
            "reads shared memory that a bulk copy writes, without waiting for its barrier object"
        }
        (false, Writer::Warp) => "writes shared memory that another warp accesses, without a barrier between",
        (false, Writer::Copy) => {
            "writes shared memory that an asynchronous copy writes, without waiting for the copy"
        }
        (false, Writer::Product) => {
            "writes shared memory that a product reads, without waiting for the product"
        }
        (false, Writer::Bulk) => {
            "writes shared memory that a bulk copy writes, without waiting for its barrier object"
        }
    }
}
