"""The facts of Circle 0.10, CTR0 and TFLite's metadata; written by tools/dev/making/make_schema.py."""

from __future__ import annotations

from typing import Any

FieldFact = tuple[str, str, Any, str]
"""Name, type, default, and the enumeration or union that it belongs to."""

TABLES: dict[str, tuple[FieldFact | None, ...]] = {
    "ATan2Options": (),
    "AbsOptions": (),
    "AddNOptions": (),
    "AddOptions": (
        ("fused_activation_function", "int8", 0, "ActivationFunctionType"),
        ("pot_scale_int16", "bool", True, ""),
    ),
    "ArgMaxOptions": (
        ("output_type", "int8", 0, "TensorType"),
    ),
    "ArgMinOptions": (
        ("output_type", "int8", 0, "TensorType"),
    ),
    "AssignVariableOptions": (),
    "AttentionOptions": (),
    "BCQFullyConnectedOptions": (
        ("weights_hidden_size", "int32", 0, ""),
        ("fused_activation_function", "int8", 0, "ActivationFunctionType"),
    ),
    "BCQGatherOptions": (
        ("input_hidden_size", "int32", 0, ""),
        ("axis", "int32", 0, ""),
    ),
    "BatchMatMulOptions": (
        ("adjoint_lhs", "bool", False, ""),
        ("adjoint_rhs", "bool", False, ""),
        ("asymmetric_quantize_inputs", "bool", False, ""),
    ),
    "BatchToSpaceNDOptions": (),
    "BidirectionalSequenceLSTMOptions": (
        ("fused_activation_function", "int8", 0, "ActivationFunctionType"),
        ("cell_clip", "float32", 0.0, ""),
        ("proj_clip", "float32", 0.0, ""),
        ("merge_outputs", "bool", False, ""),
        ("time_major", "bool", True, ""),
        ("asymmetric_quantize_inputs", "bool", False, ""),
    ),
    "BidirectionalSequenceRNNOptions": (
        ("time_major", "bool", False, ""),
        ("fused_activation_function", "int8", 0, "ActivationFunctionType"),
        ("merge_outputs", "bool", False, ""),
        ("asymmetric_quantize_inputs", "bool", False, ""),
    ),
    "BitcastOptions": (),
    "BitwiseXorOptions": (),
    "BlockwiseQuantization": (
        ("scales", "int32", 0, ""),
        ("zero_points", "int32", 0, ""),
        ("block_size", "int32", 0, ""),
    ),
    "BroadcastToOptions": (),
    "BucketizeOptions": (
        ("boundaries", "[float32]", None, ""),
    ),
    "Buffer": (
        ("data", "[uint8]", None, ""),
        ("offset", "uint64", 0, ""),
        ("size", "uint64", 0, ""),
    ),
    "CallOnceOptions": (
        ("init_subgraph_index", "int32", 0, ""),
    ),
    "CallOptions": (
        ("subgraph", "uint32", 0, ""),
    ),
    "CastOptions": (
        ("in_data_type", "int8", 0, "TensorType"),
        ("out_data_type", "int8", 0, "TensorType"),
    ),
    "ConcatEmbeddingsOptions": (
        ("num_channels", "int32", 0, ""),
        ("num_columns_per_channel", "[int32]", None, ""),
        ("embedding_dim_per_channel", "[int32]", None, ""),
    ),
    "ConcatenationOptions": (
        ("axis", "int32", 0, ""),
        ("fused_activation_function", "int8", 0, "ActivationFunctionType"),
    ),
    "Conv2DOptions": (
        ("padding", "int8", 0, "Padding"),
        ("stride_w", "int32", 0, ""),
        ("stride_h", "int32", 0, ""),
        ("fused_activation_function", "int8", 0, "ActivationFunctionType"),
        ("dilation_w_factor", "int32", 1, ""),
        ("dilation_h_factor", "int32", 1, ""),
        ("quantized_bias_type", "int8", 0, "TensorType"),
    ),
    "Conv3DOptions": (
        ("padding", "int8", 0, "Padding"),
        ("stride_d", "int32", 0, ""),
        ("stride_w", "int32", 0, ""),
        ("stride_h", "int32", 0, ""),
        ("fused_activation_function", "int8", 0, "ActivationFunctionType"),
        ("dilation_d_factor", "int32", 1, ""),
        ("dilation_w_factor", "int32", 1, ""),
        ("dilation_h_factor", "int32", 1, ""),
    ),
    "CosOptions": (),
    "CumsumOptions": (
        ("exclusive", "bool", False, ""),
        ("reverse", "bool", False, ""),
    ),
    "CustomQuantization": (
        ("custom", "[uint8]", None, ""),
    ),
    "DensifyOptions": (),
    "DepthToSpaceOptions": (
        ("block_size", "int32", 0, ""),
    ),
    "DepthwiseConv2DOptions": (
        ("padding", "int8", 0, "Padding"),
        ("stride_w", "int32", 0, ""),
        ("stride_h", "int32", 0, ""),
        ("depth_multiplier", "int32", 0, ""),
        ("fused_activation_function", "int8", 0, "ActivationFunctionType"),
        ("dilation_w_factor", "int32", 1, ""),
        ("dilation_h_factor", "int32", 1, ""),
    ),
    "DequantizeOptions": (),
    "DilateOptions": (),
    "DimensionMetadata": (
        ("format", "int8", 0, "DimensionType"),
        ("dense_size", "int32", 0, ""),
        ("array_segments_type", "uint8", 0, "SparseIndexVector"),
        ("array_segments", "union", None, "SparseIndexVector"),
        ("array_indices_type", "uint8", 0, "SparseIndexVector"),
        ("array_indices", "union", None, "SparseIndexVector"),
    ),
    "DivOptions": (
        ("fused_activation_function", "int8", 0, "ActivationFunctionType"),
    ),
    "DynamicUpdateSliceOptions": (),
    "EmbeddingLookupSparseOptions": (
        ("combiner", "int8", 0, "CombinerType"),
    ),
    "EqualOptions": (),
    "ExpOptions": (),
    "ExpandDimsOptions": (),
    "FakeQuantOptions": (
        ("min", "float32", 0.0, ""),
        ("max", "float32", 0.0, ""),
        ("num_bits", "int32", 0, ""),
        ("narrow_range", "bool", False, ""),
    ),
    "FillOptions": (),
    "FloorDivOptions": (),
    "FloorModOptions": (),
    "FullyConnectedOptions": (
        ("fused_activation_function", "int8", 0, "ActivationFunctionType"),
        ("weights_format", "int8", 0, "FullyConnectedOptionsWeightsFormat"),
        ("keep_num_dims", "bool", False, ""),
        ("asymmetric_quantize_inputs", "bool", False, ""),
        ("quantized_bias_type", "int8", 0, "TensorType"),
    ),
    "GRUOptions": (
        ("fused_activation_function", "int8", 0, "ActivationFunctionType"),
        ("return_sequences", "bool", False, ""),
        ("time_major", "bool", False, ""),
    ),
    "GatherNdOptions": (),
    "GatherOptions": (
        ("axis", "int32", 0, ""),
        ("batch_dims", "int32", 0, ""),
    ),
    "GeluOptions": (
        ("approximate", "bool", False, ""),
    ),
    "GreaterEqualOptions": (),
    "GreaterOptions": (),
    "HardSwishOptions": (),
    "HashtableFindOptions": (),
    "HashtableImportOptions": (),
    "HashtableOptions": (
        ("table_id", "int32", 0, ""),
        ("key_dtype", "int8", 0, "TensorType"),
        ("value_dtype", "int8", 0, "TensorType"),
    ),
    "HashtableSizeOptions": (),
    "IfOptions": (
        ("then_subgraph_index", "int32", 0, ""),
        ("else_subgraph_index", "int32", 0, ""),
    ),
    "InstanceNormOptions": (
        ("epsilon", "float32", 0.0, ""),
        ("fused_activation_function", "int8", 0, "ActivationFunctionType"),
    ),
    "Int32Vector": (
        ("values", "[int32]", None, ""),
    ),
    "L2NormOptions": (
        ("fused_activation_function", "int8", 0, "ActivationFunctionType"),
    ),
    "LSHProjectionOptions": (
        ("type", "int8", 0, "LSHProjectionType"),
    ),
    "LSTMOptions": (
        ("fused_activation_function", "int8", 0, "ActivationFunctionType"),
        ("cell_clip", "float32", 0.0, ""),
        ("proj_clip", "float32", 0.0, ""),
        ("kernel_type", "int8", 0, "LSTMKernelType"),
        ("asymmetric_quantize_inputs", "bool", False, ""),
    ),
    "LeakyReluOptions": (
        ("alpha", "float32", 0.0, ""),
    ),
    "LessEqualOptions": (),
    "LessOptions": (),
    "LocalResponseNormalizationOptions": (
        ("radius", "int32", 0, ""),
        ("bias", "float32", 0.0, ""),
        ("alpha", "float32", 0.0, ""),
        ("beta", "float32", 0.0, ""),
    ),
    "LogSoftmaxOptions": (),
    "LogicalAndOptions": (),
    "LogicalNotOptions": (),
    "LogicalOrOptions": (),
    "MXQuantization": (
        ("axis", "int32", 0, ""),
    ),
    "MatrixDiagOptions": (),
    "MatrixSetDiagOptions": (),
    "MaximumMinimumOptions": (),
    "Metadata": (
        ("name", "string", None, ""),
        ("buffer", "uint32", 0, ""),
    ),
    "MirrorPadOptions": (
        ("mode", "int8", 0, "MirrorPadMode"),
    ),
    "Model": (
        ("version", "uint32", 0, ""),
        ("operator_codes", "[OperatorCode]", None, ""),
        ("subgraphs", "[SubGraph]", None, ""),
        ("description", "string", None, ""),
        ("buffers", "[Buffer]", None, ""),
        ("metadata_buffer", "[int32]", None, ""),
        ("metadata", "[Metadata]", None, ""),
        ("signature_defs", "[SignatureDef]", None, ""),
    ),
    "MulOptions": (
        ("fused_activation_function", "int8", 0, "ActivationFunctionType"),
    ),
    "NegOptions": (),
    "NonMaxSuppressionV4Options": (),
    "NonMaxSuppressionV5Options": (),
    "NotEqualOptions": (),
    "OneHotOptions": (
        ("axis", "int32", 0, ""),
    ),
    "Operator": (
        ("opcode_index", "uint32", 0, ""),
        ("inputs", "[int32]", None, ""),
        ("outputs", "[int32]", None, ""),
        ("builtin_options_type", "uint8", 0, "BuiltinOptions"),
        ("builtin_options", "union", None, "BuiltinOptions"),
        ("custom_options", "[uint8]", None, ""),
        ("custom_options_format", "int8", 0, "CustomOptionsFormat"),
        ("mutating_variable_inputs", "[bool]", None, ""),
        ("intermediates", "[int32]", None, ""),
        ("large_custom_options_offset", "uint64", 0, ""),
        ("large_custom_options_size", "uint64", 0, ""),
        ("builtin_options_2_type", "uint8", 0, "BuiltinOptions2"),
        ("builtin_options_2", "union", None, "BuiltinOptions2"),
        ("debug_metadata_index", "int32", -1, ""),
    ),
    "OperatorCode": (
        ("deprecated_builtin_code", "int8", 0, ""),
        ("custom_code", "string", None, ""),
        ("version", "int32", 1, ""),
        ("builtin_code", "int32", 0, "BuiltinOperator"),
    ),
    "PackOptions": (
        ("values_count", "int32", 0, ""),
        ("axis", "int32", 0, ""),
    ),
    "PadOptions": (),
    "PadV2Options": (),
    "Pool2DOptions": (
        ("padding", "int8", 0, "Padding"),
        ("stride_w", "int32", 0, ""),
        ("stride_h", "int32", 0, ""),
        ("filter_width", "int32", 0, ""),
        ("filter_height", "int32", 0, ""),
        ("fused_activation_function", "int8", 0, "ActivationFunctionType"),
    ),
    "PowOptions": (),
    "QuantizationParameters": (
        ("min", "[float32]", None, ""),
        ("max", "[float32]", None, ""),
        ("scale", "[float32]", None, ""),
        ("zero_point", "[int64]", None, ""),
        ("details_type", "uint8", 0, "QuantizationDetails"),
        ("details", "union", None, "QuantizationDetails"),
        ("quantized_dimension", "int32", 0, ""),
    ),
    "QuantizeOptions": (),
    "RNNOptions": (
        ("fused_activation_function", "int8", 0, "ActivationFunctionType"),
        ("asymmetric_quantize_inputs", "bool", False, ""),
    ),
    "RandomOptions": (
        ("seed", "int64", 0, ""),
        ("seed2", "int64", 0, ""),
    ),
    "RangeOptions": (),
    "RankOptions": (),
    "ReadVariableOptions": (),
    "ReduceWindowOptions": (
        ("reduce_function", "int32", 0, "ReduceWindowFunction"),
    ),
    "ReducerOptions": (
        ("keep_dims", "bool", False, ""),
    ),
    "ReshapeOptions": (
        ("new_shape", "[int32]", None, ""),
    ),
    "ResizeBilinearOptions": (
        None,
        None,
        ("align_corners", "bool", False, ""),
        ("half_pixel_centers", "bool", False, ""),
    ),
    "ResizeNearestNeighborOptions": (
        ("align_corners", "bool", False, ""),
        ("half_pixel_centers", "bool", False, ""),
    ),
    "ReverseSequenceOptions": (
        ("seq_dim", "int32", 0, ""),
        ("batch_dim", "int32", 0, ""),
    ),
    "ReverseV2Options": (),
    "Rfft2dOptions": (),
    "RightShiftOptions": (),
    "RmsNormOptions": (
        ("epsilon", "float32", 0.0, ""),
    ),
    "RoPEOptions": (
        ("mode", "int32", 0, "RoPEMode"),
    ),
    "RunModelOptions": (
        ("location", "string", None, ""),
        ("signature", "string", None, ""),
    ),
    "SVDFOptions": (
        ("rank", "int32", 0, ""),
        ("fused_activation_function", "int8", 0, "ActivationFunctionType"),
        ("asymmetric_quantize_inputs", "bool", False, ""),
    ),
    "ScatterNdOptions": (),
    "SegmentSumOptions": (),
    "SelectOptions": (),
    "SelectV2Options": (),
    "SequenceRNNOptions": (
        ("time_major", "bool", False, ""),
        ("fused_activation_function", "int8", 0, "ActivationFunctionType"),
        ("asymmetric_quantize_inputs", "bool", False, ""),
    ),
    "ShapeOptions": (
        ("out_type", "int8", 0, "TensorType"),
    ),
    "SignOptions": (),
    "SignatureDef": (
        ("inputs", "[TensorMap]", None, ""),
        ("outputs", "[TensorMap]", None, ""),
        ("signature_key", "string", None, ""),
        None,
        ("subgraph_index", "uint32", 0, ""),
    ),
    "SkipGramOptions": (
        ("ngram_size", "int32", 0, ""),
        ("max_skip_size", "int32", 0, ""),
        ("include_all_ngrams", "bool", False, ""),
    ),
    "SliceOptions": (),
    "SoftmaxOptions": (
        ("beta", "float32", 0.0, ""),
    ),
    "SpaceToBatchNDOptions": (),
    "SpaceToDepthOptions": (
        ("block_size", "int32", 0, ""),
    ),
    "SparseToDenseOptions": (
        ("validate_indices", "bool", False, ""),
    ),
    "SparsityParameters": (
        ("traversal_order", "[int32]", None, ""),
        ("block_map", "[int32]", None, ""),
        ("dim_metadata", "[DimensionMetadata]", None, ""),
    ),
    "SplitOptions": (
        ("num_splits", "int32", 0, ""),
    ),
    "SplitVOptions": (
        ("num_splits", "int32", 0, ""),
    ),
    "SquareOptions": (),
    "SquaredDifferenceOptions": (),
    "SqueezeOptions": (
        ("squeeze_dims", "[int32]", None, ""),
    ),
    "StableHLOCompositeOptions": (
        ("name", "string", None, ""),
        ("decomposition_subgraph_index", "int32", 0, ""),
        ("composite_attributes", "[uint8]", None, ""),
        ("composite_attributes_format", "int8", 0, "CustomOptionsFormat"),
        ("version", "int32", 0, ""),
    ),
    "StablehloBroadcastInDimOptions": (
        ("broadcast_dimensions", "[int64]", None, ""),
    ),
    "StablehloCaseOptions": (
        ("branch_subgraph_indices", "[int32]", None, ""),
    ),
    "StablehloCompareOptions": (
        ("comparison_direction", "uint32", 0, "StablehloComparisonDirection"),
        ("compare_type", "uint32", 0, "StablehloComparisonType"),
    ),
    "StablehloConcatenateOptions": (
        ("dimension", "int64", 0, ""),
    ),
    "StablehloConvolutionOptions": (
        ("window_strides", "[int64]", None, ""),
        ("padding", "[int64]", None, ""),
        ("lhs_dilation", "[int64]", None, ""),
        ("rhs_dilation", "[int64]", None, ""),
        ("window_reversal", "[bool]", None, ""),
        ("input_batch_dimension", "int64", 0, ""),
        ("input_feature_dimension", "int64", 0, ""),
        ("input_spatial_dimensions", "[int64]", None, ""),
        ("kernel_input_feature_dimension", "int64", 0, ""),
        ("kernel_output_feature_dimension", "int64", 0, ""),
        ("kernel_spatial_dimensions", "[int64]", None, ""),
        ("output_batch_dimension", "int64", 0, ""),
        ("output_feature_dimension", "int64", 0, ""),
        ("output_spatial_dimensions", "[int64]", None, ""),
        ("feature_group_count", "int64", 0, ""),
        ("batch_group_count", "int64", 0, ""),
        ("precision_config", "[uint32]", None, ""),
    ),
    "StablehloCustomCallOptions": (
        ("call_target_name", "string", None, ""),
        ("has_side_effect", "bool", False, ""),
        ("backend_config", "string", None, ""),
        ("api_version", "int32", 0, ""),
        ("called_computations", "[int32]", None, ""),
        ("custom_attributes", "[uint8]", None, ""),
    ),
    "StablehloDotGeneralOptions": (
        ("lhs_batching_dimensions", "[int64]", None, ""),
        ("rhs_batching_dimensions", "[int64]", None, ""),
        ("lhs_contracting_dimensions", "[int64]", None, ""),
        ("rhs_contracting_dimensions", "[int64]", None, ""),
        ("precision_config", "[uint32]", None, ""),
    ),
    "StablehloDynamicSliceOptions": (
        ("slice_sizes", "[int64]", None, ""),
    ),
    "StablehloGatherOptions": (
        ("offset_dims", "[int64]", None, ""),
        ("collapsed_slice_dims", "[int64]", None, ""),
        ("start_index_map", "[int64]", None, ""),
        ("index_vector_dim", "int64", 0, ""),
        ("slice_sizes", "[int64]", None, ""),
        ("indices_are_sorted", "bool", False, ""),
    ),
    "StablehloIotaOptions": (
        ("iota_dimension", "int64", 0, ""),
    ),
    "StablehloPadOptions": (
        ("edge_padding_low", "[int64]", None, ""),
        ("edge_padding_high", "[int64]", None, ""),
        ("interior_padding", "[int64]", None, ""),
    ),
    "StablehloReduceOptions": (
        ("dimensions", "[int64]", None, ""),
        ("body_subgraph_index", "int32", 0, ""),
    ),
    "StablehloReduceWindowOptions": (
        ("window_dimensions", "[int64]", None, ""),
        ("window_strides", "[int64]", None, ""),
        ("base_dilations", "[int64]", None, ""),
        ("window_dilations", "[int64]", None, ""),
        ("padding", "[int64]", None, ""),
        ("body_subgraph_index", "int32", 0, ""),
    ),
    "StablehloRngBitGeneratorOptions": (
        ("algorithm", "int8", 0, "RngAlgorithm"),
    ),
    "StablehloScatterOptions": (
        ("indices_are_sorted", "bool", False, ""),
        ("update_window_dims", "[int64]", None, ""),
        ("inserted_window_dims", "[int64]", None, ""),
        ("scatter_dims_to_operand_dims", "[int64]", None, ""),
        ("index_vector_dim", "int64", 0, ""),
        ("unique_indices", "bool", False, ""),
        ("update_computation_subgraph_index", "int32", 0, ""),
    ),
    "StablehloShiftLeftOptions": (),
    "StablehloSliceOptions": (
        ("start_indices", "[int64]", None, ""),
        ("limit_indices", "[int64]", None, ""),
        ("strides", "[int64]", None, ""),
    ),
    "StablehloSortOptions": (
        ("dimension", "int64", 0, ""),
        ("is_stable", "bool", False, ""),
        ("comparator_subgraph_index", "int32", 0, ""),
    ),
    "StablehloTransposeOptions": (
        ("permutation", "[int64]", None, ""),
    ),
    "StablehloWhileOptions": (
        ("cond_subgraph_index", "int32", 0, ""),
        ("body_subgraph_index", "int32", 0, ""),
    ),
    "StridedSliceOptions": (
        ("begin_mask", "int32", 0, ""),
        ("end_mask", "int32", 0, ""),
        ("ellipsis_mask", "int32", 0, ""),
        ("new_axis_mask", "int32", 0, ""),
        ("shrink_axis_mask", "int32", 0, ""),
        ("offset", "bool", False, ""),
    ),
    "SubGraph": (
        ("tensors", "[Tensor]", None, ""),
        ("inputs", "[int32]", None, ""),
        ("outputs", "[int32]", None, ""),
        ("operators", "[Operator]", None, ""),
        ("name", "string", None, ""),
        None,
        ("debug_metadata_index", "int32", -1, ""),
    ),
    "SubOptions": (
        ("fused_activation_function", "int8", 0, "ActivationFunctionType"),
        ("pot_scale_int16", "bool", True, ""),
    ),
    "Tensor": (
        ("shape", "[int32]", None, ""),
        ("type", "int8", 0, "TensorType"),
        ("buffer", "uint32", 0, ""),
        ("name", "string", None, ""),
        ("quantization", "QuantizationParameters", None, ""),
        ("is_variable", "bool", False, ""),
        ("sparsity", "SparsityParameters", None, ""),
        ("shape_signature", "[int32]", None, ""),
        ("has_rank", "bool", False, ""),
        ("variant_tensors", "[VariantSubType]", None, ""),
        ("compression_type", "int8", 0, "CompressionType"),
    ),
    "TensorMap": (
        ("name", "string", None, ""),
        ("tensor_index", "uint32", 0, ""),
    ),
    "TileOptions": (),
    "TopKV2Options": (),
    "TransposeConvOptions": (
        ("padding", "int8", 0, "Padding"),
        ("stride_w", "int32", 0, ""),
        ("stride_h", "int32", 0, ""),
        ("fused_activation_function", "int8", 0, "ActivationFunctionType"),
        ("quantized_bias_type", "int8", 0, "TensorType"),
    ),
    "TransposeOptions": (),
    "Uint16Vector": (
        ("values", "[uint16]", None, ""),
    ),
    "Uint8Vector": (
        ("values", "[uint8]", None, ""),
    ),
    "UnidirectionalSequenceLSTMOptions": (
        ("fused_activation_function", "int8", 0, "ActivationFunctionType"),
        ("cell_clip", "float32", 0.0, ""),
        ("proj_clip", "float32", 0.0, ""),
        ("time_major", "bool", False, ""),
        ("asymmetric_quantize_inputs", "bool", False, ""),
        ("diagonal_recurrent_tensors", "bool", False, ""),
    ),
    "UniqueOptions": (
        ("idx_out_type", "int8", 2, "TensorType"),
    ),
    "UnpackOptions": (
        ("num", "int32", 0, ""),
        ("axis", "int32", 0, ""),
    ),
    "UnsortedSegmentMaxOptions": (),
    "UnsortedSegmentMinOptions": (),
    "UnsortedSegmentProdOptions": (),
    "UnsortedSegmentSumOptions": (),
    "VarHandleOptions": (
        ("container", "string", None, ""),
        ("shared_name", "string", None, ""),
    ),
    "VariantSubType": (
        ("shape", "[int32]", None, ""),
        ("type", "int8", 0, "TensorType"),
        ("has_rank", "bool", False, ""),
    ),
    "WhereOptions": (),
    "WhileOptions": (
        ("cond_subgraph_index", "int32", 0, ""),
        ("body_subgraph_index", "int32", 0, ""),
    ),
    "ZerosLikeOptions": (),
    "SGDOptions": (
        ("learning_rate", "float32", 0.0, ""),
    ),
    "AdamOptions": (
        ("learning_rate", "float32", 0.0, ""),
        ("beta_1", "float32", 0.0, ""),
        ("beta_2", "float32", 0.0, ""),
        ("epsilon", "float32", 0.0, ""),
    ),
    "SparseCategoricalCrossentropyOptions": (
        ("from_logits", "bool", False, ""),
    ),
    "CategoricalCrossentropyOptions": (
        ("from_logits", "bool", False, ""),
    ),
    "MeanSquaredErrorOptions": (),
    "ModelTraining": (
        ("version", "uint32", 0, ""),
        ("optimizer", "int8", 0, "OptimizerType"),
        ("optimizer_opt_type", "uint8", 0, "OptimizerOptions"),
        ("optimizer_opt", "union", None, "OptimizerOptions"),
        ("lossfn", "int8", 0, "LossFn"),
        ("lossfn_opt_type", "uint8", 0, "LossFnOptions"),
        ("lossfn_opt", "union", None, "LossFnOptions"),
        ("epochs", "int32", 0, ""),
        ("batch_size", "int32", 0, ""),
        ("loss_reduction_type", "int8", 0, "LossReductionType"),
        ("trainable_ops", "[int32]", None, ""),
    ),
    "AssociatedFile": (
        ("name", "string", None, ""),
        ("description", "string", None, ""),
        ("type", "int8", 0, "AssociatedFileType"),
        ("locale", "string", None, ""),
        ("version", "string", None, ""),
    ),
    "FeatureProperties": (),
    "ImageSize": (
        ("width", "uint32", 0, ""),
        ("height", "uint32", 0, ""),
    ),
    "ImageProperties": (
        ("color_space", "int8", 0, "ColorSpaceType"),
        ("default_size", "ImageSize", None, ""),
    ),
    "AudioProperties": (
        ("sample_rate", "uint32", 0, ""),
        ("channels", "uint32", 0, ""),
    ),
    "BoundingBoxProperties": (
        ("index", "[uint32]", None, ""),
        ("type", "int8", 0, "BoundingBoxType"),
        ("coordinate_type", "int8", 0, "CoordinateType"),
    ),
    "ValueRange": (
        ("min", "int32", 0, ""),
        ("max", "int32", 0, ""),
    ),
    "Content": (
        ("content_properties_type", "uint8", 0, "ContentProperties"),
        ("content_properties", "union", None, "ContentProperties"),
        ("range", "ValueRange", None, ""),
    ),
    "NormalizationOptions": (
        ("mean", "[float32]", None, ""),
        ("std", "[float32]", None, ""),
    ),
    "ScoreCalibrationOptions": (
        ("score_transformation", "int8", 0, "ScoreTransformationType"),
        ("default_score", "float32", 0.0, ""),
    ),
    "ScoreThresholdingOptions": (
        ("global_score_threshold", "float32", 0.0, ""),
    ),
    "BertTokenizerOptions": (
        ("vocab_file", "[AssociatedFile]", None, ""),
    ),
    "SentencePieceTokenizerOptions": (
        ("sentencePiece_model", "[AssociatedFile]", None, ""),
        ("vocab_file", "[AssociatedFile]", None, ""),
    ),
    "RegexTokenizerOptions": (
        ("delim_regex_pattern", "string", None, ""),
        ("vocab_file", "[AssociatedFile]", None, ""),
    ),
    "ProcessUnit": (
        ("options_type", "uint8", 0, "ProcessUnitOptions"),
        ("options", "union", None, "ProcessUnitOptions"),
    ),
    "Stats": (
        ("max", "[float32]", None, ""),
        ("min", "[float32]", None, ""),
    ),
    "TensorGroup": (
        ("name", "string", None, ""),
        ("tensor_names", "[string]", None, ""),
    ),
    "TensorMetadata": (
        ("name", "string", None, ""),
        ("description", "string", None, ""),
        ("dimension_names", "[string]", None, ""),
        ("content", "Content", None, ""),
        ("process_units", "[ProcessUnit]", None, ""),
        ("stats", "Stats", None, ""),
        ("associated_files", "[AssociatedFile]", None, ""),
    ),
    "CustomMetadata": (
        ("name", "string", None, ""),
        ("data", "[uint8]", None, ""),
    ),
    "SubGraphMetadata": (
        ("name", "string", None, ""),
        ("description", "string", None, ""),
        ("input_tensor_metadata", "[TensorMetadata]", None, ""),
        ("output_tensor_metadata", "[TensorMetadata]", None, ""),
        ("associated_files", "[AssociatedFile]", None, ""),
        ("input_process_units", "[ProcessUnit]", None, ""),
        ("output_process_units", "[ProcessUnit]", None, ""),
        ("input_tensor_groups", "[TensorGroup]", None, ""),
        ("output_tensor_groups", "[TensorGroup]", None, ""),
        ("custom_metadata", "[CustomMetadata]", None, ""),
    ),
    "ModelMetadata": (
        ("name", "string", None, ""),
        ("description", "string", None, ""),
        ("version", "string", None, ""),
        ("subgraph_metadata", "[SubGraphMetadata]", None, ""),
        ("author", "string", None, ""),
        ("license", "string", None, ""),
        ("associated_files", "[AssociatedFile]", None, ""),
        ("min_parser_version", "string", None, ""),
    ),
}
"""Fields in slot order; None where a slot is deprecated."""

