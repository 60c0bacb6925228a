//! Times of lines, in the forms that tools print them.

use std::fmt;

/// Zero of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The kernel's start.
    Boot,
    /// Midnight of an unknown day; of 31 December before a date without a year; or the Unix epoch.
    Wall,
}

/// Time of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    /// Microseconds.
    pub micros: u64,
    /// Resolution, in microseconds.
    pub grain: u64,
    /// Since when.
    pub clock: Clock,
}

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

impl Time {
    const fn since_boot(micros: u64) -> Self {
        Self { micros, grain: 1, clock: Clock::Boot }
    }

    /// Whether another line is close enough to belong to the same fault: 50 ms, or the grain of the clock.
    #[must_use]
    pub fn is_near(self, other: Self) -> bool {
        self.is_within(other, 50_000)
    }

    /// Whether another time is at most `micros` away, or the grain of a clock. Times of two clocks are not.
    #[must_use]
    pub fn is_within(self, other: Self, micros: u64) -> bool {
        let gap = micros.max(self.grain).max(other.grain);
        self.clock == other.clock && self.micros.abs_diff(other.micros) <= gap
    }
}

/// `812.004113 s` since boot; `16:42:53`, `Jun 24 16:42:53` or `2026-06-24 16:42:53` of a clock.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.micros / SECOND;
        if self.clock == Clock::Boot {
            return write!(f, "{seconds}.{:06} s", self.micros % SECOND);
        }
        match self.micros / DAY {
            0 => {}
            day @ 1..=366 => {
                let (_, month, day) = date(day - 1 + days(1972, 1, 1));
                write!(f, "{} {day} ", MONTHS[month as usize - 1])?;
            }
            day => {
                let (year, month, day) = date(day);
                write!(f, "{year}-{month:02}-{day:02} ")?;
            }
        }
        write!(f, "{:02}:{:02}:{:02}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
    }
}

