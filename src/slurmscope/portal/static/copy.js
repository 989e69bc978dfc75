// SPDX-License-Identifier: Apache-2.0
// Copy the text of an element with a button; without scripts the text can be selected.
"use strict";

(function () {
  async function copy(button) {
    const source = document.getElementById(button.dataset.copy);
    const status = button.parentElement.querySelector("[role=status]");
    try {
      await navigator.clipboard.writeText(source.textContent);
      status.textContent = "Copied.";
    } catch (_error) {
      // Browsers offer the clipboard over HTTPS only.
      const selection = window.getSelection();
      selection.selectAllChildren(source);
      status.textContent = document.execCommand("copy") ? "Copied." : "Selected: press Ctrl+C to copy.";
    }
  }

  document.addEventListener("click", function (event) {
    const button = event.target.closest("button[data-copy]");
    if (button) {
      copy(button);
    }
  });
  for (const button of document.querySelectorAll("button[data-copy]")) {
    button.hidden = false;
  }
})();
