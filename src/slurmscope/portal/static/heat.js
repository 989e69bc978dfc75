// SPDX-License-Identifier: Apache-2.0
// Show the value of a heat map under the pointer, and let arrow keys read the cells.
"use strict";

(() => {
  const FRAME = ["left", "right", "top", "bottom", "width", "height"];
  for (const map of document.querySelectorAll(".heat-map")) watch(map);
  if (window.slurmscopeZoneIsNew) forEachMap(refresh);
  document.body.addEventListener("htmx:afterSwap", () => forEachMap(refresh));
  // The picture has the times of the zone that the cookie names.
  document.body.addEventListener("slurmscope:zone", () => forEachMap(refresh));
  document.body.addEventListener("slurmscope:zoom", ({ detail }) => forEachMap((map) => zoom(map, detail)));

  function forEachMap(change) {
    document.querySelectorAll(".heat-map").forEach(change);
  }

  // Show a part of the run; the cells of another picture are elsewhere. Without data for the part, the picture stays.
  function zoom(map, { part, frames }) {
    map.frames ??= { whole: { ...map.dataset } };
    const frame = frames ? frames[map.dataset.name] : map.frames.whole;
    if (!frame) return;
    for (const name of FRAME) map.dataset[name] = frame[name];
    map.dataset.source = `${map.dataset.source.split("?")[0]}?${part}`;
    const image = map.querySelector("img");
    for (const name of ["width", "height"]) image.setAttribute(name, frame[name]);
    for (const [element, name] of pictures(map)) {
      const [address, query] = element.getAttribute(name).split("?");
      element.setAttribute(name, `${address}?${part}&dark=${/dark=1/.test(query) ? 1 : 0}`);
    }
    refresh(map);
  }

  function watch(map) {
    const shown = map.closest("figure").querySelector(".heat-value");
    const mark = map.appendChild(document.createElement("div"));
    mark.className = "heat-cell";
    mark.hidden = true;
    let cell = null;

    map.addEventListener("pointermove", async (event) => {
      const table = await load(map);
      const frame = readFrame(map);
      const box = map.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * frame.width;
      const y = ((event.clientY - box.top) / box.height) * frame.height;
      const column = Math.floor(((x - frame.left) / (frame.right - frame.left)) * table.times.length);
      const row = Math.floor(((y - frame.top) / (frame.bottom - frame.top)) * table.labels.length);
      show(table, row, column);
    });
    map.addEventListener("pointerleave", () => { mark.hidden = true; });
    map.addEventListener("keydown", async (event) => {
      const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (!step) return;
      event.preventDefault();
      const table = await load(map);
      const [row, column] = cell ? [cell[0] + step[0], cell[1] + step[1]] : [0, 0];
      show(table, Math.min(table.labels.length - 1, Math.max(0, row)), Math.min(table.times.length - 1, Math.max(0, column)));
    });

    function show(table, row, column) {
      if (!(row >= 0 && row < table.labels.length && column >= 0 && column < table.times.length)) return;
      cell = [row, column];
      const frame = readFrame(map);
      shown.textContent = `${table.labels[row]}, ${window.slurmscopeTime(table.times[column])}: ${formatValue(table.rows[column][table.labels[row]], map.dataset.unit)}`;
      const width = (frame.right - frame.left) / table.times.length / frame.width;
      const height = (frame.bottom - frame.top) / table.labels.length / frame.height;
      const place = {
        left: frame.left / frame.width + column * width, top: frame.top / frame.height + row * height, width, height,
      };
      for (const [name, share] of Object.entries(place)) mark.style[name] = `${share * 100}%`;
      mark.hidden = false;
    }
  }

  function readFrame(map) {
    return Object.fromEntries(FRAME.map((name) => [name, Number(map.dataset[name])]));
  }

  function pictures(map) {
    return [[map.querySelector("source"), "srcset"], [map.querySelector("img"), "src"]];
  }

  async function load(map) {
    if (!map.table) {
      const response = await fetch(map.dataset.source, { headers: { Accept: "application/json" } });
      const rows = (await response.json()).rows;
      const labels = Object.keys(rows[0] || {}).filter((name) => name !== "time_seconds");
      map.table = { rows, labels, times: rows.map((row) => row.time_seconds) };
    }
    return map.table;
  }

  function refresh(map) {
    map.table = null;
    map.querySelector(".heat-cell").hidden = true;
    for (const [element, name] of pictures(map)) {
      element.setAttribute(name, `${element.getAttribute(name).replace(/&at=.*/, "")}&at=${Date.now()}`);
    }
  }

  function formatValue(value, unit) {
    if (value == null) return "not measured";
    if (unit === "ratio") return `${(value * 100).toLocaleString("en", { maximumFractionDigits: 1 })} %`;
    if (unit !== "bytes") return value.toLocaleString("en", { maximumSignificantDigits: 3 });
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let power = 0;
    while (value >= 1023.5 && power < units.length - 1) { value /= 1024; power += 1; }
    return `${value.toLocaleString("en", { maximumSignificantDigits: 3 })} ${units[power]}`;
  }
})();
