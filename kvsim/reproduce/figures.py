"""All figures by name."""

from __future__ import annotations

from kvsim.reproduce import fig2, fig12a, fig12d, fig13a, fig13b, table1

FIGURES = {module.FIGURE.name: module.FIGURE for module in (table1, fig2, fig12a, fig12d, fig13a, fig13b)}
