//! The CSV files that loads are measured with, and the tables they are for.

use std::path::{Path, PathBuf};

use thalweg_base::Result;

use crate::generate::FileFormat;
use crate::peers;
pub use crate::run::DataSetKind;
use crate::run::{self, Options, Watch};
use crate::workload::Workload;

#[derive(Clone, Debug)]
pub struct DataSet {
    pub kind: DataSetKind,
    /// `SSB SF 1`.
    pub title: String,
    /// One `CREATE TABLE` per table: every engine stores the same types.
    pub schema: &'static str,
    pub tables: Vec<(String, Vec<PathBuf>)>,
    /// What NULL looks like.
    pub null: &'static str,
}

impl DataSet {
    /// Generates or unpacks the files, unless they are there.
    pub fn find(
        kind: DataSetKind,
        options: &Options,
        python: &Path,
        watch: &Watch,
    ) -> Result<DataSet> {
        let benchmark = match kind {
            DataSetKind::Generated(benchmark) => benchmark,
            DataSetKind::Flights => {
                return Ok(DataSet {
                    kind,
                    title: "Flights 2013".into(),
                    schema: include_str!("../schemas/flights.sql"),
                    tables: peers::flights(python, &run::data_folder(options).join("flights"))?,
                    null: "NA",
                });
            }
        };
        let (_, files) = run::data(options, benchmark, FileFormat::Csv, watch)?;
        Ok(DataSet {
            kind,
            title: format!("{benchmark} SF {}", options.scale_factor),
            schema: Workload::new(benchmark)?.schema,
            tables: files.into_iter().map(|t| (t.name, t.files)).collect(),
            null: "",
        })
    }

    pub fn files(&self) -> Vec<PathBuf> {
        self.tables.iter().flat_map(|(_, files)| files).cloned().collect()
    }
}
