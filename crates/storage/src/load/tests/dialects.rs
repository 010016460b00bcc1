//! Files as people have them: other dialects, spellings, encodings and packings.

use super::*;

/// Columns and rows of a file whose dialect is found out, however it is cut into blocks; and what
/// is said about the dialect.
fn found(name: &str, content: impl AsRef<[u8]>, tell: &[(&str, &str)]) -> Result<(String, String)> {
    let dir = folder();
    let path = write(&dir, name, content);
    let (mut format, _) = format_of(&path)?;
    if let Format::Csv(options) = &mut format {
        let mut names: Vec<&str> = tell.iter().map(|(name, _)| *name).collect();
        names.dedup();
        for name in names {
            let values = tell.iter().filter(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
            assert!(options.tell(name, &values.collect::<Vec<_>>())?, "{name}");
        }
    }
    let run = |block_bytes: usize| {
        let inference = Inference::open(vec![path.clone()], format.clone())?;
        let inference = inference.with_block_bytes(block_bytes);
        while let Some(mut piece) = inference.next() {
            while piece.step() {}
        }
        let found = inference.finish().1?;
        let mut format = format.clone();
        found.settle(&mut format);
        let schema = found.schema();
        let reader = open(std::slice::from_ref(&path), &format, &schema)?;
        let loaded = rows(&read_all(&reader.with_block_bytes(block_bytes), &schema)?);
        let column = |c: &InferredColumn| format!("{} {}", c.name, sql_type(&c.data_type));
        let columns = found.columns.iter().map(column).collect::<Vec<_>>().join(", ");
        let said = found.dialects.first().map(|(_, d)| d.to_string()).unwrap_or_default();
        Ok((format!("{columns}: {}", loaded.join(" ")), said))
    };
    // Whether there is a header is judged by the first block alone.
    let whole = run(1 << 20);
    if let (Ok(whole), Ok(pieces)) = (&whole, run(200)) {
        assert_eq!(*whole, pieces);
    }
    whole
}

fn check(content: impl AsRef<[u8]> + Copy, expected: &str, said: &str) {
    let shown = String::from_utf8_lossy(content.as_ref());
    let found = found("x.csv", content, &[]).unwrap();
    assert_eq!(found, (expected.to_owned(), said.to_owned()), "{shown}");
}

#[test]
fn dialects_are_found_out() {
    check(
        "a;b\n1,5;x\n2;y\n",
        "a DOUBLE, b VARCHAR: 1.5|x 2.0|y",
        "delimiter \";\", decimal commas",
    );
    check("a;b\n1,500;x\n2;y\n", "a VARCHAR, b VARCHAR: 1,500|x 2|y", "delimiter \";\"");
    check(
        "a;b\n1.234,5;x\n-2;y\n",
        "a DOUBLE, b VARCHAR: 1234.5|x -2.0|y",
        "delimiter \";\", decimal commas",
    );
    check(
        "\"w\",\"kind\"\n\"1\",26.5,x\n\"2\",27,y\n",
        "column_1 BIGINT, w DOUBLE, kind VARCHAR: 1|26.5|x 2|27.0|y",
        "the first column has no name",
    );
    check(
        "a,b,c\n1,2,3\n4,5\n6,7,8\n9\n10,11,12\n",
        "a BIGINT, b BIGINT, c BIGINT: 1|2|3 4|5|∅ 6|7|8 9|∅|∅ 10|11|12",
        "NULL where rows end early",
    );
    check(
        "a,b\n1.5,Yes\nInf,no\n-Inf,NO\n",
        "a DOUBLE, b BOOLEAN: 1.5|true inf|false -inf|false",
        "",
    );
    check("a,b\nNan,yes\nInf,maybe\n", "a VARCHAR, b VARCHAR: Nan|yes Inf|maybe", "");
    check("No,Name\nA1,Bob\nB2,Al\n", "No VARCHAR, Name VARCHAR: A1|Bob B2|Al", "");
    check("'a'\t'b'\n1\t2\n3\t4\n", "a BIGINT, b BIGINT: 1|2 3|4", "delimiter tab, quote \"'\"");
    check(
        "id,text\n1,plain\n2,'a, b'\n3,'it''s'\n4,'two\nlines'\n",
        "id BIGINT, text VARCHAR: 1|plain 2|a, b 3|it's 4|two\nlines",
        "quote \"'\"",
    );
    check(
        "id\ttext\n1\t\"a,\n;b\"\n2\t\"c\n,d\"\n",
        "id BIGINT, text VARCHAR: 1|a,\n;b 2|c\n,d",
        "delimiter tab",
    );
    check(
        "Sales, by region\n\nregion|sum\nN|1\nS|2\n",
        "region VARCHAR, sum BIGINT: N|1 S|2",
        "delimiter \"|\", 2 lines above left out",
    );
    check(
        "sep=;\r\na;b\r\n1;2\r\n",
        "a BIGINT, b BIGINT: 1|2",
        "delimiter \";\", 1 line above left out",
    );
    check("# made by hand\na,b\n1,2\n", "a BIGINT, b BIGINT: 1|2", "1 line above left out");
    check("a,b\n1,2\n# that was one\n3,4\n", "a BIGINT, b BIGINT: 1|2 3|4", "comment \"#\"");
    check("a,b\n'x,y',1\n'it''s',2\n", "a VARCHAR, b BIGINT: x,y|1 it's|2", "quote \"'\"");
    check("a,b\n\"x \\\"y\\\", z\",1\n", "a VARCHAR, b BIGINT: x \"y\", z|1", "escape \"\\\"");
    check("a, b\n1, \"x, y\"\n2, z\n", "a BIGINT, b VARCHAR: 1|x, y 2| z", "");
    check(
        "a,b\n1,\"x\" \n2,\"Swing it\" magistern\n",
        "a BIGINT, b VARCHAR: 1|x 2|\"Swing it\" magistern",
        "",
    );
    check("a,b\r1,2\r3,4\r", "a BIGINT, b BIGINT: 1|2 3|4", "");
    check("a,b,c\n1,2,3,\n4,5,6,\n", "a BIGINT, b BIGINT, c BIGINT: 1|2|3 4|5|6", "");
    check("a,b,c,\n1,2,3\n4,5,6\n", "a BIGINT, b BIGINT, c BIGINT: 1|2|3 4|5|6", "");
    check(
        "1,2.5,a\n2,3.5,b\n",
        "column_1 BIGINT, column_2 DOUBLE, column_3 VARCHAR: 1|2.5|a 2|3.5|b",
        "no header",
    );
    check("zip\n00501\n\n", "zip VARCHAR: 00501 ∅", "");
}

#[test]
fn headers_need_not_be_words() {
    let header = |text: &str, expected: &str| {
        let (columns, _) = found("h.csv", text, &[]).unwrap();
        assert_eq!(columns.split(": ").next().unwrap(), expected, "{text}");
    };
    header(
        "Country Name,Code,1960,1961\nAruba,ABW,1.5,2.5\nChad,TCD,3.25,\n",
        "Country Name VARCHAR, Code VARCHAR, 1960 DOUBLE, 1961 DOUBLE",
    );
    header(
        "Country,1960,1961,1962\nAruba,54211,55438,1\nChad,3,4,5\n",
        "Country VARCHAR, 1960 BIGINT, 1961 BIGINT, 1962 BIGINT",
    );
    header("2020-01-22,2020-01-23\n1,2\n", "2020-01-22 BIGINT, 2020-01-23 BIGINT");
    header(
        "place,2020-01-22,1/23/2020\nx,1,2\n",
        "place VARCHAR, 2020-01-22 BIGINT, 1/23/2020 BIGINT",
    );
    header("true,false\n1,2\n", "true BIGINT, false BIGINT");
    header("true,false\ntrue,true\n", "column_1 BOOLEAN, column_2 BOOLEAN");
    header("\"1\",\"2\"\n3,4\n5,6\n", "1 BIGINT, 2 BIGINT");
    header("1,N/A,3\n4,5,6\n", "column_1 BIGINT, column_2 VARCHAR, column_3 BIGINT");
    header("1960,1\n1961,2\n1962,3\n", "column_1 BIGINT, column_2 BIGINT");
    header("2001,5\n2002,7\n", "column_1 BIGINT, column_2 BIGINT");
    header("1,2,3\n4,5,6\n", "column_1 BIGINT, column_2 BIGINT, column_3 BIGINT");
}

#[test]
fn orders_of_dates_are_found_out() {
    check("d,n\n31/01/2024,1\n01/02/2024,2\n", "d DATE, n BIGINT: 2024-01-31|1 2024-02-01|2", "");
    check("d,n\n01/31/2024,1\n,2\n", "d DATE, n BIGINT: 2024-01-31|1 ∅|2", "");
    check("d,n\n2012/01/02,1\n", "d DATE, n BIGINT: 2012-01-02|1", "");
    check("d,n\n13.2.2024,1\n", "d DATE, n BIGINT: 2024-02-13|1", "");
    check("d,n\n2024-1-5,1\n2024-10-15,2\n", "d DATE, n BIGINT: 2024-01-05|1 2024-10-15|2", "");
    check(
        "d,n\n13.2.2024 9:05,1\n13.2.2024,2\n",
        "d TIMESTAMP, n BIGINT: 2024-02-13T09:05:00|1 2024-02-13T00:00:00|2",
        "",
    );
    check("d,n\n1/13/2024 12:05:00 AM,1\n", "d TIMESTAMP, n BIGINT: 2024-01-13T00:05:00|1", "");
    check("t,n\n10:00,1\n10:00:30,2\n", "t TIME, n BIGINT: 10:00:00|1 10:00:30|2", "");
    check("t,n\n2024-01-01 10:00,1\n", "t TIMESTAMP, n BIGINT: 2024-01-01T10:00:00|1", "");
    // Neither of the two, one and the other, and what is no day.
    check("d,n\n01/02/2024,1\n", "d VARCHAR, n BIGINT: 01/02/2024|1", "");
    check(
        "d,n\n13/02/2024,1\n02/13/2024,2\n",
        "d VARCHAR, n BIGINT: 13/02/2024|1 02/13/2024|2",
        "",
    );
    check(
        "d,n\n13/02/2024,1\n13.02.2024,2\n",
        "d VARCHAR, n BIGINT: 13/02/2024|1 13.02.2024|2",
        "",
    );
    check("d,n\n30/02/2024,1\n", "d VARCHAR, n BIGINT: 30/02/2024|1", "");

    let sniffed = Format::Csv(CsvOptions::sniffed());
    let said = |text: &str| why(&[("i.csv", text)], &sniffed, "d");
    assert_eq!(
        said("d,n\n01/02/2024,1\n03/04/2024,1\n"),
        "VARCHAR; all 2 values, such as \"01/02/2024\", are dates with the day first or the month: dateformat '%d/%m/%Y' or '%m/%d/%Y' says which; Some(0)"
    );
    assert_eq!(
        said("d,n\n31/01/2024,1\n,1\n"),
        "DATE; the only value is \"31/01/2024\"; read as '%d/%m/%Y'; Some(1) [\"\"]"
    );
    assert_eq!(
        said("d,n\n31/01/2024,1\n01/31/2024,1\n"),
        "VARCHAR; line 3 of \"i.csv\" has \"01/31/2024\"; DATE before it; Some(0)"
    );
    let dates = schema(&[("d", DataType::Date32), ("n", DataType::Int64)]);
    let dir = folder();
    let path = write(&dir, "d.csv", "d,n\n31/01/2024,1\n");
    check_error(
        load(&path, &sniffed, &dates),
        &["\"31/01/2024\" is not a valid DATE", "dateformat"],
    );
}

#[test]
fn what_is_told_is_done() {
    let with = |text: &str, tell: &[(&str, &str)]| found("o.csv", text, tell).map(|(rows, _)| rows);
    let ok = |text: &str, tell: &[(&str, &str)], expected: &str| {
        assert_eq!(with(text, tell).unwrap(), expected, "{text} {tell:?}");
    };
    ok("a;b\n1;2\n", &[("delim", ",")], "a;b VARCHAR: 1;2");
    ok("a,b\n'x',1\n'y',2\n", &[("quote", "\"")], "a VARCHAR, b BIGINT: 'x'|1 'y'|2");
    ok("x\na,b\n1,2\n", &[("skip", "1")], "a BIGINT, b BIGINT: 1|2");
    ok("1,2\n3,4\n", &[("header", "true")], "1 BIGINT, 2 BIGINT: 3|4");
    ok("a,b\n%x\n1,2\n", &[("comment", "%")], "a BIGINT, b BIGINT: 1|2");
    ok("a,b\nNA,1\n2,-\n", &[("nullstr", "NA"), ("nullstr", "-")], "a BIGINT, b BIGINT: ∅|1 2|∅");
    ok(
        "d,t\n02/01/2024,02/01/2024 10:00\n03/01/2024,\n",
        &[("dateformat", "%d/%m/%Y"), ("timestampformat", "%d/%m/%Y %H:%M")],
        "d DATE, t TIMESTAMP: 2024-01-02|2024-01-02T10:00:00 2024-01-03|∅",
    );
    ok("d,n\n3 March 2024,1\n", &[("dateformat", "%d %B %Y")], "d DATE, n BIGINT: 2024-03-03|1");
    ok("d,n\n2024-03-03,1\n", &[("dateformat", "%d/%m/%Y")], "d VARCHAR, n BIGINT: 2024-03-03|1");
    ok(
        "a;b\n1,5;2\n-2;3,25\n",
        &[("decimal_separator", ",")],
        "a DOUBLE, b DOUBLE: 1.5|2.0 -2.0|3.25",
    );
    ok(
        "a;b\n1.234,5;1.000\n2,0;1.000.000\n",
        &[("decimal_separator", ","), ("thousands", ".")],
        "a DOUBLE, b BIGINT: 1234.5|1000 2.0|1000000",
    );
    ok("a,b\n\"1,234\",x\n\"12\",y\n", &[("thousands", ",")], "a BIGINT, b VARCHAR: 1234|x 12|y");
    ok("a,b\n1,2\n", &[("all_varchar", "true")], "a VARCHAR, b VARCHAR: 1|2");
    ok(
        "a,b,c\n1,2\n3\n4,5,6\n",
        &[("null_padding", "true")],
        "a BIGINT, b BIGINT, c BIGINT: 1|2|∅ 3|∅|∅ 4|5|6",
    );
    ok("a,b\n1,2\n3\n4,5,6\n7,8\n", &[("ignore_errors", "true")], "a BIGINT, b BIGINT: 1|2 7|8");
    ok("a,b\n1,2\n", &[("header", "false"), ("delimiter", "tab")], "column_1 VARCHAR: a,b 1,2");
    check_error(
        with("a,b,c\n1,2\n4,5,6\n1,2,3\n1,2,3\n1,2,3\n", &[("null_padding", "false")]),
        &["line 2", "2 fields", "null_padding"],
    );
    check_error(with("a,b\n1,2,3\n", &[("null_padding", "true")]), &["2", "fields"]);
    let bad = |tell: &[(&str, &str)], parts: &[&str]| check_error(with("a,b\n1,2\n", tell), parts);
    bad(&[("decimal_separator", ";")], &["'.' or ','"]);
    bad(&[("decimal_separator", ","), ("thousands", ",")], &["the same character"]);
    bad(&[("thousands", "1")], &["grouped by"]);
    bad(&[("dateformat", "%d/%m")], &["dateformat", "%Y"]);
    bad(&[("dateformat", "%d/%m/%Y %H:%M")], &["timestampformat"]);
    bad(&[("timestampformat", "%Q")], &["timestampformat"]);
    bad(&[("all_varchar", "true"), ("dateformat", "%d/%m/%Y")], &["all_varchar"]);
    bad(&[("comment", ","), ("delim", ",")], &["comment"]);
    bad(&[("delim", ";;")], &["one ASCII character"]);
    bad(&[("skip", "x")], &["skip"]);
    bad(&[("header", "maybe")], &["true or false"]);
    bad(&[("encoding", "klingon")], &["klingon"]);
    assert!(!CsvOptions::sniffed().tell("columns", &[]).unwrap());
}

#[test]
fn encodings_are_found_out() {
    check(b"a,b\n1,caf\xe9\n2,na\xefve\n", "a BIGINT, b VARCHAR: 1|café 2|naïve", "windows-1252");
    let utf16: Vec<u8> =
        "\u{feff}a;b\n1;é\n2;x\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    check(&utf16, "a BIGINT, b VARCHAR: 1|é 2|x", "delimiter \";\", UTF-16LE");
    let told = found("x.csv", b"a,b\n1,\x83n\n", &[("encoding", "shift_jis")]).unwrap();
    assert!(told.1.contains("Shift_JIS"), "{told:?}");
    // After more than a head of plain text.
    let mut late = b"a,b\n".to_vec();
    (0..60_000).for_each(|i| late.extend(format!("{i},x\n").bytes()));
    late.extend(b"7,\xe9\n");
    let (columns, said) = found("late.csv", &late, &[]).unwrap();
    assert!(columns.ends_with("7|é"));
    assert_eq!(said, "windows-1252");
    // Bytes that are wrong in text that is UTF-8 else are told where they are.
    let error = found("bad.csv", b"a,b\n1,\xc3\xa9\xc3\xa9\n2,\xff\n", &[]);
    check_error(error, &["line 3", "not UTF-8"]);
}

