//! Address maps as pictures and reports as pages: those of a known map and of known faults against committed
//! files, and that of any map is well-formed, of bounded size, and keeps its labels on the canvas.
//! `INSTA_UPDATE=always` rewrites the files.

use nvdiag::address_map::difference::MapDifference;
use nvdiag::address_map::picture::Mark;
use nvdiag::address_map::spaces::AddressMaps;
use nvdiag::address_map::{AddressMap, Mapping, Parts, Range, Window};
use nvdiag::fault::FaultList;
use nvdiag::process_map::ProcessMap;
use nvdiag::session::Session;
use nvdiag::{Hex, Report};
use proptest::prelude::*;

use crate::snapshot::{compare, settings};

const APP: &[u8] = include_bytes!("../data/maps/app.json");
const LATER: &[u8] = include_bytes!("../data/maps/app-later.json");

fn documents(bytes: &[u8]) -> ProcessMap {
    let mut documents = ProcessMap::default();
    documents.add_json(bytes).expect("a map");
    documents
}

/// The map of an application: a region, windows of which one is reserved, named mappings of several kinds,
/// two that overlap, one in a window.
fn known(bytes: &[u8]) -> AddressMap {
    drawn(&documents(bytes)).spaces.remove(0)
}

fn drawn(documents: &ProcessMap) -> AddressMaps {
    AddressMaps::of_documents("process 6734", documents)
}

/// Parses a picture and checks that every text and every rectangle is on its canvas.
fn check(svg: &str) -> Result<(), TestCaseError> {
    /// Width of a character in the fonts that the picture names, as a part of their size.
    const ADVANCE: f64 = 0.603;
    let document = roxmltree::Document::parse(svg);
    let document = document.map_err(|error| TestCaseError::fail(format!("{error}: {svg}")))?;
    let number = |node: &roxmltree::Node<'_, '_>, name: &str| {
        node.attribute(name).map_or(0.0, |text| text.parse::<f64>().expect("a number"))
    };
    let root = document.root_element();
    let (width, height) = (number(&root, "width"), number(&root, "height"));
    for node in document.descendants().filter(|node| node.tag_name().name() == "text") {
        let (text, font) = (node.text().unwrap_or(""), number(&node, "font-size"));
        let ems: f64 = text.chars().map(|c| if c < '\u{250}' || c == '…' { ADVANCE } else { 1.0 }).sum();
        let (x, y, long) = (number(&node, "x"), number(&node, "y"), ems * font);
        let left = if node.attribute("text-anchor") == Some("end") { x - long } else { x };
        prop_assert!(font >= 11.0, "{text:?} cannot be read at {font}");
        prop_assert!(left >= 0.0 && left + long <= width, "{text:?} from {left} to {}", left + long);
        prop_assert!(y >= font && y + font / 3.0 <= height, "{text:?} at {y} of {height}");
    }
    let in_definition = |node: &roxmltree::Node<'_, '_>| node.ancestors().any(|n| n.has_tag_name("pattern"));
    let drawn =
        document.descendants().filter(|node| node.tag_name().name() == "rect" && !in_definition(node));
    for node in drawn {
        let (x, y) = (number(&node, "x"), number(&node, "y"));
        prop_assert!(x >= 0.0 && x + number(&node, "width") <= width, "{node:?}");
        prop_assert!(y >= 0.0 && y + number(&node, "height") <= height, "{node:?}");
    }
    Ok(())
}

#[test]
fn a_known_map() {
    let marks = [
        Mark {
            address: 0x10_00d8_0010,
            text: "invalid pte, virt read: 17 bytes past the end of the value cache".to_owned(),
            is_pc: false,
            link: None,
        },
        Mark {
            address: 0x10_0018_0180,
            text: "load_vector+0x180: LDG.E.128 R8, [R2.64]".to_owned(),
            is_pc: true,
            link: Some("#fault-1".to_owned()),
        },
    ];
    let svg = known(APP).svg(&marks);
    check(&svg).expect("a picture");
    let labels = [
        "weights &quot;a&quot; &lt;q4 &amp; q8&gt;",
        "key cache",
        "shared memory window",
        "(reserved)",
        "0x1000d80010",
        "939.94 GiB free",
    ];
    for label in labels {
        assert!(svg.contains(label), "{label}");
    }
    // The picture of docs/nvdiag-vamap.md.
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/nvdiag-vamap.svg");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &svg).expect("the docs");
    }
    assert!(std::fs::read_to_string(path).expect("the docs") == svg, "UPDATE=1 writes docs/nvdiag-vamap.svg");
}

