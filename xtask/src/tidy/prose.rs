//! Lints over prose: the width of pages and comments, doc comments that say nothing, and the length
//! of commit subjects (STYLE.md, "Plain English").
//!
//! Offences that older files still have are counted. A count must not rise; [`notes`] says when one
//! has fallen, so that its limit is lowered. Pages that still have long lines are listed in
//! [`WIDE`]. A page leaves that list as soon as its lines fit, and none is added.

use super::Text;
use crate::run;
use std::process::Command;

/// Columns of a line of Markdown prose.
const PAGE_COLUMNS_MAX: usize = 120;
/// Columns of a comment line in Rust.
const COMMENT_COLUMNS_MAX: usize = 100;
/// Characters of a commit's subject.
const SUBJECT_CHARS_MAX: usize = 72;

/// Comment lines over [`COMMENT_COLUMNS_MAX`] in the repository.
const LONG_COMMENTS: usize = 1299;
/// Comments that refer to their module instead of describing their item.
const REFERRALS: usize = 27;
/// Doc comments that are no sentence: they go on with the sentence of the item before, or do not
/// end.
const FRAGMENTS: usize = 86;
/// Commits with a subject over [`SUBJECT_CHARS_MAX`]. History does not change, so this count cannot
/// fall.
const LONG_SUBJECTS: usize = 179;

/// Spelled in two parts, so that this file does not count itself.
const REFERRAL: (&str, &str) = ("See the ", "module");

/// Pages that still have lines over [`PAGE_COLUMNS_MAX`].
const WIDE: &[&str] = &[
    "docs/decisions/001-log-write-path.md",
    "docs/decisions/002-memtable.md",
    "docs/decisions/003-io.md",
    "docs/decisions/004-lsm-shape.md",
    "docs/decisions/005-server.md",
    "docs/decisions/006-engine.md",
    "docs/decisions/007-models.md",
    "docs/decisions/009-histories.md",
    "docs/decisions/010-relocation.md",
    "docs/decisions/012-pinned-levels.md",
    "docs/decisions/013-merge.md",
    "docs/decisions/014-commit-contention.md",
    "docs/decisions/016-level-sizes.md",
    "docs/decisions/017-advise.md",
    "docs/decisions/019-hot-writes.md",
    "docs/decisions/020-values-in-key-order.md",
    "docs/decisions/021-tails.md",
    "docs/decisions/023-hot-keys.md",
    "docs/decisions/024-range-cache.md",
    "docs/decisions/025-recycled-files.md",
    "docs/decisions/026-compaction-for-scans.md",
    "docs/decisions/027-order-for-scans.md",
    "docs/decisions/028-cache-memory.md",
    "docs/decisions/029-cached-by-key.md",
    "docs/decisions/030-cache-written.md",
    "docs/format/log.md",
    "docs/format/manifest.md",
    "docs/format/media.md",
    "docs/format/reserve.md",
    "docs/format/table.md",
    "docs/protocol-tests.md",
    "docs/reliability.md",
    "docs/reliability/bugs.md",
    "docs/reliability/corruption.md",
    "docs/reliability/fuzzing.md",
    "docs/reliability/kernel.md",
    "docs/reliability/seeded-bugs.md",
];

/// Every page is narrow, or is listed in [`WIDE`] and not yet narrow.
pub(super) fn page_lines(texts: &[Text]) -> Vec<String> {
    let pages = || texts.iter().filter(|text| text.path.ends_with(".md"));
    let mut complaints = Vec::new();
    for page in pages() {
        let long = long_lines(&page.text);
        match (WIDE.contains(&&*page.path), long.is_empty()) {
            (true, true) => complaints.push(format!(
                "{}: all lines fit now; remove it from WIDE in xtask/src/tidy/prose.rs",
                page.path
            )),
            (true, false) => {}
            (false, _) => complaints.extend(long.into_iter().map(|(number, columns)| {
                format!(
                    "{}:{number}: {columns} columns, {PAGE_COLUMNS_MAX} at most",
                    page.path
                )
            })),
        }
    }
    let gone = WIDE
        .iter()
        .filter(|path| !pages().any(|page| page.path == **path));
    complaints.extend(gone.map(|path| format!("{path}: in WIDE, but there is no such page")));
    complaints
}

/// Number and columns of each long line outside tables and code blocks.
fn long_lines(page: &str) -> Vec<(usize, usize)> {
    let mut long = Vec::new();
    let mut in_code = false;
    for (index, line) in page.lines().enumerate() {
        let text = line.trim_start();
        if text.starts_with("```") {
            in_code = !in_code;
        } else if !in_code && !text.starts_with('|') {
            let columns = line.chars().count();
            if columns > PAGE_COLUMNS_MAX {
                long.push((index + 1, columns));
            }
        }
    }
    long
}

