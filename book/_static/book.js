/* What the theme leaves out for readers who use a keyboard or a screen reader. */
window.addEventListener("load", () => {
  // A label that differs from the text one sees cannot be spoken to; the text itself is the name.
  for (const named of document.querySelectorAll(".search-button-field, summary[aria-label]"))
    named.removeAttribute("aria-label");
  const button = document.querySelector(".theme-switch-button");
  const quiet = () => {
    for (const icon of button.children) {
      icon.setAttribute("aria-hidden", "true");
      icon.removeAttribute("aria-labelledby");
      icon.removeAttribute("title");
      icon.querySelector("title")?.remove();
    }
  };
  new MutationObserver(quiet).observe(button, { childList: true }); // icons become pictures late
  quiet();

  // A table that scrolls sideways can be reached by the keyboard.
  const reach = () => {
    for (const box of document.querySelectorAll(".pst-scrollable-table-container"))
      box.tabIndex = box.scrollWidth > box.clientWidth ? 0 : -1;
  };
  reach();
  window.addEventListener("resize", reach);
});
