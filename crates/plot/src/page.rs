//! A self-contained HTML page of text, tables and figures, for light and dark screens and for paper.
//!
//! The page is also well-formed XML, so that programs can parse it with an XML parser.

use std::fmt::Write;

use crate::escape::{anchor, escape};
use crate::palette::{DARK, written};

/// The style of the page. It loads no other files.
const STYLE: &str = include_str!("page/style.css");

/// The alignment of the text in a column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The caption. May be empty: then the table has no caption.
    pub caption: String,
    /// The head and the alignment of each column.
    pub columns: Vec<(String, Align)>,
    /// The cells, row by row.
    pub rows: Vec<Vec<String>>,
}

/// An element of a section.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// A paragraph that is highlighted.
    Note(String),
    /// Preformatted text, for example a command.
    Code(String),
    /// Names with their values.
    Facts(Vec<(String, String)>),
    /// A table.
    Table(Table),
    /// A figure, which must be an SVG document from this crate, because it is not escaped. The title is the label for
    /// readers who cannot see the figure.
    Figure {
        /// The title.
        title: String,
        /// The SVG document.
        svg: String,
        /// The caption below the figure. May be empty.
        caption: String,
    },
}

/// A part of a page, with a title and an anchor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// The title.
    pub title: String,
    /// The content.
    pub blocks: Vec<Block>,
}

/// A page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The title.
    pub title: String,
    /// The content below the title, before the table of contents.
    pub head: Vec<Block>,
    /// The sections.
    pub sections: Vec<Section>,
}

impl Page {
    /// Returns the page as HTML text. All text except figures is escaped.
    #[must_use]
    pub fn html(&self) -> String {
        let mut out = String::new();
        let title = escape(&self.title);
        put(&mut out, format_args!("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>"));
        put(&mut out, format_args!("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>"));
        put(&mut out, format_args!("<title>{title}</title>\n<style>\n{STYLE}{}</style>", dark()));
        put(&mut out, format_args!("</head>\n<body>\n<main>\n<h1>{title}</h1>"));
        self.head.iter().for_each(|block| write(&mut out, block));
        let anchors = self.anchors();
        if self.sections.len() > 1 {
            put(&mut out, format_args!("<nav><ul>"));
            for (section, anchor) in self.sections.iter().zip(&anchors) {
                put(&mut out, format_args!("<li><a href=\"#{anchor}\">{}</a></li>", escape(&section.title)));
            }
            put(&mut out, format_args!("</ul></nav>"));
        }
        for (section, anchor) in self.sections.iter().zip(&anchors) {
            put(&mut out, format_args!("<section id=\"{anchor}\">"));
            put(&mut out, format_args!("<h2><a href=\"#{anchor}\">{}</a></h2>", escape(&section.title)));
            section.blocks.iter().for_each(|block| write(&mut out, block));
            put(&mut out, format_args!("</section>"));
        }
        put(&mut out, format_args!("</main>\n</body>\n</html>"));
        out
    }

    /// Returns a unique anchor for each section.
    fn anchors(&self) -> Vec<String> {
        let mut anchors: Vec<String> = Vec::new();
        for section in &self.sections {
            let name = anchor(&section.title);
            let mut another = name.clone();
            let mut number = 2;
            while anchors.contains(&another) {
                another = format!("{name}-{number}");
                number += 1;
            }
            anchors.push(another);
        }
        anchors
    }
}

/// Returns the style for dark screens. It replaces the colours of the page, and each colour of the figures that has a
/// replacement in [`DARK`].
fn dark() -> String {
    let mut style = "@media screen and (prefers-color-scheme: dark) {\n".to_owned();
    style.push_str(
        "  :root { --paper: #16191d; --ink: #e6e6e6; --faint: #a8a8a8; --line: #343a41; \
         --shade: #20252b; --link: #4da6e0 }\n",
    );
    for (light, dark) in DARK {
        let (light, dark) = (written(light), written(dark));
        put(&mut style, format_args!("  svg [fill=\"{light}\"] {{ fill: {dark} }}"));
        put(&mut style, format_args!("  svg [stroke=\"{light}\"] {{ stroke: {dark} }}"));
    }
    style.push_str("}\n");
    style
}

/// Appends a line.
fn put(out: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{line}");
}

