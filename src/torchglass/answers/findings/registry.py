"""All detectors, in the order in which they are heard: causes before their effects."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

NAMES = (
    "broadcast",
    "softmax_twice",
    "arguments_swapped",
    "not_log_probabilities",
    "softmax_of_one",
    "softmax_axis",
    "normalised_axis",
    "clipped_logits",
    "argmax_of_one",
    "argmax_of_all",
    "equals_a_float",
    "keepdim",
    "added_to_itself",
    "skip_overwritten",
    "attention_scale",
    "normalised_twice",
    "compared_with_itself",
    "uninitialised",
    "view_for_transpose",
    "flattened_differently",
    "sequence_axis",
    "last_is_padding",
    "index_for_slice",
    "mask_added",
    "mask_inverted",
    "mask_axis",
    "mean_over_padding",
    "mask_unused",
    "sees_the_answer",
    "heads_mixed",
    "loss_is_a_leaf",
    "loss_twice",
    "wrong_sign",
    "similarity_of_itself",
    "loss_unused",
    "activation_unused",
    "gradient_unused",
    "term_without_gradient",
    "reduces_a_scalar",
    "reduced_too_early",
    "squared_mean",
    "padding_in_loss",
    "unrelated_noise",
    "noise_level",
    "seeded_again",
    "shuffled_apart",
    "weights_of_classes",
    "log_variance",
    "uniform_noise",
    "bootstrapped_target",
    "advantage_with_gradient",
    "unregistered",
    "same_layer_again",
    "not_called",
    "not_frozen",
    "not_a_parameter",
    "update_lost",
    "stale_optimizer",
    "sample_without_gradient",
    "no_gradient",
    "step_without_gradient",
    "never_stepped",
    "not_in_optimizer",
    "gradients_pile_up",
    "gradients_thrown_away",
    "gradient_leak",
    "step_twice",
    "optimizer_made_again",
    "clipping",
    "unscaled_step",
    "eval_while_training",
    "train_while_evaluating",
    "dropout_in_evaluation",
    "drops_everything",
    "batch_norm_of_one",
    "copied_onto_itself",
    "stack_of_one",
    "result_dropped",
    "int_truncation",
    "wraps_around",
    "changes_the_data",
    "loss_kept",
    "grows_by_cat",
    "not_finite",
    "out_of_reach",
    "input_scale",
    "dead_units",
    "saturated",
    "zero_gradient",
    "no_update",
)
"""One file of this folder each: `find(facts)` in it is the detector, its docstring what `torchglass explain` prints."""

DETECTORS: tuple[ModuleType, ...] = tuple(
    import_module(f"torchglass.answers.findings.{name}") for name in NAMES
)


def name_of(detector: ModuleType) -> str:
    """Return the name by which users know a detector: ``softmax-twice``."""
    return detector.__name__.rpartition(".")[2].replace("_", "-")


def known_names() -> set[str]:
    """Return the names of all detectors."""
    return set(map(name_of, DETECTORS))


def explanation(detector: ModuleType) -> str:
    """Return what a detector says of itself."""
    return (detector.__doc__ or "").strip()


def summary_of(detector: ModuleType) -> str:
    """Return the first sentence of that."""
    return explanation(detector).partition("\n")[0]
