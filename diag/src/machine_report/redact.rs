//! Removal of what names a person, a machine or a network from texts of a machine.
//!
//! A number that a driver prints must not be taken for one: addresses of PCI, times and versions stay, and so
//! do the names that installations have by default, which also are words of drivers.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use regex::{Captures, Regex, RegexBuilder};
use serde_json::Value;

/// Names that tell nobody apart: accounts and hosts of default installations.
const COMMON: &[&str] = &[
    "admin",
    "cpu",
    "debian",
    "fedora",
    "gpu",
    "host",
    "jetson",
    "linux",
    "localhost",
    "nixos",
    "nvidia",
    "orin",
    "root",
    "tegra",
    "tegra-ubuntu",
    "test",
    "ubuntu",
    "user",
    "xavier",
];

/// Replacement of a match, or `None` where it is none of the kind.
type Replace = fn(&Captures<'_>) -> Option<String>;

/// Something that is replaced wherever it stands.
struct Rule {
    /// Kind, for counts.
    kind: &'static str,
    pattern: Regex,
    replace: Replace,
}

fn rule(kind: &'static str, pattern: &str, replace: Replace) -> Rule {
    let pattern = RegexBuilder::new(pattern).case_insensitive(true).multi_line(true).build();
    Rule { kind, pattern: pattern.expect("tests compile every rule"), replace }
}

/// Keeps the first group, and replaces the rest.
fn after_first(found: &Captures<'_>, by: &str) -> Option<String> {
    Some(format!("{}[{by}]", &found[1]))
}

fn ipv4(found: &Captures<'_>) -> Option<String> {
    let address: Ipv4Addr = found[0].parse().ok()?;
    (!address.is_loopback() && !address.is_unspecified()).then(|| "[ip]".to_owned())
}

fn ipv6(found: &Captures<'_>) -> Option<String> {
    let text = found[0].trim_end_matches(['.', ':']);
    // A name and a colon may stand before it.
    let mut starts = std::iter::once(0).chain(text.match_indices(':').map(|(at, _)| at + 1));
    let (at, address) = starts.find_map(|at| Some((at, text[at..].parse::<Ipv6Addr>().ok()?)))?;
    // `a::b` is a name of C++ rather.
    let is_name = !text.contains(|c: char| c.is_ascii_digit()) && text.matches(':').count() < 4;
    let is_own = address.is_loopback() || address.is_unspecified();
    (!is_own && !is_name).then(|| format!("{}[ip]{}", &found[0][..at], &found[0][text.len()..]))
}

/// A serial number has several digits; a word behind `serial` has none.
fn serial(found: &Captures<'_>) -> Option<String> {
    let digits = found[2].bytes().filter(u8::is_ascii_digit).count();
    (digits >= 4).then(|| format!("{}[serial]", &found[1]))
}

/// `user@host`, which a node of the device tree such as `gpu@17000000` resembles.
fn account(found: &Captures<'_>) -> Option<String> {
    let is_unit = found[1].bytes().all(|b| b.is_ascii_hexdigit());
    (!is_unit).then(|| "[account]".to_owned())
}

/// In this order: what comes first may hold what comes later.
static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    vec![
        rule(
            "command line",
            r"(command line:|command line parameters\b|\b(?:proctitle|cmdline|COMMAND|BOOT_IMAGE)=|\baudit: type=(?:1309|1327)\b)[^\n]*\S",
            |found| after_first(found, "command line"),
        ),
        rule("home folder", r#"(/(?:home|Users|run/media|media)/)[^/\s"':,;)\[\]][^/\s"':,;)\]]*"#, |f| {
            after_first(f, "user")
        }),
        rule(
            "serial number",
            r#"(\bserial(?:[ _-]?(?:number|num|no)\b\.?["']?\s*[:=]?|\s*=)\s*["']?|\b(?:ecid|s/n)["']?\s*[:=]\s*["']?|\bserialno=)\w[^\s"',;\[]*"#,
            |found| after_first(found, "serial"),
        ),
        rule(
            "serial number",
            r#"(\b(?:serial#?|sn|s/n|service tag)["']?\s*[:=]?\s*["']?)(\w[\w-]{5,})"#,
            serial,
        ),
        rule("serial number", r"(\becid\b\s*[:=]?\s*)(?:0x)?[0-9a-f]{8,}", |f| after_first(f, "serial")),
        rule("secret", r"(\bauthorization:\s*\w+\s+|\bbearer\s+)\S+", |f| after_first(f, "secret")),
        rule("secret", r"(\b\w*(?:password|passwd|secret|token|api[_-]?key|privkey)\s*[=:]\s*)\S+", |f| {
            after_first(f, "secret")
        }),
        rule("secret", r"\b(?:gh[opsu]_\w{8,}|akia[0-9a-z]{16}|eyj[\w.-]{20,})", |_| {
            Some("[secret]".to_owned())
        }),
        rule("account", r"(://)[^/\s:@]+:[^/\s@]+@", |found| Some(format!("{}[account]@", &found[1]))),
        rule("identity", r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", |_| {
            Some("[uuid]".to_owned())
        }),
        rule("identity", r"\b(?:naa|eui|wwn)[.:=\s-]{0,2}(?:0x)?[0-9a-f]{16,}\b|\b[0-9a-f]{32}\b", |_| {
            Some("[id]".to_owned())
        }),
        rule("MAC address", r"\b(?:[0-9a-f]{2}[:-]){5,}[0-9a-f]{2}\b", |_| Some("[mac]".to_owned())),
        rule("MAC address", r"\b(?:[0-9a-f]{4}\.){2}[0-9a-f]{4}\b", |_| Some("[mac]".to_owned())),
        rule("IP address", r"\b(?:\d{1,3}\.){3}\d{1,3}\b", ipv4),
        rule("IP address", r"[\w.]*:[\w.]*:[\w.:]*", ipv6),
        rule("account", r"\b[\w.+-]+@([a-z0-9][\w-]*(?:\.[\w-]+)*)", account),
        rule("host name", r"(\bnfs: server )\S+", |found| after_first(found, "host")),
    ]
});

