//! The file that `--plot` names. It is opened before the run, so that a path that cannot be written
//! costs no run, and written after it. A new file is removed if the run fails.

use crate::exit::Failure;
use crate::output;
use glintdb::Error;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::{Database, Family, Query, Style, Weight};
use resvg::usvg::{Options, Tree};
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the file has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    Svg,
    Png,
}

impl Format {
    /// The format that the ending of a name asks for.
    fn of(path: &Path) -> Result<Format, Failure> {
        let Some(ending) = path.extension() else {
            return Ok(Format::Svg);
        };
        match ending.to_string_lossy().to_lowercase().as_str() {
            "svg" => Ok(Format::Svg),
            "png" => Ok(Format::Png),
            other => Err(Failure::Usage(format!(
                "cannot draw {}: a name that ends in .png gives PNG, one in .svg or without an \
                 ending SVG, and .{other} is neither",
                path.display()
            ))),
        }
    }
}

/// A picture to be written.
#[derive(Debug)]
pub(super) struct Plot {
    path: PathBuf,
    format: Format,
    /// Whether the file is empty, and was not there before.
    is_new: bool,
}

impl Plot {
    /// Opens the file, without a change to what it has.
    ///
    /// # Errors
    /// The ending of the name is unknown, or the file cannot be written.
    pub(super) fn open(path: &Path) -> Result<Plot, Failure> {
        let format = Format::of(path)?;
        let mut options = OpenOptions::new();
        let created = options.write(true).create_new(true).open(path);
        let opened = match created {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                let there = OpenOptions::new().write(true).open(path);
                there.map(|_| false)
            }
            created => created.map(|_| true),
        };
        let failed = |error| Failure::Io(format!("cannot write {}", path.display()), error);
        Ok(Plot {
            path: path.to_owned(),
            format,
            is_new: opened.map_err(failed)?,
        })
    }

    /// Writes the picture. Says on standard error if its labels are missing.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write(&mut self, svg: &str) -> glintdb_bench::Result<()> {
        let bytes = match self.format {
            Format::Svg => svg.as_bytes().to_vec(),
            Format::Png => {
                let fonts = system_fonts();
                if let Some(warning) = warning(&fonts, &self.path) {
                    output::complain(&warning);
                }
                rasterise(svg, fonts)?
            }
        };
        let written = std::fs::write(&self.path, bytes);
        written.map_err(|error| Error::io(format!("write {}", self.path.display()), error))?;
        self.is_new = false;
        Ok(())
    }
}

impl Drop for Plot {
    fn drop(&mut self) {
        if self.is_new {
            // If it cannot be removed, an empty file stays, which does no harm.
            std::fs::remove_file(&self.path).ok();
        }
    }
}

/// What there is to say about the labels of a PNG.
fn warning(fonts: &Database, path: &Path) -> Option<String> {
    let path = path.display();
    let text = || format!("the labels of {path} are missing: the system has no fonts");
    fonts.is_empty().then(text)
}

/// The fonts of the system.
fn system_fonts() -> Database {
    let mut fonts = Database::new();
    fonts.load_system_fonts();
    name_sans_serif(&mut fonts);
    fonts
}

/// Has `sans-serif`, the font of all labels, be one that is there.
fn name_sans_serif(fonts: &mut Database) {
    let sans_serif = Query {
        families: &[Family::SansSerif],
        ..Query::default()
    };
    if fonts.query(&sans_serif).is_some() {
        return;
    }
    let families = fonts.faces().filter_map(|face| {
        let (family, _) = face.families.first()?;
        let is_upright = face.style == Style::Normal && face.weight == Weight::NORMAL;
        let has_no_serifs = family.contains("Sans");
        Some((face.monospaced, !has_no_serifs, !is_upright, family))
    });
    let chosen = families.min().map(|(_, _, _, family)| family.clone());
    if let Some(family) = chosen {
        fonts.set_sans_serif_family(family);
    }
}

