"""Plans as SVG: well-formed, complete, and no edge behind a stage."""

import re
import xml.etree.ElementTree as ElementTree

import plan_examples
import pytest

from stagewright.drawing import _BOX_HEIGHT, _BOX_WIDTH, plan_svg

SVG = "{http://www.w3.org/2000/svg}"


def parse(plan):
    root = ElementTree.fromstring(plan_svg(plan))
    assert root.tag == f"{SVG}svg"
    return root


def texts(root):
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def boxes(root):
    """(x, y) of the stages' boxes."""
    found = [rect for rect in root.iter(f"{SVG}rect") if rect.get("rx")]
    return [(float(rect.get("x")), float(rect.get("y"))) for rect in found]


def test_every_stage_and_device_appears_and_text_is_escaped():
    root = parse(plan_examples.plan())
    shown = texts(root)
    assert "two <branches>: 5 stages, depth 4, 5 ms a step of 16 samples, bubble 0.0%" in shown
    for index, device in enumerate(plan_examples.DEVICES):
        assert f"stage {index}: {device}" in shown
        assert f"part.{index}" in shown
        assert device in shown  # The row of the timeline.


def test_the_timeline_has_what_devices_compute_and_its_legend():
    root = parse(plan_examples.plan())
    tips = [title.text for title in root.iter(f"{SVG}title")]
    assert "forward of stage 2, samples 0 to 7: 1 ms" in tips
    for kind in ("forward", "backward", "update"):
        assert sum(tip.startswith(f"{kind} of") for tip in tips) == 5
        assert kind in texts(root)
    assert "forward again" not in texts(root)


def test_without_a_timeline_only_stages_are_drawn():
    with_it, without = parse(plan_examples.plan()), parse(plan_examples.plan(timeline=False))
    assert len(boxes(without)) == len(boxes(with_it)) == 5
    assert float(without.get("height")) < float(with_it.get("height"))
    assert "update" not in texts(without)


def test_edges_go_from_box_to_box_and_behind_none():
    root = parse(plan_examples.plan())
    paths = [path.get("d") for path in root.iter(f"{SVG}path") if path.get("marker-end")]
    assert len(paths) == len(plan_examples.EDGES)
    for path in paths:
        points = [tuple(map(float, point.split(","))) for point in re.findall(r"[\d.]+,[\d.]+", path)]
        assert any(points[0] == (x + _BOX_WIDTH, y + _BOX_HEIGHT / 2) for x, y in boxes(root))
        assert any(points[-1] == (x, y + _BOX_HEIGHT / 2) for x, y in boxes(root))
        for px, py in points[1:-1]:
            assert not any(x < px < x + _BOX_WIDTH and y < py < y + _BOX_HEIGHT for x, y in boxes(root))


def test_boxes_do_not_overlap():
    found = boxes(parse(plan_examples.plan()))
    for i, (x, y) in enumerate(found):
        assert not any(abs(x - u) < _BOX_WIDTH and abs(y - v) < _BOX_HEIGHT for u, v in found[:i])


@pytest.mark.parametrize("name", ["\x00\x1b[31m", "ünïcode ✓", "a" * 500])
def test_any_name_is_drawn(name):
    proto, graph = plan_examples.proto(), plan_examples.graph()
    graph.name = graph.nodes[0].module = name
    for device in proto.evaluation.devices:
        device.name = name
    root = parse(plan_examples.plan_from_proto(proto, graph))
    assert len(boxes(root)) == 5
    assert max(map(len, texts(root)[1:])) < 60


def test_what_is_too_much_to_draw_is_counted():
    proto = plan_examples.proto()
    for index in range(5, 100):
        proto.evaluation.devices.add(device=index, name=f"d{index}")
    shown = texts(parse(plan_examples.plan_from_proto(proto, plan_examples.graph())))
    assert "not shown: 36 more devices" in shown
