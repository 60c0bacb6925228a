//! The PTX of a few kernels, whole. `INSTA_UPDATE=always` rewrites the files.

use half::f16;
use ptxgen::{
    Atomic, ByteA, ByteB, Cache, Evict, Kernel, Mbarrier, Module, Permute, Poll, Ptxas, Reduce, SharedRows,
    Shuffle, Special, Target, TileA, TileB, Transpose,
};

fn check(name: &str, kernel: impl Fn() -> Kernel) {
    check_for(name, Target::Sm87, kernel);
}

fn check_for(name: &str, target: Target, kernel: impl Fn() -> Kernel) {
    let mut module = Module::new(target);
    module.add(kernel());
    let text = module.text();
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../golden");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text.as_str()));
    match Ptxas::find() {
        Ok(ptxas) => {
            ptxas.compile(&text, target).unwrap();
        }
        Err(error) => ga10b_oracles::missing("ptxas", error),
    }
}

#[test]
fn a_grid_stride_loop() {
    check("axpy", || {
        let k = Kernel::new("axpy");
        let (x, y) = (k.param_ptr::<f32>("x", 16), k.param_ptr::<f32>("y", 16));
        let (n, a) = (k.param::<u32>("n"), k.param::<f32>("a"));
        let threads = k.special(Special::NtidX);
        let first = k.mad(k.special(Special::CtaidX), threads, k.special(Special::TidX));
        k.for_(first, n, k.mul(threads, k.special(Special::NctaidX)), |i| {
            let to = k.at(y, i);
            k.store(to, k.mad(a, k.load(k.at(x, i)), k.load(to)));
        });
        k
    });
}

#[test]
fn a_table_that_the_module_is_loaded_with() {
    check("table", || {
        let k = Kernel::new("table");
        let (bytes, out) = (k.param_ptr::<u32>("bytes", 16), k.param_ptr::<u32>("out", 16));
        let lane = k.special(Special::TidX);
        let index = k.var(0u32);
        k.load_byte_where(None, k.at_stride(bytes, lane, 1), index, Cache::ReadOnly);
        let squares: Vec<u32> = (0..256).map(|i| i * i).collect();
        k.store(k.at(out, lane), k.load(k.at(k.table("squares", &squares), index)));
        k
    });
}

#[test]
#[should_panic(expected = "two tables squares")]
fn tables_of_a_module_with_one_name_are_the_same() {
    let kernel = |name: &str, first: u32| {
        let k = Kernel::new(name);
        k.table("squares", &[first, 1]);
        k
    };
    let mut module = Module::new(Target::Sm87);
    module.add(kernel("a", 0)).add(kernel("b", 0)).add(kernel("c", 4));
}

#[test]
fn unaligned_blocks_are_read_in_pieces() {
    check("blocks", || {
        let k = Kernel::new("blocks");
        let (blocks, out) = (k.param_ptr::<u32>("blocks", 2), k.param_ptr::<u32>("out", 16));
        let i = k.special(Special::TidX);
        let words = k.load_n::<3, _, _>(k.at_stride(blocks, i, 34).plus_bytes(2), Cache::ReadOnly);
        let sum = words.into_iter().reduce(|a, b| k.xor(a, b)).unwrap();
        let scale = k.load(k.at_stride(blocks.cast::<f16>(), i, 34));
        let scaled = k.mul(k.convert::<u32, f32>(sum), k.convert::<f16, f32>(scale));
        k.store(k.at(out, i), k.bits::<f32, u32>(scaled));
        k
    });
}

#[test]
fn shared_memory_shuffles_and_atomics() {
    check("sum", || {
        let k = Kernel::new("sum");
        k.max_threads(256);
        let (x, total) = (k.param_ptr::<f32>("x", 16), k.param_ptr::<f32>("total", 4));
        let partial = k.shared::<f32>(8);
        let (tid, lane) = (k.special(Special::TidX), k.special(Special::LaneId));
        let vector = k.load_n::<4, _, _>(k.at(x, k.scale(tid, 4)), Cache::Stream);
        let sum = vector.into_iter().reduce(|a, b| k.add(a, b)).unwrap();
        let sum = k.warp_sum(sum);
        k.if_(k.eq(lane, 0), || k.store(k.at(partial, k.shr(tid, 5)), sum));
        k.sync_threads();
        k.exit_if(k.ge(tid, 32));
        let mine = k.load(k.at(partial, k.and(lane, 7)));
        let mine = [4, 2, 1].into_iter().fold(mine, |v, d| k.add(v, k.shuffle(v, Shuffle::Xor(d))));
        k.if_(k.eq(lane, 0), || {
            k.atomic(total, Atomic::Add, mine);
        });
        k
    });
}

