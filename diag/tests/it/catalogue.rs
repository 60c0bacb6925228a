//! The catalogue of error numbers, against the names of the drivers' headers; `xid` and `explain`.

use assert_cmd::Command;
use nv_hw::fault::{notifier, xid};
use nvdiag::catalogue;
use serde_json::Value;

fn nvdiag(arguments: &[&str]) -> (i32, String) {
    let output = Command::cargo_bin("nvdiag").expect("nvdiag").args(arguments).output().expect("starts");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8(text).expect("UTF-8"))
}

#[test]
fn each_number_is_there_once_with_the_name_of_the_header() {
    let numbers: Vec<u32> = catalogue::xids().iter().map(|error| error.number).collect();
    assert_eq!(numbers, (1..=176).collect::<Vec<_>>());
    for (number, name) in xid::NAMES.iter().filter(|(number, _)| (1..=176).contains(number)) {
        let own = catalogue::xid(*number).and_then(|error| error.name.as_deref()).unwrap_or("");
        let own = own.strip_prefix("ROBUST_CHANNEL_").unwrap_or(own);
        // The header's name of this one ends in a word more than the interface's.
        let own = own.strip_suffix("_ERROR").filter(|_| *number == 109).unwrap_or(own);
        assert_eq!(own, *name, "Xid {number}");
    }
    for (number, name) in notifier::NAMES {
        let own = catalogue::notifiers().iter().filter(|error| error.number == *number);
        let mut names = own.filter_map(|error| error.name.as_deref());
        assert!(names.any(|own| own.ends_with(name)), "notifier {number} {name}");
    }
    for error in catalogue::xids().iter().chain(catalogue::notifiers()) {
        let texts = [&error.title, &error.meaning, &error.action, &error.source];
        assert!(texts.iter().all(|text| !text.trim().is_empty()), "{error:?}");
        assert!(!error.also.contains(&error.class), "{error:?}");
    }
}

#[test]
fn an_xid_is_looked_up_by_its_decimal_number() {
    let (code, text) = nvdiag(&["xid", "79"]);
    assert!(code == 0 && text.starts_with("Xid 79: GPU has fallen off the bus\n"), "{text}");
    assert!(text.contains("fault of      the hardware"), "{text}");
    let (code, json) = nvdiag(&["xid", "--json"]);
    let all: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((code, all["xids"].as_array().map(Vec::len)), (0, Some(176)));
    let (code, text) = nvdiag(&["xid", "1000"]);
    assert!(code == 2 && text.contains("no Xid 1000: 1 to 176 are known"), "{text}");
}

#[test]
fn a_code_is_explained_in_every_list_that_has_it() {
    for (word, lists) in [
        ("OOR_ADDR", &["warp error (ESR) 14 (0xe)"][..]),
        ("0x1f", &["nvgpu's error notifier 31 (0x1f)", "Xid of the desktop driver 31 (0x1f)"]),
        ("31", &["Xid of the desktop driver 31 (0x1f)"]),
        ("invalid pte", &["MMU fault 2 (0x2)"]),
        ("fallen off", &["Xid of the desktop driver 79"]),
    ] {
        let (code, text) = nvdiag(&["explain", word]);
        assert!(code == 0 && lists.iter().all(|list| text.contains(list)), "{word}: {text}");
    }
    let (code, text) = nvdiag(&["explain", "no-such-name"]);
    assert!(code == 1 && text.starts_with("no list has no-such-name"), "{text}");
    // Two letters are in half of all names.
    assert_eq!(nvdiag(&["explain", "er"]).0, 1);
}