fn comment_lines(texts: &[Text]) -> impl Iterator<Item = &str> {
    let sources = texts.iter().filter(|text| text.path.ends_with(".rs"));
    let lines = sources.flat_map(|text| text.text.lines());
    lines.filter(|line| line.trim_start().starts_with("//"))
}

/// Comment lines that are too long. Rows of tables in doc comments cannot be wrapped and do not
/// count.
fn long_comment_count(texts: &[Text]) -> usize {
    let is_row = |line: &str| {
        let text = line.trim_start().trim_start_matches(['/', '!']);
        text.trim_start().starts_with('|')
    };
    comment_lines(texts)
        .filter(|line| line.chars().count() > COMMENT_COLUMNS_MAX && !is_row(line))
        .count()
}

fn referral_count(texts: &[Text]) -> usize {
    let needle = format!("{}{}", REFERRAL.0, REFERRAL.1);
    comment_lines(texts)
        .filter(|line| line.contains(&needle))
        .count()
}

/// Doc comments whose first paragraph is no sentence: it begins with a small letter, or does not
/// end with a mark.
fn fragment_count(texts: &[Text]) -> usize {
    let sources = texts.iter().filter(|text| text.path.ends_with(".rs"));
    sources.map(|text| fragments(&text.text).count()).sum()
}

/// The first paragraphs of doc comments that are no sentence.
fn fragments(source: &str) -> impl Iterator<Item = String> {
    let mut paragraphs: Vec<String> = Vec::new();
    let (mut inside, mut first) = (false, false);
    for line in source.lines() {
        let Some(text) = line.trim_start().strip_prefix("///") else {
            inside = false;
            continue;
        };
        let text = text.trim();
        if !inside {
            (inside, first) = (true, true);
            paragraphs.push(String::new());
        }
        first &= !text.is_empty() && !text.starts_with(['-', '|', '#']) && !text.starts_with("```");
        if let Some(paragraph) = paragraphs.last_mut().filter(|_| first) {
            *paragraph += text;
        }
    }
    paragraphs.into_iter().filter(|text| {
        let begins = text.starts_with(|first: char| !first.is_lowercase());
        let ends = text.ends_with(['.', ':', '?', '!', ')', '*', '`']);
        !(text.is_empty() || begins && ends)
    })
}

fn long_subject_count(subjects: &str) -> usize {
    let long = |subject: &&str| subject.chars().count() > SUBJECT_CHARS_MAX;
    subjects.lines().filter(long).count()
}

/// A complaint where a count has risen above its limit.
fn risen(count: usize, limit: usize, what: &str, remedy: &str) -> Vec<String> {
    match count > limit {
        true => vec![format!("{count} {what}, {limit} before; {remedy}")],
        false => Vec::new(),
    }
}

pub(super) fn comment_columns(texts: &[Text]) -> Vec<String> {
    risen(
        long_comment_count(texts),
        LONG_COMMENTS,
        &format!("comment lines over {COMMENT_COLUMNS_MAX} columns"),
        "wrap the new ones: git diff BASE | grep -E '^\\+ *//' | grep -E '.{102}'",
    )
}

pub(super) fn referrals(texts: &[Text]) -> Vec<String> {
    let (first, second) = REFERRAL;
    risen(
        referral_count(texts),
        REFERRALS,
        &format!("comments say `{first}{second}`"),
        "describe the item itself",
    )
}

pub(super) fn sentences(texts: &[Text]) -> Vec<String> {
    risen(
        fragment_count(texts),
        FRAGMENTS,
        "doc comments that are no sentence",
        "begin with a capital letter, end with a full stop, and describe the item alone",
    )
}

/// Without git, or in a shallow clone, there are fewer commits to look at.
pub(super) fn subjects(_: &[Text]) -> Vec<String> {
    let mut git = Command::new("git");
    let log = run::output(git.current_dir(run::root()).args(["log", "--format=%s"]));
    risen(
        long_subject_count(&log.unwrap_or_default()),
        LONG_SUBJECTS,
        &format!("commit subjects over {SUBJECT_CHARS_MAX} characters"),
        "amend the newest commits",
    )
}

