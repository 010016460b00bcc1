//! What functions say that stand around one of DataFusion's, and mostly say what it says.

/// Methods of a trait of functions, by their names, that ask the function in a field of `self`.
macro_rules! delegated {
    ($inner:tt: $($method:ident)*) => { $( $crate::delegated::delegated!(@$method $inner); )* };
    (@name $inner:tt) => {
        fn name(&self) -> &str {
            self.$inner.name()
        }
    };
    (@aliases $inner:tt) => {
        fn aliases(&self) -> &[String] {
            self.$inner.aliases()
        }
    };
    (@signature $inner:tt) => {
        fn signature(&self) -> &::datafusion::logical_expr::Signature {
            self.$inner.signature()
        }
    };
    (@coerce_types $inner:tt) => {
        fn coerce_types(
            &self,
            types: &[::arrow::datatypes::DataType],
        ) -> ::datafusion::common::Result<Vec<::arrow::datatypes::DataType>> {
            self.$inner.coerce_types(types)
        }
    };
    (@return_type $inner:tt) => {
        fn return_type(
            &self,
            types: &[::arrow::datatypes::DataType],
        ) -> ::datafusion::common::Result<::arrow::datatypes::DataType> {
            self.$inner.return_type(types)
        }
    };
    (@documentation $inner:tt) => {
        fn documentation(&self) -> Option<&::datafusion::logical_expr::Documentation> {
            self.$inner.documentation()
        }
    };
    (@state_fields $inner:tt) => {
        fn state_fields(
            &self,
            args: ::datafusion::logical_expr::function::StateFieldsArgs<'_>,
        ) -> ::datafusion::common::Result<Vec<::arrow::datatypes::FieldRef>> {
            self.$inner.state_fields(args)
        }
    };
    (@create_sliding_accumulator $inner:tt) => {
        fn create_sliding_accumulator(
            &self,
            args: ::datafusion::logical_expr::function::AccumulatorArgs<'_>,
        ) -> ::datafusion::common::Result<Box<dyn ::datafusion::logical_expr::Accumulator>> {
            self.$inner.create_sliding_accumulator(args)
        }
    };
}

/// Methods of an aggregate that has an order of its own: rows may come in any, also the reverse one, and each
/// aggregate of a query puts those of its groups in its own.
macro_rules! in_its_own_order {
    () => {
        fn with_beneficial_ordering(
            self: std::sync::Arc<Self>,
            _: bool,
        ) -> ::datafusion::common::Result<
            Option<std::sync::Arc<dyn ::datafusion::logical_expr::AggregateUDFImpl>>,
        > {
            Ok(Some(self))
        }

        fn order_sensitivity(
            &self,
        ) -> ::datafusion::logical_expr::utils::AggregateOrderSensitivity {
            ::datafusion::logical_expr::utils::AggregateOrderSensitivity::Beneficial
        }

        fn reverse_expr(&self) -> ::datafusion::logical_expr::ReversedUDAF {
            ::datafusion::logical_expr::ReversedUDAF::NotSupported
        }
    };
}

pub(crate) use {delegated, in_its_own_order};