#[test]
fn nothing_at_all_is_a_picture_too() {
    let empty = AddressMap::new(Parts::default());
    check(&empty.svg(&[])).expect("a picture");
    assert!(empty.svg(&[]).contains("nothing is mapped"));
    let mark = |address| Mark { address, text: "a fault".to_owned(), is_pc: false, link: None };
    check(&empty.svg(&[mark(0), mark(u64::MAX)])).expect("a picture");
}

#[test]
fn thousands_of_mappings_are_a_picture_of_a_few_pages() {
    let mapping = |i: u64| Mapping {
        va: Hex(0x10_0000_0000 + i * 0x3000),
        size_bytes: if i.is_multiple_of(1000) { 0x3000 } else { 0x1000 * (1 + i % 3) },
        name: Some(format!("tensor {i}")),
        ..Mapping::default()
    };
    let mappings = (0..20_000).map(mapping).collect();
    let map = AddressMap::new(Parts { mappings, ..Parts::default() });
    let at = 0x10_0000_0000 + 12_345 * 0x3000 + 0x1800;
    let svg = map.svg(&[Mark { address: at, text: "past the end".to_owned(), is_pc: false, link: None }]);
    check(&svg).expect("a picture");
    assert!(svg.len() < 100_000, "{}", svg.len());
    assert!(svg.contains("tensor 12345") && svg.contains("tensor 12346"), "neighbours of the mark");
}

#[test]
fn what_came_went_moved_and_changed() {
    let difference =
        MapDifference::of(["app.json".to_owned(), "app-later.json".to_owned()], &known(APP), &known(LATER));
    assert!(difference.has_problem());
    let mut text = anstream::StripStream::new(Vec::new());
    difference.print(&mut text).expect("memory takes everything");
    let text = String::from_utf8(text.into_inner()).expect("UTF-8");
    for line in
        ["went     mapping  0x1200000000", "came     mapping  0x3000000000", "moved    mapping  0x1002000000"]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(
        text.contains("\"signal\" to \"signals\"") && text.contains("flags uncached to uncached, read only")
    );
    compare("vamap_diff.txt", &text);
    let mut json = Vec::new();
    difference.print_json(&mut json).expect("memory takes everything");
    compare("vamap_diff.json", &String::from_utf8(json).expect("UTF-8"));
    let same = MapDifference::of([String::new(), String::new()], &known(APP), &known(APP));
    assert!(!same.has_problem() && same.equal == 12, "{same:?}");
}

/// Faults of the application of [`APP`], and lines that try to be markup.
const LOG: &str = "\
[  100.000100] nvgpu: 17000000.gpu f:1 [ERR]  sm err state gpc_id(0), tpc_id(0), offset(0), sm_id(0), hww_global_esr 0,hww_warp_esr 15, hww_warp_esr_pc 0x1000180180
[  100.000200] nvgpu: 17000000.gpu f:1 [ERR]  error notifier set to 13 for ch 507 owned by a<3&b
[  104.000100] nvgpu: 17000000.gpu f:1 [ERR]  [MMU FAULT] mmu engine id:  65, ch id:  506, fault addr: 0x1000d80000, fault addr aperture: 0, fault type: invalid pte, access type: virt read,
[  104.000200] nvgpu: 17000000.gpu f:1 [ERR]  error notifier set to 31 for ch 506 owned by app
[  105.000100] nvgpu: 17000000.gpu nvgpu_acr_bootstrap_hs_acr:123  [ERR]  ACR bootstrap failed
[  106.000100] nvgpu: 17000000.gpu new:77   [ERR]  </pre><script>alert('&amp;')</script><img src=\"http://x/\">
";

