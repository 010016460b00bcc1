//! How delimited text is to be read: what a person says, and what is left to be found out.

use encoding_rs::Encoding;
use thalweg_base::limits::{LOAD_RECORD_BYTES_MAX, LOAD_TOLD_RECORD_BYTES_MAX};
use thalweg_base::{Error, Result, text};

use super::dates::{DateOrder, Pattern};
use super::layout::shortened;

/// The dialect of delimited text, and how its values are spelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvOptions {
    pub delimiter: u8,
    /// `None`: quotes are ordinary characters. A quote inside a quoted field is doubled.
    pub quote: Option<u8>,
    /// Inside quotes, takes the next character as it is; besides doubling.
    pub escape: Option<u8>,
    /// Whether the first record names the columns. `None`: found out per file.
    pub header: Option<bool>,
    /// What NULL looks like. Only unquoted fields are compared: `""` is the empty string.
    pub nulls: Vec<String>,
    /// Lines that begin with it are passed over.
    pub comment: Option<u8>,
    /// Lines above the first record.
    pub skip: u64,
    /// `None`: that of the byte-order mark, else UTF-8.
    pub encoding: Option<&'static Encoding>,
    /// How dates are written, as `strptime` takes it. `None`: as ISO 8601 has them.
    pub dateformat: Option<String>,
    pub timestampformat: Option<String>,
    /// `.` or `,`.
    pub decimal_separator: u8,
    /// What stands between groups of digits.
    pub thousands: Option<u8>,
    /// Columns that are found are text.
    pub all_varchar: bool,
    /// Rows with too few fields have NULL in the others.
    pub null_padding: bool,
    /// Bad rows are left out, however many they are.
    pub ignore_errors: bool,
    /// What the first columns of each file are called, whatever its header says.
    pub names: Vec<String>,
    /// Files that have other columns than the first are refused.
    pub same_columns: bool,
    /// Bytes that a record may have.
    pub record_bytes_max: usize,
    /// What is found out for each file, in place of the fields above.
    pub sniff: Sniff,
    /// Columns whose dates were found to have another order than that of ISO 8601.
    pub orders: Vec<(String, DateOrder)>,
}

/// What of a dialect is found out for each file. What a person said is not among it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sniff {
    pub delimiter: bool,
    /// The quote, and whether blanks may stand before it.
    pub quote: bool,
    pub escape: bool,
    pub comment: bool,
    /// Lines above the first record: titles, comments, `sep=;`.
    pub skip: bool,
    /// Whether text that is not UTF-8 is taken for Windows-1252.
    pub encoding: bool,
    /// Whether rows may end early.
    pub padding: bool,
    /// Decimal commas, and what groups digits.
    pub numbers: bool,
}

impl Sniff {
    pub const ALL: Sniff = Sniff {
        delimiter: true,
        quote: true,
        escape: true,
        comment: true,
        skip: true,
        encoding: true,
        padding: true,
        numbers: true,
    };

    /// Whether records have to be looked at.
    pub(super) fn any(&self) -> bool {
        self.delimiter
            || self.quote
            || self.escape
            || self.comment
            || self.skip
            || self.padding
            || self.numbers
    }
}

impl Default for CsvOptions {
    /// Commas and double quotes; only the header is found out. See [`CsvOptions::sniffed`].
    fn default() -> Self {
        CsvOptions {
            delimiter: b',',
            quote: Some(b'"'),
            escape: None,
            header: None,
            nulls: vec![String::new()],
            comment: None,
            skip: 0,
            encoding: None,
            dateformat: None,
            timestampformat: None,
            decimal_separator: b'.',
            thousands: None,
            all_varchar: false,
            null_padding: false,
            ignore_errors: false,
            names: Vec::new(),
            same_columns: false,
            record_bytes_max: LOAD_RECORD_BYTES_MAX,
            sniff: Sniff::default(),
            orders: Vec::new(),
        }
    }
}

impl CsvOptions {
    /// The options that [`CsvOptions::tell`] takes, each by the name that it has first.
    pub const NAMES: [&str; 16] = [
        "header",
        "delim",
        "quote",
        "escape",
        "comment",
        "skip",
        "nullstr",
        "encoding",
        "dateformat",
        "timestampformat",
        "decimal_separator",
        "thousands",
        "all_varchar",
        "null_padding",
        "ignore_errors",
        "max_line_size",
    ];

