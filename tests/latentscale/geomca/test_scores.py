import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import chi2
from sklearn.datasets import load_digits

from latentscale.duplicates.sparsification import sparsify
from latentscale.geomca.epsilon import draw_samples, estimate_epsilon
from latentscale.geomca.epsilon_graph import Components, EpsilonGraph, epsilon_components
from latentscale.geomca.scores import geomca_scores
from latentscale.tiles.distances import Balls, as_points
from tests import DATA, oracles

REFERENCE = json.loads((DATA / "geomca_reference.json").read_text())

# Coordinates and thresholds on an integer grid: many distances equal 1, root 2, 2 or 5 exactly.
GRID = st.tuples(st.integers(1, 14), st.just(2)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.integers(0, 6))
)
THRESHOLDS = st.sampled_from([0.5, 1.0, math.sqrt(2.0), 2.0, 3.0, 5.0, 20.0])


def euclidean(vectors):
    return as_points(vectors, "euclidean")


def expected_components(reference, corpus, epsilon):
    """The oracle's components in the form of Components."""
    found = oracles.epsilon_graph(reference, corpus, epsilon)
    n_reference = len(reference)
    labels = np.empty(n_reference + len(corpus), dtype=np.int64)
    for rank, (vertices, *_) in enumerate(found):
        labels[vertices] = rank
    n_in_reference = [sum(v < n_reference for v in vertices) for vertices, *_ in found]
    return found, {
        "labels_reference": labels[:n_reference],
        "labels_corpus": labels[n_reference:],
        "n_reference": n_in_reference,
        "n_corpus": [len(c[0]) - r for c, r in zip(found, n_in_reference, strict=True)],
        "edges_reference": [c[1] for c in found],
        "edges_corpus": [c[2] for c in found],
        "edges_between": [c[3] for c in found],
    }


def assert_components_equal(components, expected):
    for name, values in expected.items():
        got = getattr(components, name)
        assert got.dtype == np.int64
        np.testing.assert_array_equal(got, values, err_msg=name)


# --- published values -----------------------------------------------------------------------


def digits(order):
    vectors, labels = load_digits(return_X_y=True)
    reference, corpus = vectors[labels < 5], vectors[labels >= 5]
    if order != "file":
        generator = np.random.default_rng(int(order))
        reference = reference[generator.permutation(len(reference))]
        corpus = corpus[generator.permutation(len(corpus))]
    return euclidean(reference), euclidean(corpus)


@pytest.mark.parametrize(
    "case",
    REFERENCE["cases"],
    ids=[f"{c['epsilon_rule']}-{c['delta']:.1f}-{c['order']}" for c in REFERENCE["cases"]],
)
def test_digits_equal_the_published_pipeline(case):
    reference, corpus = digits(case["order"])
    # Some distances round to delta or epsilon. That pipeline removes and joins such rows; the next
    # numbers up make ours do so.
    delta, epsilon = (np.nextafter(case[name], np.inf) for name in ("delta", "epsilon"))
    sparse_reference, sparse_corpus = sparsify(reference, delta), sparsify(corpus, delta)
    components = epsilon_components(
        reference.take(sparse_reference.kept), corpus.take(sparse_corpus.kept), epsilon
    )
    scores = geomca_scores(
        components, reference_rows=sparse_reference.rows, corpus_rows=sparse_corpus.rows
    )
    assert {
        "precision": scores.precision,
        "recall": scores.recall,
        "consistency": scores.consistency,
        "quality": scores.quality,
        "reference_sparse": len(sparse_reference.kept),
        "corpus_sparse": len(sparse_corpus.kept),
        "components": len(components),
        "edges": components.edges.sum(),
    } == {
        name: case[name]
        for name in case
        if name not in ("epsilon_rule", "epsilon", "delta", "order")
    }


def test_rows_at_exactly_epsilon_are_not_joined():
    reference, _ = digits("file")
    epsilon = REFERENCE["cases"][0]["epsilon"]
    strict = epsilon_components(reference, reference, epsilon)
    inclusive = epsilon_components(reference, reference, np.nextafter(epsilon, np.inf))
    ties = REFERENCE["pairs_exactly_at_epsilon"]
    assert inclusive.edges_reference.sum() - strict.edges_reference.sum() == ties
    assert inclusive.edges_between.sum() - strict.edges_between.sum() == 2 * ties