fn known_faults() -> (FaultList, AddressMaps) {
    let mut map = documents(APP);
    let cubin = include_bytes!("../../kernels/provoke.sm_87.cubin");
    let base = Some(0x10_0018_0000);
    map.add_cubin("provoke.sm_87.cubin", cubin, Some("load_vector"), base, &mut |_| None).expect("a cubin");
    let drawn = drawn(&map);
    let mut session = Session::new(map, 20);
    session.feed(LOG.as_bytes());
    (session.finish("kern.log"), drawn)
}

/// Parses a page: HTML that is XML too loads nothing and runs nothing.
fn check_page(html: &str) {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let page =
        roxmltree::Document::parse_with_options(html, options).unwrap_or_else(|e| panic!("{e}: {html}"));
    for node in page.descendants().filter(roxmltree::Node::is_element) {
        let name = node.tag_name().name();
        let loads = ["script", "img", "link", "iframe", "object", "image", "use", "base"].contains(&name);
        assert!(!loads, "<{name}>");
        for attribute in node.attributes() {
            let is_code = attribute.name().starts_with("on") || attribute.name() == "src";
            assert!(!is_code, "{attribute:?}");
            if attribute.name() == "href" {
                let to = attribute.value().strip_prefix('#').expect("a place in the page");
                assert!(page.descendants().any(|node| node.attribute("id") == Some(to)), "no {to}");
            }
        }
    }
    let styles = page.descendants().filter(|node| node.tag_name().name() == "style");
    assert!(
        styles.filter_map(|node| node.text()).all(|css| !css.contains("url(") && !css.contains("@import"))
    );
}

#[test]
fn a_page_holds_verdicts_evidence_map_and_disassembly() {
    let (list, map) = known_faults();
    let html = list.html(Some(&map));
    check_page(&html);
    let parts = [
        "a&lt;3&amp;b",
        "<svg ",
        "LDG.E.128",
        "class=\"here\"",
        "fault at 0x1000d80000",
        "pc 0x1000180180",
        "Signed firmware",
        "&lt;script&gt;",
    ];
    for part in parts {
        assert!(html.contains(part), "{part}: {html}");
    }
    let html = html.replace(concat!("nvdiag ", env!("CARGO_PKG_VERSION")), "nvdiag VERSION");
    // In a file of its own, so that a browser shows it.
    settings("").bind(|| insta::assert_binary_snapshot!("esr_page.html", html.into_bytes()));
    let without = list.html(None);
    check_page(&without);
    assert!(!without.contains("<svg "));
    check_page(&Session::new(ProcessMap::default(), 1).finish("nothing").html(None));
}

fn page(html: &str) -> roxmltree::Document<'_> {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    roxmltree::Document::parse_with_options(html, options).expect("checked")
}

