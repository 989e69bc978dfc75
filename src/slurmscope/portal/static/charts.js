// SPDX-License-Identifier: Apache-2.0
// Draw the charts of a page with uPlot; all charts share the time axis, the cursor and the zoom.
// While zoomed, the server may have finer data for what is shown.
"use strict";

(() => {
  const COLORS = 8;
  const ZOOM_DELAY = 250;
  const SHORTEST = 10;
  const DURATIONS = [1, 5, 10, 30, 60, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 604800, 2419200];
  const grid = document.querySelector(".charts");
  if (!grid || typeof uPlot === "undefined") return;

  const isRunTime = grid.dataset.axis === "run-time";
  const resetButton = document.querySelector(".reset-zoom");
  const cursors = uPlot.sync("charts");
  const plots = [];
  let zoom = readZoom();
  let isLoading = false;
  let tag = "";
  let whole = [];
  let shown = null; // the part for which finer data are drawn
  let timer = 0;
  let shortest = SHORTEST; // of a part that has enough points; longer where nothing finer was kept

  load();
  document.body.addEventListener("htmx:afterSwap", () => load());
  document.body.addEventListener("slurmscope:zone", () => load(true));
  const note = document.querySelector(".zoom-note");
  const firstNote = note?.textContent;
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => load(true));
  skipUnchanged();
  resetButton?.addEventListener("click", () => setZoom(null));
  addEventListener("hashchange", () => setZoom(readZoom()));
  new ResizeObserver(() => plots.forEach(fit)).observe(grid);

  async function load(isRedraw = false) {
    // An update swaps several parts of the page, with one event each.
    if (isLoading) return;
    isLoading = true;
    try {
      const headers = { Accept: "application/json", ...(tag && !isRedraw ? { "If-None-Match": tag } : {}) };
      const response = await fetch(grid.dataset.source, { headers, cache: "no-store" });
      if (!response.ok) return;
      tag = response.headers.get("ETag") || "";
      whole = (await response.json()).charts;
      shown = null;
      draw(structuredClone(whole));
      if (zoom) loadFiner();
    } catch {
      // The tables below the charts still have the numbers; the next update retries.
    } finally {
      isLoading = false;
    }
  }

  // Charts without finer data keep their points; a zoom that changes meanwhile starts another request.
  async function loadFiner() {
    const wanted = zoom;
    if (!note || !wanted) return;
    const part = `from=${Math.floor(wanted.low)}&to=${Math.ceil(wanted.high)}`;
    try {
      const response = await fetch(`${grid.dataset.source.split("?")[0]}?${part}`, { headers: { Accept: "application/json" } });
      const answer = await response.json();
      if (zoom !== wanted) return;
      note.textContent = response.ok ? answer.note : answer.error;
      if (!response.ok) return;
      shortest = Math.max(SHORTEST, answer.shortest_seconds || 0);
      const finer = new Map(answer.charts.filter((chart) => chart.is_finer).map((chart) => [chart.name, chart]));
      if (finer.size) draw(structuredClone(whole).map((chart) => finer.get(chart.name) || chart));
      shown = wanted;
      announce(part, answer.heat_maps);
    } catch {
      // The charts still have the points of the whole run.
    }
  }

  // Heat maps show the same part of the run.
  function announce(part, frames) {
    document.body.dispatchEvent(new CustomEvent("slurmscope:zoom", { detail: { part, frames } }));
  }

  // The server answers 304 while there is no newer report; then nothing is swapped, and no chart is drawn again.
  function skipUnchanged() {
    const tags = new Map();
    document.body.addEventListener("htmx:configRequest", (event) => {
      const known = tags.get(event.detail.path);
      if (known) event.detail.headers["If-None-Match"] = known;
    });
    document.body.addEventListener("htmx:beforeSwap", (event) => {
      const { xhr, requestConfig } = event.detail;
      if (xhr.status === 304) event.detail.shouldSwap = false;
      else tags.set(requestConfig.path, xhr.getResponseHeader("ETag"));
    });
  }

  function draw(charts) {
    plots.splice(0).forEach((plot) => plot.destroy());
    for (const chart of charts) {
      const place = grid.querySelector(`[data-chart="${CSS.escape(chart.name)}"]`);
      if (place) plots.push(makePlot(chart, place));
    }
    showZoom();
  }

  function makePlot(chart, place) {
    extendToRun(chart);
    const format = makeFormatter(chart.unit);
    const series = [{}];
    const data = [chart.times];
    chart.lines.forEach((line, index) => {
      series.push({
        label: line.label,
        stroke: color(`--line-${(index % COLORS) + 1}`),
        dash: [[], [8, 4], [2, 3]][Math.floor(index / COLORS) % 3],
        width: 1.5,
        points: { show: false, filter: findIsolatedPoints },
      });
      data.push(line.values);
    });
    if (chart.reference !== null) {
      series.push({
        stroke: color("--reference"),
        dash: [6, 5],
        width: 1.25,
        points: { show: false },
      });
      data.push(chart.times.map(() => chart.reference));
    }
    const plot = new uPlot(options(place, series, chart, format), data, place);
    addKeyboard(place, plot);
    return plot;
  }

  // All charts show the whole run, including parts that were not measured.
  function extendToRun(chart) {
    const [from, to] = [grid.dataset.from, grid.dataset.to].map(Number);
    if (from < chart.times[0]) {
      chart.times.unshift(from);
      chart.lines.forEach((line) => line.values.unshift(null));
    }
    if (to > chart.times[chart.times.length - 1]) {
      chart.times.push(to);
      chart.lines.forEach((line) => line.values.push(null));
    }
  }

  // A point between two gaps has no line; without a dot it would be invisible.
  function findIsolatedPoints(plot, index) {
    const values = plot.data[index];
    return values.flatMap((value, at) => (value != null && values[at - 1] == null && values[at + 1] == null ? [at] : []));
  }

  function options(place, series, chart, format) {
    const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
    return {
      width: place.clientWidth || 480,
      height: place.clientHeight,
      padding: [10, 24, 0, 0],
      series,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), zone()),
      scales: {
        x: { time: !isRunTime, range: (_, low, high) => (zoom ? [zoom.low, zoom.high] : widen(chart.times, low, high)) },
        y: { range: (_, low, high) => findRange(chart, high || 0) },
      },
      axes: [
        {
          ...axis,
          space: 70,
          ...(isRunTime ? { incrs: DURATIONS } : {}),
          values: (_, ticks, __, ___, step) => (isRunTime ? ticks.map(formatDuration) : formatTicks(ticks, step)),
        },
        { ...axis, size: 72, values: (_, ticks) => ticks.map(format), ...binaryTicks(chart.unit) },
      ],
      cursor: { sync: { key: cursors.key, setSeries: false }, drag: { x: true, y: false, setScale: false } },
      legend: { show: false },
      hooks: {
        setSelect: [zoomToSelection],
        setCursor: [(plot) => showValues(plot, place, format)],
        draw: [(plot) => labelReference(plot, chart, format)],
        ready: [(plot) => plot.over.addEventListener("dblclick", () => setZoom(null))],
      },
    };
  }

  // The values under the cursor stand in rows that the page already has, so that nothing moves.
  function showValues(plot, place, format) {
    const figure = place.closest("figure");
    const at = plot.cursor.idx;
    figure.querySelector(".chart-time").textContent = at == null ? "" : formatTime(plot.data[0][at]);
    figure.querySelectorAll(".chart-value").forEach((element, index) => {
      element.textContent = at == null ? "" : format(plot.data[index + 1][at]);
    });
  }

  // The label of a limit stands on its line.
  function labelReference(plot, chart, format) {
    if (chart.reference === null) return;
    const ratio = devicePixelRatio;
    const { ctx, bbox } = plot;
    const y = plot.valToPos(chart.reference, "y", true);
    if (!(y >= bbox.top - 1 && y <= bbox.top + bbox.height)) return;
    ctx.save();
    ctx.font = `${12 * ratio}px system-ui, sans-serif`;
    ctx.textAlign = "right";
    ctx.textBaseline = "alphabetic";
    const place = [bbox.left + bbox.width - 4 * ratio, Math.max(bbox.top + 10 * ratio, y - 4 * ratio)];
    const text = `${chart.reference_label || "requested"} ${format(chart.reference)}`;
    ctx.lineWidth = 4 * ratio;
    ctx.strokeStyle = color("--paper");
    ctx.strokeText(text, ...place);
    ctx.fillStyle = color("--reference");
    ctx.fillText(text, ...place);
    ctx.restore();
  }

  // Values start at 0, and shares always end at 100 % or above: a GPU at 20 % must not fill its chart.
  function findRange(chart, high) {
    // A limit has room for its label above the line.
    if (chart.unit === "ratio") return [0, Math.max(1, high, (chart.reference || 0) * 1.2)];
    return [0, Math.max(high * 1.06, (chart.reference || 0) * 1.2) || 1];
  }

  // A job that has just started may have a single point, for which uPlot would show years.
  function widen(times, low, high) {
    return times.length > 1 ? [low, high] : [times[0] - 60, times[0] + 60];
  }

  function zoomToSelection(plot) {
    if (plot.select.width < 8) return;
    const low = plot.posToVal(plot.select.left, "x");
    const high = plot.posToVal(plot.select.left + plot.select.width, "x");
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    setZoom(widenToPoints(low, high));
  }

  function widenToPoints(low, high) {
    const missing = Math.max(0, shortest - (high - low)) / 2;
    return { low: low - missing, high: high + missing };
  }

  function setZoom(wanted) {
    const [wasZoomed, isOutside] = [zoom !== null, shown && wanted && (wanted.low < shown.low || wanted.high > shown.high)];
    zoom = wanted;
    if (isOutside) showWhole();
    history.replaceState(null, "", zoom ? `#from=${Math.round(zoom.low)}&to=${Math.round(zoom.high)}` : location.pathname + location.search);
    for (const plot of plots) {
      const times = plot.data[0];
      plot.setScale("x", zoom ? { min: zoom.low, max: zoom.high } : { min: times[0], max: times[times.length - 1] });
    }
    showZoom();
    clearTimeout(timer);
    if (zoom) timer = setTimeout(loadFiner, ZOOM_DELAY);
    else if (wasZoomed) showWhole();
  }

  function showWhole() {
    if (note) note.textContent = firstNote;
    if (shown) draw(structuredClone(whole));
    shown = null;
    announce(grid.dataset.source.split("?")[1] || "", null);
  }

  // Zoom by a factor around the cursor, or around the middle.
  function zoomBy(plot, factor) {
    const { min, max } = plot.scales.x;
    const times = plot.data[0];
    const [first, last] = [Number(grid.dataset.from ?? times[0]), Number(grid.dataset.to ?? times[times.length - 1])];
    const at = plot.cursor.idx == null ? (min + max) / 2 : Math.min(max, Math.max(min, times[plot.cursor.idx]));
    const [low, high] = [Math.max(at - (at - min) * factor, first), Math.min(at + (max - at) * factor, last)];
    if (low <= first && high >= last) setZoom(null);
    else if (high - low >= shortest) setZoom({ low, high });
  }

  function readZoom() {
    const found = /^#from=(\d{1,11})&to=(\d{1,11})$/.exec(location.hash);
    return found && Number(found[1]) < Number(found[2]) ? { low: Number(found[1]), high: Number(found[2]) } : null;
  }

  function showZoom() {
    if (resetButton) resetButton.hidden = zoom === null;
  }

  // Arrow keys move from point to point, with the cursors of all charts.
  function addKeyboard(place, plot) {
    place.onkeydown = (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
      if (event.key === "Escape") setZoom(null);
      if (event.key === "+" || event.key === "-") zoomBy(plot, event.key === "+" ? 0.5 : 2);
      if (!step) return;
      event.preventDefault();
      const times = plot.data[0];
      const index = Math.min(times.length - 1, Math.max(0, (plot.cursor.idx ?? (step > 0 ? -1 : times.length)) + step));
      plot.setCursor({ left: plot.valToPos(times[index], "x"), top: plot.over.clientHeight / 3 }, true, true);
    };
  }

  function fit(plot) {
    const { clientWidth: width, clientHeight: height } = plot.root.parentElement;
    if (width && width !== plot.width) plot.setSize({ width, height });
  }

  function zone() {
    return window.slurmscopeZone() === "UTC" ? "Etc/UTC" : window.slurmscopeZone();
  }

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  // Byte axes use powers of two as ticks.
  function binaryTicks(unit) {
    if (!unit.startsWith("bytes")) return {};
    return { incrs: Array.from({ length: 61 }, (_, power) => 2 ** power) };
  }

  function makeFormatter(unit) {
    if (unit === "bytes") return formatBytes;
    if (unit === "bytes/s") return (value) => (value == null ? "–" : `${formatBytes(value)}/s`);
    if (unit === "watts") return (value) => (value == null ? "–" : `${formatNumber(value)} W`);
    if (unit === "ratio") return (value) => (value == null ? "–" : `${formatNumber(value * 100)} %`);
    return (value) => (value == null ? "–" : formatNumber(value));
  }

  function formatBytes(value) {
    if (value == null) return "–";
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let power = 0;
    while (value >= 1023.5 && power < units.length - 1) { value /= 1024; power += 1; }
    return `${formatNumber(value)} ${units[power]}`;
  }

  function formatNumber(value) {
    return value.toLocaleString("en", value >= 100 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 });
  }

  function formatTime(value) {
    if (value == null) return "–";
    return isRunTime ? formatDuration(value) : window.slurmscopeTime(value);
  }

  // The date is shown below the first tick, and below the first tick of each day.
  function formatTicks(ticks, step) {
    let shown = "";
    return ticks.map((seconds) => {
      const [day, clock] = window.slurmscopeTime(seconds).split(" ");
      const time = step >= 86400 ? day.slice(5) : clock.slice(0, step < 60 ? 8 : 5);
      if (step >= 86400 || day === shown) return time;
      shown = day;
      return `${time}\n${day}`;
    });
  }

  function formatDuration(seconds) {
    const minutes = Math.round(seconds / 60);
    if (seconds < 120) return `${Math.round(seconds)} s`;
    if (minutes < 60) return `${minutes} min`;
    const hours = Math.floor(minutes / 60);
    return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  }
})();
