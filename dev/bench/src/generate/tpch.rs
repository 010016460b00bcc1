//! TPC-H, by `tpchgen`: the bytes of the official `dbgen`.

use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

use super::{PART_ROWS, Source};

/// Lines of an order and suppliers of a part are 4, the former on average.
const CHILDREN: u64 = 4;

pub(super) fn sources(scale_factor: f64) -> Vec<Source> {
    macro_rules! rows {
        ($generator:ident) => {
            $generator::calculate_row_count(scale_factor, 1, 1) as u64
        };
    }
    macro_rules! source {
        ($name:literal, $generator:ident, $arrow:ident, $rows:expr) => {{
            let rows_expected: u64 = $rows;
            let parts = rows_expected.div_ceil(PART_ROWS) as i32;
            Source {
                name: $name,
                schema: $arrow::schema_ref(),
                rows_expected,
                parts: parts as usize,
                // tpchgen counts parts from 1.
                part: Box::new(move |part| {
                    let generator = $generator::new(scale_factor, part as i32 + 1, parts);
                    Box::new($arrow::new(generator))
                }),
            }
        }};
    }
    let orders = rows!(OrderGenerator);
    let parts = rows!(PartGenerator);
    vec![
        source!("region", RegionGenerator, RegionArrow, 5),
        source!("nation", NationGenerator, NationArrow, 25),
        source!("supplier", SupplierGenerator, SupplierArrow, rows!(SupplierGenerator)),
        source!("customer", CustomerGenerator, CustomerArrow, rows!(CustomerGenerator)),
        source!("part", PartGenerator, PartArrow, parts),
        source!("partsupp", PartSuppGenerator, PartSuppArrow, parts * CHILDREN),
        source!("orders", OrderGenerator, OrderArrow, orders),
        source!("lineitem", LineItemGenerator, LineItemArrow, orders * CHILDREN),
    ]
}
