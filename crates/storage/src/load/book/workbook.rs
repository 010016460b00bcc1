//! What a workbook says of its sheets: their names, the texts they share, and which numbers are moments.

use std::collections::HashMap;

use quick_xml::events::Event;
use thalweg_base::{Error, Result, text};

use super::options::BookOptions;
use super::package::{PART_BYTES_MAX, Package, SHEET_BYTES_MAX, Xml, attribute, relation};
use super::{Rows, other_book};
use crate::load::input::{damaged, shown};

pub(super) struct Workbook<'a> {
    package: Package<'a>,
    sheets: Vec<Sheet>,
    pub texts: Vec<Box<str>>,
    /// By the styles of cells.
    pub formats: Vec<Format>,
    /// Days are counted from 1904 and not from 1900.
    pub since_1904: bool,
}

struct Sheet {
    name: String,
    part: String,
    is_hidden: bool,
}

/// What a number is shown as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Number,
    Moment,
    /// Hours beyond those of a day.
    Duration,
}

/// The kind of a relation, without the place of its definition, and the part.
type Relations = HashMap<String, (String, String)>;

impl<'a> Workbook<'a> {
    pub(super) fn open(package: Package<'a>) -> Result<Self> {
        let path = package.path;
        let of_package = relations(&package, "")?;
        let main = of_package.into_values().find(|(kind, _)| kind == "officeDocument");
        let main = main.map_or_else(|| "xl/workbook.xml".to_owned(), |(_, part)| part);
        let Some(mut xml) = package.part(&main, PART_BYTES_MAX)? else {
            return Err(match package.has("[Content_Types].xml") {
                true => other_book(path),
                false => {
                    Error::user(format!("{} is an archive and no workbook of Excel", shown(path)))
                        .hint("unpack it, and read what is in it")
                }
            });
        };
        if !main.to_lowercase().ends_with(".xml") {
            return Err(other_book(path));
        }
        let relations = relations(&package, &main)?;
        let (mut sheets, mut since_1904) = (Vec::new(), false);
        loop {
            match xml.next()? {
                Event::Start(e) | Event::Empty(e) => match e.local_name().as_ref() {
                    b"sheet" => {
                        let part = relation(&e).and_then(|id| relations.get(&id));
                        if let (Some(name), Some((kind, part))) = (attribute(&e, b"name"), part)
                            && kind == "worksheet"
                        {
                            let state = attribute(&e, b"state");
                            let is_hidden = state.is_some_and(|state| state != "visible");
                            sheets.push(Sheet { name, part: part.clone(), is_hidden });
                        }
                    }
                    b"workbookPr" => {
                        let told = attribute(&e, b"date1904");
                        since_1904 = told.is_some_and(|told| told == "1" || told == "true");
                    }
                    _ => {}
                },
                Event::Eof => break,
                _ => {}
            }
        }
        if sheets.is_empty() {
            return Err(Error::user(format!("{} has no sheet with cells", shown(path)))
                .hint("a table needs at least a header and a row"));
        }
        let part = |wanted: &str, usual: &str| {
            let found = relations.values().find(|(kind, _)| kind == wanted);
            package.part(found.map_or(usual, |(_, part)| part), PART_BYTES_MAX)
        };
        let texts = part("sharedStrings", "xl/sharedStrings.xml")?.map(texts).transpose()?;
        let formats = part("styles", "xl/styles.xml")?.map(formats).transpose()?;
        let (texts, formats) = (texts.unwrap_or_default(), formats.unwrap_or_default());
        Ok(Workbook { package, sheets, texts, formats, since_1904 })
    }

