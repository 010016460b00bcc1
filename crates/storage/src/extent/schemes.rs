//! Which encodings compete for a column: those Vortex tries by itself, and two of ours.
//!
//! Vortex's compressor takes the encoding that makes a sample of a column smallest, and does the
//! same for the parts that encoding leaves. By itself it uses only what its *editions* promise to
//! read for ever. We also let it use `fastlanes.delta` and the second versions of bit-packing,
//! frames of reference and decimals, which are in none yet: a key that ascends with every order
//! takes a ninth of the room, and decimals of more than 18 digits are compressed at all. What keeps
//! such files readable is the database of each format version that our tests read.

use vortex::array::aggregate_fn::fns::uncompressed_size_in_bytes::{
    UncompressedSizeOpts, uncompressed_size_in_bytes,
};
use vortex::array::arrays::{PrimitiveArray, VarBinViewArray};
use vortex::array::{ArrayId, ArrayRef, Canonical, ExecutionCtx, IntoArray, VTable};
use vortex::compressor::{BtrBlocksCompressor, BtrBlocksCompressorBuilder, Scheme};
use vortex::encodings::runend::RunEnd;
use vortex::encodings::runend::compress::runend_encode;
use vortex::encodings::zstd::{Zstd, ZstdArray};
use vortex::error::VortexResult;
use vortex::session::VortexSession;
use vortex_btrblocks::schemes::integer::{IntRLEScheme, RunEndScheme, SparseScheme};
use vortex_compressor::CascadingCompressor;
use vortex_compressor::builtins::{
    BinaryDictScheme, FloatDictScheme, IntDictScheme, StringDictScheme,
};
use vortex_compressor::scheme::{
    AncestorExclusion, ChildSelection, CompressionEstimate, CompressorContext, DeferredEstimate,
    DescendantExclusion, EstimateScore, EstimateVerdict, SchemeExt,
};
use vortex_compressor::stats::ArrayAndStats;

/// One for each share of distinct values among all.
pub(super) struct Compressors {
    few: BtrBlocksCompressor,
    some: BtrBlocksCompressor,
    most: BtrBlocksCompressor,
}

impl Compressors {
    pub fn new(session: &VortexSession) -> Self {
        let all = BtrBlocksCompressorBuilder::from_session(session)
            .disable_editions()
            // Ours does what both of these do.
            .exclude_schemes([RunEndScheme.id(), IntRLEScheme.id()])
            .with_new_scheme(&Runs);
        let with_text = all.clone().with_new_scheme(&Text);
        // In a hash table Vortex counts how often each value comes, to decide on these: a good part
        // of the work, and nothing in it for values that come once.
        let counting = [
            IntDictScheme.id(),
            SparseScheme.id(),
            FloatDictScheme.id(),
            StringDictScheme.id(),
            BinaryDictScheme.id(),
        ];
        Compressors {
            few: all.build(),
            some: with_text.clone().build(),
            most: with_text.exclude_schemes(counting).build(),
        }
    }

    /// For a chunk of a column with about so many distinct values.
    pub fn of(&self, rows: u64, distinct: u64) -> &BtrBlocksCompressor {
        match distinct {
            // A case for a dictionary, whose codes queries can use as they are. Vortex's samples
            // are too short to see that it is.
            _ if distinct * 4 < rows => &self.few,
            // Vortex makes no dictionary of more than half; with room for an estimate's error.
            _ if distinct * 8 < rows * 5 => &self.some,
            _ => &self.most,
        }
    }
}

/// Whole numbers as runs of equal values. Vortex's own begins at four values in a run; the rows
/// of a parent are just about as many in most data, and two are enough to pay.
#[derive(Debug)]
struct Runs;

const RUN_ROWS_MIN: u32 = 2;

