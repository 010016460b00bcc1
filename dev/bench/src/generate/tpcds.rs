//! TPC-DS, by `tpcdsgen`: the bytes of the official `dsdgen`, its known mistakes included.
//!
//! The generator walks *source rows*: for most tables a source row is a row; for the three
//! channels it is an order of several lines, and the table of returns walks the orders of its
//! channel again and keeps the lines that came back.

use thalweg_base::{Error, Result};
use tpcdsgen::config::{Session, SessionBuilder, Table};
use tpcdsgen_arrow::{
    CallCenterArrow, CatalogPageArrow, CatalogReturnsArrow, CatalogSalesArrow,
    CustomerAddressArrow, CustomerArrow, CustomerDemographicsArrow, DateDimArrow,
    HouseholdDemographicsArrow, IncomeBandArrow, InventoryArrow, ItemArrow, PromotionArrow,
    ReasonArrow, ShipModeArrow, StoreArrow, StoreReturnsArrow, StoreSalesArrow, TimeDimArrow,
    WarehouseArrow, WebPageArrow, WebReturnsArrow, WebSalesArrow, WebSiteArrow,
};

use super::{PART_ROWS, Source};

/// Lines of an order, on average: 8 to 16 in stores and on the web, 4 to 14 by catalog.
const STORE_LINES: f64 = 12.0;
const CATALOG_LINES: f64 = 9.0;
const WEB_LINES: f64 = 12.0;

/// The share of lines that come back, in every channel.
const RETURNED: f64 = 0.1;

/// Rows of a part of a table of returns. Fewer than of others, since each costs the making of
/// ten sales.
const RETURNS_PART_ROWS: u64 = PART_ROWS / 4;

pub(super) fn sources(scale_factor: f64) -> Result<Vec<Source>> {
    let session = SessionBuilder::new()
        .with_scale_factor(scale_factor)
        .build()
        .map_err(|e| Error::user(format!("TPC-DS has no scale factor {scale_factor}: {e}")))?;
    macro_rules! source {
        ($table:ident, $arrow:ident) => {
            source!($table, $arrow, 1.0, PART_ROWS)
        };
        ($table:ident, $arrow:ident, $rows_per_source_row:expr, $part_rows:expr) => {{
            let (first_to_last, parts, rows_expected) =
                split(&session, Table::$table, $rows_per_source_row, $part_rows);
            let session = session.clone();
            Source {
                name: Table::$table.get_name(),
                schema: $arrow::schema_ref(),
                rows_expected,
                parts,
                part: Box::new(move |part| {
                    let (first, last) = first_to_last(part);
                    Box::new($arrow::new(session.clone()).with_source_row_range(first, last))
                }),
            }
        }};
    }
    macro_rules! returns {
        ($table:ident, $arrow:ident, $lines:expr) => {
            source!($table, $arrow, $lines * RETURNED, RETURNS_PART_ROWS)
        };
    }
    Ok(vec![
        source!(CallCenter, CallCenterArrow),
        source!(CatalogPage, CatalogPageArrow),
        returns!(CatalogReturns, CatalogReturnsArrow, CATALOG_LINES),
        source!(CatalogSales, CatalogSalesArrow, CATALOG_LINES, PART_ROWS),
        source!(Customer, CustomerArrow),
        source!(CustomerAddress, CustomerAddressArrow),
        source!(CustomerDemographics, CustomerDemographicsArrow),
        source!(DateDim, DateDimArrow),
        source!(HouseholdDemographics, HouseholdDemographicsArrow),
        source!(IncomeBand, IncomeBandArrow),
        source!(Inventory, InventoryArrow),
        source!(Item, ItemArrow),
        source!(Promotion, PromotionArrow),
        source!(Reason, ReasonArrow),
        source!(ShipMode, ShipModeArrow),
        source!(Store, StoreArrow),
        returns!(StoreReturns, StoreReturnsArrow, STORE_LINES),
        source!(StoreSales, StoreSalesArrow, STORE_LINES, PART_ROWS),
        source!(TimeDim, TimeDimArrow),
        source!(Warehouse, WarehouseArrow),
        source!(WebPage, WebPageArrow),
        returns!(WebReturns, WebReturnsArrow, WEB_LINES),
        source!(WebSales, WebSalesArrow, WEB_LINES, PART_ROWS),
        source!(WebSite, WebSiteArrow),
    ])
}

/// How a table is cut: the first and last source row (from 1, inclusive) of each part, the
/// number of parts, and the rows to expect.
fn split(
    session: &Session,
    table: Table,
    rows_per_source_row: f64,
    part_rows: u64,
) -> (impl Fn(usize) -> (u64, u64) + use<>, usize, u64) {
    let source_rows = session.get_scaling().get_row_count(table);
    let rows_expected = (source_rows as f64 * rows_per_source_row) as u64;
    let step = ((part_rows as f64 / rows_per_source_row) as u64).max(1);
    let parts = source_rows.div_ceil(step) as usize;
    let first_to_last = move |part: usize| {
        let first = part as u64 * step + 1;
        (first, (first + step - 1).min(source_rows))
    };
    (first_to_last, parts, rows_expected)
}