/// Not a failure: limits that can be lowered.
pub(super) fn notes(texts: &[Text]) -> Vec<String> {
    let counts = [
        ("LONG_COMMENTS", long_comment_count(texts), LONG_COMMENTS),
        ("REFERRALS", referral_count(texts), REFERRALS),
        ("FRAGMENTS", fragment_count(texts), FRAGMENTS),
    ];
    let fallen = counts.iter().filter(|(_, count, limit)| count < limit);
    fallen
        .map(|(name, count, _)| format!("xtask/src/tidy/prose.rs: lower {name} to {count}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(path: &str, text: impl Into<String>) -> Vec<Text> {
        vec![Text {
            path: path.into(),
            text: text.into(),
        }]
    }

    #[test]
    fn long_prose_lines_are_named_with_their_number_and_columns() {
        let (fits, long) = ("é".repeat(120), "é".repeat(121));
        assert_eq!(long_lines(&format!("{fits}\n{long}\n")), [(2, 121)]);
        let texts = one("docs/new.md", format!("{long}\n"));
        let complaints = page_lines(&texts);
        assert!(
            complaints.contains(&"docs/new.md:1: 121 columns, 120 at most".to_owned()),
            "{complaints:?}"
        );
    }

    #[test]
    fn tables_and_code_blocks_may_be_wide() {
        let long = "x".repeat(121);
        let page = format!("| {long} |\n```text\n{long}\n```\n  | {long} |\n");
        assert_eq!(long_lines(&page), []);
        assert_eq!(long_lines(&format!("{page}{long}\n")), [(6, 121)]);
    }

    #[test]
    fn listed_pages_may_be_wide_until_they_are_narrow() {
        let Some(listed) = WIDE.first() else {
            return;
        };
        let of_listed = |text: &str| {
            let mut complaints = page_lines(&one(listed, text));
            complaints.retain(|complaint| !complaint.ends_with("there is no such page"));
            complaints
        };
        assert_eq!(of_listed(&"x".repeat(121)), [""; 0]);
        let complaints = of_listed("narrow\n");
        assert!(complaints[0].starts_with(&format!("{listed}: all lines fit now")));
    }

    #[test]
    fn listed_pages_that_are_gone_are_named() {
        assert_eq!(page_lines(&[]).len(), WIDE.len());
    }

    #[test]
    fn long_comments_count_by_characters_and_without_table_rows() {
        let line = |start: &str, columns: usize| {
            let rest = columns - start.chars().count();
            format!("{start}{}\n", "é".repeat(rest))
        };
        let count = |text: String| long_comment_count(&one("a.rs", text));
        assert_eq!(count(line("    // ", 100) + &line("//! ", 100)), 0);
        assert_eq!(count(line("    // ", 101) + &line("/// ", 101)), 2);
        assert_eq!(count(line("//! | ", 150) + &line("    /// | ", 150)), 0);
        assert_eq!(count(line("let x = \"", 150)), 0);
        assert_eq!(long_comment_count(&one("a.md", line("// ", 150))), 0);
    }

    #[test]
    fn referrals_count_in_comments_alone() {
        let needle = format!("{}{}", REFERRAL.0, REFERRAL.1);
        let text = format!("/// {needle}'s page.\nlet x = \"{needle}\";\n// {needle}.\n");
        assert_eq!(referral_count(&one("a.rs", text)), 2);
    }

    #[test]
    fn doc_comments_begin_with_a_capital_letter_and_end_with_a_mark() {
        let found = |source: &str| fragments(source).collect::<Vec<_>>();
        assert_eq!(
            found("/// Counts bytes,\n/// all of them.\nfn a() {}\n"),
            [""; 0]
        );
        assert_eq!(
            found("/// `a` counts:\n///\n/// - bytes\nfn a() {}\n"),
            [""; 0]
        );
        assert_eq!(
            found("    /// but no more than this.\n    a: u64,\n"),
            ["but no more than this."]
        );
        assert_eq!(
            found("/// Counts bytes,\nfn a() {}\n// no doc\n"),
            ["Counts bytes,"]
        );
    }

    #[test]
    fn long_subjects_count_by_characters() {
        let (fits, long) = ("é".repeat(72), "é".repeat(73));
        assert_eq!(long_subject_count(&format!("{fits}\n{long}\n{long}\n")), 2);
    }

    #[test]
    fn a_count_may_fall_and_not_rise() {
        assert_eq!(risen(3, 3, "things", "mend them"), [""; 0]);
        assert_eq!(risen(2, 3, "things", "mend them"), [""; 0]);
        assert_eq!(
            risen(4, 3, "things", "mend them"),
            ["4 things, 3 before; mend them"]
        );
    }
}
