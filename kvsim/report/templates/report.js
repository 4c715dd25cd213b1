const inTheDark = matchMedia("(prefers-color-scheme: dark)");

const merge = (base, over) => {
  const merged = { ...base };
  for (const [key, value] of Object.entries(over)) {
    const nested = value && typeof value === "object" && !Array.isArray(value);
    merged[key] = nested ? merge(merged[key] ?? {}, value) : value;
  }
  return merged;
};

function theme() {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const axis = { gridcolor: colour("--line"), linecolor: colour("--muted"), zeroline: false, automargin: true };
  return {
    font: { color: colour("--text"), family: "system-ui, sans-serif", size: 12 },
    hoverlabel: { bgcolor: colour("--page"), bordercolor: colour("--line"), font: { color: colour("--text") } },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--muted"), activecolor: colour("--text") },
    margin: { l: 50, r: 12, t: 12, b: 50 }, xaxis: axis, yaxis: axis, yaxis2: axis,
  };
}

function draw(source) {
  const swap = (key, value) => (inTheDark.matches && typeof value === "string" ? DARK[value] ?? value : value);
  const spec = JSON.parse(source.textContent, swap);
  const figure = source.closest("figure");
  const hidden = [...figure.querySelectorAll('.keys button[aria-pressed="false"]')].map((key) => key.dataset.group);
  const data = spec.data[figure.querySelector("select")?.value ?? source.dataset.chosen];
  for (const trace of data) if (hidden.includes(trace.legendgroup)) trace.visible = false;
  Plotly.react(source.dataset.for, data, merge(theme(), spec.layout), {
    displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
    displayModeBar: matchMedia("(hover: hover)").matches ? "hover" : false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  });
}

const sources = [...document.querySelectorAll("script[data-for]")];
const drawFigure = (element) => sources.filter((source) => element.closest("figure").contains(source)).forEach(draw);

for (const select of document.querySelectorAll("select")) select.addEventListener("change", () => drawFigure(select));
for (const key of document.querySelectorAll(".keys button")) {
  key.addEventListener("click", () => {
    key.setAttribute("aria-pressed", key.getAttribute("aria-pressed") === "false");
    drawFigure(key);
  });
}
inTheDark.addEventListener("change", () => sources.forEach(draw));
sources.forEach(draw);
// whatever changes the width: a window, a phone that turns, a sheet of paper
const fit = (plot) => Plotly.relayout(plot, { width: plot.clientWidth, height: plot.clientHeight });
const widths = new ResizeObserver((entries) => entries.forEach(({ target }) => fit(target)));
for (const plot of document.querySelectorAll(".plot")) widths.observe(plot);
for (const scroll of document.querySelectorAll(".scroll")) {
  const tell = () => scroll.classList.toggle("more", scroll.scrollLeft + scroll.clientWidth < scroll.scrollWidth - 1);
  scroll.addEventListener("scroll", tell);
  new ResizeObserver(tell).observe(scroll);
}
