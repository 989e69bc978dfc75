// SPDX-License-Identifier: Apache-2.0
// "/" moves to the search box, unless something is being typed.
"use strict";

document.addEventListener("keydown", function (event) {
  const isTyping = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || isTyping) return;
  const box = document.getElementById("search-box");
  if (!box) return;
  event.preventDefault();
  box.focus();
  box.select();
});
