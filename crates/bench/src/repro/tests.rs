//! The list of figures, and those that are models.

use super::*;

#[test]
fn every_paper_has_figures_and_every_page_is_there() {
    for (paper, _) in PAPERS {
        assert!(
            FIGURES.iter().any(|figure| figure.paper == paper),
            "{paper}"
        );
    }
    for figure in FIGURES {
        assert!(PAPERS.iter().any(|(paper, _)| *paper == figure.paper));
        assert_eq!(
            find(figure.paper, figure.number).unwrap().title,
            figure.title
        );
        if let How::Command { page, .. } = figure.how {
            let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
            assert!(std::path::Path::new(root).join(page).exists(), "{page}");
        }
    }
}

#[test]
fn unknown_figures_are_refused_with_those_that_there_are() {
    for (paper, number, part) in [
        (
            "dapbd",
            "4",
            "no paper \"dapbd\"; there are: dapdb, p-fetch",
        ),
        (
            "dapdb",
            "5",
            "dapdb has no figure \"5\"; it has: 2, 4, rule, 6a",
        ),
    ] {
        let error = find(paper, number).err().unwrap().to_string();
        assert!(error.contains(part), "{error}");
    }
    let needs = find("dapdb", "2")
        .unwrap()
        .run(true)
        .unwrap_err()
        .to_string();
    assert!(needs.contains("it needs a drive of its own"), "{needs}");
    let command = find("p-fetch", "4")
        .unwrap()
        .run(true)
        .unwrap_err()
        .to_string();
    assert!(command.contains("glintdb bench --workloads"), "{command}");
}

#[test]
fn figure_4_of_dapdb_has_the_direction_of_the_paper_and_repeats() {
    let run = || find("dapdb", "4").unwrap().run(true).unwrap();
    let first = run();
    for row in &first.rows {
        assert!(row.same_direction, "{row:?}");
    }
    assert_eq!(first.lines.len(), 6);
    assert!(first.lines.iter().all(|line| line.points.len() == 7));
    let page = first.to_markdown();
    assert!(
        page.contains("| sum of both rates, most | 2.20 |"),
        "{page}"
    );
    assert_eq!(page, run().to_markdown());
}

#[test]
fn verdicts_say_direction_and_factor() {
    let verdict = |row: Row| (row.paper_text(), row.verdict());
    let (paper, text) = verdict(Row::ratio("", 2.0, 1.5));
    assert_eq!(
        (&*paper, &*text),
        ("2.00", "same direction, 0.75 times the paper's")
    );
    assert_eq!(verdict(Row::ratio("", 2.0, 0.9)).1, "the other direction");
    assert_eq!(
        verdict(Row::more_than("", 1.0, 1.0)).1,
        "the other direction"
    );
    assert_eq!(verdict(Row::less_than("", 1.0, 0.5)).0, "< 1.00");
}
