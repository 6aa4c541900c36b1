"""Which tests `make test` leaves to `make conformance`: more of the same, that seldom finds what the rest does not.

Both together are all tests; `.ci/run` runs both. Each entry names one test function and which of its parameters the
default run keeps: those of whose id (`[gpt2-forward]`) one part is named here. What is not named here runs always.
"""

from __future__ import annotations

from collections.abc import Iterable

NOTHING: frozenset[str] = frozenset()

FAMILIES = frozenset(["gpt2", "mixtral", "bert", "t5", "vit", "mamba"])
"""Of the zoo: a decoder, experts, an encoder, both together, pictures, and one without attention."""


def seeds(count: int) -> frozenset[str]:
    """The first so many seeds."""
    return frozenset(str(number) for number in range(count))


KEPT: dict[str, frozenset[str]] = {
    # Transformers of the zoo.
    "tests/capture/torch/test_functions.py::test_children_lie_inside_their_parents": FAMILIES,
    "tests/capture/torch/test_modules.py::test_every_module_of_a_transformer_that_runs_is_seen": FAMILIES,
    "tests/capture/transparency/test_transparency.py::test_a_transformer_does_the_same_in_training": FAMILIES,
    "tests/capture/transparency/test_transparency.py::test_a_transformer_does_the_same_in_evaluation": FAMILIES,
    "tests/conformance/test_debug_mode.py::test_the_ops_are_those_that_debug_mode_saw": FAMILIES,
    "tests/test_zoo.py::test_a_family_computes_the_same_twice": FAMILIES,
    "tests/views/graph/test_oracle.py::test_a_transformer_has_the_edges_that_the_tracer_finds": FAMILIES,
    # More samples of the operators and modules that PyTorch describes; one of each is in the default run.
    "tests/conformance/test_moduleinfo.py::test_more_samples_are_the_same": NOTHING,
    "tests/conformance/test_opinfo.py::test_more_samples_are_the_same_under_recording_of_ops_and_statistics": NOTHING,
    # Both engines on transformers, and in the ways of recording that share most of their code with others.
    "tests/capture/engine/test_engines.py::test_both_engines_write_the_same": frozenset(
        ["programs", "small", "variables"]
    ),
    # Programs made at random.
    "tests/program/test_tree.py::test_iterations_are_those_that_a_program_counts_itself": seeds(15),
    "tests/views/test_rounds.py::test_folding_is_the_same_after_unfolding": seeds(8),
    "tests/views/test_rounds.py::test_unfolded_and_folded_rows_stand_for_the_same_events": seeds(8),
    "tests/views/graph/test_rounds.py::test_nor_in_loops_made_at_random": seeds(10),
    "tests/views/listing/test_view.py::test_what_is_said_of_a_program_made_at_random_is_what_a_line_tracer_saw": seeds(
        12
    ),
    # Whole processes, once for each way to start, fail or end.
    "tests/capture/statistics/test_choosing.py::"
    "test_a_process_that_is_started_anew_keeps_the_same_by_names_and_measures_all_by_where": frozenset(["names"]),
    "tests/capture/test_threads.py::test_a_daemon_thread_at_work_when_python_ends": frozenset(["ops-running"]),
    "tests/cli/test_run.py::test_a_module": frozenset(["package.inner"]),
    "tests/cli/test_run.py::test_a_script_knows_the_same_of_itself": frozenset([""]),
    "tests/cli/test_run.py::test_an_uncaught_exception": frozenset(["in_forward", "badly_hooked"]),
    "tests/cli/test_run.py::test_ctrl_c_ends_the_process_as_under_python": frozenset(["console"]),
    "tests/cli/test_run.py::test_other_processes": frozenset(["spawn"]),
    "tests/cli/test_run.py::test_the_exit_status": frozenset(["status", "forked"]),
    "tests/compat/test_ttracker_files.py::test_the_workers_of_a_data_loader": frozenset(["fork"]),
    # Long runs.
    "tests/answers/first_bad/test_long_runs.py::test_the_planted_line_is_named_in_twenty_thousand_steps": NOTHING,
    # Faults, damage and interrupts, in many places.
    "tests/capture/transparency/test_features.py::test_each_feature_of_the_python_engine_may_fail_to_be_made": NOTHING,
    "tests/capture/transparency/test_features.py::"
    "test_each_private_name_may_be_missing_or_be_something_else": frozenset(["0"]),
    "tests/capture/transparency/test_features.py::"
    "test_each_replaced_name_may_be_missing_or_be_something_else": frozenset(["0"]),
    "tests/capture/transparency/test_restore.py::test_an_interrupt_while_torch_puts_our_mode_back": frozenset(
        ["1", "4", "7", "10"]
    ),
    "tests/settle/test_damaged.py::test_flipped_bits": frozenset(["training_step"]),
    "tests/settle/test_damaged.py::test_cut_at_any_byte": frozenset(["training_step"]),
    "tests/store/test_hostile.py::test_mutated": frozenset(["unsealed"]),
    "tests/store/test_hostile.py::test_mutated_then_repaired": frozenset(["unsealed"]),
    "tests/store/test_repair_refused.py::test_a_bundle_that_cannot_be_made_leaves_nothing": frozenset(["2000"]),
    "tests/store/test_deaths.py::test_fifty_deaths": NOTHING,
    # Ten thousand blocks, and what compiling or computing is done often for.
    "tests/capture/engine/test_fast.py::test_blocks_leave_nothing_behind": NOTHING,
    "tests/capture/statistics/test_kernels.py::test_shapes_beyond_a_block_of_weights": frozenset(["dtype0"]),
    "tests/capture/statistics/test_kernels.py::test_short_rows": frozenset(["16", "512"]),
    "tests/capture/statistics/test_memory.py::test_equals_numpy_on_lesser_processors": frozenset(["0"]),
    "tests/capture/transparency/test_compiled.py::test_as_often_compiled_as_without_us": frozenset(
        ["aot_eager-inside"]
    ),
}


def is_usual(node: str) -> bool:
    """Whether the default run has this test."""
    function, _, parameters = node.partition("[")
    kept = KEPT.get(function)
    if kept is None:
        return True
    identity = parameters.removesuffix("]")
    return any(identity == each or f"-{each}-" in f"-{identity}-" for each in kept if each or not identity)


def outdated(nodes: Iterable[str]) -> list[str]:
    """What this file says of tests that are no longer there, or no longer have such parameters."""
    seen: dict[str, list[bool]] = {name: [] for name in KEPT}
    for node in nodes:
        function = node.partition("[")[0]
        if function in seen:
            seen[function].append(is_usual(node))
    wrong: list[str] = []
    for name, usual in seen.items():
        if not usual:
            wrong.append(f"there is no {name}")
        elif all(usual):
            wrong.append(f"nothing of {name} is left out")
        elif KEPT[name] and not any(usual):
            wrong.append(f"nothing of {name} is kept")
    return wrong