# --- epsilon --------------------------------------------------------------------------------


def estimated(points, percentile, seed, sample_rows=2000):
    left, right = draw_samples(len(points), np.random.default_rng(seed), sample_rows)
    return estimate_epsilon(points.take(left), points.take(right), percentile)


def test_epsilon_is_a_percentile_between_two_halves():
    vectors = np.random.default_rng(0).normal(size=(41, 3))
    epsilon = estimated(euclidean(vectors), 10, seed=7)
    drawn = np.random.default_rng(7).choice(41, 40, replace=False)
    assert len(set(drawn.tolist())) == 40
    distances = [
        math.sqrt(oracles.squared_distance(vectors[i], vectors[j]))
        for i in drawn[:20]
        for j in drawn[20:]
    ]
    assert epsilon.value == pytest.approx(np.percentile(distances, 10), rel=1e-12)


def test_epsilon_agrees_with_all_pairs_of_digits():
    reference, _ = digits("file")
    estimates = [estimated(reference, 10, seed, sample_rows=400).value for seed in range(8)]
    assert np.mean(estimates) == pytest.approx(REFERENCE["cases"][0]["epsilon"], rel=0.005)
    assert np.std(estimates) < 0.5
    assert len(set(estimates)) > 4


def test_epsilon_of_samples_larger_than_a_tile():
    vectors = np.random.default_rng(1).normal(size=(2200, 2))
    epsilon = estimated(euclidean(vectors), 50, seed=2)
    drawn = np.random.default_rng(2).choice(2200, 2200, replace=False)
    left, right = vectors[drawn[:1100]], vectors[drawn[1100:]]
    distances = np.sqrt(((left[:, None] - right[None]) ** 2).sum(axis=2))
    assert epsilon.value == pytest.approx(np.percentile(distances, 50), rel=1e-12)


def test_epsilon_of_two_rows_is_their_distance():
    points = euclidean([[0.0, 0.0], [3.0, 4.0]])
    for percentile in (0, 10, 100):
        epsilon = estimated(points, percentile, seed=0)
        assert (epsilon.value, epsilon.lower, epsilon.upper) == (5.0, 5.0, 5.0)
        assert epsilon.bounds == "estimate"


def test_the_interval_of_epsilon_spans_a_gap_in_the_distances():
    """Of ten equal classes, a tenth of all distances is within classes: 8, and 200 beyond."""
    generator = np.random.default_rng(17)
    centres = 100.0 * generator.normal(size=(10, 16))

    def drawn():
        return euclidean(
            centres[generator.integers(10, size=300)] + generator.normal(size=(300, 16))
        )

    for _ in range(12):
        epsilon = estimate_epsilon(drawn(), drawn(), 10)
        assert epsilon.lower < 20
        assert epsilon.upper > 200


@pytest.mark.parametrize("percentile", [1, 10])
def test_the_interval_of_epsilon_of_few_rows_allows_for_nearer_pairs(percentile: float):
    generator = np.random.default_rng(19)
    truth = math.sqrt(2 * chi2.ppf(percentile / 100, df=5))
    held = 0
    for _ in range(60):
        left, right = (euclidean(generator.normal(size=(6, 5))) for _ in range(2))
        epsilon = estimate_epsilon(left, right, percentile)
        held += epsilon.lower <= truth <= epsilon.upper
    assert held >= 54


def test_the_interval_of_epsilon_holds_the_next_of_few_distances():
    generator = np.random.default_rng(18)
    places, shares = np.array([0.0, 1, 3, 7, 15, 31]), [0.2, 0.2, 0.2, 0.15, 0.15, 0.1]
    missed = 0
    for _ in range(60):
        left, right = (generator.choice(places, size=(300, 1), p=shares) for _ in range(2))
        epsilon = estimate_epsilon(euclidean(left), euclidean(right), 25.6)
        missed += not epsilon.lower <= 2.0 <= epsilon.upper  # 0.255 of all pairs are nearer
    assert missed <= 4