TFLITE_TABLES: dict[str, tuple[FieldFact | None, ...]] = {
    "QuantizationParameters": (
        ("min", "[float32]", None, ""),
        ("max", "[float32]", None, ""),
        ("scale", "[float32]", None, ""),
        ("zero_point", "[int64]", None, ""),
        ("details_type", "uint8", 0, "TFLiteQuantizationDetails"),
        ("details", "union", None, "TFLiteQuantizationDetails"),
        ("quantized_dimension", "int32", 0, ""),
    ),
    "SubGraph": (
        ("tensors", "[Tensor]", None, ""),
        ("inputs", "[int32]", None, ""),
        ("outputs", "[int32]", None, ""),
        ("operators", "[Operator]", None, ""),
        ("name", "string", None, ""),
        ("debug_metadata_index", "int32", -1, ""),
    ),
    "Tensor": (
        ("shape", "[int32]", None, ""),
        ("type", "int8", 0, "TensorType"),
        ("buffer", "uint32", 0, ""),
        ("name", "string", None, ""),
        ("quantization", "QuantizationParameters", None, ""),
        ("is_variable", "bool", False, ""),
        ("sparsity", "SparsityParameters", None, ""),
        ("shape_signature", "[int32]", None, ""),
        ("has_rank", "bool", False, ""),
        ("variant_tensors", "[VariantSubType]", None, ""),
    ),
}
"""Tables in which TFLite has other slots."""

