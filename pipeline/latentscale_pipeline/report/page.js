"use strict";
(() => {
  // A panel is read by pointer, touch or arrow keys: the nearest of its places is named above it.
  const svg = "http://www.w3.org/2000/svg";
  for (const panel of document.querySelectorAll(".panel[data-readouts]")) {
    const area = panel.querySelector("svg");
    const output = panel.previousElementSibling.querySelector("output");
    const places = panel.dataset.readouts.split("\n").filter(Boolean).map((line) => {
      const [x, y, ...words] = line.split(" ");
      return { x: Number(x), y: y === "-" ? null : Number(y), text: words.join(" ") };
    });
    if (places.length === 0) continue;
    const cursor = area.appendChild(document.createElementNS(svg, "g"));
    cursor.setAttribute("class", "cursor");
    let at = -1;

    function show(place) {
      at = place;
      const found = places[at];
      output.textContent = found ? found.text : "";
      cursor.replaceChildren();
      if (!found) return;
      const single = found.y !== null;
      const mark = cursor.appendChild(document.createElementNS(svg, single ? "circle" : "line"));
      const where = single
        ? { cx: found.x + "%", cy: found.y + "%", r: 8 }
        : { x1: found.x + "%", x2: found.x + "%", y1: 0, y2: "100%" };
      for (const [name, value] of Object.entries(where)) mark.setAttribute(name, value);
    }

    function nearest(event) {
      const box = area.getBoundingClientRect();
      const away = places.map(({ x, y }) => {
        const across = (x / 100) * box.width - (event.clientX - box.left);
        const down = y === null ? 0 : (y / 100) * box.height - (event.clientY - box.top);
        return across * across + down * down;
      });
      return away.indexOf(Math.min(...away));
    }

    panel.addEventListener("pointermove", (event) => show(nearest(event)));
    panel.addEventListener("pointerdown", (event) => show(nearest(event)));
    panel.addEventListener("pointerleave", (event) => {
      // A finger leaves at once; what it read stays.
      if (event.pointerType !== "touch") show(-1);
    });
    panel.addEventListener("blur", () => show(-1));
    panel.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") show(-1);
      if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      show(Math.max(0, Math.min(places.length - 1, at + step)));
    });
  }

  // A command is copied where the browser allows it, and selected where it doesn't.
  for (const command of document.querySelectorAll(".command")) {
    const button = command.appendChild(document.createElement("button"));
    button.type = "button";
    button.textContent = "copy";
    button.addEventListener("click", async () => {
      const code = command.querySelector("code");
      getSelection().selectAllChildren(code);
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "copied";
      } catch {
        button.textContent = "selected";
      }
    });
  }

  // What is folded is printed too, and a link into it opens it.
  const folds = [...document.querySelectorAll("details")];
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = folds.filter((fold) => !fold.open);
    for (const fold of opened) fold.open = true;
  });
  addEventListener("afterprint", () => {
    for (const fold of opened) fold.open = false;
  });
  function unfold() {
    const target = document.getElementById(location.hash.slice(1));
    const fold = target && target.querySelector(":scope > details");
    if (fold) fold.open = true;
  }
  addEventListener("hashchange", unfold);
  unfold();
})();