#[test]
fn tiles_are_copied_loaded_and_multiplied() {
    check("tiles", || {
        let k = Kernel::new("tiles");
        k.max_threads(32);
        let (a, b, out) =
            (k.param_ptr::<f16>("a", 16), k.param_ptr::<f16>("b", 8), k.param_ptr::<f32>("out", 8));
        let (rows, columns) = (k.shared::<f16>(16 * 16), k.shared::<f16>(16 * 16));
        let lane = k.special(Special::LaneId);
        // 16 bytes are proven of the one, 8 of the other: one piece, and two.
        let line = k.scale(lane, 8);
        k.copy_async(k.at(rows, line), k.at(a, line), 8);
        k.copy_async(k.at(columns, line), k.at(b, line), 8);
        k.commit_copies();
        k.wait_copies(0);
        k.sync_threads();
        let (x, y) = (k.matrices(), k.matrices());
        let row = k.mad(k.and(lane, 15), 2u32, k.shr(lane, 4));
        k.load_matrices(x, k.at_stride(rows, row, 16), Transpose::No);
        k.load_matrices(y, k.at_stride(columns, row, 16), Transpose::Yes);
        let sum = k.accumulator();
        k.multiply(sum, TileA(x), TileB([y[0], y[1]]));
        k.store_n(k.at(out, k.scale(lane, 4)), &sum.0);
        k
    });
}

#[test]
#[should_panic(expected = "multiple of 8 bytes only")]
fn a_matrix_row_of_unproven_alignment_is_refused() {
    let k = Kernel::new("k");
    let rows = k.shared::<f16>(64);
    k.load_matrices(k.matrices(), rows.plus(4), Transpose::No);
}

#[test]
#[should_panic(expected = "multiples of 2 bytes only")]
fn an_asynchronous_copy_of_unproven_alignment_is_refused() {
    let k = Kernel::new("k");
    let (from, to) = (k.param_ptr::<f16>("from", 16), k.shared::<f16>(64));
    k.copy_async(to, k.at(from, k.special(Special::TidX)), 8);
}

/// The parts that exchanges between blocks and warps have in both generations.
fn exchange(poll: Poll) -> Kernel {
    let k = Kernel::new("exchange");
    let (packets, bytes) = (k.param_ptr::<u32>("packets", 16), k.param_ptr::<u8>("bytes", 16));
    let ring = k.shared::<u8>(512);
    let barriers = k.shared::<Mbarrier>(2);
    let lane = k.special(Special::LaneId);
    k.if_(k.eq(lane, 0), || {
        k.init_mbarrier(barriers, 32u32);
        k.init_mbarrier(barriers.plus(1), k.param::<u32>("arrivals"));
    });
    k.sync_threads();
    let policy = k.policy(Evict::First, 1.0);
    let part = k.scale(lane, 16);
    k.prefetch(k.at(bytes, part));
    k.copy_async_with(k.at(ring, part), k.at(bytes, part), 16, Some(policy));
    k.arrive_after_copies(barriers);
    k.wait_phase(barriers, 0u32, poll);
    let words = k.load_n::<4, _, _>(k.at(ring, part).cast::<u32>(), Cache::Default);
    k.arrive(barriers.plus(1));
    let hinted = k.load_hinted::<4, _>(k.at(bytes, part), Cache::Stream, k.policy(Evict::Last, 0.5));
    let sum = k.int_accumulator();
    k.multiply_bytes(sum, ByteA(words), ByteB([hinted[0], hinted[1]]));
    let scaled = k.mul(sum.0[0], k.signed_byte(hinted[2], 3));
    let mixed = k.permute(Permute::Backward, hinted[3], words[0], lane);
    let most = k.reduce(mixed, Reduce::Max);
    let least = k.reduce(scaled, Reduce::Min);
    let at = k.at(packets, k.scale(lane, 4));
    k.store_relaxed_b128(at, [most, k.bits(least), lane, lane]);
    k.sync_named(1u32, 64u32);
    let other = k.load_relaxed_b128(at);
    k.arrive_named(k.and(other[3], 7u32), 96u32);
    k.store_n(at, &other);
    k.invalidate_mbarrier(barriers);
    k
}

#[test]
fn ampere_waits_for_phases_by_testing_them() {
    check("exchange", || exchange(Poll::Test));
}

#[test]
fn hopper_copies_in_bulk() {
    check_for("bulk", Target::Sm90, || {
        let k = exchange(Poll::Try);
        let (weights, count) = (k.param_ptr::<u8>("weights", 128), k.param_multiple("count", 16));
        let (slot, full) = (k.shared::<u8>(1024), k.shared::<Mbarrier>(1));
        k.wait_prerequisites();
        k.if_(k.elect(), || {
            k.init_mbarrier(full, 1u32);
            k.fence_mbarrier_init();
            k.fence_proxy_async();
            k.arrive_expecting(full, 1024u32);
            k.copy_bulk(slot, weights, 512, full, Some(k.policy(Evict::First, 1.0)));
            k.copy_bulk(slot.plus(512), weights.plus(512), count, full, None);
            k.prefetch_bulk(weights.plus(1024), 4096);
        });
        k.wait_phase(full, 0u32, Poll::Try);
        k.launch_dependents();
        k
    });
}

