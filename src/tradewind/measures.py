"""What the names of measured things mean: which way is better, and which are times.

Whole names only, never parts of them; a name that is not here needs a direction of its own.
"""

from __future__ import annotations

import re
from typing import Literal

Direction = Literal["minimize", "maximize"]

LOWER = """
    loss cross_entropy crossentropy categorical_crossentropy binary_crossentropy bce nll neg_log_likelihood
    negative_log_likelihood log_loss logloss hinge_loss focal_loss triplet_loss huber_loss l1_loss l2_loss
    error error_rate top1_error top5_error misclassification zero_one_loss hamming_loss brier brier_score
    brier_score_loss mse mae rmse msle rmsle mape smape mase nrmse mean_squared_error mean_absolute_error
    root_mean_squared_error mean_squared_log_error root_mean_squared_log_error median_absolute_error
    mean_absolute_percentage_error max_error
    mean_poisson_deviance mean_gamma_deviance mean_pinball_loss
    perplexity ppl bpc bpb bits_per_character bits_per_byte bits_per_dim wer cer word_error_rate character_error_rate
    fid kid kl kl_divergence wasserstein mmd lpips chamfer hausdorff hd95 assd ece calibration_error
    far false_alarm_ratio false_alarm_rate fpr fnr false_positive_rate false_negative_rate eer crps
    regret cost time wall_time latency duration runtime seconds memory flops
    prepare_s compile_s warmup_s data_s train_s validation_s test_s wall_s epoch_s elapsed_s pack_wall_s share_s
    amortized_s communication_s wait_s time_to_target epochs_to_stable epochs_to_target
"""
HIGHER = """
    score accuracy acc top1 top5 top1_accuracy top5_accuracy top_1_accuracy top_5_accuracy categorical_accuracy
    binary_accuracy auc roc auroc auprc pr_auc roc_auc_score average_precision_score ap map mean_average_precision
    map50 f1_score fbeta precision_score recall_score sensitivity specificity tpr tnr true_positive_rate
    true_negative_rate
    youden kappa cohen_kappa mcc matthews iou miou mean_iou jaccard_score dice dice_score
    r2_score log_likelihood elbo pearson spearman kendall correlation ssim psnr inception_score
    bleu rouge rouge1 rouge2 rougel meteor chrf cider exact_match ndcg mrr hit_rate reward return episode_return
    win_rate pod csi ets hss tss gss hit_ratio throughput images_per_s samples_per_s tokens_per_s
    efficiency speedup speed_up utilisation utilization
"""
# scikit-learn's scorers are all better when higher: what it minimizes it negates
SCORERS = """
    accuracy adjusted_mutual_info_score adjusted_rand_score average_precision balanced_accuracy completeness_score
    d2_absolute_error_score d2_brier_score d2_log_loss_score explained_variance f1 f1_macro f1_micro f1_samples
    f1_weighted fowlkes_mallows_score homogeneity_score jaccard jaccard_macro jaccard_micro jaccard_samples
    jaccard_weighted matthews_corrcoef mutual_info_score neg_brier_score neg_log_loss neg_max_error
    neg_mean_absolute_error neg_mean_absolute_percentage_error neg_mean_gamma_deviance neg_mean_poisson_deviance
    neg_mean_squared_error neg_mean_squared_log_error neg_median_absolute_error neg_negative_likelihood_ratio
    neg_root_mean_squared_error neg_root_mean_squared_log_error normalized_mutual_info_score positive_likelihood_ratio
    precision precision_macro precision_micro precision_samples precision_weighted r2 rand_score recall recall_macro
    recall_micro recall_samples recall_weighted roc_auc roc_auc_ovo roc_auc_ovo_weighted roc_auc_ovr
    roc_auc_ovr_weighted top_k_accuracy v_measure_score
"""
DIRECTIONS: dict[str, Direction] = {
    **dict.fromkeys(LOWER.split(), "minimize"),
    **dict.fromkeys((HIGHER + SCORERS).split(), "maximize"),
}
UNIT = re.compile("_(s|ms|us|ns|percent|bytes)$")
SPLIT = re.compile("^(train|training|validation|valid|val|test)_")


def is_time(name: str) -> bool:
    """Whether a measure is in seconds; a rate per second is none."""
    return name.endswith("_s") and not name.endswith("_per_s")


def direction_of(name: str) -> Direction | None:
    """Which way a measure of this name is better, with or without a unit and the split before it; None: not known."""
    name = name.lower()
    without_unit = UNIT.sub("", name)
    names = (name, without_unit, SPLIT.sub("", name), SPLIT.sub("", without_unit))
    return next((DIRECTIONS[known] for known in names if known in DIRECTIONS), None)
