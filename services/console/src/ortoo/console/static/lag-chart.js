// The chart of a group's lag. Its colors are those of the theme, and its times those of the chosen time zone.
"use strict";

const CHART_REFRESH_MS = 10000;
const CHART_SPAN_S = 3600;

function shownDuration(seconds) {
  const [size, unit] = seconds >= 172800 ? [86400, "d"] : seconds >= 7200 ? [3600, "h"] : [60, "min"];
  return `${Math.round((seconds / size) * 10) / 10} ${unit}`;
}

function chartOptions(box, hasRetention) {
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const axis = { stroke: color("--quiet"), grid: { stroke: color("--line") }, ticks: { stroke: color("--line") } };
  const isLocal = localStorage.getItem("ortoo-zone") === "local";
  const durations = (ticks) => ticks.map(shownDuration);
  return {
    width: box.clientWidth,
    height: 220,
    tzDate: (time) => (isLocal ? new Date(time * 1000) : uPlot.tzDate(new Date(time * 1000), "Etc/UTC")),
    scales: {
      x: { range: (_, first, last) => [Math.min(first, last - CHART_SPAN_S), last] },
      y: { range: (_, low, high) => [0, Math.max(high || 0, 5)] },
      left: { range: (_, low, high) => [0, high || 1] },
    },
    axes: [
      { ...axis, values: isLocal ? undefined : "{HH}:{mm}" },
      { ...axis, size: 70, values: (_, ticks) => ticks.map((count) => count.toLocaleString("en")) },
      ...(hasRetention ? [{ ...axis, scale: "left", side: 1, size: 64, grid: { show: false }, values: (_, ticks) => durations(ticks) }] : []),
    ],
    series: [
      {},
      { label: "Messages behind", stroke: color("--link"), width: 2, points: { show: false } },
      ...(hasRetention ? [{ label: "Until retention", scale: "left", stroke: color("--problem"), dash: [6, 4], points: { show: false } }] : []),
    ],
    legend: { show: true, live: false },
    cursor: { drag: { x: false, y: false } },
  };
}

function chart(box) {
  let plot = null;
  let data = null;
  const draw = () => {
    if (plot) plot.destroy();
    const hasRetention = data[2].some((value) => value !== null);
    plot = new uPlot(chartOptions(box, hasRetention), hasRetention ? data : data.slice(0, 2), box);
  };
  const load = async () => {
    if (document.hidden) return;
    const answer = await fetch(box.dataset.chart);
    if (!answer.ok) return;
    const found = await answer.json();
    if (!found.times_s.length) return;
    data = [found.times_s, found.lags, found.left_s];
    box.dataset.samples = found.lags.filter((lag) => lag !== null).length;
    draw();
  };
  const redraw = () => data && requestAnimationFrame(draw);
  for (const id of ["theme", "zone"]) document.getElementById(id).addEventListener("click", redraw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  window.addEventListener("resize", redraw);
  const refresh = () => load().catch(() => {}); // the next refresh tries again
  refresh();
  setInterval(refresh, CHART_REFRESH_MS);
}

document.querySelectorAll("[data-chart]").forEach(chart);