/// Days from the Unix epoch to a date from 1970 on (proleptic Gregorian calendar).
const fn days(year: u64, month: u64, day: u64) -> u64 {
    // Years begin in March, so that the leap day is the last of one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// Year, month and day of a day since the Unix epoch.
const fn date(days: u64) -> (u64, u64, u64) {
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (year, month) =
        if month < 10 { (era * 400 + year, month + 3) } else { (era * 400 + year + 1, month - 9) };
    (year, month, day)
}

/// Takes the time off the start of a line: `[  812.004113] `, `[Wed Jun 24 15:44:20 2026] `, syslog's
/// `Feb 15 17:37:45 host kernel: ` with or without the first form behind it, `/dev/kmsg`'s
/// `6,1234,812004113,-;`, a priority `<3>`, the level of `dmesg -x`, the times of `dmesg -d`, `-e` and
/// `--time-format iso`, and those of Talos, `kern: err: [2026-06-24T15:44:20.1Z]: `.
pub(super) fn timestamp(line: &str) -> (Option<Time>, &str) {
    let line = line.trim_start();
    if let Some((header, text)) = line.split_once(';') {
        let mut fields = header.split(',');
        let number = |field: Option<&str>| field.filter(|f| f.len() <= 20)?.parse::<u64>().ok();
        if let (Some(_), Some(_), Some(micros)) =
            (number(fields.next()), number(fields.next()), number(fields.next()))
        {
            return (Some(Time::since_boot(micros)), text);
        }
    }
    let line = match line.strip_prefix('<').and_then(|l| l.split_once('>')) {
        Some((priority, text)) if priority.len() <= 4 && priority.bytes().all(|b| b.is_ascii_digit()) => text,
        _ => line,
    };
    let line = without_level(without_node(line));
    // `dmesg -e` and `-H` give most lines the time since the one before alone.
    if let Some((since, text)) = line.strip_prefix("[").and_then(|l| l.split_once(']'))
        && since.trim_start().starts_with('+')
    {
        return (None, text.trim_start());
    }
    if let Some((first, text)) = line.split_once(' ')
        && first.len() >= 19
        && first.as_bytes().get(10) == Some(&b'T')
        && !line.contains(" kernel: ")
    {
        return (of_calendar(first), text);
    }
    if let Some(time) = bracketed(line) {
        let rest = line.split_once(']').map_or("", |(_, rest)| rest.trim_start());
        return (Some(time), rest.strip_prefix(": ").unwrap_or(rest));
    }
    if let Some((before, after)) = line.split_once(" kernel: ") {
        let inside = bracketed(after);
        let rest = inside.and_then(|_| after.split_once(']')).map_or(after, |(_, rest)| rest.trim_start());
        return (inside.or_else(|| of_calendar(before)), rest);
    }
    (None, line)
}

/// The time in brackets at the start of a text.
fn bracketed(text: &str) -> Option<Time> {
    let inner = text.strip_prefix('[')?.split_once(']')?.0;
    // `dmesg -d` adds the time since the line before.
    let inner = inner.split_once('<').map_or(inner, |(time, _)| time).trim();
    let since_boot = inner.split_once('.').filter(|(seconds, _)| seconds.bytes().all(|b| b.is_ascii_digit()));
    match since_boot {
        Some((seconds, fraction)) if fraction.len() == 6 => {
            let seconds: u64 = seconds.parse().ok()?;
            let micros = seconds.checked_mul(SECOND)?.checked_add(fraction.parse().ok()?)?;
            // Since the Unix epoch, as collectors of logs have it.
            let clock = if seconds > 1_000_000_000 { Clock::Wall } else { Clock::Boot };
            Some(Time { clock, ..Time::since_boot(micros) })
        }
        Some(_) => None,
        None => of_calendar(inner),
    }
}

/// A line without the address of a node that `talosctl` puts in front, `10.5.0.2: kern: `.
fn without_node(line: &str) -> &str {
    match line.split_once(": ") {
        Some((node, rest)) if rest.starts_with("kern:") && node.contains('.') && !node.contains(' ') => rest,
        _ => line,
    }
}

/// A line without the facility and level that `dmesg -x` puts in front, `kern  :err   : `.
fn without_level(line: &str) -> &str {
    const FACILITIES: [&str; 5] = ["kern", "user", "daemon", "syslog", "local0"];
    let rest = |facility: &&str| {
        let (level, text) = line.strip_prefix(*facility)?.trim_start().strip_prefix(':')?.split_once(':')?;
        let level = level.trim();
        (level.bytes().all(|b| b.is_ascii_lowercase()) && level.len() <= 8).then(|| text.trim_start())
    };
    FACILITIES.iter().find_map(rest).unwrap_or(line)
}

/// The first `hh:mm:ss` in `text`, with the date before it or the year behind it.
fn of_calendar(text: &str) -> Option<Time> {
    let mut parts = text.split([' ', 'T']).filter(|part| !part.is_empty()).peekable();
    let (mut year, mut month, mut day) = (None, None, None);
    let clock = parts.by_ref().find(|part| {
        let mut fields = part.split('-').map(|field| field.parse::<u64>().ok());
        if let (Some(Some(y)), Some(Some(m)), Some(Some(d))) = (fields.next(), fields.next(), fields.next()) {
            (year, month, day) = (Some(y), Some(m), Some(d));
        }
        if let Some(at) = MONTHS.iter().position(|name| name == part) {
            month = Some(at as u64 + 1);
        }
        if let Ok(number) = part.parse::<u64>()
            && number <= 31
        {
            day = Some(number);
        }
        part.split(':').count() >= 3
    })?;
    if let Some(number) = parts.next().and_then(|part| part.parse::<u64>().ok()) {
        year = year.or(Some(number));
    }
    let mut fields = clock.split(':').map(|field| field.get(..2)?.parse::<u64>().ok());
    let (hours, minutes, seconds) = (fields.next()??, fields.next()??, fields.next()??);
    if hours > 24 || minutes > 59 || seconds > 60 {
        return None;
    }
    let year = year.filter(|year| (1972..=9999).contains(year));
    let date = month.filter(|m| (1..=12).contains(m)).zip(day.filter(|d| (1..=31).contains(d)));
    let days = match (date, year) {
        (None, _) => 0,
        (Some((month, day)), Some(year)) => days(year, month, day),
        (Some((month, day)), None) => 1 + days(1972, month, day) - days(1972, 1, 1),
    };
    let (fraction, grain) = fraction(clock).unwrap_or((0, SECOND));
    let micros = days * DAY + (hours * 3600 + minutes * 60 + seconds) * SECOND + fraction;
    Some(Time { micros, grain, clock: Clock::Wall })
}

/// The fraction of a second behind `hh:mm:ss` in microseconds, and its resolution.
fn fraction(clock: &str) -> Option<(u64, u64)> {
    let (_, digits) = clock.split_once(['.', ','])?;
    let length = digits.bytes().take_while(u8::is_ascii_digit).count().min(6);
    let grain = 10u64.pow(6 - u32::try_from(length).ok()?);
    Some((digits[..length].parse::<u64>().ok()? * grain, grain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> String {
        timestamp(line).0.map_or("none".to_owned(), |time| time.to_string())
    }

    #[test]
    fn a_time_is_shown_as_the_log_has_it() {
        for (line, expected) in [
            ("[  812.004113] x", "812.004113 s"),
            ("[  812.004113 <    0.000012>] x", "812.004113 s"),
            ("3,12,812004113,-;x", "812.004113 s"),
            ("[Wed Jun 24 15:44:20 2026] x", "2026-06-24 15:44:20"),
            ("Feb  5 17:37:45 host kernel: x", "Feb 5 17:37:45"),
            ("Dec 31 23:59:59 host kernel: x", "Dec 31 23:59:59"),
            ("Feb 29 00:00:00 host kernel: x", "Feb 29 00:00:00"),
            ("2026-11-01T00:00:20,123456+00:00 x", "2026-11-01 00:00:20"),
            ("10.5.0.2: kern:     err: [2026-11-01T00:00:20.123456789Z]: x", "2026-11-01 00:00:20"),
            ("kern  :err   : [  812.004113] x", "812.004113 s"),
            ("[16:42:53] x", "16:42:53"),
            ("[1773479619.100000] x", "2026-03-14 09:13:39"),
            ("[99:99:99] x", "none"),
            ("x", "none"),
        ] {
            assert_eq!(shown(line), expected, "{line}");
        }
        assert_eq!(timestamp("10.5.0.2: kern: err: [2026-11-01T00:00:20Z]: x").1, "x");
    }

    #[test]
    fn days_are_counted_as_the_calendar_does() {
        for (year, month, day, expected) in
            [(1970, 1, 1, 0), (1972, 2, 29, 789), (2000, 3, 1, 11_017), (2026, 11, 27, 20_784)]
        {
            assert_eq!(days(year, month, day), expected);
            assert_eq!(date(expected), (year, month, day));
        }
    }
}
