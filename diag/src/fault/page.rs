//! A report as one HTML page: verdicts, facts, the map, disassembly, evidence. It loads nothing, runs nothing,
//! and is well-formed XML too. A sentence stands once in the section of a fault.

use std::fmt::Write;

use crate::address_map::picture::{Mark, drawn};
use crate::address_map::spaces::AddressMaps;
use crate::fault::judgement::Link;
use crate::fault::message::DriverMessage;
use crate::fault::report::{Evidence, FaultList, FaultReport, place_words};
use crate::hex::Hex;
use crate::kernel_log::lines::Role;
use crate::markup::{Prose, Text};
use crate::process_map::code::Code;
use crate::report::counted;

/// Facts whose values are lists of short names and numbers, each of which is drawn as a chip.
const CHIPS: [&str; 3] = ["who", "where", "address"];

/// Height of a picture, in pixels, that is put on one printed sheet: higher ones would shrink too much, and are
/// continued on the next.
const SHEET: f64 = 1150.0;

impl FaultList {
    /// The report as an HTML document, with a picture of `maps` where there are any, beside the first fault that
    /// has an address in it.
    #[must_use]
    pub fn html(&self, maps: Option<&AddressMaps>) -> String {
        let title = match (&self.faults[..], self.found) {
            ([fault], 1) => fault.verdict.clone(),
            (_, 0) => "No fault of a channel".to_owned(),
            (_, found) => counted(found, "fault"),
        };
        let (title, source) = (Text(&title).to_string(), Text(&self.source).to_string());
        let place = match &self.faults[..] {
            [fault] => fault.on_device(),
            _ => String::new(),
        };
        let mut page =
            Page { out: String::new(), said: Vec::new(), picture: maps.map(|m| Picture::new(self, m)) };
        page.put(format_args!(
            "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n\
             <title>{title}</title>\n<style>\n{}</style>\n</head>\n<body>\n\
             <h1>{title}<span class=\"aside\">{}</span></h1>\n<p class=\"aside\">From {source}, {}; nvdiag {}</p>\n",
            include_str!("page.css"),
            Text(&place),
            counted(self.lines, "line"),
            env!("CARGO_PKG_VERSION")
        ));
        let shown: u64 = self.faults.iter().map(|fault| fault.repeats.count).sum();
        if self.found > shown {
            page.aside(&format!("Not shown: {}.", counted(self.found - shown, "earlier fault")));
        }
        for (index, fault) in self.faults.iter().enumerate() {
            page.fault(index, fault, self.faults.len() > 1);
        }
        if page.picture.as_ref().is_some_and(|picture| picture.is_pending) {
            page.put(format_args!("<section>\n"));
            page.picture();
            page.put(format_args!("</section>\n"));
        }
        page.messages(self);
        page.put(format_args!("</body>\n</html>\n"));
        page.out
    }
}

/// The picture of the maps.
struct Picture {
    /// One for each map, with its height in pixels.
    svgs: Vec<(String, f64)>,
    /// The marks in it, each with the indices of its faults.
    marks: Vec<(Vec<usize>, Mark)>,
    /// Whether it still has to be put somewhere.
    is_pending: bool,
}

impl Picture {
    fn new(list: &FaultList, maps: &AddressMaps) -> Self {
        let mut marks = list.marks_by_fault(maps.process.map(|process| process.pid), false);
        marks.truncate(drawn(&marks).len());
        for (faults, mark) in &mut marks {
            mark.link = faults.first().map(|fault| format!("#fault-{}", fault + 1));
        }
        let shown: Vec<Mark> = marks.iter().map(|(_, mark)| mark.clone()).collect();
        Self { svgs: maps.svgs(&shown), marks, is_pending: true }
    }

    /// The marks of a fault: their numbers and what they are.
    fn of(&self, fault: usize) -> Vec<(usize, String)> {
        let of_fault = self.marks.iter().enumerate().filter(|(_, (faults, _))| faults.contains(&fault));
        let words = |mark: &Mark| match (mark.is_pc, Hex(mark.address)) {
            (true, at) => format!("pc {at}"),
            (false, at) => at.to_string(),
        };
        of_fault.map(|(number, (_, mark))| (number, words(mark))).collect()
    }
}

/// A page that is being written. Writing to its string cannot fail.
struct Page {
    out: String,
    /// Sentences of the section so far.
    said: Vec<String>,
    picture: Option<Picture>,
}

impl Page {
    fn put(&mut self, markup: std::fmt::Arguments<'_>) {
        let _ = self.out.write_fmt(markup);
    }

    fn aside(&mut self, text: &str) {
        self.put(format_args!("<p class=\"aside\">{}</p>\n", Text(text)));
    }