    /// The name of the sheet that is meant, and its rows: the one that is named, or else the first that has
    /// a value and can be seen.
    pub(super) fn sheet(&self, options: &BookOptions) -> Result<(&str, Rows<'_>)> {
        let path = self.package.path;
        if let Some(wanted) = &options.sheet {
            let named = |same: &dyn Fn(&str) -> bool| self.sheets.iter().find(|s| same(&s.name));
            let found = named(&|name| name == wanted)
                .or_else(|| named(&|name| name.to_lowercase() == wanted.to_lowercase()));
            let found = found.ok_or_else(|| {
                let names = self.sheets.iter().map(|sheet| text::quoted(&sheet.name));
                Error::user(format!("{} has no sheet {}", shown(path), text::quoted(wanted)))
                    .hint(format!("it has {}", names.collect::<Vec<_>>().join(", ")))
            })?;
            return Ok((&found.name, self.rows(found, options)?));
        }
        let seen = self.sheets.iter().filter(|sheet| !sheet.is_hidden);
        for sheet in seen.chain(self.sheets.iter().filter(|sheet| sheet.is_hidden)) {
            if self.rows(sheet, options)?.next()?.is_some() {
                return Ok((&sheet.name, self.rows(sheet, options)?));
            }
        }
        let error = match options.range {
            Some(_) => Error::user(format!("no sheet of {} has a value in the range", shown(path))),
            None => Error::user(format!("{} is empty", shown(path))),
        };
        Err(error.hint("a table needs at least a header and a row"))
    }

    fn rows(&self, sheet: &Sheet, options: &BookOptions) -> Result<Rows<'_>> {
        let path = self.package.path;
        let xml = self.package.part(&sheet.part, SHEET_BYTES_MAX)?;
        let xml = xml.ok_or_else(|| {
            damaged(path, &format!("sheet {} is missing", text::quoted(&sheet.name)))
        })?;
        Ok(Rows::new(path, xml, self, options.area()))
    }
}

/// What the part called so refers to, by the identities that it uses; that of the whole package for "".
fn relations(package: &Package<'_>, part: &str) -> Result<Relations> {
    let (folder, name) = part.rsplit_once('/').unwrap_or(("", part));
    let slash = if folder.is_empty() { "" } else { "/" };
    let mut found = Relations::new();
    let own = format!("{folder}{slash}_rels/{name}.rels");
    let Some(mut xml) = package.part(&own, PART_BYTES_MAX)? else { return Ok(found) };
    loop {
        match xml.next()? {
            Event::Start(e) | Event::Empty(e) if e.local_name().as_ref() == b"Relationship" => {
                let (id, kind) = (attribute(&e, b"Id"), attribute(&e, b"Type"));
                if let (Some(id), Some(kind), Some(target)) = (id, kind, attribute(&e, b"Target")) {
                    let kind = kind.rsplit('/').next().unwrap_or_default().to_owned();
                    found.insert(id, (kind, resolved(folder, &target)));
                }
            }
            Event::Eof => return Ok(found),
            _ => {}
        }
    }
}

/// The name of a part as another one in `folder` writes it.
fn resolved(folder: &str, target: &str) -> String {
    if let Some(whole) = target.strip_prefix('/') {
        return whole.to_owned();
    }
    let mut steps: Vec<&str> = folder.split('/').filter(|step| !step.is_empty()).collect();
    for step in target.split('/') {
        match step {
            ".." => drop(steps.pop()),
            "." | "" => {}
            step => steps.push(step),
        }
    }
    steps.join("/")
}

fn texts(mut xml: Xml<'_>) -> Result<Vec<Box<str>>> {
    let mut texts = Vec::new();
    loop {
        let is_empty = match xml.next()? {
            Event::Start(e) if e.local_name().as_ref() == b"si" => false,
            Event::Empty(e) if e.local_name().as_ref() == b"si" => true,
            Event::Eof => return Ok(texts),
            _ => continue,
        };
        let mut own = String::new();
        if !is_empty {
            xml.text(b"si", true, &mut own)?;
        }
        texts.push(unescaped(own).into_boxed_str());
    }
}

/// Characters that XML cannot have are written `_x000D_`.
pub(super) fn unescaped(text: String) -> String {
    if !text.contains("_x") {
        return text;
    }
    let (mut out, mut rest) = (String::with_capacity(text.len()), text.as_str());
    while let Some(at) = rest.find("_x") {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let code = rest.get(2..6).filter(|_| rest.as_bytes().get(6) == Some(&b'_'));
        let code = code.and_then(|code| u32::from_str_radix(code, 16).ok());
        match code.and_then(char::from_u32) {
            Some(c) => {
                out.push(c);
                rest = &rest[7..];
            }
            None => {
                out.push_str("_x");
                rest = &rest[2..];
            }
        }
    }
    out + rest
}