    /// All of the dialect is found out, but for what is [told](CsvOptions::tell) afterwards.
    pub fn sniffed() -> CsvOptions {
        CsvOptions { sniff: Sniff::ALL, ..CsvOptions::default() }
    }

    pub fn tell_delimiter(&mut self, delimiter: u8) {
        self.delimiter = delimiter;
        self.sniff.delimiter = false;
    }

    /// With quotes that are told, an escape that is not is none.
    pub fn tell_quote(&mut self, quote: Option<u8>) {
        self.quote = quote;
        self.sniff.quote = false;
    }

    pub fn tell_escape(&mut self, escape: Option<u8>) {
        self.escape = escape.filter(|_| escape != self.quote);
        self.sniff.escape = false;
    }

    /// Takes one option under the name it has in SQL. Without values it is switched on. False: it
    /// is none of these options.
    ///
    /// # Errors
    /// The values are none that the option takes. How options go together is up to
    /// [`CsvOptions::check`].
    pub fn tell(&mut self, name: &str, values: &[String]) -> Result<bool> {
        let name = name.to_ascii_lowercase();
        let one = || match values {
            [value] => Ok(value.as_str()),
            _ => Err(Error::user(format!("option {name} takes one value"))
                .hint(format!("for example {name} ','"))),
        };
        let byte = |value: &str| match value.as_bytes() {
            [byte] => Ok(*byte),
            b"\\t" => Ok(b'\t'),
            _ if value.eq_ignore_ascii_case("tab") => Ok(b'\t'),
            _ => Err(Error::user(format!("option {name} takes one ASCII character"))
                .detail(format!("it is {}", shortened(value.as_bytes())))
                .hint("for example ';', or 'tab'")),
        };
        let byte_or_none = |value: &str| match value {
            "" => Ok(None),
            _ if value.eq_ignore_ascii_case("none") => Ok(None),
            _ => byte(value).map(Some),
        };
        let flag = || match values {
            [] => Ok(true),
            [value] => match value.to_ascii_lowercase().as_str() {
                "true" | "on" | "1" | "t" | "yes" | "" => Ok(true),
                "false" | "off" | "0" | "f" | "no" => Ok(false),
                _ => Err(Error::user(format!("option {name} is true or false"))
                    .detail(format!("it is {}", shortened(value.as_bytes())))
                    .hint("leave it out to have it found out")),
            },
            _ => Err(Error::user(format!("option {name} takes one value")).hint("true or false")),
        };
        match name.as_str() {
            "header" => self.header = Some(flag()?),
            "delim" | "delimiter" | "sep" => self.tell_delimiter(byte(one()?)?),
            "quote" => self.tell_quote(byte_or_none(one()?)?),
            "escape" => self.tell_escape(byte_or_none(one()?)?),
            "comment" => {
                self.comment = byte_or_none(one()?)?;
                self.sniff.comment = false;
            }
            "skip" => {
                self.skip = one()?.trim().parse().map_err(|_| {
                    Error::user("option skip takes the number of lines above the header")
                        .hint("for example skip 3")
                })?;
                self.sniff.skip = false;
            }
            "null" | "nulls" | "nullstr" | "null_value" => self.nulls = values.to_vec(),
            "encoding" => {
                let label = one()?;
                let found = Encoding::for_label(label.as_bytes()).or_else(|| {
                    // As DuckDB spells them.
                    Encoding::for_label(label.replace(['-', '_'], "").as_bytes())
                });
                self.encoding = Some(found.ok_or_else(|| {
                    Error::user(format!("encoding {} is not known", text::quoted(label)))
                        .hint("for example utf-8, utf-16, latin-1, windows-1252 or shift_jis")
                })?);
                self.sniff.encoding = false;
            }
            "dateformat" | "date_format" => self.dateformat = Some(one()?.to_owned()),
            "timestampformat" | "timestamp_format" => {
                self.timestampformat = Some(one()?.to_owned());
            }
            "decimal_separator" | "decimal" => {
                self.decimal_separator = byte(one()?)?;
                self.sniff.numbers = false;
            }
            "thousands" | "thousands_separator" => {
                self.thousands = byte_or_none(one()?)?;
                self.sniff.numbers = false;
            }
            "all_varchar" => self.all_varchar = flag()?,
            "null_padding" => {
                self.null_padding = flag()?;
                self.sniff.padding = false;
            }
            "ignore_errors" => self.ignore_errors = flag()?,
            "max_line_size" | "maximum_line_size" => {
                let bytes = one()?.trim().parse().ok().filter(|n| *n <= LOAD_TOLD_RECORD_BYTES_MAX);
                let bytes: usize = bytes.ok_or_else(|| {
                    let most = LOAD_TOLD_RECORD_BYTES_MAX;
                    Error::user(format!("option {name} takes a number of bytes, {most} at most"))
                        .hint(format!("for example {name} 100000000"))
                })?;
                // It is there to read long records: what is read without it is read with it.
                self.record_bytes_max = bytes.max(LOAD_RECORD_BYTES_MAX);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Refuses dialects that cannot be read back unambiguously, and options that contradict each
    /// other.
    pub fn check(&self) -> Result<()> {
        let bytes = [Some(self.delimiter), self.quote, self.escape, self.comment];
        for byte in bytes.into_iter().flatten() {
            if !byte.is_ascii() || matches!(byte, 0 | b'\n' | b'\r') {
                return Err(Error::user(
                    "delimiter, quote, escape and comment must each be one ASCII character, not a line end",
                )
                .hint("for another delimiter, convert the file first"));
            }
        }
        if self.quote == Some(self.delimiter) || self.escape == Some(self.delimiter) {
            return Err(Error::user("the delimiter cannot also be the quote or the escape")
                .hint("name the delimiter that the file has"));
        }
        let comment = self.comment;
        if comment.is_some() && (comment == Some(self.delimiter) || comment == self.quote) {
            return Err(Error::user("the comment cannot also be the delimiter or the quote")
                .hint("leave it out: `#` is found where it begins comments"));
        }
        let special = |b: u8| b == self.delimiter || Some(b) == self.quote || b"\r\n".contains(&b);
        // What is found out later is not known here.
        let special = |b: u8| special(b) && !(self.sniff.delimiter && b == self.delimiter);
        if let Some(null) = self.nulls.iter().find(|null| null.bytes().any(special)) {
            return Err(Error::user(format!(
                "the text of NULL {} has the delimiter, the quote or a line end in it",
                text::quoted(null)
            ))
            .hint("choose another: NULL 'NULL', or NULL '' for nothing"));
        }
        self.check_spelling()
    }

    fn check_spelling(&self) -> Result<()> {
        if !matches!(self.decimal_separator, b'.' | b',') {
            return Err(Error::user("the decimal separator is '.' or ','")
                .hint("load the column as VARCHAR and convert it with INSERT … SELECT"));
        }
        if let Some(thousands) = self.thousands {
            if thousands == self.decimal_separator {
                return Err(Error::user("decimal separator and thousands are the same character")
                    .hint("for 1.234,5 say decimal_separator ',' and thousands '.'"));
            }
            if !matches!(thousands, b',' | b'.' | b' ' | b'\'' | b'_') {
                return Err(Error::user(
                    "thousands are grouped by a comma, a point, a blank, an apostrophe or _",
                )
                .hint("for example thousands ','"));
            }
        }
        for (name, format, clock) in [
            ("dateformat", &self.dateformat, false),
            ("timestampformat", &self.timestampformat, true),
        ] {
            let Some(format) = format else { continue };
            let pattern = Pattern::new(format).map_err(|why| {
                Error::user(format!("{name} {}: {why}", text::quoted(format)))
                    .hint("for example '%d/%m/%Y', or '%d/%m/%Y %H:%M:%S'")
            })?;
            if !clock && pattern.has_clock() {
                return Err(Error::user(format!(
                    "dateformat {} has a time of day in it",
                    text::quoted(format)
                ))
                .hint("name it timestampformat"));
            }
        }
        let spelled = self.dateformat.is_some()
            || self.timestampformat.is_some()
            || self.decimal_separator != b'.'
            || self.thousands.is_some();
        if self.all_varchar && spelled {
            return Err(Error::user(
                "all_varchar leaves no column to read with a format or separators of numbers",
            )
            .hint("leave out one of the two"));
        }
        Ok(())
    }
}
