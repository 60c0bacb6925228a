//! Whole QMDs against words worked out from the headers by hand.

use qmd::{
    ConstantBuffer, Dependent, Invalidate, Launch, Membar, Qmd, Release, SamplerIndex, SharedMemory, Target,
    Version,
};

fn launch(target: Target, bank_bytes: u32) -> Launch {
    Launch::new(target)
        .program(0x12_3450_0080, 512)
        .grid([1000, 3, 2])
        .block([64, 4, 1])
        .registers(40)
        .barriers(1)
        .shared(SharedMemory::new(0x1400, 0))
        .carve_out(64 * 1024)
        .local(0, 0x240)
        .group(0x3f)
        .sampler_index(SamplerIndex::ViaHeaderIndex)
        .invalidate(Invalidate::SHADER_DATA)
        .membar(Membar::System)
        .constant_buffer(0, ConstantBuffer::new(0x12_3456_7000, bank_bytes).invalidated())
}

fn chained(launch: Launch) -> Launch {
    launch
        .dependent(0, Dependent::schedule(0x12_3456_9000).prefetched())
        .release(0, Release::new_u64(0x10_0000_1000, 6).with_timestamp())
}

const V03: &[(usize, u32)] = &[
    (4, 0x0000_007f),
    (5, 0x2000_0000),
    (8, 0x1234_5000),
    (11, 0x4401_0000),
    (12, 0x0000_03e8),
    (13, 0x0000_0003),
    (14, 0x0000_0002),
    (17, 0x540c_1400),
    (18, 0x0040_0030),
    (19, 0x0001_0004),
    (20, 0x0022_2801),
    (23, 0x0800_0000),
    (32, 0x3456_7000),
    (33, 0x00cc_0012),
    (48, 0x3450_0080),
    (49, 0x0000_0012),
    (50, 0x0000_0240),
    (51, 0x8700_0400),
];
const V03_CHAINED: &[(usize, u32)] =
    &[(15, 0x1234_5690), (16, 0x0000_0013), (24, 0x0000_1000), (25, 0x2080_0010), (26, 0x0000_0006)];
const V04: &[(usize, u32)] = &[
    (0, 0x013f_0000),
    (13, 0x0000_0009),
    (16, 0x9000_0000),
    (17, 0x0300_0240),
    (18, 0x2014_0040),
    (19, 0x0001_1e83),
    (32, 0x0000_03e8),
    (33, 0x0000_0003),
    (34, 0x0000_0002),
    (35, 0x0001_0000),
    (36, 0x0004_0040),
    (37, 0x0828_0001),
    (38, 0x3450_0080),
    (39, 0x0000_0012),
    (42, 0x1234_5000),
    (43, 0x0004_0000),
    (48, 0x48d1_59c0),
    (49, 0x0120_0000),
];
const V04_CHAINED: &[(usize, u32)] = &[
    (10, 0x0000_1001),
    (11, 0x0013_0000),
    (14, 0x1234_5690),
    (20, 0x0000_1000),
    (21, 0x0000_0010),
    (22, 0x0000_0006),
];

fn assert_words(qmd: &Qmd, expected: &[&[(usize, u32)]]) {
    let mut words = vec![0; qmd.version().size() / 4];
    for &(index, word) in expected.iter().copied().flatten() {
        words[index] = word;
    }
    for (i, (ours, theirs)) in qmd.words().zip(&words).enumerate() {
        assert_eq!(ours, *theirs, "word {i}: {ours:08x} instead of {theirs:08x}\n{qmd}");
    }
}

#[test]
fn a_v3_launch_has_the_expected_words() {
    let launch = launch(Target::Sm87, 0x190);
    assert_words(&launch.build().expect("valid"), &[V03]);
    assert_words(&chained(launch).build().expect("valid"), &[V03, V03_CHAINED]);
}

#[test]
fn a_v4_launch_has_the_expected_words() {
    let launch = launch(Target::Sm90, 0x240);
    assert_words(&launch.build().expect("valid"), &[V04]);
    assert_words(&chained(launch).build().expect("valid"), &[V04, V04_CHAINED]);
}

#[test]
fn a_v3_launch_prints_its_fields() {
    let mut qmd = chained(launch(Target::Sm87, 0x190)).build().expect("valid");
    let mut bytes = qmd.as_bytes().to_vec();
    bytes[335 / 8] |= 0x80; // bit 335 has no name
    qmd = Qmd::from_bytes_as(Version::V03, &bytes).expect("long enough");
    let expected = include_str!("../data/v03.txt");
    assert_eq!(qmd.to_string(), expected, "print it with `cargo run -p nv-qmd --example show`");
}

#[test]
fn every_field_is_printed_on_request_with_the_name_of_its_value() {
    let mut qmd = launch(Target::Sm87, 0x190).build().expect("valid");
    let field = |name| qmd::field(Version::V03, name).expect("a field of v3.0");
    for (name, value) in [("CWD_MEMBAR_TYPE", 2), ("QMD_GROUP_ID", 9), ("CTA_RASTER_WIDTH", 0x1_0000)] {
        qmd.set(field(name), value).expect("fits");
    }
    let line = |name: &str, text: &str| {
        let lines: Vec<&str> = text.lines().filter(|line| line.trim_start().starts_with(name)).collect();
        let [line] = lines[..] else { panic!("{name}: {lines:?}") };
        line.split_whitespace().skip(2).collect::<Vec<_>>().join(" ")
    };
    let (set, all) = (qmd.to_string(), format!("{qmd:#}"));
    assert_eq!(line("CWD_MEMBAR_TYPE", &set), "0x2 (undefined)");
    assert_eq!(line("SAMPLER_INDEX", &set), "0x1 VIA_HEADER_INDEX");
    assert_eq!(line("CTA_RASTER_HEIGHT ", &set), "0x3", "a number below ten");
    assert_eq!(line("CTA_THREAD_DIMENSION0", &set), "0x40 (64)");
    assert_eq!(line("QMD_GROUP_ID", &set), "0x9");
    assert_eq!(line("CTA_RASTER_WIDTH ", &set), "0x10000", "an address or a size, no number to count with");
    assert!(!set.contains("CTA_RASTER_WIDTH_RESUME"));
    assert_eq!(line("CTA_RASTER_WIDTH_RESUME", &all), "0x0");
    // One line for each element of each field, and the headline.
    let elements: usize = qmd::fields(Version::V03).iter().map(|f| usize::from(f.count())).sum();
    assert_eq!(all.lines().count(), 1 + elements);
    assert_eq!(qmd.entries().filter(|entry| entry.value_name() == Some("VIA_HEADER_INDEX")).count(), 1);
}
