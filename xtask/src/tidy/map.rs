//! The code map of ARCHITECTURE.md: it names each module of the engine's crates, and no other.

use super::Text;
use std::collections::BTreeSet;

const PAGE: &str = "ARCHITECTURE.md";
/// Crates whose modules the page names.
const CRATES: [&str; 8] = [
    "core", "flash", "cache", "log", "memtable", "runs", "lsm", "glintdb",
];
/// Modules of tests, which it does not name.
const TESTS: [&str; 5] = ["tests", "models", "golden", "scripted", "testing"];

pub(super) fn complete(texts: &[Text]) -> Vec<String> {
    let Some(page) = texts.iter().find(|text| text.path == PAGE) else {
        return vec![format!("{PAGE} is not there")];
    };
    let mut complaints = Vec::new();
    for name in CRATES {
        let Some(section) = section(&page.text, name) else {
            complaints.push(format!("{PAGE}: no section `crates/{name}`"));
            continue;
        };
        let root = format!("crates/{name}/src/");
        let paths = texts
            .iter()
            .filter_map(|text| text.path.strip_prefix(&root));
        let there: BTreeSet<&str> = paths.filter_map(module).collect();
        let named: BTreeSet<&str> = code(section).collect();
        for missing in there.difference(&named) {
            complaints.push(format!("{PAGE}: `{missing}` of crates/{name} is not named"));
        }
        for gone in rows(section).filter(|name| !there.contains(name)) {
            complaints.push(format!("{PAGE}: crates/{name} has no `{gone}`"));
        }
    }
    complaints
}

/// The module of a file, `None` if the page does not have to name it.
fn module(path: &str) -> Option<&str> {
    let module = path.strip_suffix(".rs")?;
    let is_test = |part: &str| TESTS.contains(&part) || part.ends_with("_tests");
    let named = !["lib", "mod"].contains(&module) && !module.ends_with("/mod");
    (named && !module.split('/').any(is_test)).then_some(module)
}

fn section<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = page.split_once(&format!("### `crates/{name}`\n"))?;
    Some(rest.split("\n##").next().unwrap_or(rest))
}

/// What stands between backticks.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Names in the first column of tables.
fn rows(section: &str) -> impl Iterator<Item = &str> {
    fn first_column(line: &str) -> Option<&str> {
        line.strip_prefix("| ")?.split(" | ").next()
    }
    let columns = section.lines().filter_map(first_column);
    columns
        .filter(|column| column.starts_with('`'))
        .flat_map(code)
}

#[cfg(test)]
mod tests {
    use super::complete;
    use crate::tidy::Text;

    fn text(path: &str, text: &str) -> Text {
        Text {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_module_that_is_not_named_and_a_name_without_module_are_found() {
        let sections = "### `crates/core`\n\n`key` and `sync/seen`.\n\n### `crates/flash`\n\n\
                        | module | has |\n|---|---|\n| `volume`, `gone` | the `Volume` |\n\n\
                        ### `crates/cache`\n\n### `crates/log`\n\n### `crates/memtable`\n\n### `crates/runs`\n\n\
                        ### `crates/lsm`\n\n### `crates/glintdb`\n\n## Next\n`new`\n";
        let texts = [
            text("ARCHITECTURE.md", sections),
            text("crates/core/src/lib.rs", ""),
            text("crates/core/src/key.rs", ""),
            text("crates/core/src/sync/seen.rs", ""),
            text("crates/core/src/key/tests.rs", ""),
            text("crates/flash/src/volume.rs", ""),
            text("crates/flash/src/dir/mod.rs", ""),
            text("crates/log/src/new.rs", ""),
        ];
        assert_eq!(
            complete(&texts),
            [
                "ARCHITECTURE.md: crates/flash has no `gone`",
                "ARCHITECTURE.md: `new` of crates/log is not named",
            ]
        );
    }
}
