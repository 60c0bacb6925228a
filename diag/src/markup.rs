//! Text as it stands in XML and HTML: escaped, and without the characters that neither may hold.

use std::fmt;

/// Text for elements and for attributes in double quotes. What XML forbids (control characters, U+FFFE and
/// U+FFFF), and what turns the direction of the text around it, becomes U+FFFD; line ends and tabs become
/// spaces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'a>(pub(crate) &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\t' | '\n' | '\r' => f.write_char(' ')?,
                '\u{fffe}' | '\u{ffff}' | '\u{200e}' | '\u{200f}' => f.write_char('\u{fffd}')?,
                c if nv_hw::is_obeyed(c) => f.write_char('\u{fffd}')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// A sentence as HTML: what stands between backticks is code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prose<'a>(pub(crate) &'a str);

impl fmt::Display for Prose<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some((before, (code, after))) =
            rest.split_once('`').and_then(|(before, rest)| Some((before, rest.split_once('`')?)))
        {
            write!(f, "{}<code>{}</code>", Text(before), Text(code))?;
            rest = after;
        }
        write!(f, "{}", Text(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::{Prose, Text};

    #[test]
    fn what_stands_between_backticks_is_code() {
        let code = Prose("run `a <b>` or `c`, not ` alone").to_string();
        assert_eq!(code, "run <code>a &lt;b&gt;</code> or <code>c</code>, not ` alone");
    }

    #[test]
    fn nothing_of_a_text_is_markup() {
        let hostile = "</text><script a='1' b=\"2\">&amp;\0\u{1b}[0m\u{202e}\n";
        let escaped = Text(hostile).to_string();
        assert_eq!(
            escaped,
            "&lt;/text&gt;&lt;script a=&#39;1&#39; b=&quot;2&quot;&gt;&amp;amp;\u{fffd}\u{fffd}[0m\u{fffd} "
        );
    }
}
