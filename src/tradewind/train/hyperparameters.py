"""The hyperparameters that every network knows, whatever its workload."""

from __future__ import annotations

from tradewind.augment.options import EDGES, INTERPOLATIONS, REFLECTIONS, edges_complaint, reflection_complaint
from tradewind.pack import SCALING
from tradewind.workloads.contract import Hyperparameter

SCHEDULES = ("constant", "step", "cosine")
OPTIMIZERS = ("sgd", "adam", "adamw")
PARALLEL = ("ddp", "dp")

TRAINING: dict[str, Hyperparameter] = {
    "epochs": Hyperparameter(10, int, low=1, help="passes over the training data"),
    "batch_size": Hyperparameter(128, int, low=1, help="samples per step on one device"),
    "learning_rate": Hyperparameter(
        1e-3, float, low=0.0, help="of the first epoch, before any schedule", stacks=True
    ),
    "schedule": Hyperparameter(
        "constant", str, choices=SCHEDULES, help="of the learning rate over the epochs", stacks=True
    ),
    "step_epochs": Hyperparameter(10, int, low=1, help="schedule step: epochs between drops", stacks=True),
    "step_factor": Hyperparameter(0.1, float, low=0.0, high=1.0, help="schedule step: factor of a drop", stacks=True),
    "optimizer": Hyperparameter("adam", str, choices=OPTIMIZERS),
    "momentum": Hyperparameter(0.0, float, low=0.0, high=1.0, help="of sgd", stacks=True),
    "beta1": Hyperparameter(0.9, float, low=0.0, high=1.0, help="of adam and adamw", stacks=True),
    "beta2": Hyperparameter(0.999, float, low=0.0, high=1.0, help="of adam and adamw", stacks=True),
    "weight_decay": Hyperparameter(0.0, float, low=0.0, stacks=True),
    "augment": Hyperparameter(
        "none", str, choices=("none", "pre", "live"), help="ahead of time to disk, or live in every epoch"
    ),
    "data_multiplier": Hyperparameter(1, int, low=1, help="how many times the training data is seen per epoch"),
    "positive_copies": Hyperparameter(
        1, int, low=1, help="how many times a sample whose target is 1 stands in the training data, to balance it"
    ),
    "rotation_deg": Hyperparameter(180.0, float, low=0.0, high=180.0, help="augmentation: turns by up to this"),
    "translation": Hyperparameter(0.1, float, low=0.0, high=1.0, help="augmentation: shifts by up to this share"),
    "zoom": Hyperparameter(0.1, float, low=0.0, high=0.9, help="augmentation: scales by up to 1 ± this"),
    "vectors": Hyperparameter(
        "turn", str, choices=("turn", "ignore"), help="augmentation: whether vectors turn with the grid"
    ),
    "reflection": Hyperparameter(
        "none",
        str,
        choices=REFLECTIONS,
        refusal=reflection_complaint,
        help="augmentation: mirrors every second sample",
    ),
    "edges": Hyperparameter(
        "nearest", str, choices=EDGES, refusal=edges_complaint, help="augmentation: what is beyond the border"
    ),
    "interpolation": Hyperparameter("linear", str, choices=INTERPOLATIONS, help="augmentation: between grid points"),
    "precision": Hyperparameter(
        "fp32", str, choices=("auto", "fp32", "tf32", "bf16", "fp64"), help="of products; auto: on GPUs the fastest"
    ),
    "device": Hyperparameter("auto", str, choices=("auto", "cpu", "cuda")),
    "devices": Hyperparameter(1, int, low=1, help="how many devices train one network"),
    "parallel": Hyperparameter(
        "ddp", str, choices=PARALLEL, help="several devices: all step (ddp), or device 0 leads the others (dp)"
    ),
    "scaling": Hyperparameter(
        "strong", str, choices=SCALING, help="what n devices make of batch size and rate: strong leaves both"
    ),
    "warmup_epochs": Hyperparameter(5, int, low=0, help="scaling linear-warmup: epochs until the rate is n times"),
}
