//! Grammars in GBNF, llama.cpp's notation, in Lark's. A grammar whose rules do not refer to themselves is one pattern,
//! and means the same in both. Of others Lark's notation would make tokens, of which the longest is taken: another
//! meaning, so they are refused.

use std::collections::HashMap;
use std::iter::Peekable;
use std::str::Chars;

use super::lark;

/// Rules of a grammar.
const MOST_RULES: usize = 1000;
/// Groups within each other.
const MOST_DEPTH: usize = 64;
/// The largest number of a repetition, as in llama.cpp.
const MOST_REPEATS: u32 = 2000;

/// Whether a grammar is in GBNF.
pub fn is_gbnf(text: &str) -> bool {
    text.contains("::=")
}

/// The grammar in Lark's notation.
///
/// # Errors
/// For what is no GBNF, and for what has no counterpart, with the line and the column.
pub fn to_lark(text: &str) -> Result<String, String> {
    let mut reader = Reader { rest: text.chars().peekable(), place: (1, 1), uses: Vec::new() };
    let mut rules: Vec<Rule> = Vec::new();
    let mut numbers: HashMap<String, usize> = HashMap::new();
    reader.space(true);
    while reader.rest.peek().is_some() {
        let place = reader.place;
        if rules.len() == MOST_RULES {
            return reader.wrong(&format!("a grammar has at most {MOST_RULES} rules"));
        }
        let name = reader.name()?;
        reader.space(false);
        for c in "::=".chars() {
            reader.expect(c, "a rule is NAME ::= ..")?;
        }
        reader.space(true);
        let body = reader.alternatives(0)?;
        if !matches!(reader.rest.peek(), None | Some('\r' | '\n')) {
            return reader.wrong("a rule ends with its line, outside of parentheses");
        }
        reader.space(true);
        if numbers.insert(name.clone(), rules.len()).is_some() {
            return Err(at(place, &format!("there is another rule {name}")));
        }
        rules.push(Rule { body, uses: std::mem::take(&mut reader.uses) });
    }
    let root = *numbers.get("root").ok_or("GBNF: there is no rule root")?;
    let mut seen = vec![Seen::No; rules.len()];
    for (name, place) in rules.iter().flat_map(|rule| &rule.uses) {
        if !numbers.contains_key(name) {
            return Err(at(*place, &format!("there is no rule {name}")));
        }
    }
    visit(root, &rules, &numbers, &mut seen)?;
    let mut lark = format!("start: R{root}\n");
    for (number, rule) in rules.iter().enumerate().filter(|(number, _)| seen[*number] == Seen::Done) {
        let parts = rule.body.iter().map(|part| match part {
            Part::Lark(text) => text.clone(),
            Part::Rule(name) => format!("R{}", numbers[name]),
        });
        lark += &format!("R{number}: {}\n", parts.collect::<Vec<_>>().join(" "));
    }
    Ok(lark)
}

struct Rule {
    body: Vec<Part>,
    /// Names of rules, and their places.
    uses: Vec<(String, Place)>,
}

/// A part of a rule.
enum Part {
    /// In Lark's notation.
    Lark(String),
    /// Another rule.
    Rule(String),
}

/// A line and a column, from 1.
type Place = (usize, usize);

#[derive(Clone, Copy, PartialEq)]
enum Seen {
    No,
    /// The rules that it refers to are being looked at.
    Within,
    Done,
}

fn at((line, column): Place, what: &str) -> String {
    format!("GBNF, line {line}, column {column}: {what}")
}

/// Looks at a rule and those that it refers to; an error for one that leads back to itself.
fn visit(
    number: usize,
    rules: &[Rule],
    numbers: &HashMap<String, usize>,
    seen: &mut [Seen],
) -> Result<(), String> {
    seen[number] = Seen::Within;
    for (name, place) in &rules[number].uses {
        let next = numbers[name];
        match seen[next] {
            Seen::No => visit(next, rules, numbers, seen)?,
            Seen::Within => {
                let what =
                    format!("rule {name} leads back to itself, which is supported in Lark's notation alone");
                return Err(at(*place, &what));
            }
            Seen::Done => {}
        }
    }
    seen[number] = Seen::Done;
    Ok(())
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    place: Place,
    /// Rules that the rule refers to.
    uses: Vec<(String, Place)>,
}