/// Appends an element.
fn write(out: &mut String, block: &Block) {
    match block {
        Block::Text(text) => put(out, format_args!("<p>{}</p>", escape(text))),
        Block::Note(text) => put(out, format_args!("<p class=\"note\">{}</p>", escape(text))),
        Block::Code(text) => put(out, format_args!("<pre>{}</pre>", escape(text))),
        Block::Facts(facts) => {
            put(out, format_args!("<dl>"));
            for (name, fact) in facts {
                put(out, format_args!("<dt>{}</dt><dd>{}</dd>", escape(name), escape(fact)));
            }
            put(out, format_args!("</dl>"));
        }
        Block::Table(table) => write_table(out, table),
        Block::Figure { title, svg, caption } => {
            let label = format!("<svg role=\"img\" aria-label=\"{}\"", escape(title));
            // An SVG element within HTML needs no namespace.
            let svg = svg.replacen("<svg", &label, 1).replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1);
            put(out, format_args!("<figure>\n{}", svg.trim_end()));
            if !caption.is_empty() {
                put(out, format_args!("<figcaption>{}</figcaption>", escape(caption)));
            }
            put(out, format_args!("</figure>"));
        }
    }
}

/// Appends a table.
fn write_table(out: &mut String, table: &Table) {
    put(out, format_args!("<div class=\"scroll\"><table>"));
    if !table.caption.is_empty() {
        put(out, format_args!("<caption>{}</caption>", escape(&table.caption)));
    }
    let class = |column: usize| match table.columns.get(column) {
        Some((_, Align::Right)) => " class=\"right\"",
        _ => "",
    };
    let mut head = String::new();
    for (column, (name, _)) in table.columns.iter().enumerate() {
        let _ = write!(head, "<th{}>{}</th>", class(column), escape(name));
    }
    put(out, format_args!("<thead><tr>{head}</tr></thead>\n<tbody>"));
    for row in &table.rows {
        let mut cells = String::new();
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(cells, "<td{}>{}</td>", class(column), escape(cell));
        }
        put(out, format_args!("<tr>{cells}</tr>"));
    }
    put(out, format_args!("</tbody>\n</table></div>"));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use roxmltree::{Document, ParsingOptions};

    use super::*;
    use crate::{Axis, Figure, Layer};

    fn read(html: &str) -> Document<'_> {
        let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
        Document::parse_with_options(html, options).unwrap_or_else(|error| panic!("{error}\n{html}"))
    }

    fn page(text: &str) -> Page {
        let line = Layer::Line { name: text.to_owned(), points: vec![(0.0, 1.0), (1.0, 2.0)] };
        let svg = Figure::new(text, Axis::new("x"), Axis::new("y")).with(line).svg().expect("it can be drawn");
        let table = Table {
            caption: text.to_owned(),
            columns: vec![("module".to_owned(), Align::Left), ("ticks".to_owned(), Align::Right)],
            rows: vec![vec![text.to_owned(), "12.5".to_owned()]],
        };
        let blocks = vec![
            Block::Text(text.to_owned()),
            Block::Note(text.to_owned()),
            Block::Code(text.to_owned()),
            Block::Facts(vec![(text.to_owned(), text.to_owned())]),
            Block::Table(table),
            Block::Figure { title: text.to_owned(), svg, caption: text.to_owned() },
        ];
        let section = Section { title: text.to_owned(), blocks };
        Page { title: text.to_owned(), head: Vec::new(), sections: vec![section.clone(), section] }
    }

    #[test]
    fn a_page_loads_nothing_and_its_anchors_lead_somewhere() {
        let html = page("Cycles & \"instructions\" <b>").html();
        assert!(!html.contains("http") && !html.contains("src=") && !html.contains("url("), "{html}");
        let document = read(&html);
        let ids: Vec<_> = document.descendants().filter_map(|node| node.attribute("id")).collect();
        assert_eq!(ids, ["cycles-instructions-b", "cycles-instructions-b-2"]);
        let links: Vec<_> = document.descendants().filter_map(|node| node.attribute("href")).collect();
        assert!(links.iter().all(|link| ids.contains(&link.trim_start_matches('#'))), "{links:?}");
        let figures = document.descendants().filter(|node| node.has_tag_name("td"));
        assert!(
            figures.filter(|cell| cell.attribute("class") == Some("right")).all(|cell| cell.text() == Some("12.5"))
        );
    }

    proptest! {
        #[test]
        fn any_text_is_well_formed_and_shown_unchanged(text in "[ -~é→]{1,40}", wild in ".{0,40}") {
            let html = page(&text).html();
            let document = read(&html);
            let title = document.descendants().find(|node| node.has_tag_name("h1")).and_then(|node| node.text());
            prop_assert_eq!(title, Some(text.as_str()));
            read(&page(&wild).html());
        }
    }
}