/// Replaces what is private, and counts it.
#[derive(Debug, Default)]
pub struct Redactor {
    /// Names of users and hosts, as whole words.
    names: Option<Regex>,
    /// How many of each kind were replaced.
    counts: BTreeMap<&'static str, u64>,
}

impl Redactor {
    /// One that also replaces these names of users and hosts, but for those that every machine may have.
    #[must_use]
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut names: Vec<&str> = names
            .into_iter()
            .map(str::trim)
            // A number or a letter names nobody, and would be found everywhere.
            .filter(|name| name.len() > 1 && name.contains(char::is_alphabetic))
            .filter(|name| !COMMON.contains(&name.to_ascii_lowercase().as_str()))
            .collect();
        // Of several that fit the longest is taken.
        names.sort_unstable_by_key(|name| (std::cmp::Reverse(name.len()), *name));
        names.dedup();
        let any: Vec<String> = names.iter().map(|name| regex::escape(name)).collect();
        let pattern = format!(r"\b{{start-half}}(?:{})\b{{end-half}}", any.join("|"));
        let pattern = RegexBuilder::new(&pattern).case_insensitive(true).multi_line(true).build();
        Self { names: pattern.ok().filter(|_| !any.is_empty()), counts: BTreeMap::new() }
    }

    /// The text without what is private.
    pub fn text(&mut self, text: &str) -> String {
        // Line by line: patterns search a text of many megabytes over and over.
        text.split_inclusive('\n').map(|line| self.line(line)).collect()
    }

    fn line(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        let Self { names, counts } = self;
        let name: Replace = |_| Some("[name]".to_owned());
        let rules = RULES.iter().map(|rule| (rule.kind, &rule.pattern, rule.replace));
        for (kind, pattern, replace) in rules.chain(names.as_ref().map(|names| ("name", names, name))) {
            let mut count = 0;
            let replaced = pattern.replace_all(&text, |found: &Captures<'_>| {
                let whole = found[0].to_owned();
                let replacement = replace(found).unwrap_or_else(|| whole.clone());
                count += u64::from(replacement != whole);
                replacement
            });
            text = replaced.into_owned();
            if count > 0 {
                *counts.entry(kind).or_default() += count;
            }
        }
        text
    }

    /// The document, whose texts are without what is private.
    pub fn json(&mut self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(values) => values.into_iter().map(|value| self.json(value)).collect(),
            Value::Object(fields) => {
                fields.into_iter().map(|(name, value)| (name, self.json(value))).collect()
            }
            other => other,
        }
    }

    /// How many of each kind were replaced.
    #[must_use]
    pub fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAMES: [&str; 4] = ["alice", "rack7.example", "rack7", "nvidia"];

    fn redacted(text: &str) -> String {
        Redactor::new(NAMES).text(text)
    }

    #[test]
    fn what_names_a_person_a_machine_or_a_network_is_replaced() {
        for (line, left) in [
            ("systemd[1]: Hostname set to <rack7>.", "systemd[1]: Hostname set to <[name]>."),
            ("Jan  2 03:04:05 rack7 kernel: NVRM: x", "Jan  2 03:04:05 [name] kernel: NVRM: x"),
            ("mail from Alice, alice's, uid=1000(alice)", "mail from [name], [name]'s, uid=1000([name])"),
            ("rack7.example rack7 rack7.examples", "[name] [name] [name].examples"),
            ("alicealice alices malice", "alicealice alices malice"),
            ("open /home/bob/model.gguf failed", "open /home/[user]/model.gguf failed"),
            ("FAT-fs (sda1): /media/bob/KEY", "FAT-fs (sda1): /media/[user]/KEY"),
            ("/home/nvidia: /run/media/nvidia/x", "/home/[user]: /run/media/[user]/x"),
            ("eth0: link up, 48:b0:2d:01:02:03", "eth0: link up, [mac]"),
            (
                "IN=eth0 MAC=48:b0:2d:01:02:03:aa:bb:cc:dd:ee:ff:08:00 SRC=10.1.2.3 DST=fe80::1",
                "IN=eth0 MAC=[mac] SRC=[ip] DST=[ip]",
            ),
            ("martian 192.168.1.7 from 8.8.8.8, on dev", "martian [ip] from [ip], on dev"),
            ("[2001:db8::17]:443 peer:fd00::2. done", "[[ip]]:443 peer:[ip]. done"),
            ("NVRM: GPU Board Serial Number: 1650522012345", "NVRM: GPU Board Serial Number: [serial]"),
            ("usb 1-1: SerialNumber: 60A44C41", "usb 1-1: SerialNumber: [serial]"),
            ("tegra: serial=0423618012345, s/n: A1B2", "tegra: serial=[serial], s/n: [serial]"),
            (
                "mmc0: serial 0x1a2b3c4d, SN: 1421122077777, Serial: S4EWNX0R1234",
                "mmc0: serial [serial], SN: [serial], Serial: [serial]",
            ),
            ("ECID 0x80012344705e6f, wwn 0x5002538e40b1c2d3", "ECID [serial], [id]"),
            ("switch 48b0.2daa.bbc3", "switch [mac]"),
            (
                "Authorization: Bearer abc.def --token=tok_123",
                "Authorization: Bearer [secret] --token=[secret]",
            ),
            ("PASSWORD=hunter2 ghp_0123456789abcdef", "PASSWORD=[secret] [secret]"),
            ("clone https://bob:pw@example.org/x", "clone https://[account]@example.org/x"),
            ("GPU UUID: \t GPU-0f1e2d3c-1111-2222-3333-0123456789ab", "GPU UUID: \t GPU-[uuid]"),
            ("machine 0123456789abcdef0123456789abcdef nvme eui.0025388b11b4c6d7", "machine [id] nvme [id]"),
            ("Kernel command line: root=/dev/x quiet secret=1", "Kernel command line:[command line]"),
            ("audit: type=1327 audit(1.2:3): proctitle=2F62696E", "audit: type=1327[command line]"),
            ("Linux version 6.8 (bob@builder.example.org) (gcc", "Linux version 6.8 ([account]) (gcc"),
            ("nfs: server files.example not responding", "nfs: server [host] not responding"),
        ] {
            assert_eq!(redacted(line), left);
        }
    }

    #[test]
    fn what_a_driver_prints_stays() {
        for line in [
            "NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            "nvgpu: 17000000.gpu gk20a_fifo_handle_mmu_fault_locked:1 [ERR] fault_addr = 0xfe00001234",
            "pcieport 0000:00:01.1: AER: Corrected error received: 0000:00:01.1",
            "Serial: 8250/16550 driver, 4 ports; 3100000.serial: ttyTHS1 at MMIO 0x3100000",
            "of: /bus@0/gpu@17000000 tegra-mc@2c00000 hsp@b950000: probed at 12:34:56.789012",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build",
            "lo: 127.0.0.1, ::1, 0.0.0.0, std::vector<a::b>, [   12.345678] nvidia-uvm: loaded",
            "0000:65:00.0: 0x0000001a 00 01 02 03 04 05 06 07 aa bb cc dd ee ff",
        ] {
            assert_eq!(redacted(line), line);
        }
    }

    #[test]
    fn texts_of_documents_are_redacted_and_counted() {
        let mut redactor = Redactor::new(NAMES);
        let value = serde_json::json!({ "a": ["/home/bob/x", 1], "b": { "c": "alice 10.0.0.1" } });
        let left = serde_json::json!({ "a": ["/home/[user]/x", 1], "b": { "c": "[name] [ip]" } });
        assert_eq!(redactor.json(value), left);
        let counts: Vec<_> = redactor.counts().iter().map(|(kind, count)| (*kind, *count)).collect();
        assert_eq!(counts, [("IP address", 1), ("home folder", 1), ("name", 1)]);
    }

    proptest! {
        #[test]
        fn no_private_word_is_left(
            name in "[a-z][a-z0-9_-]{1,12}[a-z0-9]",
            mac in prop::collection::vec("[0-9a-f]{2}", 6),
            v4: [u8; 4],
            v6: [u16; 8],
            serial in "[A-Z0-9]{8,14}",
            between in "[ ,;=<>()'\"\n]",
            words in prop::collection::vec("[a-z:.0-9]{0,8}", 6),
        ) {
            prop_assume!(!COMMON.contains(&name.as_str()) && v4[0] != 127 && v4 != [0; 4]);
            prop_assume!(!["name", "home", "serial", "number", "mac", "user", "ip"].contains(&name.as_str()));
            // Addresses of 1000 and more in every group: none that a text would hold by chance.
            let v6 = Ipv6Addr::from(v6.map(|group| group | 0x1000)).to_string();
            let (mac, v4) = (mac.join(":"), Ipv4Addr::from(v4).to_string());
            let secrets = [name.as_str(), &mac, &v4, &v6, &serial];
            let mut text = String::new();
            for (secret, word) in secrets.iter().zip(&words) {
                let before = if *secret == serial { "Serial Number: " } else { "" };
                text += &format!("{word}{between} {before}{secret}{between} ");
            }
            text += &format!("/home/{name}/{}", words[5]);
            let left = Redactor::new([name.as_str()]).text(&text);
            for secret in [mac.as_str(), &v4, &v6, &serial] {
                prop_assert!(!left.contains(secret), "{secret} in {left}");
            }
            let is_word = |found: usize| {
                let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
                !is_part(left[..found].chars().next_back()) && !is_part(left[found + name.len()..].chars().next())
            };
            prop_assert!(!left.match_indices(name.as_str()).any(|(at, _)| is_word(at)), "{name} in {left}");
            prop_assert_eq!(Redactor::new([name.as_str()]).text(&left), left);
        }
    }
}
