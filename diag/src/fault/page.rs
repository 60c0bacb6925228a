//! A report as one HTML page: verdicts, evidence, the map, disassembly. It loads nothing, runs nothing, and
//! is well-formed XML too.

use std::fmt::Write;
use std::io;

use crate::address_map::AddressMap;
use crate::fault::report::{Evidence, FaultList, FaultReport, place_words};
use crate::kernel_log::lines::Role;
use crate::markup::Text;
use crate::process_map::code::Code;
use crate::report::counted;

impl FaultList {
    /// The report as an HTML document, with a picture of `map` where there is one.
    #[must_use]
    pub fn html(&self, map: Option<&AddressMap>) -> String {
        let title = match (&self.faults[..], self.found) {
            ([fault], 1) => fault.verdict.clone(),
            (_, 0) => "No fault of a channel".to_owned(),
            (_, found) => counted(found, "fault"),
        };
        let (title, source) = (Text(&title).to_string(), Text(&self.source).to_string());
        let mut page = Page { out: String::new() };
        page.put(format_args!(
            "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n\
             <title>{title}</title>\n<style>\n{}</style>\n</head>\n<body>\n<h1>{title}</h1>\n\
             <p class=\"aside\">From {source}, {}; nvdiag {}</p>\n",
            include_str!("page.css"),
            counted(self.lines, "line"),
            env!("CARGO_PKG_VERSION")
        ));
        let shown: u64 = self.faults.iter().map(|fault| fault.repeats.count).sum();
        if self.found > shown {
            page.put(format_args!(
                "<p class=\"aside\">Not shown: {}.</p>\n",
                counted(self.found - shown, "earlier fault")
            ));
        }
        for (index, fault) in self.faults.iter().enumerate() {
            let number = if self.faults.len() > 1 { format!("{}. ", index + 1) } else { String::new() };
            page.fault(&number, fault);
        }
        if let Some(map) = map {
            let marks = self.marks(map.process.map(|process| process.pid));
            page.put(format_args!("<section>\n<h3>Address map</h3>\n{}</section>\n", map.svg(&marks)));
        }
        page.printed("The drivers", &|out| {
            self.print_messages(out)?;
            self.print_unknown(out)
        });
        page.put(format_args!("</body>\n</html>\n"));
        page.out
    }
}

/// A page that is being written. Writing to its string cannot fail.
struct Page {
    out: String,
}

impl Page {
    fn put(&mut self, markup: std::fmt::Arguments<'_>) {
        let _ = self.out.write_fmt(markup);
    }

    fn fault(&mut self, number: &str, fault: &FaultReport) {
        let (verdict, place) = (Text(&fault.verdict).to_string(), fault.on_device());
        self.put(format_args!(
            "<section>\n<h2>{number}{verdict}<span class=\"aside\">{}</span></h2>\n",
            Text(&place)
        ));
        self.table(&fault.facts());
        if let Some(guess) = &fault.guess {
            self.put(format_args!("<p>A guess: {}</p>\n", Text(&guess.words())));
        }
        for code in &fault.code {
            self.code(code);
        }
        self.table(&fault.circumstances());
        self.list("Likely causes", &fault.causes);
        self.list("What to try", &fault.try_next);
        self.evidence(fault);
        self.put(format_args!("</section>\n"));
    }

    fn table(&mut self, rows: &[(&'static str, String)]) {
        if rows.is_empty() {
            return;
        }
        self.put(format_args!("<table>\n"));
        for (name, value) in rows {
            self.put(format_args!("<tr><th>{}</th><td>{}</td></tr>\n", Text(name), Text(value)));
        }
        self.put(format_args!("</table>\n"));
    }

    fn list(&mut self, heading: &str, items: &[String]) {
        if items.is_empty() {
            return;
        }
        self.put(format_args!("<h3>{heading}</h3>\n<ol>\n"));
        for item in items {
            self.put(format_args!("<li>{}</li>\n", Text(item)));
        }
        self.put(format_args!("</ol>\n"));
    }

    /// The instruction among its neighbours.
    fn code(&mut self, code: &Code) {
        self.put(format_args!("<h3>Instruction: {}</h3>\n", Text(&place_words(code))));
        self.printed("", &|out| code.source.iter().try_for_each(|source| source.print(out, "")));
        self.put(format_args!("<pre>"));
        for line in &code.listing {
            let (class, arrow) = if line.here { (" class=\"here\"", "--&gt;") } else { ("", "   ") };
            let offset = line.offset;
            self.put(format_args!("<span{class}>{arrow} {offset:>7}  {}</span>\n", Text(&line.text)));
        }
        self.put(format_args!("</pre>\n"));
    }

    fn evidence(&mut self, fault: &FaultReport) {
        if fault.evidence.is_empty() {
            return;
        }
        let (dump, lines): (Vec<&Evidence>, Vec<_>) =
            fault.evidence.iter().partition(|e| e.role == Role::Dump);
        self.put(format_args!("<h3>From these lines</h3>\n"));
        self.lines(&lines);
        if !dump.is_empty() {
            let count = counted(dump.len() as u64, "line");
            self.put(format_args!("<details>\n<summary>{count} of the dump that followed</summary>\n"));
            self.lines(&dump);
            self.put(format_args!("</details>\n"));
        }
        if fault.evidence_dropped > 0 {
            let count = counted(fault.evidence_dropped, "line");
            self.put(format_args!("<p class=\"aside\">and {count} more</p>\n"));
        }
    }

    fn lines(&mut self, lines: &[&Evidence]) {
        self.put(format_args!("<table>\n"));
        for line in lines {
            let missing = match line.missing.is_empty() {
                true => String::new(),
                false => format!(
                    "<br/><span class=\"aside\">cut short: no {}</span>",
                    Text(&line.missing.join(", "))
                ),
            };
            let (number, text) = (line.line, Text(&line.text));
            self.put(format_args!(
                "<tr><td class=\"number\">{number}</td><td class=\"line\" title=\"{}\">{text}{missing}</td></tr>\n",
                Text(line.meaning)
            ));
        }
        self.put(format_args!("</table>\n"));
    }

    /// Adds text that is printed by `print`, if there is any.
    fn printed(&mut self, heading: &str, print: &dyn Fn(&mut dyn io::Write) -> io::Result<()>) {
        let mut out = anstream::StripStream::new(Vec::new());
        // Memory takes everything.
        let _ = print(&mut out);
        let text = String::from_utf8_lossy(&out.into_inner()).into_owned();
        if text.trim().is_empty() {
            return;
        }
        if !heading.is_empty() {
            self.put(format_args!("<section>\n<h3>{heading}</h3>\n"));
        }
        self.put(format_args!("<pre>"));
        for line in text.trim_start_matches('\n').lines() {
            self.put(format_args!("{}\n", Text(line)));
        }
        self.put(format_args!("</pre>\n"));
        if !heading.is_empty() {
            self.put(format_args!("</section>\n"));
        }
    }
}
