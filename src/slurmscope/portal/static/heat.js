// SPDX-License-Identifier: Apache-2.0
// Show the value of a heat map under the pointer, and let arrow keys read the cells.
"use strict";

(() => {
  for (const map of document.querySelectorAll(".heat-map")) watch(map);
  document.body.addEventListener("htmx:afterSwap", () => document.querySelectorAll(".heat-map").forEach(refresh));

  function watch(map) {
    const frame = Object.fromEntries(["left", "right", "top", "bottom", "width", "height"].map((name) => [name, Number(map.dataset[name])]));
    const shown = map.parentElement.querySelector(".heat-value");
    const mark = map.appendChild(document.createElement("div"));
    mark.className = "heat-cell";
    mark.hidden = true;
    let cell = null;

    map.addEventListener("pointermove", async (event) => {
      const table = await load(map);
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
    for (const [element, name] of [[map.querySelector("source"), "srcset"], [map.querySelector("img"), "src"]]) {
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
