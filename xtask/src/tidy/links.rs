//! Links between the repository's pages: `[text](path#part)` must name a file or directory that is there.

use super::Text;
use crate::run;
use std::path::Path;

pub(super) fn resolve(texts: &[Text]) -> Vec<String> {
    let root = run::root();
    let mut complaints = Vec::new();
    for text in texts.iter().filter(|text| text.path.ends_with(".md")) {
        let here = Path::new(&text.path).parent().unwrap_or(Path::new(""));
        for (number, target) in targets(&text.text) {
            if !root.join(here).join(target).exists() {
                complaints.push(format!("{}:{number}: `{target}` is not there", text.path));
            }
        }
    }
    complaints
}

/// Relative targets with their line numbers, outside code blocks.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for rest in line.split("](").skip(1) {
            let target = rest.split([')', ' ', '#']).next().unwrap_or_default();
            let external = target.contains("://") || target.starts_with("mailto:");
            if !target.is_empty() && !external {
                found.push((index + 1, target));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::targets;

    #[test]
    fn relative_targets_are_found_and_others_left_alone() {
        let text = "[a](b.md#c) [d](https://e.f) [g](#h)\n```\n[i](j)\n```\n[k](../l)\n";
        assert_eq!(targets(text), [(1, "b.md"), (5, "../l")]);
    }
}