ENUMS: dict[str, dict[str, int]] = {
    "ActivationFunctionType": {"NONE": 0, "RELU": 1, "RELU_N1_TO_1": 2, "RELU6": 3, "TANH": 4, "SIGN_BIT": 5},
    "BuiltinOperator": {"ATTENTION": -9, "RUN_MODEL": -8, "ROPE": -7, "RMS_NORM": -6, "GRU": -5, "BCQ_GATHER":
        -4, "BCQ_FULLY_CONNECTED": -3, "INSTANCE_NORM": -2, "ADD": 0, "AVERAGE_POOL_2D": 1, "CONCATENATION":
        2, "CONV_2D": 3, "DEPTHWISE_CONV_2D": 4, "DEPTH_TO_SPACE": 5, "DEQUANTIZE": 6, "EMBEDDING_LOOKUP": 7,
        "FLOOR": 8, "FULLY_CONNECTED": 9, "HASHTABLE_LOOKUP": 10, "L2_NORMALIZATION": 11, "L2_POOL_2D": 12,
        "LOCAL_RESPONSE_NORMALIZATION": 13, "LOGISTIC": 14, "LSH_PROJECTION": 15, "LSTM": 16, "MAX_POOL_2D":
        17, "MUL": 18, "RELU": 19, "RELU_N1_TO_1": 20, "RELU6": 21, "RESHAPE": 22, "RESIZE_BILINEAR": 23,
        "RNN": 24, "SOFTMAX": 25, "SPACE_TO_DEPTH": 26, "SVDF": 27, "TANH": 28, "CONCAT_EMBEDDINGS": 29,
        "SKIP_GRAM": 30, "CALL": 31, "CUSTOM": 32, "EMBEDDING_LOOKUP_SPARSE": 33, "PAD": 34,
        "UNIDIRECTIONAL_SEQUENCE_RNN": 35, "GATHER": 36, "BATCH_TO_SPACE_ND": 37, "SPACE_TO_BATCH_ND": 38,
        "TRANSPOSE": 39, "MEAN": 40, "SUB": 41, "DIV": 42, "SQUEEZE": 43, "UNIDIRECTIONAL_SEQUENCE_LSTM": 44,
        "STRIDED_SLICE": 45, "BIDIRECTIONAL_SEQUENCE_RNN": 46, "EXP": 47, "TOPK_V2": 48, "SPLIT": 49,
        "LOG_SOFTMAX": 50, "DELEGATE": 51, "BIDIRECTIONAL_SEQUENCE_LSTM": 52, "CAST": 53, "PRELU": 54,
        "MAXIMUM": 55, "ARG_MAX": 56, "MINIMUM": 57, "LESS": 58, "NEG": 59, "PADV2": 60, "GREATER": 61,
        "GREATER_EQUAL": 62, "LESS_EQUAL": 63, "SELECT": 64, "SLICE": 65, "SIN": 66, "TRANSPOSE_CONV": 67,
        "SPARSE_TO_DENSE": 68, "TILE": 69, "EXPAND_DIMS": 70, "EQUAL": 71, "NOT_EQUAL": 72, "LOG": 73, "SUM":
        74, "SQRT": 75, "RSQRT": 76, "SHAPE": 77, "POW": 78, "ARG_MIN": 79, "FAKE_QUANT": 80, "REDUCE_PROD":
        81, "REDUCE_MAX": 82, "PACK": 83, "LOGICAL_OR": 84, "ONE_HOT": 85, "LOGICAL_AND": 86, "LOGICAL_NOT":
        87, "UNPACK": 88, "REDUCE_MIN": 89, "FLOOR_DIV": 90, "REDUCE_ANY": 91, "SQUARE": 92, "ZEROS_LIKE": 93,
        "FILL": 94, "FLOOR_MOD": 95, "RANGE": 96, "RESIZE_NEAREST_NEIGHBOR": 97, "LEAKY_RELU": 98,
        "SQUARED_DIFFERENCE": 99, "MIRROR_PAD": 100, "ABS": 101, "SPLIT_V": 102, "UNIQUE": 103, "CEIL": 104,
        "REVERSE_V2": 105, "ADD_N": 106, "GATHER_ND": 107, "COS": 108, "WHERE": 109, "RANK": 110, "ELU": 111,
        "REVERSE_SEQUENCE": 112, "MATRIX_DIAG": 113, "QUANTIZE": 114, "MATRIX_SET_DIAG": 115, "ROUND": 116,
        "HARD_SWISH": 117, "IF": 118, "WHILE": 119, "NON_MAX_SUPPRESSION_V4": 120, "NON_MAX_SUPPRESSION_V5":
        121, "SCATTER_ND": 122, "SELECT_V2": 123, "DENSIFY": 124, "SEGMENT_SUM": 125, "BATCH_MATMUL": 126,
        "PLACEHOLDER_FOR_GREATER_OP_CODES": 127, "CUMSUM": 128, "CALL_ONCE": 129, "BROADCAST_TO": 130,
        "RFFT2D": 131, "CONV_3D": 132, "IMAG": 133, "REAL": 134, "COMPLEX_ABS": 135, "HASHTABLE": 136,
        "HASHTABLE_FIND": 137, "HASHTABLE_IMPORT": 138, "HASHTABLE_SIZE": 139, "REDUCE_ALL": 140,
        "CONV_3D_TRANSPOSE": 141, "VAR_HANDLE": 142, "READ_VARIABLE": 143, "ASSIGN_VARIABLE": 144,
        "BROADCAST_ARGS": 145, "RANDOM_STANDARD_NORMAL": 146, "BUCKETIZE": 147, "RANDOM_UNIFORM": 148,
        "MULTINOMIAL": 149, "GELU": 150, "DYNAMIC_UPDATE_SLICE": 151, "RELU_0_TO_1": 152,
        "UNSORTED_SEGMENT_PROD": 153, "UNSORTED_SEGMENT_MAX": 154, "UNSORTED_SEGMENT_SUM": 155, "ATAN2": 156,
        "UNSORTED_SEGMENT_MIN": 157, "SIGN": 158, "BITCAST": 159, "BITWISE_XOR": 160, "RIGHT_SHIFT": 161,
        "STABLEHLO_LOGISTIC": 162, "STABLEHLO_ADD": 163, "STABLEHLO_DIVIDE": 164, "STABLEHLO_MULTIPLY": 165,
        "STABLEHLO_MAXIMUM": 166, "STABLEHLO_RESHAPE": 167, "STABLEHLO_CLAMP": 168, "STABLEHLO_CONCATENATE":
        169, "STABLEHLO_BROADCAST_IN_DIM": 170, "STABLEHLO_CONVOLUTION": 171, "STABLEHLO_SLICE": 172,
        "STABLEHLO_CUSTOM_CALL": 173, "STABLEHLO_REDUCE": 174, "STABLEHLO_ABS": 175, "STABLEHLO_AND": 176,
        "STABLEHLO_COSINE": 177, "STABLEHLO_EXPONENTIAL": 178, "STABLEHLO_FLOOR": 179, "STABLEHLO_LOG": 180,
        "STABLEHLO_MINIMUM": 181, "STABLEHLO_NEGATE": 182, "STABLEHLO_OR": 183, "STABLEHLO_POWER": 184,
        "STABLEHLO_REMAINDER": 185, "STABLEHLO_RSQRT": 186, "STABLEHLO_SELECT": 187, "STABLEHLO_SUBTRACT":
        188, "STABLEHLO_TANH": 189, "STABLEHLO_SCATTER": 190, "STABLEHLO_COMPARE": 191, "STABLEHLO_CONVERT":
        192, "STABLEHLO_DYNAMIC_SLICE": 193, "STABLEHLO_DYNAMIC_UPDATE_SLICE": 194, "STABLEHLO_PAD": 195,
        "STABLEHLO_IOTA": 196, "STABLEHLO_DOT_GENERAL": 197, "STABLEHLO_REDUCE_WINDOW": 198, "STABLEHLO_SORT":
        199, "STABLEHLO_WHILE": 200, "STABLEHLO_GATHER": 201, "STABLEHLO_TRANSPOSE": 202, "DILATE": 203,
        "STABLEHLO_RNG_BIT_GENERATOR": 204, "REDUCE_WINDOW": 205, "STABLEHLO_COMPOSITE": 206,
        "STABLEHLO_SHIFT_LEFT": 207, "STABLEHLO_CBRT": 208, "STABLEHLO_CASE": 209},
    "CombinerType": {"SUM": 0, "MEAN": 1, "SQRTN": 2},
    "CompressionType": {"NONE": 0, "HUFFMAN": 1},
    "CustomOptionsFormat": {"FLEXBUFFERS": 0},
    "DataFormat": {"CHANNELS_LAST": 0, "CHANNELS_FIRST": 1},
    "DimensionType": {"DENSE": 0, "SPARSE_CSR": 1},
    "FullyConnectedOptionsWeightsFormat": {"DEFAULT": 0, "SHUFFLED4x16INT8": 1, "SHUFFLED16x1FLOAT32": 127},
    "LSHProjectionType": {"UNKNOWN": 0, "SPARSE": 1, "DENSE": 2},
    "LSTMKernelType": {"FULL": 0, "BASIC": 1},
    "MirrorPadMode": {"REFLECT": 0, "SYMMETRIC": 1},
    "Padding": {"SAME": 0, "VALID": 1},
    "ReduceWindowFunction": {"UNSUPPORTED": 0, "ADD": 1, "MUL": 2, "MINIMUM": 3, "MAXIMUM": 4, "ALL": 5,
        "ANY": 6},
    "RngAlgorithm": {"DEFAULT": 0, "PHILOX": 1, "THREEFRY": 2},
    "RoPEMode": {"GPT_NEOX": 0, "GPT_J": 1},
    "StablehloComparisonDirection": {"STABLEHLO_COMPARISON_DIRECTION_EQ": 0,
        "STABLEHLO_COMPARISON_DIRECTION_NE": 1, "STABLEHLO_COMPARISON_DIRECTION_GE": 2,
        "STABLEHLO_COMPARISON_DIRECTION_GT": 3, "STABLEHLO_COMPARISON_DIRECTION_LE": 4,
        "STABLEHLO_COMPARISON_DIRECTION_LT": 5},
    "StablehloComparisonType": {"STABLEHLO_COMPARISON_TYPE_NOTYPE": 0, "STABLEHLO_COMPARISON_TYPE_FLOAT": 1,
        "STABLEHLO_COMPARISON_TYPE_FLOAT_TOTAL_ORDER": 2, "STABLEHLO_COMPARISON_TYPE_SIGNED": 3,
        "STABLEHLO_COMPARISON_TYPE_UNSIGNED": 4},
    "StablehloPrecisionConfig": {"DEFAULT": 0, "HIGH": 1, "HIGHEST": 2},
    "TensorType": {"MXINT8": -7, "MXFP4": -6, "GGML_Q8_1": -5, "GGML_Q8_0": -4, "GGML_Q4_1": -3, "GGML_Q4_0":
        -2, "UINT4": -1, "FLOAT32": 0, "FLOAT16": 1, "INT32": 2, "UINT8": 3, "INT64": 4, "STRING": 5, "BOOL":
        6, "INT16": 7, "COMPLEX64": 8, "INT8": 9, "FLOAT64": 10, "COMPLEX128": 11, "UINT64": 12, "RESOURCE":
        13, "VARIANT": 14, "UINT32": 15, "UINT16": 16, "INT4": 17, "BFLOAT16": 18},
    "OptimizerType": {"SGD": 0, "ADAM": 1},
    "LossFn": {"SPARSE_CATEGORICAL_CROSSENTROPY": 0, "CATEGORICAL_CROSSENTROPY": 1, "MEAN_SQUARED_ERROR": 2},
    "LossReductionType": {"SumOverBatchSize": 0, "Sum": 1},
    "AssociatedFileType": {"UNKNOWN": 0, "DESCRIPTIONS": 1, "TENSOR_AXIS_LABELS": 2, "TENSOR_VALUE_LABELS": 3,
        "TENSOR_AXIS_SCORE_CALIBRATION": 4, "VOCABULARY": 5, "SCANN_INDEX_FILE": 6},
    "ColorSpaceType": {"UNKNOWN": 0, "RGB": 1, "GRAYSCALE": 2},
    "BoundingBoxType": {"UNKNOWN": 0, "BOUNDARIES": 1, "UPPER_LEFT": 2, "CENTER": 3},
    "CoordinateType": {"RATIO": 0, "PIXEL": 1},
    "ScoreTransformationType": {"IDENTITY": 0, "LOG": 1, "INVERSE_LOGISTIC": 2},
}