def test_the_interval_of_epsilon_covers_the_percentile_of_the_source():
    generator = np.random.default_rng(13)
    # Differences of two normal rows are normal with twice the variance.
    truth = math.sqrt(2 * chi2.ppf(0.1, df=6))
    estimates = [
        estimate_epsilon(*(euclidean(generator.normal(size=(60, 6))) for _ in range(2)), 10)
        for _ in range(200)
    ]
    covered = np.mean([e.lower <= truth <= e.upper for e in estimates])
    assert 0.9 <= covered <= 0.99
    assert np.mean([e.standard_error for e in estimates]) == pytest.approx(
        np.std([e.value for e in estimates]), rel=0.2
    )


@pytest.mark.parametrize(("rows", "message"), [(1, "at least 2 rows"), (0, "at least 2 rows")])
def test_samples_need_two_rows(rows, message):
    with pytest.raises(ValueError, match=message):
        draw_samples(rows, np.random.default_rng(0))


def test_samples_need_a_size():
    with pytest.raises(ValueError, match="sample_rows must be at least 1"):
        draw_samples(5, np.random.default_rng(0), 0)


@pytest.mark.parametrize(
    ("left", "right", "percentile", "message"),
    [
        ([[1.0]], [[2.0]], -1, r"percentile must be in \[0, 100\], got -1"),
        ([[1.0]], [[2.0]], math.nan, r"percentile must be in \[0, 100\]"),
        ([[1.0], [2.0]], [[2.0]], 10, "samples differ in size: 2 and 1 rows"),
        ([[1.0]], [[1.0]], 10, "percentile 10 of the reference's distances is 0"),
    ],
)
def test_epsilon_refuses_what_it_cannot_estimate(left, right, percentile, message):
    with pytest.raises(ValueError, match=message):
        estimate_epsilon(euclidean(left), euclidean(right), percentile)


# --- components -----------------------------------------------------------------------------


@settings(max_examples=300, deadline=None, derandomize=True)
@given(GRID, GRID, THRESHOLDS, st.integers(1, 15))
def test_components_equal_those_of_the_dense_graph(reference, corpus, epsilon, block_rows):
    found, expected = expected_components(reference, corpus, epsilon)
    components = epsilon_components(
        euclidean(reference), euclidean(corpus), epsilon, block_rows=block_rows
    )
    assert_components_equal(components, expected)
    assert len(components) == len(found)
    assert components.size.tolist() == [len(c[0]) for c in found]
    assert components.edges.tolist() == [sum(c[1:]) for c in found]


@pytest.mark.parametrize("block_rows", [1, 9, 50, 1000])
def test_components_of_continuous_rows(block_rows):
    generator = np.random.default_rng(11)
    reference = generator.normal(size=(60, 5)) + 50.0
    corpus = generator.normal(size=(45, 5)) + 50.5
    _, expected = expected_components(reference, corpus, 1.4)
    assert 5 < len(expected["n_corpus"]) < 90
    components = epsilon_components(
        euclidean(reference), euclidean(corpus), 1.4, block_rows=block_rows
    )
    assert_components_equal(components, expected)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(GRID, GRID, THRESHOLDS, st.integers(1, 8), st.integers(1, 4), st.randoms())
def test_forests_of_any_cut_of_the_tiles_have_the_components_of_the_dense_graph(
    reference, corpus, epsilon, rows, tasks, random
):
    _, expected = expected_components(reference, corpus, epsilon)
    n_reference, n = len(reference), len(reference) + len(corpus)
    sides = {0: euclidean(reference), n_reference: euclidean(corpus)}
    blocks = [
        (points.take(slice(start, start + rows)), offset + start)
        for offset, points in sides.items()
        for start in range(0, len(points), rows)
    ]
    graphs = [EpsilonGraph(n_reference, n - n_reference) for _ in range(tasks)]
    for place, (block, first) in enumerate(blocks):
        balls = Balls.about(block, epsilon, strict=True)
        for offset, points in sides.items():
            graphs[place % tasks].look(balls, first, points, offset)
    forests = [graph.forest for graph in graphs]
    random.shuffle(forests)
    whole = EpsilonGraph(n_reference, n - n_reference)
    for forest in forests:
        whole.merge(forest)
    assert_components_equal(whole.components, expected)


def test_a_block_across_both_sets_is_refused():
    points = euclidean([[0.0], [1.0]])
    balls = Balls.about(points, 1.0, strict=True)
    with pytest.raises(ValueError, match="vertices of one set only"):
        EpsilonGraph(1, 1).look(balls, 0, points, 0)


