//! Options of delimited text and workbooks that few files need: they have the names that they have in SQL, and are told
//! to the reader as SQL tells them.

/// All of them.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct DialectArgs {
    /// Lines of CSV that begin with this character are left out, or `none` [default: found in the file]
    #[arg(long, value_name = "CHAR")]
    comment: Option<String>,

    /// Lines above the first record of each CSV file that are left out [default: found in the file]
    #[arg(long, value_name = "N")]
    skip: Option<u64>,

    /// Encoding of CSV files, such as utf-8, utf-16 or latin-1 [default: found in the file]
    #[arg(long, value_name = "NAME")]
    encoding: Option<String>,

    /// How dates are written in CSV, such as %d/%m/%Y
    #[arg(long, value_name = "FORMAT")]
    dateformat: Option<String>,

    /// How timestamps are written in CSV, such as '%d/%m/%Y %H:%M'
    #[arg(long, value_name = "FORMAT")]
    timestampformat: Option<String>,

    /// What stands before the fraction of numbers in CSV: `.` or `,`
    #[arg(long, value_name = "CHAR")]
    decimal_separator: Option<String>,

    /// What stands between groups of three digits in CSV
    #[arg(long, value_name = "CHAR")]
    thousands: Option<String>,

    /// All columns that are found in CSV files are text
    #[arg(long)]
    all_varchar: bool,

    /// Rows of CSV with too few fields have NULL in the others
    #[arg(long)]
    null_padding: bool,

    /// Leave out bad rows of CSV, however many they are
    #[arg(long, conflicts_with = "max_errors")]
    ignore_errors: bool,

    /// Bytes that a row of CSV may have, if 64 MiB are not enough
    #[arg(long, value_name = "BYTES")]
    max_line_size: Option<u64>,

    /// The sheet of each Excel workbook [default: the first with a value]
    #[arg(long, value_name = "NAME")]
    sheet: Option<String>,

    /// The cells of the sheet that are the table, such as B3:F40 or B:F [default: found in the sheet]
    #[arg(long, value_name = "CELLS")]
    range: Option<String>,

    /// The table of a sheet ends at the first empty row
    #[arg(long)]
    stop_at_empty: bool,
}

impl DialectArgs {
    /// The options that were said, with their values.
    pub fn told(&self) -> Vec<(String, String)> {
        let DialectArgs {
            comment,
            skip,
            encoding,
            dateformat,
            timestampformat,
            decimal_separator,
            thousands,
            all_varchar,
            null_padding,
            ignore_errors,
            max_line_size,
            sheet,
            range,
            stop_at_empty,
        } = self;
        let flag = |on: &bool| on.then(|| "true".to_owned());
        let number = |n: &Option<u64>| n.map(|n| n.to_string());
        let options = [
            ("comment", comment.clone()),
            ("skip", number(skip)),
            ("encoding", encoding.clone()),
            ("dateformat", dateformat.clone()),
            ("timestampformat", timestampformat.clone()),
            ("decimal_separator", decimal_separator.clone()),
            ("thousands", thousands.clone()),
            ("all_varchar", flag(all_varchar)),
            ("null_padding", flag(null_padding)),
            ("ignore_errors", flag(ignore_errors)),
            ("max_line_size", number(max_line_size)),
            ("sheet", sheet.clone()),
            ("range", range.clone()),
            ("stop_at_empty", flag(stop_at_empty)),
        ];
        let told = |(name, value): (&str, Option<String>)| Some((name.to_owned(), value?));
        options.into_iter().filter_map(told).collect()
    }
}
