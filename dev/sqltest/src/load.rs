//! `LOAD`, for tests only: what `thalweg load` does, as a statement.
//!
//! ```text
//! LOAD [schema.]table FROM 'file' ['file' …]
//!     [COLUMNS (a INT, b VARCHAR)] [CLUSTER BY (a, b)] [FORMAT csv|json|parquet|arrow]
//!     [DELIMITER ';'] [QUOTE '''' | QUOTE none] [ESCAPE '\'] [HEADER true|false] [NULLS ('', 'NA')]
//!     [NEW_COLUMNS add|ignore] [MAX_ERRORS n] [REJECTS 'file'] [COMMIT_EVERY files] [RESUME true]
//! ```

use thalweg_base::{Error, Result};
use thalweg_engine::{CommitEvery, CsvOptions, Format, JsonOptions, Load, LoadRequest, NewColumns};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Quoted(String),
    /// What stands between parentheses.
    Group(String),
}

/// What a `LOAD` statement asks for; `None` if it is another statement.
pub fn parse(sql: &str) -> Result<Option<Load>> {
    let Some(rest) = sql.trim().strip_prefix("LOAD ") else { return Ok(None) };
    let mut tokens = tokens(rest).into_iter().peekable();
    let wrong = |what: &str| Error::user(format!("LOAD: {what}: {sql}"));
    let mut load = Load { remember: true, ..Load::from(vec![]) };
    let mut request = LoadRequest::default();
    let mut csv: Option<CsvOptions> = None;
    match tokens.next() {
        Some(Token::Word(table) | Token::Quoted(table)) => request.table = table,
        _ => return Err(wrong("a table is expected")),
    }
    while let Some(token) = tokens.next() {
        let Token::Word(word) = token else { return Err(wrong("a word is expected")) };
        if word == "FROM" {
            while let Some(Token::Quoted(file)) = tokens.next_if(|t| matches!(t, Token::Quoted(_)))
            {
                request.files.push(file);
            }
            continue;
        }
        if word == "CLUSTER" && tokens.next() != Some(Token::Word("BY".into())) {
            return Err(wrong("CLUSTER BY is expected"));
        }
        let argument = match tokens.next() {
            Some(Token::Word(text) | Token::Quoted(text) | Token::Group(text)) => text,
            None => return Err(wrong("an argument is missing")),
        };
        let byte = argument.bytes().next().unwrap_or(b',');
        let mut told = csv.clone().unwrap_or_else(CsvOptions::sniffed);
        match word.as_str() {
            "COLUMNS" => request.columns = Some(argument),
            "CLUSTER" => {
                request.cluster_by = argument.split(',').map(|c| c.trim().to_string()).collect();
            }
            "FORMAT" => {
                request.format = Some(match argument.as_str() {
                    "csv" => Format::Csv(CsvOptions::sniffed()),
                    "json" => Format::Json(JsonOptions::default()),
                    "parquet" => Format::Parquet,
                    "arrow" => Format::Arrow,
                    _ => return Err(wrong("no such format")),
                });
            }
            "DELIMITER" => {
                told.tell_delimiter(byte);
                csv = Some(told);
            }
            "QUOTE" => {
                told.tell_quote((argument != "none").then_some(byte));
                csv = Some(told);
            }
            "ESCAPE" => {
                told.tell_escape(Some(byte));
                csv = Some(told);
            }
            "NULLS" => {
                let null = |t: &Token| match t {
                    Token::Word(text) | Token::Quoted(text) | Token::Group(text) => text.clone(),
                };
                told.nulls = self::tokens(&argument).iter().map(null).collect();
                csv = Some(told);
            }
            "NEW_COLUMNS" => {
                request.new_columns = match argument.as_str() {
                    "add" => NewColumns::Add,
                    "ignore" => NewColumns::Ignore,
                    _ => return Err(wrong("add or ignore is expected")),
                };
            }
            "MAX_ERRORS" => {
                load.rejects_max = argument.parse().map_err(|_| wrong("a number is expected"))?;
            }
            "REJECTS" => load.reject_file = Some(argument.into()),
            "COMMIT_EVERY" => {
                let files = argument.parse().map_err(|_| wrong("a number is expected"))?;
                load.commit_every = Some(CommitEvery::Files(files));
            }
            "RESUME" => load.resume = argument == "true",
            option if told.tell(option, std::slice::from_ref(&argument))? => csv = Some(told),
            _ => return Err(wrong(&format!("unknown option {word}"))),
        }
    }
    request.csv = csv;
    load.requests.push(request);
    Ok(Some(load))
}

/// Blanks and commas separate.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = vec![];
    let mut chars = text.chars().peekable();
    while let Some(&c) = chars.peek() {
        match c {
            c if c.is_whitespace() || c == ',' => {
                chars.next();
            }
            '\'' => {
                chars.next();
                let mut out = String::new();
                while let Some(c) = chars.next() {
                    if c == '\'' && chars.next_if_eq(&'\'').is_none() {
                        break;
                    }
                    out.push(c);
                }
                tokens.push(Token::Quoted(out));
            }
            '(' => {
                chars.next();
                let (mut out, mut depth) = (String::new(), 1);
                for c in chars.by_ref() {
                    depth += match c {
                        '(' => 1,
                        ')' => -1,
                        _ => 0,
                    };
                    if depth == 0 {
                        break;
                    }
                    out.push(c);
                }
                tokens.push(Token::Group(out));
            }
            _ => {
                let mut out = String::new();
                while let Some(c) =
                    chars.next_if(|c| !c.is_whitespace() && !matches!(c, ',' | '(' | '\''))
                {
                    out.push(c);
                }
                tokens.push(Token::Word(out));
            }
        }
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_options_are_read() {
        let text =
            "LOAD s.t FROM 'a.csv', 'b.csv' COLUMNS (a INT, b DECIMAL(4, 2)) CLUSTER BY (a, b)
            DELIMITER ';' QUOTE '''' HEADER false NULLS ('', 'NA')";
        let load = parse(text).unwrap().unwrap();
        let request = &load.requests[0];
        assert_eq!(request.table, "s.t");
        assert_eq!(request.files, ["a.csv", "b.csv"]);
        assert_eq!(request.columns.as_deref(), Some("a INT, b DECIMAL(4, 2)"));
        assert_eq!(request.cluster_by, ["a", "b"]);
        let mut csv = CsvOptions {
            header: Some(false),
            nulls: vec![String::new(), "NA".into()],
            ..CsvOptions::sniffed()
        };
        csv.tell_delimiter(b';');
        csv.tell_quote(Some(b'\''));
        assert_eq!(request.csv, Some(csv));
        assert!(parse("SELECT 1").unwrap().is_none());
        assert!(parse("LOAD t FROM 'a' WITH b").is_err());
    }
}