fn zip(files: &[(&str, &[u8])], method: u16) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let packed = match method {
            0 => content.to_vec(),
            _ => {
                let mut deflate =
                    flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
                deflate.write_all(content).unwrap();
                deflate.finish().unwrap()
            }
        };
        let mut common = Vec::new();
        for part in [20u16, 0, method, 0, 0] {
            common.extend(part.to_le_bytes());
        }
        for part in [crc32fast::hash(content), packed.len() as u32, content.len() as u32] {
            common.extend(part.to_le_bytes());
        }
        common.extend((name.len() as u16).to_le_bytes());
        common.extend([0, 0]);
        let offset = out.len() as u32;
        out.extend(b"PK\x03\x04");
        out.extend(&common);
        out.extend(name.bytes());
        out.extend(packed);
        directory.extend(b"PK\x01\x02\x14\0");
        directory.extend(&common);
        directory.extend([0; 10]);
        directory.extend(offset.to_le_bytes());
        directory.extend(name.bytes());
    }
    let (count, start) = (files.len() as u16, out.len() as u32);
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend([count.to_le_bytes(), count.to_le_bytes()].concat());
    out.extend((directory.len() as u32).to_le_bytes());
    out.extend(start.to_le_bytes());
    out.extend([0, 0]);
    out
}

