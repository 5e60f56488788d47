"""Options of every policy-gradient method; defaults are StraTA's Table 7, and design choices where it is silent."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from harness.method import MethodConfig

Aggregation = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "constant", "trajectory-mean"]


class PolicyGradientConfig(MethodConfig):
    """Options of every policy-gradient method. Where papers and code disagree, presets hold the values of each."""

    iterations: int = Field(150, ge=1, description="training steps")
    tasks_per_iteration: int = Field(16, ge=1, description="tasks drawn per step")
    train_temperature: float = Field(1.0, gt=0, description="of sampling in training; ratios are taken under it")
    lr: float = Field(1e-6, gt=0, description="AdamW learning rate, constant")
    weight_decay: float = Field(0.01, ge=0, description="AdamW weight decay")
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are clipped to this norm")
    mini_batch: int = Field(1024, ge=1, description="rows per optimiser step")
    micro_batch_tokens: int = Field(16384, ge=1, description="padded tokens of a pass; changes memory, not results")
    epochs: int = Field(1, ge=1, description="passes over the rows of a step")
    dynamic_sampling: bool = Field(
        False, description="leave groups whose advantages are all 0 out of the update (DAPO, arXiv 2503.14476)"
    )
    clip_low: float = Field(0.2, gt=0, lt=1, description="eps_low")
    clip_high: float = Field(0.28, gt=0, description="eps_high (clip-higher)")
    dual_clip: float | None = Field(None, gt=1, description="bound on the ratio where the advantage is negative; off")
    ratio_limit: float | None = Field(1000.0, gt=1, description="an importance ratio beyond it stops the run; off")
    kl_beta: float = Field(0.01, ge=0, description="weight of the KL term; 0 switches the reference policy off")
    kl_kind: Literal["k1", "k2", "k3"] = Field("k3", description="estimator of the KL term")
    kl_clamp: float | None = Field(None, gt=0, description="bound on a token's KL term, both ways (verl: 10); off")
    entropy: float = Field(0.0, ge=0, description="weight of the entropy bonus")
    aggregation: Aggregation = Field("seq-mean-token-mean", description="how token losses are averaged over rows")
    constant: float | None = Field(None, gt=0, description="divisor of aggregation=constant, in tokens")
    decay: float = Field(0.5, ge=0, le=1, description="reward lost to a success at the last step; 0 = none")
    reward_scale: float = Field(1.0, gt=0, description="factor on the outcome (verl-agent: 10); not 1 only unclipped")
    auxiliary: Literal["all", "none", "invalid"] = Field(
        "all",
        description="length and format penalties, the sum clipped (Eq. 11-13); neither; or invalid: only "
        "invalid_penalty, unclipped (verl-agent)",
    )
    invalid_penalty: float = Field(0.1, ge=0, description="what a malformed row loses where auxiliary=invalid")
    length_threshold: float = Field(0.5, ge=0, lt=1, description="lambda of Eq. 11")

    @model_validator(mode="after")
    def _constant_has_its_divisor(self) -> Self:
        if (self.aggregation == "constant") != (self.constant is not None):
            raise ValueError(
                f"aggregation={self.aggregation} and constant={self.constant}: aggregation=constant divides by "
                "constant, and nothing else reads it; give both or neither"
            )
        return self

    @model_validator(mode="after")
    def _scaled_rewards_are_not_clipped(self) -> Self:
        if self.reward_scale != 1.0 and self.auxiliary != "invalid":
            raise ValueError(
                f"reward_scale={self.reward_scale:g} with auxiliary={self.auxiliary}, whose sum is clipped to [-1, 1] "
                "(Eq. 13): use auxiliary=invalid, or leave reward_scale at 1"
            )
        return self


class GroupConfig(PolicyGradientConfig):
    """Adds the options of methods that normalise advantages inside a group."""

    ddof: Literal[0, 1] = Field(1, description="degrees of freedom taken off the group's standard deviation")
    eps: float = Field(1e-6, gt=0, description="added to the group's standard deviation")
    scale: Literal["std", "none"] = Field("std", description="none gives Dr. GRPO: centred, not scaled")
