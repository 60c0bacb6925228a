//! The committed random programs are those that the generator writes.

use std::path::Path;

use device_suite::conformance;

#[test]
fn committed_programs_are_those_of_the_generator() {
    let wrong =
        conformance::check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/conformance")).unwrap();
    let wrong: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    assert!(
        wrong.is_empty(),
        "run `hcq-conform --regenerate tests/kernels/conformance`:\n{}",
        wrong.join("\n")
    );
}
