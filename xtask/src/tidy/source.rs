//! Lints over single files.

use super::Text;

/// Above this a file is refused; tests may be longer.
const LINES_MAX: usize = 1000;
/// Above this it is named, so that someone thinks twice.
const LINES_LONG: usize = 600;

fn rust(texts: &[Text]) -> impl Iterator<Item = &Text> {
    texts.iter().filter(|text| text.path.ends_with(".rs"))
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("_tests.rs")
}

/// Lines, not counting a module of unit tests at the end.
fn code_lines(text: &str) -> usize {
    let end = text.find("\n#[cfg(test)]\nmod ").unwrap_or(text.len());
    text[..end].lines().count()
}

pub(super) fn lengths(texts: &[Text]) -> Vec<String> {
    rust(texts)
        .filter(|text| !is_test(&text.path))
        .map(|text| (text, code_lines(&text.text)))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(text, lines)| format!("{}: {lines} lines, {LINES_MAX} at most", text.path))
        .collect()
}

/// Not a failure: files that ask for a second thought.
pub(super) fn long_files(texts: &[Text]) -> Vec<String> {
    rust(texts)
        .filter(|text| !is_test(&text.path))
        .map(|text| (text, code_lines(&text.text)))
        .filter(|(_, lines)| (LINES_LONG + 1..=LINES_MAX).contains(lines))
        .map(|(text, lines)| format!("{}: {lines} lines; could it be two files?", text.path))
        .collect()
}

pub(super) fn heads(texts: &[Text]) -> Vec<String> {
    rust(texts)
        .filter(|text| !text.text.starts_with("//!"))
        .map(|text| format!("{}:1: does not say with `//!` what it is", text.path))
        .collect()
}

/// Where each needle stands, as complaints. Needles are spelled in two parts here, so that this file does not complain of itself.
fn find(texts: &[Text], wanted: impl Fn(&str) -> bool, needles: &[(&str, &str)]) -> Vec<String> {
    let mut complaints = Vec::new();
    for text in texts.iter().filter(|text| wanted(&text.path)) {
        for (number, line) in text.text.lines().enumerate() {
            for (first, second) in needles {
                let needle = format!("{first}{second}");
                if line.contains(&needle) {
                    complaints.push(format!("{}:{}: `{needle}`", text.path, number + 1));
                }
            }
        }
    }
    complaints
}

pub(super) fn unfinished(texts: &[Text]) -> Vec<String> {
    let needles = [
        ("todo", "!("),
        ("unimplemented", "!("),
        ("#[ig", "nore"),
        ("FIX", "ME"),
        ("XX", "X "),
    ];
    find(texts, |path| path.ends_with(".rs"), &needles)
}

pub(super) fn machine_paths(texts: &[Text]) -> Vec<String> {
    let needles = [
        ("/wo", "rk/"),
        ("/ro", "ot/"),
        ("/tmp/", "glint/"),
        ("/home", "/"),
    ];
    find(texts, |path| path != "Cargo.lock", &needles)
}

/// The flash layer and the memtable; the bindings later.
pub(super) fn unsafe_places(texts: &[Text]) -> Vec<String> {
    let allowed = |path: &str| {
        [
            "crates/flash/",
            "crates/cache/",
            "crates/bench-peers/",
            "bindings/",
        ]
        .iter()
        .any(|place| path.starts_with(place))
            || path.contains("memtable")
    };
    find(
        texts,
        |path| path.ends_with(".rs") && !allowed(path),
        &[("allow(uns", "afe_code"), ("    uns", "afe_code,")],
    )
}

pub(super) fn whitespace(texts: &[Text]) -> Vec<String> {
    let kinds = [".rs", ".md", ".toml", ".py", ".sh", "/run"];
    let mut complaints = Vec::new();
    for text in texts
        .iter()
        .filter(|text| kinds.iter().any(|kind| text.path.ends_with(kind)))
    {
        for (number, line) in text.text.lines().enumerate() {
            if line.ends_with([' ', '\t', '\r']) && !line.trim().is_empty() {
                complaints.push(format!("{}:{}: space at the end", text.path, number + 1));
            }
        }
        if !text.text.is_empty() && !text.text.ends_with('\n') {
            complaints.push(format!("{}: no newline at the end", text.path));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(path: &str, text: &str) -> Vec<Text> {
        vec![Text {
            path: path.into(),
            text: text.into(),
        }]
    }

    #[test]
    fn long_files_are_refused_and_their_tests_not_counted() {
        let code = "//! x\n".repeat(1001);
        assert_eq!(lengths(&one("crates/a/src/b.rs", &code)).len(), 1);
        assert_eq!(lengths(&one("crates/a/tests/b.rs", &code)).len(), 0);
        let tested = format!("//! x\n\n#[cfg(test)]\nmod tests {{\n{code}}}\n");
        assert_eq!(lengths(&one("crates/a/src/b.rs", &tested)).len(), 0);
    }

    #[test]
    fn missing_heads_unfinished_work_and_machine_paths_are_named_with_their_line() {
        assert_eq!(heads(&one("a.rs", "use x;\n")).len(), 1);
        let text = format!("//! x\nfn f() {{ {}!() }}\n", "todo");
        assert!(unfinished(&one("a.rs", &text))[0].starts_with("a.rs:2: "));
        let text = format!("see {}x\n", "/wo".to_string() + "rk/");
        assert!(machine_paths(&one("docs/a.md", &text))[0].starts_with("docs/a.md:1: "));
    }

    #[test]
    fn unsafe_is_named_outside_the_flash_layer() {
        let text = format!("//! x\n#![allow({}_code, reason = \"\")]\n", "unsafe");
        assert_eq!(unsafe_places(&one("crates/log/src/a.rs", &text)).len(), 1);
        assert_eq!(unsafe_places(&one("crates/flash/src/a.rs", &text)).len(), 0);
    }
}