impl Scheme for Runs {
    fn scheme_name(&self) -> &'static str {
        "thalweg.int.runs"
    }

    fn matches(&self, canonical: &Canonical) -> bool {
        canonical.dtype().is_int()
    }

    fn produced_encodings(&self) -> Vec<ArrayId> {
        vec![RunEnd.id()]
    }

    /// Values and ends.
    fn num_children(&self) -> usize {
        2
    }

    /// Ends ascend: none comes twice.
    fn descendant_exclusions(&self) -> Vec<DescendantExclusion> {
        let exclude = |excluded| DescendantExclusion { excluded, children: ChildSelection::One(1) };
        [IntDictScheme.id(), SparseScheme.id()].map(exclude).into()
    }

    fn ancestor_exclusions(&self) -> Vec<AncestorExclusion> {
        RunEndScheme.ancestor_exclusions()
    }

    fn expected_compression_ratio(
        &self,
        data: &ArrayAndStats,
        _: CompressorContext,
        execution: &mut ExecutionCtx,
    ) -> CompressionEstimate {
        if data.integer_stats(execution).average_run_length() < RUN_ROWS_MIN {
            return CompressionEstimate::Verdict(EstimateVerdict::Skip);
        }
        CompressionEstimate::Deferred(DeferredEstimate::Sample)
    }

    fn compress(
        &self,
        compressor: &CascadingCompressor,
        data: &ArrayAndStats,
        context: CompressorContext,
        execution: &mut ExecutionCtx,
    ) -> VortexResult<ArrayRef> {
        let (ends, values) = runend_encode(data.array_as_primitive(), execution);
        let values = values.execute::<PrimitiveArray>(execution)?.into_array();
        let values = compressor.compress_child(&values, &context, self.id(), 0, execution)?;
        let ends =
            compressor.compress_child(&ends.into_array(), &context, self.id(), 1, execution)?;
        RunEnd::try_new_offset_length(ends, values, 0, data.array_len(), execution)
            .map(IntoArray::into_array)
    }
}

/// Text by Zstandard, in frames. It is decoded a few times more slowly than what a symbol table
/// makes of the same text, so it must be smaller by as much as [`TEXT_ADVANTAGE`].
#[derive(Debug)]
struct Text;

const TEXT_LEVEL: i32 = 3;
/// A quarter of a chunk: 1 % larger than the whole chunk in one frame, and a few rows of it need
/// only one.
const TEXT_FRAME_ROWS: usize = 16 * 1024;
const TEXT_ADVANTAGE: f64 = 0.87;
/// What is compressed to learn how small it gets. From one place, unlike Vortex's own samples:
/// what makes Zstandard good is text that came shortly before.
const TEXT_TRIAL_ROWS: usize = 8 * 1024;
const TEXT_BYTES_MIN: usize = 16 * 1024;

impl Scheme for Text {
    fn scheme_name(&self) -> &'static str {
        "thalweg.text.zstd"
    }

    fn matches(&self, canonical: &Canonical) -> bool {
        canonical.dtype().is_utf8()
    }

    fn produced_encodings(&self) -> Vec<ArrayId> {
        vec![Zstd.id()]
    }

    fn expected_compression_ratio(
        &self,
        _: &ArrayAndStats,
        context: CompressorContext,
        _: &mut ExecutionCtx,
    ) -> CompressionEstimate {
        if context.is_sample() {
            return CompressionEstimate::Verdict(EstimateVerdict::Skip);
        }
        CompressionEstimate::Deferred(DeferredEstimate::Callback(Box::new(
            |_, data, best, _, execution| trial(data, best, execution),
        )))
    }

    fn compress(
        &self,
        _: &CascadingCompressor,
        data: &ArrayAndStats,
        _: CompressorContext,
        execution: &mut ExecutionCtx,
    ) -> VortexResult<ArrayRef> {
        zstd(data.array_as_varbinview().into_owned(), execution).map(IntoArray::into_array)
    }
}

fn trial(
    data: &ArrayAndStats,
    best: Option<EstimateScore>,
    execution: &mut ExecutionCtx,
) -> VortexResult<EstimateVerdict> {
    let rows = data.array_len().min(TEXT_TRIAL_ROWS);
    let part = data.array().slice(0..rows)?.execute::<VarBinViewArray>(execution)?;
    let plain = part.clone().into_array();
    let before = uncompressed_size_in_bytes(&plain, UncompressedSizeOpts::exact(), execution)?;
    if before < TEXT_BYTES_MIN {
        return Ok(EstimateVerdict::Skip);
    }
    let after = zstd(part, execution)?.into_array().nbytes().max(1);
    let ratio = before as f64 / after as f64 * TEXT_ADVANTAGE;
    match best.and_then(EstimateScore::finite_ratio) {
        Some(best) if ratio <= best => Ok(EstimateVerdict::Skip),
        _ => Ok(EstimateVerdict::Ratio(ratio)),
    }
}

fn zstd(text: VarBinViewArray, execution: &mut ExecutionCtx) -> VortexResult<ZstdArray> {
    let text = text.compact_buffers(execution)?;
    Zstd::from_var_bin_view_without_dict(&text, TEXT_LEVEL, TEXT_FRAME_ROWS, execution)
}