UNIONS: dict[str, dict[int, str]] = {
    "BuiltinOptions": {1: "Conv2DOptions", 2: "DepthwiseConv2DOptions", 3: "ConcatEmbeddingsOptions", 4:
        "LSHProjectionOptions", 5: "Pool2DOptions", 6: "SVDFOptions", 7: "RNNOptions", 8:
        "FullyConnectedOptions", 9: "SoftmaxOptions", 10: "ConcatenationOptions", 11: "AddOptions", 12:
        "L2NormOptions", 13: "LocalResponseNormalizationOptions", 14: "LSTMOptions", 15:
        "ResizeBilinearOptions", 16: "CallOptions", 17: "ReshapeOptions", 18: "SkipGramOptions", 19:
        "SpaceToDepthOptions", 20: "EmbeddingLookupSparseOptions", 21: "MulOptions", 22: "PadOptions", 23:
        "GatherOptions", 24: "BatchToSpaceNDOptions", 25: "SpaceToBatchNDOptions", 26: "TransposeOptions", 27:
        "ReducerOptions", 28: "SubOptions", 29: "DivOptions", 30: "SqueezeOptions", 31: "SequenceRNNOptions",
        32: "StridedSliceOptions", 33: "ExpOptions", 34: "TopKV2Options", 35: "SplitOptions", 36:
        "LogSoftmaxOptions", 37: "CastOptions", 38: "DequantizeOptions", 39: "MaximumMinimumOptions", 40:
        "ArgMaxOptions", 41: "LessOptions", 42: "NegOptions", 43: "PadV2Options", 44: "GreaterOptions", 45:
        "GreaterEqualOptions", 46: "LessEqualOptions", 47: "SelectOptions", 48: "SliceOptions", 49:
        "TransposeConvOptions", 50: "SparseToDenseOptions", 51: "TileOptions", 52: "ExpandDimsOptions", 53:
        "EqualOptions", 54: "NotEqualOptions", 55: "ShapeOptions", 56: "PowOptions", 57: "ArgMinOptions", 58:
        "FakeQuantOptions", 59: "PackOptions", 60: "LogicalOrOptions", 61: "OneHotOptions", 62:
        "LogicalAndOptions", 63: "LogicalNotOptions", 64: "UnpackOptions", 65: "FloorDivOptions", 66:
        "SquareOptions", 67: "ZerosLikeOptions", 68: "FillOptions", 69: "BidirectionalSequenceLSTMOptions",
        70: "BidirectionalSequenceRNNOptions", 71: "UnidirectionalSequenceLSTMOptions", 72: "FloorModOptions",
        73: "RangeOptions", 74: "ResizeNearestNeighborOptions", 75: "LeakyReluOptions", 76:
        "SquaredDifferenceOptions", 77: "MirrorPadOptions", 78: "AbsOptions", 79: "SplitVOptions", 80:
        "UniqueOptions", 81: "ReverseV2Options", 82: "AddNOptions", 83: "GatherNdOptions", 84: "CosOptions",
        85: "WhereOptions", 86: "RankOptions", 87: "ReverseSequenceOptions", 88: "MatrixDiagOptions", 89:
        "QuantizeOptions", 90: "MatrixSetDiagOptions", 91: "HardSwishOptions", 92: "IfOptions", 93:
        "WhileOptions", 94: "DepthToSpaceOptions", 95: "NonMaxSuppressionV4Options", 96:
        "NonMaxSuppressionV5Options", 97: "ScatterNdOptions", 98: "SelectV2Options", 99: "DensifyOptions",
        100: "SegmentSumOptions", 101: "BatchMatMulOptions", 102: "CumsumOptions", 103: "CallOnceOptions",
        104: "BroadcastToOptions", 105: "Rfft2dOptions", 106: "Conv3DOptions", 107: "HashtableOptions", 108:
        "HashtableFindOptions", 109: "HashtableImportOptions", 110: "HashtableSizeOptions", 111:
        "VarHandleOptions", 112: "ReadVariableOptions", 113: "AssignVariableOptions", 114: "RandomOptions",
        115: "BucketizeOptions", 116: "GeluOptions", 117: "DynamicUpdateSliceOptions", 118:
        "UnsortedSegmentProdOptions", 119: "UnsortedSegmentMaxOptions", 120: "UnsortedSegmentMinOptions", 121:
        "UnsortedSegmentSumOptions", 122: "ATan2Options", 123: "SignOptions", 124: "BitcastOptions", 125:
        "BitwiseXorOptions", 126: "RightShiftOptions", 247: "AttentionOptions", 248: "RunModelOptions", 249:
        "RoPEOptions", 250: "RmsNormOptions", 251: "GRUOptions", 252: "BCQGatherOptions", 253:
        "BCQFullyConnectedOptions", 254: "InstanceNormOptions"},
    "BuiltinOptions2": {1: "StablehloConcatenateOptions", 2: "StablehloBroadcastInDimOptions", 3:
        "StablehloSliceOptions", 4: "StablehloConvolutionOptions", 5: "StablehloCustomCallOptions", 6:
        "StablehloReduceOptions", 7: "StablehloScatterOptions", 8: "StablehloCompareOptions", 9:
        "StablehloDynamicSliceOptions", 10: "StablehloPadOptions", 11: "StablehloIotaOptions", 12:
        "StablehloDotGeneralOptions", 13: "StablehloReduceWindowOptions", 14: "StablehloSortOptions", 15:
        "StablehloWhileOptions", 16: "StablehloGatherOptions", 17: "StablehloTransposeOptions", 18:
        "DilateOptions", 19: "StablehloRngBitGeneratorOptions", 20: "ReduceWindowOptions", 21:
        "StableHLOCompositeOptions", 22: "StablehloShiftLeftOptions", 23: "StablehloCaseOptions"},
    "QuantizationDetails": {1: "CustomQuantization", 2: "MXQuantization", 3: "BlockwiseQuantization"},
    "SparseIndexVector": {1: "Int32Vector", 2: "Uint16Vector", 3: "Uint8Vector"},
    "TFLiteQuantizationDetails": {1: "CustomQuantization"},
    "OptimizerOptions": {1: "SGDOptions", 2: "AdamOptions"},
    "LossFnOptions": {1: "SparseCategoricalCrossentropyOptions", 2: "CategoricalCrossentropyOptions", 3:
        "MeanSquaredErrorOptions"},
    "ContentProperties": {1: "FeatureProperties", 2: "ImageProperties", 3: "BoundingBoxProperties", 4:
        "AudioProperties"},
    "ProcessUnitOptions": {1: "NormalizationOptions", 2: "ScoreCalibrationOptions", 3:
        "ScoreThresholdingOptions", 4: "BertTokenizerOptions", 5: "SentencePieceTokenizerOptions", 6:
        "RegexTokenizerOptions"},
}

CIRCLE_ONLY: dict[str, tuple[int, ...]] = {
    "BuiltinOperator": (-9, -8, -7, -6, -5, -4, -3, -2),
    "BuiltinOptions": (247, 248, 249, 250, 251, 252, 253, 254),
    "FullyConnectedOptionsWeightsFormat": (127,),
    "QuantizationDetails": (2, 3),
    "TensorType": (-7, -6, -5, -4, -3, -2, -1),
}
"""Values that TFLite does not know."""
