//! Options by their names in SQL.

use thalweg_base::Error;

/// An error of the readers of files, whose hints name options of `thalweg load`, with those of SQL in their
/// place.
pub fn in_sql(error: Error) -> Error {
    match error.hint_text().is_some_and(|hint| hint.contains("--")) {
        true => error.map_text(in_sql_text),
        false => error,
    }
}

/// A text with the options of SQL in the place of those of `thalweg load`.
pub fn in_sql_text(text: &str) -> String {
    const OPTIONS: [(&str, &str); 7] = [
        ("`--no-header`", "read_csv('…', header = false)"),
        ("`--header`", "read_csv('…', header = true)"),
        ("`--delimiter`", "read_csv('…', delim = ';')"),
        ("`--quote none`", "read_csv('…', quote = '')"),
        ("(`--columns`) ", "(columns = {'a': 'VARCHAR', …}) "),
        ("(of a new table: `--type ", "(types = {'"),
        ("=varchar`)", "': 'VARCHAR'})"),
    ];
    let mut text = text.to_owned();
    for (flag, option) in OPTIONS {
        text = text.replace(flag, option);
    }
    // `--null "NA"`, as the value was shown.
    if let Some((before, after)) = text.split_once("`--null \"")
        && let Some((value, rest)) = after.split_once("\"`")
    {
        text = format!("{before}read_csv('…', nullstr = ['', '{value}']){rest}");
    } else if let Some((before, after)) = text.split_once("--null \"")
        && let Some((value, rest)) = after.split_once('"')
    {
        text = format!("{before}nullstr = ['', '{value}']{rest}");
    }
    text
}
