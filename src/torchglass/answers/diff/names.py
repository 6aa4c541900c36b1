"""Groups operations by name: which only move numbers, overwrite memory, draw random numbers, or
ignore their inputs.

Names are plain ones, the same for a function, a method and an op.
"""

from __future__ import annotations

TELLS = ("variable", "mark")
"""Kinds of events that only report values."""
LAYOUT = frozenset(
    "view reshape _unsafe_view _reshape_alias transpose t T mT H mH permute movedim moveaxis swapaxes swapdims "
    "unsqueeze squeeze flatten unflatten ravel contiguous clone detach detach_ alias lift lift_fresh view_as "
    "reshape_as requires_grad_ data to _to_copy type_as double float copy_ expand expand_as view_as_real "
    "view_as_complex resolve_conj resolve_neg as_strided atleast_1d atleast_2d atleast_3d numpy from_numpy".split()
)
"""Operations that keep all numbers, provided that the output has as many elements as the input."""
MOVES = frozenset(
    "transpose t T mT H mH permute movedim moveaxis swapaxes swapdims flip roll rot90 repeat_interleave tile".split()
)
"""Operations that put numbers at other places."""
OVERWRITES = frozenset(
    "copy_ fill_ zero_ normal_ uniform_ random_ bernoulli_ exponential_ trunc_normal_ ones_ zeros_ constant_ eye_ "
    "cauchy_ geometric_ log_normal_ kaiming_uniform_ kaiming_normal_ xavier_uniform_ xavier_normal_ orthogonal_".split()
)
"""Operations whose result does not depend on what was in the memory before."""
IGNORES_NUMBERS = frozenset(
    "ones_like zeros_like full_like empty_like rand_like randn_like randint_like new_zeros new_ones new_full new_empty "
    "new_empty_strided new_tensor_like is_same_size result_type numel size stride sym_size".split()
)
"""Operations that use only the shape of their input, not its numbers."""
FILLED_WITH = frozenset(
    "zeros ones full arange zeros_like ones_like full_like new_zeros new_ones new_full scalar_tensor tensor empty "
    "empty_like linspace eye lift_fresh".split()
)
"""Operations whose numbers come from the program's text."""
FILLED_ALIKE = frozenset(
    "zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full empty empty_like eye".split()
)
"""Operations whose numbers are mostly equal, so that they say little about a difference."""
PARTS = frozenset(
    "select slice __getitem__ narrow index gather split split_with_sizes chunk unbind index_select tensor_split "
    "unsafe_split unsafe_chunk diagonal take take_along_dim embedding masked_select".split()
)
"""Operations that select some of the numbers of their input."""
WRITES_A_PART = frozenset(
    "write index_put_ index_add_ scatter_ scatter_add_ masked_fill_ index_copy_".split()
)
RANDOM = frozenset(
    "rand randn randint randperm rand_like randn_like randint_like normal normal_ uniform_ random_ bernoulli "
    "bernoulli_ exponential_ multinomial native_dropout dropout dropout_ alpha_dropout feature_dropout poisson "
    "trunc_normal_ cauchy_ geometric_ log_normal_ kaiming_uniform_ kaiming_normal_ xavier_uniform_ xavier_normal_ "
    "orthogonal_ _fused_dropout rrelu_with_noise dropout1d dropout2d dropout3d gumbel_softmax".split()
)
READS = frozenset(
    "item tolist numpy _local_scalar_dense __bool__ __float__ __int__ __index__".split()
)

SUMS = frozenset("sum mean nansum nanmean cumsum".split())
ADDS = frozenset(
    "add sub add_ sub_ rsub __add__ __sub__ __radd__ __rsub__ __iadd__ __isub__ _foreach_add _foreach_add_ "
    "_foreach_sub _foreach_sub_ addcmul addcmul_ addcdiv addcdiv_ lerp lerp_ _foreach_lerp_ _foreach_addcmul_ "
    "_foreach_addcdiv_ index_add_ index_add subtract".split()
)
DIVIDED_UPDATES = frozenset("addcdiv addcdiv_ _foreach_addcdiv_".split())
"""Operations by which optimizers such as Adam update a weight: they divide by the size of the
gradient.
"""
QUOTIENTS = frozenset("div div_ __truediv__ _foreach_div _foreach_div_".split())
PERIODIC = frozenset(
    "exp cos sin polar softmax _softmax _safe_softmax expm1 exp2 logsumexp tan".split()
)
CLIPS = frozenset(
    "clamp clamp_ clamp_min clamp_min_ clamp_max clamp_max_ clip clip_ hardtanh hardtanh_ relu relu_ relu6 "
    "threshold threshold_".split()
)
"""Operations that cut off the largest or smallest numbers and keep the rest."""
LOGS = frozenset("log log2 log10 log1p log_softmax _log_softmax".split())
PRODUCTS = frozenset(
    "mm bmm addmm baddbmm matmul linear einsum dot mv __matmul__ __rmatmul__ outer".split()
)
NORMS = frozenset(
    "layer_norm native_layer_norm group_norm native_group_norm batch_norm native_batch_norm instance_norm "
    "_native_batch_norm_legit _native_batch_norm_legit_no_training var std var_mean std_mean".split()
)
NORMS_BACKWARD = frozenset(
    "native_layer_norm_backward native_group_norm_backward native_batch_norm_backward".split()
)
DIFFERENCES = frozenset(
    "_log_softmax_backward_data cross_entropy cross_entropy_loss nll_loss".split()
)
FUSED = frozenset(
    "scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_flash_attention _scaled_dot_product_cudnn_attention _scaled_dot_product_attention_math "
    "multi_head_attention_forward _transformer_encoder_layer_fwd _native_multi_head_attention lstm gru "
    "mkldnn_rnn_layer _thnn_fused_lstm_cell rnn_tanh rnn_relu quantized_lstm _fused_rms_norm _fused_adamw_ "
    "_fused_adam_ _fused_sgd_ lstm_cell gru_cell".split()
)
"""Fused operations: one event does the work of many, and what happens inside is not recorded."""


def draws_numbers(op: str) -> bool:
    """Return whether an operation draws random numbers."""
    return op in RANDOM


def is_listed(op: str) -> bool:
    """Return whether an operation hands numbers over to Python."""
    return op in READS