fn formats(mut xml: Xml<'_>) -> Result<Vec<Format>> {
    let mut own: HashMap<u32, Format> = HashMap::new();
    let (mut formats, mut of_cells) = (Vec::new(), false);
    loop {
        match xml.next()? {
            Event::Start(e) | Event::Empty(e) => match e.local_name().as_ref() {
                b"numFmt" => {
                    let id = attribute(&e, b"numFmtId").and_then(|id| id.parse().ok());
                    if let (Some(id), Some(code)) = (id, attribute(&e, b"formatCode")) {
                        own.insert(id, of_code(&code));
                    }
                }
                b"cellXfs" => of_cells = true,
                b"xf" if of_cells => {
                    let id = attribute(&e, b"numFmtId").and_then(|id| id.parse().ok());
                    let id: u32 = id.unwrap_or(0);
                    formats.push(own.get(&id).copied().unwrap_or_else(|| built_in(id)));
                }
                _ => {}
            },
            Event::End(e) if e.local_name().as_ref() == b"cellXfs" => of_cells = false,
            Event::Eof => return Ok(formats),
            _ => {}
        }
    }
}

/// What the numbers of formats mean that no file describes (ECMA-376, 18.8.30).
fn built_in(id: u32) -> Format {
    match id {
        14..=22 | 27..=36 | 45 | 47 | 50..=58 => Format::Moment,
        46 => Format::Duration,
        _ => Format::Number,
    }
}

/// What a format means by its letters, of which only the first section counts.
fn of_code(code: &str) -> Format {
    let mut letters = code.chars();
    let mut format = Format::Number;
    while let Some(letter) = letters.next() {
        match letter {
            ';' => break,
            // The next one stands for itself, or for its width.
            '\\' | '_' | '*' => drop(letters.next()),
            '"' => drop(letters.by_ref().find(|&c| c == '"')),
            '[' => {
                let inner: String = letters.by_ref().take_while(|&c| c != ']').collect();
                let inner = inner.to_ascii_lowercase();
                if !inner.is_empty()
                    && ["h", "m", "s"].iter().any(|l| inner.replace(l, "").is_empty())
                {
                    return Format::Duration;
                }
            }
            'd' | 'D' | 'm' | 'M' | 'y' | 'Y' | 'h' | 'H' | 's' | 'S' => format = Format::Moment,
            _ => {}
        }
    }
    format
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_known_by_their_letters() {
        for code in
            ["yyyy-mm-dd", "[$-409]d-mmm-yy;@", "h:mm AM/PM", "mm:ss.0", "[Red]dd/mm", "\"on\" d"]
        {
            assert_eq!(of_code(code), Format::Moment, "{code}");
        }
        for code in [
            "General",
            "0.00",
            "[Red]0",
            "#,##0 \"days\"",
            "0\\d",
            "_(* #,##0_)",
            "@",
            "0;d",
            "[$USD] 0",
        ] {
            assert_eq!(of_code(code), Format::Number, "{code}");
        }
        for code in ["[h]:mm:ss", "[mm]:ss", "[s]"] {
            assert_eq!(of_code(code), Format::Duration, "{code}");
        }
    }

    #[test]
    fn names_and_texts() {
        assert_eq!(resolved("xl", "worksheets/sheet1.xml"), "xl/worksheets/sheet1.xml");
        assert_eq!(resolved("xl", "/xl/a.xml"), "xl/a.xml");
        assert_eq!(resolved("xl/x", "../a.xml"), "xl/a.xml");
        let plain = |text: &str| unescaped(text.to_owned());
        assert_eq!(plain("a_x000D_b_x005F_xä"), "a\rb_xä");
        assert_eq!(plain("_x00ZZ__x12"), "_x00ZZ__x12");
        assert_eq!(plain("_xäää_"), "_xäää_");
    }
}