/// The words of an element, as a reader sees them.
fn words(node: roxmltree::Node<'_, '_>) -> String {
    let text = node.descendants().filter(roxmltree::Node::is_text).filter_map(|node| node.text());
    text.collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_map_stands_at_its_fault_and_each_leads_to_the_other() {
    let (list, map) = known_faults();
    let html = list.html(Some(&map));
    let page = page(&html);
    let with_id =
        |id: &str| page.descendants().find(|node| node.attribute("id") == Some(id)).expect("it is there");
    let in_fault =
        |node: roxmltree::Node<'_, '_>, id: &str| node.ancestors().any(|n| n.attribute("id") == Some(id));
    assert!(in_fault(with_id("map"), "fault-1"));
    for (fault, mark, shown) in [(1, 1, "pc 0x1000180180"), (2, 0, "0x1000d80000")] {
        let (fault, mark) = (format!("fault-{fault}"), format!("mark-{mark}"));
        let href = format!("#{mark}");
        let mut links = page.descendants().filter(|node| node.attribute("href") == Some(&href));
        let link = links.find(|node| in_fault(*node, &fault)).expect("a link");
        assert_eq!(words(link), shown);
        let label = with_id(&mark);
        assert_eq!(label.attribute("href"), Some(&*format!("#{fault}")));
        assert!(words(label).contains(shown), "{}", words(label));
    }
    // A map without an address of a fault still is shown.
    let none = Session::new(ProcessMap::default(), 1).finish("nothing").html(Some(&map));
    check_page(&none);
    assert!(none.contains("id=\"map\"") && !none.contains("#mark-"));
}

#[test]
fn a_sentence_stands_once_in_a_section() {
    let (list, map) = known_faults();
    let one = "nvgpu: 17000000.gpu f:1 [ERR]  sm err state gpc_id(0), tpc_id(0), offset(0), sm_id(0), hww_global_esr 4,hww_warp_esr 16, hww_warp_esr_pc 0x10\n";
    let mut session = Session::new(documents(APP), 20);
    session.feed(one.as_bytes());
    for html in [list.html(Some(&map)), session.finish("a log").html(None)] {
        let page = page(&html);
        let cells = ["h1", "h2", "td", "li", "p"];
        // Of the map the labels of marks: boxes of a kind have the same words.
        let is_cell = |node: &roxmltree::Node<'_, '_>| {
            cells.contains(&node.tag_name().name())
                || node.attribute("id").is_some_and(|id| id.starts_with("mark-"))
        };
        let sections: Vec<_> = page
            .descendants()
            .filter(|node| node.has_tag_name(("http://www.w3.org/1999/xhtml", "section")))
            .collect();
        assert!(!sections.is_empty());
        for section in sections {
            let mut all: Vec<String> = section.descendants().filter(is_cell).map(words).collect();
            if section.descendants().all(|node| node.tag_name().name() != "h2") {
                all.extend(page.descendants().filter(|node| node.tag_name().name() == "h1").map(words));
            }
            let pieces =
                all.iter().enumerate().flat_map(|(at, all)| all.split(": ").map(move |piece| (at, piece)));
            for (index, text) in pieces.filter(|(_, text)| text.split(' ').count() > 4) {
                let again = all.iter().enumerate().find(|(other, all)| *other != index && all.contains(text));
                assert_eq!(again, None, "{text}");
            }
        }
    }
}

#[test]
fn commands_are_code_and_nothing_is_too_small_to_read() {
    let log = "nvgpu: 17000000.gpu f:1 [ERR]  sm err state gpc_id(0), tpc_id(0), offset(0), sm_id(0), hww_global_esr 0,hww_warp_esr 15, hww_warp_esr_pc 0x10\n";
    let mut session = Session::new(ProcessMap::default(), 20);
    session.feed(log.as_bytes());
    let list = session.finish("a log");
    assert!(list.faults[0].try_next.iter().any(|text| text.contains('`')), "{:?}", list.faults[0].try_next);
    let html = list.html(None);
    let page = page(&html);
    let body = page.descendants().find(|node| node.tag_name().name() == "body").expect("a body");
    assert!(!words(body).contains('`'), "{}", words(body));
    let code = body.descendants().filter(|node| node.tag_name().name() == "code").map(words);
    assert!(code.into_iter().any(|code| code.starts_with("nvdiag ")), "{html}");
    // Sizes of letters: rem are of 16 px, and the smallest are of elements that stand in none that is smaller.
    let css = include_str!("../../src/fault/page.css");
    for (_, after) in css.match_indices("font-size:").map(|(at, name)| css.split_at(at + name.len())) {
        let number: String = after.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        let size: f64 = number.parse().expect("a number");
        let pixels = match &after[number.len()..] {
            unit if unit.starts_with("rem") => size * 16.0,
            unit if unit.starts_with("pt") => size * 96.0 / 72.0,
            unit => panic!("a size in {unit}"),
        };
        assert!(pixels >= 11.0, "{pixels} px");
    }
    // A picture is as wide as it was drawn: it scrolls in its box, its letters do not shrink.
    let screen = css.split("@media print").next().expect("a style");
    assert!(screen.contains(".map{overflow-x:auto") && !screen.contains("svg{max-width"), "{css}");
}

#[test]
fn the_line_of_a_mark_crosses_no_text() {
    let mark = |address, is_pc| Mark { address, text: "here".to_owned(), is_pc, link: None };
    let drawn = known(APP).svg(&[mark(0x10_0018_0180, true), mark(0x10_0020_0000, false)]);
    let picture = roxmltree::Document::parse(&drawn).expect("XML");
    let with_class = |node: &roxmltree::Node<'_, '_>, class: &[&str]| {
        node.attribute("class").is_some_and(|c| class.contains(&c))
    };
    let boxes: Vec<(f64, f64)> = picture
        .descendants()
        .filter(|node| with_class(node, &["vm-rw", "vm-ro"]))
        .filter_map(|node| {
            Some((node.attribute("x")?.parse().ok()?, node.attribute("width")?.parse::<f64>().ok()?))
        })
        .collect();
    let lines: Vec<_> =
        picture.descendants().filter(|node| with_class(node, &["vm-pc-line", "vm-mark-line"])).collect();
    assert_eq!(lines.len(), 2);
    let (left, right) = (170.0, 470.0);
    assert!(boxes.iter().any(|(x, width)| *x == left && x + width == right), "{boxes:?}");
    for line in lines {
        // Each stroke lies left of the boxes, or right of them.
        for stroke in line.attribute("d").expect("a path").split('M').skip(1) {
            let (start, rest) = stroke.split_once(' ').expect("a place");
            let end = rest.split(['H', 'L']).nth(1).expect("a line").split(' ').next().expect("a place");
            let (start, end): (f64, f64) = (start.parse().expect("x"), end.parse().expect("x"));
            assert!(end <= left || start >= right, "{stroke}");
        }
    }
}

/// Address spaces of one process that use the same addresses.
#[test]
fn several_address_spaces_are_maps_of_their_own() {
    let space = r#""windows": [], "mappings": [{"va": "0x1000", "size_bytes": 8192, "name": "one"}]"#;
    let other = r#""windows": [], "mappings": [{"va": "0x2000", "size_bytes": 4096, "name": "two"}]"#;
    let document = |schema: &str| {
        format!(r#"{{"schema": "{schema}", "process": {{"pid": 7}}, "spaces": [{{{space}}}, {{{other}}}]}}"#)
    };
    for schema in ["nvdiag.vamap/2", "nvdiag.map/2"] {
        let read = documents(document(schema).as_bytes());
        let maps = drawn(&read);
        assert_eq!(maps.spaces.len(), 2);
        assert!(!maps.has_problem(), "{:?}", maps.spaces);
        let mut text = anstream::StripStream::new(Vec::new());
        maps.print(&mut text).expect("memory takes everything");
        let text = String::from_utf8(text.into_inner()).expect("UTF-8");
        for part in ["Address space 1 of 2 of process 6734", "Address space 2 of 2 of process 6734"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!((text.matches("Totals").count(), text.matches("overlaps").count()), (2, 0), "{text}");
        let mark = Mark { address: 0x2800, text: "a fault".to_owned(), is_pc: false, link: None };
        let svg = maps.svg(&[mark]);
        let picture = roxmltree::Document::parse(&svg).expect("XML");
        let ids: Vec<_> = picture.descendants().filter_map(|node| node.attribute("id")).collect();
        assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), ids.len(), "{ids:?}");
        assert_eq!(svg.matches("In a box the axis is linear").count(), 2);
        let html = Session::new(ProcessMap::default(), 1).finish("nothing").html(Some(&maps));
        check_page(&html);
        assert_eq!((html.matches("<svg ").count(), html.matches("id=\"vm-stripes\"").count()), (2, 1));
        let json = maps.json().expect("JSON");
        assert_eq!(
            (&json["schema"], json["spaces"].as_array().map(Vec::len)),
            (&"nvdiag.vamap/2".into(), Some(2))
        );
        // What is written is read again, and an address says of which address space it is.
        let again = documents(json.to_string().as_bytes());
        assert_eq!(again.spaces.len(), 2);
        let place = |va| again.locate(va, false).expect("a map").words;
        assert!(
            place(0x2800)
                .ends_with("the one of 8 KiB at 0x1000 in address space 1 of 2; 2 has the two there")
        );
        assert!(place(0x1000).ends_with("in address space 1 of 2; 2 has nothing there"), "{}", place(0x1000));
    }
}

#[test]
fn faults_of_another_process_are_not_marked() {
    let xid = "NVRM: Xid (PCI:0000:c1:00): 31, pid=99, name=app, channel 0x00000005, intr 00000000. MMU Fault: ENGINE GRAPHICS \
               GPC1 GPCCLIENT_T1_6 faulted @ 0x7295_01400000. Fault is of type FAULT_PTE ACCESS_TYPE_VIRT_WRITE\n";
    let mut session = Session::new(ProcessMap::default(), 20);
    session.feed(xid.as_bytes());
    let list = session.finish("a log");
    assert_eq!(list.marks(Some(6734)), []);
    assert_eq!(list.marks(Some(99)).iter().map(|m| m.address).collect::<Vec<_>>(), [0x7295_0140_0000]);
    assert_eq!(list.marks(None).len(), 1);
}

/// Addresses: near each other, on edges, anywhere.
fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => (0u64..64).prop_map(|page| 0x10_0000_0000 + page * 0x1000),
        1 => prop::sample::select(vec![0, 1, 0xfe_0000_0000, 1 << 49, u64::MAX - 1, u64::MAX]),
        1 => any::<u64>(),
    ]
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![(1u64..32).prop_map(|page| page * 0x1000), 0u64..20, any::<u64>()]
}

