//! The product of Hopper's warpgroups on the software GPU: exact where its sums are, and clean under all
//! checks.

use std::sync::Arc;
use std::time::Duration;

use ga10b_sim::sm::Schedule;
use ga10b_sim::{Checks, Sim, SimConfig};
use ga10b_tests::product::{CUBIN, TILES, Tile, choose};
use half::f16;
use hcq::{Args, Device, DeviceOptions, LaunchConfig};
use sass::Arch;

/// Value `i` of a factor: whole numbers, whose products and sums are exact in any order.
fn value(i: u32, seed: u32) -> i64 {
    i64::from(i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 7) % 9 - 4
}

fn halves(count: u32, seed: u32) -> Vec<u8> {
    (0..count).flat_map(|i| f16::from_f64(value(i, seed) as f64).to_le_bytes()).collect()
}

/// Multiplies two tiles of rows by one in a single block, over more slices than the ring has.
fn two_tiles(device: &Device, tile: Tile) {
    let (rows, columns, cols) = (2 * tile.rows(), tile.columns, 64 * (tile.stages + 3));
    let upload = |bytes: &[u8]| {
        let buffer = device.alloc(bytes.len() as u64).unwrap();
        buffer.write(0, bytes).unwrap();
        buffer
    };
    let (x, w) = (upload(&halves(rows * cols, 1)), upload(&halves(columns * cols, 2)));
    let out = device.alloc(u64::from(4 * rows * columns)).unwrap();
    let kernel = device.load(CUBIN).unwrap().kernel(&tile.kernel_name()).unwrap();
    let args = Args::new().buffer(&x).buffer(&w).buffer(&out).u32(2).u32(1).u32(cols);
    let config = LaunchConfig::new(1, tile.threads()).with_dynamic_shared(tile.shared_bytes());
    let mut queue = device.queue().unwrap();
    // SAFETY: the buffers have the sizes that the arguments say.
    unsafe { queue.launch(&kernel, config, &args).unwrap() };
    queue.submit().unwrap().wait(Duration::from_secs(120)).unwrap();
    let mut sums = vec![0; 4 * (rows * columns) as usize];
    out.read(0, &mut sums).unwrap();
    for (i, sum) in (0..).zip(sums.as_chunks::<4>().0) {
        let (row, column) = (i / columns, i % columns);
        let term = |c: u32| value(row * cols + c, 1) * value(column * cols + c, 2);
        let expected = (0..cols).map(term).sum::<i64>() as f32;
        assert_eq!(f32::from_le_bytes(*sum), expected, "{tile:?}, row {row}, column {column}");
    }
}

#[test]
fn every_tile_multiplies_exactly_and_is_clean() {
    let mut config = SimConfig { arch: Arch::Sm90, ..Default::default() };
    (config.executor.schedule, config.executor.checks) = (Schedule::Shuffled(1), Checks::all());
    let sim = Sim::new(config);
    let device = hcq::sim::open(Arc::clone(&sim), DeviceOptions::default()).unwrap();
    for tile in TILES {
        two_tiles(&device, tile);
        assert!(sim.findings().is_empty(), "{tile:?}: {:#?}", sim.findings());
    }
}

#[test]
fn tiles_are_large_where_they_fill_the_gpu_and_none_where_none_fits() {
    let chosen = |n| choose(n, n, 132).map(|(tile, count)| (tile.rows(), tile.columns, count));
    assert_eq!(chosen(4096), Some((128, 256, 512)));
    assert_eq!(chosen(2048), Some((128, 256, 128)));
    assert_eq!(chosen(1024), Some((64, 128, 128)));
    assert_eq!(chosen(192), None);
}
