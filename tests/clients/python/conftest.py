import pathlib
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent / "support"))


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)
    torch.set_num_threads(1)
