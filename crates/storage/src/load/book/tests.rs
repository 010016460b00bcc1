//! Workbooks that are written out.

use std::io::{Cursor, Read, Write};

use thalweg_base::Result;
use zip::CompressionMethod;
use zip::write::{SimpleFileOptions, ZipWriter};

use super::{BookOptions, lines};
use crate::load::{format_of, infer};

const RELATIONS: &str = r#"<Relationships>
<Relationship Id="r1" Type="http://x/worksheet" Target="worksheets/sheet1.xml"/>
<Relationship Id="r2" Type="http://x/worksheet" Target="/xl/worksheets/sheet2.xml"/>
<Relationship Id="r3" Type="http://x/sharedStrings" Target="sharedStrings.xml"/>
<Relationship Id="r4" Type="http://x/styles" Target="styles.xml"/></Relationships>"#;
const BOOK: &str = r#"<workbook><sheets><sheet name="None" r:id="r1"/>
<sheet name="A &amp; B" r:id="r2"/></sheets></workbook>"#;
const TEXTS: &str = r#"<sst><si><t>id</t></si><si><r><t>na</t></r><r><t xml:space="preserve">me </t></r>
<rPh><t>x</t></rPh></si><si><t>a&lt;&#65;"</t></si><si/></sst>"#;
const STYLES: &str = r#"<styleSheet><numFmts><numFmt numFmtId="164" formatCode="yyyy\-mm\-dd"/></numFmts>
<cellStyleXfs><xf numFmtId="14"/></cellStyleXfs>
<cellXfs><xf numFmtId="0"/><xf numFmtId="164"/><xf numFmtId="46"/></cellXfs></styleSheet>"#;
const NONE: &str =
    r#"<worksheet><sheetData><row r="1"><c r="A1" s="1"/></row></sheetData></worksheet>"#;
const ROWS: &str = r#"<worksheet><dimension ref="A1"/><sheetData>
<row r="2"><c r="B2" t="s"><v>0</v></c><c t="s"><v>1</v></c><c t="inlineStr"><is><t>day</t></is></c></row>
<row r="3"><c r="B3"><v>1</v></c><c r="C3" t="s"><v>2</v></c><c r="D3" s="1"><v>45292</v></c></row>
<row r="5"><c r="B5"><f>1+1</f><v>2</v></c><c r="C5" t="s"><v>3</v></c><c r="D5" s="2"><v>1.5</v></c></row>
</sheetData></worksheet>"#;

fn book(rows: &str) -> tempfile::NamedTempFile {
    let parts = [
        ("[Content_Types].xml", "<Types/>"),
        ("xl/workbook.xml", BOOK),
        ("xl/_rels/workbook.xml.rels", RELATIONS),
        ("xl/SharedStrings.xml", TEXTS),
        ("xl/styles.xml", STYLES),
        ("xl/worksheets/sheet1.xml", NONE),
        ("xl/worksheets/sheet2.xml", rows),
    ];
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for (name, text) in parts {
        archive.start_file(name, stored).unwrap();
        archive.write_all(text.as_bytes()).unwrap();
    }
    let mut file = tempfile::Builder::new().suffix(".xlsx").tempfile().unwrap();
    file.write_all(&archive.finish().unwrap().into_inner()).unwrap();
    file
}

fn read(rows: &str, options: &[(&str, &str)]) -> Result<String> {
    let mut told = BookOptions::default();
    for (name, value) in options {
        assert!(told.tell(name, &[(*value).to_owned()])?);
    }
    let mut text = String::new();
    lines(book(rows).path(), &told, &std::sync::Arc::default())?.read_to_string(&mut text).unwrap();
    Ok(text)
}

#[test]
fn rows_are_lines() {
    let expected = "\n\n{\"id\":1,\"name\":\"a<A\\\"\",\"day\":\"2024-01-01\"}\n\n{\"id\":2,\"name\":null,\"day\":\"36:00:00\"}\n";
    assert_eq!(read(ROWS, &[]).unwrap(), expected);
    assert_eq!(read(ROWS, &[("sheet", "a & b")]).unwrap(), expected);
    let first = "\n\n{\"id\":1,\"name\":\"a<A\\\"\",\"day\":\"2024-01-01\"}\n";
    assert_eq!(read(ROWS, &[("stop_at_empty", "true")]).unwrap(), first);
    assert_eq!(read(ROWS, &[("range", "B3:B9")]).unwrap(), "\n\n{\"B\":1}\n\n{\"B\":2}\n");
    let error = |options: &[(&str, &str)]| read(ROWS, options).unwrap_err().to_string();
    assert!(error(&[("sheet", "None")]).contains("sheet \"None\" is empty"));
    assert!(error(&[("sheet", "C")]).contains("has no sheet \"C\""));
    assert!(error(&[("range", "A10:B20")]).contains("no sheet"));
}

#[test]
fn what_is_wrong_is_named() {
    let error = |rows: &str| read(rows, &[]).unwrap_err().to_string();
    let failing = ROWS.replace("<c r=\"B5\"><f>1+1</f><v>2</v>", "<c r=\"B5\" t=\"e\"><v>#N/A</v>");
    assert!(error(&failing).contains("sheet \"A & B\", cell B5: #N/A is no value"));
    assert!(read(&failing, &[("ignore_errors", "true")]).unwrap().contains("{\"id\":null,"));
    assert!(
        error(&ROWS.replace("<v>1</v></c><c r=\"C3\"", "<v>x</v></c><c r=\"C3\""))
            .contains("cell B3")
    );
    assert!(error(&ROWS.replace("<v>3</v>", "<v>9</v>")).contains("cell C5"));
    assert!(
        error(&ROWS.replace("r=\"5\"", "r=\"1\"").replace("B5", "B1")).contains("not in order")
    );
    assert!(error(&ROWS[..ROWS.len() / 2]).contains("damaged"));
    assert!(error(&ROWS.replace("\"C3\"", "\"C3C\"")).contains("damaged"));
}

#[test]
fn types_are_those_of_json() {
    let file = book(ROWS);
    let (format, _) = format_of(file.path()).unwrap();
    let found = infer(&[file.path().to_owned()], &format).unwrap();
    let columns: Vec<String> =
        found.columns.iter().map(|c| format!("{} {}", c.name, c.data_type)).collect();
    assert_eq!(columns, ["id Int64", "name Utf8View", "day Utf8View"]);
    assert!(found.columns[2].why.contains("line 5"), "{}", found.columns[2].why);
}