def test_a_corpus_equal_to_its_reference():
    vectors = np.random.default_rng(5).normal(size=(40, 4)) * 100
    components = epsilon_components(euclidean(vectors), euclidean(vectors), 1e-9)
    assert components.size.tolist() == [2] * 40
    assert components.labels_reference.tolist() == list(range(40))
    assert components.labels_corpus.tolist() == list(range(40))
    assert (components.consistency == 1).all()
    assert (components.quality == 1).all()


def test_a_complete_graph_counts_every_pair():
    components = epsilon_components(
        euclidean(np.arange(5.0)[:, None]), euclidean(np.arange(3.0)[:, None]), 100.0, block_rows=2
    )
    assert components.size.tolist() == [8]
    assert components.edges_reference.tolist() == [10]
    assert components.edges_corpus.tolist() == [3]
    assert components.edges_between.tolist() == [15]
    assert components.consistency.tolist() == [0.75]
    assert components.quality.tolist() == [15 / 28]


def test_a_graph_without_edges_has_quality_zero():
    components = epsilon_components(euclidean([[0.0], [5.0]]), euclidean([[10.0]]), 1.0)
    assert components.size.tolist() == [1, 1, 1]
    assert components.labels_corpus.tolist() == [2]
    assert components.consistency.tolist() == [0.0, 0.0, 0.0]
    assert components.quality.tolist() == [0.0, 0.0, 0.0]
    scores = geomca_scores(components, reference_rows=np.array([1, 1]), corpus_rows=np.array([1]))
    assert (scores.precision, scores.recall, scores.quality) == (0.0, 0.0, 0.0)
    assert scores.consistency == pytest.approx(2 / 3)


def test_ranks_of_equal_components_follow_the_first_row():
    # {R1, E1}, {R0, E0}, and the corpus's own pair {E2, E3}.
    reference = euclidean([[10.0], [0.0]])
    corpus = euclidean([[10.5], [0.5], [20.0], [20.5]])
    components = epsilon_components(reference, corpus, 1.0)
    assert components.labels_reference.tolist() == [0, 1]
    assert components.labels_corpus.tolist() == [0, 1, 2, 2]


def test_sets_that_differ_are_refused():
    with pytest.raises(ValueError, match="blocks differ"):
        epsilon_components(euclidean([[1.0]]), euclidean([[1.0, 2.0]]), 1.0)


# --- scores ---------------------------------------------------------------------------------

SHARES = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])


@settings(max_examples=300, deadline=None, derandomize=True)
@given(GRID, GRID, THRESHOLDS, st.sampled_from([0.0, 0.5, 1.0]), SHARES, SHARES)
def test_scores_of_the_whole_pipeline(reference, corpus, epsilon, gamma, eta_c, eta_q):
    delta = gamma * epsilon
    kept_reference, standing_reference = oracles.greedy_sparsification(reference, delta)
    kept_corpus, standing_corpus = oracles.greedy_sparsification(corpus, delta)
    found = oracles.epsilon_graph(reference[kept_reference], corpus[kept_corpus], epsilon)
    counts = [standing_reference.count(k) for k in kept_reference]
    counts += [standing_corpus.count(k) for k in kept_corpus]
    expected = oracles.geomca_scores(found, len(kept_reference), eta_c, eta_q, counts)

    r, e = euclidean(reference), euclidean(corpus)
    sparse_r, sparse_e = sparsify(r, delta), sparsify(e, delta)
    components = epsilon_components(r.take(sparse_r.kept), e.take(sparse_e.kept), epsilon)
    scores = geomca_scores(
        components,
        eta_c=eta_c,
        eta_q=eta_q,
        reference_rows=sparse_r.rows,
        corpus_rows=sparse_e.rows,
    )
    assert (
        scores.precision,
        scores.recall,
        scores.consistency,
        scores.quality,
        scores.precision_rows,
        scores.recall_rows,
    ) == expected
    assert all(type(value) is float for value in vars(scores).values())


def one_component(n_reference, n_corpus, edges_reference, edges_corpus, edges_between):
    one = [np.array([value]) for value in (edges_reference, edges_corpus, edges_between)]
    return Components(
        np.zeros(n_reference, dtype=np.int64),
        np.zeros(n_corpus, dtype=np.int64),
        np.array([n_reference]),
        np.array([n_corpus]),
        *one,
    )


