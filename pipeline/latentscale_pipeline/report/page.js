"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const root = document.documentElement;
  const plots = [...document.querySelectorAll(".plot")];
  const config = {
    displaylogo: false,
    showSendToCloud: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "toImage"],
  };

  // A colour is written as "@name" in the figures and defined as "--name" in the style sheet.
  function coloured(value, key, style) {
    if (Array.isArray(value)) return value.map((item) => coloured(item, key, style));
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(
        Object.entries(value).map(([name, item]) => [name, coloured(item, name, style)]),
      );
    }
    if (typeof value === "string" && value.startsWith("@") && /color$/.test(key)) {
      return style.getPropertyValue("--" + value.slice(1)).trim();
    }
    return value;
  }

  function draw() {
    const style = getComputedStyle(root);
    for (const plot of plots) {
      const figure = coloured(figures[plot.dataset.figure], "", style);
      figure.layout.width = plot.clientWidth;
      if (plot.clientWidth < 480) {
        figure.layout.font.size = 11;
        figure.layout.dragmode = false;
      }
      if (root.hasAttribute("data-printing")) {
        figure.layout.font.size = 10;
        figure.layout.height *= 0.7;
      }
      const bar = plot.clientWidth < 480 ? false : "hover";
      Plotly.react(plot, figure.data, figure.layout, { ...config, displayModeBar: bar });
    }
  }

  function print(on) {
    root.toggleAttribute("data-printing", on);
    draw();
  }

  // A saved figure is for papers and slides: light, on white, whatever the page is shown in.
  function save(button) {
    root.toggleAttribute("data-light", true);
    const figure = coloured(figures[button.dataset.save], "", getComputedStyle(root));
    root.toggleAttribute("data-light", false);
    figure.layout.paper_bgcolor = "#ffffff";
    const height = figure.layout.height;
    Plotly.downloadImage(figure, {
      format: button.dataset.format,
      filename: button.dataset.save,
      width: Math.round(1.9 * height),
      height,
      scale: button.dataset.format === "png" ? 2 : 1,
    });
  }

  for (const button of document.querySelectorAll("button[data-save]")) {
    button.addEventListener("click", () => save(button));
  }

  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  let width = innerWidth;
  addEventListener("resize", () => {
    // A phone's browser changes its height on every scroll; only the width matters to a plot.
    if (innerWidth !== width) {
      width = innerWidth;
      requestAnimationFrame(draw);
    }
  });
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
})();