/// Two warpgroups: one copies 128 rows of each factor, the other multiplies them.
fn warpgroups() -> Kernel {
    let k = Kernel::new("warpgroups");
    k.max_threads(384);
    k.max_registers(152);
    k.keep_loops();
    let (x, out) = (k.param_ptr::<f16>("x", 16), k.param_ptr::<f32>("out", 16));
    let steps = k.param::<u32>("steps");
    let tile = k.dynamic_shared_aligned::<f16>(SharedRows::ALIGNMENT);
    let tid = k.special(Special::TidX);
    k.if_else(
        k.lt(tid, 128),
        || {
            k.release_registers(40);
            k.copy_async(k.at(tile, k.scale(tid, 8)), k.at(x, k.scale(tid, 8)), 8);
            k.wait_copies(0);
            k.fence_proxy_async();
            k.arrive_named(1u32, 256u32);
        },
        || {
            k.claim_registers(208);
            k.sync_named(1u32, 256u32);
            let sums = k.warpgroup_sums(32);
            let a = k.shared_rows(tile);
            let b = k.shared_rows(tile.plus_bytes(i64::from(64 * SharedRows::ROW_BYTES)));
            for sum in sums.registers() {
                k.set(*sum, 0f32);
            }
            k.for_(0u32, steps, 1u32, |step| {
                let add = k.gt(step, 0u32);
                k.fence_products();
                k.multiply_shared(&sums, a, b, add);
                k.multiply_shared(&sums, k.rows_from(a, 16), k.rows_from(b, 16), k.le(step, step));
                k.commit_products();
                k.wait_products(1);
            });
            k.wait_products(0);
            for (i, four) in (0i64..).zip(sums.registers().chunks(4)) {
                k.store_n(k.at(out, k.scale(tid, 16)).plus(4 * i), four);
            }
        },
    );
    k
}

#[test]
fn warpgroups_multiply_what_lies_in_shared_memory() {
    check_for("warpgroups", Target::Sm90a, warpgroups);
    let error = Module::new(Target::Sm90).try_add(warpgroups()).unwrap_err();
    assert_eq!(error.to_string(), "kernel warpgroups needs sm_90a for setmaxnreg; the module is for sm_90");
}

#[test]
#[should_panic(expected = "rows of a product at a multiple of 16 bytes only")]
fn rows_of_unproven_alignment_are_refused() {
    let k = Kernel::new("k");
    k.shared_rows(k.dynamic_shared());
}

#[test]
#[should_panic(expected = "a product of 12 columns")]
fn products_of_odd_shapes_are_refused() {
    Kernel::new("k").warpgroup_sums(12);
}

#[test]
fn every_target_has_the_exchange() {
    let ptxas = match Ptxas::find() {
        Ok(ptxas) => ptxas,
        Err(error) => return ga10b_oracles::missing("ptxas", error),
    };
    for target in Target::ALL {
        let mut module = Module::new(target);
        module.add(exchange(Poll::Test));
        ptxas.compile(&module.text(), target).unwrap();
    }
}

#[test]
fn a_module_refuses_what_its_target_lacks_and_names_it() {
    for target in Target::ALL {
        let mut module = Module::new(target);
        let Err(error) = module.try_add(exchange(Poll::Try)) else {
            assert_eq!(target, Target::Sm90);
            continue;
        };
        let text = format!("kernel exchange needs sm_90 for mbarrier.try_wait; the module is for {target}");
        assert_eq!(error.to_string(), text);
        assert!(module.kernels().is_empty());
    }
}

#[test]
#[should_panic(expected = "the destination of a bulk copy at a multiple of 8 bytes only")]
fn a_bulk_copy_of_unproven_alignment_is_refused() {
    let k = Kernel::new("k");
    let (from, to, full) = (k.param_ptr::<u8>("from", 16), k.shared::<u8>(64), k.shared::<Mbarrier>(1));
    k.copy_bulk(to.plus(8), from, 16, full, None);
}

#[test]
#[should_panic(expected = "a bulk copy of 24 bytes")]
fn a_bulk_copy_of_part_of_a_unit_is_refused() {
    let k = Kernel::new("k");
    let (from, to, full) = (k.param_ptr::<u8>("from", 16), k.shared::<u8>(64), k.shared::<Mbarrier>(1));
    k.copy_bulk(to, from, 24, full, None);
}

#[test]
#[should_panic(expected = "a barrier object at a multiple of 4 bytes only")]
fn a_barrier_object_of_unproven_alignment_is_refused() {
    let k = Kernel::new("k");
    k.arrive(k.shared::<u32>(4).plus(1).cast());
}