def test_thresholds_are_strict():
    components = one_component(3, 1, 1, 0, 1)
    assert components.consistency.tolist() == [0.5]
    assert components.quality.tolist() == [0.5]
    rows = {"reference_rows": np.array([1, 1, 1]), "corpus_rows": np.array([1])}
    below = np.nextafter(0.5, 0)
    assert geomca_scores(components, eta_c=below, eta_q=below, **rows).precision == 1
    assert geomca_scores(components, eta_c=0.5, eta_q=below, **rows).precision == 0
    assert geomca_scores(components, eta_c=below, eta_q=0.5, **rows).recall == 0


def test_with_delta_equal_to_epsilon_every_edge_joins_the_two_sets():
    generator = np.random.default_rng(3)
    r, e = (euclidean(generator.normal(size=(300, 2))) for _ in range(2))
    sparse_r, sparse_e = sparsify(r, 0.5), sparsify(e, 0.5)
    components = epsilon_components(r.take(sparse_r.kept), e.take(sparse_e.kept), 0.5)
    assert components.edges_reference.sum() == components.edges_corpus.sum() == 0
    assert set(components.quality.tolist()) == {0.0, 1.0}


def test_mode_truncation():
    # Section 4: R from seven classes, E from the first t of twelve. Recall rises until every class
    # of R is met; precision is whole until then and falls
    # afterwards; a few outlying rows stay by themselves.
    generator = np.random.default_rng(8)
    centres = generator.normal(size=(12, 16)) * 10
    reference = np.concatenate([c + generator.normal(size=(60, 16)) * 0.3 for c in centres[:7]])
    corpora = [c + generator.normal(size=(60, 16)) * 0.3 for c in centres]
    r = euclidean(reference)
    epsilon = estimated(r, 5, seed=0).value
    sparse_r = sparsify(r, epsilon / 2)
    precision, recall = [], []
    for t in range(1, 13):
        e = euclidean(np.concatenate(corpora[:t]))
        sparse_e = sparsify(e, epsilon / 2)
        components = epsilon_components(r.take(sparse_r.kept), e.take(sparse_e.kept), epsilon)
        scores = geomca_scores(
            components,
            eta_c=0.75,
            eta_q=0.45,
            reference_rows=sparse_r.rows,
            corpus_rows=sparse_e.rows,
        )
        precision.append(scores.precision_rows)
        recall.append(scores.recall_rows)
    assert recall == pytest.approx([min(t, 7) / 7 for t in range(1, 13)], abs=0.01)
    assert precision == pytest.approx([min(1, 7 / t) for t in range(1, 13)], abs=0.01)


# --- bad input ------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [-1.0, math.nan, math.inf])
def test_delta_must_be_a_distance(delta):
    with pytest.raises(ValueError, match="delta must be a non-negative distance"):
        sparsify(euclidean([[1.0]]), delta)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_epsilon_must_be_a_positive_distance(epsilon):
    with pytest.raises(ValueError, match="epsilon must be a positive distance"):
        epsilon_components(euclidean([[1.0]]), euclidean([[1.0]]), epsilon)


def test_blocks_need_rows():
    points = euclidean([[1.0]])
    with pytest.raises(ValueError, match="block_rows must be at least 1, got 0"):
        sparsify(points, 1.0, block_rows=0)
    with pytest.raises(ValueError, match="block_rows must be at least 1, got -1"):
        epsilon_components(points, points, 1.0, block_rows=-1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eta_c": -0.1}, r"eta_c must be in \[0, 1\], got -0.1"),
        ({"eta_q": 1.5}, r"eta_q must be in \[0, 1\], got 1.5"),
        ({"reference_rows": np.array([1, 1])}, "reference_rows .* 3 sparse points"),
        ({"corpus_rows": np.array([0])}, "corpus_rows .* at least 1"),
    ],
)
def test_scores_refuse_bad_arguments(arguments, message):
    rows = {"reference_rows": np.array([1, 1, 1]), "corpus_rows": np.array([1])}
    with pytest.raises(ValueError, match=message):
        geomca_scores(one_component(3, 1, 1, 0, 1), **{**rows, **arguments})
