/* Ours, not vendored: runs before embed.js on every page that holds widgets. */
(function () {
  // embed.js takes its icon font from this folder.
  const root = document.documentElement.dataset.content_root || "./";
  window.__jupyter_widgets_assets_path__ = new URL(root + "_static/vendor/widgets/", location.href).href;

  // The theme's icon script would rewrite the icons of Play, which then throws.
  window.FontAwesomeConfig = { observeMutations: false };

  // Widgets speak to MathJax 2; answer with MathJax 3.
  const startup = (window.MathJax ??= {}).startup ??= {};
  startup.ready = () => {
    MathJax.startup.defaultReady();
    MathJax.Hub = {
      Queue: ([, , node]) => MathJax.startup.promise.then(() => {
        node.classList.add("mathjax_process");
        return MathJax.typesetPromise([node]);
      }),
    };
  };

  // Slider handles and Play's buttons come without a name for screen readers.
  const name = () => {
    for (const handle of document.querySelectorAll(".noUi-handle:not([aria-label])")) {
      const label = handle.closest(".jupyter-widgets").querySelector(".widget-label");
      handle.setAttribute("aria-label", label?.textContent || "Value");
    }
    // A slider of values would say the place of its value.
    for (const handle of document.querySelectorAll(".noUi-handle")) {
      const said = handle.closest(".jupyter-widgets").querySelector(".widget-readout")?.textContent;
      if (said) handle.setAttribute("aria-valuetext", said);
    }
    for (const play of document.querySelectorAll(".widget-play")) {
      ["Play or pause", "Stop", "Repeat"].forEach((text, i) =>
        play.querySelectorAll("button")[i]?.setAttribute("aria-label", text));
    }
  };
  document.addEventListener("DOMContentLoaded", () =>
    new MutationObserver(name).observe(document.body, { childList: true, subtree: true }));
})();
