"""Examples: sources, partitions, and batches on the device.

Importing this package is cheap: torchvision, scikit-learn and flwr-datasets are imported only
while a data set is decoded or partitioned for the first time.
"""

from common.data.batches import Batch, TrainBatches
from common.data.client import (
    ClientData,
    load_client_data,
    load_server_test_set,
    named_by_its_share,
)
from common.data.errors import DataError
from common.data.examples import ExampleSet
from common.data.partition import partition_indices
from common.data.spec import DataSpec, data_spec
from common.data.statistics import Moments, Statistics

__all__ = [
    "Batch",
    "ClientData",
    "DataError",
    "DataSpec",
    "ExampleSet",
    "Moments",
    "Statistics",
    "TrainBatches",
    "data_spec",
    "load_client_data",
    "load_server_test_set",
    "named_by_its_share",
    "partition_indices",
]