impl Reader<'_> {
    fn wrong<T>(&self, what: &str) -> Result<T, String> {
        Err(at(self.place, what))
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest.next()?;
        self.place = if next == '\n' { (self.place.0 + 1, 1) } else { (self.place.0, self.place.1 + 1) };
        Some(next)
    }

    fn next_if(&mut self, wanted: char) -> bool {
        let is_next = self.rest.peek() == Some(&wanted);
        if is_next {
            self.next();
        }
        is_next
    }

    fn expect(&mut self, wanted: char, what: &str) -> Result<(), String> {
        if self.next_if(wanted) { Ok(()) } else { self.wrong(what) }
    }

    /// Reads over spaces and comments.
    fn space(&mut self, over_lines: bool) {
        while let Some(c) = self.rest.peek() {
            match c {
                ' ' | '\t' => _ = self.next(),
                '\r' | '\n' if over_lines => _ = self.next(),
                '#' => {
                    while self.rest.peek().is_some_and(|c| *c != '\n') {
                        self.next();
                    }
                }
                _ => return,
            }
        }
    }

    fn name(&mut self) -> Result<String, String> {
        let mut name = String::new();
        while let Some(c) =
            self.rest.peek().copied().filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c))
        {
            name.push(c);
            self.next();
        }
        if name.is_empty() { self.wrong("the name of a rule is expected") } else { Ok(name) }
    }

    /// Reads alternatives up to the end of a group or a rule.
    fn alternatives(&mut self, depth: usize) -> Result<Vec<Part>, String> {
        let mut parts = Vec::new();
        loop {
            let count = parts.len();
            while let Some(item) = self.item(depth)? {
                parts.extend(item);
            }
            if parts.len() == count {
                parts.push(Part::Lark("\"\"".into()));
            }
            if !self.next_if('|') {
                return Ok(parts);
            }
            parts.push(Part::Lark("|".into()));
            self.space(true);
        }
    }

    /// Reads a part of a sequence with its repetition; `None` at the end of the sequence.
    fn item(&mut self, depth: usize) -> Result<Option<Vec<Part>>, String> {
        let mut parts = vec![match self.rest.peek() {
            Some('"') => Part::Lark(self.literal()?),
            Some('[') => Part::Lark(self.class()?),
            Some('.') => {
                self.next();
                Part::Lark("/(.|\\n)/".into())
            }
            Some('(') if depth >= MOST_DEPTH => return self.wrong("groups are nested too deep"),
            Some('(') => {
                self.next();
                self.space(true);
                let mut parts = vec![Part::Lark("(".into())];
                parts.extend(self.alternatives(depth + 1)?);
                self.expect(')', "a group that is not closed")?;
                parts.push(Part::Lark(")".into()));
                return self.repeated(parts, depth).map(Some);
            }
            Some('<' | '!') => return self.wrong("tokens are not supported"),
            Some(c) if c.is_ascii_alphanumeric() || "-_".contains(*c) => {
                let place = self.place;
                let name = self.name()?;
                self.uses.push((name.clone(), place));
                Part::Rule(name)
            }
            Some('*' | '+' | '?' | '{') => return self.wrong("there is nothing to repeat"),
            _ => return Ok(None),
        }];
        parts.insert(0, Part::Lark("(".into()));
        parts.push(Part::Lark(")".into()));
        self.repeated(parts, depth).map(Some)
    }

    /// Reads the repetition of a group, if there is one.
    fn repeated(&mut self, mut group: Vec<Part>, depth: usize) -> Result<Vec<Part>, String> {
        self.space(depth > 0);
        let Some(c) = self.operator() else { return Ok(group) };
        self.next();
        match if c == '{' { self.range()? } else { c.to_string() }.as_str() {
            // Lark has no such repetition.
            "{0,0}" => group = vec![Part::Lark("\"\"".into())],
            operator => group.push(Part::Lark(operator.into())),
        }
        self.space(depth > 0);
        match self.operator() {
            None => Ok(group),
            Some(_) => self.wrong("a repetition of a repetition: put the first in parentheses"),
        }
    }

    /// The sign of a repetition, if it is next.
    fn operator(&mut self) -> Option<char> {
        self.rest.peek().copied().filter(|c| "*+?{".contains(*c))
    }

    /// Reads a range of numbers after its brace.
    fn range(&mut self) -> Result<String, String> {
        self.space(false);
        let least = self.number()?;
        self.space(false);
        let most = match self.next_if(',') {
            false => least,
            true => {
                self.space(false);
                self.number()?
            }
        };
        let Some(first) = least.or(most.map(|_| 0)) else {
            return self.wrong("a repetition is {m}, {m,} or {m,n}");
        };
        self.space(false);
        self.expect('}', "a repetition is {m}, {m,} or {m,n}")?;
        match most {
            Some(most) if most < first => self.wrong("a repetition ends before it begins"),
            Some(most) => Ok(format!("{{{first},{most}}}")),
            None => Ok(format!("{{{first},}}")),
        }
    }

    fn number(&mut self) -> Result<Option<u32>, String> {
        let mut number = None;
        while let Some(digit) = self.rest.peek().and_then(|c| c.to_digit(10)) {
            let value = number.unwrap_or(0) * 10 + digit;
            if value > MOST_REPEATS {
                return self.wrong(&format!("a repetition has numbers up to {MOST_REPEATS}"));
            }
            number = Some(value);
            self.next();
        }
        Ok(number)
    }

    /// Reads a string.
    fn literal(&mut self) -> Result<String, String> {
        self.next();
        let mut text = String::new();
        while !self.next_if('"') {
            text.push(self.character("a string that is not closed")?);
        }
        Ok(lark::string(&text))
    }

    /// Reads a class of characters.
    fn class(&mut self) -> Result<String, String> {
        self.next();
        let mut class = if self.next_if('^') { "/[^".to_owned() } else { "/[".to_owned() };
        let begin = class.len();
        while !self.next_if(']') {
            let first = self.character("a class that is not closed")?;
            class += &lark::character(first);
            let mut ahead = self.rest.clone();
            if ahead.next() == Some('-') && ahead.next().is_some_and(|c| c != ']') {
                self.next();
                let last = self.character("a class that is not closed")?;
                if last < first {
                    return self.wrong("a range of characters ends before it begins");
                }
                class += &format!("-{}", lark::character(last));
            }
        }
        if class.len() == begin {
            return self.wrong("a class without characters");
        }
        class.push_str("]/");
        Ok(class)
    }

    /// Reads a character, which may be escaped.
    fn character(&mut self, end: &str) -> Result<char, String> {
        match self.next() {
            None => self.wrong(end),
            Some('\\') => match self.next() {
                Some('n') => Ok('\n'),
                Some('r') => Ok('\r'),
                Some('t') => Ok('\t'),
                Some(c @ ('\\' | '"' | '[' | ']')) => Ok(c),
                Some('x') => self.code(2),
                Some('u') => self.code(4),
                Some('U') => self.code(8),
                _ => self.wrong("an escape that GBNF has not"),
            },
            Some(c) => Ok(c),
        }
    }

    /// Reads so many hexadecimal digits.
    fn code(&mut self, digits: usize) -> Result<char, String> {
        let mut code = 0;
        for _ in 0..digits {
            let Some(digit) = self.rest.peek().and_then(|c| c.to_digit(16)) else {
                return self.wrong(&format!("{digits} hexadecimal digits are expected"));
            };
            code = code * 16 + digit;
            self.next();
        }
        char::from_u32(code).map_or_else(|| self.wrong("an escape that is no character"), Ok)
    }
}