    /// As much of a sentence as the section has not said; what follows a name and a colon may be said already.
    /// Names and numbers, of three words at most, are no sentences.
    fn unsaid<'a>(&mut self, sentence: &'a str) -> Option<&'a str> {
        let is_said = |text: &str| {
            text.split_whitespace().nth(3).is_some() && self.said.iter().any(|said| said.contains(text))
        };
        let rest = match sentence.split_once(": ") {
            _ if is_said(sentence) => return None,
            Some((name, words)) if is_said(words) => name,
            _ => sentence,
        };
        self.said.push(sentence.to_owned());
        Some(rest)
    }

    fn fault(&mut self, index: usize, fault: &FaultReport, is_one_of_several: bool) {
        self.said = vec![fault.verdict.clone()];
        self.put(format_args!("<section id=\"fault-{}\">\n", index + 1));
        if is_one_of_several {
            let (number, verdict, place) = (index + 1, Text(&fault.verdict).to_string(), fault.on_device());
            let place = Text(&place);
            self.put(format_args!("<h2>{number}. {verdict}<span class=\"aside\">{place}</span></h2>\n"));
        }
        let marks = self.picture.as_ref().map_or(Vec::new(), |picture| picture.of(index));
        self.put(format_args!("<table class=\"facts\">\n"));
        self.rows(&fault.facts());
        if !marks.is_empty() {
            let link = |(number, words): &(usize, String)| {
                format!("<a class=\"chip\" href=\"#mark-{number}\">{}</a>", Text(words))
            };
            let links: Vec<String> = marks.iter().map(link).collect();
            self.row("in the map", &links.join(" "));
        }
        if let Some(guess) = &fault.guess {
            self.rows(&[("guess", guess.words())]);
        }
        for (index, code) in fault.code.iter().enumerate() {
            self.row(if index == 0 { "instruction" } else { "" }, &code_cell(code));
        }
        self.rows(&fault.circumstances());
        self.put(format_args!("</table>\n"));
        if !marks.is_empty() {
            self.picture();
        }
        for (heading, items) in [("Likely causes", &fault.causes), ("What to try", &fault.try_next)] {
            self.list(heading, items);
        }
        self.evidence(fault);
        self.consequences(fault);
        self.put(format_args!("</section>\n"));
    }

    fn row(&mut self, name: &str, cell: &str) {
        self.put(format_args!("<tr><th>{}</th><td>{cell}</td></tr>\n", Text(name)));
    }

    fn rows(&mut self, rows: &[(&'static str, String)]) {
        let mut before = "";
        for (name, value) in rows {
            let Some(value) = self.unsaid(value) else { continue };
            let cell = if CHIPS.contains(name) { chips(value) } else { Prose(value).to_string() };
            self.row(if *name == before { "" } else { name }, &cell);
            before = if name.is_empty() { before } else { name };
        }
    }

    /// The map, at its first fault.
    fn picture(&mut self) {
        let Some(picture) = self.picture.as_mut().filter(|picture| picture.is_pending) else { return };
        picture.is_pending = false;
        let svgs = std::mem::take(&mut picture.svgs);
        self.put(format_args!("<h3 id=\"map\">Address map</h3>\n"));
        for (svg, height) in svgs {
            let fits = if height <= SHEET { " fits" } else { "" };
            self.put(format_args!("<div class=\"map{fits}\" tabindex=\"0\">\n{svg}</div>\n"));
        }
    }

    fn list(&mut self, heading: &str, items: &[String]) {
        let items: Vec<&str> = items.iter().filter_map(|item| self.unsaid(item)).collect();
        if items.is_empty() {
            return;
        }
        self.put(format_args!("<h3>{heading}</h3>\n<ol>\n"));
        for item in items {
            self.put(format_args!("<li>{}</li>\n", Prose(item)));
        }
        self.put(format_args!("</ol>\n"));
    }

    fn evidence(&mut self, fault: &FaultReport) {
        if fault.evidence.is_empty() {
            return;
        }
        let (dump, lines): (Vec<&Evidence>, Vec<_>) =
            fault.evidence.iter().partition(|e| e.role == Role::Dump);
        self.put(format_args!("<h3>From these lines</h3>\n"));
        self.lines(lines.into_iter().map(line_of));
        if !dump.is_empty() {
            let count = counted(dump.len() as u64, "line");
            self.put(format_args!("<details>\n<summary>{count} of the dump that followed</summary>\n"));
            self.lines(dump.into_iter().map(line_of));
            self.put(format_args!("</details>\n"));
        }
        if fault.evidence_dropped > 0 {
            self.aside(&format!("and {} more", counted(fault.evidence_dropped, "line")));
        }
    }

    fn consequences(&mut self, fault: &FaultReport) {
        if fault.consequences.is_empty() {
            return;
        }
        self.put(format_args!("<h3>Followed by</h3>\n"));
        let of = |link: &Link| format!("{} ({})", link.what, link.evidence);
        self.lines(fault.consequences.iter().map(|link| (link.line, link.text.as_str(), of(link))));
        if fault.consequences_dropped > 0 {
            self.aside(&format!("and {} more", fault.consequences_dropped));
        }
    }

    /// Lines of the log: each its number, its text and a remark on it.
    fn lines<'a>(&mut self, lines: impl Iterator<Item = (u64, &'a str, String)>) {
        self.put(format_args!("<table class=\"lines\">\n"));
        for (number, text, remark) in lines {
            let remark = match remark.is_empty() {
                true => String::new(),
                false => format!("<span class=\"aside\">{}</span>", Text(&remark)),
            };
            let text = Text(text);
            self.put(format_args!("<tr><th>{number}</th><td><code>{text}</code>{remark}</td></tr>\n"));
        }
        self.put(format_args!("</table>\n"));
    }

    /// The drivers' reports beside faults of channels, and lines that are not known.
    fn messages(&mut self, list: &FaultList) {
        let (errors, others): (Vec<_>, Vec<_>) =
            list.messages.iter().partition(|m| m.is_problem && m.follows.is_none());
        for message in errors {
            self.message(message);
        }
        if !others.is_empty() {
            self.put(format_args!("<section>\n<h2 class=\"quiet\">The drivers also printed</h2>\n"));
            self.lines(
                others.iter().map(|m| (m.line, m.text.as_str(), format!("{}{}", m.meaning, m.repeated()))),
            );
            self.put(format_args!("</section>\n"));
        }
        if list.messages_dropped > 0 {
            self.aside(&format!("and {} more, of other formats", counted(list.messages_dropped, "line")));
        }
        if list.unknown_found == 0 {
            return;
        }
        let (errors, rest) = (list.unknown_errors, list.unknown_found - list.unknown_errors);
        let (class, what) = if errors > 0 { ("", "errors") } else { (" class=\"quiet\"", "lines") };
        self.put(format_args!(
            "<section>\n<h2{class}>Of the drivers, {what} that nvdiag cannot explain</h2>\n"
        ));
        let (errors, rest) = (counted(errors, "error"), counted(rest, "other line"));
        let shown = list.unknown.len() as u64;
        let last = if shown < list.unknown_found { format!("; the last {shown}") } else { String::new() };
        self.aside(&format!("{errors}, {rest}{last}"));
        let unit = |unit: &String| format!("from {unit}");
        self.lines(
            list.unknown
                .iter()
                .map(|l| (l.line, l.text.as_str(), l.unit.as_ref().map_or(String::new(), unit))),
        );
        self.put(format_args!("</section>\n"));
    }

    fn message(&mut self, message: &DriverMessage) {
        self.said = vec![message.meaning.clone()];
        self.put(format_args!("<section>\n<h2>{}</h2>\n<table class=\"facts\">\n", Prose(&message.meaning)));
        self.rows(&message.facts());
        self.put(format_args!("</table>\n"));
        self.lines([(message.line, message.text.as_str(), String::new())].into_iter());
        self.put(format_args!("</section>\n"));
    }
}