/// Names that are markup, control characters, wide, long.
fn name() -> impl Strategy<Value = String> {
    let hostile = ["</text>", "<![CDATA[", "]]>", "&", "\"'", "\0\u{1b}[31m", "\u{202e}\u{fffe}", "", "\n"];
    prop_oneof![
        prop::sample::select(hostile.to_vec()).prop_map(str::to_owned),
        any::<String>(),
        prop::collection::vec(any::<char>(), 0..40).prop_map(|chars| chars.into_iter().collect()),
        Just("W".repeat(50_000)),
        Just("重".repeat(900)),
    ]
}

prop_compose! {
    fn mapping()(va in address(), size_bytes in length(), name in prop::option::of(name()),
                 kind in prop::option::of(any::<u8>()), page_bytes in prop::option::of(length()),
                 flag in name()) -> Mapping {
        let flags = vec![flag, "read only".to_owned()];
        Mapping { va: Hex(va), size_bytes, name, page_bytes, kind, flags, physical: None }
    }
}

prop_compose! {
    fn ranges(most: usize)(ranges in prop::collection::vec((address(), length(), name()), 0..most)) -> Vec<Range> {
        ranges.iter().map(|(va, size_bytes, name)| Range::new(name, *va, *size_bytes)).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_map_is_a_picture_of_bounded_size(
        mappings in prop_oneof![prop::collection::vec(mapping(), 0..12), prop::collection::vec(mapping(), 0..400)],
        windows in ranges(20), reservations in ranges(20), regions in ranges(20), source in name(),
        marks in prop::collection::vec((address(), name(), any::<bool>()), 0..20),
    ) {
        let window = |r: Range| Window { name: r.name, base: r.va, size_bytes: r.size_bytes };
        let windows = windows.into_iter().map(window).collect();
        let map = AddressMap::new(Parts { source, mappings, windows, reservations, regions, ..Parts::default() });
        let mark = |(address, text, is_pc)| Mark { address, text, is_pc, link: None };
        let marks: Vec<_> = marks.into_iter().map(mark).collect();
        let svg = map.svg(&marks);
        prop_assert!(svg.len() < 400_000, "{} bytes", svg.len());
        check(&svg)?;
    }

    #[test]
    fn any_line_is_text_in_a_page(lines in prop::collection::vec(name(), 0..6)) {
        let mut session = Session::new(documents(APP), 20);
        session.feed(LOG.as_bytes());
        for line in lines {
            session.feed(format!("[  107.000100] nvgpu: 17000000.gpu new:77   [ERR]  {line}\n").as_bytes());
            session.feed(format!("[  108.000200] nvgpu: 17000000.gpu f:1 [ERR]  error notifier set to 31 for ch 5 owned by {line}\n").as_bytes());
        }
        let list = session.finish("a log");
        check_page(&list.html(Some(&known(APP).into())));
    }
}