#[test]
fn other_packings() {
    let dir = folder();
    let mut text = "a,b\n".to_owned();
    (0..20_000).for_each(|i| text += &format!("{i},value {i}\n"));
    let mut bz = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bz.write_all(text.as_bytes()).unwrap();
    let bz = bz.finish().unwrap();
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
    xz.write_all(text.as_bytes()).unwrap();
    let xz = xz.finish().unwrap();
    let inside: &[(&str, &[u8])] = &[("data/x.csv", text.as_bytes()), ("__MACOSX/x", b"?")];
    let (stored, deflated) = (zip(inside, 0), zip(inside, 8));
    for (name, bytes, packing) in [
        ("x.csv.bz2", &bz, Compression::Bzip2),
        ("x.csv.xz", &xz, Compression::Xz),
        ("x.csv.zip", &stored, Compression::Zip),
        ("x.zip", &deflated, Compression::Zip),
    ] {
        let path = write(&dir, name, bytes);
        let (format, found) = format_of(&path).unwrap();
        assert_eq!(found, packing, "{name}");
        assert_eq!(load(&path, &format, &two()).unwrap().len(), 20_000, "{name}");
        for at in [bytes.len() / 2, bytes.len() - 1] {
            let path = write(&dir, name, &bytes[..at]);
            check_error(load(&path, &csv(), &two()), &[name, "damaged or cut short"]);
        }
    }
    let mut wrong = stored.clone();
    let at = wrong.windows(7).position(|w| w == b"value 7").unwrap();
    wrong[at] ^= 1;
    check_error(load(&write(&dir, "w.zip", wrong), &csv(), &two()), &["w.zip", "checksum"]);
    let two_files: &[(&str, &[u8])] = &[("a.csv", b"a,b\n"), ("b.csv", b"a,b\n")];
    let several = write(&dir, "2.zip", zip(two_files, 8));
    check_error(load(&several, &csv(), &two()), &["2 files", "a.csv", "unzip"]);
    check_error(load(&write(&dir, "0.zip", zip(&[], 8)), &csv(), &two()), &["no file"]);
}