/// Evidence as a line of the log, with the values that it lost.
fn line_of(evidence: &Evidence) -> (u64, &str, String) {
    let remark = match evidence.missing.is_empty() {
        true => String::new(),
        false => format!("cut short: no {}", evidence.missing.join(", ")),
    };
    (evidence.line, &evidence.text, remark)
}

fn chip(text: &str) -> String {
    format!("<span class=\"chip\">{}</span>", Text(text))
}

/// A list as chips; commas in parentheses are of its items.
fn chips(list: &str) -> String {
    let (mut items, mut depth): (Vec<String>, u32) = (vec![String::new()], 0);
    let mut rest = list;
    while let Some(c) = rest.chars().next() {
        depth = match c {
            '(' => depth + 1,
            ')' => depth.saturating_sub(1),
            _ => depth,
        };
        if let (0, Some(after)) = (depth, rest.strip_prefix(", ")) {
            items.push(String::new());
            rest = after;
            continue;
        }
        items.last_mut().into_iter().for_each(|item| item.push(c));
        rest = &rest[c.len_utf8()..];
    }
    items.iter().map(|item| chip(item)).collect::<Vec<_>>().join(" ")
}

/// The instruction: its place, its source lines, and its neighbours.
fn code_cell(code: &Code) -> String {
    let words = place_words(code);
    // How sure the place is follows it in parentheses.
    let doubt = words.rfind(" (").filter(|_| !code.certain).unwrap_or(words.len());
    let (place, doubt) = words.split_at(doubt);
    let mut cell = format!("{} <span class=\"aside\">{}</span>", chip(place), Text(doubt.trim_start()));
    for source in &code.source {
        let text = source.text.as_ref().map_or(String::new(), |text| format!("<code>{}</code>", Text(text)));
        cell += &format!(" {} {text}", chip(&source.place()));
    }
    cell += "<pre>";
    for line in &code.listing {
        let (class, arrow) = if line.here { (" class=\"here\"", "--&gt;") } else { ("", "   ") };
        cell += &format!("<span{class}>{arrow} {:>7}  {}</span>\n", line.offset, Text(&line.text));
    }
    cell + "</pre>"
}