/// A picture as PNG, a pixel for each unit of the SVG.
///
/// # Errors
/// A text for people if the picture is no SVG, or too large.
fn rasterise(svg: &str, fonts: Database) -> Result<Vec<u8>, String> {
    let options = Options {
        fontdb: Arc::new(fonts),
        ..Options::default()
    };
    let tree = Tree::from_str(svg, &options).map_err(|error| error.to_string())?;
    let size = tree.size().to_int_size();
    let mut pixels = Pixmap::new(size.width(), size.height()).ok_or("the picture is too large")?;
    resvg::render(&tree, Transform::identity(), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;

    /// A red area on white, and a label.
    const SVG: &str = "<svg width=\"60\" height=\"40\" xmlns=\"http://www.w3.org/2000/svg\">\
        <rect width=\"60\" height=\"40\" fill=\"#FFFFFF\"/>\
        <rect x=\"10\" y=\"5\" width=\"20\" height=\"10\" fill=\"#AA1E2D\"/>\
        <text x=\"2\" y=\"38\" font-family=\"sans-serif\" font-size=\"16\">WWW</text></svg>";

    fn pixels(png: &[u8]) -> (Pixmap, usize) {
        let pixels = Pixmap::decode_png(png).unwrap();
        let dark = |at: &u32| {
            let colour = pixels.pixel(at % 60, 20 + at / 60).unwrap();
            colour.red() < 128
        };
        let dark = (0..60 * 20).filter(dark).count();
        (pixels, dark)
    }

    #[test]
    fn a_png_has_the_areas_and_labels_of_the_svg() {
        let fonts = system_fonts();
        let has_fonts = !fonts.is_empty();
        let (picture, dark) = pixels(&rasterise(SVG, fonts).unwrap());
        assert_eq!((picture.width(), picture.height()), (60, 40));
        let at = |x, y| {
            let colour = picture.pixel(x, y).unwrap();
            (colour.red(), colour.green(), colour.blue())
        };
        assert_eq!(
            [at(10, 5), at(29, 14)],
            [(0xAA, 0x1E, 0x2D), (0xAA, 0x1E, 0x2D)]
        );
        assert_eq!([at(9, 5), at(30, 14)], [(255, 255, 255), (255, 255, 255)]);
        assert_eq!(dark > 40, has_fonts, "{dark} dark pixels of the label");
    }

    #[test]
    fn without_fonts_a_png_lacks_labels_only() {
        let (picture, dark) = pixels(&rasterise(SVG, Database::new()).unwrap());
        assert_eq!(picture.pixel(15, 8).unwrap().red(), 0xAA);
        assert_eq!(dark, 0);
        let warning = |fonts: &Database| warning(fonts, Path::new("a.png"));
        let text = warning(&Database::new()).unwrap();
        assert!(
            text.contains("a.png") && text.contains("no fonts"),
            "{text}"
        );
        let fonts = system_fonts();
        assert_eq!(warning(&fonts).is_none(), !fonts.is_empty());
    }

    #[test]
    fn labels_use_a_font_that_is_there_without_serifs_if_possible() {
        let mut fonts = system_fonts();
        fonts.set_sans_serif_family("No Such Font");
        name_sans_serif(&mut fonts);
        let named = fonts.family_name(&Family::SansSerif);
        let names = || fonts.faces().map(|face| face.families[0].0.as_str());
        assert!(
            fonts.is_empty() || names().any(|name| name == named),
            "{named}"
        );
        let is_sans = |name: &str| name.contains("Sans") && !name.contains("Mono");
        assert!(!names().any(is_sans) || is_sans(named), "{named}");
    }

    #[test]
    fn the_ending_chooses_the_format() {
        for (name, format) in [
            ("a.svg", Format::Svg),
            ("a.PNG", Format::Png),
            ("a.b/picture", Format::Svg),
            ("a.svg.png", Format::Png),
        ] {
            assert_eq!(Format::of(Path::new(name)).unwrap(), format, "{name}");
        }
        let error = Format::of(Path::new("units.jpeg")).unwrap_err().to_string();
        assert!(
            error.contains("units.jpeg") && error.contains(".png"),
            "{error}"
        );
    }

    #[test]
    fn a_file_is_probed_without_a_change_and_removed_if_nothing_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let there = dir.path().join("there.svg");
        std::fs::write(&there, "kept").unwrap();
        drop(Plot::open(&there).unwrap());
        assert_eq!(std::fs::read_to_string(&there).unwrap(), "kept");
        let new = dir.path().join("new.svg");
        let mut plot = Plot::open(&new).unwrap();
        assert!(new.exists());
        plot.write(SVG).unwrap();
        drop(plot);
        assert_eq!(std::fs::read_to_string(&new).unwrap(), SVG);
        let unwritten = dir.path().join("unwritten.png");
        drop(Plot::open(&unwritten).unwrap());
        assert!(!unwritten.exists());
        let error = Plot::open(&dir.path().join("no/such.svg")).unwrap_err();
        assert!(matches!(error, Failure::Io(..)), "{error:?}");
        assert!(error.to_string().contains("no/such.svg"), "{error}");
    }
}