/// Files of one load may differ in their dialects.
#[test]
fn each_file_has_its_own_dialect() {
    let dir = folder();
    let files = [
        write(&dir, "1.csv", "a,b\n1,x\n"),
        write(&dir, "2.csv", "a;b\n2;y\n"),
        write(&dir, "3.csv", b"Title\n\na\tb\n3\tcaf\xe9\n"),
    ];
    let format = Format::Csv(CsvOptions::sniffed());
    let found = infer(&files, &format).unwrap();
    let said: Vec<String> = found.dialects.iter().map(|(_, d)| d.to_string()).collect();
    assert_eq!(
        said,
        ["", "delimiter \";\"", "delimiter tab, 2 lines above left out, windows-1252"]
    );
    let reader = open(&files, &format, &found.schema()).unwrap();
    assert_eq!(rows(&read_all(&reader, &found.schema()).unwrap()), ["1|x", "2|y", "3|café"]);
}

/// Reading as many columns takes about as many times as long, not its square.
#[test]
fn wide_files_are_read_in_linear_time() {
    let dir = folder();
    let seconds = |columns: usize| {
        let mut text: String = (0..columns).map(|i| format!("column {i},")).collect();
        text.pop();
        for row in 0..20 {
            text += "\n";
            (0..columns).for_each(|i| text += &format!("{},", (row * i) % 97));
            text.pop();
        }
        let path = write(&dir, "wide.csv", text);
        let format = Format::Csv(CsvOptions::sniffed());
        let started = std::time::Instant::now();
        let found = infer(std::slice::from_ref(&path), &format).unwrap();
        assert_eq!(found.columns.len(), columns);
        let schema = found.schema();
        let loaded = read_all(&open(&[path], &format, &schema).unwrap(), &schema).unwrap();
        assert_eq!((loaded.num_rows(), loaded.num_columns()), (20, columns));
        started.elapsed().as_secs_f64()
    };
    let narrow = seconds(1000);
    let wide = seconds(16_000);
    assert!(wide < 16.0 * narrow * 6.0 + 0.5, "{narrow} s for 1,000, {wide} s for 16,000");
}

