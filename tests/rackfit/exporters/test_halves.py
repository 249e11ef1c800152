"""What was priced with passes in two halves is launched so, or refused."""

import pytest

from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Workload
from rackfit.exporters.export import export_layout
from topology.errors import ExportError


def asked(*, overlap: bool, attention_dp: int = 16, tp: int = 1, model: str = "deepseek-v3"):
    """A decode replica over two nodes."""
    scenario = Scenario(
        model=model,
        cluster="hgx-h200@2",
        workload=Workload(input_tokens=2000, output_tokens=500),
        two_batch_overlap=overlap,
    )
    instance = resolve_instance(scenario)
    return instance, plain_layout(
        instance, "decode", tp=tp, attention_dp=attention_dp, batch=64 * attention_dp
    )


@pytest.mark.parametrize("overlap", [False, True])
def test_sglang_overlaps_two_batches_where_that_was_priced(overlap):
    words = export_layout(*asked(overlap=overlap), "sglang").files["commands.sh"]
    assert "--moe-a2a-backend deepep" in words
    assert ("--enable-two-batch-overlap" in words) == overlap


@pytest.mark.parametrize("engine", ["vllm", "trtllm"])
def test_an_engine_without_an_option_for_it_is_refused(engine):
    with pytest.raises(ExportError, match=r"passes in two halves; .*: no option of it is known"):
        export_layout(*asked(overlap=True), engine)


def test_collectives_are_not_overlapped():
    """SGLang's class of gpt-oss calls no all-to-all backend."""
    instance, layout = asked(overlap=True, attention_dp=2, tp=4, model="gpt-oss-120b")
    with pytest.raises(ExportError, match="with all-to-all exchanges alone"):
        export_layout(instance, layout, "sglang")
