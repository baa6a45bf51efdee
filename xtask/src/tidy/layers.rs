//! Lints over the crates' manifests: the tree draws the architecture.

use super::Text;

/// Crates from the bottom up; a crate may depend only on those of a lower layer.
const LAYERS: [&[&str]; 10] = [
    &["glintdb-core", "glintdb-faultdisk"],
    &["glintdb-flash"],
    &["glintdb-cache", "glintdb-simdisk"],
    &["glintdb-runs"],
    &[
        "glintdb-indextest",
        "glintdb-log",
        "glintdb-lsm",
        "glintdb-btree",
        "glintdb-memtable",
        "glintdb-kvssd",
    ],
    &["glintdb"],
    &["glintdb-server", "glintdb-bench"],
    &["glintdb-cli"],
    &["glintdb-testkit"],
    &["xtask"],
];

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

fn manifests(texts: &[Text]) -> impl Iterator<Item = &Text> {
    texts.iter().filter(|text| {
        text.path.ends_with("/Cargo.toml")
            && !text.path.starts_with("crates/bench-peers/")
            && !text.path.starts_with("fuzz/")
    })
}

pub(super) fn lints_inherited(texts: &[Text]) -> Vec<String> {
    manifests(texts)
        .filter(|text| !text.text.contains("[lints]\nworkspace = true"))
        .map(|text| format!("{}: no `[lints] workspace = true`", text.path))
        .collect()
}

/// Ordinary dependencies only: tests may look down from above.
pub(super) fn downwards(texts: &[Text]) -> Vec<String> {
    let mut complaints = Vec::new();
    for text in manifests(texts) {
        let mut section = "";
        let mut name = "";
        for line in text.text.lines().map(str::trim) {
            if line.starts_with('[') {
                section = line;
            } else if section == "[package]" && line.starts_with("name") {
                name = line.split('"').nth(1).unwrap_or_default();
            } else if section == "[dependencies]" {
                let dependency = line.split(['.', ' ', '=']).next().unwrap_or_default();
                let Some(below) = layer(dependency) else {
                    continue;
                };
                match layer(name) {
                    Some(above) if above > below => {}
                    Some(_) => complaints.push(format!(
                        "{}: {name} may not depend on {dependency}",
                        text.path
                    )),
                    None => complaints.push(format!(
                        "{}: {name} has no layer in xtask/src/tidy/layers.rs",
                        text.path
                    )),
                }
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, section: &str, dependency: &str) -> Vec<Text> {
        vec![Text {
            path: "crates/a/Cargo.toml".into(),
            text: format!(
                "[package]\nname = \"{name}\"\n\n[{section}]\n{dependency}.workspace = true\n"
            ),
        }]
    }

    #[test]
    fn a_dependency_upwards_is_refused_except_in_tests() {
        let up = |section| downwards(&manifest("glintdb-log", section, "glintdb")).len();
        assert_eq!((up("dependencies"), up("dev-dependencies")), (1, 0));
        assert_eq!(
            downwards(&manifest("glintdb", "dependencies", "glintdb-log")).len(),
            0
        );
        assert_eq!(
            lints_inherited(&manifest("a", "dependencies", "b")).len(),
            1
        );
    }
}
