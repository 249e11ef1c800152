"""Random tiny questions of layers by machine, and the best placement of each by trying all."""

from __future__ import annotations

import random
from itertools import product

from costmodel.flow.judge import tokens_per_s
from costmodel.flow.question import FlowQuestion


def tiny(seed: int) -> FlowQuestion:
    """Two to four nodes of one to three kinds, two to five layers; links fast, slow, unlike or by region."""
    drawn = random.Random(seed)
    number = drawn.choice((2, 3, 3, 3, 4))
    layers = drawn.randint(2, 3 if number == 4 else 5)
    kinds = [f"k{i}" for i in range(drawn.randint(1, min(3, number)))]
    most = [drawn.randint(max(1, layers // 2), layers) for _ in kinds]
    while sum(most[i % len(kinds)] for i in range(number)) < layers:
        most = [one + 1 for one in most]
    machines = {
        kind: {
            "tokens_per_s": [
                round(drawn.uniform(20, 100) / k ** drawn.uniform(0.3, 1.4), 3)
                for k in range(1, min(held, layers) + 1)
            ],
            "usd_per_hour": 1.0,
        }
        for kind, held in zip(kinds, most, strict=True)
    }
    nodes = [kinds[i % len(kinds)] for i in range(number)]
    drawn.shuffle(nodes)
    manner = drawn.choice(("fast", "slow", "unlike", "regions"))
    region = [drawn.randrange(2) for _ in nodes]

    def speed(one: int, other: int) -> float:
        if manner == "fast":
            return 1e6
        if manner == "slow":
            return 250.0
        if manner == "unlike":
            return round(drawn.uniform(50, 1000), 1)
        return 1e6 if region[one] == region[other] else round(drawn.uniform(100, 500), 1)

    ends = [round(drawn.uniform(20, 400), 1) for _ in nodes] if drawn.random() < 0.3 else 1e6
    return FlowQuestion.model_validate(
        {
            "name": f"tiny-{seed}",
            "model": {"name": "m", "layers": layers, "activation_bytes": 10.0, "token_bytes": 2.0},
            "machines": machines,
            "nodes": nodes,
            "links": {
                "between": [
                    [speed(one, other) for other in range(one + 1, number)]
                    for one in range(number - 1)
                ],
                "source": ends,
                "sink": 1e6 if isinstance(ends, float) else list(reversed(ends)),
            },
        }
    )


def best_of_all(question: FlowQuestion) -> float:
    """The greatest flow of any placement, by the judge. Placements that hold some layer too little are passed over."""
    layers = question.model.layers
    choices: list[list[tuple[int, int] | None]] = [
        [
            None,
            *(
                (first, first + k - 1)
                for k in range(1, question.most_layers(node) + 1)
                for first in range(layers - k + 1)
            ),
        ]
        for node in range(len(question.nodes))
    ]
    best = 0.0
    for chosen in product(*choices):
        held = [0.0] * layers
        for node, one in enumerate(chosen):
            if one is not None:
                rate = question.rate(node, one[1] - one[0] + 1)
                for layer in range(one[0], one[1] + 1):
                    held[layer] += rate
        if min(held) > best:
            placement = {node: one for node, one in enumerate(chosen) if one is not None}
            best = max(best, tokens_per_s(question, placement))
    return best
