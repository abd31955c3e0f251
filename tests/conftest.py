"""Four devices on any machine, and the shapes in every signature checked as the code runs."""

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
)

import beartype
import jax
from jaxtyping import install_import_hook

# A leaf of a dataclass is an array only most of the time: transforms put shapes, shardings and
# placeholders there. So the plain `Array` of a leaf is not checked, but Float[Array, "B T"] is.
beartype.checked = beartype.beartype(
    conf=beartype.BeartypeConf(
        hint_overrides=beartype.BeartypeHintOverrides({jax.Array: object}),
        is_pep484_tower=True,
    )
)
install_import_hook("transformer", "beartype.checked")