/// A dialect to write in.
#[derive(Clone, Debug)]
struct Written {
    delimiter: char,
    quote: char,
    backslash: bool,
    line_end: &'static str,
    title: bool,
    utf16: bool,
}

fn written() -> impl Strategy<Value = Written> {
    let delimiter = prop::sample::select(vec![',', ';', '\t', '|']);
    let line_end = prop::sample::select(vec!["\n", "\r\n", "\r"]);
    (delimiter, any::<bool>(), any::<bool>(), line_end, any::<bool>(), any::<bool>()).prop_map(
        |(delimiter, single, backslash, line_end, title, utf16)| Written {
            delimiter,
            quote: if single { '\'' } else { '"' },
            backslash,
            line_end,
            title,
            utf16,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// A table with a header, two typed columns and two of quoted text is read as it was written,
    /// whatever the dialect.
    #[test]
    fn tables_come_back_from_any_dialect(
        table in prop::collection::vec(
            (any::<i64>(), "[a-z ,;|\t\"'\\\\éß]{0,8}[a-z]", -999i32..999, "[A-Z]{1,3}"), 3..40),
        dialect in written(),
    ) {
        let Written { delimiter, quote, backslash, line_end, title, utf16 } = dialect.clone();
        let quoted = |text: &str| {
            let inner: String = text.chars().map(|c| match c {
                c if c == quote && backslash => format!("\\{c}"),
                c if c == quote => format!("{c}{c}"),
                '\\' if backslash => "\\\\".to_owned(),
                c => c.to_string(),
            }).collect();
            format!("{quote}{inner}{quote}")
        };
        let mut lines = Vec::new();
        if title {
            lines.push("A title".to_owned());
            lines.push(String::new());
        }
        let row = |fields: [String; 4]| fields.join(&delimiter.to_string());
        lines.push(row(["id".into(), "text".into(), "share".into(), "code".into()]));
        for (id, text, share, code) in &table {
            let share = format!("{}.5", share);
            lines.push(row([id.to_string(), quoted(text), share, quoted(code)]));
        }
        let text = lines.join(line_end) + line_end;
        let bytes: Vec<u8> = if utf16 {
            format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect()
        } else {
            text.clone().into_bytes()
        };
        // Told only where a backslash is a character as good as another.
        let mut tell = Vec::new();
        let doubled = table.iter().any(|(_, text, ..)| text.contains('\\'));
        if doubled {
            tell.push(("escape", if backslash { "\\" } else { "none" }));
        }
        let (found, said) = found("p.csv", &bytes, &tell).unwrap();
        let rows = table.iter().map(|(id, text, share, code)| {
            let share: f64 = format!("{share}.5").parse().unwrap();
            format!("{id}|{text}|{share:?}|{code}")
        });
        let expected = format!(
            "id BIGINT, text VARCHAR, share DOUBLE, code VARCHAR: {}",
            rows.collect::<Vec<_>>().join(" ")
        );
        prop_assert_eq!(found, expected, "{:?} {}\n{}", dialect, said, text);
    }
}
