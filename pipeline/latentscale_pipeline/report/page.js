"use strict";
(() => {
  // A panel is read by pointer, touch or arrow keys: the nearest of its places is named above it.
  const svg = "http://www.w3.org/2000/svg";
  // Pixels within which a row of a map is named.
  const reach = 18;

  function buttonIn(parent, text, press) {
    const button = parent.appendChild(document.createElement("button"));
    button.type = "button";
    button.append(text);
    button.addEventListener("click", press);
    return button;
  }

  // A map has layers that hide, and is zoomed by buttons or the wheel and dragged.
  function mapOf(panel, area, clear) {
    const drawing = area.querySelector("svg");
    const hidden = new Set();
    const side = 1000;
    const view = { x: 0, y: 0, size: side };

    function look(size, x, y) {
      // The point (x, y) of the panel, from 0 to 1, stays where it is.
      const next = Math.min(side, Math.max(side / 32, size));
      view.x = Math.min(side - next, Math.max(0, view.x + x * (view.size - next)));
      view.y = Math.min(side - next, Math.max(0, view.y + y * (view.size - next)));
      view.size = next;
      drawing.setAttribute("viewBox", [view.x, view.y, next, next].join(" "));
      panel.classList.toggle("zoomed", next < side);
      clear();
    }

    const zoom = panel.appendChild(document.createElement("div"));
    zoom.className = "zoom";
    buttonIn(zoom, "+", () => look(view.size / 2, 0.5, 0.5)).ariaLabel = "zoom in";
    buttonIn(zoom, "−", () => look(view.size * 2, 0.5, 0.5)).ariaLabel = "zoom out";
    buttonIn(zoom, "all", () => look(side, 0.5, 0.5));
    panel.addEventListener("wheel", (event) => {
      if (!event.deltaY || (view.size === side && !event.ctrlKey)) return;
      event.preventDefault();
      const box = area.getBoundingClientRect();
      const at = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
      look(view.size * Math.exp(Math.max(-0.3, Math.min(0.3, event.deltaY / 300))), ...at);
    }, { passive: false });
    let held = null;
    area.addEventListener("pointerdown", (event) => {
      if (view.size === side) return;
      held = { x: event.clientX, y: event.clientY };
      area.setPointerCapture(event.pointerId);
    });
    area.addEventListener("pointermove", (event) => {
      if (!held) return;
      const box = area.getBoundingClientRect();
      view.x -= ((event.clientX - held.x) / box.width) * view.size;
      view.y -= ((event.clientY - held.y) / box.height) * view.size;
      held = { x: event.clientX, y: event.clientY };
      look(view.size, 0, 0);
    });
    for (const end of ["pointerup", "pointercancel"]) {
      area.addEventListener(end, () => { held = null; });
    }

    const names = panel.closest("figure").querySelectorAll(".legend .name");
    const layers = drawing.querySelectorAll("path");
    names.forEach((name, place) => {
      const text = name.textContent.trim();
      const button = buttonIn(name.parentNode, "", () => {
        const away = hidden.delete(text) ? false : Boolean(hidden.add(text));
        button.setAttribute("aria-pressed", String(!away));
        layers[place].classList.toggle("away", away);
        clear();
      });
      button.className = "layer";
      button.setAttribute("aria-pressed", "true");
      name.replaceWith(button);
      button.append(name);
    });

    return {
      hides: ({ x, y, text }) =>
        hidden.has(text.split(": ", 1)[0])
        || 10 * x < view.x || 10 * x > view.x + view.size
        || 10 * y < view.y || 10 * y > view.y + view.size,
      seen: ({ x, y, text }) => ({
        x: (100 * (10 * x - view.x)) / view.size,
        y: (100 * (10 * y - view.y)) / view.size,
        text,
      }),
    };
  }

  for (const panel of document.querySelectorAll(".panel[data-readouts]")) {
    const area = panel.querySelector("svg");
    const output = panel.previousElementSibling.querySelector("output");
    const places = panel.dataset.readouts.split("\n").filter(Boolean).map((line) => {
      const [x, y, ...words] = line.split(" ");
      return { x: Number(x), y: y === "-" ? null : Number(y), text: words.join(" ") };
    });
    if (places.length === 0) continue;
    const map = panel.classList.contains("bare") ? mapOf(panel, area, () => show(-1)) : null;
    const cursor = area.appendChild(document.createElementNS(svg, "g"));
    cursor.setAttribute("class", "cursor");
    let at = -1;

    function show(place) {
      at = place;
      let found = places[at];
      output.textContent = found ? found.text : "";
      cursor.replaceChildren();
      if (!found) return;
      if (map) found = map.seen(found);
      const single = found.y !== null;
      const mark = cursor.appendChild(document.createElementNS(svg, single ? "circle" : "line"));
      const where = single
        ? { cx: found.x + "%", cy: found.y + "%", r: 8 }
        : { x1: found.x + "%", x2: found.x + "%", y1: 0, y2: "100%" };
      for (const [name, value] of Object.entries(where)) mark.setAttribute(name, value);
    }

    function nearest(event) {
      const box = area.getBoundingClientRect();
      const away = places.map((place) => {
        if (map && map.hides(place)) return Infinity;
        const { x, y } = map ? map.seen(place) : place;
        const across = (x / 100) * box.width - (event.clientX - box.left);
        const down = y === null ? 0 : (y / 100) * box.height - (event.clientY - box.top);
        return across * across + down * down;
      });
      const least = away.reduce((one, other) => Math.min(one, other));
      return map && least > reach * reach ? -1 : away.indexOf(least);
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
      let next = at + step;
      while (map && places[next] && map.hides(places[next])) next += step;
      if (places[next]) show(next);
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
