/* What the theme leaves out for readers who use a keyboard or a screen reader. */
window.addEventListener("load", () => {
  // A label that differs from the text one sees cannot be spoken to; the text itself is the name.
  for (const named of document.querySelectorAll(".search-button-field, summary[aria-label]"))
    named.removeAttribute("aria-label");
  for (const icon of document.querySelectorAll(".theme-switch-button svg")) {
    icon.setAttribute("aria-hidden", "true");
    icon.querySelector("title")?.remove();
  }

  // A table that scrolls sideways can be reached by the keyboard.
  const reach = () => {
    for (const box of document.querySelectorAll(".pst-scrollable-table-container"))
      box.tabIndex = box.scrollWidth > box.clientWidth ? 0 : -1;
  };
  reach();
  window.addEventListener("resize", reach);
});
