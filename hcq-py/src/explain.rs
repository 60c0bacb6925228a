//! A fault in the words of `nvdiag`.

use hcq::FaultReport;
use nvdiag::fault::FaultList;
use nvdiag::process_map::{Mapping, ProcessMap};
use nvdiag::provoke::Capture;
use nvdiag::{Hex, Report};

/// The account that `nvdiag` prints: what happened, where, why, and what to try.
pub(crate) fn explain(report: &FaultReport) -> Option<String> {
    let mut map = ProcessMap::default();
    map.mappings.extend(report.nearest.iter().map(|nearest| Mapping {
        what: nearest.what.to_owned(),
        va: Hex(nearest.va.raw()),
        size_bytes: nearest.len,
        ..Mapping::default()
    }));
    let capture = Capture::of_fault(report, map.document());
    let faults = FaultList {
        source: String::new(),
        lines: report.raw.log.len() as u64,
        found: 1,
        faults: vec![capture.explain()?],
        messages: Vec::new(),
        messages_dropped: 0,
        unknown_found: 0,
        unknown_errors: 0,
        unknown: Vec::new(),
    };
    let mut text = Vec::new();
    faults.print(&mut anstream::StripStream::new(&mut text)).ok()?;
    Some(String::from_utf8_lossy(&text).trim_end().to_owned())
}
