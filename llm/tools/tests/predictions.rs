//! What is predicted for an H200 beside what was measured on one.

use ga10b_llm_tools::chips::Chip;
use ga10b_llm_tools::measured::{Measurements, compare, fit};
use ga10b_llm_tools::roofline::{Fitted, Machine};

/// Largest error of a prediction, in percent of what was measured.
const MOST_PERCENT: f64 = 10.0;

fn measured() -> (Machine, Measurements) {
    let file = Measurements::from_json(include_str!("../data/h200.json")).expect("a file of measurements");
    let chip: Chip = file.chip.parse().expect("a chip");
    (chip.machines().remove(0), file)
}

#[test]
fn predictions_for_an_h200_are_within_the_error_that_the_docs_promise() {
    let (machine, file) = measured();
    for row in compare(&machine, &file.points) {
        assert!(row.error_percent.abs() <= MOST_PERCENT, "{row:?}");
    }
}

#[test]
fn the_constants_in_use_fit_the_measurements_as_well_as_any() {
    let (machine, file) = measured();
    let squares = |fitted: Fitted| -> f64 {
        let rows = compare(&machine.clone().with(fitted), &file.points);
        rows.iter().map(|row| row.error_percent.powi(2)).sum()
    };
    let (used, best) = (squares(Fitted::DEFAULT), squares(fit(&machine, &file.points)));
    assert!(used <= 1.1 * best, "{used} with the constants in use, {best} with those of a fit");
}
