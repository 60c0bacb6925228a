//! Address maps as pictures: that of a known map against a committed file, and that of any map is well-formed, of bounded
//! size, and keeps its labels on the canvas. `UPDATE_GOLDEN=1` rewrites the files.

use std::path::Path;

use nvdiag::Hex;
use nvdiag::address_map::difference::MapDifference;
use nvdiag::address_map::picture::Mark;
use nvdiag::address_map::{AddressMap, Mapping, Parts, Range, Window};
use nvdiag::process_map::ProcessMap;
use proptest::prelude::*;

/// The map of an application: a region, windows of which one is reserved, named mappings of several kinds, two that overlap, one
/// in a window.
fn known() -> AddressMap {
    let mut documents = ProcessMap::default();
    documents.add_json(include_bytes!("data/maps/app.json")).expect("a map");
    AddressMap::of_documents("app (pid 6734)".to_owned(), &documents)
}

fn compare(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, actual).expect("the golden files can be written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == actual, "{name} differs; UPDATE_GOLDEN=1 rewrites it. Now:\n{actual}");
}

/// Parses a picture and checks that every text and every rectangle is on its canvas.
fn check(svg: &str) -> roxmltree::Document<'_> {
    /// Width of a character in the fonts that the picture names, as a part of their size.
    const ADVANCE: f64 = 0.603;
    let document = roxmltree::Document::parse(svg).unwrap_or_else(|error| panic!("{error}: {svg}"));
    let number = |node: &roxmltree::Node<'_, '_>, name: &str| {
        node.attribute(name).map_or(0.0, |text| text.parse::<f64>().expect("a number"))
    };
    let root = document.root_element();
    let (width, height) = (number(&root, "width"), number(&root, "height"));
    for node in document.descendants().filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "text"))) {
        let text = node.text().unwrap_or("");
        let ems: f64 = text.chars().map(|c| if c < '\u{250}' || c == '…' { ADVANCE } else { 1.0 }).sum();
        let (x, y, long) = (number(&node, "x"), number(&node, "y"), ems * number(&node, "font-size"));
        let left = if node.attribute("text-anchor") == Some("end") { x - long } else { x };
        assert!(left >= 0.0 && left + long <= width, "{text:?} from {left} to {}", left + long);
        assert!(y - number(&node, "font-size") >= 0.0 && y + 4.0 <= height, "{text:?} at {y} of {height}");
    }
    let in_definition = |node: &roxmltree::Node<'_, '_>| node.ancestors().any(|n| n.has_tag_name("pattern"));
    for node in document.descendants().filter(|node| node.tag_name().name() == "rect" && !in_definition(node)) {
        let (x, y) = (number(&node, "x"), number(&node, "y"));
        assert!(x >= 0.0 && x + number(&node, "width") <= width, "{node:?}");
        assert!(y >= 0.0 && y + number(&node, "height") <= height, "{node:?}");
    }
    document
}

#[test]
fn a_known_map() {
    let map = known();
    let marks = [
        Mark {
            address: 0x10_00d8_0010,
            text: "invalid pte, virt read: 17 bytes past the end of the value cache".to_owned(),
            is_pc: false,
        },
        Mark { address: 0x10_0000_2480, text: "the instruction".to_owned(), is_pc: true },
    ];
    let svg = map.svg(&marks);
    check(&svg);
    for label in ["weights &quot;a&quot; &lt;q4 &amp; q8&gt;", "key cache", "shared memory window", "zigzag", "0x1000d80010"] {
        assert!(svg.contains(label), "{label}");
    }
    compare("vamap_app.svg", &svg);
}
