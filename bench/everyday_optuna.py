"""The searches of bench/everyday.py as somebody writes them with Optuna and plain PyTorch, in one process.

python everyday_optuna.py digits|function SEED TRIALS [--halving] [--sampler tpe|cmaes|nsga2]
"""

import argparse

import optuna

arguments = argparse.ArgumentParser()
arguments.add_argument("case", choices=["digits", "function"])
arguments.add_argument("seed", type=int)
arguments.add_argument("trials", type=int)
arguments.add_argument("--halving", action="store_true")
arguments.add_argument("--sampler", choices=["tpe", "cmaes", "nsga2"], default="tpe")
how = arguments.parse_args()
optuna.logging.set_verbosity(optuna.logging.ERROR)

if how.case == "digits":
    import numpy as np
    import torch
    from sklearn.datasets import load_digits
    from torch import nn

    torch.set_num_threads(1)
    x, y = load_digits(return_X_y=True)
    x = (x - x.mean(0)) / (x.std(0) + 1e-6)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = torch.tensor(x[order].astype(np.float32)), torch.tensor(y[order])
    train, validation, epochs = 1000, 400, 12


def network(c):
    return nn.Sequential(nn.Linear(64, c["width"]), nn.ReLU(), nn.Dropout(c["dropout"]), nn.Linear(c["width"], 10))


def fit(c, seed, report):
    torch.manual_seed(seed)
    model = network(c)
    optimizer = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[c["optimizer"]](
        model.parameters(), lr=c["learning_rate"]
    )
    for epoch in range(epochs):
        model.train()
        for batch in torch.randperm(train).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            report(epoch, score(model))
    return model


def score(model):
    part = slice(train, train + validation)
    with torch.no_grad():
        return (model(x[part]).argmax(1) == y[part]).double().mean().item()


def digits(trial):
    c = {
        "learning_rate": trial.suggest_float("learning_rate", 1e-4, 0.3, log=True),
        "width": trial.suggest_int("width", 4, 256, log=True),
        "dropout": trial.suggest_float("dropout", 0.0, 0.7),
        "optimizer": trial.suggest_categorical("optimizer", ["adam", "sgd"]),
    }

    def report(epoch, value):
        trial.report(value, epoch)
        if how.halving and trial.should_prune():
            raise optuna.TrialPruned

    return score(fit(c, trial.number, report))


def function(trial):
    a, b = trial.suggest_float("a", 0, 1), trial.suggest_float("b", 0, 1)
    return -((a - 0.3) ** 2) - (b - 0.7) ** 2 - (trial.suggest_int("c", 1, 100) - 20) ** 2 / 1000


samplers = {
    "tpe": optuna.samplers.TPESampler, "cmaes": optuna.samplers.CmaEsSampler, "nsga2": optuna.samplers.NSGAIISampler,
}  # fmt: skip
pruner = optuna.pruners.SuccessiveHalvingPruner() if how.halving else optuna.pruners.NopPruner()
study = optuna.create_study(direction="maximize", sampler=samplers[how.sampler](seed=how.seed), pruner=pruner)
study.optimize({"digits": digits, "function": function}[how.case], n_trials=how.trials)
print(study.best_value, study.best_params)
