// SPDX-License-Identifier: Apache-2.0
// "/" moves to the search box, unless something is being typed. Where the menu scrolls sideways, the current page is shown.
"use strict";

const here = document.querySelector(".top nav [aria-current]");
if (here) here.closest("nav").scrollLeft = here.offsetLeft - 16;

document.addEventListener("keydown", function (event) {
  const isTyping = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || isTyping) return;
  const box = document.getElementById("search-box");
  if (!box) return;
  event.preventDefault();
  box.focus();
  box.select();
});
