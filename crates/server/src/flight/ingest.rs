//! Bulk ingest: a client's batches as one insert.

use arrow_flight::FlightData;
use arrow_flight::sql::{CommandStatementIngest, TableExistsOption, TableNotExistOption};
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use thalweg_engine::{IfAbsent, IfPresent, Ingest};
use tonic::Streaming;

use super::auth::Caller;
use super::metadata::CATALOG;
use super::service::State;
use super::statements::{Place, updated};
use super::status::malformed;
use super::upload;

pub async fn run(
    state: &State,
    caller: &Caller,
    request: CommandStatementIngest,
    first: FlightData,
    messages: Streaming<FlightData>,
) -> Result<Vec<u8>> {
    let (if_absent, if_present) = modes(&request)?;
    if request.temporary {
        return Err(Error::unsupported("temporary tables are not supported")
            .hint("ingest into an ordinary table, and drop it"));
    }
    if let Some(catalog) = request.catalog.filter(|c| !c.is_empty() && c != CATALOG) {
        return Err(Error::user(format!("there is no catalog {}", quoted(&catalog)))
            .code("3D000")
            .hint(format!("the one catalog is {CATALOG}; leave it out")));
    }
    if let Some(option) = request.options.keys().next() {
        return Err(Error::unsupported(format!("an ingest has no option {}", quoted(option))));
    }
    let place = Place::of(state, caller, request.transaction_id.as_ref())?;
    let (schema, table) = (request.schema.filter(|s| !s.is_empty()), request.table);
    let rows = upload::receive(first, messages, async |upload| {
        let upload = upload.ok_or_else(|| malformed("the upload", "it has no schema"))?;
        let columns = upload.schema.clone();
        let ingest = Ingest { schema, table, columns, if_absent, if_present };
        place.session.ingest(ingest, upload.batches()).await
    });
    Ok(updated(rows.await?))
}

fn modes(request: &CommandStatementIngest) -> Result<(IfAbsent, IfPresent)> {
    let options = request.table_definition_options.as_ref();
    let options = options.ok_or_else(|| malformed("the ingest", "it says no mode"))?;
    let if_absent = match TableNotExistOption::try_from(options.if_not_exist) {
        Ok(TableNotExistOption::Create) => IfAbsent::Create,
        Ok(TableNotExistOption::Fail) => IfAbsent::Fail,
        _ => return Err(malformed("the ingest", "it does not say what if there is no table")),
    };
    let if_present = match TableExistsOption::try_from(options.if_exists) {
        Ok(TableExistsOption::Append) => IfPresent::Append,
        Ok(TableExistsOption::Replace) => IfPresent::Replace,
        Ok(TableExistsOption::Fail) => IfPresent::Fail,
        _ => return Err(malformed("the ingest", "it does not say what if there is a table")),
    };
    Ok((if_absent, if_present))
}
