// The charts of a group's lag and of its rates. Their colors are those of the theme, and their times those of the chosen time zone.
"use strict";

const CHART_REFRESHES = 360; // in the time of a chart
const LINES = {
  lag: [
    { column: "lags", label: "Messages behind", color: "--link" },
    { column: "left_s", label: "Until retention", color: "--problem", scale: "left", dash: [6, 4] },
  ],
  rates: [
    { column: "stored", label: "Stored in the topics", color: "--link" },
    { column: "delivered", label: "Delivered to the group", color: "--good", dash: [6, 4] },
  ],
};

function shownDuration(seconds) {
  const [size, unit] = seconds >= 172800 ? [86400, "d"] : seconds >= 7200 ? [3600, "h"] : [60, "min"];
  return `${Math.round((seconds / size) * 10) / 10} ${unit}`;
}

function chartOptions(box, lines) {
  const spanS = Number(box.dataset.spanS);
  const hasDurations = lines.some((line) => line.scale === "left");
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const axis = { stroke: color("--quiet"), grid: { stroke: color("--line") }, ticks: { stroke: color("--line") } };
  const isLocal = localStorage.getItem("ortoo-zone") === "local";
  const durations = (ticks) => ticks.map(shownDuration);
  return {
    width: box.clientWidth,
    height: 220,
    tzDate: (time) => (isLocal ? new Date(time * 1000) : uPlot.tzDate(new Date(time * 1000), "Etc/UTC")),
    scales: {
      x: { range: (_, first, last) => [Math.min(first, last - spanS), last] },
      y: { range: (_, low, high) => [0, Math.max(high || 0, box.dataset.kind === "rates" ? 1 : 5)] },
      left: { range: (_, low, high) => [0, high || 1] },
    },
    axes: [
      { ...axis, values: spanS > 86400 ? "{MM}-{DD}" : isLocal ? undefined : "{HH}:{mm}" },
      { ...axis, size: 70, values: (_, ticks) => ticks.map((count) => count.toLocaleString("en")) },
      ...(hasDurations ? [{ ...axis, scale: "left", side: 1, size: 64, grid: { show: false }, values: (_, ticks) => durations(ticks) }] : []),
    ],
    series: [
      {},
      ...lines.map(({ label, color: name, scale, dash }) => ({ label, scale: scale || "y", dash, stroke: color(name), width: 2, points: { show: false } })),
    ],
    legend: { show: true, live: false },
    cursor: { drag: { x: false, y: false } },
  };
}

function chart(box) {
  let plot = null;
  let found = null;
  const draw = () => {
    if (plot) plot.destroy();
    const [first, ...others] = LINES[box.dataset.kind];
    const lines = [first, ...others.filter((line) => found[line.column].some((value) => value !== null))];
    plot = new uPlot(chartOptions(box, lines), [found.times_s, ...lines.map((line) => found[line.column])], box);
  };
  const load = async () => {
    if (document.hidden) return;
    const answer = await fetch(box.dataset.chart);
    if (!answer.ok) return;
    const values = await answer.json();
    if (!values.times_s.length) return;
    found = values;
    box.dataset.samples = found[LINES[box.dataset.kind][0].column].filter((value) => value !== null).length;
    draw();
  };
  const redraw = () => found && requestAnimationFrame(draw);
  for (const id of ["theme", "zone"]) document.getElementById(id).addEventListener("click", redraw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  window.addEventListener("resize", redraw);
  const refresh = () => load().catch(() => {}); // the next refresh tries again
  refresh();
  setInterval(refresh, (Number(box.dataset.spanS) * 1000) / CHART_REFRESHES);
}

document.querySelectorAll("[data-chart]").forEach(chart);
