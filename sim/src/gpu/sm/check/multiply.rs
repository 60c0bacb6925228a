//! Products of matrices in shared memory: the memory they read, and the registers and memory that threads may
//! not touch before they have waited.

use crate::findings::Checks;
use crate::gpu::sm::check::access::{Place, WarpAccess};
use crate::gpu::sm::check::act::Act;
use crate::gpu::sm::check::registers::{Group, Registers};
use crate::gpu::sm::check::unfinished::products_of;
use crate::gpu::sm::check::{Watch, act, event};
use crate::gpu::sm::core::Core;
use crate::gpu::sm::micro_op::MicroOp;
use crate::gpu::sm::ops::warpgroup::Product;

use sass::Access;

/// Text for a thread that uses a sum too early.
const USES: &str = "uses a sum of a product of matrices without waiting for the product";

impl Watch {
    /// HGMMA: loads of both factors by the warp's products.
    pub(super) fn multiply_shared(&mut self, core: &mut Core<'_>, op: &MicroOp, closes: bool) {
        // A product that is not modelled ends the launch.
        let Ok(product) = Product::of(core, op) else { return };
        let warp = core.warp.index;
        let by = self.begin_copies(core, products_of(warp));
        let pieces: Vec<u32> = product.pieces().collect();
        for lanes in pieces.chunks(32) {
            let mut places = [Place::Shared(0); 32];
            for (place, at) in places.iter_mut().zip(lanes) {
                *place = Place::Shared(*at);
            }
            let memory = act::Memory { bytes: 16, ..act::Memory::shared(Access::Load) };
            let lanes = u32::MAX >> (32 - lanes.len());
            self.access(
                core,
                &WarpAccess { lanes, places, memory, data: None, loaded: Group::default(), by },
            );
        }
        if !self.checks.contains(Checks::RACE) {
            return;
        }
        let block = self.block(core);
        block.products.begin(warp, op.d as u8, op.k[0] / 2, core.pc);
        if closes {
            let reads = block.clocks.release(by);
            block.products.commit(warp, reads);
        }
    }

    /// The warp waits until no more than `left` groups of products are unfinished.
    pub(super) fn wait_for_products(&mut self, core: &Core<'_>, left: u32) {
        let warp = core.warp.index;
        let block = self.block(core);
        if let Some(reads) = block.products.wait(warp, left) {
            block.clocks.acquire(warp, &reads);
        }
    }

    /// An instruction other than a product may use sums of no product that its warp has not waited for.
    pub(super) fn use_sums(&mut self, core: &Core<'_>, act: Act, registers: &Registers) {
        let warp = core.warp.index;
        let block = self.blocks.of(core.block.index);
        if matches!(act, Act::MultiplyShared(_)) || block.products.is_empty(warp) {
            return;
        }
        // The first register of a group is one that the instruction names; how many follow is not always
        // known.
        let used = registers.reads.iter().chain([&registers.written]).filter(|group| group.count > 0);
        let Some(pc) = used.filter_map(|group| block.products.begun(warp, group.first)).next() else {
            return;
        };
        let lane = core.mask.trailing_zeros() & 31;
        let product = event(core, pc, core.block.id, 32 * warp + lane);
        self.report(core, Checks::RACE, lane, USES, None, Some(product));
    }
}
