//! Intervals as Vortex stores them: it has no such type, so their three parts are a struct.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array, StructArray};
use arrow::array::{IntervalMonthDayNanoArray, PrimitiveArray};
use arrow::datatypes::{
    DataType, Field, Fields, Int32Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType,
    IntervalUnit,
};

fn is_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(IntervalUnit::MonthDayNano))
}

fn parts() -> Fields {
    Fields::from(vec![
        Field::new("months", DataType::Int32, false),
        Field::new("days", DataType::Int32, false),
        Field::new("nanoseconds", DataType::Int64, false),
    ])
}

/// The field that a column is stored as.
pub fn stored_field(field: &Field) -> Cow<'_, Field> {
    match is_interval(field.data_type()) {
        true => Cow::Owned(field.clone().with_data_type(DataType::Struct(parts()))),
        false => Cow::Borrowed(field),
    }
}

/// The values as they are stored.
pub fn stored(array: &ArrayRef) -> ArrayRef {
    if !is_interval(array.data_type()) {
        return Arc::clone(array);
    }
    let spans = array.as_primitive::<IntervalMonthDayNanoType>();
    let values = spans.values();
    let months: Int32Array = values.iter().map(|v| v.months).collect::<Vec<_>>().into();
    let days: Int32Array = values.iter().map(|v| v.days).collect::<Vec<_>>().into();
    let rest: Int64Array = values.iter().map(|v| v.nanoseconds).collect::<Vec<_>>().into();
    let columns: Vec<ArrayRef> = vec![Arc::new(months), Arc::new(days), Arc::new(rest)];
    Arc::new(StructArray::new(parts(), columns, spans.nulls().cloned()))
}

/// The way back, for a column of this type.
pub fn read(array: ArrayRef, data_type: &DataType) -> ArrayRef {
    let Some(structs) = array.as_struct_opt().filter(|_| is_interval(data_type)) else {
        return array;
    };
    let [months, days, rest] = structs.columns() else { return array };
    let (Some(months), Some(days), Some(rest)) = (
        months.as_primitive_opt::<Int32Type>(),
        days.as_primitive_opt::<Int32Type>(),
        rest.as_primitive_opt::<Int64Type>(),
    ) else {
        return array;
    };
    let values = months.values().iter().zip(days.values()).zip(rest.values());
    let values = values.map(|((m, d), ns)| IntervalMonthDayNano::new(*m, *d, *ns));
    let spans: IntervalMonthDayNanoArray =
        PrimitiveArray::new(values.collect::<Vec<_>>().into(), structs.nulls().cloned());
    Arc::new(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_come_back() {
        let span = IntervalMonthDayNano::new;
        let array: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(vec![
            Some(span(1, -2, 3)),
            None,
            Some(span(i32::MIN, i32::MAX, i64::MIN)),
        ]));
        assert_eq!(&read(stored(&array), array.data_type()), &array);
        let field = Field::new("i", array.data_type().clone(), true);
        assert_eq!(stored(&array).data_type(), stored_field(&field).data_type());
    }
}