#[cfg(test)]
mod tests {
    use crate::grammar::Grammar;
    use crate::grammar::tests::{accepts_text, words};

    #[test]
    fn a_grammar_means_what_it_means_in_gbnf() {
        let chess = r#"
            # Moves in pairs, as in chess.gbnf.
            root ::= (
                "1. " move " " move "\n"
                # more of them
                ([1-9] [0-9]? ". " move " " move "\n")*
            )
            move ::= (pawn | piece | castle) [+#]?
            pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBQR])?
            piece ::= [NBKQR] [a-h]? "x"? [a-h] [1-8]
            castle ::= "O-O" "-O"?
        "#;
        let list = "root ::= item+\nitem ::= \"- \" [^\\r\\n\\x0b\\u2028]+ \"\\n\"";
        let japanese = "root ::= jp-char+ ([ \\t\\n] jp-char+)*\njp-char ::= hiragana | katakana\n\
                        hiragana ::= [\u{3041}-\u{309f}]\nkatakana ::= [\\u30A1-\\U000030FF]\n";
        let space = "root ::= \"{\" ws \"}\" ws\nws ::= | \" \" | \"\\n\" [ \\t]{0,3}\n";
        // Of these a lexer that takes the longest token would take another.
        let short = "root ::= \"a\" \"ab\" | \"aa\" \"c\" |\n  any{2,} \"-]\"\nany ::= [x\\]-] | .{3}";
        for (grammar, good, bad) in [
            (
                chess,
                vec!["1. e4 e5\n", "1. e4 Nf6\n2. exd5 O-O-O+\n12. Qxd5 a8=Q#\n"],
                vec!["1. e4\n", "1. e4 e5", "e4 e5\n", ""],
            ),
            (
                list,
                vec!["- a\n", "- caf\u{e9} \"\n- b\n"],
                vec!["", "- \n", "-a\n", "- a\n- b", "- a\u{2028}\n"],
            ),
            (
                japanese,
                vec!["\u{3053}\u{30ab}", "\u{3053} \u{30ab}"],
                vec!["a", "\u{3053} ", " \u{3053}", "\u{4e2d}"],
            ),
            (space, vec!["{}", "{ }\n", "{\n\t }"], vec!["{  }", "{\n    }", "{"]),
            (short, vec!["aab", "aac", "]x-]", "a\nb-x]-]"], vec!["aa", "ab", "x-]", "xy-]"]),
            ("root ::= (\"a\"?){2} \"\"", vec!["", "a", "aa"], vec!["aaa", "b"]),
            ("root ::= \"a\"{0} [b]{0,0} \"c\" one{0}\none ::= \"1\"", vec!["c"], vec!["", "ac", "bc", "c1"]),
            (
                "root ::= \"\\x7f\" \"\\x00\\x1b\" | \"\u{7f}\"",
                vec!["\u{7f}\0\u{1b}", "\u{7f}"],
                vec!["", "7f"],
            ),
            // A rule that nothing of the text leads to may be any.
            ("root ::= \"a\"\nother ::= \"(\" other \")\" |", vec!["a"], vec!["()", ""]),
        ] {
            let grammar = Grammar::of_text(grammar).expect("GBNF");
            let mut constraint = words().1.compile(&grammar).expect("a grammar");
            for (texts, expected) in [(good, true), (bad, false)] {
                for text in texts {
                    assert_eq!(accepts_text(&mut constraint, text), expected, "{text:?} by {grammar:?}");
                }
            }
        }
    }

    #[test]
    fn a_grammar_that_cannot_be_is_refused_with_its_place() {
        for (grammar, words) in [
            (
                "root ::= value\nvalue ::= \"[\" (value (\",\" value)*)? \"]\"",
                "line 2, column 16: rule value leads back",
            ),
            (
                "root ::= expr \"=\" expr\nexpr ::= term ([-+*/] term)*\nterm ::= \"x\" | \"(\" expr \")\"",
                "leads back",
            ),
            ("root ::= \"a\" b", "line 1, column 14: there is no rule b"),
            ("root ::= \"a\"\nother ::= b", "line 2, column 11: there is no rule b"),
            ("start ::= \"a\"", "no rule root"),
            ("root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: there is another rule root"),
            ("root ::= \"a", "line 1, column 12: a string that is not closed"),
            ("root ::= [a", "a class that is not closed"),
            ("root ::= []", "a class without characters"),
            ("root ::= [z-a]", "a range of characters"),
            ("root ::= (\"a\"", "a group that is not closed"),
            ("root ::= \"a\")", "a rule ends with its line"),
            ("root ::= * \"a\"", "nothing to repeat"),
            ("root ::= \"a\"{3,2}", "ends before it begins"),
            ("root ::= \"a\"{2001}", "up to 2000"),
            ("root ::= \"a\"{}", "a repetition is"),
            ("root ::= \"\\q\"", "an escape"),
            ("root ::= \"\\uD800\"", "no character"),
            ("root ::= \"\\xZZ\"", "hexadecimal"),
            ("root ::= <think>", "line 1, column 10: tokens"),
            ("root = \"a\" ::=", "a rule is NAME"),
            ("::= \"a\"", "line 1, column 1: the name"),
            ("root ::= \"a\"+?", "a repetition of a repetition"),
        ] {
            let error = Grammar::of_text(grammar).expect_err(grammar);
            assert!(error.contains(words), "{grammar}: {error}");
        }
        let rules: String = (0..1001).map(|n| format!("r{n} ::= r{}\n", n + 1)).collect();
        assert!(Grammar::of_text(&rules).expect_err("many").contains("at most 1000 rules"));
        let deep = format!("root ::= {}", "(".repeat(100_000));
        assert!(Grammar::of_text(&deep).expect_err("deep").contains("too deep"));
    }
}
